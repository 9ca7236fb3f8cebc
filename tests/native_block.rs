//! Requests of a real disk of this machine, counted by tracepoints alone, beside the kernel's own counters. Run it as root.
//!
//! A kernel under a security policy may keep events from programs, for example those of interrupts that come while one of
//! its guarded processes runs. Then the tool has to say that something is missing, each time; and a run without has to be
//! exact.

#[allow(dead_code, reason = "shared with the guests, who need more of it")]
#[path = "vm/guest/process.rs"]
mod process;
#[allow(dead_code, reason = "shared with the tests of every other report")]
mod schema;
#[allow(dead_code, reason = "shared with the tests of the schema")]
#[path = "schema/validator.rs"]
mod validator;

use std::alloc::{Layout, alloc_zeroed};
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::sys::stat::{major, minor};
use process::{Output, Running, wait_for};

const TOOL: &str = env!("CARGO_BIN_EXE_IOStackBreakdown");
const LIMIT: Duration = Duration::from_secs(60);
const BLOCK: usize = 4096;
const READS: usize = 200;
const WRITES: usize = 50;
const FSYNCS: usize = 7;
/// Runs until one has lost nothing.
const ATTEMPTS: u32 = 10;

/// One at a time: the disk's counters are everybody's.
static DISK: Mutex<()> = Mutex::new(());

/// A file on a disk of this machine, and the disk's name.
struct OnDisk {
    path: PathBuf,
    file: File,
    disk: String,
}

impl Drop for OnDisk {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

impl OnDisk {
    fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let path = folder.join(format!("block-{name}-{}", std::process::id()));
        fs::write(&path, vec![7; BLOCK * READS]).unwrap();
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_DIRECT)
            .open(&path)
            .unwrap();
        file.sync_all().unwrap();
        let number = file.metadata().unwrap().dev();
        let link = format!("/sys/dev/block/{}:{}", major(number), minor(number));
        let device = fs::canonicalize(&link)
            .unwrap_or_else(|error| panic!("{}: is it on a disk? {link}: {error}", folder.display()));
        let disk = device.file_name().unwrap().to_str().unwrap().to_owned();
        Self { path, file, disk }
    }

    /// A request for each: they wait for one another.
    fn work(&self) {
        let layout = Layout::from_size_align(BLOCK, BLOCK).unwrap();
        // SAFETY: the size is not 0. It stays for as long as the process.
        let buffer = unsafe { std::slice::from_raw_parts_mut(alloc_zeroed(layout), BLOCK) };
        let fd = self.file.as_raw_fd();
        let moved = |moved: isize| assert_eq!(moved, BLOCK as isize, "{}", std::io::Error::last_os_error());
        for n in 0..READS {
            let at = (n * BLOCK) as i64;
            // SAFETY: the buffer is as long as is read.
            moved(unsafe { libc::pread(fd, buffer.as_mut_ptr().cast(), BLOCK, at) });
        }
        for n in 0..WRITES {
            let at = (n * BLOCK) as i64;
            // SAFETY: the buffer is as long as is written.
            moved(unsafe { libc::pwrite(fd, buffer.as_ptr().cast(), BLOCK, at) });
        }
        for _ in 0..FSYNCS {
            self.file.sync_all().unwrap();
        }
    }
}

/// What it prints of a run in which `work` is done.
fn measured(arguments: &[&str], work: impl FnOnce()) -> Output {
    let running = Running::start(Command::new(TOOL).args(arguments).args(["-S", "--verbose"])).unwrap();
    wait_for("the banner", LIMIT, || running.stderr().contains("Hit Ctrl-C")).unwrap_or_else(|error| {
        panic!("{arguments:?}: {error}: {}", running.stderr());
    });
    work();
    running.signal(Signal::SIGINT).unwrap();
    running.finish(LIMIT).unwrap().success().unwrap()
}

