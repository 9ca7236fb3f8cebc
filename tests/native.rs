//! Known numbers of system calls, counted on this machine, whatever it allows. Run it as root.
//!
//! Where tasks are preempted inside the kernel and only raw tracepoints are available, the kernel may skip some: then
//! the tool must say so each time, and a run without losses must be exact.

mod folder;
mod here;

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use folder::Folder;
use here::process::{Running, run, wait_for};
use here::{TOOL, schema};
use nix::sys::eventfd::EventFd;
use nix::sys::signal::Signal;

const LIMIT: Duration = Duration::from_secs(60);
/// The maximum number of runs until one loses nothing.
const ATTEMPTS: u32 = 5;
/// The variable with the directory of a workload, which is this executable, and its number of rounds.
const WORKLOAD: &str = "IOSB_NATIVE_WORKLOAD";
const ROUNDS: &str = "IOSB_NATIVE_ROUNDS";
const FOR_EVER: &str = "for ever";

/// The calls of a round: name, number, bytes of each.
const ROUND: [(&str, u64, u64); 19] = [
    ("read", 101, 10),
    ("pread64", 41, 100),
    ("preadv", 17, 30),
    ("write", 59, 11),
    ("pwrite64", 37, 1000),
    ("openat", 7, 0),
    ("close", 7, 0),
    ("fsync", 3, 0),
    ("fdatasync", 5, 0),
    ("ftruncate", 2, 0),
    // On a descriptor, as in glibc's fstat().
    ("newfstatat", 13, 0),
    ("mkdirat", 2, 0),
    ("linkat", 1, 0),
    ("unlinkat", 3, 0),
    ("faccessat", 19, 0),
    ("fchmod", 23, 0),
    ("utimensat", 11, 0),
    ("fstatfs", 29, 0),
    ("fsetxattr", 4, 0),
];
/// Calls of a round on other kinds of files, which are only reported as excluded.
const ON_SOCKETS: u64 = 2;
const ON_PIPES: u64 = 12;
const ON_DEVICES: u64 = 5;
const ON_EVENTS: u64 = 8;
const EXCLUDED: u64 = ON_SOCKETS + ON_PIPES + ON_DEVICES + ON_EVENTS;

/// Calls that nothing else in the process makes, not even its start.
const RARE: [&str; 4] = ["pread64", "preadv", "pwrite64", "fdatasync"];

/// A page that the test and its workload share, so that they can communicate without calls that would be counted.
struct Shared(*const [AtomicU32; 2]);

impl Shared {
    fn of(folder: &std::path::Path) -> Self {
        let path = folder.join("shared");
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .unwrap();
        file.set_len(4096).unwrap();
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping of an open file of this length.
        let page = unsafe { libc::mmap(std::ptr::null_mut(), 4096, protection, flags, file.as_raw_fd(), 0) };
        assert_ne!(page, libc::MAP_FAILED);
        Self(page.cast())
    }

    /// Whether to start; the number of rounds done.
    fn words(&self) -> &[AtomicU32; 2] {
        // SAFETY: the mapping stays as long as the process, and contains only atomics.
        unsafe { &*self.0 }
    }
}

/// Not a test: the workload, when this executable is started as one.
#[test]
fn workload() {
    let Some(folder) = std::env::var_os(WORKLOAD) else {
        return;
    };
    let folder = PathBuf::from(folder);
    let rounds = std::env::var(ROUNDS).unwrap();
    let shared = Shared::of(&folder);
    let [go, done] = shared.words();
    let path = folder.join(format!("file-{}", std::process::id()));
    fs::write(&path, [1; 1 << 16]).unwrap();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_CLOEXEC)
        .open(&path)
        .unwrap();
    let others = Others::new();
    let path = CString::new(path.to_str().unwrap()).unwrap();
    while go.load(Ordering::SeqCst) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let rounds = if rounds == FOR_EVER {
        u32::MAX
    } else {
        rounds.parse().unwrap()
    };
    for n in 1..=rounds {
        round(file.as_raw_fd(), &others, &path);
        done.store(n, Ordering::SeqCst);
    }
    if std::env::var_os("IOSB_NATIVE_ENDS").is_some() {
        // SAFETY: the test harness would make more calls that are counted.
        unsafe { libc::_exit(0) };
    }
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Files that are not on a disk.
struct Others {
    pipe: (OwnedFd, OwnedFd),
    socket: (UnixStream, UnixStream),
    zero: fs::File,
    event: EventFd,
}

