//! `report FILE --access`, `--seeks` and `--limit`, of a recording that is made here.

mod folder;
#[path = "../src/export/synthetic.rs"]
#[allow(dead_code, reason = "shared with the unit tests")]
mod synthetic;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use folder::Folder;
use iostackbreakdown::model::ids::{Layer, Op};
use iostackbreakdown::model::record::{Call, Records};
use iostackbreakdown::model::recording::{Meta, Names};
use iostackbreakdown::model::run_info::LayerInfo;
use iostackbreakdown::recording::{Limits, Writer};
use serde_json::Value;

/// A directory with a recording.
struct Recorded(Folder);

impl Recorded {
    fn new(name: &str, batches: Vec<Records>) -> Self {
        Self::of(name, synthetic::meta(), batches)
    }

    fn of(name: &str, meta: Meta, batches: Vec<Records>) -> Self {
        let recorded = Self(Folder::new(&format!("answers-{name}")));
        let limits = Limits::default();
        let mut writer = Writer::create(&recorded.path(), meta, Names::Full, limits).unwrap();
        let end = synthetic::BEGAN_NS + 200_000_000;
        for batch in batches {
            writer.records(batch, end).unwrap();
        }
        writer.end("test", end).unwrap();
        recorded
    }

    fn path(&self) -> PathBuf {
        self.0.join("x.iosb")
    }

    /// Runs a verb with these words after the recording: the status and both outputs.
    fn run(&self, verb: &str, words: &[&str]) -> (Option<i32>, String, String) {
        run_tool(verb, &self.path(), words)
    }

    /// The answers as JSON.
    fn json(&self, words: &[&str]) -> Value {
        let (status, out, err) = self.run("report", &[words, &["--json", "--top", "1000"]].concat());
        assert!(matches!(status, Some(0 | 3)), "{words:?}: {err}");
        serde_json::from_str(&out).unwrap()
    }
}

fn run_tool(verb: &str, recording: &Path, words: &[&str]) -> (Option<i32>, String, String) {
    let mut tool = Command::new(env!("CARGO_BIN_EXE_IOStackBreakdown"));
    let output = tool.arg(verb).arg(recording).args(words).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Reads and writes of a file by two processes, of any size and order, and its requests.
fn accesses() -> Vec<Records> {
    let mut batches = synthetic::batches();
    let mut state: u64 = 88_172_645_463_325_252;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut position = 0;
    let calls = (0..2_000).map(|n| {
        let op = [Op::Pread64, Op::Pread64, Op::Pwrite64][random(3) as usize];
        if random(4) == 0 {
            position = random(1 << 30);
        }
        let size = [512, 4096, 8192][random(3) as usize];
        let begin = synthetic::BEGAN_NS + 100_000_000 + n * 20_000;
        let call = Call {
            pid: synthetic::POSTGRES,
            files: [9, 0],
            offset: Some(position),
            size: Some(size),
            value: size as i64,
            ..synthetic::call(synthetic::POSTGRES, op, begin, Some(begin + random(60_000)))
        };
        position += size;
        call
    });
    let mut calls: Vec<Call> = calls.collect();
    calls.sort_by_key(|call| call.end_ns);
    batches.push(Records {
        files: vec![synthetic::file(9, "/srv/random", 1 << 30, None)],
        calls,
        ..Records::default()
    });
    batches
}

/// What iotracer's script prints for a level of a log: events, and the rates of sequential and random reads and writes.
#[derive(Debug, Default, PartialEq)]
struct Profile {
    events: u64,
    read_bytes: u64,
    write_bytes: u64,
    /// Sequential and random reads, sequential and random writes.
    rates: [String; 4],
}

/// Computes it from the lines, as its documentation says: an access is sequential if its address is that of the one before
/// it, plus its size in the unit of the level; the first one is; rates are of all events of the level, with four decimals.
fn profile(log: &str, level: &str) -> Profile {
    let unit = if level == "BLK" { 512 } else { 1 };
    let mut profile = Profile::default();
    let mut before = None;
    let mut counts = [0; 4];
    for line in log.lines() {
        let fields: Vec<&str> = line.split(';').collect();
        assert_eq!(fields.len(), 7, "{line}");
        if fields[4] != level {
            continue;
        }
        let [address, size] = [2, 3].map(|index| fields[index].parse::<u64>().unwrap());
        let is_random = before.is_some_and(|end| end != address);
        before = Some(address + size / unit);
        let is_write = fields[1] == "W";
        counts[2 * usize::from(is_write) + usize::from(is_random)] += 1;
        profile.events += 1;
        *if is_write {
            &mut profile.write_bytes
        } else {
            &mut profile.read_bytes
        } += size;
    }
    profile.rates = counts.map(|count| rate(count, profile.events));
    profile
}

fn rate(count: u64, events: u64) -> String {
    format!("{:.4}", count as f64 / events.max(1) as f64)
}

/// The same from a level of `--access --json`.
fn of_report(level: &Value) -> Profile {
    let number = |direction: &str, field: &str| level[direction][field].as_u64().unwrap();
    let events = number("read", "count") + number("write", "count");
    let rates = ["read", "write"].map(|direction| {
        let [count, sequential] = ["count", "sequential"].map(|field| number(direction, field));
        [rate(sequential, events), rate(count - sequential, events)]
    });
    let [[a, b], [c, d]] = rates;
    Profile {
        events,
        read_bytes: number("read", "bytes"),
        write_bytes: number("write", "bytes"),
        rates: [a, b, c, d],
    }
}

fn level<'a>(answers: &'a Value, path: &str, level: &str) -> &'a Value {
    let files = answers["access"]["files"].as_array().unwrap();
    let file = files.iter().find(|file| file["file"]["path"]["text"] == path);
    let levels = file.unwrap_or_else(|| panic!("{path}"))["levels"].as_array().unwrap();
    levels.iter().find(|known| known["level"] == level).unwrap()
}

