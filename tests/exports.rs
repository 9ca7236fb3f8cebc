//! Exports, read by the tools for which they are made. `tests/run` installs these (the group `exports` of
//! tests/lib/requirements.sh, and the packages of tests/exports/requirements.txt).

mod folder;
mod left_out;
#[path = "exports/outside.rs"]
mod outside;
#[allow(dead_code, reason = "shared with the guests, who need more of it")]
#[path = "vm/guest/process.rs"]
mod process;
#[allow(dead_code, reason = "shared with the tests of reports made by hand")]
mod scenes;
#[path = "../src/export/synthetic.rs"]
#[allow(dead_code, reason = "shared with the unit tests")]
mod synthetic;
#[path = "exports/tables.rs"]
mod tables;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use folder::Folder;
use iostackbreakdown::export::output::{Directory, Stream};
use iostackbreakdown::export::{Format, Output, Selection, Summary, export};
use iostackbreakdown::model::ids::Layer;
use iostackbreakdown::model::record::{Records, Sleep};
use iostackbreakdown::model::recording::Names;
use iostackbreakdown::model::run_info::{LayerInfo, RunInfo};
use iostackbreakdown::model::snapshot::Snapshot;
use iostackbreakdown::recording::{Limits, Writer};
use left_out::left_out;
use process::wait_for;
use scenes::kept::Kept;
use serde_json::{Value, json};

use self::outside::{python, run};

/// An export in a directory of its own.
struct Exported {
    folder: Folder,
    path: PathBuf,
    #[allow(dead_code, reason = "only some tests need it")]
    summary: Summary,
}

impl Exported {
    fn new(format: Format, name: &str, batches: &[Records]) -> Self {
        let folder = Folder::new(&format!("export-{name}"));
        let path = folder.join("out");
        let mut output: Box<dyn Output> = if format.is_directory() {
            Box::new(Directory::create(&path).unwrap())
        } else {
            Box::new(Stream::new(fs::File::create(&path).unwrap()))
        };
        let meta = synthetic::meta();
        let read = || batches.iter().cloned();
        let summary = export(format, &meta, &Selection::default(), read, &mut *output, |_, _| ()).unwrap();
        Self { folder, path, summary }
    }
}

fn recorded() -> Records {
    let mut all = Records::default();
    synthetic::batches().into_iter().for_each(|batch| all.append(batch));
    all
}

/// Runs a script of tests/exports/, which prints JSON.
fn script(name: &str, argument: &Path) -> Value {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/exports").join(name);
    let words = [&python(), script.to_str().unwrap(), argument.to_str().unwrap()];
    let (out, _) = run(argument.parent().unwrap(), &words);
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
}

#[test]
fn every_line_of_json_matches_the_schema() {
    let schema: Value = serde_json::from_str(include_str!("../schema/events.schema.json")).unwrap();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let exported = Exported::new(Format::Jsonl, "schema", &synthetic::batches());
    let text = fs::read_to_string(&exported.path).unwrap();
    let mut kinds = std::collections::BTreeSet::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let wrong: Vec<String> = validator.iter_errors(&line).map(|error| error.to_string()).collect();
        assert!(wrong.is_empty(), "{line}: {wrong:?}");
        let (kind, record) = line.as_object().unwrap().iter().next().unwrap();
        // Every field is required, and no other allowed.
        if kinds.insert(kind.clone()) {
            for field in record.as_object().unwrap().keys() {
                let mut without = line.clone();
                without[kind].as_object_mut().unwrap().remove(field);
                assert!(!validator.is_valid(&without), "{kind} without {field}");
            }
            let mut with = line.clone();
            with[kind]["another"] = json!(1);
            assert!(!validator.is_valid(&with), "{kind} with another field");
        }
    }
    assert_eq!(kinds.len(), 10, "{kinds:?}");
}

#[test]
fn duckdb_computes_the_same_tables_from_the_lines() {
    let exported = Exported::new(Format::Jsonl, "duckdb", &synthetic::batches());
    let all = recorded();
    let lost: Vec<Value> = all.lost.iter().map(|loss| json!([loss.kind, loss.records])).collect();
    assert_eq!(json!(lost), json!([["calls", 2113], ["requests", 7]]));
    tables::agree(&exported.path, synthetic::TABLE, &all);
}