impl Others {
    fn new() -> Self {
        Self {
            pipe: nix::unistd::pipe().unwrap(),
            socket: UnixStream::pair().unwrap(),
            zero: fs::File::open("/dev/zero").unwrap(),
            event: EventFd::new().unwrap(),
        }
    }

    /// A pair of which one end returns what is written to the other.
    fn round(&self) {
        let mut memory = [0_u8; 16];
        let at = memory.as_mut_ptr();
        let passed_on = |from: i32, to: i32, bytes: &[u8]| {
            // SAFETY: the buffers are valid, and large enough.
            let answers = unsafe {
                [
                    libc::syscall(libc::SYS_write, to, bytes.as_ptr(), bytes.len()),
                    libc::syscall(libc::SYS_read, from, at, bytes.len()),
                ]
            };
            assert_eq!(answers.map(usize::try_from), [Ok(bytes.len()); 2]);
        };
        let (out, into) = (self.pipe.0.as_raw_fd(), self.pipe.1.as_raw_fd());
        for _ in 0..ON_PIPES / 3 {
            passed_on(out, into, &[1]);
            assert_eq!(stat_of(out), 0);
        }
        for _ in 0..ON_SOCKETS / 2 {
            passed_on(self.socket.0.as_raw_fd(), self.socket.1.as_raw_fd(), &[1]);
        }
        let event = self.event.as_fd().as_raw_fd();
        for _ in 0..ON_EVENTS / 2 {
            passed_on(event, event, &1_u64.to_ne_bytes());
        }
        for _ in 0..ON_DEVICES {
            // SAFETY: the buffer is large enough.
            let answer = unsafe { libc::syscall(libc::SYS_read, self.zero.as_raw_fd(), at, 10) };
            assert_eq!(answer, 10);
        }
    }
}

/// Every call by its number, so that no library chooses another one.
fn round(file: i32, others: &Others, path: &CStr) {
    let mut memory = [0_u8; 4096];
    let at = memory.as_mut_ptr();
    let vector = libc::iovec {
        iov_base: at.cast(),
        iov_len: 30,
    };
    let mut opened: Vec<i64> = Vec::with_capacity(8);
    let link = beside(path, 0);
    let mut made = 0;
    for (name, times, bytes) in ROUND {
        for _ in 0..times {
            // SAFETY: the memory is large enough for each of them, and the files are open.
            let answer = unsafe {
                match name {
                    "read" => {
                        libc::lseek(file, 0, libc::SEEK_SET);
                        libc::syscall(libc::SYS_read, file, at, bytes)
                    }
                    "pread64" => libc::syscall(libc::SYS_pread64, file, at, bytes, 0),
                    "preadv" => libc::syscall(libc::SYS_preadv, file, &raw const vector, 1, 0, 0),
                    "write" => {
                        libc::lseek(file, 0, libc::SEEK_SET);
                        libc::syscall(libc::SYS_write, file, at, bytes)
                    }
                    "pwrite64" => libc::syscall(libc::SYS_pwrite64, file, at, bytes, 0),
                    "openat" => libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), libc::O_RDONLY),
                    "close" => libc::syscall(libc::SYS_close, opened.pop().unwrap()),
                    "fsync" => libc::syscall(libc::SYS_fsync, file),
                    "fdatasync" => libc::syscall(libc::SYS_fdatasync, file),
                    "ftruncate" => libc::syscall(libc::SYS_ftruncate, file, 1 << 16),
                    "newfstatat" => stat_of(file),
                    "mkdirat" => {
                        made += 1;
                        let name = beside(path, made);
                        libc::syscall(libc::SYS_mkdirat, libc::AT_FDCWD, name.as_ptr(), 0o700)
                    }
                    "unlinkat" => match made {
                        0 => libc::syscall(libc::SYS_unlinkat, libc::AT_FDCWD, link.as_ptr(), 0),
                        _ => {
                            let name = beside(path, made);
                            made -= 1;
                            libc::syscall(libc::SYS_unlinkat, libc::AT_FDCWD, name.as_ptr(), libc::AT_REMOVEDIR)
                        }
                    },
                    "linkat" => {
                        let here = libc::AT_FDCWD;
                        libc::syscall(libc::SYS_linkat, here, path.as_ptr(), here, link.as_ptr(), 0)
                    }
                    "faccessat" => libc::syscall(libc::SYS_faccessat, libc::AT_FDCWD, path.as_ptr(), 0),
                    "fchmod" => libc::syscall(libc::SYS_fchmod, file, 0o600),
                    "utimensat" => libc::syscall(libc::SYS_utimensat, file, 0, 0, 0),
                    "fstatfs" => libc::syscall(libc::SYS_fstatfs, file, at),
                    "fsetxattr" => {
                        let name = c"user.native".as_ptr();
                        // Not every file system supports these.
                        libc::syscall(libc::SYS_fsetxattr, file, name, at, 1, 0).max(0)
                    }
                    other => unreachable!("{other}"),
                }
            };
            if name == "openat" {
                assert!(answer >= 0, "{name}");
                opened.push(answer);
            } else {
                assert_eq!(answer, i64::try_from(bytes).unwrap(), "{name}");
            }
        }
    }
    others.round();
}

