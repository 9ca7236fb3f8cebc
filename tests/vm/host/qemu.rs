//! One boot: starts QEMU, follows the guest's verdicts and its console, and ends it when it is done or lost.

use super::machine::Machine;
use super::report::{Report, Tally};
use super::times::{Moment, Span};
use crate::protocol::{Event, PEERS, THROTTLED, THROTTLED_IOPS};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// `thread=single`, since patching code while another virtual CPU runs it crashed guests, and every probe patches code.
/// No network, no display.
const ARGUMENTS: &[&str] = &[
    "-nodefaults",
    "-no-user-config",
    "-no-reboot",
    "-display",
    "none",
    "-accel",
    "tcg,thread=single",
    "-m",
    "1024",
];
const CPUS: u32 = 2;
/// Each instruction takes a nanosecond, and waiting takes none.
const COUNTED: &[&str] = &["-icount", "shift=0,sleep=off"];
/// A panic ends the guest at once, and an oops is a panic.
/// The root is no tmpfs: page faults of the workload's own executable would be operations of the file system that a check counts.
const COMMAND_LINE: &str = "panic=-1 oops=panic quiet loglevel=4 rootfstype=ramfs rdinit=/init";
/// How long the host's time stamp counter, which the guest uses as well, is measured.
const TO_CALIBRATE: Duration = Duration::from_millis(200);
/// How often the console is checked while the guest sends nothing.
const LOOK: Duration = Duration::from_millis(500);
/// How long a crashing kernel may take to print where it crashed.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// How long a guest may take to end after its last message.
const TO_END: Duration = Duration::from_secs(60);
/// The number of console lines shown for a guest that failed as a whole.
const SHOWN: usize = 40;
/// Messages of a kernel that must not be trusted any more.
const FATAL: [&str; 4] = ["Kernel panic", "Oops", "BUG:", "general protection fault"];
/// Messages that a kernel also prints if the host gives it too little time.
const STARVED: [&str; 4] = [
    "soft lockup",
    "workqueue lockup",
    "self-detected stall",
    "detected stalls",
];
/// Messages of a kernel that kills a process for lack of memory, which no check intends.
const NO_MEMORY: &str = "Out of memory: Killed process";

pub struct Boot {
    pub machine: &'static Machine,
    pub vmlinuz: PathBuf,
    pub initrd: PathBuf,
    pub disk: PathBuf,
    /// The disk with other tools, if it is needed and available.
    pub peers: Option<PathBuf>,
    /// Where the kernel's messages go.
    pub console: PathBuf,
    /// Added to the kernel's command line.
    pub words: Vec<String>,
    /// The number of its CPUs, if its clock counts instructions.
    pub counted: Option<u32>,
    pub limit: Duration,
    /// Whether the guest runs a command instead of checks.
    pub exec: bool,
}

/// QEMU, killed when this is dropped.
struct Guest(Child);

impl Drop for Guest {
    fn drop(&mut self) {
        // Both fail only if it has already ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The state of a guest, from its messages.
struct Progress<'a> {
    name: &'a str,
    report: &'a Report,
    /// QEMU's process.
    qemu: u32,
    start: Moment,
    /// When it last sent something.
    last: Moment,
    /// How long it took to boot.
    boot: Span,
    /// The running check, and since when.
    running: Option<(String, Moment)>,
    tally: Tally,
    /// Whether the guest has sent its last message.
    done: bool,
}

impl Boot {
    pub fn run(&self, name: &str, report: &Report) -> Tally {
        let (mut guest, lines) = match self.start() {
            Ok(started) => started,
            Err(reason) => return report.failed(name, "guest", &reason, None),
        };
        let start = Moment::of(guest.0.id());
        let mut progress = Progress {
            name,
            report,
            qemu: guest.0.id(),
            start,
            last: start,
            boot: Span::default(),
            running: None,
            tally: Tally::default(),
            done: false,
        };
        let followed = self.follow(&mut guest, &lines, &mut progress);
        drop(guest);
        report.guest(name, progress.start, progress.boot, progress.start.until(progress.last));
        // By far the largest file of a boot, created for each one.
        let _ = std::fs::remove_file(&self.initrd);
        match followed {
            Ok(()) => progress.tally,
            Err(reason) => {
                let mut text = match &progress.running {
                    Some((check, _)) => format!("during \"{check}\": {reason}"),
                    None => reason,
                };
                for (i, line) in last_lines(&self.console_text()).into_iter().enumerate() {
                    text += if i == 0 { "; the console's last lines:\n" } else { "\n" };
                    text += line;
                }
                progress.tally += report.failed(name, "guest", &text, None);
                progress.tally
            }
        }
    }

