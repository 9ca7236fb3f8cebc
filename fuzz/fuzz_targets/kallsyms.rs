//! `/proc/kallsyms`.

#![no_main]

use std::collections::BTreeSet;

use iostackbreakdown::kernel::kallsyms::Symbols;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let wanted = BTreeSet::from(["_stext", "vfs_read", "ext4_file_operations", ""]);
    let symbols = Symbols::parse(bytes, &wanted).expect("bytes can be read");
    for name in wanted {
        assert!(symbols.entries(name).len() <= bytes.len());
        let _ = (symbols.is_text(name, Some("ext4")), symbols.data_address(name));
        let _ = (symbols.text_address(name), symbols.address(name));
    }
});
