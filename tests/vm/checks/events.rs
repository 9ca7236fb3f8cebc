//! Records: each call and request of a known process is recorded once, or its loss is, whatever hooks measure it.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::counts::{FENTRY, KPROBE_EVENT, RAW_TRACEPOINT, SESSION, TRACEPOINT};
use crate::guest::{Check, Guest, Running, wait_for};
use crate::records::{Made, Recorded, numbered, open};
use crate::workload::prepare;
use iostackbreakdown::model::abi::ROW_DEVICE;
use iostackbreakdown::model::ids::Layer;
use iostackbreakdown::model::record::{Call, Kind};
use nix::sys::signal::Signal;

pub const CHECKS: &[Check] = &[
    Check::new("events: each call once, the whole stack", |guest| {
        whole_stack(guest, &[])
    })
    .when(is_here),
    Check::new("events: each call once, by fentry", |guest| {
        whole_stack(guest, &["--probe", "fentry"])
    })
    .when(FENTRY.exact),
    Check::new("events: each call once, by kprobe events", |guest| {
        whole_stack(guest, &["--probe", "kprobe-event"])
    })
    .when(KPROBE_EVENT.exact),
    Check::new("events: each call once, by kprobe.session", |guest| {
        whole_stack(guest, &["--probe", "kprobe-session"])
    })
    .when(SESSION.exact),
    Check::new("events: each call once, by tracepoints", |guest| {
        calls_only(guest, &["--probe", "tracepoint"])
    })
    .when(TRACEPOINT.exact),
    Check::new("events: each call once, by raw tracepoints", |guest| {
        calls_only(guest, &["--probe", "raw-tracepoint"])
    })
    .when(RAW_TRACEPOINT.exact),
    Check::new("events: what a small buffer has no room for", small_buffer).when(is_here),
    Check::new("events: requests and sleeps of direct reads", requests).when(is_here),
    Check::new("events: every file that is opened during the run has its path", opened).when(is_here),
];

const FILE: &str = "/mnt/ext4/events/file";
const RECORDING: &str = "/tmp/events.iosb";
const MINUTE: Duration = Duration::from_secs(60);
const CALLS: u64 = 40_000;
const THREADS: u64 = 8;

fn is_here(guest: &Guest) -> bool {
    guest.tool().is_some()
}

/// Records this process while `work` runs.
fn recorded(guest: &Guest, arguments: &[&str], work: impl FnOnce(&Running)) -> Result<Recorded, String> {
    let _ = fs::remove_dir_all(RECORDING);
    let (path, own) = (guest.tool().ok_or("there is no tool")?, std::process::id().to_string());
    let mut tool = Command::new(path);
    tool.args(["record", "-o", RECORDING, "-p", &own]).args(arguments);
    let running = Running::start(&mut tool)?;
    wait_for("the banner", MINUTE, || running.stderr().contains("Recording "))
        .map_err(|e| format!("{arguments:?}: {e}: {}", running.stderr()))?;
    work(&running);
    running.signal(Signal::SIGINT)?;
    running.finish(MINUTE)?.success()?;
    let recorded = Recorded::open(Path::new(RECORDING));
    let _ = fs::remove_dir_all(RECORDING);
    recorded
}

fn file(flags: i32) -> Result<i32, String> {
    prepare(FILE)?;
    Ok(open(Path::new(FILE), flags))
}

fn whole_stack(guest: &Guest, arguments: &[&str]) -> Result<(), String> {
    let fd = file(libc::O_RDONLY)?;
    let mut made = Vec::new();
    let recorded = recorded(guest, arguments, |_| made = numbered(fd, 0..CALLS, THREADS, 100, 1))?;
    each_once(&recorded, &made)?;
    for call in recorded.calls("pread64") {
        if Some(call.rows.iter().sum()) != call.duration_ns() || call.class.is_none() {
            return Err(format!("its rows do not add up: {call:?}"));
        }
    }
    Ok(())
}

fn each_once(recorded: &Recorded, made: &[Made]) -> Result<(), String> {
    let missing = recorded.has_each(made, FILE)?;
    let calls = recorded.calls("pread64").len() as u64;
    match calls + missing == CALLS {
        true => Ok(()),
        false => Err(format!("{calls} calls are there, and {missing} missing")),
    }
}

fn calls_only(guest: &Guest, arguments: &[&str]) -> Result<(), String> {
    let fd = file(libc::O_RDONLY)?;
    let mut made = Vec::new();
    let arguments = [&["-T", "syscall"], arguments].concat();
    let recorded = recorded(guest, &arguments, |_| made = numbered(fd, 0..CALLS, THREADS, 100, 1))?;
    each_once(&recorded, &made)?;
    adds_up(&recorded)
}

/// The counters have all calls.
fn adds_up(recorded: &Recorded) -> Result<(), String> {
    match recorded.counted.get(&(Layer::Syscall, "pread64")) {
        Some(counted) if *counted == u128::from(CALLS) => recorded.adds_up(),
        other => Err(format!("{other:?} reads were counted")),
    }
}