    /// An error if the guest as a whole failed, whatever the results of its checks.
    fn follow(&self, guest: &mut Guest, lines: &Receiver<String>, progress: &mut Progress) -> Result<(), String> {
        let start = Instant::now();
        let mut console = Console::default();
        let mut end = None;
        let closed = loop {
            match lines.recv_timeout(LOOK) {
                Ok(line) => progress.take(&line, self.exec)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break true,
            }
            console.read(&self.console_text(), progress);
            if let Some(when) = end {
                if Instant::now() > when {
                    break false;
                }
            } else if console.fatal.is_some() {
                end = Some(Instant::now() + LAST_WORDS);
            } else if progress.done {
                end = Some(Instant::now() + TO_END);
            } else if start.elapsed() > self.limit {
                return Err(format!("no verdict after {:?}", self.limit));
            }
        };
        // Its threads, and their statistics, may have disappeared already.
        progress.last = progress.last.later(Moment::of(progress.qemu));
        // Its output is closed a moment before the process ends.
        let since = Instant::now();
        let ended = loop {
            match guest.0.try_wait().map_err(|e| format!("QEMU: {e}"))? {
                None if closed && since.elapsed() < TO_END => std::thread::sleep(LOOK / 10),
                ended => break ended,
            }
        };
        console.read(&self.console_text(), progress);
        match (console.fatal, ended) {
            (Some(fatal), _) => Err(fatal),
            (None, None) => Err(format!("QEMU still ran {TO_END:?} after the guest's last word")),
            (None, Some(status)) if !status.success() => Err(format!("QEMU: {status}")),
            (None, Some(_)) if !progress.done => Err("it ended without a verdict".into()),
            (None, Some(_)) => Ok(()),
        }
    }

    fn start(&self) -> Result<(Guest, Receiver<String>), String> {
        let mut qemu = Command::new(self.machine.qemu);
        qemu.args(ARGUMENTS)
            .args(self.machine.arguments)
            .args(["-smp", &self.counted.unwrap_or(CPUS).to_string()]);
        if self.counted.is_some() {
            qemu.args(COUNTED);
        }
        qemu.arg("-kernel").arg(&self.vmlinuz).arg("-initrd").arg(&self.initrd);
        let mut words = vec![format!("console={} {COMMAND_LINE}", self.machine.console)];
        let has_own_clock = self.counted.is_some() || self.machine.architecture != "amd64";
        words.extend((!has_own_clock).then(clock_word).flatten());
        qemu.arg("-append")
            .arg([&words, self.words.as_slice()].concat().join(" "));
        // A comma in a path would end the option's value.
        let escaped = |path: &Path| path.to_string_lossy().replace(',', ",,");
        let disk = escaped(&self.disk);
        qemu.arg("-drive")
            .arg(format!("file={disk},format=raw,if=none,id=scratch,snapshot=on"));
        qemu.args(["-device", "nvme,drive=scratch,serial=scratch"]);
        // Their driver is a module, so checks that do not load it do not see these disks.
        qemu.arg("-drive").arg(format!(
            "driver=null-co,read-zeroes=on,size=64M,if=none,id={THROTTLED},throttling.iops-total={THROTTLED_IOPS}"
        ));
        // Adjacent requests must not be merged.
        qemu.arg("-device").arg(format!(
            "virtio-blk-pci,drive={THROTTLED},serial={THROTTLED},request-merging=off"
        ));
        if let Some(peers) = &self.peers {
            let file = escaped(peers);
            qemu.arg("-drive")
                .arg(format!("file={file},format=raw,if=none,id={PEERS},readonly=on"));
            qemu.arg("-device")
                .arg(format!("virtio-blk-pci,drive={PEERS},serial={PEERS}"));
        }
        let console = escaped(&self.console);
        qemu.arg("-chardev").arg(format!("file,id=console,path={console}"));
        qemu.args(["-chardev", "stdio,id=verdict,signal=on"])
            .args(self.machine.ports);
        qemu.stdin(Stdio::null()).stdout(Stdio::piped());
        // SAFETY: a single system call.
        unsafe { qemu.pre_exec(|| Ok(set_pdeathsig(Signal::SIGKILL)?)) };
        let mut child = qemu.spawn().map_err(|e| format!("{}: {e}", self.machine.qemu))?;
        let stdout = child.stdout.take();
        let guest = Guest(child);
        let (sender, lines) = channel();
        std::thread::spawn(move || read_lines(stdout, &sender));
        Ok((guest, lines))
    }

