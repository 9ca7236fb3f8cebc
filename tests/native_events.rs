//! Records of calls and requests on this kernel: each is there once, or its loss is. Run it as root.

mod folder;
mod records;

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use folder::Folder;
use iostackbreakdown::model::ids::Layer;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use records::copies;
use records::positions::Positions;
use records::{Recorded, numbered, open};

const TOOL: &str = env!("CARGO_BIN_EXE_IOStackBreakdown");
const LIMIT: Duration = Duration::from_secs(60);
const CALLS: u64 = 40_000;
const THREADS: u64 = 8;

impl Folder {
    /// Records this process while `work` runs.
    fn recorded(&self, arguments: &[&str], work: impl FnOnce(&Tool)) -> Recorded {
        let recording = self.join("x.iosb");
        let _ = fs::remove_dir_all(&recording);
        let tool = Tool::start(&recording, arguments);
        work(&tool);
        tool.end();
        Recorded::open(&recording).unwrap()
    }
}

/// The tool, which records this process.
struct Tool(Child);

impl Tool {
    fn start(recording: &Path, arguments: &[&str]) -> Self {
        let pid = std::process::id().to_string();
        let mut tool = Command::new(TOOL);
        tool.args(["record", "-q", "-p", &pid, "-o"])
            .arg(recording)
            .args(arguments);
        let tool = Self(tool.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let begin = Instant::now();
        // It has the counters of the start when it measures.
        while !recording.join("000001/seconds.arrow").exists() {
            assert!(begin.elapsed() < LIMIT, "the tool does not begin");
            std::thread::sleep(Duration::from_millis(5));
        }
        tool
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id().cast_signed()), signal).unwrap();
    }

    fn end(mut self) {
        self.signal(Signal::SIGINT);
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Only one of these tests makes calls at a time: each records this process.
static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn turn() -> std::sync::MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[test]
fn each_of_many_calls_is_recorded_once() {
    let _turn = turn();
    let folder = Folder::with_data("events-many");
    let fd = open(&folder.join("data"), libc::O_RDONLY);
    for arguments in [&["-T", "syscall,blk"][..], &[]] {
        let mut made = Vec::new();
        let recorded = folder.recorded(arguments, |_| made = numbered(fd, 0..CALLS, THREADS, 100, 1));
        let lost = recorded.has_each(&made, &folder.text("data")).unwrap();
        let calls = recorded.calls("pread64");
        assert_eq!(calls.len() as u64 + lost, CALLS);
        assert!(calls.iter().all(|call| call.fd == Some(fd) && call.size == Some(100)));
        if arguments.is_empty() {
            let is_whole = |call: &&&_| {
                let call: &iostackbreakdown::model::record::Call = call;
                Some(call.rows.iter().sum()) == call.duration_ns() && call.class.is_some()
            };
            assert_eq!(calls.iter().filter(is_whole).count(), calls.len());
        } else {
            recorded.adds_up().unwrap();
            assert_eq!(recorded.counted[&(Layer::Syscall, "pread64")], u128::from(CALLS));
        }
    }
}

/// What a recording does at the first use of an open file takes longer than most calls.
#[test]
fn the_time_of_a_call_is_without_that_of_its_definitions() {
    const FILES: usize = 20;
    let _turn = turn();
    let folder = Folder::with_data("events-begin");
    let fds: Vec<i32> = (0..FILES).map(|_| open(&folder.join("data"), libc::O_RDONLY)).collect();
    let recorded = folder.recorded(&["-T", "syscall"], |_| {
        for fd in &fds {
            let mut byte = 0_u8;
            // SAFETY: the descriptor is open, and there is room for a byte.
            assert_eq!(unsafe { libc::pread(*fd, (&raw mut byte).cast(), 1, 0) }, 1);
        }
    });
    let calls = recorded.calls("pread64");
    let first = calls.iter().filter(|call| call.fd.is_some_and(|fd| fds.contains(&fd)));
    let defined = first.filter_map(|call| {
        let file = recorded
            .records
            .files
            .iter()
            .find(|file| file.number == call.files[0])?;
        Some((file.at_ns, call.begin_ns))
    });
    let defined: Vec<(u64, u64)> = defined.collect();
    assert_eq!(defined.len(), FILES, "each was open before");
    assert!(defined.iter().all(|(file, call)| file <= call), "{defined:?}");
}

#[test]
fn what_a_small_buffer_has_no_room_for_is_lost_where_it_says() {
    let _turn = turn();
    let folder = Folder::with_data("events-small");
    let fd = open(&folder.join("data"), libc::O_RDONLY);
    let mut made = Vec::new();
    let recorded = folder.recorded(&["-T", "syscall", "--buffer", "64k"], |tool| {
        made = numbered(fd, 0..1000, THREADS, 100, 1);
        // A reader that gets no CPU.
        tool.signal(Signal::SIGSTOP);
        made.extend(numbered(fd, 1000..CALLS, THREADS, 100, 1));
        tool.signal(Signal::SIGCONT);
    });
    let missing = recorded.has_each(&made, &folder.text("data")).unwrap();
    assert!(missing > CALLS / 2, "{missing} missing");
    recorded.adds_up().unwrap();
    assert_eq!(recorded.counted[&(Layer::Syscall, "pread64")], u128::from(CALLS));
}

/// Not a test of its own: a thread that is not the first one of its process opens a file and execs.
#[test]
#[ignore = "it is a process of the test below"]
fn execs_as_another_thread() {
    use std::os::unix::process::CommandExt;
    let Some(file) = std::env::var_os("FILE") else { return };
    let other = std::thread::spawn(move || {
        open(Path::new(&file), libc::O_RDONLY);
        let tid = nix::unistd::gettid().to_string();
        fs::write(Path::new(&file).with_extension("tid"), tid).unwrap();
        Command::new("true").exec()
    });
    panic!("{}", other.join().unwrap());
}

#[test]
fn a_number_that_an_exec_left_is_later_another_process() {
    let _turn = turn();
    let folder = Folder::with_data("events-exec");
    let (file, mut number) = (folder.join("data"), 0_i32);
    let path = CString::new(file.as_os_str().as_bytes()).unwrap();
    let recorded = folder.recorded(&["-f", "-T", "syscall"], |_| {
        let mut own = Command::new(std::env::current_exe().unwrap());
        own.args(["--exact", "--ignored", "execs_as_another_thread"]);
        assert!(own.env("FILE", &file).stdout(Stdio::null()).status().unwrap().success());
        number = fs::read_to_string(file.with_extension("tid")).unwrap().parse().unwrap();
        // SAFETY: all zeros are valid.
        let mut wish: libc::clone_args = unsafe { std::mem::zeroed() };
        wish.exit_signal = libc::SIGCHLD as u64;
        wish.set_tid = &raw const number as u64;
        wish.set_tid_size = 1;
        // SAFETY: the child only makes system calls.
        unsafe {
            let child = libc::syscall(libc::SYS_clone3, &raw const wish, size_of_val(&wish));
            if child == 0 {
                libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), libc::O_WRONLY);
                libc::_exit(0);
            }
            assert_eq!(child, i64::from(number), "{}", std::io::Error::last_os_error());
            assert_eq!(libc::waitpid(number, std::ptr::null_mut(), 0), number);
        }
    });
    let tid = number.cast_unsigned();
    let mut calls = recorded.records.calls.clone();
    calls.retain(|call| call.tid == tid && call.op.name() == "openat");
    // Of two CPUs, either is read first.
    calls.sort_by_key(|call| call.begin_ns);
    let pids: Vec<u32> = calls.iter().map(|call| call.pid).collect();
    assert!(
        pids.len() >= 2 && pids[0] != tid && pids[pids.len() - 1] == tid,
        "{pids:?} at {tid}"
    );
}

