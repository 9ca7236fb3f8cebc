//! `replay`: natively recorded programs, and recordings that are made here, among them hostile ones. Run it as root.

mod chroot;
mod left_out;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use iostackbreakdown::model::ids::{Op, ReadClass};
use iostackbreakdown::model::record::{Call, GivenPath, OpenFile, Records};
use iostackbreakdown::model::recording::{Meta, Names};
use iostackbreakdown::model::report::slow::{CallPath, Inode};
use iostackbreakdown::recording::{Limits, Recording, Writer};
use iostackbreakdown::replay::does::{Does, does};
use iostackbreakdown::replay::load::{Loaded, Selection};
use iostackbreakdown::replay::order::Order;
use iostackbreakdown::replay::path::Roots;
use iostackbreakdown::replay::plan;
use left_out::left_out;
use serde_json::Value;

const TOOL: &str = env!("CARGO_BIN_EXE_IOStackBreakdown");
/// The user that replays run as.
const NOBODY: u32 = 65534;

/// What is below a directory: mode, size, blocks and content of each path.
type State = BTreeMap<PathBuf, (u32, u64, u64, Option<Vec<u8>>)>;

/// A directory for one test: a recording, a directory to replay into, and a tree beside it that must never change.
struct Scene {
    base: PathBuf,
}