/// Calls and bytes of an op.
fn exact(output: &Output, op: &str) -> (usize, usize) {
    let line = output
        .stdout
        .lines()
        .find_map(|line| line.strip_prefix(&format!("exact: {op} ")));
    let Some(line) = line else { return (0, 0) };
    let numbers: Vec<usize> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    (numbers[0], numbers[2])
}

/// Whether a run says that it lost nothing.
fn is_whole(output: &Output) -> bool {
    let trouble = ["LOST ", "unfinished: ", "diskstats differs: "];
    !output
        .stdout
        .lines()
        .any(|line| trouble.iter().any(|start| line.starts_with(start)))
}

/// Runs until one is whole, which has to be what `is_right` says; those that are not have to be less than that.
fn until_whole(arguments: &[&str], work: impl Fn(), is_right: impl Fn(&Output) -> bool) {
    for _ in 0..ATTEMPTS {
        let output = measured(arguments, &work);
        if is_whole(&output) {
            assert!(is_right(&output), "{arguments:?}: {}{}", output.stdout, output.stderr);
            return;
        }
    }
    panic!("{arguments:?}: something was lost in each of {ATTEMPTS} runs");
}

#[test]
fn a_disk_has_as_many_requests_as_the_kernel_counts() {
    let _alone = DISK.lock().unwrap_or_else(PoisonError::into_inner);
    let file = OnDisk::new("all");
    for queued in [false, true] {
        let mut arguments = vec!["-T", "blk", "-d", &file.disk];
        arguments.extend(queued.then_some("-Q"));
        until_whole(
            &arguments,
            || file.work(),
            |output| {
                let (reads, bytes) = exact(output, "read");
                output.stdout.contains("diskstats agrees: ")
                    && reads >= READS
                    && bytes >= READS * BLOCK
                    && exact(output, "write").0 >= WRITES
                    && output.stdout.contains("queue time from: ") == queued
            },
        );
    }
}

#[test]
fn a_process_has_its_own_requests_and_no_others() {
    let _alone = DISK.lock().unwrap_or_else(PoisonError::into_inner);
    let file = OnDisk::new("own");
    let other = OnDisk::new("other");
    let pid = std::process::id().to_string();
    // Where requests announce themselves, and where they do not.
    for without in [None, Some("block_io_start")] {
        let mut arguments = vec!["-T", "blk", "-d", &file.disk, "-Q", "-p", &pid];
        arguments.extend(without.iter().flat_map(|name| ["--without", name]));
        let work = || {
            let noise = Command::new("dd")
                .args(["bs=4k", "iflag=direct", "of=/dev/null"])
                .arg(format!("if={}", other.path.display()))
                .stderr(std::process::Stdio::null())
                .spawn();
            file.work();
            assert!(noise.unwrap().wait().unwrap().success());
        };
        until_whole(&arguments, work, |output| {
            exact(output, "read") == (READS, READS * BLOCK)
                && exact(output, "write").0 >= WRITES
                && !output.stdout.contains("diskstats")
        });
    }
}

#[test]
fn requests_are_told_in_json_as_the_schema_says() {
    let _alone = DISK.lock().unwrap_or_else(PoisonError::into_inner);
    let file = OnDisk::new("json");
    let output = measured(&["-T", "blk", "-d", &file.disk, "-Q", "--json"], || file.work());
    let reports = schema::reports(&output.stdout).unwrap();
    let [report] = &reports[..] else {
        panic!("{}", output.stdout)
    };
    assert_eq!(report["filter"]["queued"], true);
    let blk = &report["layers"][0];
    assert_eq!((&blk["layer"], &blk["measured"]), (&"blk".into(), &true.into()));
    assert!(
        blk["queue_from"].is_string() && blk["diskstats"]["reads"].is_u64(),
        "{blk}"
    );
    let read = &blk["ops"][0];
    assert!(
        read["op"] == "read" && read["queue_ns"].is_u64() && read["apart"]["at_start"].is_u64(),
        "{read}"
    );
}
