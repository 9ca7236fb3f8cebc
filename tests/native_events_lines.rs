//! `--events` on this kernel: each call and request as a line while the run goes on. Run it as root.

mod folder;
#[allow(dead_code, reason = "shared with tests of recordings")]
mod records;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsRawFd;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use folder::Folder;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use records::{Made, numbered, open};
use serde_json::Value;

const TOOL: &str = env!("CARGO_BIN_EXE_IOStackBreakdown");
const LIMIT: Duration = Duration::from_secs(60);
const CALLS: u64 = 40_000;
const THREADS: u64 = 8;

impl Folder {
    /// Starts the tool on this process, with files for what it prints, and waits for its banner.
    fn start(&self, arguments: &[&str]) -> Tool<'_> {
        let out = File::create(self.join("out")).unwrap();
        self.start_with(arguments, out.into())
    }

    fn start_with(&self, arguments: &[&str], out: Stdio) -> Tool<'_> {
        let pid = std::process::id().to_string();
        let said = File::create(self.join("said")).unwrap();
        let mut tool = Command::new(TOOL);
        tool.args(["-T", "syscall,blk", "-p", &pid]).args(arguments);
        let tool = Tool {
            folder: self,
            child: tool.stdout(out).stderr(said).spawn().unwrap(),
        };
        wait_for("the banner", || tool.said().contains("Hit Ctrl-C"));
        tool
    }

    /// What is printed while `work` runs, and what is said.
    fn printed(&self, arguments: &[&str], work: impl FnOnce(&Tool<'_>)) -> (String, String) {
        let tool = self.start(arguments);
        work(&tool);
        tool.signal(Signal::SIGINT);
        assert!(tool.end().success());
        (self.out(), fs::read_to_string(self.join("said")).unwrap())
    }

    fn out(&self) -> String {
        fs::read_to_string(self.join("out")).unwrap()
    }
}

struct Tool<'a> {
    folder: &'a Folder,
    child: Child,
}

