//! What a terminal shows at the start and during a run, and what remains of it. Run it as root.

mod folder;

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use folder::Folder;
use nix::pty::{Winsize, openpty};

const TOOL: &str = env!("CARGO_BIN_EXE_IOStackBreakdown");
const LIMIT: Duration = Duration::from_secs(60);
const COLUMNS: u16 = 70;
const WIDTHS: [u16; 3] = [60, 80, 200];

/// A terminal: the side of the screen, and the side of programs.
fn terminal(columns: u16) -> (File, OwnedFd) {
    let size = Winsize {
        ws_row: 24,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    let opened = openpty(&size, None).unwrap();
    (File::from(opened.master), opened.slave)
}

/// Everything that a run writes to its terminal.
fn written(arguments: &[&str], term: &str) -> String {
    written_on(COLUMNS, arguments, term)
}

fn written_on(columns: u16, arguments: &[&str], term: &str) -> String {
    let (mut master, slave) = terminal(columns);
    let mut tool = Command::new(TOOL);
    tool.args(arguments)
        .env("TERM", term)
        .env("NO_COLOR", "1")
        .stdin(Stdio::null());
    tool.stdout(slave.try_clone().unwrap()).stderr(slave);
    let mut child = tool.spawn().unwrap();
    // The command's copy of the terminal would keep it open.
    drop(tool);
    let (sender, text) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // Reading a terminal without programs fails with EIO.
        let _ = master.read_to_end(&mut bytes);
        let _ = sender.send(String::from_utf8(bytes).unwrap());
    });
    let text = text.recv_timeout(LIMIT);
    if text.is_err() {
        let _ = child.kill();
    }
    let status = child.wait().unwrap();
    let text = text.unwrap();
    assert!(status.success(), "{status}: {text}");
    text
}

/// What is marked in a report of the whole stack on this machine, whatever it allows.
const GUILTY: &str = "\x1b[1;35m";