impl Scene {
    fn new(name: &str) -> Self {
        // Below it every user can reach what is there.
        let base = PathBuf::from("/var/tmp").join(format!("iosb-replay-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&base);
        for folder in ["into", "canary/below", "work"] {
            fs::create_dir_all(base.join(folder)).unwrap();
        }
        fs::write(base.join("canary/below/file"), "canary").unwrap();
        let scene = Self { base };
        for own in ["into", "canary", "canary/below", "canary/below/file"] {
            chown(scene.path(own), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.base.join(name)
    }

    fn tool(&self, words: &[&str]) -> Output {
        let mut tool = Command::new(TOOL);
        tool.current_dir(&self.base).args(words).output().unwrap()
    }

    /// Replays `x.iosb` with more words.
    fn replay(&self, words: &[&str]) -> (Option<i32>, String, String) {
        let all = [&["replay", "x.iosb", "--into", "into", "--user", "nobody"], words].concat();
        let output = self.tool(&all);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(!err.contains("panicked"), "{err}");
        (output.status.code(), out, err)
    }

    /// What a replay that succeeds prints.
    fn succeed(&self, words: &[&str]) -> (String, String) {
        let (status, out, err) = self.replay(words);
        assert_eq!(status, Some(0), "{words:?}: {err}");
        (out, err)
    }

    /// The result as JSON.
    fn result(&self, words: &[&str]) -> Value {
        let (out, _) = self.succeed(&[words, &["--json"]].concat());
        let line: Value = serde_json::from_str(&out).unwrap();
        line["replay"].clone()
    }

    /// Everything below a directory: kinds, sizes, blocks and contents.
    fn state(&self, name: &str) -> State {
        fn add(path: &Path, all: &mut State) {
            let state = fs::symlink_metadata(path).unwrap();
            let is_small = state.is_file() && state.len() < 1 << 20;
            let content = is_small.then(|| fs::read(path).unwrap());
            let size = if state.is_file() { state.len() } else { 0 };
            let blocks = if state.is_file() { state.blocks() } else { 0 };
            all.insert(path.to_owned(), (state.mode(), size, blocks, content));
            if state.is_dir() {
                for entry in fs::read_dir(path).unwrap() {
                    add(&entry.unwrap().path(), all);
                }
            }
        }
        let mut all = BTreeMap::new();
        add(&self.path(name), &mut all);
        all
    }

    fn write(&self, records: Records) {
        let meta = Meta {
            schema: 1,
            has_records: true,
            host: "db7".to_owned(),
            kernel: "6.1.0".to_owned(),
            ..Meta::default()
        };
        let end = 1 << 40;
        let mut writer = Writer::create(&self.path("x.iosb"), meta, Names::Full, Limits::default()).unwrap();
        writer.records(records, end).unwrap();
        writer.end("test", end).unwrap();
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.base);
    }
}

/// A recording whose calls follow each other.
#[derive(Default)]
struct Made {
    records: Records,
}

impl Made {
    fn call(&mut self, op: Op, value: i64, path: Option<&str>) -> &mut Call {
        let begin_ns = 1_000_000 + self.records.calls.len() as u64 * 20_000;
        self.records.calls.push(Call {
            tid: 7,
            pid: 7,
            begin_ns,
            end_ns: Some(begin_ns + 1000),
            op,
            value,
            ..Call::default()
        });
        let call = self.records.calls.last_mut().unwrap();
        if let Some(path) = path {
            call.paths.get_or_insert_default().first = Some(GivenPath::new(path, 0));
        }
        call
    }

    fn second(&mut self, path: &str) {
        let paths = self.records.calls.last_mut().unwrap().paths.as_mut().unwrap();
        paths.second = Some(GivenPath::new(path, 0));
    }

    /// An open file that some call uses.
    fn define(&mut self, number: u32, path: &str, mode: u32, size: u64, blocks: u64) {
        self.records.files.push(OpenFile {
            number,
            at_ns: 1_000_000,
            inode: Some(Inode::on([8, 1], u64::from(number) + 50)),
            mode,
            links: 1,
            size,
            blocks,
            flags: 2,
            path: Some(CallPath::whole(path)),
            ..OpenFile::default()
        });
    }

    fn open(&mut self, number: u32, path: &str, flags: u64, (mode, size, blocks): (u32, u64, u64)) {
        self.define(number, path, mode, size, blocks);
        let call = self.call(Op::Openat, 3, Some(path));
        (call.files[0], call.extra) = (number, flags);
    }

    fn at(&mut self, op: Op, number: u32, offset: u64, bytes: i64) {
        let call = self.call(op, bytes, None);
        (call.files[0], call.offset, call.size) = (number, Some(offset), Some(bytes.unsigned_abs()));
    }
}

const REGULAR: u32 = 0o100_644;

/// Calls on a few files: reads, writes, renames and removals.
fn usual() -> Made {
    let mut made = Made::default();
    made.open(1, "/srv/db/table", 2, (REGULAR, 300_000, 592));
    made.at(Op::Pread64, 1, 8192, 4096);
    made.at(Op::Pwrite64, 1, 4096, 4096);
    made.open(2, "/srv/db/log", 0o101, (REGULAR, 0, 0));
    made.at(Op::Write, 2, 0, 5000);
    made.call(Op::Fsync, 0, None).files[0] = 2;
    made.call(Op::Rename, 0, Some("/srv/db/log"));
    made.second("/srv/db/log.1");
    made.call(Op::Mkdir, 0, Some("/srv/new")).extra = 0o755;
    made.open(3, "/srv/sparse", 2, (REGULAR, 1 << 40, 16));
    made.at(Op::Pread64, 3, 1 << 39, 8192);
    made.call(Op::Stat, -2, Some("/srv/nothing"));
    made.open(4, "/srv/old", 0, (REGULAR, 10, 8));
    made.call(Op::Unlink, 0, Some("/srv/old"));
    made
}

#[test]
fn sizes_and_blocks_are_exact_and_a_second_run_restores_what_the_first_one_changed() {
    let scene = Scene::new("prepare");
    scene.write(usual().records);
    scene.succeed(&["--prepare"]);
    let before = scene.state("into");
    let of = |name: &str| {
        let (_, size, blocks, _) = &before[&scene.path("into").join(name)];
        (*size, *blocks)
    };
    assert_eq!(of("srv/db/table"), (300_000, 592));
    assert_eq!(of("srv/sparse"), (1 << 40, 16));
    assert_eq!(of("srv/old").0, 10);
    for absent in ["srv/db/log", "srv/nothing", "srv/new"] {
        assert!(!scene.path("into").join(absent).exists(), "{absent}");
    }
    let table = &before[&scene.path("into/srv/db/table")].3.as_ref().unwrap();
    assert!(
        table[8192..8192 + 4096].iter().any(|byte| *byte != 0),
        "what is read is data"
    );
    let result = scene.result(&["--strict", "-s", "0"]);
    assert_eq!(result["equal"], result["recorded_calls"], "{result:#}");
    assert!(result["lateness"].is_null());
    assert!(scene.path("into/srv/db/log.1").exists() && !scene.path("into/srv/old").exists());
    // Only what the run changed: the table and the removed file.
    let sparse = fs::metadata(scene.path("into/srv/sparse")).unwrap().ino();
    let (_, _, err) = scene.replay(&["--prepare"]);
    assert!(
        err.contains("in 2 files") && err.contains("1 unchanged, 2 removed"),
        "{err}"
    );
    assert_eq!(fs::metadata(scene.path("into/srv/sparse")).unwrap().ino(), sparse);
    let after = scene.state("into");
    let shape = |state: &State| -> Vec<(PathBuf, u32, u64, u64)> {
        let files = state.iter().filter(|(path, _)| !path.ends_with(".iosb-replay"));
        files
            .map(|(path, (mode, size, blocks, _))| (path.clone(), *mode, *size, *blocks))
            .collect()
    };
    assert_eq!(shape(&after), shape(&before));
    // A file that is not the replay's stays, with the directories that it is in.
    fs::write(scene.path("into/srv/db/mine"), "mine").unwrap();
    let (_, err) = scene.succeed(&["--clean"]);
    let left: Vec<PathBuf> = scene.state("into").into_keys().collect();
    let names = ["into", "into/srv", "into/srv/db", "into/srv/db/mine"];
    assert_eq!(left, names.map(|name| scene.path(name)));
    assert!(err.contains("left: 2 directories"), "{err}");
    fs::remove_dir_all(scene.path("into/srv")).unwrap();
    scene.replay(&["--prepare", "--quiet"]);
    scene.replay(&["--clean"]);
    assert_eq!(scene.state("into").len(), 1, "nothing is left");
}

#[test]
fn the_room_of_what_is_there_now_is_taken_off_what_a_second_run_needs() {
    let scene = Scene::new("room");
    let mut made = Made::default();
    made.open(1, "/removed", 2, (REGULAR, 1 << 20, 1 << 11));
    made.call(Op::Unlink, 0, Some("/removed"));
    made.open(2, "/made", 0o102, (REGULAR, 0, 0));
    made.at(Op::Pwrite64, 2, 0, 2 << 20);
    scene.write(made.records);
    let needed = |words: &[&str]| {
        let (_, err) = scene.succeed(words);
        let (_, needed) = err.split_once("needed: ").unwrap();
        needed.split(" (").next().unwrap().to_owned()
    };
    assert_eq!(needed(&["-s", "0"]), "3.1 MB");
    // One file was removed, and the other one is replaced.
    assert_eq!(needed(&["--prepare"]), "1.0 MB");
    assert_eq!(needed(&["--prepare"]), "2.1 MB");
}

#[test]
fn directories_whose_permissions_a_replay_took_away_are_restored_and_removed() {
    let scene = Scene::new("modes");
    let mut made = Made::default();
    made.call(Op::Mkdir, 0, Some("/srv/made")).extra = 0o755;
    made.call(Op::Mkdir, 0, Some("/srv/made/below")).extra = 0o755;
    made.open(1, "/srv/made/below/new", 0o101, (REGULAR, 0, 0));
    made.call(Op::Stat, 0, Some("/srv/found/file"));
    for path in ["/srv/made/below", "/srv/made", "/srv/found"] {
        made.call(Op::Chmod, 0, Some(path)).extra = if path == "/srv/made" { 0 } else { 0o555 };
    }
    scene.write(made.records);
    let mode = |name: &str| fs::metadata(scene.path(name)).unwrap().mode() & 0o7777;
    for _ in 0..2 {
        scene.succeed(&["--prepare"]);
        assert_eq!(mode("into/srv/found"), 0o755);
        assert!(!scene.path("into/srv/made").exists());
        let (status, _, err) = scene.replay(&["-s", "0", "--strict"]);
        assert_eq!(
            (status, mode("into/srv/found"), mode("into/srv/made")),
            (Some(0), 0o555, 0),
            "{err}"
        );
    }
    let (status, _, err) = scene.replay(&["--clean"]);
    assert_eq!((status, scene.state("into").len()), (Some(0), 1), "{err}");
}

#[test]
fn a_mapped_directory_that_no_path_is_below_is_named() {
    let scene = Scene::new("maps");
    scene.write(usual().records);
    fs::create_dir(scene.path("other")).unwrap();
    chown(scene.path("other"), Some(NOBODY), Some(NOBODY)).unwrap();
    let unused = |old: &str| {
        let (_, err) = scene.succeed(&["--prepare", "--map", &format!("{old}=other")]);
        err.contains(&format!("no path of the recording is below '{old}'"))
    };
    assert_eq!(["/srv/db", "/srv/dbs"].map(unused), [false, true]);
}

#[test]
fn what_cannot_be_done_is_refused_before_anything_is_written() {
    let scene = Scene::new("refused");
    let mut made = usual();
    made.open(9, "/srv/large", 2, (REGULAR, 1 << 60, 1 << 51));
    scene.write(made.records);
    let refused = |words: &[&str], status: i32, part: &str| {
        let (is, _, err) = scene.replay(words);
        assert_eq!(is, Some(status), "{words:?}: {err}");
        let last = err.lines().last().unwrap_or_default();
        assert!(last.starts_with("error: ") && last.contains(part), "{words:?}: {err}");
    };
    refused(&[], 1, "is too small: 1.2 EB are needed, and ");
    assert_eq!(scene.state("into").len(), 1);
    refused(&["--clean"], 1, "has nothing of a replay");
    fs::write(scene.path("into/file"), "x").unwrap();
    refused(&[], 1, "is not empty and has no .iosb-replay");
    fs::write(scene.path("into/.iosb-replay"), "x\n").unwrap();
    refused(&[], 1, "is no list of what a replay made");
    let words = |words: &[&str]| scene.tool(words);
    let line = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    fs::create_dir(scene.path("closed")).unwrap();
    let root = words(&["replay", "x.iosb", "--into", "into"]);
    assert_eq!(root.status.code(), Some(2));
    assert!(line(&root).contains("--user NAME"));
    for (arguments, part) in [
        (["x.iosb", "/", "nobody"], "is the root of this machine"),
        (["x.iosb", "missing", "nobody"], "cannot use 'missing'"),
        (
            ["x.iosb", "into", "no-such-user"],
            "no user 'no-such-user' in /etc/passwd; a numeric user ID works, too",
        ),
        (["canary", "into", "nobody"], "is no recording"),
        (
            ["x.iosb", "closed", "nobody"],
            "user 65534, who makes the calls, cannot write to 'closed'",
        ),
    ] {
        let [recording, into, user] = arguments;
        let output = words(&["replay", recording, "--into", into, "--user", user]);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(
            line(&output).lines().last().unwrap().contains(part),
            "{}",
            line(&output)
        );
    }
}

#[test]
fn why_nothing_can_be_replayed_is_said() {
    let scene = Scene::new("nothing");
    scene.write(usual().records);
    let last = |err: &str| err.lines().last().unwrap_or_default().to_owned();
    let (status, _, err) = scene.replay(&["--threads", "999999"]);
    assert_eq!(status, Some(1));
    assert_eq!(last(&err), "error: no calls of thread 999999; threads with calls are 7");
    fs::write(scene.path("x.iosb/000001/calls.arrow"), "x").unwrap();
    let (status, _, err) = scene.replay(&[]);
    assert_eq!(status, Some(1));
    let damage = err.find("000001/calls.arrow: it has 1 bytes, and had ").unwrap();
    assert!(damage < err.find("error: ").unwrap(), "{err}");
    assert!(last(&err).ends_with("has no calls that can be read"), "{err}");
}

/// Paths that try to leave the directory, and names that are hard.
fn hostile(scene: &Scene) -> Made {
    let mut made = Made::default();
    let canary = scene.path("canary/below/file").display().to_string();
    let up = format!("/..{}", "/..".repeat(40));
    for (number, path) in [
        &canary,
        &format!("{up}{canary}"),
        "/srv/../../../canary/below/file",
        "/a\0b",
    ]
    .into_iter()
    .enumerate()
    {
        let number = number as u32 + 10;
        made.open(number, path, 0o1002, (REGULAR, 100, 8));
        made.at(Op::Pwrite64, number, 0, 100);
        made.call(Op::Truncate, 0, Some(path)).extra = 1;
        made.call(Op::Unlink, 0, Some(path));
        made.call(Op::Rmdir, -39, Some(&format!("{path}/..")));
    }
    let long = format!("/srv/{}/{}", "n".repeat(255), "m".repeat(255));
    made.open(30, &long, 2, (REGULAR, 100, 8));
    made.at(Op::Pread64, 30, 0, 100);
    // Links to the canary, and calls through them.
    for (name, text) in [
        ("/srv/l1", canary.as_str()),
        ("/srv/l2", "../../canary"),
        ("/srv/l3", "/.."),
    ] {
        made.call(Op::Symlink, 0, Some(name));
        made.second(text);
        made.call(Op::Truncate, 0, Some(name)).extra = 0;
        made.call(Op::Chmod, 0, Some(&format!("{name}/below"))).extra = 0;
        made.call(Op::Unlink, 0, Some(&format!("{name}/below/file")));
        made.call(Op::Rename, 0, Some(&format!("{name}/below")));
        made.second("/srv/taken");
    }
    // Devices and pipes are neither made nor opened.
    made.open(40, "/dev/sda", 2, (0o060_660, 0, 0));
    made.at(Op::Pwrite64, 40, 0, 4096);
    made.call(Op::Mknod, 0, Some("/srv/device")).extra = 0o060_666;
    made.open(41, "/srv/pipe", 0o101, (REGULAR, 0, 0));
    // A directory in itself, removals of the root, and descriptors that are none.
    made.call(Op::Rename, 0, Some("/srv"));
    made.second("/srv/below");
    for op in [Op::Rmdir, Op::Unlink] {
        made.call(op, 0, Some("/"));
        made.call(op, 0, Some("/.iosb-replay"));
    }
    made.at(Op::Read, 999, u64::MAX, i64::MAX);
    made.define(50, "/srv/negative", REGULAR, 10, 8);
    made.at(Op::Pread64, 50, u64::MAX - 5, 1);
    let fallocate = made.call(Op::Fallocate, -22, None);
    (fallocate.files[0], fallocate.offset, fallocate.size) = (50, Some(u64::MAX), Some(u64::MAX));
    made
}

#[test]
fn nothing_beside_the_directory_changes_whatever_is_recorded() {
    let scene = Scene::new("hostile");
    let mut made = hostile(&scene);
    // A size that its reads and blocks do not need.
    made.open(60, "/srv/huge", 2, (REGULAR, 1 << 40, 8));
    scene.write(made.records);
    let before = scene.state("canary");
    for words in [
        &["-s", "0"][..],
        &["-s", "0", "--order", "threads"],
        &["-s", "0", "--order", "total"],
        &["--clean"],
    ] {
        scene.succeed(words);
        assert_eq!(scene.state("canary"), before, "{words:?}");
    }
    assert_eq!(scene.state("into").len(), 1, "{:?}", scene.state("into").keys());
}

#[test]
fn links_and_pipes_that_others_put_into_the_directory_lead_nowhere() {
    let scene = Scene::new("swapped");
    let mut made = Made::default();
    made.define(1, "/srv/d/first", REGULAR, 10, 8);
    made.at(Op::Pread64, 1, 0, 10);
    for number in 2..2000 {
        made.open(number, "/srv/d/file", 0o1102, (REGULAR, 0, 0));
        made.at(Op::Pwrite64, number, 0, 10);
        made.call(Op::Close, 0, None).files[0] = number;
        made.call(Op::Chmod, 0, Some("/srv/d/file")).extra = 0o600;
        made.call(Op::Truncate, 0, Some("/srv/d/file")).extra = 1;
    }
    scene.write(made.records);
    scene.succeed(&["--prepare"]);
    let before = scene.state("canary");
    let stop = std::sync::atomic::AtomicBool::new(false);
    let folder = scene.path("into/srv/d");
    std::thread::scope(|scope| {
        let swapping = scope.spawn(|| {
            let (kept, file) = (scene.path("into/srv/kept"), folder.join("file"));
            let mut swaps = 0_u64;
            // The first call makes it; before, the replay prepares.
            while !file.exists() && !stop.load(std::sync::atomic::Ordering::Relaxed) {
                std::thread::yield_now();
            }
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = fs::rename(&folder, &kept);
                let _ = symlink(scene.path("canary/below"), &folder);
                let _ = fs::remove_file(&folder);
                let _ = fs::rename(&kept, &folder);
                let _ = fs::remove_file(&file);
                match swaps % 3 {
                    0 => drop(symlink(scene.path("canary/below/file"), &file)),
                    1 => drop(nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU)),
                    _ => {}
                }
                swaps += 1;
            }
            swaps
        });
        // 10,000 calls in a fifth of a second.
        let (status, out, err) = scene.replay(&["--json"]);
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        let swaps = swapping.join().unwrap();
        assert_eq!(status, Some(0), "{err}");
        let result = &serde_json::from_str::<Value>(&out).unwrap()["replay"];
        assert!(swaps > 20, "{swaps}");
        assert_eq!(result["done"], result["planned"]);
        assert!(
            result["equal"].as_u64() < result["done"].as_u64(),
            "it was disturbed: {result:#}"
        );
    });
    assert_eq!(scene.state("canary"), before);
}

/// Pages of a file that are in the page cache.
fn resident(path: &Path) -> Vec<usize> {
    use std::os::fd::AsRawFd;
    let file = fs::File::open(path).unwrap();
    let length = file.metadata().unwrap().len() as usize;
    let mut pages = vec![0_u8; length.div_ceil(4096)];
    // SAFETY: the mapping has this length, and the vector an element for each page; it is not read.
    unsafe {
        let at = libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        );
        assert_ne!(at, libc::MAP_FAILED);
        assert_eq!(libc::mincore(at, length, pages.as_mut_ptr()), 0);
        libc::munmap(at, length);
    }
    let all = pages.iter().enumerate();
    all.filter(|(_, page)| **page & 1 != 0)
        .map(|(index, _)| index)
        .collect()
}

