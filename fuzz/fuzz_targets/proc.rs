//! Texts of /proc and /sys beside the symbols.

#![no_main]

use iostackbreakdown::kernel::preemption::{Sources, decide};
use iostackbreakdown::kernel::{cgroup, diskstats, names};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // As wherever the tool reads a file of text.
    let text = String::from_utf8_lossy(bytes);
    let _ = diskstats::parse(&text, &["nvme0n1".to_owned(), String::new()]);
    let _ = cgroup::hierarchy(&text, false);
    for device in [(259, 2), (0, 0)] {
        let _ = (names::mount_of(&text, device), names::kind_of(&text, device));
    }
    // The same text for each, and a part of it for each.
    let all = [(); 4].map(|()| Some(text.clone().into_owned()));
    let mut parts = text.split('\0').map(str::to_owned);
    for [debugfs, version, command_line, config] in [all, std::array::from_fn(|_| parts.next())] {
        let _ = decide(&Sources {
            debugfs,
            version,
            command_line,
            config,
        });
    }
});