#[test]
fn colours_are_for_terminals_that_want_them() {
    let folder = std::env::temp_dir().join(format!("iosb-colours-{}", std::process::id()));
    let busy = busy(&folder);
    let busy = busy.each_ref().map(String::as_str);
    let words = |options: &[&'static str]| [options, &["--"], &busy[..]].concat();
    let with = |options: &[&'static str], variables: &[(&str, &str)]| {
        let (mut master, slave) = terminal(COLUMNS);
        let mut tool = Command::new(TOOL);
        tool.args(words(options)).env_remove("NO_COLOR").env("TERM", "xterm");
        tool.envs(variables.iter().copied()).stdin(Stdio::null());
        tool.stdout(slave.try_clone().unwrap()).stderr(slave);
        let mut child = tool.spawn().unwrap();
        drop(tool);
        let mut bytes = Vec::new();
        let _ = master.read_to_end(&mut bytes);
        assert!(child.wait().unwrap().success());
        String::from_utf8(bytes).unwrap()
    };
    assert!(with(&[], &[]).contains(GUILTY));
    assert!(with(&["--color=always"], &[("NO_COLOR", "1")]).contains(GUILTY));
    for (options, variables) in [
        (&["--color=never"][..], &[][..]),
        (&[], &[("NO_COLOR", "1")]),
        (&[], &[("TERM", "dumb")]),
        (&["--json", "--color=always"], &[]),
    ] {
        let text = with(options, variables);
        assert!(
            text.len() > 200 && !text.contains(GUILTY),
            "{options:?} {variables:?}: {text:?}"
        );
    }
    for (options, is_colored) in [(&[][..], false), (&["--color=always"], true)] {
        let mut tool = Command::new(TOOL);
        let output = tool
            .args(words(options))
            .env_remove("NO_COLOR")
            .env("TERM", "xterm")
            .output()
            .unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert_eq!(text.contains(GUILTY), is_colored, "{options:?}: {text:?}");
        assert!(text.contains("I/O calls took"), "{text:?}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// The final contents of the screen, line by line.
fn shown(text: &str) -> Vec<String> {
    shown_on(COLUMNS, text)
}

fn shown_on(columns: u16, text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut line, mut column) = (Vec::new(), 0);
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        match c {
            '\r' => column = 0,
            '\n' => lines.push(std::mem::take(&mut line).into_iter().collect()),
            '\x1b' => {
                assert_eq!(rest.by_ref().take(2).collect::<String>(), "[K", "{text:?}");
                line.truncate(column);
            }
            c => {
                if column < line.len() {
                    line[column] = c;
                } else {
                    line.push(c);
                }
                column += 1;
                assert!(column < columns.into() || !is_status(&line), "{text:?}");
            }
        }
    }
    lines.push(line.into_iter().collect());
    lines
}

fn is_status(line: &[char]) -> bool {
    let line: String = line.iter().collect();
    STATUS.iter().any(|text| line.contains(text))
}

/// Parts of lines that are erased again.
const STATUS: [&str; 3] = ["inspecting the kernel", "loading programs", " s left"];
const RUN: [&str; 5] = ["-T", "syscall", "-S", "--duration", "1200ms"];

#[test]
fn progress_and_time_left_are_shown_and_erased() {
    let text = written(&RUN, "xterm");
    let banner = text
        .find("Tracing syscall latency")
        .unwrap_or_else(|| panic!("{text:?}"));
    let (before, after) = text.split_at(banner);
    for stage in &STATUS[..2] {
        assert!(before.contains(stage) && !after.contains(stage), "{stage}: {text:?}");
    }
    for left in ["2 s left", "1 s left"] {
        assert!(after.contains(left), "{left}: {text:?}");
    }
    let lines = shown(&text);
    let left: Vec<&String> = lines
        .iter()
        .filter(|line| STATUS.iter().any(|status| line.contains(status)))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    // Nothing of an erased line remains before what follows.
    assert!(lines[0].starts_with("Tracing syscall latency"), "{lines:?}");
    // A note is wider than this terminal, and is wrapped between words.
    let note = lines
        .iter()
        .position(|line| line.starts_with("excluded: calls on sockets"))
        .unwrap();
    assert!(
        lines[note].ends_with(" (see") && lines[note + 1] == "  --all-files)",
        "{lines:?}"
    );
    assert!(lines.iter().any(|line| line.starts_with("lost ")), "{lines:?}");
}

#[test]
fn nothing_is_erased_if_disabled_or_impossible() {
    for (options, term) in [(&["--quiet"][..], "xterm"), (&[], "dumb")] {
        let text = written(&[&RUN, options].concat(), term);
        assert!(!text.contains('\x1b'), "{text:?}");
        assert!(!STATUS.iter().any(|status| text.contains(status)), "{text:?}");
    }
    let mut tool = Command::new(TOOL);
    let output = tool.args(RUN).env("TERM", "xterm").output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    assert!(!text.contains(&b'\x1b') && !text.contains(&b'\r'));
}

#[test]
fn what_is_missing_from_a_recording_is_readable_at_every_width() {
    let folder = Folder::new("terminal-lost");
    let cut = folder.join("a-recording-that-was-cut.iosb");
    let whole = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/recordings/version-1.iosb");
    std::fs::create_dir_all(cut.join("000001")).unwrap();
    std::fs::copy(whole.join("meta.json"), cut.join("meta.json")).unwrap();
    for table in std::fs::read_dir(whole.join("000001")).unwrap() {
        let table = table.unwrap();
        std::fs::copy(table.path(), cut.join("000001").join(table.file_name())).unwrap();
    }
    std::fs::write(cut.join("000001/calls.arrow"), "damaged").unwrap();
    for columns in WIDTHS {
        let text = written_on(columns, &["report", cut.to_str().unwrap(), "--lost"], "xterm");
        let lines = shown_on(columns, &text);
        let is_wide = |line: &&String| line.chars().count() > columns.into();
        assert_eq!(lines.iter().find(is_wide), None, "{columns}: {text}");
        assert!(lines.iter().any(|line| line.contains("was cut")), "{text}");
    }
}

/// A command with calls of every family, including some on a file whose name is longer than a narrow terminal.
fn busy(folder: &Path) -> [String; 2] {
    let deep = folder.join("a-directory-with-a-rather-long-name/another-one-below-it/and-one-more");
    std::fs::create_dir_all(&deep).unwrap();
    let file = deep.join("segment-000000000001.log");
    let (deep, file) = (deep.display(), file.display());
    let script = format!(
        "n=0; while [ $n -lt 8 ]; do dd if=/dev/zero of={file} bs=16k count=20 conv=fsync 2>/dev/null; dd if={file} of=/dev/null \
         bs=4k 2>/dev/null; ls -l {deep} > /dev/null; n=$((n+1)); done"
    );
    let name = folder.join("busy.sh");
    std::fs::write(&name, script).unwrap();
    ["sh", name.to_str().unwrap()].map(str::to_owned)
}

/// What rows without a name on their line begin with, at least.
const ROOM_OF_NAME: &str = "              ";

/// Every line fits, and only sentences continue on a next one. Rows of tables have columns separated by more than one
/// blank; continuation lines are indented and have no such gaps.
fn assert_readable(what: &str, columns: u16, text: &str) -> Vec<String> {
    let lines = shown_on(columns, text);
    let has_columns = |line: &str| line.trim().contains("  ");
    let mut head = "";
    for (at, line) in lines.iter().enumerate() {
        let complaint = || format!("{what} on {columns}: {line:?}\n{}", lines.join("\n"));
        assert!(line.chars().count() <= columns.into(), "{}", complaint());
        // Lines that stand alone.
        let is_own = ["  calls that reached ", "  from cache ", "  of all processes:"]
            .iter()
            .any(|start| line.starts_with(start));
        // The name of a row that is too long to have its columns beside it.
        let is_long = line.chars().count() >= ROOM_OF_NAME.len();
        let below = lines.get(at + 1);
        let has_its_columns_below =
            is_long && below.is_some_and(|next| next.starts_with(ROOM_OF_NAME) && has_columns(next));
        if !line.starts_with("  ") || has_columns(line) || is_own || has_its_columns_below {
            head = line;
            continue;
        }
        let is_sum = head.starts_with("file = ") && line.ends_with(" %");
        assert!(!has_columns(head) || is_sum, "{}", complaint());
    }
    lines
}

#[test]
fn every_report_is_readable_at_every_width() {
    let folder = std::env::temp_dir().join(format!("iosb-terminal-{}", std::process::id()));
    let busy = busy(&folder);
    let busy = busy.each_ref().map(String::as_str);
    let saved = ["before", "after"].map(|name| folder.join(name).display().to_string());
    for name in &saved {
        let mut tool = Command::new(TOOL);
        let output = tool
            .args(["-q", "--json", "-o", name, "--"])
            .args(busy)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }
    for columns in WIDTHS {
        let run = |options: &[&str]| {
            let text = written_on(columns, &[options, &["--"], &busy[..]].concat(), "xterm");
            assert_readable(&options.join(" "), columns, &text)
        };
        let has = |lines: &[String], part: &str| {
            assert!(
                lines.iter().any(|line| line.contains(part)),
                "{part:?} on {columns}: {lines:#?}"
            );
        };
        let whole = run(&[]);
        has(&whole, "threads were");
        has(&whole, "fsync  ");
        has(&run(&["0.2"]), "calls/s");
        has(&run(&["--oneline", "0.2"]), "ms/s");
        has(&run(&["--slower", "0"]), "TIME SPENT IN");
        has(&run(&["--by", "file"]), "file = ");
        let text = written_on(columns, &["compare", &saved[0], &saved[1]], "xterm");
        has(&assert_readable("compare", columns, &text), "before");
    }
    std::fs::remove_dir_all(folder).unwrap();
}