#[test]
fn the_page_cache_has_what_it_had_when_recording() {
    let scene = Scene::new("cache");
    let mut made = Made::default();
    made.define(1, "/a", REGULAR, 1 << 20, 2048);
    for (page, class) in [
        (3, ReadClass::FromCache),
        (50, ReadClass::WaitedForOwn),
        (60, ReadClass::FromCache),
    ] {
        made.at(Op::Pread64, 1, page * 4096, 4096);
        made.records.calls.last_mut().unwrap().class = Some(class);
    }
    scene.write(made.records);
    let cached = |cache: &str| {
        scene.succeed(&["--prepare", "--cache", cache]);
        resident(&scene.path("into/a"))
    };
    assert_eq!(cached("as-recorded"), [3, 60]);
    assert!(cached("cold").is_empty());
    let unknown = Scene::new("unknown-cache");
    unknown.write(usual().records);
    let (status, _, err) = unknown.replay(&["--cache", "as-recorded"]);
    assert_eq!(status, Some(1));
    assert!(
        err.contains("does not say which reads came from the page cache"),
        "{err}"
    );
}

#[test]
fn a_replay_takes_the_recorded_time_divided_by_the_speed() {
    let scene = Scene::new("timing");
    let mut made = Made::default();
    made.define(1, "/a", REGULAR, 4096, 8);
    for number in 0..200 {
        made.at(Op::Pread64, 1, 0, 4096);
        let call = made.records.calls.last_mut().unwrap();
        call.begin_ns = 1_000_000 + number * 5_000_000;
        call.end_ns = Some(call.begin_ns + 3000);
    }
    scene.write(made.records);
    let recorded = 199.0 * 5e6 + 3000.0;
    for (speed, timing) in [
        ("0.5", "schedule"),
        ("1", "schedule"),
        ("2", "schedule"),
        ("2", "think"),
        ("10", "think"),
    ] {
        let expected = recorded / speed.parse::<f64>().unwrap();
        // Never faster; how much slower depends on what else this machine does, so the best of some attempts counts.
        let mut attempts = (0..4).map(|_| {
            let result = scene.result(&["-s", speed, "--timing", timing]);
            assert_eq!(result["equal"], 200);
            let took = result["took_ns"].as_f64().unwrap();
            assert!(took >= expected * 0.99, "{speed} {timing}: {took} {expected}");
            (result, took)
        });
        let soon = attempts.find(|(_, took)| *took < expected * 1.2 + 1e9);
        let (result, _) = soon.unwrap_or_else(|| panic!("{speed} {timing} takes longer than {expected} ns"));
        let late = &result["lateness"];
        assert!(
            late["p50_ns"].as_u64().is_some() && late["max_ns"].as_u64() >= late["p50_ns"].as_u64(),
            "{late}"
        );
    }
    let result = scene.result(&["-s", "0"]);
    assert!(result["took_ns"].as_f64().unwrap() < recorded / 2.0);
}