#[test]
fn accesses_have_the_rates_of_iotracers_log() {
    let recorded = Recorded::new("access", accesses());
    let answers = recorded.json(&["--access"]);
    for (path, levels) in [("/srv/random", &["VFS"][..]), (synthetic::TABLE, &["VFS", "BLK"])] {
        let (status, log, err) = recorded.run("export", &["--to", "iotracer", "--file", path]);
        assert_eq!(status, Some(0), "{err}");
        for name in levels {
            let expected = profile(&log, name);
            assert!(expected.events > 40, "{path} {name}: {expected:?}");
            assert_eq!(of_report(level(&answers, path, name)), expected, "{path} {name}");
        }
    }
    let random = profile(
        &recorded.run("export", &["--to", "iotracer", "--file", "/srv/random"]).1,
        "VFS",
    );
    assert!(random.rates.iter().all(|rate| rate != "0.0000"), "{random:?}");
}

/// The directory of io_profile.py and iotracer.py. `tests/run` names what is left out without it.
fn scripts() -> PathBuf {
    PathBuf::from(std::env::var("IOTRACER_SCRIPTS").expect("IOTRACER_SCRIPTS is the directory of io_profile.py"))
}

/// What iotracer's own script says of the log of a file, by level.
fn profiles_by_script(recording: &Path, file: &str) -> BTreeMap<String, Profile> {
    let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("answers{}.log", file.replace('/', "-")));
    let to_log = ["--to", "iotracer", "--file", file, "-o", log.to_str().unwrap()];
    let (status, _, err) = run_tool("export", recording, &to_log);
    assert_eq!(status, Some(0), "{err}");
    let mut script = Command::new("python3");
    script.arg(scripts().join("io_profile.py")).arg("log").arg(&log);
    let output = script.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    fs::remove_file(&log).unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // "---- VFS ----", and lines such as "read: io=4096 seq=0.25 rand=0.0".
    let levels = text.split("---- ").skip(1).map(|part| {
        let values = |key: &str| -> Vec<f64> {
            let line = part.lines().find(|line| line.starts_with(key)).unwrap();
            let fields = line.split([' ', '=']);
            fields.filter_map(|field| field.parse().ok()).collect()
        };
        let (read, write) = (values("read:"), values("write:"));
        let profile = Profile {
            events: values("events=")[0] as u64,
            read_bytes: read[0] as u64,
            write_bytes: write[0] as u64,
            rates: [read[1], read[2], write[1], write[2]].map(|rate| format!("{rate:.4}")),
        };
        (part.split(' ').next().unwrap().to_owned(), profile)
    });
    levels.collect()
}

