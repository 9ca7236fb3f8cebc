//! Requests of a real disk of this machine, counted by tracepoints only, compared with the kernel's own counters.
//! Run it as root.
//!
//! Some kernels call no tracepoint while certain tasks run, nor in interrupts that arrive meanwhile. Then the tool must
//! report each time what is missing and why, and a run without losses must be exact.

mod here;

use std::alloc::{Layout, alloc_zeroed};
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use here::process::{Running, wait_for};
use here::{TOOL, schema};
use iostackbreakdown::sys::perf::SwitchCounters;
use iostackbreakdown::turn::Attaching;
use nix::mount::{MsFlags, mount, umount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;
use nix::sys::stat::{major, minor};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);
const BLOCK: usize = 4096;
const READS: u64 = 200;
const WRITES: u64 = 50;
const FSYNCS: usize = 7;
/// The maximum number of runs until one loses nothing. On a busy disk, requests of others are under way at the end of most.
const UNTIL_WHOLE: u32 = 50;
/// The same until the kernel writes pages back.
const ATTEMPTS: u32 = 10;

/// Tests run one at a time: the disk's counters are shared.
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
        fs::write(&path, vec![7; BLOCK * READS as usize]).unwrap();
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

    /// A request for each write: they wait for one another.
    fn work(&self) {
        let buffer = read_all(&self.file);
        let fd = self.file.as_raw_fd();
        for n in 0..WRITES {
            let at = n as i64 * BLOCK as i64;
            // SAFETY: the buffer has the length that is written.
            moved(unsafe { libc::pwrite(fd, buffer.as_ptr().cast(), BLOCK, at) });
        }
        for _ in 0..FSYNCS {
            self.file.sync_all().unwrap();
        }
    }
}

fn moved(moved: isize) {
    assert_eq!(moved, BLOCK as isize, "{}", std::io::Error::last_os_error());
}

/// Reads each block directly. Returns the buffer, which is never freed.
fn read_all(file: &File) -> &'static mut [u8] {
    let layout = Layout::from_size_align(BLOCK, BLOCK).unwrap();
    // SAFETY: the size is not 0.
    let buffer = unsafe { std::slice::from_raw_parts_mut(alloc_zeroed(layout), BLOCK) };
    for n in 0..READS {
        let at = n as i64 * BLOCK as i64;
        // SAFETY: the buffer has the length that is read.
        moved(unsafe { libc::pread(file.as_raw_fd(), buffer.as_mut_ptr().cast(), BLOCK, at) });
    }
    buffer
}

/// What a run reported about requests.
struct Measured {
    blk: Value,
    printed: String,
    /// Whether the kernel called a tracepoint at each context switch meanwhile, for all tasks.
    all_fired: bool,
}

/// Where tracefs is mounted. If it is not, because this machine has not been traced before, this thread and its
/// children get a mount of their own.
fn tracefs() -> &'static Path {
    let path = Path::new("/sys/kernel/tracing");
    if !path.join("events").exists() {
        let (none, private) = (None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE);
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        mount(none, "/sys", none, private, none).unwrap();
        mount(none, path, Some("tracefs"), MsFlags::empty(), none).unwrap();
    }
    path
}

/// A run during which `work` is done.
fn measured(arguments: &[&str], work: impl FnOnce()) -> Measured {
    let switches = SwitchCounters::start(tracefs()).unwrap();
    let running = Running::start(Command::new(TOOL).args(arguments).args(["--json", "--verbose"])).unwrap();
    wait_for("the banner", LIMIT, || running.stderr().contains("Hit Ctrl-C")).unwrap_or_else(|error| {
        panic!("{arguments:?}: {error}: {}", running.stderr());
    });
    work();
    running.signal(Signal::SIGINT).unwrap();
    let output = running.finish(LIMIT).unwrap().success().unwrap();
    let switches = switches.into_iter().map(|cpu| cpu.stop().unwrap());
    let all_fired = switches
        .map(|cpu| cpu.counted == cpu.traced)
        .reduce(|all, one| all && one);
    let reports = schema::reports(&output.stdout).unwrap();
    let [report] = &reports[..] else {
        panic!("{}", output.stdout)
    };
    assert_eq!(report["filter"]["queued"], arguments.contains(&"-Q"));
    let blk = &report["layers"][0];
    assert_eq!((&blk["layer"], &blk["measured"]), (&"blk".into(), &true.into()));
    Measured {
        blk: blk.clone(),
        printed: format!("{}{}", output.stdout, output.stderr),
        all_fired: all_fired.unwrap(),
    }
}