impl Tool<'_> {
    fn said(&self) -> String {
        fs::read_to_string(self.folder.join("said")).unwrap_or_default()
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    fn end(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// The most memory that it had, in bytes.
    fn peak(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let kib: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
        kib << 10
    }
}

impl Drop for Tool<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait_for(what: &str, mut is_there: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_there() {
        assert!(begin.elapsed() < LIMIT, "{what} does not come");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Only one of these tests makes calls at a time: the tool measures this process.
static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn turn() -> std::sync::MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The words of a line of the table, from its level on.
fn words(line: &str) -> Vec<&str> {
    let is_level = |word: &&str| ["call", "blk", "async", "fault", "LOST", "MARK"].contains(word);
    line.split_whitespace().skip_while(|word| !is_level(word)).collect()
}

/// The offset of each pread64 in a table.
fn offsets(text: &str) -> Vec<u64> {
    let of = |line: &str| {
        let words = words(line);
        // Level, op, name and number of the process, offset.
        let is_its = words.first() == Some(&"call") && words.get(1) == Some(&"pread64");
        is_its.then(|| words[words.len().min(5) - 1].replace(',', "").parse().unwrap())
    };
    text.lines().filter_map(of).collect()
}

/// How many calls the `LOST` lines of a table have.
fn lost(text: &str) -> u64 {
    let lines = text.lines().map(words).filter(|words| words.first() == Some(&"LOST"));
    let of_calls = lines.filter(|words| words[2] == "calls");
    of_calls
        .map(|words| words[1].replace(',', "").parse::<u64>().unwrap())
        .sum()
}

fn once_each(offsets: &[u64], lost: u64, calls: u64) {
    let each: BTreeSet<u64> = offsets.iter().copied().collect();
    assert_eq!(each.len(), offsets.len(), "a call is there twice");
    assert!(each.iter().all(|offset| *offset < calls));
    assert_eq!(offsets.len() as u64 + lost, calls);
}

#[test]
fn each_call_is_a_line_of_the_table() {
    let _turn = turn();
    let folder = Folder::with_data("lines-table");
    let fd = open(&folder.join("data"), libc::O_RDONLY);
    let data = folder.text("data");
    for arguments in [&["--events", "--file", &data][..], &["--events=text"]] {
        let (text, said) = folder.printed(arguments, |_| {
            numbered(fd, 0..CALLS, THREADS, 100, 1);
        });
        assert!(text.starts_with("TIME               +DELTA LEVEL OP"), "{text}");
        once_each(&offsets(&text), lost(&text), CALLS);
        assert_eq!(said.contains("INCOMPLETE"), text.contains(" LOST "), "{said}");
        let of_data = text.lines().filter(|line| line.contains(" pread64 "));
        assert!(
            of_data
                .clone()
                .all(|line| line.ends_with(&data) && line.contains(" 100 B "))
        );
    }
}

#[test]
fn each_call_is_a_line_of_json_in_the_order_in_which_it_began() {
    let _turn = turn();
    let folder = Folder::with_data("lines-json");
    let fd = open(&folder.join("data"), libc::O_RDONLY);
    let mut made = Vec::new();
    let (text, _) = folder.printed(&["--events=json"], |_| made = numbered(fd, 0..CALLS, THREADS, 100, 1));
    let schema: Value = serde_json::from_str(include_str!("../schema/events.schema.json")).unwrap();
    let validator = jsonschema::draft202012::new(&schema).unwrap();
    let made: BTreeMap<u64, Made> = made.into_iter().map(|made| (made.number, made)).collect();
    let (mut seen, mut lost, mut latest) = (Vec::new(), 0, 0);
    let mut kinds = BTreeMap::<String, u64>::new();
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let (kind, record) = line.as_object().unwrap().iter().next().unwrap();
        let so_far = kinds.entry(kind.clone()).or_default();
        *so_far += 1;
        // Validating is slow.
        assert!(*so_far > 300 || validator.is_valid(&line), "{line}");
        if kind == "lost" && record["kind"] == "calls" {
            lost += record["records"].as_u64().unwrap();
        }
        if kind != "call" {
            continue;
        }
        let [begin, end] = ["begin_ns", "end_ns"].map(|at| record[at].as_u64().unwrap_or(u64::MAX));
        // Only what took about as long as a record waits may come after others.
        assert!(begin >= latest || end - begin > 30_000_000, "{line}");
        latest = latest.max(begin);
        if record["op"] == "pread64" && record["fd"] == fd {
            let number = record["offset"].as_u64().unwrap();
            let made = made[&number];
            assert!(
                made.begin_ns <= begin && end <= made.end_ns && record["tid"] == made.tid,
                "{line}"
            );
            seen.push(number);
        }
    }
    once_each(&seen, lost, CALLS);
    assert_eq!(kinds["recording"], 1);
    assert!(kinds.contains_key("file") && kinds.contains_key("thread"), "{kinds:?}");
}

/// A line of iotracer's log: its printf is `"%lld.%.9ld;%c;%lld;%zu;%s;%s;%u\n"`.
#[derive(Debug, PartialEq)]
struct Logged {
    at_ns: u64,
    is_read: bool,
    address: u64,
    size: u64,
    level: String,
    pid: u32,
}

fn logged(line: &str) -> Logged {
    let fields: Vec<&str> = line.split(';').collect();
    let [time, direction, address, size, level, comm, pid] = fields[..] else {
        panic!("{line}");
    };
    let (seconds, rest) = time.split_once('.').unwrap();
    assert!(
        rest.len() == 9 && ["R", "W"].contains(&direction) && !comm.is_empty(),
        "{line}"
    );
    Logged {
        at_ns: seconds.parse::<u64>().unwrap() * 1_000_000_000 + rest.parse::<u64>().unwrap(),
        is_read: direction == "R",
        address: address.parse().unwrap(),
        size: size.parse().unwrap(),
        level: level.to_owned(),
        pid: pid.parse().unwrap(),
    }
}

/// The share of accesses of a level that begin where the one before ended; the first one does.
fn sequential(log: &[Logged], level: &str) -> f64 {
    let of_level: Vec<&Logged> = log.iter().filter(|logged| logged.level == level).collect();
    let is_next = |pair: &&[&Logged]| pair[1].address == pair[0].address + pair[0].size;
    let next = of_level.windows(2).filter(is_next).count();
    (1 + next) as f64 / of_level.len() as f64
}

#[test]
fn the_log_of_iotracer_has_each_access_at_both_levels() {
    let _turn = turn();
    let folder = Folder::with_data("lines-iotracer");
    let data = folder.join("data");
    let fd = open(&data, libc::O_RDONLY | libc::O_DIRECT);
    let cached = open(&data, libc::O_RDONLY);
    let (text, said) = folder.printed(&["--events=iotracer", "--file", &folder.text("data")], |_| {
        numbered(fd, 0..64 << 10, 1, 4096, 4096);
        let mut byte = 0_u8;
        for at in [60_000, 7, 30_000, 9] {
            // SAFETY: there is room for a byte.
            unsafe { libc::syscall(libc::SYS_pread64, cached, &raw mut byte, 1, at) };
        }
    });
    let log: Vec<Logged> = text.lines().map(logged).collect();
    assert!(log.is_sorted_by_key(|logged| logged.at_ns), "{text}");
    assert!(
        log.iter()
            .all(|logged| logged.is_read && logged.pid == std::process::id())
    );
    let of_level = |level: &str| -> Vec<&Logged> { log.iter().filter(|logged| logged.level == level).collect() };
    let calls: Vec<[u64; 2]> = of_level("VFS").iter().map(|call| [call.address, call.size]).collect();
    let direct = (0..16).map(|at| [at * 4096, 4096]);
    let all: Vec<_> = direct.chain([60_000, 7, 30_000, 9].map(|at| [at, 1])).collect();
    assert_eq!(calls, all, "{said}");
    // With direct I/O, the bytes of both levels are the same.
    let direct: Vec<&Logged> = log.iter().filter(|logged| logged.size == 4096).collect();
    let bytes = |level: &str| -> u64 {
        let of_level = direct.iter().filter(|logged| logged.level == level);
        of_level.map(|logged| logged.size).sum()
    };
    assert_eq!([bytes("VFS"), bytes("BLK")], [64 << 10; 2], "{text}");
    assert!((sequential(&log, "VFS") - 16.0 / 20.0).abs() < 1e-9, "{text}");
}

#[test]
fn each_request_names_its_call() {
    let _turn = turn();
    let folder = Folder::with_data("lines-requests");
    let fd = open(&folder.join("data"), libc::O_RDONLY | libc::O_DIRECT);
    let data = folder.text("data");
    let (text, _) = folder.printed(&["--events=json", "--file", &data], |_| {
        numbered(fd, 0..64 << 10, 4, 4096, 4096);
    });
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |kind: &'static str| lines.iter().filter_map(move |line| line.get(kind));
    let preads: BTreeMap<u64, &Value> = of("call")
        .filter(|call| call["op"] == "pread64")
        .map(|call| (call["begin_ns"].as_u64().unwrap(), call))
        .collect();
    assert_eq!(preads.len(), 16);
    // The kernel merges reads of several threads, if they come together.
    let requests: Vec<&Value> = of("request").collect();
    let bytes: u64 = requests.iter().map(|request| request["bytes"].as_u64().unwrap()).sum();
    assert_eq!(bytes, 64 << 10, "{text}");
    for request in requests {
        let call = preads[&request["call_begin_ns"].as_u64().unwrap()];
        assert_eq!(
            (&request["call_op"], &request["tid"]),
            (&call["op"], &call["tid"]),
            "{request}"
        );
    }
    let (text, _) = folder.printed(&["--events", "--file", &data], |_| {
        numbered(fd, 0..64 << 10, 1, 4096, 4096);
    });
    let of_above = text
        .lines()
        .filter(|line| line.contains(" blk ") && line.contains("of the call above"));
    assert!(
        of_above.clone().count() >= 16 && of_above.clone().all(|line| line.ends_with(&data)),
        "{text}"
    );
}

#[test]
fn the_last_lines_are_printed_at_a_signal_and_at_the_end() {
    let _turn = turn();
    let folder = Folder::with_data("lines-last");
    let fd = open(&folder.join("data"), libc::O_RDONLY);
    let data = folder.text("data");
    let (text, _) = folder.printed(&["--events", "--file", &data, "--last", "5"], |tool| {
        numbered(fd, 0..50, 1, 1, 1);
        assert_eq!(folder.out(), "");
        tool.signal(Signal::SIGUSR1);
        wait_for("the last lines", || folder.out().lines().count() >= 6);
        assert_eq!(offsets(&folder.out()), [45, 46, 47, 48, 49]);
        numbered(fd, 50..52, 1, 1, 1);
        tool.signal(Signal::SIGUSR1);
        wait_for("the last lines", || folder.out().lines().count() >= 12);
        assert_eq!(offsets(&folder.out())[5..], [47, 48, 49, 50, 51]);
        numbered(fd, 52..60, 1, 1, 1);
    });
    let headings = text.lines().filter(|line| line.starts_with("TIME "));
    assert_eq!((headings.count(), text.lines().count()), (3, 18));
    assert_eq!(offsets(&text)[10..], [55, 56, 57, 58, 59]);
    // What the times refer to stays.
    let (text, _) = folder.printed(&["--events=json", "--file", &data, "--last", "2"], |_| {
        numbered(fd, 0..9, 1, 1, 1);
    });
    assert!(
        text.starts_with("{\"recording\":") && text.lines().count() == 3,
        "{text}"
    );
    // Without --last, the signal has no effect.
    let (text, _) = folder.printed(&["--events=iotracer", "--file", &data], |tool| {
        tool.signal(Signal::SIGUSR1);
        numbered(fd, 0..50, 1, 1, 1);
    });
    assert_eq!(text.lines().count(), 50);
}

#[test]
fn files_and_directories_select() {
    let _turn = turn();
    let folder = Folder::with_data("lines-files");
    fs::create_dir_all(folder.join("d/e")).unwrap();
    for name in ["a", "b", "c", "d/x", "d/e/y"] {
        fs::write(folder.join(name), name).unwrap();
    }
    std::os::unix::fs::symlink("a", folder.join("link")).unwrap();
    fs::hard_link(folder.join("b"), folder.join("other b")).unwrap();
    let [link, b, d] = ["link", "b", "d"].map(|name| folder.text(name));
    let arguments = ["--events=json", "--file", &link, "--file", &b, "--dir", &d];
    let read = |name: &str| fs::read(folder.join(name)).unwrap();
    let (text, _) = folder.printed(&arguments, |_| {
        for name in ["a", "b", "other b", "c", "d/x", "d/e/y", "data"] {
            read(name);
        }
        // One that is made later.
        fs::write(folder.join("d/e/new"), "x").unwrap();
        fs::write(folder.join("new"), "x").unwrap();
    });
    let mut seen = BTreeSet::new();
    let here = format!("{}/", records::chroot::from_root(&folder).display());
    for line in text.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        if let Some(path) = line.get("call").and_then(|call| call["path"].as_str()) {
            seen.insert(path.strip_prefix(&here).unwrap_or(path).to_owned());
        }
    }
    let expected = ["a", "b", "d/e/new", "d/e/y", "d/x", "other b"];
    assert_eq!(seen.iter().map(String::as_str).collect::<Vec<_>>(), expected);
    // What is not there is an error.
    let missing = Command::new(TOOL)
        .args(["--events", "--dir", "/no/such"])
        .output()
        .unwrap();
    let said = String::from_utf8(missing.stderr).unwrap();
    assert_eq!(missing.status.code(), Some(1));
    assert!(said.contains("error: cannot examine '/no/such': "), "{said}");
}

#[test]
fn a_reader_that_has_seen_enough_ends_it_quietly() {
    let _turn = turn();
    let folder = Folder::with_data("lines-head");
    let fd = open(&folder.join("data"), libc::O_RDONLY);
    let mut tool = folder.start_with(&["--events", "-q"], Stdio::piped());
    let mut out = tool.child.stdout.take().unwrap();
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let status = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::SeqCst) {
                numbered(fd, 0..100, 1, 1, 1);
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        let mut some = [0; 1000];
        out.read_exact(&mut some).unwrap();
        drop(out);
        let mut status = None;
        wait_for("its end", || {
            status = tool.child.try_wait().unwrap();
            status.is_some()
        });
        is_over.store(true, std::sync::atomic::Ordering::SeqCst);
        status.unwrap()
    });
    assert!(status.success());
    assert_eq!(tool.said().lines().count(), 1, "{}", tool.said());
}