#[test]
fn babeltrace2_reads_all_events_and_the_loss_with_its_interval() {
    let exported = Exported::new(Format::Ctf, "babeltrace", &synthetic::batches());
    let (out, err) = run(&exported.folder, &["babeltrace2", "out"]);
    let count = |what: &str| out.lines().filter(|line| line.contains(what)).count();
    let all = recorded();
    assert_eq!(count(" syscall_entry_"), all.calls.len());
    assert_eq!(
        count(" syscall_exit_"),
        all.calls.iter().filter(|call| call.end_ns.is_some()).count()
    );
    assert_eq!(
        count(" iosb_rows:"),
        all.calls
            .iter()
            .filter(|call| call.rows.iter().any(|ns| *ns > 0))
            .count()
    );
    let issued = all
        .requests
        .iter()
        .filter(|request| request.issued_ns.is_some())
        .count();
    assert_eq!(
        (count(" block_rq_issue:"), count(" block_rq_complete:")),
        (issued, issued)
    );
    let lost: Vec<&str> = err.lines().filter(|line| !line.trim().is_empty()).collect();
    assert_eq!(lost.len(), 2, "nothing else is remarked: {err}");
    assert!(
        lost[0].contains("2113 events between") && lost[1].contains("7 events"),
        "{err}"
    );
    assert!(
        lost[0].contains(".031000000") && lost[0].contains(".035000000"),
        "{err}"
    );
}

#[test]
fn lttngs_analyses_have_the_same_numbers() {
    if !Path::new("/usr/bin/lttng-iolatencystats").exists() {
        left_out(None, "they are not installed");
        return;
    }
    let exported = Exported::new(Format::Ctf, "lttng", &synthetic::batches());
    let (out, _) = run(&exported.folder, &["lttng-iolatencystats", "--no-progress", "out"]);
    let all = recorded();
    let is_sync = |call: &&iostackbreakdown::model::record::Call| call.op.name() == "fsync";
    let syncs = all.calls.iter().filter(is_sync).count();
    let row = |name: &str| -> Vec<String> {
        let line = out
            .lines()
            .find(|line| line.trim_start().to_lowercase().starts_with(name));
        line.unwrap_or_else(|| panic!("{name}: {out}"))
            .split_whitespace()
            .map(str::to_owned)
            .collect()
    };
    let sync = row("sync");
    assert!(
        sync.contains(&syncs.to_string()) && sync.contains(&"5000.000".to_owned()),
        "{out}"
    );
    let disk = row("sda");
    let issued = all
        .requests
        .iter()
        .filter(|request| request.issued_ns.is_some() && request.bytes > 0)
        .count();
    assert!(disk.contains(&issued.to_string()), "{issued}: {out}");
    let (out, _) = run(&exported.folder, &["lttng-syscallstats", "--no-progress", "out"]);
    assert!(out.contains("pread64") && out.contains("postgres"), "{out}");
}

#[test]
fn blkparse_and_btt_have_the_same_counts_times_and_skips() {
    let exported = Exported::new(Format::Blktrace, "blktrace", &synthetic::batches());
    let all = recorded().requests;
    let shell = |command: &str| run(&exported.path, &["sh", "-c", command]).0;
    let out = shell("cat sda.blktrace.* | blkparse -i - -f '%a %T.%t %S %n %C\\n'");
    let count = |action: &str| out.lines().filter(|line| line.starts_with(action)).count();
    let issued: Vec<_> = all.iter().filter(|request| request.issued_ns.is_some()).collect();
    assert_eq!(
        [count("Q "), count("D "), count("C ")],
        [all.len(), issued.len(), all.len()],
        "{out}"
    );
    assert!(out.contains("Skips: 1 forward (7 -"), "{out}");
    shell("blkparse -i sda -d sda.bin >/dev/null && btt -i sda.bin -o stats");
    let stats = fs::read_to_string(exported.path.join("stats.avg")).unwrap();
    let average = |what: &str| -> f64 {
        let line = stats
            .lines()
            .find(|line| line.starts_with(what))
            .unwrap_or_else(|| panic!("{stats}"));
        line.split_whitespace().nth(2).unwrap().parse().unwrap()
    };
    // btt leaves out requests without sectors.
    let with_data = || issued.iter().filter(|request| request.bytes > 0);
    let mean = |from: &dyn Fn(&iostackbreakdown::model::record::Request) -> u64| {
        with_data().map(|request| request.ended_ns - from(request)).sum::<u64>() as f64
            / with_data().count() as f64
            / 1e9
    };
    let d2c = mean(&|request| request.issued_ns.unwrap());
    assert!((average("D2C") - d2c).abs() < 1e-6, "{d2c}: {stats}");
}

