//! How the command ends, and which errors it prints, on this machine, whatever it allows.
//!
//! Where only tracepoints are allowed, `-T vfs` must say so; elsewhere it must measure. Both are checked here. Tests
//! that need a kernel of their own are in `vm/checks/errors.rs`. Run it as root.

mod folder;
mod here;

use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use folder::Folder;
use here::process::{Output, Running, run, wait_for};
use here::{TOOL, schema, validator};
use iostackbreakdown::kernel::has_mounted;
use nix::sys::signal::Signal;

/// Far more than any of these tests needs; reaching it is a failure.
const LIMIT: Duration = Duration::from_secs(60);
const BANNER: &str = "Tracing ";
/// The error if nothing at all can be traced.
const UNPRIVILEGED: &str = "error: tracing needs CAP_BPF and CAP_PERFMON";

fn tool(arguments: &[&str]) -> Command {
    let mut tool = Command::new(TOOL);
    tool.args(arguments);
    tool
}

/// Runs the tool from a shell: `"$@"` in the script.
fn shell(script: &str, arguments: &[&str]) -> Command {
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh", TOOL]).args(arguments);
    shell
}

fn output(mut command: Command) -> Output {
    let output = run(&mut command, LIMIT).unwrap();
    assert!(!output.stderr.contains("panicked"), "{command:?}: {}", output.stderr);
    output
}

/// Whether a line below the banner is a note, not an error.
fn is_note(line: &str) -> bool {
    let starts = [
        "hooks: ",
        "excluded: calls ",
        "not measured: ",
        "note: ",
        "warning: ",
        "  ",
    ];
    starts.iter().any(|start| line.starts_with(start))
}

/// The exit status, and the single error line on stderr without the banner and the notes.
fn failure(command: Command) -> (i32, String) {
    let name = format!("{command:?}");
    let output = output(command);
    let lines: Vec<&str> = (output.stderr.lines())
        .filter(|line| !line.starts_with(BANNER) && !is_note(line))
        .collect();
    let [line] = lines[..] else {
        panic!("{name}: not one line: {:?}, {}", output.stderr, output.status)
    };
    assert!(line.starts_with("error: "), "{name}: {line}");
    assert_eq!(output.stdout, "", "{name}");
    let status = output.status.code();
    (
        status.unwrap_or_else(|| panic!("{name}: {}", output.status)),
        line.into(),
    )
}

/// The command fails with this status and an error that begins so.
fn assert_fails(command: Command, status: i32, beginning: &str) {
    let (found, line) = failure(command);
    assert!(found == status && line.starts_with(beginning), "{found}: {line}");
}

/// The output of a command that succeeds.
fn success(command: Command) -> Output {
    let output = output(command);
    assert_status(&output, 0);
    output
}

/// Starts a run and waits until it measures.
fn tracing(mut command: Command) -> Running {
    let running = Running::start(&mut command).unwrap();
    wait_for("the banner", LIMIT, || running.stderr().contains(BANNER))
        .unwrap_or_else(|error| panic!("{command:?}: {error}: {}", running.stderr()));
    running
}

fn assert_status(output: &Output, status: i32) {
    assert_eq!(output.status.code(), Some(status), "{output:?}");
}

/// Checks for the minimum contents of a report of system calls.
fn assert_report(text: &str) {
    assert!(text.contains("own process "), "no report: {text:?}");
}

/// A signal ends the run, with a report.
fn assert_reports_at(signal: Signal, running: Running) {
    running.signal(signal).unwrap();
    let output = running.finish(LIMIT).unwrap();
    assert_status(&output, 0);
    assert_report(&output.stdout);
}

/// Wrong usage, and what is said of it.
const WRONG: &[(&str, &str)] = &[
    ("-T 1", "unknown layer '1' (BCC's -T prints time stamps"),
    ("-T vfs,1", "unknown layer '1' (BCC's -T prints time stamps"),
    ("-T xfsx", "unknown layer 'xfsx'"),
    ("-T ", "unknown layer ''"),
    ("-T all,foo", "unknown layer 'foo'"),
    ("-T foo,all", "unknown layer 'foo'"),
    ("-o ", "but none was supplied (see --help)"),
    ("-T syscall,ext4 -Q", "-Q applies to the block layer; add blk to -T"),
    ("-T vfs -Q", "-Q applies to the block layer; add blk to -T"),
    ("-T syscall -d sda", "-d "),
    ("0", "invalid value '0' for '[INTERVAL]': not a time above 0"),
    (
        "-T vfs x -y",
        "'x' is neither a verb nor an INTERVAL; to run and trace a command: -- x -y",
    ),
    ("nan", "not a time above 0"),
    ("1 0", "not a whole number, 1 or more"),
    ("1 1.5", "invalid value '1.5'"),
    ("1 2 3", "unexpected argument '3'"),
    (
        "--duration soon",
        "not a time above 0, such as 10s, 500ms or 2m; a number alone is seconds",
    ),
    ("--duration 0s", "'0s' for '--duration <TIME>': not a time above 0"),
    (
        "--budget 0",
        "invalid value '0' for '--budget <PERCENT>': not a percentage above 0 and up to ",
    ),
    ("--budget 1e9", "not a percentage above 0"),
    ("--oneline", "--oneline needs INTERVAL"),
    ("--top 3", "--top needs --by"),
    ("--history 1M", "error: --history needs --live"),
    ("--limit=read=1ms", "error: --limit needs --live"),
    ("--dir /srv", "error: --dir needs --events"),
    ("report x.iosb --last 5", "error: --last needs --events"),
    ("record --after 5s", "error: --after needs --ring TIME"),
    ("replay", "error: replay needs FILE and --into DIR"),
    ("replay x.iosb", "error: replay needs --into DIR"),
    ("export", "error: export needs FILE and --to FORMAT"),
    ("report --json", "error: report needs FILE"),
    ("--by file --top 0", "not a whole number, 1 or more"),
    (
        "help nonsense",
        "unknown verb 'nonsense'; verbs are record, report, export, replay, compare and help",
    ),
    ("check", "to try every probe: --check"),
    (
        "--metrics 9100",
        "--metrics takes its port after '=': --metrics=9100; for reports each 9100 s: --metrics 9100s",
    ),
    (
        "--metrics unix:/tmp/x",
        "'unix:/tmp/x' is no INTERVAL; did you mean --metrics=unix:/tmp/x?",
    ),
    ("--metrics 127.0.0.1:9100", "did you mean --metrics=127.0.0.1:9100?"),
    (
        "--json compact -T blk",
        "'compact' is no INTERVAL; did you mean --json=compact?",
    ),
    ("--events json", "did you mean --events=json?"),
    ("report x.iosb --events --live", "--live"),
    ("report x.iosb --events json", "did you mean --events=json?"),
    (
        "record --buffer 100T",
        "--buffer: at most an eighth of the memory, which is ",
    ),
    (
        "record --ring 60s,100T",
        "--ring: at most an eighth of the memory, which is ",
    ),
    ("report x.iosb --lost --html x.html", "--html"),
    (
        "report x.iosb --lost -p 1",
        "'--lost' cannot be used with '--pid <PID,...>'",
    ),
    ("report x.iosb --dir /srv --lost", "--lost"),
    ("--check --folded", "--folded"),
    ("--slower x", "not a time such as 10ms or 500us (0: every call)"),
    ("--check --budget 5", "cannot be used with"),
    ("-p 0", "invalid value '0'"),
    ("-p x", "not a process ID; for threads of this name: --comm x"),
    ("-p ", "empty; separate process IDs with single commas"),
    ("-p 4294967296", "invalid value '4294967296'"),
    ("-p 1 -- true", "-p and -- COMMAND cannot be combined"),
    ("-f", "-f needs -p"),
    ("-m -u", "cannot be used with"),
    (
        "--comm 0123456789abcdef",
        "a thread name has 1 to 15 bytes; give its beginning: --comm 0123456789abcde",
    ),
    ("--user nobody", "--user needs -- COMMAND"),
    ("--probe magic", "use one of auto, kprobe"),
    ("--nonsense", "'--nonsense'"),
    // Without the error it would trace all processes, for ever.
    ("-T syscall --duration 10ms --", "COMMAND"),
];

