//! `record --ring` on this kernel: what is slow, fails or does not return is in the recording, with what preceded it; and
//! nothing is written without it. Run it as root.

mod folder;
mod left_out;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use folder::Folder;
use iostackbreakdown::model::ids::Op;
use iostackbreakdown::model::record::{Call, Records};
use iostackbreakdown::recording::Recording;
use left_out::left_out;
use nix::mount::{MntFlags, umount2};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::{Pid, mkfifo};

const TOOL: &str = env!("CARGO_BIN_EXE_IOStackBreakdown");
const LIMIT: Duration = Duration::from_secs(60);
const MS: u64 = 1_000_000;

/// A shell that waits for what it is to do, and a tool that keeps the last part of that in memory.
struct Kept {
    shell: Child,
    tool: Child,
    said: BufReader<ChildStderr>,
    lines: String,
}

impl Kept {
    fn start(folder: &Path, arguments: &str) -> Self {
        let shell = Command::new("sh")
            .current_dir(folder)
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let pid = shell.id().to_string();
        let mut tool = Command::new(TOOL)
            .args(["record", "-T", "syscall,blk", "-f", "-p", &pid, "--ring"])
            .args(arguments.split(' '))
            .current_dir(folder)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(tool.stderr.take().unwrap());
        let mut kept = Self {
            shell,
            tool,
            said,
            lines: String::new(),
        };
        kept.wait_for("SIGUSR1 writes them now.");
        kept
    }

    /// Reads lines of the tool up to one that contains this.
    fn wait_for(&mut self, what: &str) {
        let from = self.lines.len();
        while !self.lines[from..].contains(what) {
            let read = self.said.read_line(&mut self.lines).unwrap();
            assert!(read > 0, "it ended before '{what}': {}", self.lines);
        }
    }

    /// Lets the shell do something.
    fn run(&mut self, script: &str) {
        let to = self.shell.stdin.as_mut().unwrap();
        writeln!(to, "{script}").unwrap();
        to.flush().unwrap();
    }

    fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.tool.id().cast_signed()), signal).unwrap();
    }

    /// Waits for the end of the tool. Returns how it ended, and what it said.
    fn end(mut self) -> (ExitStatus, String) {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.tool.try_wait().unwrap() {
                break status;
            }
            assert!(begin.elapsed() < LIMIT, "it has not ended: {}", self.lines);
            std::thread::sleep(Duration::from_millis(7));
        };
        self.said.read_to_string(&mut self.lines).unwrap();
        (status, std::mem::take(&mut self.lines))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        // The shell with its commands: one of them may hang, with the output of this test open.
        let _ = killpg(Pid::from_raw(self.shell.id().cast_signed()), Signal::SIGKILL);
        let _ = self.tool.kill();
        for child in [&mut self.shell, &mut self.tool] {
            let _ = child.wait();
        }
    }
}

fn read(path: &Path) -> (Recording, Records) {
    let recording = Recording::open(path).unwrap();
    let mut all = Records::default();
    recording.batches(None, None).for_each(|records| all.append(records));
    assert_eq!(recording.damage(), []);
    assert!(!recording.is_cut());
    (recording, all)
}

/// The file of a call ends with this, and its thread has this name.
fn is_of(records: &Records, call: &Call, comm: &str, path: &str) -> bool {
    let file = records.files.iter().find(|file| file.number == call.files[0]);
    let file = file
        .and_then(|file| file.path.as_ref())
        .is_some_and(|known| known.text.ends_with(path));
    let mut threads = records.threads.iter().filter(|thread| thread.tid == call.tid);
    file && threads.any(|thread| thread.comm == comm)
}

fn report(folder: &Path, arguments: &[&str]) -> (String, String) {
    let done = Command::new(TOOL)
        .arg("report")
        .args(arguments)
        .current_dir(folder)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(done.status.success(), "{}", text(&done.stderr));
    (text(&done.stdout), text(&done.stderr))
}