#[test]
fn fio_replays_the_job_with_the_same_bytes() {
    let exported = Exported::new(Format::Fio, "fio", &synthetic::batches());
    run(&exported.path, &["sh", "prepare.sh"]);
    let (out, _) = run(
        &exported.path,
        &["fio", "--output-format=json", "--replay_no_stall=1", "thread.fio"],
    );
    let report: Value = serde_json::from_str(&out[out.find('{').unwrap()..]).unwrap();
    let of_jobs = |what: &str| -> u64 {
        report["jobs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|job| job[what]["io_bytes"].as_u64().unwrap())
            .sum()
    };
    let all = recorded();
    let moved = |letter: &str| -> u64 {
        let is = |name: &str| name.contains(letter);
        let calls = all
            .calls
            .iter()
            .filter(|call| call.end_ns.is_some() && is(call.op.name()));
        let data = calls.filter(|call| !call.op.name().contains("open"));
        data.map(|call| u64::try_from(call.value).unwrap_or(0)).sum()
    };
    let asynchronous: u64 = all.asynchronous.iter().map(|call| call.value.unsigned_abs()).sum();
    assert_eq!(of_jobs("read"), moved("read") + asynchronous, "{out}");
    assert_eq!(of_jobs("write"), moved("write"), "{out}");
}

#[test]
fn the_official_messages_of_perfetto_read_the_trace() {
    let mut batches = synthetic::batches();
    // In a call that has no record: it has no slice.
    let batch = batches.iter_mut().find(|batch| !batch.sleeps.is_empty()).unwrap();
    let outside = Sleep {
        tid: 77,
        ..batch.sleeps[0].clone()
    };
    batch.sleeps.push(outside);
    let exported = Exported::new(Format::Perfetto, "perfetto", &batches);
    let trace = script("perfetto_slices.py", &exported.path);
    let all = recorded();
    let ended = all.calls.iter().filter(|call| call.end_ns.is_some());
    assert_eq!(trace["open_slices"], json!(all.calls.len() - ended.clone().count()));
    assert_eq!(trace["badly_nested"], json!(0));
    let calls: u64 = ended.map(|call| call.duration_ns().unwrap()).sum();
    assert_eq!(trace["calls_ns"], json!(calls));
    let sleeps: u64 = all.sleeps.iter().map(|sleep| sleep.in_ns - sleep.out_ns).sum();
    assert_eq!(trace["sleeps_ns"], json!(sleeps));
    let device: u64 = all
        .requests
        .iter()
        .filter_map(|request| Some(request.ended_ns - request.issued_ns?))
        .sum();
    assert_eq!(trace["device_ns"], json!(device));
    let rows: u64 = all.calls.iter().map(|call| call.rows.iter().sum::<u64>()).sum();
    assert_eq!(trace["rows_ns"], json!(rows));
    assert_eq!(trace["deepest_at_device"], trace["deepest_counted"]);
    assert_eq!((&trace["lost"], &trace["dropped"]), (&json!(2), &json!(2)));
    let reads = all
        .requests
        .iter()
        .filter(|request| request.op.name() == "read")
        .count();
    assert_eq!(
        (&trace["flows"], &trace["flows_without_end"]),
        (&json!(reads), &json!(0))
    );
    assert!(trace["names"].as_array().unwrap().contains(&json!(synthetic::HOSTILE)));
}

/// Writes a recording with so many calls or a few more, and their requests and sleeps. The counters of its seconds are those of
/// a run that did nothing.
fn long_recording(path: &Path, calls: u64) {
    let all = synthetic::batches();
    let rounds = calls / recorded().calls.len() as u64 + 1;
    let scenes = scenes::all();
    let scene = scenes.iter().find(|scene| scene.name == "stack").unwrap();
    let kept = Kept::of(&scene.parts[0]);
    let mut meta = synthetic::meta();
    meta.run = RunInfo {
        began_ns: synthetic::BEGAN_NS,
        ..kept.run
    };
    // The scene has no requests.
    meta.run.layers.push(LayerInfo {
        layer: Layer::Blk,
        ..meta.run.layers[0].clone()
    });
    let counters = |at_ns| Snapshot {
        at_ns,
        ..kept.before.clone()
    };
    let mut writer = Writer::create(path, meta, Names::Full, Limits::default()).unwrap();
    writer.second(&counters(synthetic::BEGAN_NS)).unwrap();
    let mut end = synthetic::BEGAN_NS;
    for round in 0..rounds {
        let by = round * ROUND_NS;
        for mut batch in all.iter().cloned() {
            for call in &mut batch.calls {
                call.begin_ns += by;
                call.end_ns = call.end_ns.map(|end| end + by);
            }
            for request in &mut batch.requests {
                let moments = [
                    &mut request.submitted_ns,
                    &mut request.started_ns,
                    &mut request.issued_ns,
                ];
                moments.into_iter().flatten().for_each(|moment| *moment += by);
                request.ended_ns += by;
            }
            for sleep in &mut batch.sleeps {
                sleep.out_ns += by;
                sleep.in_ns += by;
                sleep.woken_ns = sleep.woken_ns.map(|woken| woken + by);
            }
            // A thread is hung once, and definitions are written once.
            batch.calls.retain(|call| call.end_ns.is_some());
            if round > 0 {
                (batch.files, batch.threads) = Default::default();
            }
            (batch.asynchronous, batch.faults, batch.lost, batch.marks) = Default::default();
            writer.records(batch, synthetic::BEGAN_NS + by + ROUND_NS).unwrap();
        }
        end = synthetic::BEGAN_NS + by + ROUND_NS;
        if round % 9 == 0 {
            writer.second(&counters(end)).unwrap();
        }
    }
    writer.second(&counters(end)).unwrap();
    writer.end("test", end).unwrap();
}

/// All that [`synthetic::batches`] has happens in this time.
const ROUND_NS: u64 = 110_000_000;

/// What is done with a recording.
#[derive(Debug, Clone, Copy)]
enum Use {
    Export(Format),
    Report(&'static [&'static str]),
}