impl Measured {
    fn op(&self, op: &str) -> &Value {
        schema::ops(&self.blk).find(|known| known["op"] == op).unwrap()
    }

    fn count(&self, op: &str) -> u64 {
        schema::number(&self.op(op)["count"])
    }

    fn bytes(&self, op: &str) -> u64 {
        schema::number(&self.op(op)["bytes"])
    }

    /// Requests of the op known to be lost.
    fn lost(&self, op: &str) -> u64 {
        schema::sum(&self.op(op)["lost"])
    }

    /// Requests whose completion was seen.
    fn seen(&self, op: &str) -> u64 {
        let apart = &self.op(op)["apart"];
        let ends = ["at_start", "never_issued", "untimed"].map(|kind| schema::number(&apart[kind]));
        self.count(op) + ends.iter().sum::<u64>() + schema::number(&self.op(op)["lost"]["issue_missed"])
    }

    fn under_way(&self) -> u64 {
        schema::number(&self.blk["in_flight"]["end"])
    }

    /// Whether the run reports that it lost nothing.
    fn is_whole(&self) -> bool {
        let disk_differs = self.blk["diskstats"]["agreement"] == "differs";
        schema::sum(&self.blk["lost"]) + self.under_way() == 0 && !disk_differs
    }

    /// What is missing, in words.
    fn incomplete(&self) -> String {
        format!(
            "lost {}, {} under way, diskstats {}, all tracepoints fired: {}",
            self.blk["lost"],
            self.under_way(),
            self.blk["diskstats"]["agreement"],
            self.all_fired
        )
    }

    /// How many of the losses are reported as programs not called by the kernel.
    fn not_called(&self) -> u64 {
        let causes = schema::array(&self.blk["lost_causes"]).iter();
        let not_called = causes.filter(|cause| cause["cause"] == "not_called");
        not_called.map(|cause| schema::number(&cause["count"])).sum()
    }
}

/// Runs until one is complete, which `is_right` must accept; one of them must be. Each incomplete run must satisfy `adds_up`,
/// and if it names tracepoints that do not fire as the cause, this must be true of the kernel.
fn until_whole(
    arguments: &[&str],
    work: impl Fn(),
    is_right: impl Fn(&Measured) -> bool,
    adds_up: impl Fn(&Measured) -> bool,
) {
    let mut seen = Vec::new();
    for _ in 0..UNTIL_WHOLE {
        let run = measured(arguments, &work);
        if run.is_whole() {
            assert!(is_right(&run), "{arguments:?}: {}", run.printed);
            return;
        }
        assert!(adds_up(&run), "{arguments:?}: {}", run.printed);
        assert!(
            run.not_called() == 0 || !run.all_fired,
            "{arguments:?}: {}",
            run.printed
        );
        seen.push(run.incomplete());
    }
    panic!(
        "{arguments:?}: no run of {UNTIL_WHOLE} is complete: {}",
        seen.join("; ")
    );
}

#[test]
fn a_disk_has_as_many_requests_as_the_kernel_counts() {
    let _alone = DISK.lock().unwrap_or_else(PoisonError::into_inner);
    let file = OnDisk::new("all");
    for queued in [false, true] {
        let mut arguments = vec!["-T", "blk", "-d", &file.disk];
        arguments.extend(queued.then_some("-Q"));
        let is_right = |run: &Measured| {
            run.blk["diskstats"]["agreement"] == "agrees"
                && run.count("read") >= READS
                && run.bytes("read") >= READS * BLOCK as u64
                && run.count("write") >= WRITES
                && run.blk["queue_from"].is_string() == queued
        };
        // The kernel calls its tracepoints for this process, so each request is seen at least partly; and none is seen
        // twice.
        let adds_up = |run: &Measured| {
            let is_counted = |op, counter: &str| run.seen(op) <= schema::number(&run.blk["diskstats"][counter]);
            run.count("read") + run.lost("read") + run.under_way() >= READS
                && is_counted("read", "reads")
                && is_counted("write", "writes")
                && is_counted("flush", "flushes")
        };
        until_whole(&arguments, || file.work(), is_right, adds_up);
    }
}