#[test]
fn wrong_usage_is_one_line_and_status_2() {
    for (arguments, expected) in WRONG {
        let words: Vec<&str> = arguments.split(' ').collect();
        let (status, line) = failure(tool(&words));
        assert_eq!(status, 2, "{arguments}: {line}");
        assert!(line.contains(expected), "{arguments}: {line}");
    }
}

/// A time beyond the range of the clock means never.
#[test]
fn an_endless_duration_is_accepted() {
    for times in [&["1e19"][..], &["1e19", "3"], &["--duration", "5000000000000000h"]] {
        let arguments = [&["-T", "syscall", "-o", "/dev/null"], times, &["--", "true"]].concat();
        let output = output(tool(&arguments));
        match output.status.code() {
            Some(0) => {}
            Some(2) => assert!(output.stderr.starts_with("error: "), "{output:?}"),
            _ => panic!("{arguments:?}: {output:?}"),
        }
    }
}

#[test]
fn an_unknown_disk_is_answered_with_those_that_exist() {
    let (status, line) = failure(tool(&["-T", "vfs", "-d", "nvme77n1"]));
    let beginning = "error: there is no disk 'nvme77n1'; this machine has ";
    assert!(status == 1 && line.starts_with(beginning), "{status}: {line}");
    let known: Vec<&str> = line.rsplit(" has ").next().unwrap().split(", ").collect();
    for disk in fs::read_dir("/sys/block").unwrap() {
        let disk = disk.unwrap().file_name().into_string().unwrap().replace('!', "/");
        let is_virtual = ["loop", "ram", "zram"].iter().any(|prefix| disk.starts_with(prefix));
        assert!(is_virtual || known.contains(&disk.as_str()), "{disk}: {line}");
    }
    let (status, line) = failure(tool(&["-d", "/dev/null"]));
    assert_eq!(
        (status, &line[..]),
        (
            1,
            "error: '/dev/null' is not a block device; -d takes a disk or a partition"
        )
    );
}

#[test]
fn a_missing_process_is_refused() {
    // Above the highest possible process number.
    let (status, line) = failure(tool(&["-T", "syscall", "-p", "4194305"]));
    assert_eq!(
        (status, &line[..]),
        (1, "error: no process has PID 4194305 here (in this PID namespace)")
    );

    let (tell, reported) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        tell.send(nix::unistd::gettid()).unwrap();
        let _ = ended.recv();
    });
    let (thread_number, process) = (reported.recv().unwrap(), std::process::id());
    let (status, line) = failure(tool(&["-T", "syscall", "-p", &thread_number.to_string()]));
    drop(end);
    thread.join().unwrap();
    let expected = format!("error: {thread_number} is a thread of process {process}; use -p {process}");
    assert_eq!((status, line), (1, expected));
}

/// The process may end at any moment: before it is found, while programs are loaded, or just then.
#[test]
fn a_process_that_ends_at_once_is_reported_or_refused() {
    for wait_ms in [0, 1, 2, 5, 10, 20, 50, 100, 200, 400] {
        let mut short = Command::new("sleep")
            .arg(format!("{:.3}", f64::from(wait_ms) / 1000.0))
            .spawn()
            .unwrap();
        let pid = short.id().to_string();
        let reaper = std::thread::spawn(move || short.wait());
        let output = output(tool(&["-T", "syscall", "-S", "-p", &pid]));
        reaper.join().unwrap().unwrap();
        match output.status.code() {
            Some(0) => assert_report(&output.stdout),
            Some(1) => assert_eq!(
                output.stderr,
                format!("error: no process has PID {pid} here (in this PID namespace)\n")
            ),
            _ => panic!("{output:?}"),
        }
    }
}

/// A process that has ended but was not waited for still has its number.
#[test]
fn a_zombie_is_an_ended_process() {
    let mut zombie = Command::new("true").spawn().unwrap();
    let pid = zombie.id().to_string();
    let stat = format!("/proc/{pid}/stat");
    wait_for("a zombie", LIMIT, || {
        fs::read_to_string(&stat).unwrap().contains(") Z ")
    })
    .unwrap();
    let output = output(tool(&["-T", "syscall", "-S", "-p", &pid]));
    zombie.wait().unwrap();
    assert_status(&output, 0);
    assert_report(&output.stdout);
}

#[test]
fn functions_are_measured_or_refused_in_one_line() {
    for layer in ["vfs", "ext4"] {
        let arguments = ["-T", layer, "--duration", "10ms"];
        let output = output(tool(&arguments));
        if output.status.success() {
            assert_report(&output.stdout);
            continue;
        }
        let (status, line) = failure(tool(&arguments));
        let expected =
            format!("error: -T {layer} needs kprobes or fentry, both refused here; try -T syscall or -T blk");
        assert_eq!((status, line), (1, expected));
    }
}