/// As in glibc since 2.33.
fn stat_of(descriptor: i32) -> i64 {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    let (nothing, flags) = (c"".as_ptr(), libc::AT_EMPTY_PATH);
    // SAFETY: the kernel fills in the structure.
    unsafe { libc::syscall(libc::SYS_newfstatat, descriptor, nothing, stat.as_mut_ptr(), flags) }
}

/// A name that does not exist.
fn beside(path: &CStr, number: u32) -> CString {
    CString::new(format!("{}.{number}", path.to_str().unwrap())).unwrap()
}

/// A directory, the workloads in it, and the page shared with them.
struct Stage {
    folder: Folder,
    shared: Shared,
}

impl Stage {
    fn new() -> Self {
        let folder = Folder::new("native");
        let shared = Shared::of(&folder);
        Self { folder, shared }
    }

    fn workload(&self, rounds: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "workload", "--nocapture", "--test-threads", "1"]);
        command.env(WORKLOAD, &*self.folder).env(ROUNDS, rounds);
        command
    }

    fn rounds_done(&self) -> u32 {
        self.shared.words()[1].load(Ordering::SeqCst)
    }

    fn go(&self) {
        self.shared.words()[0].store(1, Ordering::SeqCst);
    }
}

/// The same executable doing the same while this exists.
fn noise() -> (Stage, Running) {
    let stage = Stage::new();
    let running = Running::start(&mut stage.workload(FOR_EVER)).unwrap();
    stage.go();
    wait_for("the noise", LIMIT, || stage.rounds_done() > 0).unwrap();
    (stage, running)
}

/// The sum of all reports of a run: calls and bytes of each op, excluded calls, lost calls.
#[derive(Debug, Default)]
struct Counted {
    ops: BTreeMap<String, (u64, u64)>,
    excluded: u64,
    lost: u64,
    reports: u64,
    text: String,
}

impl Counted {
    fn parse(text: &str) -> Self {
        let mut counted = Self {
            text: text.into(),
            ..Self::default()
        };
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |index: usize| -> u64 {
                words[index]
                    .replace(',', "")
                    .parse()
                    .unwrap_or_else(|_| panic!("{line}"))
            };
            match words[..] {
                ["exact:", op, _, "calls", _, "ns", _, "bytes", ..] => {
                    let sums = counted.ops.entry(op.into()).or_default();
                    *sums = (sums.0 + number(2), sums.1 + number(6));
                }
                ["excluded:", ..] => counted.excluded += number(1),
                ["LOST", "up", "to", ..] => counted.lost += number(3),
                ["LOST", ..] => counted.lost += number(1),
                ["hooks:", ..] => counted.reports += 1,
                _ => {}
            }
        }
        counted
    }

    /// The same from JSON Lines, each of which must be valid.
    fn parse_json(lines: &str) -> Self {
        let mut counted = Self {
            text: lines.into(),
            ..Self::default()
        };
        for report in schema::reports(lines).unwrap_or_else(|error| panic!("{error}")) {
            for op in schema::layers(&report).flat_map(schema::ops) {
                let sums = counted.ops.entry(op["op"].as_str().unwrap().into()).or_default();
                *sums = (
                    sums.0 + schema::number(&op["count"]),
                    sums.1 + schema::number(&op["bytes"]),
                );
            }
            counted.excluded += schema::number(&report["excluded"]["not_file"]);
            let lost = report["lost"].as_object().unwrap().values().map(schema::number);
            counted.lost += lost.sum::<u64>();
            counted.reports += 1;
        }
        counted
    }

    /// Whether nothing is missing. Panics if calls are missing without being reported as lost.
    fn is_exactly(&self, names: &[&str], rounds: u64) -> bool {
        let truth = |name: &str| {
            ROUND
                .iter()
                .find(|call| call.0 == name)
                .map_or((0, 0), |call| (call.1 * rounds, call.1 * call.2 * rounds))
        };
        let mut missing = 0;
        for name in names {
            let (calls, bytes) = self.ops.get(*name).copied().unwrap_or_default();
            let (expected, expected_bytes) = truth(name);
            assert!(
                calls <= expected && bytes <= expected_bytes,
                "{name}: {calls} of {expected}\n{}",
                self.text
            );
            assert!(
                calls < expected || bytes == expected_bytes,
                "{name}: {bytes} bytes\n{}",
                self.text
            );
            missing += expected - calls;
        }
        assert!(
            missing <= self.lost,
            "{missing} are missing, {} are reported as lost\n{}",
            self.lost,
            self.text
        );
        missing == 0
    }
}

