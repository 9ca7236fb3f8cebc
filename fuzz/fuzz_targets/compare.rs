//! Reports of `--json`, as `compare` reads them.

#![no_main]

use iostackbreakdown::compare::compare;
use iostackbreakdown::printable::is_printable;
use iostackbreakdown_fuzz::Bytes;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let report = Bytes::new(bytes);
    for width in [None, Some(40)] {
        let text = compare(report.path(), report.path(), None, width, &mut |_| ()).unwrap_or_else(|error| error);
        assert!(text.chars().all(|c| c == '\n' || is_printable(c)), "{text:?}");
    }
});
