//! Kernel modules: `modprobe`'s part of the work, with the list that the runner put into the initramfs.

use super::process::{ours, wait_for};
use crate::protocol::{MODULE_LIST, MODULES};
use nix::errno::Errno;
use nix::kmod::{DeleteModuleFlags, ModuleInitFlags, delete_module, finit_module};
use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::path::Path;
use std::time::Duration;

/// Enough for a busy host.
const DETACHED: Duration = Duration::from_secs(30);

pub struct Modules {
    /// A module's own name and its dependencies, in load order, itself last.
    chains: HashMap<String, Vec<String>>,
}

/// A loaded module; dropping it unloads it.
#[derive(Debug)]
pub struct Loaded(CString);

impl Modules {
    pub fn list() -> Result<Self, String> {
        let text = std::fs::read_to_string(MODULE_LIST).map_err(|e| format!("{MODULE_LIST}: {e}"))?;
        let chains = text.lines().filter_map(|line| {
            let chain: Vec<String> = line.split(' ').map(Into::into).collect();
            Some((chain.last()?.clone(), chain))
        });
        Ok(Self {
            chains: chains.collect(),
        })
    }

    /// False if this kernel has no such module: it is built in, or does not exist.
    pub fn has(&self, module: &str) -> bool {
        self.chains.contains_key(module)
    }

    pub fn load(&self, module: &str, parameters: &str) -> Result<Loaded, String> {
        let chain = self
            .chains
            .get(module)
            .ok_or_else(|| format!("this kernel has no module {module}"))?;
        // Left by a check that was killed before it could unload it, perhaps with other parameters.
        if Path::new(&format!("/sys/module/{module}/initstate")).exists() {
            drop(Loaded::new(module)?);
        }
        for name in chain {
            let path = format!("{MODULES}/{name}.ko");
            let file = File::open(&path).map_err(|e| format!("{path}: {e}"))?;
            let wanted = name == module;
            let parameters = CString::new(if wanted { parameters } else { "" })
                .map_err(|_| format!("{module}: parameters with a NUL"))?;
            match finit_module(&file, &parameters, ModuleInitFlags::empty()) {
                Ok(()) => {}
                Err(Errno::EEXIST) if !wanted => {}
                Err(error) => return Err(format!("module {name} does not load: {error}")),
            }
        }
        Loaded::new(module)
    }
}

impl Loaded {
    fn new(module: &str) -> Result<Self, String> {
        CString::new(module)
            .map(Self)
            .map_err(|_| format!("{module:?} is no module name"))
    }

    /// Leaves it loaded.
    pub fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Loaded {
    /// A device that has just been closed keeps its module for a moment. No probes may remain on it: unloading a module
    /// while an earlier run is being detached from it can leave 5.10 with a hooked function without a program.
    fn drop(&mut self) {
        if let Err(error) = wait_for("the tool to be detached", DETACHED, || ours().is_empty()) {
            eprintln!("{:?}: {error}", self.0);
        }
        let unloaded = wait_for("the module to unload", Duration::from_secs(10), || {
            delete_module(&self.0, DeleteModuleFlags::O_NONBLOCK).is_ok()
        });
        if let Err(error) = unloaded {
            eprintln!("{:?}: {error}", self.0);
        }
    }
}