#[test]
#[ignore = "needs io_profile.py and iotracer.py of iotracer in the directory $IOTRACER_SCRIPTS"]
fn iotracers_script_computes_the_same_rates() {
    let recorded = Recorded::new("script", accesses());
    let answers = recorded.json(&["--access"]);
    for (path, levels) in [("/srv/random", &["VFS"][..]), (synthetic::TABLE, &["VFS", "BLK"])] {
        let profiles = profiles_by_script(&recorded.path(), path);
        for name in levels {
            assert_eq!(profiles[*name], of_report(level(&answers, path, name)), "{path} {name}");
        }
    }
}

/// The recording of tests/exports/fio-matrix in IOSB_RECORDING, such as tests/exports/guests makes in guests: the script
/// finds each job's accesses, to the byte, and its pattern.
#[test]
#[ignore = "needs io_profile.py and iotracer.py of iotracer in the directory $IOTRACER_SCRIPTS, and a recording in $IOSB_RECORDING"]
fn iotracers_script_knows_fios_patterns() {
    const PATTERNS: [&str; 4] = ["write", "randwrite", "read", "randread"];
    const BLOCKS: u64 = 128;
    const BYTES: u64 = BLOCKS * 4096;
    let recording =
        std::env::var("IOSB_RECORDING").expect("IOSB_RECORDING is the recording of tests/exports/fio-matrix");
    let recording = Path::new(&recording);
    let (_, out, err) = run_tool("report", recording, &["--access", "--json", "--top", "1000"]);
    let answers: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{err}"));
    let files = answers["access"]["files"].as_array().unwrap();
    let paths = files.iter().filter_map(|file| file["file"]["path"]["text"].as_str());
    let mut known = 0;
    for path in paths {
        // "libaio-randread", and other files.
        let name = path.rsplit('/').next().unwrap();
        let Some((_, pattern)) = name.split_once('-').filter(|(_, pattern)| PATTERNS.contains(pattern)) else {
            continue;
        };
        let profiles = profiles_by_script(recording, path);
        for name in ["VFS", "BLK"] {
            let profile = &profiles[name];
            assert_eq!(profile, &of_report(level(&answers, path, name)), "{path} {name}");
            let bytes = if pattern.ends_with("read") {
                [BYTES, 0]
            } else {
                [0, BYTES]
            };
            assert_eq!([profile.read_bytes, profile.write_bytes], bytes, "{path} {name}");
        }
        let profile = &profiles["VFS"];
        assert_eq!(profile.events, BLOCKS, "{path}");
        let rates: [f64; 4] = profile.rates.clone().map(|rate| rate.parse().unwrap());
        let [sequential, random] = [rates[0] + rates[2], rates[1] + rates[3]];
        assert!(
            if pattern.starts_with("rand") {
                random > sequential
            } else {
                sequential == 1.0
            },
            "{path}: {profile:?}"
        );
        known += 1;
    }
    assert_eq!(known, 28);
}