#[test]
fn a_different_result_is_status_3_if_none_may_differ() {
    let scene = Scene::new("strict");
    let mut made = usual();
    // It was removed by this recording before.
    made.call(Op::Stat, 0, Some("/srv/old"));
    made.call(Op::Chown, 0, Some("/srv/db"));
    scene.write(made.records);
    let (status, out, err) = scene.replay(&["--strict", "-s", "0"]);
    assert_eq!(status, Some(3), "{out}{err}");
    assert!(out.contains("different       stat 1: ENOENT"), "{out}");
    assert!(out.contains("not replayed    chown 1 (needs --owners)"), "{out}");
    let (status, ..) = scene.replay(&["-s", "0"]);
    assert_eq!(status, Some(0));
}

/// Makes every call that can be replayed, in a new directory, so that each leaves something for a later one.
#[test]
#[ignore = "what the test below records"]
#[allow(clippy::too_many_lines, reason = "a list of calls")]
fn every_call() {
    let folder = std::env::var_os("IOSB_WORK").expect("the test below runs it");
    std::env::set_current_dir(folder).unwrap();
    let c = |text: &str| CString::new(text).unwrap();
    let (a, b, d, l) = (c("a"), c("d/b"), c("d"), c("l"));
    let mut buffer = vec![7_u8; 8192];
    let at = buffer.as_mut_ptr().cast::<libc::c_void>();
    let text = buffer.as_mut_ptr().cast::<libc::c_char>();
    let mut state = vec![0_u64; 512];
    let room = state.as_mut_ptr().cast::<libc::stat>();
    let parts = [0, 1].map(|part| libc::iovec {
        iov_base: at.wrapping_byte_add(part * 4096),
        iov_len: 4096,
    });
    let iov = parts.as_ptr();
    // SAFETY: the buffers are large enough for what is read into them, and all names are terminated.
    unsafe {
        let cwd = libc::AT_FDCWD;
        libc::mkdir(d.as_ptr(), 0o755);
        libc::mkdirat(cwd, d.as_ptr(), 0o755);
        let fd = libc::open(a.as_ptr(), libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, 0o644);
        libc::open(a.as_ptr(), libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, 0o644);
        libc::open(c("nothing").as_ptr(), libc::O_RDONLY);
        let other = libc::openat(cwd, b.as_ptr(), libc::O_RDWR | libc::O_CREAT | libc::O_APPEND, 0o600);
        for _ in 0..3 {
            libc::write(fd, at, 8192);
            libc::write(other, at, 100);
        }
        libc::writev(fd, iov, 2);
        libc::pwrite(fd, at, 4096, 1 << 20);
        libc::pwritev(fd, iov, 2, 4096);
        libc::pwritev2(fd, iov, 2, 8192, 0);
        libc::lseek(fd, 100, libc::SEEK_SET);
        libc::read(fd, at, 8192);
        libc::readv(fd, iov, 2);
        libc::pread(fd, at, 4096, 1 << 20);
        libc::pread(fd, at, 4096, 1 << 30);
        libc::preadv(fd, iov, 2, 0);
        libc::preadv2(fd, iov, 2, 4096, 0);
        libc::read(other, at, 8192);
        libc::fsync(fd);
        libc::fdatasync(fd);
        libc::sync_file_range(fd, 0, 4096, libc::SYNC_FILE_RANGE_WRITE);
        libc::fallocate(fd, libc::FALLOC_FL_KEEP_SIZE, 2 << 20, 65536);
        libc::fallocate(fd, 0, 2 << 20, 65536);
        libc::ftruncate(fd, 3 << 20);
        libc::truncate(b.as_ptr(), 50);
        libc::fstat(fd, room);
        libc::stat(a.as_ptr(), room);
        libc::lstat(a.as_ptr(), room);
        libc::stat(c("nothing").as_ptr(), room);
        libc::syscall(libc::SYS_statx, cwd, a.as_ptr(), 0, libc::STATX_BASIC_STATS, room);
        libc::access(a.as_ptr(), libc::R_OK);
        libc::faccessat(cwd, c("none").as_ptr(), libc::F_OK, 0);
        libc::statfs(d.as_ptr(), room.cast());
        libc::fstatfs(fd, room.cast());
        libc::chmod(a.as_ptr(), 0o600);
        libc::fchmod(fd, 0o640);
        libc::fchmodat(cwd, b.as_ptr(), 0o644, 0);
        libc::utimensat(cwd, a.as_ptr(), std::ptr::null(), 0);
        libc::futimens(fd, std::ptr::null());
        libc::flistxattr(fd, text, 4096);
        libc::link(a.as_ptr(), c("a2").as_ptr());
        libc::link(a.as_ptr(), c("a2").as_ptr());
        libc::symlink(c("a2").as_ptr(), l.as_ptr());
        libc::readlink(l.as_ptr(), text, 4096);
        libc::readlink(a.as_ptr(), text, 4096);
        libc::rename(c("a2").as_ptr(), c("d/a3").as_ptr());
        libc::rename(c("a2").as_ptr(), c("d/a3").as_ptr());
        libc::syscall(
            libc::SYS_renameat2,
            cwd,
            a.as_ptr(),
            cwd,
            c("d/a3").as_ptr(),
            libc::RENAME_NOREPLACE,
        );
        libc::lseek(fd, 0, libc::SEEK_SET);
        libc::copy_file_range(fd, std::ptr::null_mut(), other, std::ptr::null_mut(), 4096, 0);
        // From its offset a copy has less than was wanted, and from the position all of it.
        let target = libc::open(c("copied").as_ptr(), libc::O_RDWR | libc::O_CREAT, 0o600);
        assert_eq!(libc::write(target, at, 100), 100);
        let (mut from, mut to) = ((3 << 20) - 200, 8192);
        assert_eq!(libc::sendfile64(target, fd, &raw mut from, 100), 100);
        assert_eq!(
            libc::copy_file_range(fd, &raw mut from, target, &raw mut to, 4096, 0),
            100
        );
        assert_eq!(libc::sendfile64(fd, target, &raw mut to, 100), 0);
        libc::close(target);
        let list = libc::open(d.as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY);
        while libc::syscall(libc::SYS_getdents64, list, at, 8192) > 0 {}
        libc::syncfs(list);
        libc::close(list);
        libc::unlink(l.as_ptr());
        libc::unlink(l.as_ptr());
        libc::rmdir(d.as_ptr());
        libc::unlinkat(cwd, c("d/a3").as_ptr(), 0);
        libc::unlink(b.as_ptr());
        libc::chdir(d.as_ptr());
        libc::close(libc::open(c("../a").as_ptr(), libc::O_RDONLY));
        libc::chdir(c("..").as_ptr());
        libc::unlinkat(cwd, d.as_ptr(), libc::AT_REMOVEDIR);
        libc::unlink(a.as_ptr());
        let duplicate = libc::dup(fd);
        libc::close(fd);
        libc::write(duplicate, at, 10);
        libc::lseek(duplicate, 0, libc::SEEK_SET);
        libc::fcntl(duplicate, libc::F_SETFL, libc::O_APPEND | libc::O_NOATIME);
        libc::write(duplicate, at, 10);
        libc::fcntl(duplicate, libc::F_SETFL, 0);
        libc::lseek(duplicate, 0, libc::SEEK_SET);
        libc::write(duplicate, at, 10);
        libc::fcntl(duplicate, libc::F_SETFL, libc::O_DIRECT);
        libc::pread(duplicate, at, 100, 1);
        libc::close(duplicate);
        libc::close(other);
    }
}

