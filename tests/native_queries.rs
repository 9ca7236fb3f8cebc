//! Recordings in the engines of others: examples/fleet-queries computes the numbers of `report` from their files, with
//! polars, DuckDB and ClickHouse. Run it as root; `tests/run` installs the packages of tests/exports/requirements.txt.

mod folder;
#[path = "exports/outside.rs"]
#[allow(dead_code, reason = "shared with the tests of exports")]
mod outside;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use folder::Folder;
use iostackbreakdown::view::errno::errno_name;
use serde_json::{Value, json};

use self::outside::python;

const TOOL: &str = env!("CARGO_BIN_EXE_IOStackBreakdown");
const ENGINES: [&str; 3] = ["polars", "duckdb", "clickhouse"];

fn run(folder: &Path, program: &Path, arguments: &[&str]) -> String {
    let done = Command::new(program).args(arguments).current_dir(folder).output();
    let done = done.unwrap_or_else(|error| panic!("{}: {error}; tests/run installs it", program.display()));
    let said = String::from_utf8_lossy(&done.stderr);
    // A limit that is broken is no failure.
    assert!(matches!(done.status.code(), Some(0 | 3)), "{arguments:?}: {said}");
    String::from_utf8(done.stdout).unwrap()
}

fn json_of(folder: &Path, arguments: &[&str]) -> Value {
    serde_json::from_str(&run(folder, Path::new(TOOL), arguments)).unwrap()
}

/// Writes, reads in both orders, fsyncs, errors, and files whose numbers of inodes are used again.
const WORKLOAD: &str = "
    for i in 1 2 3; do
        dd if=/dev/zero of=f$i bs=4096 count=64 conv=fsync
        dd if=f$i of=copy$i bs=16k iflag=direct
        cat none
    done
    for at in 31 7 40 8 9; do dd if=f1 bs=4096 count=1 skip=$at iflag=direct; done >/dev/null
    for i in 1 2 3; do
        for name in journal other; do
            dd if=/dev/zero of=$name bs=4096 count=3
            dd if=$name of=/dev/null bs=8192
        done
        rm journal other
        echo $i > new$i
        cat new$i
    done
    sync f1 f2 f3
    sleep 1.1";

fn record(folder: &Path, name: &str, layers: &str) {
    let recording = ["record", "-q", "-T", layers, "-o", name, "--", "sh", "-c", WORKLOAD];
    let done = Command::new(TOOL).args(recording).current_dir(folder).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && !said.contains("INCOMPLETE"), "{said}");
}

/// Rows of tables, as texts that can be compared.
type Rows = BTreeSet<String>;

fn row(values: &Value) -> String {
    values.to_string()
}

fn list(value: &Value) -> Vec<Value> {
    value.as_array().cloned().unwrap_or_default()
}

/// The ten tables of a recording, as `report` has them.
fn expected(folder: &Path, name: &str) -> Vec<(&'static str, Rows)> {
    let report = json_of(folder, &["report", name, "--json"]);
    let questions = match list(&report["layers"]).iter().any(|layer| layer["layer"] == "blk") {
        true => "--access --seeks --by disk --limit device=200us --top 1000",
        // What is asked about requests is refused.
        false => "--access --top 1000",
    };
    let questions: Vec<&str> = questions.split(' ').collect();
    let answers = json_of(folder, &[&["report", name, "--json"], &questions[..]].concat());
    // One of the whole stack has rows, and its records have the operations of single layers.
    let layers = match report["stack"].is_object() {
        true => json_of(folder, &["report", name, "-T", "syscall,blk", "--json"]),
        false => report.clone(),
    };
    let mut tables = of_counters(&layers, &report["stack"], name);
    tables.extend(of_records(&answers, name));
    tables
}