/// Runs it until nothing was lost.
fn exact(mut attempt: impl FnMut() -> bool) {
    assert!(
        (0..ATTEMPTS).any(|_| attempt()),
        "no run in {ATTEMPTS} was without loss"
    );
}

/// Traces a workload by its number, from its first call to its last.
fn by_pid(rounds: u32, options: &[&str]) -> Counted {
    Counted::parse(&report_of(rounds, options).text)
}

/// The reports about a workload.
struct Reported {
    /// Its number, and when it was started.
    pid: u64,
    began: jiff::Timestamp,
    text: String,
}

fn report_of(rounds: u32, options: &[&str]) -> Reported {
    report_of_layers(&["-T", "syscall"], rounds, options)
}

fn report_of_layers(layers: &[&str], rounds: u32, options: &[&str]) -> Reported {
    let stage = Stage::new();
    let workload = Running::start(&mut stage.workload(&rounds.to_string())).unwrap();
    let file = stage.folder.join(format!("file-{}", workload.pid()));
    wait_for("the workload", LIMIT, || {
        file.exists() && is_asleep(workload.pid().as_raw())
    })
    .unwrap();
    let report = stage.folder.join("report");
    let mut tool = Command::new(TOOL);
    tool.args(layers)
        .args(["--verbose", "-p", &workload.pid().to_string(), "-o"])
        .arg(&report)
        .args(options);
    let tool = Running::start(&mut tool).unwrap();
    wait_for("the banner", LIMIT, || tool.stderr().contains("Tracing "))
        .unwrap_or_else(|error| panic!("{error}: {}", tool.stderr()));
    let began = jiff::Timestamp::now();
    stage.go();
    wait_for("the workload's end", LIMIT, || stage.rounds_done() == rounds).unwrap();
    tool.signal(Signal::SIGINT).unwrap();
    tool.finish(LIMIT).unwrap().success().unwrap();
    Reported {
        pid: workload.pid().as_raw().unsigned_abs().into(),
        began,
        text: fs::read_to_string(&report).unwrap(),
    }
}

/// The start and the end of a JSON report's span, in milliseconds.
fn span(report: &serde_json::Value) -> (i64, i64) {
    let start = report["start"].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    let length = schema::number(&report["duration_ns"]) / 1_000_000;
    let start = start.as_millisecond();
    (start, start + i64::try_from(length).unwrap())
}

/// All files are open, and the working thread waits for its start.
fn is_asleep(pid: i32) -> bool {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let at: Vec<String> = threads
        .filter_map(|thread| fs::read_to_string(thread.path().join("syscall")).ok())
        .collect();
    let sleeps = |call: &String| call.starts_with(&format!("{} ", libc::SYS_clock_nanosleep));
    at.iter().any(sleeps)
}

fn all() -> Vec<&'static str> {
    ROUND.iter().map(|call| call.0).collect()
}