/// While no program reads, records stay in the rings, which do not grow.
#[test]
fn a_slow_reader_makes_losses_and_no_memory() {
    const MANY: u64 = 300_000;
    let _turn = turn();
    let folder = Folder::with_data("lines-slow");
    let fd = open(&folder.join("data"), libc::O_RDONLY);
    let mut tool = folder.start_with(&["--events", "--file", &folder.text("data")], Stdio::piped());
    numbered(fd, 0..MANY, THREADS, 1, 1);
    assert!(tool.peak() < 250 << 20, "{}", tool.peak());
    let out = BufReader::new(tool.child.stdout.take().unwrap());
    let (complete, is_complete) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let (mut all, mut missing) = (Vec::new(), 0);
        for line in out.lines() {
            let line = line.unwrap();
            all.extend(offsets(&line));
            missing += lost(&line);
            if all.len() as u64 + missing == MANY {
                complete.send(()).unwrap();
            }
        }
        (all, missing)
    });
    // At the end of a run, the reader has a second.
    let last_line = is_complete.recv_timeout(LIMIT);
    tool.signal(Signal::SIGINT);
    assert!(tool.child.wait().unwrap().success());
    let (all, missing) = reader.join().unwrap();
    once_each(&all, missing, MANY);
    assert!(missing > 0, "the rings had room for all of them");
    assert!(last_line.is_ok());
    assert!(tool.said().contains("INCOMPLETE "), "{}", tool.said());
}

