//! Reports computed from saved counters equal those of the run, byte by byte. Run it as root.

mod folder;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use folder::Folder;

const TOOL: &str = env!("CARGO_BIN_EXE_IOStackBreakdown");
/// A user without privileges or files.
const NOBODY: u32 = 65_534;

/// Runs with every view that this machine's kernel supports. Reports go to `out`.
const RUNS: &[&[&str]] = &[
    &[],
    &["--verbose"],
    &["-T", "syscall"],
    &["-T", "syscall,blk", "-Q"],
    &["-T", "syscall", "-u"],
    &["-T", "syscall", "-m", "-S"],
    &["-T", "blk", "-Q", "-S"],
    &["--by", "process"],
    &["--by", "file", "--top", "1"],
    &["-T", "syscall", "--by", "disk"],
    &["--folded"],
    &["--all-files"],
    &["--budget", "90"],
    &["--slower", "0"],
    &["--slower", "50us", "--verbose"],
];

/// Calls of several families, on several files, one of which fails, for longer than an interval.
fn workload(folder: &Path) -> Vec<String> {
    let folder = folder.display();
    let script = format!(
        "for i in 1 2 3; do dd if=/dev/zero of={folder}/$i bs=4096 count=64 conv=fsync; cat {folder}/$i; cat {folder}/none; sleep 0.2; done"
    );
    ["--", "sh", "-c", &script].map(str::to_owned).to_vec()
}

fn run(arguments: &[String], command: &[String]) {
    let mut tool = Command::new(TOOL);
    succeed(tool.env("TZ", "Asia/Kolkata").args(arguments).args(command));
}

