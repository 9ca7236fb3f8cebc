//! The live view of recordings on a pseudoterminal, whose screen a terminal emulator shows.

mod folder;
#[path = "live/picture.rs"]
mod picture;
#[path = "live/terminal.rs"]
#[allow(dead_code, reason = "shared with the tests on the running kernel")]
mod terminal;

#[allow(dead_code, reason = "shared with the tests of reports made by hand")]
mod scenes;
#[path = "../src/export/synthetic.rs"]
#[allow(dead_code, reason = "shared with the unit tests")]
mod synthetic;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use folder::Folder;
use iostackbreakdown::model::abi::{GROUP_FIRST, ROW_DEVICE, ROW_FS, ROW_JOURNAL, ROW_VFS, ROWS};
use iostackbreakdown::model::ids::{By, Op};
use iostackbreakdown::model::record::Records;
use iostackbreakdown::model::recording::Names;
use iostackbreakdown::model::report::group::Who;
use iostackbreakdown::model::snapshot::{
    FamilyCounters, GroupsCounters, Snapshot, StackCounters, StackIncreases, StackTotals,
};
use iostackbreakdown::recording::{Limits, Writer};
use nix::sys::signal::Signal;
use scenes::kept::Kept;
use serde_json::Value;
use terminal::{Session, TOOL};

const SECOND: u64 = 1_000_000_000;
/// Seconds of the recording, and how many times the calls of the scene each has.
const TIMES: [u64; 8] = [1, 2, 1, 7, 3, 1, 4, 2];
const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// A directory with a recording.
struct Recorded(Folder);

impl Recorded {
    fn new(name: &str) -> Self {
        let recorded = Self(Folder::new(&format!("live-{name}")));
        record(&recorded.path());
        recorded
    }

    fn path(&self) -> PathBuf {
        self.0.join("shop.iosb")
    }

    /// Shows it.
    fn show(&self, size: (u16, u16), options: &[&str], variables: &[(&str, &str)]) -> Session {
        let path = self.path().display().to_string();
        let words = [&["report", &path, "--live"], options].concat();
        Session::start(&self.0, size, &words, variables)
    }
}

/// A scene of the whole stack, second by second, with single calls in it.
fn record(path: &Path) {
    let scenes = scenes::all();
    let scene = scenes.iter().find(|scene| scene.name == "stack").unwrap();
    let kept = Kept::of(&scene.parts[0]);
    let mut meta = synthetic::meta();
    let rows = std::mem::take(&mut meta.run);
    meta.run = kept.run.clone();
    meta.run.began_ns = rows.began_ns;
    meta.run.by = Some(By::Process);
    meta.run.top = 10;
    let mut writer = Writer::create(path, meta, Names::Full, Limits::default()).unwrap();
    let of_second = |families: &[Arc<FamilyCounters>], times: u64| -> Vec<FamilyCounters> {
        let none = FamilyCounters::default();
        let add = |sum: FamilyCounters, family: &FamilyCounters| sum.combined(family, u64::wrapping_add);
        let many = |family: &Arc<FamilyCounters>| (0..times).fold(none.clone(), |sum, _| add(sum, family));
        families.iter().map(many).collect()
    };
    let add = |sum: &[Arc<FamilyCounters>], more: &[FamilyCounters]| -> Vec<Arc<FamilyCounters>> {
        let both = |(sum, more): (&Arc<FamilyCounters>, &FamilyCounters)| {
            Arc::new(FamilyCounters {
                extremes: more.extremes,
                ..sum.combined(more, u64::wrapping_add)
            })
        };
        sum.iter().zip(more).map(both).collect()
    };
    let names = [(GROUP_FIRST, 4711, "postgres"), (GROUP_FIRST + 1, 812, "tar")];
    let of_group = |families: &[Arc<FamilyCounters>]| {
        let stack = StackCounters {
            families: families.to_vec(),
            origins: Arc::default(),
        };
        StackTotals::from([(GROUP_FIRST, stack)])
    };
    let groups = |before: &[Arc<FamilyCounters>], after: &[Arc<FamilyCounters>]| GroupsCounters {
        stacks: StackIncreases::since(&of_group(before), &of_group(after)),
        who: Arc::new(BTreeMap::from(names.map(|(group, pid, comm)| {
            let comm = comm.to_owned();
            (group, Who::Process { pid, comm })
        }))),
        ..GroupsCounters::default()
    };
    let all = &kept.after.stack.as_ref().unwrap().families;
    let mut sums = kept.before.stack.as_ref().unwrap().families.clone();
    let at = |second: u64| synthetic::BEGAN_NS + second * SECOND;
    let mut snapshot = Snapshot {
        at_ns: at(0),
        groups: Some(groups(&sums, &sums)),
        ..kept.before.clone()
    };
    writer.second(&snapshot).unwrap();
    let mut batches = synthetic::batches();
    // The calls under way at the end, and losses, are not of these seconds.
    let definitions = batches.remove(0);
    writer.records(definitions, at(0)).unwrap();
    for (second, times) in (0_u64..).zip(TIMES) {
        let before = sums;
        sums = add(&before, &of_second(all, times));
        writer.records(calls(at(second), times), at(second + 1)).unwrap();
        snapshot = Snapshot {
            at_ns: at(second + 1),
            wall: kept
                .before
                .wall
                .checked_add(jiff::Span::new().seconds(second as i64 + 1))
                .unwrap(),
            stack: Some(StackCounters {
                families: sums.clone(),
                origins: snapshot.stack.as_ref().unwrap().origins.clone(),
            }),
            groups: Some(groups(&before, &sums)),
            ..snapshot
        };
        writer.second(&snapshot).unwrap();
    }
    writer.end("test", at(TIMES.len() as u64)).unwrap();
}