#[test]
fn a_broken_limit_is_status_3_and_says_who_waited() {
    let recorded = Recorded::new("limit", synthetic::batches());
    let mut all = Records::default();
    synthetic::batches().into_iter().for_each(|batch| all.append(batch));
    let end = recorded.json(&["--limit", "fsync=1h"]);
    assert!(
        end["incomplete"].as_array().is_some_and(|lost| !lost.is_empty()),
        "{end}"
    );
    let limit_ns = 100_000;
    let fsyncs = all
        .calls
        .iter()
        .filter(|call| matches!(call.op, Op::Fsync | Op::Fdatasync));
    let times: Vec<u64> = fsyncs.filter_map(Call::duration_ns).collect();
    let broken = times.iter().filter(|ns| **ns > limit_ns).count() as u64;
    let answers = recorded.json(&["--limit", "fsync=100us,device=1h"]);
    let fsync = &answers["limits"]["limits"][0];
    assert!(broken > 0 && times.len() as u64 >= broken);
    assert_eq!(
        fsync["broken"].as_u64().unwrap() - fsync["under_way"].as_u64().unwrap(),
        broken
    );
    let (status, text, err) = recorded.run("report", &["--limit", "fsync=100us"]);
    assert_eq!(status, Some(3), "{err}");
    assert!(text.contains("postgres 4711"), "{text}");
    assert!(text.contains("INCOMPLETE"), "{text}");
    assert_eq!(recorded.run("report", &["--limit", "device=1h"]).0, Some(0));
}

#[test]
fn a_call_that_hangs_breaks_its_limit_in_the_last_part() {
    let recorded = Recorded::new("hung", synthetic::batches());
    let hung = ["--limit", "read=150ms", "-p", "812"];
    let run = |part: &[&str]| recorded.run("report", &[&hung, part].concat());
    // It began at the start.
    let (status, text, err) = run(&["--from", "+100ms"]);
    assert_eq!(status, Some(3), "{text}{err}");
    assert!(text.contains("under way"), "{text}");
    assert_eq!(run(&["--to", "+190ms"]).0, Some(0));
    let count = |part: &[&str]| {
        let (_, out, _) = recorded.run("report", &[&["--events=json"], part].concat());
        let calls = out
            .lines()
            .filter(|line| line.starts_with("{\"call\":") && line.contains("\"tid\":813"));
        calls.count()
    };
    assert_eq!([count(&["--to", "+100ms"]), count(&["--from", "+100ms"])], [0, 1]);
}

/// Of a run that has measured the cost of its probes, it is not known for a part of a second; of others there is none.
#[test]
fn a_cost_that_was_not_measured_is_not_missed() {
    for has_runs in [false, true] {
        let mut meta = synthetic::meta();
        meta.run.has_runs = has_runs;
        let recorded = Recorded::of(&format!("runs-{has_runs}"), meta, synthetic::batches());
        let (status, text, err) = recorded.run("report", &["--from", "+100ms"]);
        assert_eq!(status, Some(0), "{err}");
        assert_eq!(
            text.contains("the cost of the probes is not measured"),
            has_runs,
            "{text}"
        );
    }
}

#[test]
fn the_whole_stack_of_single_layers_is_refused() {
    let recorded = Recorded::new("layers", synthetic::batches());
    for (words, wish) in [
        (&["--folded"][..], "--folded prints"),
        (&["--svg", "x.svg"], "--svg draws"),
        (&["-T", "all"], "-T all reports"),
    ] {
        let (status, out, err) = recorded.run("report", words);
        assert_eq!(
            (status, &*out, err.lines().count()),
            (Some(1), "", 1),
            "{words:?}: {err}"
        );
        assert!(err.contains(wish) && err.ends_with("; record without -T\n"), "{err}");
    }
    assert!(!Path::new("x.svg").exists());
}

