//! Tables that DuckDB computes from an export as JSON Lines.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use iostackbreakdown::model::record::{OpenFile, Records};
use serde_json::{Value, json};

use super::outside::{python, run};

/// Each of them has the numbers of the records. `path`: a file, whose bytes are one of them.
pub fn agree(lines: &Path, path: &str, records: &Records) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/exports/duckdb_tables.py");
    let words = [&python(), script.to_str().unwrap(), lines.to_str().unwrap(), path];
    let (out, _) = run(lines.parent().unwrap(), &words);
    let tables: Value = serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"));
    let mut by_op = BTreeMap::<&str, [u64; 2]>::new();
    for call in &records.calls {
        let [count, ns] = by_op.entry(call.op.name()).or_default();
        (*count, *ns) = (*count + 1, *ns + call.duration_ns().unwrap_or(0));
    }
    assert_eq!(tables["by_op"], json!(by_op));
    let requests = records.requests.iter();
    let device = requests.filter_map(|request| Some(request.ended_ns - request.issued_ns?));
    assert_eq!(tables["device_ns"], json!(device.sum::<u64>()));
    let rows = records.calls.iter().map(|call| call.rows.iter().sum::<u64>());
    assert_eq!(tables["rows_ns"], json!(rows.sum::<u64>()));
    let has_path = |file: &&OpenFile| file.path.as_ref().is_some_and(|known| known.text == path);
    let numbers = records.files.iter().filter(has_path).map(|file| file.number);
    let numbers: BTreeSet<u32> = numbers.collect();
    let on_it = records.calls.iter().filter(|call| numbers.contains(&call.files[0]));
    let bytes: i64 = on_it.map(|call| call.value.max(0)).sum();
    assert!(bytes > 0, "{path}");
    assert_eq!(tables["bytes_of_file"], json!(bytes));
    let mut lost = BTreeMap::<String, u64>::new();
    for loss in &records.lost {
        *lost.entry(json!(loss.kind).as_str().unwrap().to_owned()).or_default() += loss.records;
    }
    assert_eq!(tables["lost"], json!(lost));
}