/// Reads of a table and slow writes to a file with a hostile name.
fn calls(at_ns: u64, times: u64) -> Records {
    let mut records = Records::default();
    for number in 0..times * 10 {
        let begin = at_ns + 1_000_000 + number * 2_000_000;
        let mut read = synthetic::call(synthetic::POSTGRES, Op::Pread64, begin, Some(begin + 812_000));
        (read.files, read.fd, read.value) = ([1, 0], Some(7), 8192);
        read.rows = [0; ROWS as usize];
        read.rows[ROW_VFS as usize] = 12_000;
        read.rows[ROW_DEVICE as usize] = 800_000;
        records.calls.push(read);
    }
    let begin = at_ns + 500_000_000;
    let mut sync = synthetic::call(synthetic::TAR, Op::Fsync, begin, Some(begin + 31_000_000));
    (sync.files, sync.fd) = ([3, 0], Some(3));
    sync.rows[ROW_FS as usize] = 1_000_000;
    sync.rows[ROW_JOURNAL as usize] = 30_000_000;
    records.calls.push(sync);
    records
}

/// Count and time in nanoseconds of each family that was called, as `report` has them as JSON.
fn reported(path: &Path, second: usize) -> BTreeMap<String, (u64, u64)> {
    let (from, to) = (format!("+{second}s"), format!("+{}s", second + 1));
    let mut tool = Command::new(TOOL);
    let output = tool
        .arg("report")
        .arg(path)
        .args(["--from", &from, "--to", &to, "--json"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["duration_ns"], SECOND);
    let families = report["stack"]["families"].as_array().unwrap().iter();
    let families = families.filter(|family| family["count"].as_u64() > Some(0));
    families
        .map(|family| {
            let number = |name: &str| family[name].as_u64().unwrap();
            (
                family["family"].as_str().unwrap().to_owned(),
                (number("count"), number("total_ns")),
            )
        })
        .collect()
}

/// Calls per second and threads of each family on a screen.
fn on_screen(session: &Session) -> BTreeMap<String, (String, String)> {
    let lines = session.lines();
    let table = lines.iter().skip(2).take_while(|line| !line.starts_with(" s syscall"));
    table
        .map(|line| {
            let words: Vec<&str> = line[1..].split_whitespace().collect();
            (words[0].to_owned(), (words[1].to_owned(), words[2].to_owned()))
        })
        .collect()
}

#[test]
fn each_second_has_the_numbers_of_its_report() {
    let recorded = Recorded::new("numbers");
    let mut session = recorded.show((100, 30), &[], &[]);
    for (second, times) in TIMES.into_iter().enumerate() {
        session.wait_for(&format!("PAUSED {}/{}", second + 1, TIMES.len()));
        let expected = reported(&recorded.path(), second);
        assert_eq!(expected["read"].0, 12_384 * times);
        let shown = on_screen(&session);
        let expected: BTreeMap<String, (String, String)> = expected
            .into_iter()
            .map(|(family, (count, ns))| {
                let threads = (ns as f64 / SECOND as f64 * 100.0).round() / 100.0;
                (
                    family,
                    (iostackbreakdown::number::thousands(count), format!("{threads:.2}")),
                )
            })
            .collect();
        assert_eq!(shown, expected, "second {second}: {:#?}", session.lines());
        session.press("\x1b[C");
    }
    session.end("q");
}

/// Screens of the recording, by their names, sizes, variables and keys.
#[test]
fn screens_are_as_recorded() {
    let recorded = Recorded::new("screens");
    let utf8 = [("LANG", "C.UTF-8"), ("NO_COLOR", "1")];
    let ascii = [("LANG", "C"), ("NO_COLOR", "1")];
    let mut wrong = Vec::new();
    for (name, size, variables) in [
        ("recording_80x24", (80, 24), utf8),
        ("recording_100x30", (100, 30), utf8),
        ("recording_200x60", (200, 60), utf8),
        ("recording_ascii_80x24", (80, 24), ascii),
    ] {
        let mut session = recorded.show(size, &["--limit", "fsync=20ms"], &variables);
        session.wait_for("PAUSED 1/8");
        session.press("\x1b[C\x1b[C\x1b[C");
        session.wait_for("PAUSED 4/8");
        let text: String = session
            .lines()
            .iter()
            .map(|line| format!("{}\n", line.trim_end()))
            .collect();
        assert!(!session.has_colors(), "{name}");
        let path = Path::new(ROOT).join("tests/screens").join(format!("{name}.txt"));
        if fs::read_to_string(&path).unwrap_or_default() != text {
            if std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1") {
                fs::write(&path, &text).unwrap();
            }
            wrong.push(format!("{}:\n{text}", path.display()));
        }
        session.end("q");
    }
    assert!(
        wrong.is_empty(),
        "UPDATE_GOLDEN=1 rewrites the files\n{}",
        wrong.join("\n")
    );
}