#[test]
fn seeks_are_those_between_the_recorded_requests() {
    let recorded = Recorded::new("seeks", synthetic::batches());
    let mut requests = Vec::new();
    for batch in synthetic::batches() {
        let of_disk = batch.requests.into_iter().filter(|request| request.disk == [8, 0]);
        requests.extend(of_disk.filter(|request| matches!(request.op, Op::Read | Op::Write)));
    }
    requests.retain(|request| request.issued_ns.is_some() && request.bytes > 0);
    requests.sort_by_key(|request| request.issued_ns);
    let distances: Vec<u64> = requests
        .windows(2)
        .map(|pair| pair[1].sector.abs_diff(pair[0].sector + pair[0].bytes / 512))
        .filter(|distance| *distance > 0)
        .collect();
    let answers = recorded.json(&["--seeks", "-d", "sda"]);
    let disk = &answers["seeks"]["disks"][0];
    assert_eq!(disk["disk"]["name"], "sda");
    assert_eq!(disk["requests"], requests.len());
    assert_eq!(disk["seeks"], distances.len());
    assert_eq!(disk["sectors"], distances.iter().sum::<u64>());
    assert!(distances.len() > 10);
    let text = recorded.run("report", &["--seeks", "--by", "file"]).1;
    assert!(text.contains("who sends the head away"), "{text}");
}

/// That no call took longer would be a limit that holds.
#[test]
fn what_was_not_recorded_is_no_answer() {
    let recorded_with = |layer: Layer| {
        let mut meta = synthetic::meta();
        meta.run.layers = vec![LayerInfo {
            layer,
            refused: None,
            not_measured: Vec::new(),
            completions_skip_interrupts: false,
        }];
        Recorded::of(&format!("only-{layer}"), meta, Vec::new())
    };
    let [calls, requests] = [Layer::Syscall, Layer::Blk].map(recorded_with);
    for (recorded, words, said) in [
        (
            &requests,
            &["--limit", "read=1ms"][..],
            "recorded with -T blk: calls are not in it",
        ),
        (
            &requests,
            &["--limit", "device=1ms,pread64=1ms"],
            "recorded with -T blk: calls are not in it",
        ),
        (
            &calls,
            &["--limit", "read=1ms,queue=1ms"],
            "recorded with -T syscall: requests are not in it",
        ),
        (&calls, &["--seeks"], "recorded with -T syscall: requests are not in it"),
    ] {
        let done = recorded.run("report", words);
        assert_eq!(done, (Some(1), String::new(), format!("error: {said}\n")), "{words:?}");
    }
    for (recorded, words) in [
        (&requests, &["--limit", "device=1ms", "--seeks"][..]),
        (&calls, &["--limit", "read=1ms", "--access"]),
    ] {
        let (status, _, err) = recorded.run("report", words);
        assert_eq!((status, &*err), (Some(0), ""), "{words:?}");
    }
}

#[test]
fn what_cannot_be_answered_is_one_line() {
    let recorded = Recorded::new("wrong", synthetic::batches());
    for (words, status, said) in [
        (&["--limit", "read"][..], 2, "read=10ms"),
        (&["--limit", "reed=1ms"], 2, "no family, call, queue or device"),
        (&["--limit", "read=0"], 2, "not a time above 0"),
        (&["--access", "--lost"], 2, "cannot be used with"),
        (&["--access", "--html", "x.html"], 2, "cannot be used with"),
        (&["--seeks", "--svg", "x.svg"], 2, "cannot be used with"),
        (&["--limit", "read=1ms", "--html", "x.html"], 2, "cannot be used with"),
        (&["--limit", "read=1ms", "-m"], 2, "cannot be used with"),
        (&["--access", "--by", "file"], 2, "--by goes with --seeks"),
        (&["--seeks", "--by", "cgroup"], 2, "not by cgroup"),
        (&["--seeks", "-p", "1"], 2, "select a disk with -d"),
        (&["--top", "3"], 2, "--top needs --by"),
        (&["--seeks", "-d", "sdx"], 1, "it has sda"),
        (&["--access", "--from", "+1h"], 1, "nothing was recorded then"),
    ] {
        let (actual, out, err) = recorded.run("report", words);
        assert!(
            actual == Some(status) && err.contains(said) && err.trim().lines().count() == 1 && out.is_empty(),
            "{words:?}: {actual:?} {err} {out}"
        );
    }
    let (status, out, _) = recorded.run("report", &["--access", "-p", "812"]);
    assert!(status == Some(0) && !out.contains("/srv/random"), "{out}");
}