impl Use {
    /// The command, which writes to this directory or to nothing.
    fn of(self, recording: &Path, output: &Path) -> Command {
        let mut tool = Command::new(env!("CARGO_BIN_EXE_IOStackBreakdown"));
        let to = match self {
            Self::Export(format) => {
                tool.args(["export", "-q", "--to", format.name()]);
                if format.is_directory() {
                    output
                } else {
                    Path::new("/dev/null")
                }
            }
            Self::Report(words) => {
                tool.arg("report").args(words);
                Path::new("/dev/null")
            }
        };
        tool.arg("-o").arg(to).arg(recording);
        tool
    }
}

/// Does it in a process of its own. Returns how long it took, its CPU time in seconds, and the most memory that it had, in
/// bytes.
#[allow(clippy::zombie_processes, reason = "wait4 waits for it")]
fn measured(recording: &Path, what: Use) -> (std::time::Duration, i64, u64) {
    let output = recording.with_extension("out");
    let begun = std::time::Instant::now();
    let mut tool = what.of(recording, &output);
    let child = tool.stderr(std::process::Stdio::null()).spawn().unwrap();
    let pid = child.id().cast_signed();
    // SAFETY: a structure of zero bytes is valid, and the system call fills it in.
    let (status, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        let mut status = 0;
        assert_eq!(libc::wait4(pid, &raw mut status, 0, &raw mut usage), pid);
        (status, usage)
    };
    let took = begun.elapsed();
    assert_eq!(status, 0, "{what:?}");
    let _ = fs::remove_dir_all(&output);
    let cpu_s = usage.ru_utime.tv_sec + usage.ru_stime.tv_sec;
    (took, cpu_s, usage.ru_maxrss as u64 * 1024)
}