#[test]
fn every_key_does_what_the_help_says() {
    let recorded = Recorded::new("keys");
    let mut session = recorded.show((120, 40), &[], &[("LANG", "C.UTF-8")]);
    session.wait_for("PAUSED 1/8");
    assert!(session.has_colors());
    let steps = [
        ("?", "IOStackBreakdown: keys"),
        ("?", "PAUSED 1/8"),
        ("\x1b[1;2C", "PAUSED 8/8"),
        ("h", "PAUSED 7/8"),
        ("l", "PAUSED 8/8"),
        ("\x1b[H", "PAUSED 1/8"),
        ("\x1b[F", "PAUSED 8/8"),
        ("\x1b[1;2D", "PAUSED 1/8"),
        ("\x1b[D", "PAUSED 1/8"),
        ("j", "latency of write"),
        ("k", "latency of read"),
        ("+", "last 64 s"),
        ("-", "last 32 s"),
        ("3", "file [process] disk cgroup unit"),
        ("g", "file process [disk] cgroup unit"),
        ("g", "counted by process; cgroups need --by cgroup"),
        ("gg", "[file] process disk cgroup unit"),
        ("g", "postgres 4711"),
        ("\r", "open files of postgres 4711"),
        ("s", "7  /srv/db/base/16602"),
        ("\x1b", "[process]"),
        ("/zzz\r", "none"),
        ("\x7f", "postgres 4711"),
        ("4", "slow calls: 10.0 ms or longer"),
        ("5", "disks"),
        ("6", "--limit read=10ms"),
        ("1", "latency of"),
        ("\t", "latency of"),
        ("\x1b[Z", "slow calls"),
        ("w", "this is a recording: it is in shop.iosb"),
        // Twice in a second.
        ("HH", "written to io-"),
        ("x", "no such key: x"),
        (" ", "PLAY "),
        (" ", "PAUSED "),
        ("\x0c", "PAUSED "),
    ];
    for (keys, expected) in steps {
        session.press(keys);
        session.wait_for(expected);
    }
    let pages: Vec<PathBuf> = fs::read_dir(&recorded.0)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "html"))
        .collect();
    assert_eq!(pages.len(), 2, "{pages:?}");
    for page in pages {
        assert!(fs::read_to_string(page).unwrap().contains("</html>"));
    }
    session.end("q");
    // The last screen has no messages; what was written is named below it.
    session.wait_for("written to io-");
}

