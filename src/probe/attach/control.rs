//! What the programs look at while they run.

use super::Attached;
use crate::kernel::interface::types::control;
use crate::model::abi::{NOBODY, STOP_CALLS};

impl Attached {
    /// Changes what the programs look at while they run.
    pub fn control(&mut self, change: impl FnOnce(&mut control)) {
        let maps = &mut self.skeleton.maps;
        let tgid = maps.rodata_data.map_or(0, |rodata| rodata.config.tgid);
        if let Some(bss) = maps.bss_data.as_deref_mut() {
            let place = &raw mut bss.control;
            // SAFETY: a valid place in a shared mapping. The programs only add to a counter among them, which is not touched.
            unsafe {
                let mut copy = place.read_volatile();
                change(&mut copy);
                copy.looked_at = if copy.stopped & STOP_CALLS == 0 { tgid } else { NOBODY };
                (&raw mut (*place).epoch).write_volatile(copy.epoch);
                (&raw mut (*place).began_ns).write_volatile(copy.began_ns);
                (&raw mut (*place).command_tgid).write_volatile(copy.command_tgid);
                (&raw mut (*place).stopped).write_volatile(copy.stopped);
                (&raw mut (*place).looked_at).write_volatile(copy.looked_at);
            }
        }
    }
}