/// Exports and reports take no more memory than those of a recording with a tenth of the calls, and a limited time.
/// `IOSB_CALLS`, for measuring in a release build: so many calls, and the limits of time that 10 million of them have.
#[test]
fn memory_and_time_grow_slowly_with_the_length() {
    const REPORTS: [&[&str]; 4] = [
        &["--json"],
        &["--by", "file"],
        &["--access"],
        &["--limit", "read=1s,device=1s"],
    ];
    let calls = std::env::var("IOSB_CALLS")
        .ok()
        .map(|calls| calls.parse::<u64>().unwrap());
    let folder = Folder::new("export-long");
    let all = calls.unwrap_or(100_000);
    let [short, long] = [("short.iosb", all / 10), ("long.iosb", all)].map(|(name, calls)| {
        let path = folder.join(name);
        long_recording(&path, calls);
        path
    });
    let exports = Format::ALL.map(Use::Export).into_iter();
    for what in exports.chain(REPORTS.map(Use::Report)) {
        let (_, _, before) = measured(&short, what);
        let (took, cpu_s, memory) = measured(&long, what);
        println!("{what:?}: {all} calls in {took:?} ({cpu_s} s of CPU time), {before} and {memory} bytes of memory");
        let limit_s = match (calls, what) {
            // A debug build.
            (None, _) => 60.0,
            (Some(calls), Use::Export(_)) => 60.0 * calls as f64 / 10e6,
            (Some(calls), Use::Report(_)) => 10.0 * calls as f64 / 10e6,
        };
        assert!(took.as_secs_f64() <= limit_s, "{what:?}: {took:?}");
        assert!(memory < before + (32 << 20), "{what:?}: {before} and {memory} bytes");
        assert!(memory <= 300_000_000, "{what:?}: {memory} bytes");
    }
}

/// Runs `export` with these words after the recording.
fn verb(recording: &Path, words: &[&str]) -> (Option<i32>, String, String) {
    tool(&[&["export", recording.to_str().unwrap()], words].concat())
}