/// Records a command in the directory `work`.
fn record(scene: &Scene, name: &str, command: &[&str]) {
    record_layers(scene, name, "syscall", command);
}

fn record_layers(scene: &Scene, name: &str, layers: &str, command: &[&str]) {
    let all = [&["record", "-q", "-T", layers, "-o", name, "--"], command].concat();
    let mut tool = Command::new(TOOL);
    let output = tool
        .current_dir(&scene.base)
        .env("IOSB_WORK", scene.path("work"))
        .args(&all)
        .output()
        .unwrap();
    let recording = Recording::open(&scene.path(name));
    assert!(recording.is_ok(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The calls of each thread that a replay makes or has made, in their order: what they do, and their error or 0.
fn calls(recording: &Path, is_replay: bool) -> BTreeMap<u32, Vec<(Does, i64)>> {
    const PATH: u32 = 0o10_000_000;
    const SET_FLAGS: u64 = libc::F_SETFL as u64;
    let recording = Recording::open(recording).unwrap();
    let mut records = Records::default();
    recording.batches(None, None).for_each(|batch| records.append(batch));
    records.calls.sort_by_key(|call| call.begin_ns);
    let threads: BTreeMap<u32, &str> = records
        .threads
        .iter()
        .map(|thread| (thread.tid, thread.comm.as_str()))
        .collect();
    // Those of directories, and what the C library reads of the machine.
    let is_of_system = |file: &OpenFile| {
        let path = file.path.as_ref().map_or("", |path| &path.text);
        is_replay && ["/sys/", "/proc/"].iter().any(|system| path.starts_with(system))
    };
    let helpers = records.files.iter();
    let helpers = helpers.filter(|file| file.flags & PATH != 0 || is_of_system(file));
    let helpers: std::collections::BTreeSet<u32> = helpers.map(|file| file.number).collect();
    let mut all: BTreeMap<u32, Vec<(Does, i64)>> = BTreeMap::new();
    let comm_of = |call: &Call| threads.get(&call.tid).copied().unwrap_or_default();
    // What was open before is opened by none of its threads.
    let opens =
        |call: &&Call| call.value >= 0 && does(call.op) == Ok(Does::Open) && comm_of(call).starts_with("replay-");
    let opened: std::collections::BTreeSet<u32> =
        records.calls.iter().filter(opens).map(|call| call.files[0]).collect();
    let found = records
        .files
        .iter()
        .map(|file| file.number)
        .filter(|number| !opened.contains(number));
    let mut not_used: std::collections::BTreeSet<u32> = found.collect();
    for call in &records.calls {
        let comm = comm_of(call);
        let tid = match comm.strip_prefix("replay-") {
            Some(tid) if is_replay => tid.parse().unwrap(),
            None if !is_replay => call.tid,
            _ => continue,
        };
        let Ok(mut what) = does(call.op) else { continue };
        // A change of the directory is replayed by fchdir, which is not recorded. Of fcntl, one command is replayed, and others
        // are calls of the replay itself: it duplicates descriptors.
        if what == Does::Chdir || what == Does::SetFlags && call.extra != SET_FLAGS {
            continue;
        }
        let has_path = call.paths.as_ref().and_then(|paths| paths.first.as_ref());
        if call.files[0] != 0 && has_path.is_none_or(|given| given.text.is_empty()) {
            what = what.on_open_file().unwrap_or(what);
        }
        if what == Does::Unlink && call.op == Op::Unlinkat && call.extra & 0x200 != 0 {
            what = Does::Rmdir;
        }
        if is_replay {
            // Directories that hold a name.
            if helpers.contains(&call.files[0]) {
                continue;
            }
            if what == Does::Open && call.value >= 0 {
                not_used.insert(call.files[0]);
            }
            // Before its first use it is looked at.
            let used = call.files[usize::from(what == Does::Sendfile)];
            if what.uses_file() && not_used.remove(&used) {
                let look = all.get_mut(&tid).and_then(Vec::pop);
                assert_eq!(look, Some((Does::Fstat, 0)), "before {what:?}");
            }
        }
        all.entry(tid).or_default().push((what, call.value.min(0)));
    }
    all
}

/// What calls do.
fn kinds(calls: &[(Does, i64)]) -> Vec<Does> {
    calls.iter().map(|(what, _)| *what).collect()
}

#[test]
fn a_recording_of_the_replay_has_the_same_calls_in_the_same_order() {
    let scene = Scene::new("again");
    let own = std::env::current_exe().unwrap();
    record(
        &scene,
        "x.iosb",
        &[own.to_str().unwrap(), "--exact", "every_call", "--ignored"],
    );
    let result = scene.result(&["-s", "0"]);
    assert_eq!(result["different"], Value::Array(Vec::new()), "{result:#}");
    assert_eq!(result["equal"], result["planned"]);
    assert!(result["planned"].as_u64() > Some(70), "{result:#}");
    let replay = [
        TOOL, "replay", "x.iosb", "--into", "into", "--user", "nobody", "-s", "0",
    ];
    record(&scene, "again.iosb", &replay);
    let (recorded, again) = (
        calls(&scene.path("x.iosb"), false),
        calls(&scene.path("again.iosb"), true),
    );
    // The thread that makes every call; what the others do with /proc and pipes is not replayed.
    let (tid, made) = recorded
        .iter()
        .map(|(tid, calls)| (tid, kinds(calls)))
        .max_by_key(|(_, calls)| calls.iter().filter(|what| **what == Does::Rename).count())
        .unwrap();
    let begin = made.iter().position(|what| *what == Does::Mkdir).unwrap();
    let replayed = kinds(&again[tid]);
    let begin_again = replayed.iter().position(|what| *what == Does::Mkdir).unwrap();
    let count = made[begin..].iter().rposition(|what| *what == Does::Rmdir).unwrap();
    assert!(count > 55, "{made:?}");
    assert_eq!(made[begin..begin + count], replayed[begin_again..begin_again + count]);
    let kinds: std::collections::BTreeSet<Does> = made.iter().copied().collect();
    assert!(kinds.len() >= 37, "{kinds:?}");
}

/// A call as strace prints it (`-ff -y`): what it does, whatever its form, and its result.
fn straced(line: &str) -> Option<(&str, String, &str)> {
    let (name, rest) = line.split_once('(')?;
    let (arguments, result) = rest.rsplit_once(" = ")?;
    let what = match name {
        "open" | "openat" | "openat2" | "creat" => "open",
        "mkdirat" => "mkdir",
        "rename" | "renameat" | "renameat2" => "rename",
        "unlinkat" if arguments.contains("AT_REMOVEDIR") => "rmdir",
        "unlinkat" => "unlink",
        "stat" | "lstat" | "fstat" | "newfstatat" => "stat",
        "faccessat" | "faccessat2" => "access",
        "fchmod" | "fchmodat" | "fchmodat2" => "chmod",
        "fchown" | "fchownat" | "lchown" => "chown",
        "fstatfs" => "statfs",
        "linkat" => "link",
        "symlinkat" => "symlink",
        "readlinkat" => "readlink",
        "truncate" => "ftruncate",
        "getdents" => "getdents64",
        // All file systems of the replay are synced one by one.
        "sync" => "syncfs",
        name => name,
    };
    let mut words = result.split_whitespace();
    let result = match (words.next()?, what) {
        ("-1", _) => words.next()?.to_owned(),
        // Descriptors have other numbers, and the text of a link may lead to the same in another way.
        (_, "open" | "readlink") => "done".to_owned(),
        (value, _) => value.to_owned(),
    };
    Some((what, result, arguments))
}

/// The calls below `folder`, a path without its first slash, of the thread that renames, from its first directory on. `prefix`: that of
/// the logs, one for each thread. `is_replay`: without those that hold directories for others, and that check what was opened.
fn calls_below(prefix: &Path, folder: &str, is_replay: bool) -> Vec<(String, String)> {
    let name = prefix.file_name().unwrap().to_str().unwrap();
    let logs = fs::read_dir(prefix.parent().unwrap()).unwrap();
    let logs = logs.map(|entry| entry.unwrap().path());
    let logs = logs.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(name));
    let of_thread = |path: PathBuf| {
        let log = String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned();
        let (mut calls, mut held) = (Vec::new(), std::collections::BTreeSet::new());
        let mut not_used = std::collections::BTreeSet::new();
        for line in log.lines() {
            let Some((what, result, arguments)) = straced(line) else {
                continue;
            };
            let descriptor = |text: &str| text.split('<').next().unwrap_or_default().trim().to_owned();
            let is_relative = arguments.starts_with('"') && !arguments.starts_with("\"/");
            let is_below = [folder, "/proc/thread-self/fd/"]
                .iter()
                .any(|path| arguments.contains(path));
            // Open files have no other descriptors in a replay, and directories of threads are changed without paths.
            let is_left_out =
                matches!(what, "chdir" | "fchdir" | "dup") || what == "fcntl" && !arguments.contains("F_SETFL");
            if !(is_below || is_relative || what == "syncfs") || is_left_out {
                continue;
            }
            let first = descriptor(arguments);
            if is_replay && what == "open" && arguments.contains("O_PATH") {
                held.insert(descriptor(line.rsplit(" = ").next().unwrap()));
                continue;
            }
            if is_replay && what == "close" && held.remove(&first) {
                continue;
            }
            // Before its first use it is looked at.
            let is_used = !matches!(what, "stat" | "statx" | "statfs" | "close" | "open");
            if is_replay && is_used && not_used.remove(&first) {
                let look = calls.pop();
                assert_eq!(look, Some(("stat".to_owned(), "0".to_owned())), "before {line}");
            }
            if what == "close" {
                not_used.remove(&first);
            }
            // The owner is only given away if it is the replay's own.
            if is_replay && what == "chown" && calls.last().is_some_and(|(what, _)| what == "stat") {
                calls.pop();
            }
            if what == "open" && result == "done" {
                not_used.insert(descriptor(line.rsplit(" = ").next().unwrap()));
            }
            calls.push((what.to_owned(), result));
        }
        calls
    };
    let renames = |calls: &Vec<(String, String)>| calls.iter().filter(|(what, _)| what == "rename").count();
    let mut calls = logs.map(of_thread).max_by_key(renames).unwrap();
    let begin = calls.iter().position(|(what, _)| what == "mkdir").unwrap();
    calls.split_off(begin)
}

/// Records a command that works in the directory `work`, and compares what strace prints of it with what it prints of the replay.
fn strace_shows_the_same(scene: &Scene, command: &[&str], options: &[&str]) {
    let work = scene.path("work");
    let below = work.to_str().unwrap().trim_start_matches('/');
    let empty = || {
        fs::remove_dir_all(&work).unwrap();
        fs::create_dir(&work).unwrap();
    };
    let strace = |log: &str, command: &[&str]| {
        let mut strace = Command::new("strace");
        let log = scene.path(log);
        strace.args(["-ff", "-y", "-s", "0", "-o"]).arg(&log).args(command);
        let output = strace.current_dir(&scene.base).env("IOSB_WORK", &work).output();
        let output = output.expect("tests/run installs strace");
        assert!(output.status.success(), "{command:?}: {output:?}");
        log
    };
    let made = calls_below(&strace("strace-made", command), below, false);
    empty();
    record(scene, "x.iosb", command);
    let replay = [
        TOOL, "replay", "x.iosb", "--into", "into", "--user", "nobody", "-s", "0",
    ];
    let log = strace("strace-replayed", &[&replay, options].concat());
    let replayed = calls_below(&log, below, true);
    let first = made.iter().zip(&replayed).position(|(made, replayed)| made != replayed);
    assert_eq!(
        (made.len(), first.map(|index| (&made[index..], &replayed[index..]))),
        (replayed.len(), None)
    );
    assert!(made.len() >= 60, "{made:?}");
}

#[test]
fn strace_shows_the_same_calls_of_a_replay_with_the_same_results() {
    let own = std::env::current_exe().unwrap();
    let command = [own.to_str().unwrap(), "--exact", "every_call", "--ignored"];
    strace_shows_the_same(&Scene::new("strace"), &command, &[]);
}

#[test]
#[ignore = "needs syscall_matrix.c of ioriot in the directory $IORIOT_SCRIPTS"]
fn strace_shows_the_same_calls_of_ioriots_matrix() {
    let scripts = std::env::var_os("IORIOT_SCRIPTS").expect("IORIOT_SCRIPTS is the directory of syscall_matrix.c");
    let scene = Scene::new("matrix");
    let mut cc = Command::new("cc");
    cc.args(["-w", "-D_GNU_SOURCE", "-o"]).arg(scene.path("matrix"));
    assert!(
        cc.arg(Path::new(&scripts).join("syscall_matrix.c"))
            .status()
            .unwrap()
            .success()
    );
    fs::write(scene.path("go"), "").unwrap();
    let base = scene.path("work/base");
    let command = ["./matrix", "pid", "go", base.to_str().unwrap(), "nobody"];
    strace_shows_the_same(&scene, &command, &["--owners"]);
}

/// The calls of each thread of the plan of a recording, in their order: what they do, and their recorded error or 0.
fn planned(recording: &Path) -> BTreeMap<u32, Vec<(Does, i64)>> {
    let recording = Recording::open(recording).unwrap();
    let mut loaded = Loaded::new(Selection::default());
    recording.batches(None, None).for_each(|batch| loaded.take(batch));
    loaded.finish();
    let batches = || recording.batches(None, None);
    let plan = plan(loaded, batches(), recording.meta(), &Roots::default(), 1, Order::Files).unwrap();
    let mut all: BTreeMap<u32, Vec<(Does, i64)>> = BTreeMap::new();
    for part in plan.windows(batches()).flat_map(|window| window.parts) {
        let calls = all.entry(plan.threads[part.thread as usize].tid).or_default();
        for action in &part.actions {
            calls.extend(action.seeks.then_some((Does::Seek, 0)));
            calls.push((action.does, action.value.min(0)));
        }
    }
    all
}

/// Whether a made call is the planned one. Where a directory of a path is missing, or that to change to, it is the replay's open
/// of that directory that fails.
fn is_as_planned(planned: (Does, i64), made: (Does, i64)) -> bool {
    let no_directory = [-libc::ENOENT, -libc::ENOTDIR].map(i64::from);
    planned == made || made == (Does::Open, planned.1) && no_directory.contains(&planned.1)
}

/// IOSB_REPLAYED: a directory with the recording x.iosb, the result of its replay, and again.iosb, a recording of that.
#[test]
#[ignore = "tests/replays/guests runs it on what guests of two kernels have made"]
fn a_replay_elsewhere_makes_the_planned_calls_in_their_order() {
    let folder = PathBuf::from(std::env::var_os("IOSB_REPLAYED").expect("tests/replays/guests sets it"));
    let result: Value = serde_json::from_str(&fs::read_to_string(folder.join("result.json")).unwrap()).unwrap();
    let result = &result["replay"];
    let number = |name: &str| result[name].as_u64().unwrap();
    println!(
        "info: {} calls, {} replayed by {} threads, {} with equal results; different: {}",
        number("recorded_calls"),
        number("done"),
        number("threads"),
        number("equal"),
        result["different"]
    );
    assert_eq!(number("done"), number("planned"));
    assert!(
        number("equal") * 1000 >= number("done") * 999,
        "{}",
        result["different"]
    );
    let comparable = |mut all: BTreeMap<u32, Vec<(Does, i64)>>| {
        // What a thread left open is closed by any thread at the end, and to change the directory is another call.
        for calls in all.values_mut() {
            calls.retain(|call| call.0 != Does::Close && *call != (Does::Chdir, 0));
        }
        all.retain(|_, calls| !calls.is_empty());
        all
    };
    let planned = comparable(planned(&folder.join("x.iosb")));
    let made = comparable(calls(&folder.join("again.iosb"), true));
    assert!(planned.values().map(Vec::len).sum::<usize>() > 1000);
    assert_eq!(planned.keys().collect::<Vec<_>>(), made.keys().collect::<Vec<_>>());
    for (tid, calls) in &planned {
        let made = &made[tid];
        let same = calls
            .iter()
            .zip(made)
            .take_while(|(a, b)| is_as_planned(**a, **b))
            .count();
        assert!(
            same == calls.len() && same == made.len(),
            "thread {tid}, from call {same} of {} and {} on: {:?} planned, {:?} made",
            calls.len(),
            made.len(),
            calls.iter().skip(same).take(9).collect::<Vec<_>>(),
            made.iter().skip(same).take(9).collect::<Vec<_>>()
        );
    }
}

/// Changes owners in each way, and ends later.
#[test]
#[ignore = "what the test below records"]
fn changes_of_owners() {
    let folder = std::env::var_os("IOSB_WORK").expect("the test below runs it");
    std::env::set_current_dir(folder).unwrap();
    for name in OWNED {
        fs::write(name, name).unwrap();
    }
    symlink("by-chown", "by-lchown").unwrap();
    let file = fs::File::open("by-fchown").unwrap();
    std::os::unix::fs::fchown(&file, Some(OWNER), None).unwrap();
    std::os::unix::fs::lchown("by-lchown", Some(OWNER), Some(OWNER + 1)).unwrap();
    let c = |text: &str| CString::new(text).unwrap();
    // SAFETY: the names are terminated.
    unsafe {
        assert_eq!(libc::chown(c("by-chown").as_ptr(), OWNER, OWNER + 1), 0);
        let flags = libc::AT_SYMLINK_NOFOLLOW;
        let at = c("by-fchownat");
        assert_eq!(libc::fchownat(libc::AT_FDCWD, at.as_ptr(), OWNER, OWNER + 1, flags), 0);
        // Twice: it is still the program's to give.
        assert_eq!(libc::fchownat(libc::AT_FDCWD, at.as_ptr(), OWNER, OWNER + 1, flags), 0);
    }
    std::thread::sleep(std::time::Duration::from_secs(2));
    let _ = fs::metadata("by-chown");
}

const OWNED: [&str; 3] = ["by-chown", "by-fchown", "by-fchownat"];
/// A user that no machine has.
const OWNER: u32 = 42_424;

#[test]
fn owners_change_as_recorded_and_are_set_back() {
    let scene = Scene::new("owners");
    let own = std::env::current_exe().unwrap();
    record(
        &scene,
        "x.iosb",
        &[own.to_str().unwrap(), "--exact", "changes_of_owners", "--ignored"],
    );
    let (out, _) = scene.succeed(&["-s", "0"]);
    assert!(out.contains("(needs --owners)"), "{out}");
    let recorded = chroot::from_root(&scene.path("work"));
    let work = scene.path("into").join(recorded.strip_prefix("/").unwrap());
    let owner = |name: &str| {
        let state = fs::symlink_metadata(work.join(name)).ok()?;
        Some((state.uid(), state.gid()))
    };
    let all = ["by-chown", "by-fchown", "by-fchownat", "by-lchown"];
    let nobody = |name: &str| owner(name).map(|(user, _)| user) == Some(NOBODY);
    assert!(all.iter().all(|name| nobody(name)), "without --owners");
    let result = std::thread::scope(|scope| {
        let replaying = scope.spawn(|| scene.result(&["--owners"]));
        let mut seen = BTreeMap::new();
        while !replaying.is_finished() {
            for name in all {
                if let Some(owner) = owner(name).filter(|(user, _)| *user == OWNER) {
                    seen.insert(name, owner);
                }
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let users: Vec<u32> = seen.values().map(|(user, _)| *user).collect();
        assert_eq!(users, [OWNER; 4], "{seen:?}");
        // The group of one stays.
        let groups = all.map(|name| seen[name].1 == OWNER + 1);
        assert_eq!(groups, [true, false, true, true]);
        replaying.join().unwrap()
    });
    assert_eq!(result["different"], Value::Array(Vec::new()), "{result:#}");
    let left = result["not_replayed"].as_array().unwrap();
    assert!(
        left.iter().all(|one| !one["op"].as_str().unwrap().contains("chown")),
        "{result:#}"
    );
    assert!(all.iter().all(|name| nobody(name)), "they are set back");
    let (status, _, err) = scene.replay(&["--clean"]);
    assert_eq!((status, scene.state("into").len()), (Some(0), 1), "{err}");
}

#[test]
fn owners_of_files_of_others_never_change() {
    let scene = Scene::new("foreign");
    let mut made = Made::default();
    let to = u64::from(OWNER) << 32 | u64::from(OWNER);
    // Time for the link below.
    made.open(1, "/srv/d/own", 2, (REGULAR, 10, 8));
    for number in 0..400 {
        let path = ["/srv/d/file", "/srv/d/own", "/srv/d/../../../canary/below/file"][number % 3];
        made.call(Op::Chown, 0, Some(path)).extra = to;
        made.call(Op::Fchown, 0, None).files[0] = 1;
        made.records.calls.last_mut().unwrap().extra = to;
    }
    made.call(Op::Lchown, -1, Some("/srv/d/own")).extra = to;
    for (number, call) in made.records.calls.iter_mut().enumerate() {
        call.begin_ns = 1_000_000 + number as u64 * 2_000_000;
        call.end_ns = Some(call.begin_ns + 1000);
    }
    scene.write(made.records);
    chown(scene.path("canary/below/file"), Some(0), Some(0)).unwrap();
    let before = scene.state("canary");
    let owner = || fs::metadata(scene.path("canary/below/file")).unwrap().uid();
    std::thread::scope(|scope| {
        let replaying = scope.spawn(|| scene.result(&["--owners"]));
        // Another name of a file that belongs to another user.
        let file = scene.path("into/srv/d/file");
        while !replaying.is_finished() {
            let _ = fs::remove_file(&file);
            let _ = fs::hard_link(scene.path("canary/below/file"), &file);
            assert_eq!(owner(), 0);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let result = replaying.join().unwrap();
        let refused = result["different"].as_array().unwrap();
        let refused = refused
            .iter()
            .find(|one| one["op"] == "chown" && one["errno"] == libc::EPERM);
        assert!(
            refused.is_some_and(|one| one["calls"].as_u64() > Some(50)),
            "{result:#}"
        );
        assert!(result["equal"].as_u64() > Some(500), "{result:#}");
    });
    assert_eq!((owner(), scene.state("canary")), (0, before));
}

/// Calls of the recording and of the replay by layer and operation.
fn compared(measured: &Value) -> BTreeMap<String, (Option<u64>, Option<u64>)> {
    let all = measured["compared"].as_array().unwrap().iter();
    let counts = all.map(|one| {
        let name = one["name"].as_str().unwrap().to_owned();
        (name, (one["recorded_calls"].as_u64(), one["replayed_calls"].as_u64()))
    });
    counts.collect()
}

/// What is replayed by the calls that [`every_call`] makes, and nothing else, on files that are replayed.
const MEASURED: [&str; 12] = [
    "write",
    "writev",
    "pwrite64",
    "fsync",
    "fdatasync",
    "fallocate",
    "ftruncate",
    "linkat",
    "renameat2",
    "mkdirat",
    "unlinkat",
    "copy_file_range",
];

#[test]
fn a_measured_replay_has_the_calls_of_the_recording_and_no_others() {
    let scene = Scene::new("measured");
    let own = std::env::current_exe().unwrap();
    let command = [own.to_str().unwrap(), "--exact", "every_call", "--ignored"];
    record_layers(&scene, "x.iosb", "syscall,blk", &command);
    let (out, _) = scene.succeed(&["--measure", "--json"]);
    let line: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(line["replay"]["done"], line["replay"]["planned"]);
    let measured = &line["measured"];
    let counts = compared(measured);
    for op in MEASURED {
        let (recorded, replayed) = counts[&format!("syscall {op}")];
        // The test program prints its result.
        let is_equal = recorded == replayed || op == "write" && recorded >= replayed;
        assert!(recorded > Some(0) && is_equal, "{op}: {recorded:?} {replayed:?}");
    }
    assert!(
        counts.contains_key("blk write") && !counts.contains_key("syscall open"),
        "{counts:?}"
    );
    let more = |(_, (recorded, replayed)): &(&String, &(Option<u64>, Option<u64>))| replayed > recorded;
    let more: Vec<_> = counts
        .iter()
        .filter(|(name, _)| name.starts_with("syscall"))
        .filter(more)
        .collect();
    assert!(more.is_empty(), "the replay's own calls are measured: {more:?}");
    for report in ["recorded", "replayed"] {
        assert_eq!(measured[report]["schema_version"], 1);
        assert!(measured[report]["layers"].as_array().unwrap().len() == 2, "{report}");
    }
    // The files are those of the user, not of root, who traces.
    for entry in fs::read_dir(scene.path("into")).unwrap() {
        assert_eq!(entry.unwrap().metadata().unwrap().uid(), NOBODY);
    }
    let (out, _) = scene.succeed(&["--measure", "--only", "write"]);
    for part in ["before  ", "after   ", "the replay\n", "syscall pwrite64 "] {
        assert!(out.contains(part), "{part}: {out}");
    }
    // What fails in the process that replays is this one's failure.
    fs::remove_dir_all(scene.path("into")).unwrap();
    let (status, _, err) = scene.replay(&["--measure"]);
    assert_eq!(status, Some(1));
    assert!(err.contains("error: cannot use 'into'"), "{err}");
}

#[test]
fn without_privileges_times_of_calls_are_measured_and_nothing_else() {
    use std::os::unix::process::CommandExt;
    let scene = Scene::new("unprivileged");
    let own = std::env::current_exe().unwrap();
    let command = [own.to_str().unwrap(), "--exact", "every_call", "--ignored"];
    record_layers(&scene, "x.iosb", "syscall,blk", &command);
    let status = Command::new("chmod")
        .args(["-R", "a+rX"])
        .arg(scene.path("x.iosb"))
        .status();
    assert!(status.unwrap().success());
    let mut tool = Command::new(TOOL);
    tool.current_dir(&scene.base).uid(NOBODY).gid(NOBODY);
    let words = ["replay", "x.iosb", "--into", "into", "-s", "0", "--measure", "--json"];
    let output = tool.args(words).output().unwrap();
    let mut refused = Command::new(TOOL);
    refused.current_dir(&scene.base).uid(NOBODY).gid(NOBODY);
    let refused = refused.args(&words[..4]).arg("--owners").output().unwrap();
    let line = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        line.starts_with("error: --owners needs CAP_CHOWN, ") && line.lines().count() == 1,
        "{line}"
    );
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(
        err.contains("only the times of calls are measured: tracing needs "),
        "{err}"
    );
    let line: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(line["measured"]["replayed"].is_null());
    let counts = compared(&line["measured"]);
    let (recorded, replayed) = counts["syscall pwrite64"];
    assert!(recorded.is_some() && recorded == replayed, "{recorded:?} {replayed:?}");
    let (recorded, replayed) = counts["blk write"];
    assert!(recorded.is_some() && replayed.is_none(), "{recorded:?} {replayed:?}");
}

/// A program that is recorded and replayed.
fn gets_equal_results(name: &str, script: &str) {
    let scene = Scene::new(name);
    let work = scene.path("work").display().to_string();
    record(&scene, "x.iosb", &["sh", "-c", &format!("cd {work} && {script}")]);
    let result = scene.result(&["-s", "0"]);
    let (equal, done) = (result["equal"].as_f64().unwrap(), result["done"].as_f64().unwrap());
    assert!(done > 50.0 && equal / done >= 0.99, "{}", result["different"]);
    assert_eq!(result["done"], result["planned"]);
    let calls_ns = result["operations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["replayed_ns"].as_f64().unwrap());
    let took_ns = result["took_ns"].as_f64().unwrap();
    assert!(
        calls_ns.sum::<f64>() <= took_ns * result["threads"].as_f64().unwrap(),
        "{took_ns}"
    );
    scene.replay(&["--clean"]);
    assert_eq!(scene.state("into").len(), 1, "{:?}", scene.state("into").keys());
}

/// The same of a program that may not be there.
fn gets_equal_results_if_installed(name: &str, script: &str) {
    if Command::new(name).arg("--version").output().is_ok() {
        gets_equal_results(name, script);
    } else {
        left_out(None, &format!("{name} is not installed"));
    }
}

#[test]
fn sqlite_gets_equal_results() {
    gets_equal_results(
        "sqlite",
        "sqlite3 x.db 'create table a(b); insert into a values(1); insert into a values(2); select * from a; vacuum' >&2",
    );
}

#[test]
fn tar_gets_equal_results() {
    gets_equal_results(
        "tar",
        "mkdir d; for i in 1 2 3 4 5; do echo $i >d/$i; done; tar cf x.tar d; rm -r d; tar xf x.tar",
    );
}

#[test]
fn git_gets_equal_results() {
    gets_equal_results_if_installed(
        "git",
        "git init -q .; echo a >a; git add a; git -c user.name=a -c user.email=a@b commit -qm a; git clone -q . c",
    );
}

#[test]
fn fio_gets_equal_results() {
    gets_equal_results_if_installed(
        "fio",
        "fio --name=a --directory=. --size=1M --bs=4k --rw=randrw --ioengine=psync --numjobs=4 --thread --group_reporting >&2",
    );
}
