//! Records: each call and request of a known process is recorded once, or its loss is, whatever hooks measure it.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::counts::{FENTRY, Hook, KPROBE, KPROBE_EVENT, RAW_TRACEPOINT, SESSION, TRACEPOINT};
use crate::async_io::{BLOCK, BLOCKS};
use crate::disks::{NullDisks, set_queue};
use crate::guest::{Check, Guest, Running, run, wait_for};
use crate::records::copies;
use crate::records::positions::Positions;
use crate::records::{Made, Recorded, numbered, open};
use crate::workload::{MAPPED_PAGES, Spec, Workload, prepare};
use iostackbreakdown::catalog::{COMPAT, Layer, RECORDED_OPS};
use iostackbreakdown::model::abi::{ROW_JOURNAL, ROW_LOCK, ROW_QUEUE, ROW_RUN_QUEUE, ROWS};
use iostackbreakdown::model::ids::Op;
use iostackbreakdown::model::record::{AsyncCall, Call, Fault, Kind, Request, Sleep};
use iostackbreakdown::probe::plan::function_name;
use iostackbreakdown::sys::page_bytes;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use nix::unistd::Pid;

pub const CHECKS: &[Check] = &[
    Check::new("events: each call once, auto", |guest| whole_stack(guest, None)).when(is_here),
    Check::new("events: each call once, fentry", |guest| {
        whole_stack(guest, Some(&FENTRY))
    })
    .when(FENTRY.exact),
    Check::new("events: each call once, kprobe", |guest| calls_only(guest, &KPROBE)).when(KPROBE.exact),
    Check::new("events: each call once, kprobe-event", |guest| {
        calls_only(guest, &KPROBE_EVENT)
    })
    .when(KPROBE_EVENT.exact),
    Check::new("events: each call once, kprobe-session", |guest| {
        whole_stack(guest, Some(&SESSION))
    })
    .when(SESSION.exact),
    Check::new("events: each call once, tracepoint", |guest| {
        calls_only(guest, &TRACEPOINT)
    })
    .when(TRACEPOINT.exact),
    Check::new("events: each call once, raw-tracepoint", |guest| {
        calls_only(guest, &RAW_TRACEPOINT)
    })
    .when(RAW_TRACEPOINT.exact),
    Check::new("events: what a small buffer has no room for", small_buffer).when(is_here),
    Check::new("events: calls on a CPU that comes after the start", later_cpu).when(Guest::as_booted),
    Check::new("events: requests and sleeps of direct reads", requests).when(is_here),
    Check::new("events: requests of all processes have their submitters", |guest| {
        submitters(guest, &["-T", "blk", "-d", NULL])
    })
    .when(is_here),
    Check::new("events: requests of one process have their submitters", |guest| {
        let own = std::process::id().to_string();
        submitters(guest, &["-T", "blk", "-d", NULL, "-p", &own])
    })
    .when(is_here),
    Check::new("events: files that are opened and closed have their paths", opened).when(is_here),
    Check::new("events: files that were open before have their paths", open_before).when(is_here),
    Check::new("events: calls on excluded files are not under way", excluded).when(is_here),
    Check::new("events: positions, descriptors and mappings", |guest| {
        positions(guest, None)
    })
    .when(is_here),
    Check::new("events: positions, descriptors and mappings, tracepoint", |guest| {
        positions(guest, Some(&TRACEPOINT))
    })
    .when(TRACEPOINT.exact),
    Check::new("events: requests of io_uring and AIO", |guest| asynchronous(guest, &[])).when(is_here),
    Check::new("events: requests of io_uring and AIO, kprobe", |guest| {
        asynchronous(guest, &["-T", "vfs,ext4", "--probe", "kprobe"])
    })
    .when(KPROBE.exact),
    Check::new("events: page faults", |guest| faults(guest, &[])).when(is_here),
    Check::new("events: page faults, kprobe", |guest| {
        faults(guest, &["-T", "vfs,ext4", "--probe", "kprobe"])
    })
    .when(KPROBE.exact),
    Check::new("events: a report of the recording is that of the run", reported).when(is_here),
    Check::new("events: a line for each call and request as they come", lines).when(is_here),
];