#[test]
fn a_process_has_its_own_requests_and_no_others() {
    let _alone = DISK.lock().unwrap_or_else(PoisonError::into_inner);
    let file = OnDisk::new("own");
    let other = OnDisk::new("other");
    let pid = std::process::id().to_string();
    // With and without the event at which requests start.
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
        let is_right = |run: &Measured| {
            (run.count("read"), run.bytes("read")) == (READS, READS * BLOCK as u64)
                && run.count("write") >= WRITES
                && run.blk["diskstats"].is_null()
        };
        let adds_up = |run: &Measured| {
            let ended = run.count("read") + run.lost("read");
            (ended..=ended + run.under_way()).contains(&READS) && run.bytes("read") == run.count("read") * BLOCK as u64
        };
        until_whole(&arguments, work, is_right, adds_up);
    }
}

/// A kernel thread writes pages back while another process is traced, and the tables have room for a single request.
#[test]
fn requests_of_kernel_threads_are_set_aside_and_not_lost() {
    let _alone = DISK.lock().unwrap_or_else(PoisonError::into_inner);
    let file = OnDisk::new("kernel");
    let traced = Running::start(Command::new("sleep").arg("600")).unwrap();
    let pid = traced.pid().to_string();
    for without in [None, Some("block_io_start")] {
        let mut arguments = vec!["-T", "blk", "-d", &file.disk, "-Q", "-p", &pid, "--starts", "1"];
        arguments.extend(without.iter().flat_map(|name| ["--without", name]));
        let by_kernel = |run: &Measured| schema::number(&run.op("write")["apart"]["by_kernel"]);
        let mut all_fired = true;
        let seen = (0..ATTEMPTS).any(|_| {
            let run = measured(&arguments, || {
                fs::write(&file.path, vec![5; BLOCK * 16_384]).unwrap();
                // SAFETY: takes the descriptor of an open file.
                assert_eq!(unsafe { libc::syncfs(file.file.as_raw_fd()) }, 0);
            });
            assert_eq!(schema::number(&run.blk["lost"]["table_full"]), 0, "{}", run.printed);
            all_fired &= run.all_fired;
            by_kernel(&run) > 0
        });
        // No tracepoint fires for some tasks, and the thread that writes back may be one of them.
        assert!(seen || !all_fired, "{arguments:?}: a kernel thread writes back");
    }
}

#[test]
fn requests_in_json_match_the_schema() {
    let _alone = DISK.lock().unwrap_or_else(PoisonError::into_inner);
    let file = OnDisk::new("json");
    let run = measured(&["-T", "blk", "-d", &file.disk, "-Q"], || file.work());
    let (blk, read) = (&run.blk, run.op("read"));
    assert!(
        blk["queue_from"].is_string() && blk["diskstats"]["reads"].is_u64(),
        "{blk}"
    );
    assert!(
        read["queue_ns"].is_u64() && read["apart"]["at_start"].is_u64(),
        "{read}"
    );
}

/// The tool compares counters for a moment; a surrounding run of the test's own sees everything that it can have
/// missed.
#[test]
fn a_check_says_whether_tracepoints_fire_for_all_tasks() {
    let switches = SwitchCounters::start(tracefs()).unwrap();
    let check = Command::new(TOOL).args(["--check", "-T", "syscall"]).output().unwrap();
    let switches: Vec<_> = switches.into_iter().map(|cpu| cpu.stop().unwrap()).collect();
    let text = String::from_utf8(check.stdout).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("tracepoints ")).unwrap();
    let line = line.trim();
    assert!(switches.iter().all(|cpu| cpu.traced <= cpu.counted), "{switches:?}");
    if line.starts_with("fired at all of ") {
        return;
    }
    let (_, missed) = line.split_once("context switches missed in 200 ms: ").unwrap();
    for cpu in missed.split(", CPU ") {
        let numbers: Vec<u64> = cpu
            .split(' ')
            .filter_map(|word| word.trim_end_matches(':').replace(',', "").parse().ok())
            .collect();
        let [number, missed, counted] = numbers[..] else {
            panic!("{line}")
        };
        let around = switches.iter().find(|cpu| cpu.cpu as u64 == number).unwrap();
        assert!(
            missed > 0 && missed <= around.counted - around.traced,
            "{line}: {around:?}"
        );
        assert!(counted <= around.counted, "{line}: {around:?}");
    }
}

