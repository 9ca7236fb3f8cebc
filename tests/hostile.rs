//! Hostile input: names and files chosen by others, and readers that do not read; on this machine, whatever it allows.
//! Run it as root.

mod folder;
#[allow(dead_code, reason = "shared with the guests, who need more of it")]
#[path = "vm/guest/process.rs"]
mod process;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use folder::Folder;
use iostackbreakdown::args::{self, shell};
use iostackbreakdown::printable::is_printable;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use process::{Output, Running, run, wait_for};
use serde_json::Value;

const TOOL: &str = env!("CARGO_BIN_EXE_IOStackBreakdown");
/// Far more than any of these tests needs; reaching it is a failure.
const LIMIT: Duration = Duration::from_secs(60);
/// How soon a signal ends a run, even without a reader: the second that a reader gets, and delays of a busy machine.
const SOON: Duration = Duration::from_secs(10);
const BANNER: &str = "Tracing ";

/// Terminal commands in three encodings, the end of a line in three, a change of direction, and the end of a frame.
const NAME: &str = "a;\u{1b}[31m\u{9b}7m\u{7}\u{202e}\u{2028}\u{2029}\nb\u{85}c";
/// The same, as short as a thread's name.
const THREAD: &str = "a\u{1b}[3m\u{9b}\u{202e}b";

fn tool(arguments: &[&str]) -> Command {
    let mut tool = Command::new(TOOL);
    tool.args(arguments);
    tool
}

/// Runs a script in which `"$@"` is the tool with these arguments.
fn bash(script: &str, arguments: &[&str]) -> Command {
    let mut bash = Command::new("bash");
    bash.args(["-c", script, "bash", TOOL]).args(arguments);
    bash
}

/// The exit status and the output, which must not contain terminal commands.
fn shown(command: &mut Command) -> Output {
    let output = run(command, LIMIT).unwrap();
    for text in [&output.stdout, &output.stderr] {
        let hidden = text.chars().find(|&c| c != '\n' && !is_printable(c));
        assert_eq!(hidden, None, "{command:?}: {text:?}");
        assert!(!text.contains("panicked"), "{command:?}: {text}");
    }
    output
}

/// The single line of an error.
fn refused(command: &mut Command) -> String {
    let output = shown(command);
    let lines: Vec<&str> = output.stderr.lines().filter(|line| !line.starts_with(BANNER)).collect();
    let [line] = lines[..] else {
        panic!("{command:?}: not one line: {}", output.stderr)
    };
    assert!(line.starts_with("error: "), "{command:?}: {line}");
    assert_eq!(output.stdout, "", "{command:?}");
    assert!(
        matches!(output.status.code(), Some(1 | 2)),
        "{command:?}: {}",
        output.status
    );
    line.to_owned()
}

/// A thread with such a name reads a file with such a name.
fn traced(folder: &Folder, options: &[&str]) -> Output {
    let file = folder.file(NAME, "content\n");
    let script = r#"printf %s "$1" >/proc/$$/comm; read line <"$2"; read line <"$2""#;
    let command = ["--", "bash", "-c", script, "bash", THREAD, &file];
    let output = shown(&mut tool(&[options, &command[..]].concat()));
    assert_eq!(output.status.code(), Some(0), "{options:?}: {output:?}");
    assert!(
        output.stderr.contains("a;?[31m?7m?????b?c") || output.stderr.contains("a;?[31m?7m???? b?c"),
        "{options:?}: {}",
        output.stderr
    );
    output
}