#[test]
fn a_thread_with_directories_of_its_own_does_not_move_its_process() {
    let _turn = turn();
    let folder = Folder::with_data("events-own-directory");
    let recorded = folder.recorded(&["-T", "syscall"], |_| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: only this thread is changed.
                assert_eq!(unsafe { libc::unshare(libc::CLONE_FS) }, 0);
                std::env::set_current_dir(&folder).unwrap();
            });
        });
    });
    assert_eq!(recorded.calls("chdir").len(), 1);
    let mut its = recorded.records.folders.iter();
    let moved = its.find(|defined| recorded.seen(&defined.path) == folder.to_str().unwrap());
    assert_eq!(moved, None);
}

#[test]
fn a_thread_without_a_name_is_defined() {
    let _turn = turn();
    let folder = Folder::with_data("events-no-name");
    let mut tid = 0;
    let recorded = folder.recorded(&["-T", "syscall"], |_| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                nix::sys::prctl::set_name(c"").unwrap();
                tid = nix::unistd::gettid().as_raw().cast_unsigned();
                open(&folder.join("data"), libc::O_RDONLY);
            });
        });
    });
    let defined: Vec<_> = recorded
        .records
        .threads
        .iter()
        .filter(|thread| thread.tid == tid)
        .collect();
    assert!(
        !defined.is_empty() && defined.iter().all(|thread| thread.comm.is_empty()),
        "{defined:?}"
    );
    assert!(defined.iter().any(|thread| thread.has_ended), "{defined:?}");
}

