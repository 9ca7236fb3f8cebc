//! Restricts a function that several file systems share to one of them.

use std::path::Path;

use super::{LazySymbols, vmlinux};
use crate::catalog::FileSystem;
use crate::catalog::Guard;

/// How the files of one file system are recognised.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Narrowing {
    pub guard: Guard,
    /// The address of its file operations, or its magic number.
    pub value: u64,
    /// The source of the value, and why better sources failed.
    pub source: String,
}

/// Unless the magic number is unique, finds the address of the file system's operations: in the given vmlinux, by
/// asking the kernel, in `/proc/kallsyms`, or in a vmlinux in the usual directories. The super block's magic number is
/// then the last resort. `without`: symbols to ignore.
/// there. `without` are names to do without.
#[must_use]
pub fn narrow(fs: &FileSystem, explicit: Option<&Path>, symbols: &LazySymbols, without: &[String]) -> Narrowing {
    let by_magic = |source: String| Narrowing {
        guard: Guard::Magic,
        value: fs.files.magic,
        source,
    };
    let magic = format!("super block magic {:#x}", fs.files.magic);
    let Some(operations) = fs.files.operations else {
        return by_magic(magic);
    };
    let by_address = |address: u64, source: String| Narrowing {
        guard: Guard::FileOperations,
        value: address,
        source,
    };
    let mut failures = Vec::new();

    if without.iter().any(|name| name == operations) {
        failures.push(format!("{operations} left out by --without"));
    } else {
        if explicit.is_none()
            && let Some(address) = symbols.lookup(operations)
        {
            return by_address(address.get(), "the kernel's symbols".to_owned());
        }
        let known = symbols.get();
        if explicit.is_none() {
            match known.as_ref().map(|symbols| symbols.data_address(operations)) {
                Ok(Some(address)) => return by_address(address.get(), "/proc/kallsyms".to_owned()),
                Ok(None) => failures.push(format!(
                    "/proc/kallsyms shows no address of {operations} (needs CAP_SYSLOG and kernel.kptr_restrict below 2)"
                )),
                Err(error) => failures.push(error.to_string()),
            }
        }
        let stext = known.ok().and_then(|symbols| symbols.address("_stext"));
        match vmlinux::data_address(operations, explicit, stext) {
            Ok(found) => {
                return by_address(
                    found.address.get(),
                    format!("{} (offset from {})", found.path.display(), found.offset_source),
                );
            }
            Err(error) => failures.push(error.to_string()),
        }
    }
    by_magic(format!("{magic}: {}", failures.join("; ")))
}