#[test]
fn no_name_is_a_command_to_the_terminal() {
    let folder = Folder::new("hostile");
    let thread = "a?[3m??b";
    for options in [
        &["-T", "syscall", "-S"][..],
        &["-T", "syscall", "--verbose"],
        &[],
        &["--verbose"],
        &["0.1"],
    ] {
        traced(&folder, options);
    }
    for (options, name) in [
        (&["--slower", "0", "-o", "-"][..], thread),
        (&["--by", "process", "-o", "-"], thread),
        (&["-T", "syscall", "--by", "process", "-o", "-"], thread),
        (&["--folded", "--by", "process", "-o", "-"], thread),
        (&["-T", "syscall", "--by", "file", "-o", "-"], "b?c"),
        (&["--folded", "--by", "file", "-o", "-"], "b?c"),
    ] {
        let output = traced(&folder, options);
        assert!(output.stdout.contains(name), "{options:?}: {}", output.stdout);
    }
}

#[test]
fn a_name_in_json_is_escaped_and_the_same_when_parsed() {
    let folder = Folder::new("hostile");
    let parsed = |output: &Output| -> Vec<Value> {
        let lines = output.stdout.lines();
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let slow = parsed(&traced(&folder, &["--json", "--slower", "0", "-o", "-"]));
    assert!(slow.iter().any(|line| line["slow_call"]["comm"] == THREAD));
    let of_file = |line: &&Value| {
        line["slow_call"]["path"]
            .as_str()
            .is_some_and(|path| path.ends_with(NAME))
    };
    assert!(slow.iter().find(of_file).is_some());
    let report = &parsed(&traced(&folder, &["--json", "--by", "process", "-o", "-"]))[0];
    assert!(report["subject"].as_str().unwrap().contains(NAME));
    let groups = report["groups"]["groups"].as_array().unwrap();
    assert!(
        groups
            .iter()
            .any(|group| group["comm"] == THREAD || group["name"] == THREAD),
        "{}",
        report["groups"]
    );
}

#[test]
fn errors_quote_their_input_and_no_more() {
    for arguments in [
        &["-d", NAME][..],
        &["-p", NAME],
        &["-T", NAME],
        &["--file", NAME],
        &["--cgroup", NAME],
        &["--comm", NAME],
        &["--vmlinux", NAME],
        &["--probe", NAME],
        &["--slower", NAME],
        &["--duration", NAME],
        &["-o", "/nonexistent/\u{1b}[31m"],
        &[NAME],
        &["compare", NAME, NAME],
        &["compare", NAME],
    ] {
        let line = refused(&mut tool(arguments));
        assert!(
            line.contains('?') || arguments == ["compare", NAME],
            "{arguments:?}: {line}"
        );
    }
}

/// A report, written by hand.
fn report(subject: &str) -> Value {
    serde_json::json!({
        "schema_version": 1, "start": subject, "duration_ns": 1_000_000_000, "subject": subject,
        "layers": [{"layer": subject, "ops": [{"op": subject, "count": 3, "bytes": 9, "total_ns": 300, "max_ns": 200, "buckets": []}]}],
        "stack": null,
        "cost": {"budget": {"detached": [{"layer": subject, "after_ns": 5}]}},
    })
}

#[test]
fn compare_shows_the_contents_of_a_file_and_no_more() {
    let folder = Folder::new("hostile");
    let file = folder.file("report", report(NAME).to_string());
    let output = shown(&mut tool(&["compare", &file, &file]));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stdout.contains("b?c"), "{}", output.stdout);
    let mut other = report("x");
    other["schema_version"] = NAME.into();
    let other = folder.file("other", other.to_string());
    let line = refused(&mut tool(&["compare", &other, &file]));
    assert!(line.contains("[31m"), "{line}");
}