/// The banner names what is measured and what is not.
#[test]
fn the_banner_names_layers_that_are_not_measured() {
    let output = success(tool(&["-S", "--duration", "10ms"]));
    let banner = output.stderr.lines().next().unwrap_or_default();
    let (measured, missing) = banner.split_once(" (").unwrap_or((banner, ""));
    let names = |text: &str| -> Vec<String> {
        let words = text.split([' ', ',', ':', '.']);
        words.map(str::to_owned).collect()
    };
    for layer in ["vfs", "ext4"] {
        let alone = self::output(tool(&["-T", layer, "-S", "--duration", "10ms"]));
        let is_in = |text: &str| names(text).iter().any(|name| name == layer);
        assert_eq!(is_in(measured), alone.status.success(), "{layer}: {banner} {alone:?}");
        assert_eq!(is_in(missing), !alone.status.success(), "{layer}: {banner} {alone:?}");
    }
}

/// What does not change is printed once; with `--quiet` never, with `--verbose` in each report.
#[test]
fn notes_are_printed_once() {
    const NOTES: [&str; 3] = ["hook", "excluded: calls", "not measured: "];
    let is_note = |line: &&str| NOTES.iter().any(|start| line.starts_with(start));
    let run = |options: &[&str]| {
        let arguments = [&["-T", "syscall,blk", "-S"], options].concat();
        let output = success(tool(&arguments));
        let count = |text: &str| text.lines().filter(is_note).count();
        (count(&output.stderr), count(&output.stdout))
    };
    // The hooks, and what is excluded.
    assert_eq!(run(&["0.1", "3"]), (2, 0));
    assert_eq!(run(&["--duration", "100ms"]), (2, 0));
    assert_eq!(run(&["0.1", "3", "--quiet"]), (0, 0));
    let (_, repeated) = run(&["0.1", "3", "--verbose"]);
    assert!(repeated >= 3 * 2, "{repeated}");
}

/// Each is measured, or refused in one line that names it.
#[test]
fn a_hook_that_this_kernel_lacks_is_refused() {
    let kinds = [
        ("kprobe", "kprobe/kretprobe"),
        ("kprobe-event", "kprobe event"),
        ("kprobe-multi", "kprobe.multi"),
        ("kprobe-session", "kprobe.session"),
        ("fentry", "fentry/fexit"),
        ("fsession", "fsession"),
        ("tracepoint", "tracepoint"),
        ("raw-tracepoint", "tp_btf"),
    ];
    for (kind, name) in kinds {
        let arguments = ["-T", "syscall", "-S", "--duration", "10ms", "--probe", kind];
        let output = output(tool(&arguments));
        if output.status.success() {
            let note = format!("hooks: {name} at syscall\n");
            assert!(output.stderr.contains(&note), "{kind}: {output:?}");
        } else {
            let (status, line) = failure(tool(&arguments));
            assert_eq!(status, 1, "{line}");
            // Errors name the value of the option, or what was refused as reports name it.
            assert!(line.contains(kind) || line.contains(name), "{kind}: {line}");
        }
    }
}

#[test]
fn a_command_ends_as_itself() {
    let not_executable = Scratch::file("not-executable", "#!/bin/sh\n");
    let cases: [(&[&str], i32); 8] = [
        (&["true"], 0),
        (&["sh", "-c", "exit 7"], 7),
        (&["sh", "-c", "exit 255"], 255),
        (&["sh", "-c", "kill -TERM $$"], 128 + 15),
        (&["sh", "-c", "kill -KILL $$"], 128 + 9),
        (&["sh", "-c", "kill -SEGV $$"], 128 + 11),
        // Words of its own that are also ours.
        (&["sh", "-c", "exit 5", "x", "--"], 5),
        (&["sh", "-c", "exit 6", "x", "--metrics", "9100"], 6),
    ];
    for (command, status) in cases {
        let output = output(tool(&[&["-T", "syscall", "--"], command].concat()));
        assert_status(&output, status);
        assert_report(&output.stderr);
        assert_eq!(output.stdout, "", "its stdout is its own");
    }
    let failures = [
        ("/nonexistent/command", 127, "command not found: /nonexistent/command"),
        ("iosb-no-such-command", 127, "command not found: iosb-no-such-command"),
        (not_executable.path(), 126, "cannot execute "),
        ("/", 126, "cannot execute /: "),
    ];
    for (command, status, expected) in failures {
        let (found, line) = failure(tool(&["-T", "syscall", "--", command]));
        assert_eq!(found, status, "{line}");
        assert!(line.contains(expected), "{line}");
    }
}

#[test]
fn our_own_failure_with_a_command_is_125() {
    for arguments in [
        &["-T", "syscall", "-o", "/nonexistent/file"][..],
        &["-T", "syscall", "--user", "iosb-no-such-user"],
        &["-d", "nvme77n1"],
    ] {
        let marker = Scratch::file("not-run", "");
        let (status, line) = failure(tool(&[arguments, &["--", "rm", marker.path()]].concat()));
        assert_eq!(status, 125, "{line}");
        assert!(Path::new(marker.path()).exists(), "the command ran: {arguments:?}");
        let named = arguments.last().unwrap();
        assert!(line.contains(named), "{line}");
    }
}

#[test]
fn a_command_runs_as_another_user() {
    let arguments = "-T syscall -o /dev/null --user nobody -- id -un".split(' ');
    let output = success(tool(&arguments.collect::<Vec<_>>()));
    assert_eq!(output.stdout, "nobody\n");
}

#[test]
fn terminating_signals_are_passed_to_the_command() {
    let script = r#"trap "echo got; exit 9" TERM HUP; echo ready >&2; while :; do sleep 0.05; done"#;
    for signal in [Signal::SIGTERM, Signal::SIGHUP] {
        let running = tracing(tool(&["-T", "syscall", "-S", "--", "sh", "-c", script]));
        wait_for("the command", LIMIT, || running.stderr().contains("ready\n")).unwrap();
        running.signal(signal).unwrap();
        let output = running.finish(LIMIT).unwrap();
        assert_status(&output, 9);
        assert_eq!(output.stdout, "got\n");
        assert_report(&output.stderr);
    }
}

/// Signal dispositions that a shell sets for background jobs are not inherited by the command, except `nohup`'s.
#[test]
fn a_command_gets_default_dispositions() {
    let script = r#"trap "" INT HUP QUIT USR1; exec "$@""#;
    let arguments = "-T syscall -o /dev/null -- grep ^Sig[IB] /proc/self/status".split(' ');
    let output = success(shell(script, &arguments.collect::<Vec<_>>()));
    for line in output.stdout.lines() {
        let set = u64::from_str_radix(line.split_whitespace().nth(1).unwrap(), 16).unwrap();
        let hang_up = if line.starts_with("SigIgn") { 1 } else { 0 };
        // Shells do not change the dispositions of real-time signals.
        assert_eq!(set & 0x7fff_ffff, hang_up, "{}", output.stdout);
    }
    assert_eq!(output.stdout.lines().count(), 2);
}