#[test]
fn paths_offsets_and_arguments_are_those_of_the_calls() {
    let _turn = turn();
    let folder = Folder::with_data("events-paths");
    let c = |name: &str| CString::new(folder.join(name).as_os_str().as_bytes()).unwrap();
    let (old, new, long) = (c("old"), c("new"), "x/../".repeat(100) + "data");
    fs::create_dir(folder.join("x")).unwrap();
    let long_text = folder.text(&long);
    let long = c(&long);
    let dir = open(&folder.join("x"), libc::O_RDONLY | libc::O_DIRECTORY);
    let mut byte = [0_u8; 64];
    let at = byte.as_mut_ptr();
    let recorded = folder.recorded(&["-T", "syscall"], |_| {
        // SAFETY: the memory is large enough for each of them, and the names are terminated.
        unsafe {
            let fd = open(&folder.join("old"), libc::O_RDWR | libc::O_CREAT | libc::O_APPEND);
            assert_eq!(libc::syscall(libc::SYS_write, fd, at, 20), 20);
            assert_eq!(libc::syscall(libc::SYS_write, fd, at, 30), 30);
            assert_eq!(libc::syscall(libc::SYS_lseek, fd, 10, libc::SEEK_SET), 10);
            assert_eq!(libc::syscall(libc::SYS_read, fd, at, 5), 5);
            assert_eq!(libc::syscall(libc::SYS_close, fd), 0);
            let moved = libc::syscall(
                libc::SYS_renameat2,
                libc::AT_FDCWD,
                old.as_ptr(),
                libc::AT_FDCWD,
                new.as_ptr(),
                0,
            );
            assert_eq!(moved, 0);
            assert!(libc::syscall(libc::SYS_openat, libc::AT_FDCWD, long.as_ptr(), libc::O_RDONLY) > 0);
            assert!(libc::syscall(libc::SYS_openat, dir, c"../data".as_ptr(), libc::O_RDONLY) > 0);
        }
    });
    let (opens, writes) = (recorded.calls("openat"), recorded.calls("write"));
    let created = opens[0];
    let given = |call: &iostackbreakdown::model::record::Call| {
        let paths = call.paths.clone().unwrap_or_default();
        (paths.first.map(|path| path.text), paths.second.map(|path| path.text))
    };
    assert_eq!(given(created), (Some(folder.text("old")), None));
    assert_eq!(recorded.path(created.files[0]), Some(&*folder.text("old")));
    assert_eq!(created.fd.map(i64::from), Some(created.value));
    assert_eq!(
        created.extra & 0xffff_ffff,
        (libc::O_RDWR | libc::O_CREAT | libc::O_APPEND) as u64
    );
    let ranges: Vec<_> = writes
        .iter()
        .map(|call| (call.offset, call.size, call.files[0]))
        .collect();
    assert_eq!(
        ranges,
        [
            (Some(0), Some(20), created.files[0]),
            (Some(20), Some(30), created.files[0])
        ]
    );
    let read = recorded.calls("read");
    assert!(read.iter().any(|call| (call.offset, call.size) == (Some(10), Some(5))));
    assert_eq!(
        given(recorded.calls("renameat2")[0]),
        (Some(folder.text("old")), Some(folder.text("new")))
    );
    let far = opens
        .iter()
        .find(|call| given(call).0.as_deref() == Some(&long_text))
        .unwrap();
    assert_eq!(recorded.path(far.files[0]), Some(&*folder.text("data")));
    let below = opens
        .iter()
        .find(|call| given(call).0.as_deref() == Some("../data"))
        .unwrap();
    let base = below.paths.as_ref().unwrap().first.as_ref().unwrap().base;
    assert_eq!(recorded.path(base), Some(&*folder.text("x")));
    let own = recorded
        .records
        .threads
        .iter()
        .find(|thread| thread.pid == std::process::id())
        .unwrap();
    assert!(own.exe.contains("native_events") && own.uid == 0 && own.parent == std::os::unix::process::parent_id());
}