const FILE: &str = "/mnt/ext4/events/file";
const RECORDING: &str = "/tmp/events.iosb";
const NULL: &str = "nullb0";
const MINUTE: Duration = Duration::from_secs(60);
/// Functions of the whole stack are attached one by one.
const TO_ATTACH: Duration = Duration::from_secs(180);
const CALLS: u64 = 40_000;
const THREADS: u64 = 8;

fn is_here(guest: &Guest) -> bool {
    guest.tool().is_some()
}

/// Records while `work` runs, and looks at the recording.
fn with_recording<T>(
    guest: &Guest,
    arguments: &[&str],
    work: impl FnOnce(&Running),
    look: impl FnOnce(&Path) -> Result<T, String>,
) -> Result<T, String> {
    let _ = fs::remove_dir_all(RECORDING);
    let path = guest.tool().ok_or("there is no tool")?;
    let mut tool = Command::new(path);
    tool.args(["record", "-o", RECORDING]).args(arguments);
    let running = Running::start(&mut tool)?;
    wait_for("the banner", TO_ATTACH, || running.stderr().contains("Recording "))
        .map_err(|e| format!("{e}: {}", running.stderr()))?;
    work(&running);
    running.signal(Signal::SIGINT)?;
    running.finish(MINUTE)?.success()?;
    let looked = look(Path::new(RECORDING));
    let _ = fs::remove_dir_all(RECORDING);
    looked
}

/// Records this process.
fn recorded(guest: &Guest, arguments: &[&str], work: impl FnOnce(&Running)) -> Result<Recorded, String> {
    let own = std::process::id().to_string();
    with_recording(guest, &[&["-p", &own], arguments].concat(), work, Recorded::open)
}

fn file(flags: i32) -> Result<i32, String> {
    prepare(FILE)?;
    Ok(open(Path::new(FILE), flags))
}

/// The options for a kind of hook. On functions, pread64 is the only system call, since each one takes long to attach.
fn hooked(hook: &Hook) -> Vec<String> {
    let mut all = vec!["--probe".to_owned(), hook.probe.to_owned()];
    if hook.probe.starts_with("kprobe") || hook.probe == "fentry" {
        let calls = Layer::Syscall.ops().iter().chain(RECORDED_OPS);
        let others = calls.filter(|op| op.op.name() != "pread64");
        let points = others.flat_map(|op| op.points);
        let functions = points.chain(COMPAT.iter().map(|call| &call.point)).map(function_name);
        all.extend(functions.flat_map(|function| ["--without".to_owned(), function]));
    }
    all
}

fn whole_stack(guest: &Guest, hook: Option<&Hook>) -> Result<(), String> {
    let fd = file(libc::O_RDONLY)?;
    let mut made = Vec::new();
    let hooked = hook.map(hooked).unwrap_or_default();
    let arguments: Vec<&str> = hooked.iter().map(String::as_str).collect();
    let recorded = recorded(guest, &arguments, |_| made = numbered(fd, 0..CALLS, THREADS, 100, 1))?;
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

fn calls_only(guest: &Guest, hook: &Hook) -> Result<(), String> {
    let fd = file(libc::O_RDONLY)?;
    let mut made = Vec::new();
    let hooked = hooked(hook);
    let arguments: Vec<&str> = ["-T", "syscall"]
        .into_iter()
        .chain(hooked.iter().map(String::as_str))
        .collect();
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
        let lost = recorded.lost(Kind::Call);
        return Err(format!("{missing} of {CALLS} are missing, and {lost} were lost"));
    }
    // Exactly as many were lost as are missing, other calls of this process included.
    adds_up(&recorded)
}

