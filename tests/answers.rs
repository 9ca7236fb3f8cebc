//! `report FILE --access`, `--seeks` and `--limit`, of a recording that is made here.

#[path = "../src/export/synthetic.rs"]
#[allow(dead_code, reason = "shared with the unit tests")]
mod synthetic;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use iostackbreakdown::model::ids::Op;
use iostackbreakdown::model::record::{Call, Records};
use iostackbreakdown::model::recording::Names;
use iostackbreakdown::recording::{Limits, Writer};
use serde_json::Value;

/// A directory with a recording, which is removed at the end.
struct Recorded(PathBuf);

impl Recorded {
    fn new(name: &str, batches: Vec<Records>) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("answers-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        let recorded = Self(folder);
        let limits = Limits::default();
        let mut writer = Writer::create(&recorded.path(), synthetic::meta(), Names::Full, limits).unwrap();
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
        let mut tool = Command::new(env!("CARGO_BIN_EXE_IOStackBreakdown"));
        let output = tool.arg(verb).arg(self.path()).args(words).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    }

    /// The answers as JSON.
    fn json(&self, words: &[&str]) -> Value {
        let (status, out, err) = self.run("report", &[words, &["--json", "--top", "1000"]].concat());
        assert!(matches!(status, Some(0 | 3)), "{words:?}: {err}");
        serde_json::from_str(&out).unwrap()
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
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

/// iotracer's own script, in the directory of the environment variable IOTRACER_SCRIPTS. `tests/run` names what is left
/// out without it.
#[test]
#[ignore = "needs io_profile.py and iotracer.py of iotracer in the directory $IOTRACER_SCRIPTS"]
fn iotracers_script_computes_the_same_rates() {
    let scripts = std::env::var("IOTRACER_SCRIPTS").expect("IOTRACER_SCRIPTS is the directory of io_profile.py");
    let recorded = Recorded::new("script", accesses());
    let answers = recorded.json(&["--access"]);
    for (path, levels) in [("/srv/random", &["VFS"][..]), (synthetic::TABLE, &["VFS", "BLK"])] {
        let log = recorded.0.join("log");
        let log = log.to_str().unwrap();
        let (status, _, err) = recorded.run("export", &["--to", "iotracer", "--file", path, "-o", log]);
        assert_eq!(status, Some(0), "{err}");
        let script = format!("{scripts}/io_profile.py");
        let output = Command::new("python3").args([&script, "log", log]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{output:?}");
        for name in levels {
            let part = text.split(&format!("---- {name} ----")).nth(1).unwrap();
            let values = |key: &str| -> Vec<f64> {
                let line = part.lines().find(|line| line.starts_with(key)).unwrap();
                let fields = line.split([' ', '=']);
                fields.filter_map(|field| field.parse().ok()).collect()
            };
            let report = of_report(level(&answers, path, name));
            let rates = report.rates.clone().map(|rate| rate.parse::<f64>().unwrap());
            assert_eq!(values("events="), [report.events as f64], "{part}");
            assert_eq!(
                values("read:"),
                [report.read_bytes as f64, rates[0], rates[1]],
                "{part}"
            );
            assert_eq!(
                values("write:"),
                [report.write_bytes as f64, rates[2], rates[3]],
                "{part}"
            );
        }
    }
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

#[test]
fn what_cannot_be_answered_is_one_line() {
    let recorded = Recorded::new("wrong", synthetic::batches());
    for (words, status, said) in [
        (&["--limit", "read"][..], 2, "read=10ms"),
        (&["--limit", "reed=1ms"], 2, "no family, call, queue or device"),
        (&["--limit", "read=0"], 2, "not a time above 0"),
        (&["--access", "--lost"], 2, "cannot be used with"),
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