#[test]
fn a_process_is_counted_exactly() {
    exact(|| {
        let counted = by_pid(20, &[]);
        counted.is_exactly(&all(), 20)
            && (counted.lost > 0 || {
                assert_eq!(counted.excluded, 20 * EXCLUDED, "{}", counted.text);
                let words: Vec<&str> = counted.text.split_whitespace().collect();
                let kinds = "240 on pipes, 160 on eventfds and the like, 100 on character devices, 40 on sockets";
                let line = format!("excluded: 540 calls: {kinds} (--all-files)");
                assert!(words.join(" ").contains(&line), "{}", counted.text);
                true
            })
    });
}

#[test]
fn other_processes_doing_the_same_are_not_counted() {
    let _noise = noise();
    exact(|| by_pid(20, &[]).is_exactly(&all(), 20));
}

#[test]
fn intervals_add_up() {
    let _noise = noise();
    exact(|| {
        let counted = by_pid(200, &["0.05"]);
        assert!(counted.reports > 1, "{}", counted.text);
        counted.is_exactly(&all(), 200)
    });
}

#[test]
fn json_counts_a_process_exactly() {
    let _noise = noise();
    exact(|| {
        let reported = report_of(20, &["--json"]);
        let line = &reported.text;
        let counted = Counted::parse_json(line);
        let report: serde_json::Value = serde_json::from_str(line).unwrap();
        let ((start, end), began) = (span(&report), reported.began.as_millisecond());
        assert!(start <= began && began <= end, "{line}");
        assert!(end <= jiff::Timestamp::now().as_millisecond(), "{line}");
        assert_eq!(report["filter"]["pids"], serde_json::json!([reported.pid]));
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        assert_eq!(report["kernel"], release.trim_end());
        let ops: Vec<_> = schema::layers(&report).flat_map(schema::ops).collect();
        assert!(ops.iter().all(|op| !schema::array(&op["attach"]).is_empty()), "{line}");
        let kinds = serde_json::json!({
            "socket": 20 * ON_SOCKETS, "pipe": 20 * ON_PIPES, "character_device": 20 * ON_DEVICES, "other": 20 * ON_EVENTS
        });
        counted.is_exactly(&all(), 20)
            && (counted.lost > 0 || {
                assert_eq!(report["excluded"]["by_kind"], kinds, "{line}");
                true
            })
    });
}

#[test]
fn json_intervals_add_up_and_follow_each_other() {
    exact(|| {
        let lines = report_of(200, &["--json", "0.05"]).text;
        let counted = Counted::parse_json(&lines);
        assert!(counted.reports > 1, "{lines}");
        let reports: Vec<serde_json::Value> = schema::reports(&lines).unwrap();
        for pair in reports.windows(2) {
            let ((start, end), (next, _)) = (span(&pair[0]), span(&pair[1]));
            assert!((end - next).abs() < 20, "{lines}");
            // An interval after a delayed one is shorter, and may end within the same millisecond.
            assert!(start <= end, "{lines}");
            assert!(pair[0]["in_flight"]["end"].is_null(), "known at the end of a run only");
        }
        counted.is_exactly(&all(), 200)
    });
}