fn succeed(tool: &mut Command) -> Output {
    let done = tool.output().unwrap();
    assert!(
        done.status.success(),
        "{tool:?}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    done
}

/// The tool in a directory where every user may run it: the build directory may be inaccessible.
struct Reader(PathBuf);

impl Reader {
    fn new(name: &str) -> Self {
        let copy = PathBuf::from(format!("/tmp/iosb-{name}-{}", std::process::id()));
        fs::copy(TOOL, &copy).unwrap();
        fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
        Self(copy)
    }

    /// Its output for a user who may only read the file.
    fn read_back(&self, arguments: &[String]) -> Vec<u8> {
        let mut tool = Command::new(&self.0);
        succeed(
            tool.env("TZ", "America/New_York")
                .args(arguments)
                .uid(NOBODY)
                .gid(NOBODY),
        )
        .stdout
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn assert_same(reader: &Reader, name: &str, options: &[&str]) {
    let folder = Folder::new(&format!("snapshots-{name}"));
    let (saved, printed) = (
        Path::new("/tmp").join(format!("iosb-snapshots-{name}-{}", std::process::id())),
        folder.join("out"),
    );
    let with = |option: &str, path: &Path| -> Vec<String> {
        let own = options.iter().copied().chain([option]).map(str::to_owned);
        own.chain([path.display().to_string()]).collect()
    };
    let mut arguments = with("--save-snapshots", &saved);
    arguments.extend(["-o".to_owned(), printed.display().to_string()]);
    run(&arguments, &workload(&folder));
    let printed = fs::read(&printed).unwrap();
    assert!(printed.len() > 40, "{name}: {}", String::from_utf8_lossy(&printed));
    let again = with("--from-snapshots", &saved);
    for _ in 0..2 {
        let back = reader.read_back(&again);
        assert_eq!(
            String::from_utf8_lossy(&back),
            String::from_utf8_lossy(&printed),
            "{name}"
        );
    }
    // A truncated file is an error, in one line.
    let bytes = fs::read(&saved).unwrap();
    fs::write(&saved, &bytes[..bytes.len() - 9]).unwrap();
    let cut = Command::new(TOOL).args(&again).output().unwrap();
    let error = String::from_utf8_lossy(&cut.stderr).into_owned();
    assert_eq!((cut.status.code(), error.lines().count()), (Some(1), 1), "{error}");
    assert!(error.starts_with("error: cannot read '"), "{error}");
    fs::remove_file(&saved).unwrap();
}

#[test]
fn text_is_the_same() {
    let reader = Reader::new("text");
    for (number, options) in RUNS.iter().enumerate() {
        assert_same(&reader, &format!("text-{number}"), options);
    }
}

#[test]
fn json_is_the_same() {
    let reader = Reader::new("json");
    for (number, options) in RUNS
        .iter()
        .enumerate()
        .filter(|(_, options)| !options.contains(&"--folded"))
    {
        let options: Vec<&str> = options.iter().copied().chain(["--json"]).collect();
        assert_same(&reader, &format!("json-{number}"), &options);
    }
}

/// JSON in addition to the text, of the same run.
#[test]
fn a_run_has_several_views() {
    let reader = Reader::new("views");
    let folder = Folder::new("snapshots-views");
    let path = |name: &str| folder.join(name).display().to_string();
    let saved = format!("/tmp/iosb-snapshots-views-{}", std::process::id());
    let (text, json) = (path("text"), path("json"));
    let arguments = ["0.3", "--save-snapshots", &saved, "-o", &text, "--export-json", &json];
    run(&arguments.map(str::to_owned), &workload(&folder));
    let of = |options: &[&str]| {
        let arguments = options.iter().copied().chain(["0.3", "--from-snapshots", &saved]);
        String::from_utf8(reader.read_back(&arguments.map(str::to_owned).collect::<Vec<_>>())).unwrap()
    };
    assert_eq!(fs::read_to_string(&text).unwrap(), of(&[]));
    let lines = fs::read_to_string(&json).unwrap();
    assert!(lines.lines().count() > 1, "{lines}");
    assert_eq!(lines, of(&["--json"]));
    // The text has notes once; JSON has each in every report.
    let reports: Vec<serde_json::Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(
        reports
            .iter()
            .all(|report| report["warnings"] == reports[0]["warnings"])
    );
    fs::remove_file(&saved).unwrap();
}

#[test]
fn intervals_are_the_same() {
    let reader = Reader::new("intervals");
    assert_same(&reader, "interval", &["0.3"]);
    assert_same(&reader, "oneline", &["--oneline", "0.3"]);
    assert_same(&reader, "interval-json", &["--json=compact", "0.3"]);
    assert_same(&reader, "interval-by", &["--by", "process", "0.3"]);
    assert_same(&reader, "interval-layers", &["-T", "syscall,blk", "0.3"]);
}

type Passes<'a> = &'a dyn Fn(&serde_json::Value) -> bool;

/// Saved slow calls can be selected; there are no counters, since those are of all calls.
#[test]
fn slow_calls_are_selected_later() {
    let folder = Folder::new("snapshots-filter");
    let saved = folder.join("saved").display().to_string();
    let json = folder.join("json").display().to_string();
    let keep = ["--slower", "0", "--save-snapshots", &saved, "--json", "-o", &json];
    run(&keep.map(str::to_owned), &workload(&folder));
    let lines = |text: &str| -> Vec<serde_json::Value> {
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let all = lines(&fs::read_to_string(&json).unwrap());
    let calls: Vec<&serde_json::Value> = all.iter().filter_map(|line| line.get("slow_call")).collect();
    assert!(calls.len() > 400, "{}", calls.len());
    let median = {
        let mut lengths: Vec<u64> = calls.iter().map(|call| call["total_ns"].as_u64().unwrap()).collect();
        lengths.sort_unstable();
        lengths[lengths.len() / 2]
    };
    let by_length = |call: &serde_json::Value| call["total_ns"].as_u64() >= Some(median);
    let by_name = |call: &serde_json::Value| call["comm"] == "dd";
    let length = format!("{median}ns");
    let kinds: [(&[&str], Passes<'_>); 2] = [(&["--slower", &length], &by_length), (&["--comm", "dd"], &by_name)];
    for (options, passes) in kinds {
        let arguments = options.iter().copied().chain(["--json", "--from-snapshots", &saved]);
        let back = succeed(Command::new(TOOL).args(arguments));
        let back = lines(&String::from_utf8(back.stdout).unwrap());
        let expected: Vec<&serde_json::Value> = calls.iter().copied().filter(|call| passes(call)).collect();
        let selected: Vec<&serde_json::Value> = back.iter().filter_map(|line| line.get("slow_call")).collect();
        assert!(!expected.is_empty() && expected.len() < calls.len(), "{options:?}");
        assert!(
            selected == expected,
            "{options:?}: {} of {}",
            selected.len(),
            expected.len()
        );
    }
    let mut none = Command::new(TOOL);
    let none = succeed(none.args(["--json", "--comm", "nobody", "--from-snapshots", &saved]));
    let none = lines(&String::from_utf8(none.stdout).unwrap());
    assert!(none.iter().all(|line| line.get("slow_call").is_none()), "{none:?}");
}
