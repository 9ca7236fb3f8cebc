//! The live view of the running kernel, whatever it allows. Run it as root.

mod folder;
#[path = "live/terminal.rs"]
#[allow(dead_code, reason = "shared with the tests on recordings")]
mod terminal;

use std::fs;
use std::io::{Read, Write};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use folder::Folder;
use iostackbreakdown::recording::Recording;
use terminal::{Session, TOOL};

/// Writes and reads a file, until it is dropped.
struct Busy {
    is_over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Busy {
    fn start(folder: &Folder) -> Self {
        let path = folder.join("busy");
        let is_over = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&is_over);
        let thread = thread::spawn(move || {
            while !until.load(Ordering::SeqCst) {
                let mut file = fs::File::create(&path).unwrap();
                file.write_all(&[7; 64 << 10]).unwrap();
                file.sync_all().unwrap();
                let mut bytes = Vec::new();
                fs::File::open(&path).unwrap().read_to_end(&mut bytes).unwrap();
            }
        });
        Self {
            is_over,
            thread: Some(thread),
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        self.thread.take().unwrap().join().unwrap();
    }
}

fn pid() -> String {
    std::process::id().to_string()
}

#[test]
fn the_running_kernel_is_shown_and_paused() {
    let folder = Folder::new("native-live-shown");
    let _busy = Busy::start(&folder);
    let pid = pid();
    let mut session = Session::start(&folder, (100, 30), &["--live", "-p", &pid, "--slower", "1us"], &[]);
    session.wait_for(" LIVE");
    for family in ["read ", "write ", "fsync ", "open "] {
        session.wait_until(family, |session| {
            session.lines().iter().skip(2).any(|line| line[1..].starts_with(family))
        });
    }
    session.press("3");
    session.wait_for(&format!(" {pid}"));
    session.press("\r");
    session.wait_for("open files need records of single calls: --live -o FILE");
    session.press("\x7f4");
    session.wait_for("fsync");
    session.press("5");
    session.wait_for("requests/s");
    session.press(" ");
    session.wait_for("PAUSED -");
    session.wait_for("PAUSED -2 s");
    session.press("\x1b[D");
    session.wait_for("PAUSED -");
    session.press("w");
    session.wait_for(".iosb: ");
    let written = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let written: Vec<_> = written
        .filter(|path| path.extension().is_some_and(|end| end == "iosb"))
        .collect();
    assert_eq!(written.len(), 1, "{written:?}");
    let report = Command::new(TOOL).arg("report").arg(&written[0]).output().unwrap();
    let text = String::from_utf8(report.stdout).unwrap();
    assert!(report.status.success() && text.contains("fsync "), "{text}");
    let seconds = Recording::open(&written[0]).unwrap().seconds().count();
    assert!(seconds >= 3, "{seconds}");
    session.press(" ");
    session.wait_for(" LIVE");
    session.end("q");
}

/// What the tool does each second beside drawing; names of processes are looked up when they are new.
#[test]
fn a_second_takes_few_system_calls() {
    const SECONDS: usize = 11;
    let folder = Folder::new("native-live-calls");
    let _busy = Busy::start(&folder);
    let mut session = Session::start(&folder, (100, 30), &["--live"], &[]);
    session.wait_for(" LIVE");
    session.wait_for("fsync ");
    let log = folder.join("calls");
    let traced = Command::new("timeout")
        .args(["-s", "INT", &SECONDS.to_string(), "strace", "-f", "-qq"])
        .args(["-e", "trace=bpf,poll,ppoll,pread64,getrusage", "-o"])
        .arg(&log)
        .args(["-p", &session.pid().to_string()])
        .output();
    assert!(traced.unwrap().stderr.is_empty());
    let log = fs::read_to_string(&log).unwrap();
    let count = |name: &str| log.lines().filter(|line| line.contains(name)).count();
    assert!(count(" getrusage(") >= SECONDS - 3, "{log}");
    // Each once a second; those of probes after a loss as well.
    assert!(count("poll(") <= SECONDS * 2, "{log}");
    assert!(count("(") <= SECONDS * 16, "{log}");
    session.end("q");
}

/// A pause stops the screen, and not the recording.
#[test]
fn a_recording_goes_on_while_the_screen_is_paused() {
    let folder = Folder::new("native-live-recorded");
    let _busy = Busy::start(&folder);
    let pid = pid();
    let words = ["--live", "-p", &pid, "-o", "x.iosb"];
    let mut session = Session::start(&folder, (100, 30), &words, &[]);
    session.wait_for(" LIVE  REC");
    session.press(" w");
    session.wait_for("recorded in x.iosb");
    session.wait_for("PAUSED -3 s");
    session.press("3gggg");
    session.wait_for("/busy");
    session.press("g\r");
    session.wait_for("open files of ");
    session.wait_for("/busy");
    session.end("q");
    session.wait_for("report it: IOStackBreakdown report x.iosb");
    let recording = Recording::open(&folder.join("x.iosb")).unwrap();
    let seconds: Vec<_> = recording.seconds().collect();
    assert!(seconds.len() >= 4, "{}", seconds.len());
    let spans = seconds.windows(2).map(|pair| pair[1].at_ns - pair[0].at_ns);
    // The last one is cut by the end. Those that follow a delayed one are shorter.
    let whole: Vec<u64> = spans.take(seconds.len() - 2).collect();
    let mean = whole.iter().sum::<u64>() / whole.len() as u64;
    assert!(
        mean > 500_000_000 && whole.iter().all(|ns| *ns < 3_000_000_000),
        "{whole:?}"
    );
    let calls: usize = recording.batches(None, None).map(|records| records.calls.len()).sum();
    let lost: u64 = recording
        .batches(None, None)
        .flat_map(|records| records.lost)
        .map(|lost| lost.records)
        .sum();
    assert!(calls > 100, "{calls}");
    assert_eq!(lost, 0);
}

#[test]
fn in_the_background_it_waits_for_its_terminal() {
    let folder = Folder::new("native-live-background");
    let words = ["--live", "-p", &pid()];
    terminal::assert_waits_for_the_foreground(&folder, &words, " LIVE");
}

#[test]
fn what_is_wrong_is_said_on_the_usual_screen() {
    let folder = Folder::new("native-live-wrong");
    fs::create_dir(folder.join("there.iosb")).unwrap();
    let mut session = Session::start(&folder, (80, 24), &["--live", "-o", "there.iosb"], &[]);
    session.wait_for("error: 'there.iosb' exists");
    assert!(!session.is_alternate() && !session.is_raw());
}

/// A page or a recording of which the end is missing looks like one of a run that was quiet then.
#[test]
fn no_part_of_what_a_full_disk_has_no_room_for_is_left() {
    let folder = Folder::new("native-live-full");
    let pid = pid();
    let mut shell = Command::new("sh");
    shell.args([
        "-c",
        r#"trap '' XFSZ; ulimit -f 2; exec "$@""#,
        "sh",
        TOOL,
        "--live",
        "-p",
        &pid,
    ]);
    let mut session = Session::of(shell, &folder, (100, 24), &[]);
    session.wait_for(" LIVE");
    for (key, end) in [("H", "html"), ("w", "iosb")] {
        session.press(key);
        session.wait_for(&format!(".{end}': File too large"));
    }
    session.end("q");
    let left = fs::read_dir(&*folder).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.is_empty(), "{left:?}");
}