#[test]
fn slow_calls_and_limits_are_of_the_given_times() {
    let recorded = Recorded::new("limits");
    let options = ["--slower", "700us", "--limit", "read=800us,fsync=1s"];
    let mut session = recorded.show((120, 40), &options, &[]);
    session.wait_for("PAUSED 1/8");
    session.press("4");
    session.wait_for("slow calls: 700 us or longer");
    session.press("6");
    session.wait_for(" 800us ");
    session.wait_for(" 1.0s ");
    session.end("q");
}

/// At its recorded speed, a recording of eight seconds takes as long.
#[test]
fn a_recording_plays_at_its_recorded_speed() {
    let recorded = Recorded::new("plays");
    let mut session = recorded.show((80, 24), &[], &[]);
    session.wait_for("PAUSED 1/8");
    session.press("\x1b[1;2C\x1b[D\x1b[D");
    session.wait_for("PAUSED 6/8");
    let began = std::time::Instant::now();
    session.press(" ");
    session.wait_for("PAUSED 8/8");
    let took = began.elapsed().as_secs_f64();
    assert!((1.9..10.0).contains(&took), "{took}");
    session.end("q");
}

#[test]
fn a_screen_follows_the_size_of_its_terminal() {
    let recorded = Recorded::new("sizes");
    let mut session = recorded.show((80, 24), &[], &[]);
    session.wait_for("PAUSED 1/8");
    for size in [(200, 60), (60, 14), (100, 30)] {
        session.resize(size);
        session.wait_until("the new size", |session| {
            let lines = session.lines();
            lines[0].trim_end().chars().count() + 1 >= usize::from(size.0)
                && lines[usize::from(size.1) - 1].contains("q quit")
        });
    }
    session.resize((40, 10));
    session.wait_for("60 x 14 is needed; q quits");
    session.resize((80, 24));
    session.wait_for("PAUSED 1/8");
    session.end("q");
}

#[test]
fn the_terminal_is_as_before_however_it_ends() {
    let recorded = Recorded::new("ends");
    for how in ["q", "\x03"] {
        let mut session = recorded.show((80, 24), &[], &[]);
        session.wait_for("PAUSED 1/8");
        assert!(session.is_alternate() && session.is_raw());
        session.end(how);
        // The last screen is printed.
        session.wait_for("PAUSED 1/8");
    }
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut session = recorded.show((80, 24), &[], &[]);
        session.wait_for("PAUSED 1/8");
        session.signal(signal);
        session.assert_ended();
    }
    // These end it at once.
    let others = [
        Signal::SIGQUIT,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
        Signal::SIGALRM,
        Signal::SIGXCPU,
    ];
    for signal in others {
        let mut session = recorded.show((80, 24), &[], &[]);
        session.wait_for("PAUSED 1/8");
        session.assert_ended_by(signal);
    }
}

#[test]
fn a_stopped_view_gives_the_terminal_back_and_continues() {
    let recorded = Recorded::new("stops");
    let mut session = recorded.show((80, 24), &[], &[]);
    session.wait_for("PAUSED 1/8");
    for keys in [true, false] {
        if keys {
            session.press("\x1a");
        } else {
            session.signal(Signal::SIGTSTP);
        }
        session.wait_until("it has stopped", |session| session.is_stopped());
        session.wait_until("the terminal is as before", |session| {
            !session.is_raw() && !session.is_alternate()
        });
        session.signal(Signal::SIGCONT);
        session.wait_until("it is back", |session| session.is_raw() && session.is_alternate());
        session.wait_for("PAUSED 1/8");
    }
    // SIGSTOP cannot be caught; after it, everything is drawn again.
    session.signal(Signal::SIGSTOP);
    session.wait_until("it has stopped", |session| session.is_stopped());
    session.forget_screen();
    session.signal(Signal::SIGCONT);
    session.wait_for("PAUSED 1/8");
    session.end("q");
}

