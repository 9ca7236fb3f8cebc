//! ELF files of the kernel: vmlinux, and /proc/kcore.

#![no_main]

use iostackbreakdown::kernel::vmlinux::{ElfSymbols, vmcore_offset};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(symbols) = ElfSymbols::parse(bytes, &["_stext", "ext4_file_operations", ""]) {
        let _ = symbols.address("_stext");
    }
    let _ = vmcore_offset(bytes);
});