#[test]
fn a_slow_call_is_in_the_recording_with_what_preceded_it() {
    let folder = Folder::new("ring-slow");
    mkfifo(&folder.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut kept = Kept::start(
        &folder,
        "60s --all-files --until-slower 500ms,read --after 300ms -o x.iosb",
    );
    // The read of the FIFO waits for its writer, which opens it at once.
    kept.run("dd if=/dev/zero of=before bs=4096 count=64 conv=fsync; { sleep 0.8; echo; } >fifo & dd if=fifo of=after");
    let (status, said) = kept.end();
    assert!(status.success(), "{said}");
    assert!(
        said.contains("  read of dd ") && said.contains("/fifo took ") && said.contains(". 0.3 s more..."),
        "{said}"
    );
    assert!(said.contains(" in x.iosb (") && said.contains("nothing lost"), "{said}");
    let (recording, records) = read(&folder.join("x.iosb"));
    let end = recording.end().unwrap();
    assert!(end.trigger.starts_with("read of dd "), "{}", end.trigger);
    assert_eq!(records.marks.len(), 1);
    assert_eq!(records.marks[0].text, end.trigger);
    let slow = records
        .calls
        .iter()
        .filter(|call| call.duration_ns() >= Some(500 * MS) && call.op == Op::Read);
    let slow: Vec<&Call> = slow.filter(|call| is_of(&records, call, "dd", "/fifo")).collect();
    assert_eq!(slow.len(), 1);
    assert_eq!(Some(records.marks[0].at_ns), slow[0].end_ns);
    let before = |call: &&Call| call.end_ns < Some(slow[0].begin_ns);
    let writes = records.calls.iter().filter(before).filter(|call| call.op == Op::Write);
    assert_eq!(writes.filter(|call| is_of(&records, call, "dd", "/before")).count(), 64);
    let syncs = records.calls.iter().filter(before).filter(|call| call.op == Op::Fsync);
    assert_eq!(syncs.filter(|call| is_of(&records, call, "dd", "/before")).count(), 1);
    // It went on after the trigger.
    assert!(end.to_ns >= slow[0].end_ns.unwrap() + 300 * MS);
    let (text, said) = report(&folder, &["x.iosb", "-S"]);
    assert!(
        text.contains("fsync") && said.contains("triggered by: read of dd "),
        "{text}\n{said}"
    );
    // The counters are those of the same calls.
    let (json, _) = report(&folder, &["x.iosb", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let ops = json["layers"][0]["ops"].as_array().unwrap();
    let fsync = ops.iter().find(|op| op["op"] == "fsync").unwrap();
    assert_eq!(fsync["count"], 1);
}

/// A disk whose writes are throttled to a megabyte a second for the processes of a control group.
struct Slow {
    group: PathBuf,
    disk: String,
    mounted: PathBuf,
}

impl Slow {
    /// `None`: there is no controller for it here.
    fn new(folder: &Path) -> Option<Self> {
        let groups = [
            ("/sys/fs/cgroup/blkio", "blkio.throttle.write_bps_device"),
            ("/sys/fs/cgroup", "io.max"),
        ];
        let (group, file) = groups.into_iter().find_map(|(root, file)| {
            let group = Path::new(root).join(format!("iosb-slow-{}", std::process::id()));
            fs::create_dir(&group).ok()?;
            if group.join(file).exists() {
                return Some((group, file));
            }
            fs::remove_dir(&group).ok()?;
            None
        })?;
        let image = folder.join("image");
        fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
        let succeed = |words: &[&str]| {
            let done = Command::new(words[0])
                .args(&words[1..])
                .current_dir(folder)
                .output()
                .unwrap();
            assert!(
                done.status.success(),
                "{words:?}: {}",
                String::from_utf8_lossy(&done.stderr)
            );
            String::from_utf8(done.stdout).unwrap().trim().to_owned()
        };
        succeed(&["mkfs.ext4", "-q", "image"]);
        let disk = succeed(&["losetup", "-f", "--show", "image"]);
        let mounted = folder.join("slow");
        fs::create_dir(&mounted).unwrap();
        succeed(&["mount", &disk, "slow"]);
        let number = fs::metadata(&disk).unwrap().rdev();
        let (major, minor) = (nix::sys::stat::major(number), nix::sys::stat::minor(number));
        let limit = if file == "io.max" { "wbps=1000000" } else { "1000000" };
        fs::write(group.join(file), format!("{major}:{minor} {limit}")).unwrap();
        Some(Self { group, disk, mounted })
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        let _ = umount2(&self.mounted, MntFlags::MNT_DETACH);
        let _ = Command::new("losetup").args(["-d", &self.disk]).status();
        // Its processes have ended, or will: the group remains until then.
        let _ = fs::remove_dir(&self.group);
    }
}

#[test]
fn a_slow_fsync_is_in_the_recording_with_the_writes_before_it() {
    let folder = Folder::new("ring-fsync");
    let Some(slow) = Slow::new(&folder) else {
        left_out(None, "no control group can throttle a disk here");
        return;
    };
    let mut kept = Kept::start(&folder, "60s --until-slower 500ms,fsync --after 200ms -o x.iosb");
    let group = slow.group.join("cgroup.procs");
    kept.run("echo before >before");
    kept.run(&format!(
        "sh -c 'echo $$ >{}; exec dd if=/dev/zero of=slow/file bs=100k count=8 conv=fsync'",
        group.display()
    ));
    let (status, said) = kept.end();
    assert!(
        status.success() && said.contains("  fsync of dd ") && said.contains("/slow/file took "),
        "{said}"
    );
    let (recording, records) = read(&folder.join("x.iosb"));
    let fsync: Vec<&Call> = records.calls.iter().filter(|call| call.op == Op::Fsync).collect();
    assert!(
        fsync.len() == 1 && fsync[0].duration_ns() >= Some(500 * MS),
        "{fsync:?}"
    );
    assert!(is_of(&records, fsync[0], "dd", "/slow/file"));
    let begin_ns = fsync[0].begin_ns;
    let writes = records
        .calls
        .iter()
        .filter(|call| call.op == Op::Write && call.end_ns < Some(begin_ns));
    assert_eq!(
        writes.filter(|call| is_of(&records, call, "dd", "/slow/file")).count(),
        8
    );
    let shell = records
        .calls
        .iter()
        .filter(|call| call.op == Op::Write && call.end_ns < Some(begin_ns));
    assert_eq!(shell.filter(|call| is_of(&records, call, "sh", "/before")).count(), 1);
    assert!(recording.end().unwrap().trigger.starts_with("fsync of dd "));
}

#[test]
fn a_call_that_does_not_return_is_in_the_recording() {
    let folder = Folder::new("ring-stuck");
    mkfifo(&folder.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut kept = Kept::start(&folder, "60s --all-files --until-stuck 700ms --after 0 -o x.iosb");
    // The shell itself waits for commands in a read all the time.
    kept.run("exec 3<>fifo; cat <&3 >/dev/null & dd if=/etc/passwd of=copy; wait");
    let (status, said) = kept.end();
    assert!(status.success(), "{said}");
    let line = said
        .lines()
        .find(|line| line.contains("has been under way for"))
        .unwrap();
    assert!(
        line.contains("  read of cat ") && line.contains("/fifo has been under way for "),
        "{line}"
    );
    let (_, records) = read(&folder.join("x.iosb"));
    let open: Vec<&Call> = records.calls.iter().filter(|call| call.end_ns.is_none()).collect();
    let hung: Vec<&&Call> = open
        .iter()
        .filter(|call| is_of(&records, call, "cat", "/fifo"))
        .collect();
    assert!(hung.len() == 1 && hung[0].op == Op::Read, "{open:?}");
    let after_ns = records.marks[0].at_ns - hung[0].begin_ns;
    // The threads are looked at every 100 ms; the machine may be busy.
    assert!(
        (700 * MS..5_000 * MS).contains(&after_ns),
        "noticed after {} ms",
        after_ns / MS
    );
    let copied = records.calls.iter().filter(|call| call.op == Op::Write);
    assert!(copied.filter(|call| is_of(&records, call, "dd", "/copy")).count() >= 1);
}

#[test]
fn nothing_is_written_without_a_trigger() {
    let folder = Folder::new("ring-never");
    let mut kept = Kept::start(
        &folder,
        "5s --until-slower 50s,fsync --until-error EIO --until-stuck 50s -o x.iosb",
    );
    kept.run("dd if=/dev/zero of=file bs=4096 count=1 conv=fsync; exit");
    let (status, said) = kept.end();
    assert_eq!(status.code(), Some(4), "{said}");
    assert!(
        said.contains("nothing was written: no call of fsync took 50.0 s: the longest took "),
        "{said}"
    );
    assert!(
        said.contains("nothing was written: no call and no request failed with EIO"),
        "{said}"
    );
    assert!(!folder.join("x.iosb").exists());
    // The status of a command wins.
    let done = Command::new(TOOL)
        .args("record -q -T syscall --ring 5s --until-error EIO -- sh -c".split(' '))
        .arg("exit 7")
        .current_dir(&folder)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(
        done.status.code() == Some(7) && said.contains("nothing was written"),
        "{said}"
    );
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "only the file of dd");
    // A recording that could not be written later is refused at once.
    let done = Command::new(TOOL)
        .args(["record", "-T", "syscall", "--ring", "5s", "-o", "none/x.iosb"])
        .current_dir(&folder)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(
        done.status.code() == Some(1) && said.contains("cannot write to 'none'"),
        "{said}"
    );
}

#[test]
fn a_signal_writes_and_several_recordings_follow_each_other() {
    let folder = Folder::new("ring-repeat");
    let mut kept = Kept::start(
        &folder,
        "60s --until-error ENOENT,openat --after 100ms --repeat 3 -o x.iosb",
    );
    kept.run("echo 1 >one");
    kept.run("cat <missing; echo");
    kept.wait_for(" in x.iosb (");
    kept.run("echo 2 >two");
    kept.run("until [ -e go ]; do sleep 0.01; done; echo 3 >three");
    fs::write(folder.join("go"), "").unwrap();
    let begin = Instant::now();
    while !folder.join("three").exists() {
        assert!(begin.elapsed() < LIMIT);
        std::thread::sleep(Duration::from_millis(7));
    }
    kept.signal(Signal::SIGUSR1);
    kept.wait_for(" in x-2.iosb (");
    kept.signal(Signal::SIGUSR1);
    let (status, said) = kept.end();
    assert!(status.success() && said.contains(" in x-3.iosb ("), "{said}");
    let [first, second, third] = ["x.iosb", "x-2.iosb", "x-3.iosb"].map(|name| read(&folder.join(name)));
    let opened = |records: &Records, name: &str| {
        let paths = records
            .calls
            .iter()
            .filter_map(|call| call.paths.as_ref()?.first.as_ref());
        paths.filter(|path| path.text == name).count()
    };
    for (name, expected) in [("one", [1, 0, 0]), ("missing", [1, 0, 0]), ("three", [0, 1, 0])] {
        let found = [&first, &second, &third].map(|(_, records)| opened(records, name));
        assert_eq!(found, expected, "{name}");
    }
    assert_eq!(second.0.end().unwrap().trigger, "SIGUSR1");
    // No moment is missing, and none is in two.
    assert!(first.0.span().1 <= second.0.span().0 + 100 * MS);
    assert!(second.0.span().0 + 100 * MS >= first.0.span().1);
    let ends = |records: &Records| -> Vec<(u32, u64)> {
        records
            .calls
            .iter()
            .filter(|call| call.end_ns.is_some())
            .map(|call| (call.tid, call.begin_ns))
            .collect()
    };
    let both = ends(&first.1)
        .into_iter()
        .filter(|key| ends(&second.1).contains(key))
        .count();
    assert_eq!(both, 0);
}

#[test]
fn a_signal_to_write_counts_whenever_it_comes() {
    let folder = Folder::new("ring-signals");
    let arguments = "60s --until-error EIO -o x.iosb";
    // While it prepares: by default that would end it.
    let mut tool = Command::new(TOOL)
        .args(["record", "-T", "syscall", "--ring"])
        .args(arguments.split(' '))
        .current_dir(&folder)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let pid = Pid::from_raw(tool.id().cast_signed());
    let is_ignored = || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).unwrap();
        u64::from_str_radix(ignored, 16).unwrap() & 1 << (Signal::SIGUSR1 as u64 - 1) != 0
    };
    let begin = Instant::now();
    while !is_ignored() {
        assert!(begin.elapsed() < LIMIT && tool.try_wait().unwrap().is_none());
    }
    kill(pid, Signal::SIGUSR1).unwrap();
    kill(pid, Signal::SIGTERM).unwrap();
    assert_ne!(tool.wait().unwrap().signal(), Some(Signal::SIGUSR1 as i32));
    // Together with one that ends the run.
    let kept = Kept::start(&folder, arguments);
    for signal in [Signal::SIGSTOP, Signal::SIGUSR1, Signal::SIGTERM, Signal::SIGCONT] {
        kept.signal(signal);
    }
    let (status, said) = kept.end();
    assert!(status.success() && said.contains(" in x.iosb ("), "{said}");
    assert_eq!(read(&folder.join("x.iosb")).0.end().unwrap().trigger, "SIGUSR1");
}