fn of_counters(report: &Value, stack: &Value, name: &str) -> Vec<(&'static str, Rows)> {
    let ops_of = |layer: &str| -> Vec<Value> {
        let layers = list(&report["layers"]).into_iter();
        let ops = layers
            .filter(|found| found["layer"] == layer)
            .flat_map(|layer| list(&layer["ops"]));
        ops.filter(|op| op["count"].as_u64() > Some(0)).collect()
    };
    let (calls, requests) = (ops_of("syscall"), ops_of("blk"));
    let times = |op: &Value| json!([name, op["op"], op["count"], op["total_ns"], op["min_ns"], op["max_ns"]]);
    let with_bytes = |op: &Value| {
        let mut values = times(op);
        values.as_array_mut().unwrap().push(op["bytes"].clone());
        row(&values)
    };
    let errors = |op: &Value| -> Vec<String> {
        let errors = op["errors"].as_object().unwrap().iter();
        errors
            .map(|(error, count)| row(&json!([name, op["op"], error, count])))
            .collect()
    };
    let steps = |op: &Value| -> Vec<String> {
        let steps = list(&op["buckets"]).into_iter();
        steps
            .map(|step| row(&json!([name, op["op"], step["ge_ns"], step["count"]])))
            .collect()
    };
    let mut rows = BTreeMap::<String, u64>::new();
    let families = list(&stack["families"]);
    for one in families.iter().flat_map(|family| list(&family["rows"])) {
        *rows.entry(one["row"].as_str().unwrap().to_owned()).or_default() += one["ns"].as_u64().unwrap_or(0);
    }
    let rows = rows.iter().filter(|(_, ns)| **ns > 0);
    let bytes = calls.iter().filter(|op| op["bytes"].is_u64());
    vec![
        ("calls", calls.iter().map(|op| row(&times(op))).collect()),
        (
            "bytes",
            bytes.map(|op| row(&json!([name, op["op"], op["bytes"]]))).collect(),
        ),
        ("errors", calls.iter().flat_map(errors).collect()),
        ("histogram", calls.iter().flat_map(steps).collect()),
        ("requests", requests.iter().map(with_bytes).collect()),
        ("rows", rows.map(|(of, ns)| row(&json!([name, of, ns]))).collect()),
    ]
}

fn of_records(answers: &Value, name: &str) -> Vec<(&'static str, Rows)> {
    let sum = |level: &Value, what: &str| {
        ["read", "write"]
            .map(|way| level[way][what].as_u64().unwrap())
            .iter()
            .sum::<u64>()
    };
    let access = list(&answers["access"]["files"]).into_iter().filter_map(|file| {
        let inode = &file["file"]["inode"];
        let inode = format!("{}:{} {}", inode["major"], inode["minor"], inode["number"]);
        let level = list(&file["levels"])
            .into_iter()
            .find(|level| level["level"] == "VFS")?;
        let sums = ["count", "bytes", "sequential"].map(|what| sum(&level, what));
        Some(row(&json!([name, inode, sums[0], sums[1], sums[2]])))
    });
    let disk = |disk: &Value| format!("{}:{}", disk["disk"]["major"], disk["disk"]["minor"]);
    let disks = list(&answers["seeks"]["disks"]);
    let seeks = |of: &Value| row(&json!([name, disk(of), of["requests"], of["seeks"], of["sectors"]]));
    let usage = |of: &Value| {
        let usage = &of["usage"];
        row(&json!([
            name,
            disk(of),
            usage["busy_ns"],
            usage["device_ns"],
            usage["max_depth"]
        ]))
    };
    let used = disks.iter().filter(|of| of["usage"]["requests"].as_u64() > Some(0));
    let waited = list(&answers["limits"]["limits"][0]["waited"]);
    let limits = waited
        .iter()
        .map(|one| row(&json!([name, one["process"]["pid"], one["broken"]])));
    vec![
        ("access", access.collect()),
        ("seeks", disks.iter().map(seeks).collect()),
        ("limits", limits.collect()),
        ("usage", used.map(usage).collect()),
    ]
}

