//! A table of a recording, in a segment that was cut, so that no checksum protects its reader. The first byte chooses the table.

#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use iostackbreakdown::model::recording::{Meta, SCHEMA};
use iostackbreakdown::recording::Recording;
use libfuzzer_sys::fuzz_target;

const TABLES: [&str; 12] = [
    "calls", "waits", "requests", "sleeps", "async", "faults", "files", "processes", "folders", "seconds", "lost", "marks",
];

/// A recording in memory, with one segment.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = PathBuf::from(format!("/dev/shm/iosb-fuzz-recording-{}", std::process::id()));
    fs::create_dir_all(folder.join("000001")).expect("a directory in memory");
    let meta = Meta {
        schema: SCHEMA,
        ..Meta::default()
    };
    let meta = serde_json::to_vec(&meta).expect("JSON");
    fs::write(folder.join("meta.json"), meta).expect("a file in memory");
    folder
});

fuzz_target!(|bytes: &[u8]| {
    let Some((table, bytes)) = bytes.split_first() else { return };
    let table = TABLES[usize::from(*table) % TABLES.len()];
    let path = FOLDER.join(format!("000001/{table}.arrow"));
    fs::write(&path, bytes).expect("a file in memory");
    let recording = Recording::open(&FOLDER).expect("its description is whole");
    let records: usize = recording.batches(None, None).map(|records| records.len()).sum();
    let _ = (records, recording.seconds().count(), recording.span(), recording.damage());
    fs::remove_file(&path).expect("a file in memory");
});