    /// Empty until QEMU has created it.
    fn console_text(&self) -> String {
        let mut bytes = Vec::new();
        let _ = File::open(&self.console).and_then(|mut file| file.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

fn read_lines(stdout: Option<impl Read>, sender: &Sender<String>) {
    let Some(stdout) = stdout else { return };
    for line in BufReader::new(stdout).split(b'\n') {
        let Ok(line) = line else { return };
        if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
            return;
        }
    }
}

impl Progress<'_> {
    fn take(&mut self, line: &str, exec: bool) -> Result<(), String> {
        self.last = Moment::of(self.qemu);
        let Some(event) = Event::parse(line) else {
            return Err(format!("not a verdict: {line:?}"));
        };
        match event {
            Event::Booted(kernel) => {
                self.boot = self.start.until(self.last);
                self.report.note(
                    self.name,
                    &format!("booted {kernel} in {:.1} s", self.boot.took.as_secs_f64()),
                );
            }
            Event::Started(check) => self.running = Some((check, self.last)),
            Event::Passed(check) => {
                let took = self.took();
                self.tally += self.report.passed(self.name, &check, took);
            }
            Event::Failed(check, reason) => {
                let took = self.took();
                self.tally += self.report.failed(self.name, &check, &reason, Some(took));
            }
            Event::Noted(text) => self.report.note(self.name, &text),
            Event::Measured(figure, value) => self.report.measured(self.name, figure, value),
            Event::Output(text) => self.report.output(self.name, &text),
            Event::Exited(status) => {
                self.done = exec;
                if status != 0 {
                    self.tally += self
                        .report
                        .failed(self.name, "exec", &format!("exit status {status}"), None);
                }
            }
            Event::Broken(reason) => return Err(reason),
            Event::Done(passed, failed) => {
                if (passed, failed) != (self.tally.passed, self.tally.failed) {
                    return Err(format!(
                        "it counted {passed} passed, {failed} failed: verdicts were lost"
                    ));
                }
                self.done = true;
            }
        }
        Ok(())
    }

    fn took(&mut self) -> Span {
        self.running
            .take()
            .map_or_else(Span::default, |(_, since)| since.until(self.last))
    }
}

/// The findings in the kernel's messages.
#[derive(Default)]
struct Console {
    /// The number of lines examined.
    seen: usize,
    fatal: Option<String>,
}

impl Console {
    fn read(&mut self, text: &str, progress: &Progress) {
        // The last line may be incomplete.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        for line in whole.lines().skip(self.seen).map(str::trim) {
            self.seen += 1;
            // Kernel messages are preceded by a time; output of checks is not.
            if !line.starts_with('[') {
                continue;
            }
            if line.contains(NO_MEMORY) || STARVED.iter().any(|mark| line.contains(mark)) {
                progress.report.note(progress.name, line);
            } else if self.fatal.is_none() && FATAL.iter().any(|mark| line.contains(mark)) {
                self.fatal = Some(line.into());
            }
        }
    }
}

/// Passes the frequency of the guest's clock. The guest's own calibration is wrong if it is interrupted: on a busy host
/// its clock ran thirteen times too fast.
#[cfg(target_arch = "x86_64")]
fn clock_word() -> Option<String> {
    static KHZ: LazyLock<u128> = LazyLock::new(|| {
        // SAFETY: every x86-64 CPU has the counter.
        let ticks = || unsafe { std::arch::x86_64::_rdtsc() };
        let (start, first) = (Instant::now(), ticks());
        std::thread::sleep(TO_CALIBRATE);
        let (last, took) = (ticks(), start.elapsed());
        u128::from(last.wrapping_sub(first)) * 1_000_000 / took.as_nanos()
    });
    Some(format!("tsc_early_khz={}", *KHZ))
}

#[cfg(not(target_arch = "x86_64"))]
fn clock_word() -> Option<String> {
    None
}

fn last_lines(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim_end)
        .filter(|line| !line.is_empty())
        .collect();
    lines[lines.len().saturating_sub(SHOWN)..].to_vec()
}