/// Whatever this kernel allows: every moment of every call is in a row, and what is not measured is named.
#[test]
fn the_whole_stack_has_every_moment_in_a_row() {
    const ROUNDS: u64 = 20;
    let _noise = noise();
    exact(|| {
        let text = report_of_layers(&[], ROUNDS as u32, &["--json"]).text;
        // This also checks that the rows of each family add up to its time.
        let reports = schema::reports(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let report = &reports[0];
        let stack = &report["stack"];
        let all = |object: &serde_json::Value| -> u64 {
            let fields = object.as_object().into_iter().flatten();
            fields.map(|(_, value)| schema::number(value)).sum()
        };
        if all(&report["lost"]) + all(&stack["unbalanced"]) > 0 {
            return false;
        }
        for (family, names) in [
            ("read", &["read", "pread64", "preadv"][..]),
            ("write", &["write", "pwrite64"]),
            ("fsync", &["fsync", "fdatasync"]),
        ] {
            let calls = ROUND.iter().filter(|(name, ..)| names.contains(name));
            let expected = calls.map(|(_, times, _)| times * ROUNDS).sum::<u64>();
            let mut families = schema::array(&stack["families"]).iter();
            let counted = families.find(|counted| counted["family"] == family).unwrap();
            assert_eq!(schema::number(&counted["count"]), expected, "{family}: {text}");
            let layers = schema::layers(report).filter(|layer| layer["layer"] == "syscall");
            let ops = layers.flat_map(schema::ops);
            let ops = ops.filter(|op| op["op"].as_str().is_some_and(|name| names.contains(&name)));
            let calls: u64 = ops.map(|op| schema::number(&op["total_ns"])).sum();
            assert_eq!(schema::number(&counted["total_ns"]), calls, "{family}: {text}");
            for row in schema::array(&counted["rows"]) {
                let is_missing = |missing: &serde_json::Value| missing["what"] == row["row"];
                let is_named = schema::array(&stack["not_measured"]).iter().any(is_missing);
                assert_eq!(row["ns"].is_null(), is_named, "{row}: {text}");
                let is_by_tracepoints =
                    ["syscall", "queue", "device", "run queue"].contains(&row["row"].as_str().unwrap());
                assert!(!is_by_tracepoints || !is_named, "{row}: {text}");
            }
        }
        true
    });
}

/// Its file is not measured, which is known before the call ends.
#[test]
fn a_thread_that_waits_for_a_pipe_is_inside_no_call() {
    let mut cat = Command::new("cat");
    let cat = cat.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut cat = cat.spawn().unwrap();
    let pid = cat.id().to_string();
    let (mut into, mut out) = (cat.stdin.take().unwrap(), cat.stdout.take().unwrap());
    let tool = Running::start(Command::new(TOOL).args(["--json", "-p", &pid])).unwrap();
    wait_for("the tool to begin", LIMIT, || tool.stderr().contains("Tracing ")).unwrap();
    into.write_all(b"x").unwrap();
    out.read_exact(&mut [0]).unwrap();
    // It waits for the next byte.
    let read = format!("{} 0x0 ", libc::SYS_read);
    let waits = || fs::read_to_string(format!("/proc/{pid}/syscall")).is_ok_and(|call| call.starts_with(&read));
    wait_for("cat to read", LIMIT, waits).unwrap();
    tool.signal(Signal::SIGINT).unwrap();
    let text = tool.finish(LIMIT).unwrap().success().unwrap().stdout;
    drop(into);
    cat.wait().unwrap();
    let report = schema::reports(&text).unwrap().remove(0);
    assert_eq!(report["in_flight"]["end"], 0, "{text}");
    let calls = schema::layers(&report)
        .find(|layer| layer["layer"] == "syscall")
        .unwrap();
    // The write of the byte, and the read under way: the read that received it began before the tool did.
    assert_eq!(schema::number(&calls["excluded"]["not_file"]), 2, "{text}");
}

#[test]
fn a_command_is_counted_exactly() {
    let _noise = noise();
    exact(|| {
        let stage = Stage::new();
        stage.go();
        let workload = stage.workload("20");
        let report = stage.folder.join("report");
        let mut tool = Command::new(TOOL);
        tool.args(["-T", "syscall", "--verbose", "-o"]).arg(&report).arg("--");
        tool.arg(workload.get_program()).args(workload.get_args());
        tool.env("IOSB_NATIVE_ENDS", "1");
        tool.envs(workload.get_envs().filter_map(|(name, value)| Some((name, value?))));
        run(&mut tool, LIMIT).unwrap().success().unwrap();
        Counted::parse(&fs::read_to_string(&report).unwrap()).is_exactly(&RARE, 20)
    });
}

/// The kernel says which number it has outside.
#[test]
fn a_process_is_found_from_inside_a_pid_namespace() {
    // The child has its name once it has become sleep.
    let script = "sleep 100 & n=0; until grep -qs sleep /proc/$!/comm || [ $n = 1000 ]; do n=$((n + 1)); done; \
                  exec \"$0\" -T syscall -S -p $! --duration 100ms";
    // In a chroot, `/` is no mount that could be made private, but /proc is one.
    let here = ["unshare", "--propagation", "unchanged"];
    let mut inside = Command::new(here[0]);
    inside.args(&here[1..]).args(["--mount", "sh", "-c"]);
    inside.args(["mount --make-rprivate /proc && exec \"$@\"", "sh"]);
    inside.args(here).args(["--pid", "--fork", "--mount-proc"]);
    inside.args(["sh", "-c", script, TOOL]);
    let output = inside.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("PID 2 (sleep)"), "{said}");
}