#[test]
fn calls_on_positions_descriptors_and_mappings_have_all_arguments() {
    let _turn = turn();
    let folder = Folder::with_data("events-positions");
    fs::create_dir(folder.join("root")).unwrap();
    for arguments in [&["-f", "-T", "syscall"][..], &["-f"]] {
        let mut made = None;
        let recorded = folder.recorded(arguments, |_| {
            made = Some(Positions::make(&folder.join("data"), &folder))
        });
        let made = made.unwrap();
        made.are_in(&recorded).unwrap();
        made.folders_are_in(&recorded).unwrap();
        if arguments.len() > 1 {
            recorded.adds_up().unwrap();
        }
    }
}

#[test]
fn copies_have_the_offsets_that_they_were_given() {
    let _turn = turn();
    let folder = Folder::with_data("events-copies");
    let mut made = Vec::new();
    let recorded = folder.recorded(&["-T", "syscall"], |_| made = copies::make(&folder.join("data")));
    copies::are_in(&recorded, &made).unwrap();
}

#[test]
fn requests_are_those_of_the_calls_that_submitted_them() {
    const BLOCKS: u64 = 16;
    let _turn = turn();
    let folder = Folder::with_data("events-requests");
    let fd = open(&folder.join("data"), libc::O_RDONLY | libc::O_DIRECT);
    let mut made = Vec::new();
    let recorded = folder.recorded(&[], |_| made = numbered(fd, 0..BLOCKS * 4096, 2, 4096, 4096));
    recorded.has_each(&made, &folder.text("data")).unwrap();
    let calls = recorded.calls("pread64");
    assert!(calls.iter().all(|call| call.is_direct));
    let mut bytes = 0;
    for request in recorded
        .records
        .requests
        .iter()
        .filter(|request| request.op.name() == "read")
    {
        let submitted = request.submitted_ns.unwrap_or(0);
        let call = calls
            .iter()
            .find(|call| call.tid == request.tid && call.begin_ns <= submitted && Some(submitted) <= call.end_ns);
        if let Some(call) = call {
            assert_eq!((request.errno, request.pid), (0, call.pid));
            assert!(submitted <= request.issued_ns.unwrap() && request.issued_ns.unwrap() <= request.ended_ns);
            bytes += request.bytes;
        }
    }
    // Blocks that two threads read at the same time may be one request.
    assert_eq!(bytes, BLOCKS * 4096);
    let waits = calls
        .iter()
        .filter(|call| call.rows[iostackbreakdown::model::abi::ROW_DEVICE as usize] > 0);
    let device = iostackbreakdown::model::abi::ROW_DEVICE as u8;
    let sleeps = recorded.records.sleeps.iter().filter(|sleep| sleep.row == device);
    assert!(sleeps.count() >= waits.count());
}

/// Memory that processes share, as databases and fio have for their buffers.
struct Shared(*mut libc::c_void, usize);