fn tool(words: &[&str]) -> (Option<i32>, String, String) {
    let mut tool = Command::new(env!("CARGO_BIN_EXE_IOStackBreakdown"));
    let output = tool.args(words).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn the_verb_exports_a_recording_and_says_what_it_cannot() {
    let folder = Folder::new("export-verb");
    let recording = folder.join("x.iosb");
    let mut writer = Writer::create(&recording, synthetic::meta(), Names::Full, Limits::default()).unwrap();
    let end = synthetic::BEGAN_NS + 200_000_000;
    for batch in synthetic::batches() {
        writer.records(batch, end).unwrap();
    }
    writer.end("test", end).unwrap();

    let (status, out, err) = verb(&recording, &["--to", "jsonl"]);
    assert_eq!(status, Some(0), "{err}");
    let calls = |text: &str| text.lines().filter(|line| line.starts_with("{\"call\"")).count();
    assert_eq!(calls(&out), recorded().calls.len());
    assert!(
        err.contains("INCOMPLETE: 2,113 calls were lost while recording"),
        "{err}"
    );
    let of_pid = verb(&recording, &["--to", "jsonl", "-p", "4711"]).1;
    let expected = recorded()
        .calls
        .iter()
        .filter(|call| call.pid == synthetic::POSTGRES)
        .count();
    assert_eq!(calls(&of_pid), expected);
    // Spans that follow each other have every call once.
    let [before, after] = [["--to-time", "+40ms"], ["--from", "+40ms"]].map(|span| {
        let out = verb(&recording, &[&["--to", "jsonl"], &span[..]].concat()).1;
        calls(&out)
    });
    assert!(before > 0 && after > 0);
    assert_eq!(before + after, recorded().calls.len());

    let directory = folder.join("ctf");
    let directory = directory.to_str().unwrap();
    assert_eq!(verb(&recording, &["--to", "ctf", "-o", directory]).0, Some(0));
    for (words, expected, said) in [
        (
            &["--to", "ctf", "-o", directory][..],
            1,
            "exists; name a new directory with -o",
        ),
        (&["--to", "ctf"], 2, "-o DIRECTORY"),
        (&["--to", "jsonl", "-d", "sdx"], 1, "it has sda"),
        (&["--to", "fio", "-o", "/dev/null/x"], 1, "cannot write '/dev/null/x'"),
        (&["--to", "jsonl", "--from", "+1h"], 1, "nothing was recorded then"),
        (&["--to", "otf2"], 2, "perfetto"),
    ] {
        let (status, _, err) = verb(&recording, words);
        assert!(
            status == Some(expected) && err.contains(said) && err.trim().lines().count() == 1,
            "{words:?}: {status:?} {err}"
        );
    }
    // What was lost is no export.
    let nothing = folder.join("nothing");
    let words = ["--to", "blktrace", "-T", "syscall", "-o", nothing.to_str().unwrap()];
    let (status, _, err) = verb(&recording, &words);
    let said = "error: blktrace can hold nothing of what is selected";
    assert!(status == Some(1) && err.trim_end().ends_with(said), "{err}");
    assert!(err.contains("INCOMPLETE: 2,113 calls were lost"), "{err}");
    assert!(!nothing.exists());
    let quiet = format!(
        "'{}' export '{}' --to jsonl | head -1 >'{}'; exit \"${{PIPESTATUS[0]}}\"",
        env!("CARGO_BIN_EXE_IOStackBreakdown"),
        recording.display(),
        folder.join("first").display()
    );
    let piped = Command::new("bash").args(["-c", &quiet]).output().unwrap();
    assert!(piped.status.success(), "{piped:?}");
    let (status, _, err) = verb(&folder, &["--to", "jsonl"]);
    assert!(status == Some(1) && err.contains("is no recording"), "{err}");
}

/// A directory with a recording of counters and records, and the recording.
fn with_recording(name: &str) -> (Folder, PathBuf) {
    let folder = Folder::new(name);
    let recording = folder.join("x.iosb");
    long_recording(&recording, 5000);
    (folder, recording)
}

#[test]
fn a_report_without_counters_is_made_of_records_or_says_what_is_damaged() {
    let (_folder, recording) = with_recording("without-counters");
    let path = recording.to_str().unwrap();
    let table = recording.join("000001/seconds.arrow");
    let whole = fs::read(&table).unwrap();
    for bytes in [&whole[..whole.len() / 2], &[]] {
        fs::write(&table, bytes).unwrap();
        let damage = "000001/seconds.arrow: it has ";
        for views in [&[][..], &["--slower", "1ms"], &["--by", "process"]] {
            let (status, out, err) = tool(&[&["report", path], views].concat());
            assert!(
                status == Some(0) && out.contains("I/O calls took"),
                "{views:?}: {out}{err}"
            );
            assert!(
                err.contains(damage) && err.contains("numbers are made of records"),
                "{err}"
            );
            assert!(
                out.contains("lost unknown;") && out.contains("own cost unknown"),
                "{out}"
            );
        }
        let report: Value = serde_json::from_str(&tool(&["report", path, "--json"]).1).unwrap();
        let losses = report["lost"].as_object().unwrap();
        assert!(losses.values().all(Value::is_null), "{report}");
        assert_eq!(report["cost"]["process_ns"], Value::Null);
        let (status, _, err) = tool(&["compare", path, path]);
        let said = format!("error: '{path}' has no counters of its seconds: {damage}");
        assert!(status == Some(1) && err.starts_with(&said), "{err}");
        assert!(err.contains("--lost and export need none"), "{err}");
    }
}

/// Changes a JSON file of a recording.
fn change(file: &Path, change: fn(&mut Value)) {
    let mut value = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    change(&mut value);
    fs::write(file, value.to_string()).unwrap();
}

/// As the disk was full.
#[test]
fn reports_say_what_could_not_be_written() {
    let (_folder, recording) = with_recording("not-written");
    let path = recording.to_str().unwrap();
    change(&recording.join("end.json"), |end| {
        end["not_written"] = json!({"calls": 3})
    });
    let missing = "at the end: 3 calls could not be written";
    for views in [&["-S"][..], &["--limit", "read=1s"], &["--events", "--last", "1"]] {
        let (status, _, err) = tool(&[&["report", path], views].concat());
        assert!(
            status == Some(0) && err.lines().any(|line| line == missing),
            "{views:?}: {err}"
        );
    }
    let (status, out, err) = tool(&["report", path, "--by", "process", "-o", "-"]);
    assert!(
        status == Some(0) && out.contains(&format!("INCOMPLETE: {missing}")),
        "{out}{err}"
    );
    assert_eq!(tool(&["report", path, "--lost"]).1.matches(missing).count(), 1);
}

#[test]
fn a_process_may_be_in_what_is_missing() {
    let (_folder, recording) = with_recording("missing-process");
    change(&recording.join("meta.json"), |meta| {
        meta["run"]["filter"]["pids"] = json!([]);
    });
    let report = ["report", recording.to_str().unwrap(), "-p", "4194304"];
    let (status, out, err) = tool(&report);
    assert_eq!((status, &*out), (Some(1), ""));
    assert_eq!(err, "error: PID 4194304 is not in the recording\n");
    change(&recording.join("end.json"), |end| end["lost"] = json!({"threads": 1}));
    let (status, _, err) = tool(&report);
    let note = "note: PID 4194304 is not in the recording, which is incomplete\n";
    assert!(status == Some(0) && err.contains(note), "{err}");
}

#[test]
fn compare_says_what_is_wrong_with_each_recording() {
    let (_folder, recording) = with_recording("compare-damage");
    let path = recording.to_str().unwrap();
    assert_eq!(tool(&["compare", path, path]).2, "");
    fs::remove_file(recording.join("end.json")).unwrap();
    let (status, _, err) = tool(&["compare", path, path]);
    let line = format!("{path}: the recording was cut: it has ");
    assert!(status == Some(0) && err.matches(&line).count() == 2, "{err}");
}

#[test]
fn a_signal_ends_a_report_that_reads_records() {
    use std::os::unix::process::ExitStatusExt;

    let (folder, _) = with_recording("signal-while-reading");
    let recording = folder.join("long.iosb");
    long_recording(&recording, 150_000);
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let mut report = Command::new(env!("CARGO_BIN_EXE_IOStackBreakdown"));
        let report = report.arg("report").arg(&recording).args(["--slower", "1s", "-q"]);
        let mut report = report.stdout(std::process::Stdio::null()).spawn().unwrap();
        let is_of_it = |file: fs::DirEntry| fs::read_link(file.path()).is_ok_and(|path| path.starts_with(&recording));
        let reads = || {
            let files = fs::read_dir(format!("/proc/{}/fd", report.id())).unwrap();
            files.flatten().any(is_of_it)
        };
        wait_for("a file of the recording to be open", Duration::from_secs(60), reads).unwrap();
        // SAFETY: the process was not waited for.
        assert_eq!(unsafe { libc::kill(report.id().cast_signed(), signal) }, 0);
        assert_eq!(report.wait().unwrap().signal(), Some(signal));
    }
}