/// A process that makes only system calls, since this one has other threads, until it is killed: it has a child that
/// has ended, and once it gets a byte, waits for it, and reads the file once.
struct Parent {
    pid: i32,
    child: i32,
    orders: UnixStream,
}

impl Parent {
    fn new(file: &fs::File) -> Self {
        let (mut orders, theirs) = UnixStream::pair().unwrap();
        orders.set_read_timeout(Some(LIMIT)).unwrap();
        let theirs = theirs.as_raw_fd();
        let mut bytes = [0_u8; 4];
        // SAFETY: the children only make system calls, with memory that is valid.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: as above.
            unsafe {
                let child = libc::fork();
                if child == 0 {
                    libc::_exit(0);
                }
                // It stays a zombie.
                let mut info = std::mem::MaybeUninit::<libc::siginfo_t>::uninit();
                libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), libc::WEXITED | libc::WNOWAIT);
                libc::write(theirs, (&raw const child).cast(), 4);
                libc::read(theirs, bytes.as_mut_ptr().cast(), 1);
                libc::waitpid(child, std::ptr::null_mut(), 0);
                libc::syscall(libc::SYS_pread64, file.as_raw_fd(), bytes.as_mut_ptr(), 1, 0);
                libc::write(theirs, (&raw const child).cast(), 4);
                loop {
                    libc::pause();
                }
            }
        }
        assert!(pid > 0);
        orders.read_exact(&mut bytes).unwrap();
        let child = i32::from_ne_bytes(bytes);
        Self { pid, child, orders }
    }

    fn wait_for_child(&mut self) {
        self.orders.write_all(&[0]).unwrap();
        self.orders.read_exact(&mut [0; 4]).unwrap();
    }
}

impl Drop for Parent {
    fn drop(&mut self) {
        // SAFETY: our child.
        unsafe {
            libc::kill(self.pid, libc::SIGKILL);
            libc::waitpid(self.pid, std::ptr::null_mut(), 0);
        }
    }
}

/// A process with this number reads the file, by calls with their own number.
fn read_as(number: i32, file: &fs::File, times: u32) {
    // SAFETY: all zeros are valid.
    let mut wish: libc::clone_args = unsafe { std::mem::zeroed() };
    wish.exit_signal = libc::SIGCHLD as u64;
    wish.set_tid = &raw const number as u64;
    wish.set_tid_size = 1;
    let mut byte = 0_u8;
    // SAFETY: the child only makes system calls, with memory that is valid.
    unsafe {
        let child = libc::syscall(libc::SYS_clone3, &raw const wish, size_of_val(&wish));
        if child == 0 {
            for _ in 0..times {
                libc::syscall(libc::SYS_pread64, file.as_raw_fd(), &raw mut byte, 1, 0);
            }
            libc::_exit(0);
        }
        assert_eq!(child, i64::from(number), "{}", std::io::Error::last_os_error());
        assert_eq!(libc::waitpid(number, std::ptr::null_mut(), 0), number);
    }
}

/// Neither as a descendant nor as a process of -p, although its exit was before the tool could see it.
#[test]
fn a_number_that_a_zombie_leaves_is_not_followed() {
    let file = fs::File::open(std::env::current_exe().unwrap()).unwrap();
    for is_descendant in [true, false] {
        let mut parent = Parent::new(&file);
        let mut tool = Command::new(TOOL);
        match is_descendant {
            true => tool.args(["-f", "-p", &parent.pid.to_string()]),
            false => tool.args(["-p", &format!("{},{}", parent.pid, parent.child)]),
        };
        let tool = Running::start(tool.args(["--json", "-T", "syscall"])).unwrap();
        wait_for("the tool to begin", LIMIT, || tool.stderr().contains("Tracing "))
            .unwrap_or_else(|error| panic!("{error}: {}", tool.stderr()));
        parent.wait_for_child();
        read_as(parent.child, &file, 777);
        tool.signal(Signal::SIGINT).unwrap();
        let text = tool.finish(LIMIT).unwrap().success().unwrap().stdout;
        let reads = Counted::parse_json(&text).ops.remove("pread64").unwrap_or_default();
        assert_eq!(reads, (1, 1), "as a descendant: {is_descendant}");
    }
}