/// The ring of a CPU that is not in use at the start is the smallest there is, and is read before it is full.
fn later_cpu(guest: &Guest) -> Result<(), String> {
    const ONLINE: &str = "/sys/devices/system/cpu/cpu1/online";
    const ROUNDS: u64 = 200;
    /// A round takes a part of the ring, and those between two regular readings more than all of it.
    const ROUND: u64 = 40;
    let set = |value: &str| fs::write(ONLINE, value).map_err(|e| format!("{ONLINE}: {e}"));
    let fd = file(libc::O_RDONLY)?;
    set("0")?;
    let mut made = Ok(Vec::new());
    let recorded = recorded(guest, &["-T", "syscall"], |_| {
        made = set("1").and_then(|()| {
            let mut there = CpuSet::new();
            let stays = there.set(1).and_then(|()| sched_setaffinity(Pid::from_raw(0), &there));
            stays.map_err(|e| format!("CPU 1: {e}"))?;
            let rounds = (0..ROUNDS).flat_map(|round| {
                std::thread::sleep(Duration::from_millis(5));
                numbered(fd, round * ROUND..(round + 1) * ROUND, 1, 100, 1)
            });
            Ok(rounds.collect())
        });
    });
    set("1")?;
    let (recorded, made) = (recorded?, made?);
    let missing = recorded.has_each(&made, FILE)?;
    let calls = recorded.calls("pread64");
    if calls.iter().any(|call| call.cpus != [1; 2]) || calls.len() as u64 + missing != ROUNDS * ROUND {
        return Err(format!("{} are there, and {missing} missing: {calls:?}", calls.len()));
    }
    // A reader that gets no CPU may come too seldom, but not always. At regular times, it would get what fits into the ring.
    let (mut longest, mut next, mut run) = (0, 0, 0);
    for offset in calls.iter().filter_map(|call| call.offset) {
        run = if offset == next { run + 1 } else { 1 };
        (longest, next) = (longest.max(run), offset + 1);
    }
    if longest < ROUNDS * ROUND / 20 {
        return Err(format!(
            "{missing} are missing, and no more than {longest} one after the other are there"
        ));
    }
    recorded.adds_up()
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

/// Reads of which each is split into requests of the largest size that the disk allows.
fn submitters(guest: &Guest, arguments: &[&str]) -> Result<(), String> {
    const LARGEST: u64 = 8 << 10;
    const READ: u64 = 64 << 10;
    const READS: u64 = 16;
    let _disk = NullDisks::new(guest, 1, &[])?;
    set_queue(NULL, &[("max_sectors_kb", &(LARGEST >> 10).to_string())])?;
    let fd = open(Path::new(NullDisks::FIRST), libc::O_RDONLY | libc::O_DIRECT);
    let mut made = Vec::new();
    let work = |_: &Running| made = numbered(fd, 0..READS * READ, 2, READ as usize, READ);
    let recorded = with_recording(guest, arguments, work, Recorded::open)?;
    // SAFETY: a descriptor of this process.
    unsafe { libc::close(fd) };
    let requests = &recorded.records.requests;
    for read in &made {
        let is_its = |request: &&Request| {
            request.tid == read.tid
                && (request.submitted_ns).is_some_and(|at_ns| (read.begin_ns..=read.end_ns).contains(&at_ns))
        };
        let its: Vec<&Request> = requests.iter().filter(is_its).collect();
        let bytes: u64 = its.iter().map(|request| request.bytes).sum();
        let pid = std::process::id();
        let is_whole = |request: &&&Request| {
            request.bytes == LARGEST && request.pid == pid && request.submitted_ns <= request.issued_ns
        };
        if bytes != READ || !its.iter().all(|request| is_whole(&request)) {
            return Err(format!("{read:?} has {its:?}"));
        }
    }
    let lost = recorded.lost(Kind::Request);
    match requests.len() as u64 {
        n if n == READS * READ / LARGEST && lost == 0 => Ok(()),
        n => Err(format!("{n} requests, {lost} lost")),
    }
}

/// The sleeps of a call are those of its rows.
fn slept(recorded: &Recorded, call: &Call) -> Result<(), String> {
    /// Rows of functions in which a thread may also run.
    const OF_FUNCTIONS: [u32; 3] = [ROW_QUEUE, ROW_JOURNAL, ROW_LOCK];
    let is_inside =
        |sleep: &&Sleep| sleep.tid == call.tid && call.begin_ns <= sleep.out_ns && Some(sleep.in_ns) <= call.end_ns;
    let sleeps: Vec<_> = recorded.records.sleeps.iter().filter(is_inside).collect();
    for row in ROW_QUEUE..ROWS {
        let of_row = sleeps.iter().filter(|sleep| u32::from(sleep.row) == row);
        let mut asleep: u64 = of_row
            .map(|sleep| sleep.woken_ns.unwrap_or(sleep.in_ns) - sleep.out_ns)
            .sum();
        if row == ROW_RUN_QUEUE {
            // From its wakeup on, a thread waits for a CPU.
            let woken = sleeps.iter().filter_map(|sleep| Some(sleep.in_ns - sleep.woken_ns?));
            asleep += woken.sum::<u64>();
        }
        let waited = call.rows[row as usize];
        if asleep > waited || (asleep < waited && !OF_FUNCTIONS.contains(&row)) {
            return Err(format!("row {row} of {call:?} has {sleeps:?}"));
        }
    }
    Ok(())
}

fn opened(guest: &Guest) -> Result<(), String> {
    const FILES: u64 = 3000;
    prepare(FILE)?;
    let folder = "/mnt/ext4/events/folder with a name/and another one";
    fs::create_dir_all(folder).map_err(|e| format!("{folder}: {e}"))?;
    let name = |number: u64| format!("{folder}/file {number} {}", "x".repeat((number % 200) as usize));
    let recorded = recorded(guest, &["-T", "syscall", "--buffer", "32M"], |_| {
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

/// The last call of a thread reads from a pipe, which is excluded. It is in no call when the recording ends.
fn excluded(guest: &Guest) -> Result<(), String> {
    let (mut pipe, mut writer) = std::io::pipe().map_err(|e| format!("pipe: {e}"))?;
    let is_over = Arc::new(AtomicBool::new(false));
    let (over, (has_read, read)) = (Arc::clone(&is_over), mpsc::channel());
    let thread = std::thread::spawn(move || {
        // The first one begins before the recording.
        let reads = [(); 2].map(|()| pipe.read_exact(&mut [0]));
        let _ = has_read.send(reads);
        // It runs: of one that waits, /proc shows what for.
        while !over.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        nix::unistd::gettid().as_raw().cast_unsigned()
    });
    let recorded = recorded(guest, &[], |_| {
        let _ = writer.write_all(&[7; 2]);
        let _ = read.recv();
    });
    is_over.store(true, Ordering::Relaxed);
    let reader = thread.join().map_err(|_| "the reader panicked")?;
    let recorded = recorded?;
    let calls = recorded.records.calls.iter();
    let its: Vec<&Call> = calls.filter(|call| call.tid == reader).collect();
    match its.is_empty() {
        true => Ok(()),
        false => Err(format!("{its:?}")),
    }
}

/// Opens 10,000 files, makes a call on each while other files are opened and closed a thousand times a second, and
/// looks for the path of each of these calls.
fn open_before(guest: &Guest) -> Result<(), String> {
    const FILES: u64 = 2_500;
    const DESCRIPTORS: u64 = 10_000;
    const A_SECOND: u64 = 1_000;
    prepare(FILE)?;
    let folder = "/mnt/ext4/events/open before";
    fs::create_dir_all(folder).map_err(|e| format!("{folder}: {e}"))?;
    let name = |number: u64| format!("{folder}/{number}");
    let other = |number: u64| format!("{folder}/other {number}");
    let most = 2 * DESCRIPTORS;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).map_err(|e| format!("{most} open files: {e}"))?;
    let opened = |number: u64| open(Path::new(&name(number % FILES)), libc::O_RDWR | libc::O_CREAT);
    let descriptors: Vec<i32> = (0..DESCRIPTORS).map(opened).collect();
    let (is_over, mut made) = (AtomicBool::new(false), 0);
    let recorded = recorded(guest, &["-T", "syscall", "--buffer", "32M"], |_| {
        std::thread::scope(|scope| {
            let opens = scope.spawn(|| {
                let begin = std::time::Instant::now();
                let mut number = 0;
                while number < A_SECOND || !is_over.load(Ordering::SeqCst) {
                    let fd = open(Path::new(&other(number % FILES)), libc::O_WRONLY | libc::O_CREAT);
                    // SAFETY: the byte is there, and the descriptor is ours.
                    unsafe {
                        libc::syscall(libc::SYS_pwrite64, fd, c"x".as_ptr(), 1, number);
                        libc::syscall(libc::SYS_close, fd);
                    }
                    number += 1;
                    let due = Duration::from_secs(1) * number as u32 / A_SECOND as u32;
                    std::thread::sleep(due.saturating_sub(begin.elapsed()));
                }
                number
            });
            for (number, fd) in (0_u64..).zip(&descriptors) {
                let mut byte = 0_u8;
                // SAFETY: there is room for a byte.
                unsafe { libc::syscall(libc::SYS_pread64, *fd, &raw mut byte, 1, number) };
            }
            is_over.store(true, Ordering::SeqCst);
            made = opens.join().unwrap_or(0);
        });
    })?;
    let _ = fs::remove_dir_all(folder);
    if !recorded.records.lost.is_empty() {
        return Err(format!("records were lost: {:?}", recorded.records.lost));
    }
    let is_named = |calls: &[&Call], count: u64, name: &dyn Fn(u64) -> String| {
        let wrong = calls.iter().find(|call| {
            call.offset
                .is_none_or(|at| recorded.path(call.files[0]) != Some(&*name(at % FILES)))
        });
        match wrong {
            Some(call) => Err(format!("{call:?} is of {:?}", recorded.path(call.files[0]))),
            None if calls.len() as u64 != count => Err(format!("{} of {count} calls", calls.len())),
            None => Ok(()),
        }
    };
    is_named(&recorded.calls("pread64"), DESCRIPTORS, &name)?;
    is_named(&recorded.calls("pwrite64"), made, &other)
}

/// Each call that only runs that record measure is there once, with its arguments.
fn positions(guest: &Guest, hook: Option<&Hook>) -> Result<(), String> {
    prepare(FILE)?;
    let folder = Path::new("/mnt/ext4/events");
    fs::create_dir_all(folder.join("root")).map_err(|e| format!("root: {e}"))?;
    let arguments: &[&str] = match hook {
        Some(hook) => &["-f", "-T", "syscall", "--probe", hook.probe],
        None => &["-f"],
    };
    let (mut made, mut copied) = (None, Vec::new());
    let recorded = recorded(guest, arguments, |_| {
        made = Some(Positions::make(Path::new(FILE), folder));
        copied = copies::make(Path::new(FILE));
    })?;
    copies::are_in(&recorded, &copied)?;
    let made = made.ok_or("no calls were made")?;
    made.are_in(&recorded)?;
    made.folders_are_in(&recorded)?;
    match hook {
        Some(_) => recorded.adds_up(),
        None => Ok(()),
    }
}

/// Each asynchronous request is there once, with its file, its range and what became of it.
fn asynchronous(guest: &Guest, arguments: &[&str]) -> Result<(), String> {
    /// The numbers differ, so that mixed-up requests are noticed.
    const STEPS: [(&str, Op, bool, bool, usize); 6] = [
        ("uring-direct", Op::Read, false, true, 21),
        ("uring-cached", Op::Read, false, false, 22),
        ("uring-write", Op::Write, false, true, 23),
        ("aio-direct", Op::Read, true, true, 24),
        ("aio-cached", Op::Read, true, false, 25),
        ("aio-write", Op::Write, true, true, 26),
    ];
    prepare(FILE)?;
    let steps = STEPS.map(|(kind, _, _, _, count)| format!("{kind}:{count}"));
    let command = ["/init", "async", FILE].map(str::to_owned).into_iter().chain(steps);
    let workload = Workload::launch(&command.collect::<Vec<_>>())?;
    let pid = workload.pid;
    let mut made = Ok(());
    let mut arguments = arguments.to_vec();
    let pid_of_workload = pid.to_string();
    arguments.extend(["-p", &pid_of_workload]);
    let recorded = recorded(guest, &arguments, |_| {
        made = workload.go().and_then(|()| workload.output().map(drop));
    })?;
    made?;
    let all: Vec<_> = recorded
        .records
        .asynchronous
        .iter()
        .filter(|request| request.pid == pid)
        .collect();
    for (kind, op, is_aio, is_direct, count) in STEPS {
        let is_its = |request: &&&AsyncCall| (request.op, request.is_aio, request.is_direct) == (op, is_aio, is_direct);
        let requests: Vec<_> = all.iter().filter(is_its).collect();
        let wrong = requests.iter().find(|request| {
            recorded.path(request.file) != Some(FILE)
                || (request.size, request.value) != (Some(BLOCK.into()), BLOCK.into())
                || request.begin_ns > request.attempt_end_ns
                || request.attempt_end_ns > request.end_ns
                || request.tid != pid
                || request.attempts == 0
                || request.context != requests[0].context
        });
        if let Some(wrong) = wrong {
            return Err(format!("{kind}: {wrong:?} of {:?}", recorded.path(wrong.file)));
        }
        let mut offsets: Vec<_> = requests.iter().filter_map(|request| request.offset).collect();
        let mut expected: Vec<u64> = (0..count as u64)
            .map(|number| number % BLOCKS * u64::from(BLOCK))
            .collect();
        offsets.sort_unstable();
        expected.sort_unstable();
        if offsets != expected {
            return Err(format!("{kind}: {} requests at {offsets:?}", requests.len()));
        }
    }
    let known = STEPS.iter().map(|(.., count)| count).sum::<usize>();
    match (all.len() == known, recorded.lost(Kind::Async)) {
        (true, 0) => Ok(()),
        (_, lost) => Err(format!("{} of {known} requests, {lost} lost", all.len())),
    }
}

/// Each page fault that is counted is recorded, with its file and the page.
fn faults(guest: &Guest, arguments: &[&str]) -> Result<(), String> {
    const SPEC: Spec = Spec {
        set: "ways",
        threads: 2,
        rounds: 5,
        file: FILE,
        name: "mapper",
    };
    /// Of each mapping, of which a thread makes so many in each round.
    const MAPPINGS: u64 = 3;
    let page = page_bytes();
    prepare(FILE)?;
    let workload = Workload::start(&SPEC)?;
    let mut finished = Ok(());
    let pid = workload.pid;
    let recorded = with_recording(
        guest,
        &[&["-p", &pid.to_string()], arguments].concat(),
        |_| finished = workload.go().and_then(|()| workload.finish()),
        Recorded::open,
    )?;
    finished?;
    let faults = &recorded.records.faults;
    let is_right = |fault: &Fault| {
        fault.pid == pid
            && recorded.path(fault.file) == Some(FILE)
            && MAPPED_PAGES
                .iter()
                .any(|number| number.cast_unsigned() == fault.offset / page)
            && fault.offset.is_multiple_of(page)
            && (fault.is_write, fault.errno, fault.layer) == (true, 0, Layer::Ext4)
            && fault.begin_ns <= fault.end_ns
    };
    if let Some(wrong) = faults.iter().find(|fault| !is_right(fault)) {
        return Err(format!("{wrong:?} of {:?}", recorded.path(wrong.file)));
    }
    // A fault that has to wait for its page is called again.
    let least = MAPPED_PAGES.len() as u64 * MAPPINGS * SPEC.threads * SPEC.rounds;
    let counted = recorded.counted.get(&(Layer::Ext4, "fault"));
    let number = faults.len() as u64;
    let is_counted = counted.is_none_or(|counted| *counted == u128::from(number));
    match number >= least && is_counted && recorded.lost(Kind::Fault) == 0 {
        true => Ok(()),
        false => Err(format!(
            "{number} faults, {least} at least, {counted:?} counted, {} lost",
            recorded.lost(Kind::Fault)
        )),
    }
}

/// The report of the recording is the one that the run printed, in every number.
fn reported(guest: &Guest) -> Result<(), String> {
    const LIVE: &str = "/tmp/events.json";
    let fd = file(libc::O_RDWR)?;
    let tool = guest.tool().ok_or("there is no tool")?;
    let work = |_: &Running| {
        numbered(fd, 0..500, THREADS, 100, 1);
        // SAFETY: the byte is there.
        unsafe {
            libc::syscall(libc::SYS_pwrite64, fd, c"x".as_ptr(), 1, 7);
            libc::syscall(libc::SYS_fsync, fd);
        }
    };
    let own = std::process::id().to_string();
    with_recording(guest, &["-p", &own, "--export-json", LIVE], work, |recording| {
        let mut report = Command::new(tool);
        let later = run(report.arg("report").arg(recording).arg("--json"), MINUTE)?.success()?;
        let live = fs::read_to_string(LIVE).map_err(|e| format!("{LIVE}: {e}"))?;
        match live.contains("\"fsync\"") && live == later.stdout {
            true => Ok(()),
            false => Err(format!("live: {live}\nlater: {}", later.stdout)),
        }
    })
}

/// While the run goes on, each call on a file is a line once, and each direct read's request is one that names it.
fn lines(guest: &Guest) -> Result<(), String> {
    const LINES: &str = "/tmp/events.lines";
    const BLOCK: u64 = 4096;
    const BLOCKS: u64 = 16;
    let cached = file(libc::O_RDONLY)?;
    let direct = open(Path::new(FILE), libc::O_RDONLY | libc::O_DIRECT);
    let (tool, own) = (guest.tool().ok_or("there is no tool")?, std::process::id().to_string());
    let mut command = Command::new(tool);
    command.args(["--events=json", "-p", &own, "--file", FILE, "-o", LINES]);
    let running = Running::start(&mut command)?;
    wait_for("the banner", TO_ATTACH, || running.stderr().contains("Hit Ctrl-C"))
        .map_err(|e| format!("{e}: {}", running.stderr()))?;
    numbered(cached, 0..CALLS, THREADS, 100, 1);
    numbered(direct, 0..BLOCKS * BLOCK, 2, BLOCK as usize, BLOCK);
    // What is printed as it comes is there before the end.
    let printed = || fs::read_to_string(LINES).unwrap_or_default();
    wait_for("the requests", MINUTE, || {
        printed().matches("{\"request\":").count() as u64 >= BLOCKS
    })
    .map_err(|e| format!("{e}: {}", running.stderr()))?;
    running.signal(Signal::SIGINT)?;
    running.finish(MINUTE)?.success()?;
    let text = printed();
    let _ = fs::remove_file(LINES);
    let lines = text.lines().map(serde_json::from_str::<serde_json::Value>);
    let lines: Vec<serde_json::Value> = lines.collect::<Result<_, _>>().map_err(|e| e.to_string())?;
    let of = |kind: &'static str| lines.iter().filter_map(move |line| line.get(kind));
    let number = |value: &serde_json::Value| value.as_u64().unwrap_or(u64::MAX);
    let mut offsets: Vec<u64> = Vec::new();
    let mut blocks = BTreeMap::new();
    for call in of("call").filter(|call| call["op"] == "pread64" && call["path"] == FILE) {
        match call["direct"] == true {
            true => drop(blocks.insert(number(&call["begin_ns"]), number(&call["offset"]))),
            false => offsets.push(number(&call["offset"])),
        }
    }
    let made = offsets.len() as u64;
    offsets.sort_unstable();
    offsets.dedup();
    let lost = of("lost").filter(|lost| lost["kind"] == "calls");
    let lost: u64 = lost.map(|lost| number(&lost["records"])).sum();
    if offsets.len() as u64 != made || made + blocks.len() as u64 + lost != CALLS + BLOCKS {
        return Err(format!(
            "{made} lines of {} reads, {} of direct ones, {lost} lost",
            offsets.len(),
            blocks.len()
        ));
    }
    for request in of("request") {
        if request["call_op"] != "pread64" || blocks.remove(&number(&request["call_begin_ns"])).is_none() {
            return Err(format!("{request} is not of a call of {blocks:?}"));
        }
    }
    match blocks.is_empty() {
        true => Ok(()),
        false => Err(format!("the requests of {blocks:?} are missing")),
    }
}