#[test]
fn a_call_under_way_at_the_end_and_a_command_have_their_lines() {
    let _turn = turn();
    let folder = Folder::with_data("under-way");
    let (reader, writer) = nix::unistd::pipe().unwrap();
    let (text, _) = folder.printed(&["--events", "--all-files"], |_| {
        let call = format!("{} {:#x} ", libc::SYS_read, reader.as_raw_fd());
        std::thread::spawn(move || nix::unistd::read(reader, &mut [0; 1]));
        wait_for("the read", || {
            let mut threads = fs::read_dir("/proc/self/task").unwrap().flatten();
            threads
                .any(|thread| fs::read_to_string(thread.path().join("syscall")).is_ok_and(|at| at.starts_with(&call)))
        });
    });
    nix::unistd::write(&writer, b"x").unwrap();
    assert!(
        text.lines()
            .any(|line| line.contains(" call  read ") && line.contains("under way")),
        "{text}"
    );
    let lines = folder.text("lines");
    let written = folder.text("written");
    let dd = format!("of={written}");
    let mut command = Command::new(TOOL);
    command.args([
        "--events=iotracer",
        "-T",
        "syscall",
        "--file",
        &folder.text("data"),
        "-o",
        &lines,
    ]);
    command.args(["--", "dd", &format!("if={}", folder.text("data")), &dd, "bs=4096"]);
    let done = command.output().unwrap();
    assert!(done.status.success() && done.stdout.is_empty(), "{done:?}");
    let text = fs::read_to_string(&lines).unwrap();
    let log: Vec<Logged> = text.lines().map(logged).collect();
    // The last read finds the end.
    let addresses: Vec<u64> = log.iter().map(|logged| logged.address).collect();
    assert_eq!(addresses, (0..=16).map(|at| at * 4096).collect::<Vec<_>>(), "{text}");
    assert!((sequential(&log, "VFS") - 1.0).abs() < 1e-9);
}