/// The rows of a table of an engine for one recording, in the form of [`expected`].
fn computed(tables: &Value, table: &str, name: &str, expected: &Rows) -> Rows {
    let rows = tables[table]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row[0] == name)
        .cloned();
    let rows = rows.filter_map(|mut row| {
        match table {
            "errors" => row[2] = json!(errno_name(i32::try_from(row[2].as_i64()?).ok()?)),
            // Those that broke no limit are not in the report.
            "limits" if row[3] == 0 => return None,
            "limits" => drop(row.as_array_mut()?.remove(2)),
            // Names of links are read, too, and are no bytes of files.
            "bytes" if !expected.iter().any(|known| known.contains(&format!(",{},", row[1]))) => return None,
            _ => {}
        }
        Some(row.to_string())
    });
    rows.collect()
}

/// The tables that an engine's script computes of a recording, or of a directory of them.
fn tables_of(engine: &str, folder: &Path, path: &Path) -> Value {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/fleet-queries");
    let script = scripts.join(format!("{engine}_tables.py"));
    let arguments = [script.to_str().unwrap(), path.to_str().unwrap()];
    serde_json::from_str(&run(folder, Path::new(&python()), &arguments)).unwrap()
}

/// A recording, and what is in it: only one of the whole stack has rows.
struct Case {
    name: &'static str,
    expected: Vec<(&'static str, Rows)>,
    has_rows: bool,
    has_requests: bool,
}

impl Case {
    fn agrees(&self, tables: &Value, engine: &str) {
        let Self {
            name,
            has_rows,
            has_requests,
            ..
        } = *self;
        assert_eq!(tables.as_object().unwrap().len(), self.expected.len());
        for (table, rows) in &self.expected {
            let found = computed(tables, table, name, rows);
            let is_reported = match *table {
                "rows" => has_rows,
                // Records of the whole stack have those of kernel threads, too, which no operation counts.
                "requests" => !has_rows && has_requests,
                "seeks" | "limits" | "usage" => has_requests,
                _ => true,
            };
            if is_reported {
                assert!(!rows.is_empty(), "{table} of {name} is empty");
                assert_eq!(found, *rows, "{table} of {name}, by {engine}");
            } else if !has_requests {
                assert!(
                    rows.is_empty() && (found.is_empty() || *table == "rows"),
                    "{table} by {engine}"
                );
            }
        }
    }
}

#[test]
fn engines_compute_the_numbers_of_the_report() {
    let folder = Folder::new("queries");
    let (fleet, alone) = (folder.join("fleet"), folder.join("alone"));
    fs::create_dir_all(&fleet).unwrap();
    fs::create_dir_all(&alone).unwrap();
    let case = |folder: &Path, name, layers, has_rows, has_requests| {
        record(folder, name, layers);
        Case {
            name,
            expected: expected(folder, name),
            has_rows,
            has_requests,
        }
    };
    let all = [
        case(&fleet, "db7.iosb", "syscall,blk", false, true),
        case(&fleet, "db8.iosb", "all", true, true),
    ];
    // It has no requests, so tables without a file.
    let one = case(&alone, "web1.iosb", "syscall", false, false);
    for engine in ENGINES {
        let of_fleet = tables_of(engine, &folder, &fleet);
        all.iter().for_each(|case| case.agrees(&of_fleet, engine));
        one.agrees(&tables_of(engine, &folder, &alone.join(one.name)), engine);
    }
}

/// The same of a recording of the whole stack that was made elsewhere, as tests/exports/guests does in guests.
#[test]
#[ignore = "needs a recording in $IOSB_RECORDING"]
fn engines_compute_the_numbers_of_another_recording() {
    let recording = std::env::var("IOSB_RECORDING").expect("IOSB_RECORDING is a recording of the whole stack");
    let folder = Folder::new("queries-of-another");
    let name = "another.iosb";
    std::os::unix::fs::symlink(recording, folder.join(name)).unwrap();
    let case = Case {
        name,
        expected: expected(&folder, name),
        has_rows: true,
        has_requests: true,
    };
    for engine in ENGINES {
        case.agrees(&tables_of(engine, &folder, &folder.join(name)), engine);
    }
}