/// As set by `nohup`.
#[test]
fn an_ignored_hang_up_does_not_end_the_run() {
    let running = tracing(shell(r#"trap "" HUP; exec "$@""#, &["-T", "syscall"]));
    running.signal(Signal::SIGHUP).unwrap();
    let patience = wait_for("the hang-up to end it", Duration::from_millis(300), || {
        !is_alive(running.pid().as_raw())
    });
    assert!(patience.is_err(), "a hang-up ended it");
    assert_reports_at(Signal::SIGTERM, running);
}

/// Each probe needs a descriptor or two; COMMAND gets the original limit.
#[test]
fn a_low_limit_of_open_files_is_raised_and_not_for_the_command() {
    let script = r#"ulimit -Sn 20; exec "$@""#;
    let arguments = ["-T", "syscall", "-o", "/dev/null", "--", "sh", "-c", "ulimit -Sn"];
    let raised = success(shell(script, &arguments));
    assert_eq!(raised.stdout, "20\n");
}

/// Whatever fails first.
#[test]
fn too_few_open_files_are_named() {
    for limit in [3, 5, 8, 20, 44, 48, 56, 80] {
        for arguments in [
            &["-T", "syscall,blk"][..],
            &[],
            &["--check"],
            &["-T", "syscall", "--", "true"],
        ] {
            let mut limited = tool(arguments);
            if !arguments.contains(&"--check") && !arguments.contains(&"--") {
                limited.args(["--duration", "10ms"]);
            }
            // SAFETY: a system call with integers.
            unsafe {
                limited.pre_exec(move || {
                    let few = libc::rlimit {
                        rlim_cur: limit,
                        rlim_max: limit,
                    };
                    match libc::setrlimit(libc::RLIMIT_NOFILE, &raw const few) {
                        0 => Ok(()),
                        _ => Err(std::io::Error::last_os_error()),
                    }
                });
            }
            let output = output(limited);
            let line = output.stderr.lines().find(|line| line.starts_with("error: "));
            let is_named = line.is_some_and(|line| line.contains("ulimit -n") && !line.contains("run as root"));
            let has_enough = limit > 60 && line.is_none();
            // The table shows what was refused; the cause is above it.
            let is_in_table = output.stdout.contains("Too many open files");
            let is_explained = output
                .stdout
                .lines()
                .any(|line| line.starts_with("open files ") && line.contains("ulimit -n"));
            assert_eq!(is_in_table, is_explained, "{limit} {arguments:?}: {output:?}");
            assert!(
                is_named || has_enough || is_in_table,
                "{limit} {arguments:?}: {output:?}"
            );
            let is_blamed = output.stdout.contains("needs CAP_SYS_ADMIN");
            assert!(!is_blamed, "{limit} {arguments:?}: {output:?}");
        }
    }
}

/// Like a container's seccomp profile.
fn refuse(command: &mut Command, call: libc::c_long, errno: i32) {
    const fn instruction(code: u32, yes: u8, no: u8, k: u32) -> libc::sock_filter {
        libc::sock_filter {
            code: code as u16,
            jt: yes,
            jf: no,
            k,
        }
    }
    let mut filter = [
        // The number of the call is the first word.
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, call as u32),
        instruction(
            libc::BPF_RET | libc::BPF_K,
            0,
            0,
            libc::SECCOMP_RET_ERRNO | errno as u32,
        ),
        instruction(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let install = move || {
        let program = libc::sock_fprog {
            len: filter.len() as u16,
            filter: filter.as_mut_ptr(),
        };
        // SAFETY: system calls with a structure that outlives them.
        let failed = unsafe {
            libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
                || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) != 0
        };
        if failed {
            Err(std::io::Error::last_os_error())
        } else {
            Ok(())
        }
    };
    // SAFETY: it makes system calls only.
    unsafe { command.pre_exec(install) };
}

#[test]
fn a_seccomp_filter_that_refuses_is_named() {
    for errno in [libc::EPERM, libc::ENOSYS] {
        for arguments in [&["-T", "syscall"][..], &[], &["--check"]] {
            let mut filtered = tool(arguments);
            refuse(&mut filtered, libc::SYS_bpf, errno);
            let (status, line) = failure(filtered);
            assert_eq!(status, 1, "{line}");
            let expected = "needs bpf(), which this process's seccomp filter refuses; run without the filter";
            assert!(
                line.contains(expected) && !line.contains("CAP_"),
                "{arguments:?}: {line}"
            );
        }
    }
    for (arguments, expected) in [(&["-T", "syscall"][..], 1), (&["-T", "syscall", "--", "true"], 1)] {
        let mut filtered = tool(arguments);
        refuse(&mut filtered, libc::SYS_clone3, libc::EPERM);
        let (status, line) = failure(filtered);
        assert!(
            line.contains("seccomp filter refuses clone3; run without the filter"),
            "{line}"
        );
        assert!([expected, 125].contains(&status), "{status}: {line}");
    }
}

/// For a binary with file capabilities, the C library removes variables from the environment.
#[test]
fn a_binary_with_capabilities_leaves_the_command_its_environment() {
    // The copy must be on a file system that is not mounted with `nosuid`.
    let copy = Scratch::copy("capable", TOOL);
    let folder = Scratch::new("its-folder");
    fs::create_dir(folder.path()).unwrap();
    give_capabilities(copy.path());
    const NOBODY: u32 = 65534;
    nix::unistd::chown(folder.path(), Some(NOBODY.into()), Some(NOBODY.into())).unwrap();
    let capable = |arguments: &[&str]| {
        let mut command = Command::new(copy.path());
        command.args(arguments).uid(NOBODY).gid(NOBODY);
        command
            .env("TMPDIR", folder.path())
            .env("LD_LIBRARY_PATH", "/nowhere")
            .env("MINE", "kept");
        output(command)
    };
    let script = "echo $TMPDIR:$LD_LIBRARY_PATH:$MINE; grep CapEff /proc/self/status";
    let printed = capable(&["-T", "syscall", "-o", "/dev/null", "--", "sh", "-c", script]);
    assert_status(&printed, 0);
    let expected = format!("{}:/nowhere:kept\nCapEff:\t0000000000000000\n", folder.path());
    assert_eq!(printed.stdout, expected);
    // Its messages about TMPDIR hold there as well.
    let checked = capable(&["--check", "-T", "syscall"]);
    assert!(
        checked.stdout.contains(&format!("test files  in {}", folder.path())),
        "{checked:?}"
    );
}

/// Gives all capabilities of this process to a file, as `setcap =ep` does.
fn give_capabilities(path: &str) {
    const REVISION_2_EFFECTIVE: u32 = 0x0200_0001;
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let set = status.lines().find_map(|line| line.strip_prefix("CapBnd:")).unwrap();
    let set = u64::from_str_radix(set.trim(), 16).unwrap();
    let words = [REVISION_2_EFFECTIVE, set as u32, 0, (set >> 32) as u32, 0];
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let path = std::ffi::CString::new(path).unwrap();
    // SAFETY: strings and bytes that outlive the call.
    let failed = unsafe {
        libc::setxattr(
            path.as_ptr(),
            c"security.capability".as_ptr(),
            bytes.as_ptr().cast(),
            bytes.len(),
            0,
        )
    };
    assert_eq!(failed, 0, "{}", std::io::Error::last_os_error());
}

/// The messages besides the report have no reader.
#[test]
fn a_report_does_not_need_stderr() {
    let arguments = ["-T", "syscall", "--verbose", "--duration", "10ms"];
    for script in [r#"exec "$@" 2>/dev/full"#, r#"exec "$@" 2>&-"#] {
        let output = success(shell(script, &arguments));
        assert_report(&output.stdout);
    }
    let output = output(shell(r#"exec "$@" 2>/dev/full"#, &["--nonsense"]));
    assert_status(&output, 2);
}

/// The reader of the report is gone, and the command continues.
#[test]
fn a_command_ends_as_itself_without_a_reader() {
    let script = r#"exec 3>&1; { "$@" 2>&1 >/dev/null; echo "status $?" >&3; } | head -2 >/dev/null"#;
    let command = "cat /etc/passwd; sleep 0.3; cat /etc/passwd; exit 7";
    let output = output(shell(script, &["--slower", "0", "--", "sh", "-c", command]));
    assert_eq!(output.stdout, "status 7\n", "{}", output.stderr);
}

/// The same command in both forms, which `compare` treats alike.
#[test]
fn a_compact_report_is_short() {
    let folder = Folder::new("compact");
    let written = |form: &str| {
        let file = folder.text(form);
        success(tool(&[&format!("--json={form}"), "-o", &file, "--", "true"]));
        (fs::metadata(&file).unwrap().len(), file)
    };
    let ((full, before), (compact, after)) = (written("full"), written("compact"));
    assert!(compact * 4 < full, "{compact} of {full} bytes");
    let output = success(tool(&["compare", &before, &after]));
    assert!(output.stdout.contains("calls/s"), "{}", output.stdout);
}

#[test]
fn the_end_is_a_report() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let running = tracing(tool(&["-T", "syscall"]));
        assert_reports_at(signal, running);
    }
}

#[test]
fn ctrl_c_works_in_a_job_that_was_started_ignoring_it() {
    let running = tracing(shell(r#"trap "" INT; exec "$@""#, &["-T", "syscall"]));
    assert_reports_at(Signal::SIGINT, running);
}

/// The first one waits for a command that does not end.
#[test]
fn a_second_ctrl_c_ends_at_once() {
    let script = r#"trap "echo INT >&2" INT; echo "pid $$" >&2; while :; do sleep 0.05; done"#;
    let running = tracing(tool(&["-T", "syscall", "--", "sh", "-c", script]));
    wait_for("the command", LIMIT, || running.stderr().contains("\npid ")).unwrap();
    let stderr = running.stderr();
    let pid: i32 = stderr.split("\npid ").nth(1).unwrap().trim().parse().unwrap();
    running.signal(Signal::SIGINT).unwrap();
    // Only to the tool; a terminal sends it to both. The tool waits.
    let patience = wait_for("the first Ctrl-C to end it", Duration::from_millis(300), || {
        !is_alive(running.pid().as_raw())
    });
    assert!(patience.is_err(), "one Ctrl-C ended it while the command ran");
    running.signal(Signal::SIGINT).unwrap();
    let ended = wait_for("the second Ctrl-C to end it", LIMIT, || {
        !is_alive(running.pid().as_raw())
    });
    // The tool does not kill the command, so the test does.
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL).unwrap();
    ended.unwrap();
    assert_status(&running.finish(LIMIT).unwrap(), 130);
}

/// Whether the process exists and is not a zombie.
fn is_alive(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[test]
fn a_full_disk_is_an_error() {
    assert_fails(
        shell(r#"exec "$@" >/dev/full"#, &["-T", "syscall", "--duration", "10ms"]),
        1,
        "error: cannot write the report to stdout: No space left",
    );
    // A run may have several files.
    let run = ["-T", "syscall", "--duration", "10ms"];
    for full in [
        "-o /dev/full",
        "-o /dev/null --html /dev/full",
        "-o /dev/null --export-json /dev/full",
    ] {
        let full: Vec<&str> = full.split(' ').collect();
        assert_fails(
            tool(&[&run[..], &full].concat()),
            1,
            "error: cannot write '/dev/full': No space left",
        );
    }
}

/// A page of which the end is missing looks like one of a run that was quiet then.
#[test]
fn no_part_of_a_page_is_left_if_it_cannot_be_written() {
    // As a full disk does, for files.
    let small = r#"trap '' XFSZ; ulimit -f 8; exec "$@""#;
    let run = ["-T", "syscall", "--duration", "10ms", "-o", "/dev/null"];
    let page = Scratch::new("small.html");
    let asked = [&run[..], &["--html", page.path()]].concat();
    let error = format!("error: cannot write '{}': File too large", page.path());
    for _ in ["a new file", "an earlier page"] {
        assert_fails(shell(small, &asked), 1, &error);
        assert!(!fs::exists(page.path()).unwrap());
        fs::write(page.path(), "an earlier page").unwrap();
    }
    // Nor is an empty one left by a run that is killed.
    fs::remove_file(page.path()).unwrap();
    let killed = r#"exec timeout -s KILL 1 "$@" --duration 1h 2>/dev/null"#;
    output(shell(
        killed,
        &["-T", "syscall", "-o", "/dev/null", "--html", page.path()],
    ));
    assert!(!fs::exists(page.path()).unwrap());
    fs::write(page.path(), "an earlier page").unwrap();
    // A run that ends without a page leaves an earlier one.
    let refused = [&asked[..], &["-p", "4194304"]].concat();
    let (status, _) = failure(tool(&refused));
    assert_ne!(status, 0);
    assert_eq!(fs::read_to_string(page.path()).unwrap(), "an earlier page");
    success(tool(&asked));
    let compared = Scratch::new("compared.html");
    let compare = ["compare", page.path(), page.path(), "--html", compared.path()];
    let error = format!("error: cannot write '{}': File too large", compared.path());
    assert_fails(shell(small, &compare), 1, &error);
    assert!(!fs::exists(compared.path()).unwrap());
    // Its name is of the user's making.
    let link = Scratch::new("link.html");
    std::os::unix::fs::symlink(page.path(), link.path()).unwrap();
    let linked = [&run[..], &["--html", link.path()]].concat();
    let error = format!("error: cannot write '{}': File too large", link.path());
    assert_fails(shell(small, &linked), 1, &error);
    assert_eq!(fs::metadata(link.path()).unwrap().len(), 0);
}

#[test]
fn a_closed_pipe_is_not_an_error() {
    let script = r#"{ "$@"; echo "status $?" >&2; } | head -3"#;
    let output = output(shell(script, &["-T", "syscall", "0.1", "50"]));
    let banner = "Tracing syscall latency... Hit Ctrl-C to end.";
    let lines: Vec<&str> = output.stderr.lines().collect();
    assert_eq!((lines[0], lines[lines.len() - 1]), (banner, "status 0"), "{output:?}");
    assert!(lines[1..lines.len() - 1].iter().all(|line| is_note(line)), "{output:?}");
    assert_eq!(output.stdout.lines().count(), 3);
    // Other outputs are still written completely.
    let export = Scratch::file("export", "");
    let output = self::output(shell(
        script,
        &["-T", "syscall", "0.1", "50", "--export-json", export.path()],
    ));
    assert!(output.stderr.ends_with("status 0\n"), "{output:?}");
    let exported = fs::read_to_string(export.path()).unwrap();
    let reports = exported.lines().map(serde_json::from_str::<serde_json::Value>);
    let reports: Vec<serde_json::Value> = reports.collect::<Result<_, _>>().unwrap();
    assert!((2..50).contains(&reports.len()), "{}", reports.len());
    assert!(reports.last().unwrap()["in_flight"]["end"].is_number(), "{exported}");
    // Here the error occurs in the middle of a run.
    let slow = ["--slower", "0", "--duration", "20s"];
    let slow = self::output(shell(&format!("{{ {script}; }} 2>&1 | tail -1"), &slow));
    assert_eq!(slow.stdout, "status 0\n");
    let output = self::output(shell(r#"{ "$@"; echo "status $?" >&2; } | true"#, &["--help"]));
    assert_eq!(output.stderr, "status 0\n");
}

#[test]
fn a_report_goes_to_the_named_file() {
    let report = Scratch::file("report", "of an earlier run");
    let output = success(tool(&["-T", "syscall", "--duration", "10ms", "-o", report.path()]));
    assert_eq!(output.stdout, "");
    assert_report(&fs::read_to_string(report.path()).unwrap());
    let output = success(tool(&["-T", "syscall", "-o", "-", "--", "true"]));
    assert_report(&output.stdout);
    assert_fails(
        tool(&["-T", "syscall", "-o", "/nonexistent/file"]),
        1,
        "error: cannot write '/nonexistent/file': ",
    );
}

/// The run fails before its first report: that of an earlier run is kept.
#[test]
fn a_run_that_does_not_begin_leaves_the_file_alone() {
    let report = Scratch::file("earlier", "of an earlier run");
    let (status, line) = failure(tool(&["-T", "syscall", "-o", report.path(), "-p", "4194304"]));
    assert_eq!(status, 1, "{line}");
    assert_eq!(fs::read_to_string(report.path()).unwrap(), "of an earlier run");
    assert_fails(
        tool(&["-T", "syscall", "--vmlinux", "/nonexistent/vmlinux"]),
        1,
        "error: cannot read '/nonexistent/vmlinux': ",
    );
}

/// A page with a report before it is none.
#[test]
fn a_page_shares_standard_output_with_nothing() {
    let run = ["-T", "syscall", "--duration", "10ms", "--html", "-"];
    let both = "error: --html - and the report would both be on standard output; write --html FILE";
    assert_eq!(failure(tool(&run)), (2, both.to_owned()));
    assert_eq!(failure(tool(&[&run[..], &["-o", "-"]].concat())), (2, both.to_owned()));
    assert_eq!(
        failure(tool(&["compare", "a", "b", "--html", "-"])),
        (2, both.to_owned())
    );
    let alone = output(tool(&[&run[..], &["-o", "/dev/null"]].concat()));
    assert!(alone.stdout.starts_with("<!doctype html>"), "{}", alone.stdout);
}

/// Each would write over the other.
#[test]
fn two_outputs_in_one_file_are_refused() {
    let report = Scratch::file("shared", "of an earlier run");
    let (hard, new) = (Scratch::new("shared-hard"), Scratch::new("shared-new"));
    fs::hard_link(report.path(), hard.path()).unwrap();
    let run = ["-T", "syscall", "--duration", "10ms"];
    for (first, second) in [
        (["-o", report.path()], ["--export-json", hard.path()]),
        (["--export-json", new.path()], ["--html", new.path()]),
    ] {
        let (status, line) = failure(tool(&[&run[..], &second, &first].concat()));
        let expected = format!(
            "error: {} '{}' and {} '{}' name one file; give one of them another name",
            first[0], first[1], second[0], second[1]
        );
        assert_eq!((status, line), (2, expected));
    }
    assert_eq!(fs::read_to_string(report.path()).unwrap(), "of an earlier run");
    assert!(!Path::new(new.path()).exists());
    let twice = ["-o", "/dev/null", "--export-json", "/dev/null"];
    success(tool(&[&run[..], &twice].concat()));
}

#[test]
fn the_time_of_day_is_that_of_the_zone() {
    let hour = |zone: &str| {
        let mut tool = tool(&["-T", "syscall", "-S", "--duration", "10ms"]);
        tool.env("TZ", zone);
        let report = output(tool).stdout;
        let (hour, _) = report.split_once(':').unwrap_or_else(|| panic!("no time: {report}"));
        hour.parse::<u32>().unwrap()
    };
    if !Path::new("/usr/share/zoneinfo/Asia/Tokyo").exists() {
        assert!(hour("JST-9") < 24);
        return;
    }
    // An hour may begin between the two.
    let differs = (0..2).any(|_| (hour("UTC") + 9) % 24 == hour("Asia/Tokyo"));
    assert!(differs, "Asia/Tokyo is taken for UTC");
}

/// A terminal sends Ctrl-C to all of its processes.
#[test]
fn a_check_that_is_interrupted_leaves_nothing() {
    let folder = Folder::new("cli-check");
    let is_empty = || fs::read_dir(&folder).unwrap().next().is_none();
    let mut check = tool(&["--check", "-T", "syscall"]);
    check.env("TMPDIR", &*folder).process_group(0);
    check.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = check.spawn().unwrap();
    let begun = wait_for("the directory", LIMIT, || !is_empty());
    let group = nix::unistd::Pid::from_raw(-child.id().cast_signed());
    nix::sys::signal::kill(group, Signal::SIGINT).unwrap();
    child.wait().unwrap();
    begun.unwrap();
    wait_for("the directory to be taken away", LIMIT, is_empty).unwrap();
}

/// The JSON reports of a run that prints one or more.
fn json(lines: &str) -> Vec<serde_json::Value> {
    let reports = schema::reports(lines).unwrap_or_else(|error| panic!("{error}"));
    assert!(!reports.is_empty(), "no report");
    reports
}

#[test]
fn json_is_a_line_for_each_interval() {
    let output = success(tool(&["-T", "syscall", "--json", "0.05", "3"]));
    assert_eq!(json(&output.stdout).len(), 3);
    assert_eq!(output.stderr, "Tracing syscall latency... Hit Ctrl-C to end.\n");
}

#[test]
fn a_report_can_be_a_line() {
    for (layers, heading) in [(&["-T", "syscall,blk"][..], 2), (&[], 1)] {
        let output = success(tool(&[layers, &["--oneline", "0.1", "4"]].concat()));
        let lines: Vec<&str> = output.stdout.lines().collect();
        let is_time = |line: &&&str| line.as_bytes().get(2) == Some(&b':') && line.as_bytes().get(5) == Some(&b':');
        assert_eq!(lines.iter().filter(is_time).count(), 4, "{output:?}");
        assert!(lines[heading - 1].starts_with("time "), "{output:?}");
        // A line with what deserves attention may follow.
        let rest = &lines[heading..];
        assert!(
            rest.iter().all(|line| is_time(&line) || !line.starts_with("time ")),
            "{output:?}"
        );
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{output:?}");
    }
}

#[test]
fn json_has_every_requested_layer_and_op() {
    // The whole stack includes tmpfs only if it is named.
    let output = success(tool(&["-T", "all,tmpfs", "--json", "--duration", "10ms"]));
    let report = &json(&output.stdout)[0];
    for layer in iostackbreakdown::catalog::Layer::ALL {
        let reported = schema::array(&report["layers"])
            .iter()
            .find(|reported| reported["layer"] == layer.name());
        if !layer.file_system().is_none_or(has_mounted) {
            assert_eq!(reported, None);
            continue;
        }
        let reported = reported.unwrap_or_else(|| panic!("no {}: {report}", layer.name()));
        let mut ops: Vec<&str> = schema::array(&reported["ops"])
            .iter()
            .filter_map(|op| op["op"].as_str())
            .collect();
        let mut table: Vec<&str> = layer.ops().iter().map(|spec| spec.op.name()).collect();
        // Those that could not be measured follow the others.
        ops.sort_unstable();
        table.sort_unstable();
        assert_eq!(ops, table, "{}", layer.name());
    }
    validator::strict(std::slice::from_ref(report)).unwrap();
}

/// These options affect text only, so `--json` can be added to any command line.
#[test]
fn json_ignores_how_text_would_look() {
    for options in [&["-m"][..], &["-u", "-S"], &["--verbose"]] {
        let arguments = [&["-T", "syscall", "--json", "-o", "-"], options, &["--", "ls", "/"]].concat();
        let output = success(tool(&arguments));
        let (line, listing) = (output.stdout.lines()).partition::<Vec<&str>, _>(|line| line.starts_with('{'));
        assert!(!listing.is_empty(), "{output:?}");
        let report = &json(&format!("{}\n", line.join("\n")))[0];
        let close = schema::layers(report)
            .flat_map(schema::ops)
            .find(|op| op["op"] == "close")
            .unwrap();
        assert!(schema::number(&close["count"]) > 0, "{report}");
        // Less than it takes to start a program: the time would be far larger, had it been counted in these units.
        assert!(
            schema::number(&close["min_ns"]) > 10 && !schema::array(&close["buckets"]).is_empty(),
            "{close}"
        );
    }
}

#[test]
fn json_of_a_command_goes_to_stderr_and_names_it() {
    let output = output(tool(&["-T", "syscall", "--json", "--", "sh", "-c", "exit 7"]));
    assert_status(&output, 7);
    assert_eq!(output.stdout, "");
    let (banner, line) = output.stderr.split_once('\n').unwrap();
    assert!(banner.starts_with(BANNER), "{output:?}");
    let report = &json(line)[0];
    assert_eq!(report["filter"]["command"], serde_json::json!(["sh", "-c", "exit 7"]));
    assert_eq!(report["filter"]["follow"], true);
    assert_eq!(report["subject"], "'sh -c exit 7'");
}

#[test]
fn json_goes_to_the_named_file() {
    let file = Scratch::file("report.json", "of an earlier run");
    let output = success(tool(&[
        "-T",
        "syscall",
        "--json",
        "--duration",
        "10ms",
        "-o",
        file.path(),
    ]));
    assert_eq!(output.stdout, "");
    assert_eq!(json(&fs::read_to_string(file.path()).unwrap()).len(), 1);
}

#[test]
fn json_meets_a_closed_pipe_and_a_full_disk_as_text_does() {
    let script = r#"{ "$@"; echo "status $?" >&2; } | head -1"#;
    let output = output(shell(script, &["-T", "syscall", "--json", "0.1", "50"]));
    let banner = "Tracing syscall latency... Hit Ctrl-C to end.";
    assert_eq!(output.stderr, format!("{banner}\nstatus 0\n"));
    assert_eq!(json(&output.stdout).len(), 1);
    let json_of = ["-T", "syscall", "--json", "--duration", "10ms"];
    let full = shell(r#"exec "$@" >/dev/full"#, &json_of);
    assert_fails(full, 1, "error: cannot write the report to stdout: No space left");
    let full = tool(&[&json_of[..], &["-o", "/dev/full"]].concat());
    assert_fails(full, 1, "error: cannot write '/dev/full': No space left");
}

#[test]
fn without_privileges_it_names_them() {
    // The build's own directory may be inaccessible to other users.
    let copy = Scratch::copy("tool", TOOL);
    const NOBODY: u32 = 65534;
    let mut command = Command::new(copy.path());
    command.args(["-T", "syscall"]).uid(NOBODY).gid(NOBODY);
    assert_fails(command, 1, UNPRIVILEGED);
}

/// Any arguments end with a documented status and without a panic. The same ones are used in every run.
#[test]
fn garbage_is_refused_in_order() {
    #[rustfmt::skip]
    const WORDS: [&str; 55] = [
        "-T", "--type", "syscall", "vfs", "ext4", "blk", "all", "syscall,vfs", ",", "-p", "1", "0", "-1", "4194305",
        "99999999999999999999", "-f", "-d", "nvme77n1", "/dev/null", "-Q", "--cgroup", "/", "/nonexistent", "--comm",
        "x", "", "-m", "-u", "-S", "--all-files", "0.01", "1e300", "1e19", "-o", "/nonexistent/file", "/dev/full",
        "--verbose", "--probe", "auto", "kprobe", "fentry", "tracepoint", "kprobe-event", "--without", "vfs_read",
        "--vmlinux", "--starts", "64", "\u{1F4A5}", "-", "--", "true", "--user", "1e9h", "--json",
    ];
    /// Valid arguments must end by themselves.
    const ENDS: [&str; 6] = ["10ms", "10ms", "10ms", "0ms", "1e9x", "1us"];
    const VECTORS: usize = 300;
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    // Some of them are files to write to.
    let folder = Scratch::new("garbage");
    fs::create_dir(folder.path()).unwrap();
    for _ in 0..VECTORS {
        let mut arguments: Vec<&str> = (0..next(7)).map(|_| WORDS[next(WORDS.len())]).collect();
        let end = arguments
            .iter()
            .position(|word| *word == "--")
            .unwrap_or(arguments.len());
        arguments.splice(end..end, ["--duration", ENDS[next(ENDS.len())]]);
        let mut command = tool(&arguments);
        command.current_dir(folder.path());
        let output = run(&mut command, LIMIT).unwrap_or_else(|e| panic!("{arguments:?}: {e}"));
        let status = output.status.code();
        let with_command = arguments.contains(&"--");
        let expected = matches!(status, Some(0..=2)) || with_command && matches!(status, Some(125..=127));
        assert!(expected, "{arguments:?}: {:?}\n{}", output.status, output.stderr);
        assert!(!output.stderr.contains("panicked"), "{arguments:?}: {}", output.stderr);
        assert_eq!(output.status.signal(), None, "{arguments:?}");
        if status != Some(0) {
            let errors = output.stderr.lines().filter(|line| line.starts_with("error: ")).count();
            assert!(errors == 1 || with_command, "{arguments:?}: {}", output.stderr);
        }
    }
}

/// A file that is removed with the test.
struct Scratch(String);

impl Scratch {
    fn new(name: &str) -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let file = format!("iosb-cli-{}-{number}-{name}", std::process::id());
        Self(std::env::temp_dir().join(file).to_str().unwrap().into())
    }

    fn file(name: &str, content: &str) -> Self {
        let scratch = Self::new(name);
        fs::write(&scratch.0, content).unwrap();
        scratch
    }

    fn copy(name: &str, of: &str) -> Self {
        let scratch = Self::new(name);
        // Another process writes it: a concurrent fork of another test would inherit a descriptor open for writing, and
        // the file could not be executed.
        let copied = Command::new("install").args(["-m", "755", of, &scratch.0]).status();
        assert!(copied.as_ref().is_ok_and(ExitStatus::success), "{copied:?}");
        scratch
    }

    fn path(&self) -> &str {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0).or_else(|_| fs::remove_dir_all(&self.0));
    }
}

#[test]
fn no_output_is_written_over_what_it_is_made_from() {
    let (run, hard) = (Scratch::file("input.json", ""), Scratch::new("input-hard"));
    let path = run.path();
    success(tool(&["--json", "--duration", "10ms", "-o", path]));
    fs::hard_link(path, hard.path()).unwrap();
    let other = Scratch::file("input-other.json", &fs::read_to_string(path).unwrap());
    let kept = fs::read(path).unwrap();
    let page = ["--html", hard.path()];
    for (arguments, input, [option, file]) in [
        ([&["compare", path, other.path()], &page[..]].concat(), "BEFORE", page),
        ([&["compare", other.path(), path], &page[..]].concat(), "AFTER", page),
        (
            vec!["--from-snapshots", path, "-o", path],
            "--from-snapshots",
            ["-o", path],
        ),
    ] {
        let (status, line) = failure(tool(&arguments));
        let expected =
            format!("error: {input} '{path}' and {option} '{file}' name one file; give one of them another name");
        assert_eq!((status, line), (2, expected));
        assert!(fs::read(path).unwrap() == kept, "{arguments:?}");
    }
    let new = Scratch::new("input-page");
    success(tool(&["compare", path, path, "--html", new.path()]));
}

#[test]
fn compare_reads_two_reports_or_says_what_is_wrong_with_them() {
    let run = Scratch::file("compared.json", "");
    let path = run.path();
    success(tool(&["--json", "--duration", "10ms", "-o", path]));
    let reported = success(tool(&["compare", path, path]));
    assert!(reported.stdout.starts_with("before  20"), "{reported:?}");
    assert!(
        reported.stdout.lines().all(|line| line.trim_end() == line),
        "{reported:?}"
    );
    let garbage = Scratch::file("garbage.json", "");
    fs::write(garbage.path(), [0xff, 0, b'{', 0x80]).unwrap();
    for (arguments, status, beginning) in [
        (
            &["compare", path, "/nonexistent"][..],
            1,
            "error: cannot read '/nonexistent': ",
        ),
        (&["compare", garbage.path(), path], 1, "error: line 1 of '"),
        (&["compare", path, "/dev/null"], 1, "error: '/dev/null' is a device"),
        (
            &["compare", path, "/"],
            1,
            "error: '/' is a directory; compare takes two files written by --json or --html, or two recordings",
        ),
        (
            &["compare", path],
            2,
            "error: compare takes two files written by --json or --html",
        ),
    ] {
        let (got, line) = failure(tool(arguments));
        assert!(
            got == status && line.starts_with(beginning),
            "{arguments:?}: {got} {line}"
        );
    }
    for arguments in [&["compare", path, path][..], &["--help"]] {
        assert_fails(
            shell(r#"exec "$@" >/dev/full"#, arguments),
            1,
            "error: cannot write to standard output: No space left",
        );
    }
}