#[test]
fn compare_reads_files_and_pipes_and_nothing_endless() {
    let folder = Folder::new("hostile");
    let good = folder.file("good", report("x").to_string());
    let path = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (fifo, sparse) = (path("fifo"), path("sparse"));
    nix::unistd::mkfifo(Path::new(&fifo), nix::sys::stat::Mode::S_IRWXU).unwrap();
    File::create(&sparse).unwrap().set_len(600 << 20).unwrap();
    let text = report("x").to_string();
    let depth = 200_000;
    let deep = format!(
        "{}{}{}",
        &text[..text.len() - 1],
        r#","more":"#,
        "[".repeat(depth) + &"]".repeat(depth) + "}"
    );
    let cases = [
        ("/dev/zero".to_owned(), "is a device"),
        ("/dev/null".to_owned(), "is a device"),
        (path(""), "is a directory"),
        (fifo, "no process wrote to it"),
        (sparse, "is longer than 67.1 MB"),
        (path("none"), "No such file"),
        (folder.file("empty", ""), "it is empty"),
        (
            folder.file("slow", r#"{"schema_version":1,"slow_call":{}}"#),
            "there is no report in",
        ),
        (folder.file("cut", &text[..text.len() / 2]), "line 1 of"),
        (
            folder.file("second", format!("{text}\n{{\n")),
            "second' is not a report of --json: EOF while parsing an object (column 1)",
        ),
        (folder.file("huge", text.replace("300", &"9".repeat(400))), "line 1 of"),
        (folder.file("large", text.replace("300", "1e400")), "line 1 of"),
        (
            folder.file("long", text.replace("300", &format!("\"{}\"", "x".repeat(1 << 20)))),
            "line 1 of",
        ),
        (
            folder.file("version", text.replace("version\":1", "version\":2")),
            "schema_version is 2",
        ),
        (folder.file("bytes", [0xff, 0, b'{', 0x80]), "line 1 of"),
        (folder.file("array", "[1,2]"), "line 1 of"),
        // An element takes far more memory than these three bytes.
        (
            folder.file(
                "many",
                text.replace("\"ops\":[", &format!("\"ops\":[{}", "{},".repeat(1_000_000))),
            ),
            "too many groups, rows or histogram steps",
        ),
    ];
    for (bad, says) in &cases {
        for arguments in [["compare", bad, &good], ["compare", &good, bad]] {
            // The memory limit; the file of 600 MB has no blocks.
            let line = refused(&mut bash(r#"ulimit -v 400000; exec "$@""#, &arguments));
            assert!(line.contains(says) && line.len() < 600, "{arguments:?}: {line}");
        }
    }
    // Unknown fields are skipped, however deeply nested.
    let deep = folder.file("deep", deep);
    for script in [
        r#""$@""#,
        r#""$1" compare <(cat "$3") <(sleep 0.1; cat "$4")"#,
        r#"cat "$3" | "$1" compare /dev/stdin "$4""#,
    ] {
        let output = shown(&mut bash(script, &["compare", &deep, &good]));
        assert_eq!(output.status.code(), Some(0), "{script}: {output:?}");
        assert!(output.stdout.starts_with("before  x"), "{script}: {output:?}");
    }
    let line = refused(&mut bash(
        r#""$1" compare <(head -c 100M /dev/zero) "$3""#,
        &["compare", &good],
    ));
    assert!(line.contains("is longer than"), "{line}");
}

/// A run whose reader does not read.
struct Unread {
    child: Child,
    stderr: BufReader<std::process::ChildStderr>,
}

impl Unread {
    fn start(command: &mut Command, stdout: impl Into<Stdio>) -> Self {
        let mut child = command.stdout(stdout).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut banner = String::new();
        stderr.read_line(&mut banner).unwrap();
        assert!(banner.starts_with(BANNER), "{banner}");
        Self { child, stderr }
    }

    /// Waits until one of its threads waits for the reader.
    fn wait_until_stuck(&self) {
        let tasks = format!("/proc/{}/task", self.child.id());
        let is_writing = |task: &fs::DirEntry| {
            let call = fs::read_to_string(task.path().join("syscall")).unwrap_or_default();
            let state = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            call.starts_with(&format!("{} ", libc::SYS_write)) && state.contains(") S ")
        };
        wait_for("a report that is stuck", LIMIT, || {
            fs::read_dir(&tasks).unwrap().flatten().any(|task| is_writing(&task))
        })
        .unwrap();
    }

    /// The messages of a run ended by a signal, which has to be quick.
    fn end(mut self, signal: Signal) -> (ExitStatus, String) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
        wait_for("the end", SOON, || self.child.try_wait().unwrap().is_some()).unwrap();
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap(), said)
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pipe() -> (OwnedFd, OwnedFd) {
    nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).unwrap()
}

fn reports(text: &str) -> Vec<Value> {
    assert!(text.ends_with('\n'), "the last line is cut: {text}");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The start and the length of each report, in milliseconds.
fn spans(reports: &[Value]) -> Vec<(i64, i64)> {
    let span = |report: &Value| {
        let start: jiff::Timestamp = report["start"].as_str().unwrap().parse().unwrap();
        (
            start.as_millisecond(),
            report["duration_ns"].as_i64().unwrap() / 1_000_000,
        )
    };
    reports.iter().map(span).collect()
}

#[test]
fn a_signal_ends_a_run_without_a_reader_and_the_pipe_has_whole_lines() {
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
        let (reader, writer) = pipe();
        let unread = Unread::start(&mut tool(&["--json", "0.02"]), writer);
        unread.wait_until_stuck();
        let (status, said) = unread.end(signal);
        assert_eq!((status.code(), &said[..]), (Some(0), ""));
        let mut text = String::new();
        File::from(reader).read_to_string(&mut text).unwrap();
        let all = reports(&text);
        assert!(all.len() > 1, "{text}");
        // The last one is that of the end.
        assert!(all.last().unwrap()["in_flight"]["end"].is_number(), "{text}");
    }
}

#[test]
fn reports_not_read_in_time_are_counted() {
    let (_reader, writer) = UnixStream::pair().unwrap();
    let unread = Unread::start(&mut tool(&["--json", "0.02"]), OwnedFd::from(writer));
    unread.wait_until_stuck();
    let (status, said) = unread.end(Signal::SIGTERM);
    assert_eq!(status.code(), Some(0));
    assert_eq!(said, "2 reports were not written: the reader was too slow\n");
}

/// The reports have no reader, but the command must get its signal without delay.
#[test]
fn a_signal_reaches_the_command_of_a_run_without_a_reader() {
    let (_reader, writer) = UnixStream::pair().unwrap();
    let command = ["sh", "-c", "trap 'exit 9' TERM; while :; do sleep 0.02; done"];
    let arguments = [&["--json", "-o", "-", "0.02", "--"], &command[..]].concat();
    let unread = Unread::start(&mut tool(&arguments), OwnedFd::from(writer));
    unread.wait_until_stuck();
    let (status, said) = unread.end(Signal::SIGTERM);
    assert_eq!(status.code(), Some(9));
    assert_eq!(said, "2 reports were not written: the reader was too slow\n");
}

#[test]
fn a_slow_reader_gets_longer_intervals_and_misses_nothing() {
    let (reader, writer) = pipe();
    let unread = Unread::start(&mut tool(&["--json", "0.02"]), writer);
    unread.wait_until_stuck();
    let mut reader = BufReader::new(File::from(reader));
    let mut text = String::new();
    while text.lines().count() < 6 {
        reader.read_line(&mut text).unwrap();
    }
    let rest = std::thread::spawn(move || {
        let mut rest = String::new();
        reader.read_to_string(&mut rest).map(|_| rest)
    });
    let (status, said) = unread.end(Signal::SIGTERM);
    assert_eq!((status.code(), &said[..]), (Some(0), ""));
    text.push_str(&rest.join().unwrap().unwrap());
    let spans = spans(&reports(&text));
    for pair in spans.windows(2) {
        let [(start, length), (next, _)] = pair[..] else {
            unreachable!()
        };
        assert!((start + length - next).abs() < 20, "{spans:?}");
    }
}

#[test]
fn the_first_ctrl_c_ends_the_shortest_intervals() {
    for arguments in [
        &["-S", "0.0001"][..],
        &["--slower", "0", "0.0001"],
        &["-T", "syscall", "--json", "0.0001"],
    ] {
        let nowhere = File::options().write(true).open("/dev/null").unwrap();
        let _noise = Running::start(Command::new("sh").args(["-c", "while :; do read x </etc/passwd; done"])).unwrap();
        let unread = Unread::start(&mut tool(arguments), nowhere);
        let (status, said) = unread.end(Signal::SIGINT);
        assert_eq!(status.code(), Some(0), "{arguments:?}");
        assert!(!said.contains("not written"), "{arguments:?}: {said}");
    }
}

#[test]
fn a_signal_ends_a_run_whose_stderr_has_no_reader() {
    let ((reader, writer), (_full, stderr)) = (pipe(), pipe());
    let size = nix::fcntl::fcntl(&stderr, nix::fcntl::FcntlArg::F_GETPIPE_SZ).unwrap();
    nix::unistd::write(&stderr, &vec![b'x'; size as usize]).unwrap();
    let mut child = tool(&["-T", "syscall"]).stdout(writer).stderr(stderr).spawn().unwrap();
    let pid = child.id();
    let catches = |signal: Signal| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let mask = status
            .lines()
            .find_map(|line| line.strip_prefix("SigCgt:\t"))
            .unwrap_or("0");
        u64::from_str_radix(mask, 16).unwrap() >> (signal as i32 - 1) & 1 == 1
    };
    wait_for("it to heed signals", LIMIT, || {
        catches(Signal::SIGTERM) && catches(Signal::SIGHUP)
    })
    .unwrap();
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGTERM).unwrap();
    let ended = wait_for("the end", SOON, || child.try_wait().unwrap().is_some());
    let _ = child.kill();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    ended.unwrap();
    let mut text = String::new();
    File::from(reader).read_to_string(&mut text).unwrap();
    assert!(text.contains("lost 0; unfinished"), "{text}");
}