impl Shared {
    fn new(bytes: usize) -> Self {
        let (access, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a mapping at a free address.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        Self(at, bytes)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // SAFETY: it is a mapping of this length.
        unsafe { libc::munmap(self.0, self.1) };
    }
}

/// What a report of the recording prints as JSON.
fn reported(folder: &Folder, arguments: &[&str]) -> serde_json::Value {
    let mut report = Command::new(TOOL);
    report.arg("report").arg(folder.join("x.iosb")).args(["-q", "--json"]);
    let output = report.args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn direct_reads_into_shared_memory_are_on_the_file_of_their_call() {
    const BLOCKS: usize = 16;
    let _turn = turn();
    let folder = Folder::with_data("events-shared");
    let data = folder.text("data");
    let fd = open(&folder.join("data"), libc::O_RDONLY | libc::O_DIRECT);
    let buffer = Shared::new(4096);
    // SAFETY: takes nothing.
    let own = unsafe { libc::gettid() }.cast_unsigned();
    let recorded = folder.recorded(&["-T", "syscall,blk", "--by", "file"], |_| {
        for block in 0..BLOCKS {
            // SAFETY: the memory is as large as what is read.
            let read = unsafe { libc::syscall(libc::SYS_pread64, fd, buffer.0, 4096, block * 4096) };
            assert_eq!(read, 4096, "{}", std::io::Error::last_os_error());
        }
    });
    let is_read = |request: &&iostackbreakdown::model::record::Request| {
        request.tid == own && request.op.name() == "read" && !request.is_meta
    };
    let requests: Vec<_> = recorded.records.requests.iter().filter(is_read).collect();
    assert_eq!(requests.len(), BLOCKS);
    assert!(requests.iter().all(|request| request.inode.is_none()), "{requests:?}");
    let answers = reported(&folder, &["--access"]);
    let files = answers["access"]["files"].as_array().unwrap();
    let is_data = |file: &&serde_json::Value| {
        let path = file["file"]["path"]["text"].as_str();
        path.map(|path| recorded.seen(path)) == Some(&*data)
    };
    let file = files.iter().find(is_data).unwrap();
    let levels = file["levels"].as_array().unwrap();
    let blk = levels.iter().find(|level| level["level"] == "BLK").unwrap();
    assert_eq!(blk["read"]["bytes"], BLOCKS * 4096, "{blk}");
    // No page of a file is read or written.
    let report = reported(&folder, &["--by", "file"]);
    let groups = report["groups"]["groups"].as_array().unwrap();
    let is_blk = |layer: &&serde_json::Value| layer["layer"] == "blk";
    let has_reads = |group: &&serde_json::Value| {
        let layers = group["numbers"]["layers"].as_array().unwrap().iter().filter(is_blk);
        let mut ops = layers.flat_map(|layer| layer["ops"].as_array().unwrap());
        ops.any(|op| op["op"] == "read")
    };
    let named: Vec<_> = groups.iter().filter(has_reads).map(|group| &group["name"]).collect();
    assert_eq!(named, ["(no file)"], "{groups:?}");
}

#[test]
fn a_call_under_way_at_the_end_has_no_end() {
    let _turn = turn();
    let folder = Folder::with_data("events-open");
    let fifo = folder.join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let reader = fs::File::options().read(true).write(true).open(&fifo).unwrap();
    let waiting = std::sync::atomic::AtomicI32::new(0);
    std::thread::scope(|scope| {
        let recorded = folder.recorded(&["-T", "syscall", "--all-files"], |_| {
            scope.spawn(|| {
                use std::io::Read;
                waiting.store(nix::unistd::gettid().as_raw(), std::sync::atomic::Ordering::SeqCst);
                let mut byte = [0];
                (&reader).read_exact(&mut byte).unwrap();
            });
            let begin = Instant::now();
            loop {
                let tid = waiting.load(std::sync::atomic::Ordering::SeqCst);
                let wait = fs::read_to_string(format!("/proc/self/task/{tid}/syscall")).unwrap_or_default();
                if tid > 0 && wait.starts_with(&format!("{} ", libc::SYS_read)) {
                    break;
                }
                assert!(begin.elapsed() < LIMIT);
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        use std::io::Write;
        (&reader).write_all(b"x").unwrap();
        let open: Vec<_> = recorded
            .records
            .calls
            .iter()
            .filter(|call| call.end_ns.is_none())
            .collect();
        let tid = waiting.load(std::sync::atomic::Ordering::SeqCst).cast_unsigned();
        let read = open.iter().find(|call| call.tid == tid).unwrap();
        assert_eq!(read.op.name(), "read");
        assert_eq!(recorded.path(read.files[0]), fifo.to_str());
    });
}