#[test]
fn in_the_background_it_waits_for_its_terminal() {
    let recorded = Recorded::new("background");
    let path = recorded.path().display().to_string();
    terminal::assert_waits_for_the_foreground(&recorded.0, &["report", &path, "--live"], "PAUSED 1/8");
}

/// What the terminal does not take at once, a thread writes. Keys are handled meanwhile.
#[test]
fn a_slow_terminal_gets_all_of_a_screen() {
    let recorded = Recorded::new("slow");
    let mut session = recorded.show((200, 60), &[], &[]);
    session.wait_for("PAUSED 1/8");
    let threads = session.threads();
    session.hold(true);
    session.wait_until("its terminal is full", |session| {
        session.press("\x0c");
        session.threads() > threads
    });
    session.press("\x1b[C");
    session.hold(false);
    session.wait_for("PAUSED 2/8");
    // As on a terminal that takes everything.
    let mut other = recorded.show((200, 60), &[], &[]);
    other.wait_for("PAUSED 1/8");
    other.press("\x1b[C");
    let shown = |session: &Session| {
        session
            .lines()
            .iter()
            .map(|line| line.trim_end().to_owned())
            .collect::<Vec<_>>()
    };
    session.wait_until("the same", |session| {
        let lines = shown(session);
        lines[0].contains("PAUSED 2/8") && lines == shown(&other)
    });
    session.end("q");
    other.end("q");
}

#[test]
fn it_ends_with_its_terminal() {
    let recorded = Recorded::new("closed");
    let mut session = recorded.show((80, 24), &[], &[]);
    session.wait_for("PAUSED 1/8");
    session.close_terminal();
}

#[test]
fn without_a_terminal_it_says_what_to_do() {
    let recorded = Recorded::new("pipe");
    let mut tool = Command::new(TOOL);
    let output = tool.arg("report").arg(recorded.path()).arg("--live").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        String::from_utf8_lossy(&output.stderr),
        "error: --live needs a terminal; for output to a file or a pipe, give an INTERVAL instead\n"
    );
    let words = ["report", &recorded.path().display().to_string(), "--live"].map(str::to_owned);
    let words = words.each_ref().map(String::as_str);
    let mut dumb = Session::start(&recorded.0, (80, 24), &words, &[("TERM", "dumb")]);
    dumb.wait_for("TERM is dumb");
}

/// Draws docs/live.svg: of the recording in `LIVE_RECORDING`, after the keys in `LIVE_KEYS`.
#[test]
#[ignore = "makes the picture of the documentation from a recording of a real run"]
fn the_picture_of_the_documentation() {
    let recording = std::env::var("LIVE_RECORDING").unwrap();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let words = ["report", &recording, "--live"];
    let mut session = Session::start(folder, (110, 32), &words, &[]);
    session.wait_for("PAUSED 1/");
    session.press(&std::env::var("LIVE_KEYS").unwrap_or_default());
    session.wait_until("drawn", |session| !session.lines()[0].contains("PAUSED 1/"));
    let svg = session.draw(|screen| picture::svg(screen, "The live view of a recording"));
    fs::write(Path::new(ROOT).join("docs/live.svg"), svg).unwrap();
    session.end("q");
}

#[test]
fn a_screen_can_be_drawn() {
    let recorded = Recorded::new("drawn");
    let mut session = recorded.show((100, 30), &[], &[]);
    session.wait_for("PAUSED 1/8");
    let svg = session.draw(|screen| picture::svg(screen, "A title"));
    let parsed = roxmltree::Document::parse(&svg).unwrap();
    let texts: String = parsed.descendants().filter_map(|node| node.text()).collect();
    for part in ["IOStackBreakdown", "fsync", "JJJ", "latency", "PAUSED"] {
        assert!(texts.contains(part), "{part}: {texts}");
    }
    session.end("q");
}

/// What the first released version wrote has no whole stack, and is shown as far as it goes.
#[test]
fn a_recording_of_the_first_version_is_shown() {
    let path = Path::new(ROOT).join("tests/recordings/version-1.iosb");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let words = ["report", path.to_str().unwrap(), "--live"];
    let mut session = Session::start(folder, (100, 30), &words, &[]);
    session.wait_for("recorded without the whole stack");
    session.wait_for("PAUSED 1/");
    session.press("4");
    session.wait_for("slow calls");
    session.end("q");
}