/// Another program that shares the terminal may make it non-blocking.
#[test]
fn a_pipe_made_non_blocking_by_another_process_gets_all_of_it() {
    let (reader, writer) = pipe();
    let flags = nix::fcntl::FcntlArg::F_SETFL(nix::fcntl::OFlag::O_NONBLOCK);
    nix::fcntl::fcntl(&writer, flags).unwrap();
    let mut child = tool(&["--json", "0.01", "4"])
        .stdout(writer)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    // It is full by then.
    let mut waiting = 0;
    wait_for("a full pipe", LIMIT, || {
        // SAFETY: the kernel fills in an integer.
        unsafe { libc::ioctl(reader.as_raw_fd(), libc::FIONREAD, &raw mut waiting) };
        waiting >= 60_000
    })
    .unwrap();
    let mut text = String::new();
    File::from(reader).read_to_string(&mut text).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(reports(&text).len(), 4);
}

/// In a directory that all users may write to, others can plant links and take predictable names.
#[test]
fn a_check_works_where_other_users_cannot() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("hostile");
    let mut check = bash(r#"umask 0; exec "$@""#, &["--check", "-T", "syscall"]);
    let check = check
        .env("TMPDIR", &*folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut check = check.spawn().unwrap();
    let mut seen = None;
    wait_for("its directory", LIMIT, || {
        seen = fs::read_dir(&folder).unwrap().flatten().next();
        seen.is_some()
    })
    .unwrap();
    let directory = seen.unwrap();
    // It may have ended by now, but not often.
    if let Ok(metadata) = directory.metadata() {
        assert_eq!(metadata.permissions().mode() & 0o7777, 0o700);
    }
    let name = directory.file_name().into_string().unwrap();
    assert!(!name.contains(&check.id().to_string()), "{name}");
    assert_eq!(check.wait().unwrap().code(), Some(0));
    assert!(fs::read_dir(&folder).unwrap().next().is_none());
}

/// Values that are valid for no option, or only for some.
const VALUES: [&[u8]; 16] = [
    b"",
    b"18446744073709551616",
    b"-1",
    b"0",
    b"1e400",
    b"nan",
    b"\xff\xfe",
    b"\x1b[31m",
    b"a\nb",
    b"\xe2\x80\xae",
    &[b'x'; 5000],
    b",",
    b"/dev/null",
    &[b'9'; 400],
    b"5 s",
    b"0.0000000001",
];
/// This many cases of each option and each verb are tried, always the same ones.
const CASES: usize = 6;
const SEED: u64 = 0x5eed;

/// Every option, hidden ones included, with every value in each spelling; and every verb with values.
fn cases() -> Vec<Vec<Vec<OsString>>> {
    let value = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
    let command = args::command();
    let options = command.get_arguments().map(|option| {
        let long = option.get_long().map(|name| format!("--{name}"));
        let short = option.get_short().map(|name| format!("-{name}"));
        let of_value = |bytes: &[u8]| {
            let joined = |name: &String, sign: &str| value(&[name.as_bytes(), sign.as_bytes(), bytes].concat());
            let spaced = long.iter().chain(&short).map(|name| vec![name.into(), value(bytes)]);
            let whole = long.iter().map(|name| vec![joined(name, "=")]);
            let cases = spaced
                .chain(whole)
                .chain(short.iter().map(|name| vec![joined(name, "")]));
            cases.collect::<Vec<Vec<OsString>>>()
        };
        VALUES.into_iter().flat_map(of_value).collect::<Vec<_>>()
    });
    let options: Vec<_> = options.filter(|cases| !cases.is_empty()).collect();
    assert!(options.len() > 30, "{options:?}");
    let verbs = command.get_subcommands().map(|verb| verb.get_name().to_owned());
    let starts = verbs.chain([shell::QUESTION, "1", "--"].map(str::to_owned)).map(Some);
    let starts = starts.chain([None]).map(|start| {
        let of_value = |bytes: &[u8]| {
            let words = |count| {
                start
                    .iter()
                    .map(OsString::from)
                    .chain(vec![value(bytes); count])
                    .collect()
            };
            [1, 2, 3].map(words)
        };
        VALUES.into_iter().flat_map(of_value).collect()
    });
    let starts: Vec<_> = starts.collect();
    options.into_iter().chain(starts).collect()
}

/// Any arguments end with a documented status, and a one-line error.
#[test]
fn bad_input_is_one_line_of_error() {
    let folder = Folder::new("hostile");
    // Knuth's linear congruential generator.
    let mut random = SEED;
    let mut chosen = |all: &mut Vec<Vec<OsString>>| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        all.swap_remove((random >> 33) as usize % all.len())
    };
    let cases: Vec<_> = (cases().iter_mut())
        .flat_map(|of_one| [(); CASES].map(|()| chosen(of_one)))
        .collect();
    for case in cases {
        let is_verb = ["compare", "help", "--", shell::QUESTION]
            .iter()
            .any(|verb| case[0] == *verb);
        let is_check = case[0].as_bytes().starts_with(b"--check");
        let mut tool = tool(if is_verb {
            &[]
        } else {
            &["-T", "syscall", "-S", "--duration", "5ms"]
        });
        let output = shown(tool.args(&case).current_dir(&folder));
        let errors = output.stderr.lines().filter(|line| line.starts_with("error: ")).count();
        let is_right = match output.status.code() {
            Some(0) => errors == 0,
            // A failed check prints its table.
            Some(1) if is_check => errors <= 1,
            Some(1 | 2) => errors == 1,
            // As in shells: the command cannot be executed.
            Some(126 | 127) => case[0] == "--" && errors == 1,
            _ => false,
        };
        assert!(is_right, "{case:?}: {output:?}");
    }
}
