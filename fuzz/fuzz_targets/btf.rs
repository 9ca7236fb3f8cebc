//! The kernel's BTF.

#![no_main]

use std::collections::BTreeSet;

use iostackbreakdown::kernel::btf::Btf;
use iostackbreakdown_fuzz::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let functions = BTreeSet::from(["vfs_read", "ext4_file_read_iter", ""]);
    let types = BTreeSet::from(["task_struct", "request", "file", ""]);
    if let Ok(btf) = Btf::of_file(Bytes::new(bytes).file, &functions, &types) {
        let _ = (btf.scan(&functions), btf.excerpt(&types));
    }
});