#[test]
fn an_export_says_what_it_wrote_and_writes_over_nothing() {
    use std::os::unix::fs::PermissionsExt;

    let (folder, recording) = with_recording("export-written");
    let of = |name: &str| folder.text(name);
    let number = |text: &str| -> u64 { text.replace(',', "").parse().unwrap() };
    // Each line of this format is a record.
    let log = of("log");
    let (status, _, err) = verb(&recording, &["--to", "iotracer", "-o", &log]);
    let lines = fs::read_to_string(&log).unwrap().lines().count() as u64;
    let said = err.lines().next().unwrap().split(' ').next().unwrap();
    assert!(
        status == Some(0) && number(said) == lines && lines > 0,
        "{lines}: {err}"
    );
    assert!(err.contains("calls that are neither reads nor writes"), "{err}");
    assert_eq!(fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600);
    let before = fs::read(&log).unwrap();
    let (status, _, err) = verb(&recording, &["--to", "jsonl", "-o", &log]);
    assert!(
        status == Some(1) && err.contains("exists; name a new file with -o"),
        "{err}"
    );
    assert_eq!(fs::read(&log).unwrap(), before);
    // Nothing is left of what has nothing.
    for (format, name) in [("jsonl", "file"), ("blktrace", "directory")] {
        let (status, _, err) = verb(&recording, &["--to", format, "--comm", "nobody", "-o", &of(name)]);
        assert!(
            status == Some(1) && err.contains("nothing that is selected was recorded"),
            "{err}"
        );
        assert!(!folder.join(name).exists(), "{format}");
    }
    let (status, _, err) = verb(&recording, &["--to", "blktrace", "-T", "syscall", "-o", &of("calls")]);
    assert!(
        status == Some(1) && err.contains("blktrace can hold nothing of what is selected"),
        "{err}"
    );
    assert!(err.contains(" calls and page faults: blktrace has only requests") && !folder.join("calls").exists());
    // A device, a pipe and a file that is open already are written to.
    assert_eq!(verb(&recording, &["--to", "jsonl", "-o", "/dev/null"]).0, Some(0));
    let script = format!(
        "'{0}' export '{1}' -q --to jsonl -o /dev/stdout >'{2}' && mkfifo '{3}' && ('{0}' export '{1}' -q --to jsonl -o '{3}' & cat '{3}') | cmp '{2}'",
        env!("CARGO_BIN_EXE_IOStackBreakdown"),
        recording.display(),
        of("stdout"),
        of("pipe")
    );
    let piped = Command::new("bash").args(["-c", &script]).output().unwrap();
    assert!(piped.status.success(), "{piped:?}");
}
