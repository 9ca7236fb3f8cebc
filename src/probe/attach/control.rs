//! The variables of the BPF programs that change during a run.

use libbpf_rs::{ErrorKind, MapCore, MapFlags};

use super::Attached;
use crate::kernel::interface::types::control;
use crate::model::abi::{NO_PROCESS, STOP_CALLS};

impl Attached {
    /// Changes the variables that the programs read while they run.
    pub fn control(&mut self, change: impl FnOnce(&mut control)) {
        let maps = &mut self.skeleton.maps;
        let tgid = maps.rodata_data.map_or(0, |rodata| rodata.config.tgid);
        if let Some(bss) = maps.bss_data.as_deref_mut() {
            let control = &raw mut bss.control;
            // SAFETY: a valid pointer into a shared mapping. The programs write only one counter of it, which is not
            // written here.
            unsafe {
                let mut copy = control.read_volatile();
                change(&mut copy);
                copy.active_tgid = if copy.stopped & STOP_CALLS == 0 {
                    tgid
                } else {
                    NO_PROCESS
                };
                (&raw mut (*control).epoch).write_volatile(copy.epoch);
                (&raw mut (*control).began_ns).write_volatile(copy.began_ns);
                (&raw mut (*control).drain).write_volatile(copy.drain);
                (&raw mut (*control).command_tgid).write_volatile(copy.command_tgid);
                (&raw mut (*control).stopped).write_volatile(copy.stopped);
                (&raw mut (*control).active_tgid).write_volatile(copy.active_tgid);
            }
        }
    }

    /// Adds a process to those that are traced, by its number in the initial PID namespace.
    ///
    /// # Errors
    /// The kernel's error, if there is no room for it.
    pub fn trace(&self, tgid: u32) -> libbpf_rs::Result<()> {
        self.skeleton
            .maps
            .traced
            .update(&tgid.to_ne_bytes(), &[1], MapFlags::ANY)
    }

    /// Ends that for a process whose exit the programs may have missed: its number may be that of another process now.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn stop_tracing(&mut self, tgid: u32) -> libbpf_rs::Result<()> {
        let maps = &mut self.skeleton.maps;
        match maps.traced.delete(&tgid.to_ne_bytes()) {
            // The programs have seen the exit.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            done => done?,
        }
        for element in maps.bss_data.iter_mut().flat_map(|bss| &mut bss.traced_threads) {
            let element = &raw mut *element;
            // SAFETY: a valid pointer into a shared mapping. If a program writes another thread there meanwhile, that
            // one is looked up again.
            unsafe {
                if (!element.read_volatile() >> 32) as u32 == tgid {
                    element.write_volatile(0);
                }
            }
        }
        Ok(())
    }
}