/// A loop device that did not exist before, on a file.
struct AddedDisk {
    control: File,
    number: libc::c_int,
    device: File,
}

// include/uapi/linux/loop.h
const LOOP_SET_FD: libc::Ioctl = 0x4c00;
const LOOP_CLR_FD: libc::Ioctl = 0x4c01;
const LOOP_CTL_ADD: libc::Ioctl = 0x4c80;
const LOOP_CTL_REMOVE: libc::Ioctl = 0x4c81;

impl AddedDisk {
    /// `None`: this machine has no such driver.
    fn on(file: &OnDisk) -> Option<Self> {
        let control = File::open("/dev/loop-control").ok()?;
        let is_free = |number: &libc::c_int| !Path::new(&format!("/sys/block/loop{number}")).exists();
        let number = (100..).find(is_free)?;
        // SAFETY: integers.
        let added = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_ADD, number) };
        assert_eq!(added, number, "{}", std::io::Error::last_os_error());
        let mut device = OpenOptions::new();
        device.read(true).write(true).custom_flags(libc::O_DIRECT);
        let path = format!("/dev/loop{number}");
        wait_for(&path, LIMIT, || Path::new(&path).exists()).unwrap();
        let device = device.open(path).unwrap();
        // SAFETY: integers.
        assert_eq!(
            unsafe { libc::ioctl(device.as_raw_fd(), LOOP_SET_FD, file.file.as_raw_fd()) },
            0
        );
        Some(Self {
            control,
            number,
            device,
        })
    }
}

impl Drop for AddedDisk {
    fn drop(&mut self) {
        // SAFETY: integers. It is removed as soon as it is not in use.
        unsafe {
            libc::ioctl(self.device.as_raw_fd(), LOOP_CLR_FD, 0);
            self.device = File::open("/dev/null").unwrap();
            let removed = || libc::ioctl(self.control.as_raw_fd(), LOOP_CTL_REMOVE, self.number) >= 0;
            let _ = wait_for("the loop device to be unused", LIMIT, removed);
        }
    }
}

#[test]
fn a_disk_that_appears_is_no_difference() {
    let _alone = DISK.lock().unwrap_or_else(PoisonError::into_inner);
    let file = OnDisk::new("added");
    let mut added = None;
    let run = measured(&["-T", "blk"], || {
        added = AddedDisk::on(&file);
        if let Some(AddedDisk { device, .. }) = &added {
            read_all(device);
        }
    });
    if added.is_some() {
        let diskstats = &run.blk["diskstats"];
        assert_eq!(diskstats["agreement"], "not_comparable", "{}", run.printed);
        assert_eq!(
            diskstats["detail"], "a disk was added during the run",
            "{}",
            run.printed
        );
    }
}

/// Although processes remain that detach its probes and remove its kprobe events.
#[test]
fn a_file_system_is_not_in_use_when_the_run_has_ended() {
    let _alone = DISK.lock().unwrap_or_else(PoisonError::into_inner);
    let none = None::<&str>;
    // For kprobe events.
    tracefs();
    unshare(CloneFlags::CLONE_NEWNS).unwrap();
    // In a chroot it is no mount, and what is mounted below it may be seen elsewhere.
    let _ = mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none);
    let folder = std::env::temp_dir().join(format!("iosb-native-left-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    // They pause while a run attaches, so that they are still there.
    let _attaching = Attaching::begin();
    for probe in ["auto", "kprobe-event"] {
        mount(none, &folder, Some("tmpfs"), MsFlags::empty(), none).unwrap();
        let mut tool = Command::new(TOOL);
        tool.args([
            "--probe",
            probe,
            "--duration",
            "100ms",
            "-o",
            "report",
            "--export-json",
            "json",
        ]);
        let output = tool.current_dir(&folder).output().unwrap();
        let unmounted = umount(&folder);
        let said = String::from_utf8(output.stderr).unwrap();
        let is_unknown = said.contains("this kernel has no kprobe-event");
        assert!(output.status.success() || is_unknown, "{said}");
        assert_eq!(unmounted, Ok(()), "{probe}");
    }
    fs::remove_dir(&folder).unwrap();
}