fn small_buffer(guest: &Guest) -> Result<(), String> {
    const BEFORE: u64 = 1000;
    let fd = file(libc::O_RDONLY)?;
    let mut made = Vec::new();
    let recorded = recorded(guest, &["-T", "syscall", "--buffer", "64k"], |tool| {
        made = numbered(fd, 0..BEFORE, THREADS, 100, 1);
        // A reader that gets no CPU.
        let _ = tool.signal(Signal::SIGSTOP);
        made.extend(numbered(fd, BEFORE..CALLS, THREADS, 100, 1));
        let _ = tool.signal(Signal::SIGCONT);
    })?;
    let missing = recorded.has_each(&made, FILE)?;
    if missing < CALLS / 2 || missing > recorded.lost(Kind::Call) {
        return Err(format!("{missing} of {CALLS} are missing"));
    }
    adds_up(&recorded)
}

fn requests(guest: &Guest) -> Result<(), String> {
    const BLOCK: u64 = 4096;
    const BLOCKS: u64 = 16;
    let fd = file(libc::O_RDONLY | libc::O_DIRECT)?;
    // SAFETY: takes a descriptor.
    unsafe { libc::fsync(fd) };
    let mut made = Vec::new();
    let recorded = recorded(guest, &[], |_| {
        made = numbered(fd, 0..BLOCKS * BLOCK, 2, BLOCK as usize, BLOCK);
    })?;
    recorded.has_each(&made, FILE)?;
    let calls = recorded.calls("pread64");
    let reads = recorded
        .records
        .requests
        .iter()
        .filter(|request| request.op.name() == "read");
    let reads: Vec<_> = reads.collect();
    for call in &calls {
        let is_inside = |at_ns: u64| call.begin_ns <= at_ns && Some(at_ns) <= call.end_ns;
        let of_call = reads
            .iter()
            .filter(|request| request.tid == call.tid && request.submitted_ns.is_some_and(is_inside));
        let of_call: Vec<_> = of_call.collect();
        let is_right = matches!(of_call[..], [request] if request.bytes == BLOCK
            && request.pid == call.pid
            && request.errno == 0
            && request.submitted_ns <= request.issued_ns
            && request.issued_ns.is_some_and(|issued| issued <= request.ended_ns && is_inside(request.ended_ns)));
        if !is_right || !call.is_direct {
            return Err(format!("{call:?} has {of_call:?}"));
        }
        slept(&recorded, call)?;
    }
    Ok(())
}

/// The sleeps of a call are those of its rows.
fn slept(recorded: &Recorded, call: &Call) -> Result<(), String> {
    let sleeps = recorded
        .records
        .sleeps
        .iter()
        .filter(|sleep| sleep.tid == call.tid && call.begin_ns <= sleep.out_ns && Some(sleep.in_ns) <= call.end_ns);
    let sleeps: Vec<_> = sleeps.collect();
    let waited: u64 = call.rows[iostackbreakdown::model::abi::ROW_QUEUE as usize..]
        .iter()
        .sum();
    let asleep: u64 = sleeps.iter().map(|sleep| sleep.in_ns - sleep.out_ns).sum();
    let device = call.rows[ROW_DEVICE as usize];
    if waited != asleep || (device > 0) != sleeps.iter().any(|sleep| u32::from(sleep.row) == ROW_DEVICE) {
        return Err(format!("{call:?} has {sleeps:?}"));
    }
    Ok(())
}

fn opened(guest: &Guest) -> Result<(), String> {
    const FILES: u64 = 3000;
    prepare(FILE)?;
    let folder = "/mnt/ext4/events/folder with a name/and another one";
    fs::create_dir_all(folder).map_err(|e| format!("{folder}: {e}"))?;
    let name = |number: u64| format!("{folder}/file {number} {}", "x".repeat((number % 200) as usize));
    let recorded = recorded(guest, &["-T", "syscall"], |_| {
        for number in 0..FILES {
            let fd = open(Path::new(&name(number)), libc::O_WRONLY | libc::O_CREAT);
            // SAFETY: the bytes are there, and the descriptor is ours.
            unsafe {
                libc::syscall(libc::SYS_write, fd, c"x".as_ptr(), 1);
                libc::syscall(libc::SYS_close, fd);
            }
        }
    })?;
    let _ = fs::remove_dir_all("/mnt/ext4/events/folder with a name");
    if recorded.lost(Kind::File) + recorded.lost(Kind::Path) + recorded.lost(Kind::Call) > 0 {
        return Err(format!("records were lost: {:?}", recorded.records.lost));
    }
    let (opens, writes) = (recorded.calls("openat"), recorded.calls("write"));
    let opens = opens
        .iter()
        .filter(|call| call.value >= 0 && call.extra & libc::O_CREAT as u64 != 0);
    for (number, (open, write)) in opens.zip(&writes).enumerate() {
        let name = name(number as u64);
        let given = open
            .paths
            .as_ref()
            .and_then(|paths| paths.first.as_ref())
            .map(|path| &*path.text);
        let paths = [recorded.path(open.files[0]), recorded.path(write.files[0]), given];
        if paths != [Some(&*name); 3] || open.files[0] != write.files[0] {
            return Err(format!("{name} is {paths:?}"));
        }
    }
    match writes.len() as u64 == FILES {
        true => Ok(()),
        false => Err(format!("{} writes", writes.len())),
    }
}
