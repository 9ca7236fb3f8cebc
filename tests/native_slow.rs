//! Slow calls and the calls on one file, on this machine, whatever it allows. Run it as root.
//!
//! Where tasks are preempted inside the kernel, it may skip calls: a run without losses must be exact.

mod chroot;
mod folder;
mod here;

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use chroot::from_root;
use folder::Folder;
use here::process::run;
use here::{TOOL, schema};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(60);
/// The maximum number of runs until one loses nothing.
const ATTEMPTS: u32 = 5;
/// The variable with the directory of a workload, which is this executable, and its number of reads.
const WORKLOAD: &str = "IOSB_SLOW_WORKLOAD";
const READS: &str = "IOSB_SLOW_READS";
/// How long the other end of the FIFO makes its reader wait.
const DELAY: Duration = Duration::from_millis(100);
/// The threshold: shorter, since the reader may begin to wait with a delay, but more than half of it.
const SLOWER: &str = "60ms";
const SLOWER_NS: u64 = 60_000_000;

impl Folder {
    fn filled() -> Self {
        let folder = Self::new("slow");
        fs::create_dir(folder.join("below")).unwrap();
        fs::write(folder.join("below/data"), [1; 1000]).unwrap();
        fs::write(folder.join("other"), [1; 1000]).unwrap();
        nix::unistd::mkfifo(&folder.join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        folder
    }

    /// As reported by the tool.
    fn path(&self, file: &str) -> String {
        from_root(&self.join(file)).to_str().unwrap().to_owned()
    }

    /// Runs the workload under the tool, and returns what the tool wrote.
    fn traced(&self, arguments: &[&str], reads: u32) -> String {
        let report = self.join("report");
        let mut tool = Command::new(TOOL);
        tool.args(arguments).arg("-o").arg(&report).arg("--");
        tool.arg(std::env::current_exe().unwrap());
        tool.args(["--exact", "workload", "--nocapture", "--test-threads", "1"]);
        tool.env(WORKLOAD, &**self).env(READS, reads.to_string());
        run(&mut tool, LIMIT).unwrap().success().unwrap();
        fs::read_to_string(report).unwrap()
    }
}

/// Not a test: the workload, when this executable is started as one. Every call by its number, so that no library
/// chooses another one.
#[test]
fn workload() {
    let Some(folder) = std::env::var_os(WORKLOAD) else {
        return;
    };
    let reads: u32 = std::env::var(READS).unwrap().parse().unwrap();
    let folder = PathBuf::from(folder);
    let path = |name: &str| CString::new(folder.join(name).as_os_str().as_bytes()).unwrap();
    let (data, fifo, other) = (path("below/data"), path("fifo"), path("other"));
    let missing = c"below/missing";
    std::env::set_current_dir(&folder).unwrap();
    let mut memory = [0_u8; 4096];
    let at = memory.as_mut_ptr();
    let writer = std::thread::spawn({
        let fifo = folder.join("fifo");
        move || {
            use std::io::Write;
            let mut fifo = fs::File::options().write(true).open(fifo).unwrap();
            std::thread::sleep(DELAY);
            fifo.write_all(&[7; 10]).unwrap();
        }
    });
    // SAFETY: the memory is large enough for each of them, and the names are terminated.
    unsafe {
        let open = |path: &CString, flags: i32| {
            let fd = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags);
            assert!(fd >= 0);
            fd
        };
        let fd = open(&fifo, libc::O_RDONLY);
        assert_eq!(libc::syscall(libc::SYS_read, fd, at, 100), 10);
        let fd = open(&data, libc::O_RDWR | libc::O_APPEND);
        assert_eq!(libc::syscall(libc::SYS_read, fd, at, 50), 50);
        assert_eq!(libc::syscall(libc::SYS_read, fd, at, 60), 60);
        assert_eq!(libc::syscall(libc::SYS_pread64, fd, at, 100, 300), 100);
        assert_eq!(libc::syscall(libc::SYS_write, fd, at, 10), 10);
        assert_eq!(libc::syscall(libc::SYS_fdatasync, fd), 0);
        let mut stat = std::mem::zeroed::<libc::stat>();
        let status = libc::syscall(
            libc::SYS_newfstatat,
            fd,
            c"".as_ptr(),
            &raw mut stat,
            libc::AT_EMPTY_PATH,
        );
        assert_eq!(status, 0);
        let nothing = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, missing.as_ptr(), libc::O_RDONLY);
        assert_eq!(nothing, -1);
        assert_eq!(
            libc::syscall(libc::SYS_unlinkat, libc::AT_FDCWD, missing.as_ptr(), 0),
            -1
        );
        for _ in 0..reads {
            assert_eq!(libc::syscall(libc::SYS_pread64, fd, at, 1, 0), 1);
        }
        assert_eq!(libc::syscall(libc::SYS_close, fd), 0);
        let fd = open(&other, libc::O_RDONLY);
        assert_eq!(libc::syscall(libc::SYS_pread64, fd, at, 77, 0), 77);
        let below = open(&path("below"), libc::O_DIRECTORY);
        // A path that cannot be read, in this directory.
        let status = libc::syscall(libc::SYS_newfstatat, below, 8, &raw mut stat, 0);
        assert_eq!(status, -1);
    }
    writer.join().unwrap();
    // SAFETY: the test harness would make more calls that are counted.
    unsafe { libc::_exit(0) };
}

/// Runs it until nothing was lost.
fn exact(mut attempt: impl FnMut() -> bool) {
    assert!(
        (0..ATTEMPTS).any(|_| attempt()),
        "no run in {ATTEMPTS} was without loss"
    );
}

/// The lines of `--json`: slow calls, and the report.
fn lines(text: &str) -> (Vec<Value>, Vec<Value>, Value) {
    let lines = schema::reports(text).unwrap_or_else(|error| panic!("{error}"));
    let of = |field: &str| lines.iter().filter_map(|line| line.get(field)).cloned().collect();
    let mut reports = lines.iter().filter(|line| line.get("stack").is_some());
    let report = reports.next().unwrap_or_else(|| panic!("no report: {text}"));
    (of("slow_call"), of("slow_calls_not_told"), report.clone())
}

fn has_lost(report: &Value) -> bool {
    schema::sum(&report["lost"]) + schema::sum(&report["stack"]["unbalanced"]) > 0
}

/// Even the shortest run has a report.
#[test]
fn a_run_may_end_before_its_first_check() {
    let mut tool = Command::new(TOOL);
    let output = tool
        .args(["-q", "--slower", "1s", "--duration", "1us"])
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && report.contains("\nlost "), "{output:?}");
}

#[test]
fn only_a_call_that_waits_is_printed() {
    exact(|| {
        let folder = Folder::filled();
        let (slow, _, report) = lines(&folder.traced(&["--json", "--all-files", "--slower", SLOWER], 0));
        if has_lost(&report) {
            return false;
        }
        assert!(
            slow.iter().all(|call| schema::number(&call["total_ns"]) >= SLOWER_NS),
            "{slow:?}"
        );
        assert!((slow.len() as u64) < schema::calls(&report), "{slow:?}");
        let fifo = folder.path("fifo");
        let read: Vec<&Value> = slow.iter().filter(|call| call["path"] == fifo.as_str()).collect();
        let Some(read) = read.iter().find(|call| call["op"] == "read") else {
            panic!("{slow:?}")
        };
        let reported = ["path_is", "offset", "size", "bytes", "error", "guilty"].map(|field| &read[field]);
        assert_eq!(
            reported,
            [
                &json!("whole"),
                &Value::Null,
                &json!(100),
                &json!(10),
                &Value::Null,
                &json!("other")
            ]
        );
        assert!(
            schema::number(&read["total_ns"]) >= DELAY.as_nanos() as u64 * 9 / 10,
            "{read}"
        );
        assert!(schema::number(&read["inode"]["number"]) > 0, "{read}");
        assert_eq!(report["stack"]["slow"]["threshold_ns"], SLOWER_NS);
        true
    });
}

#[test]
fn every_call_is_printed_with_its_file_and_offset() {
    exact(|| {
        let folder = Folder::filled();
        let (reported, left_out, report) = lines(&folder.traced(&["--json", "--slower", "0"], 0));
        let slow = &report["stack"]["slow"];
        let not_told: u64 = left_out.iter().map(schema::sum).sum();
        assert_eq!(schema::number(&slow["told"]), reported.len() as u64);
        assert_eq!(
            schema::number(&slow["limited"]) + schema::number(&slow["no_room"]),
            not_told
        );
        assert_eq!(reported.len() as u64 + not_told, schema::calls(&report));
        if has_lost(&report) || not_told > 0 {
            return false;
        }
        let data = folder.path("below/data");
        let range = |call: &Value| ["op", "offset", "size", "bytes"].map(|field| call[field].clone());
        let of_data = reported.iter().filter(|call| call["path"] == data.as_str());
        let of_data: Vec<[Value; 4]> = of_data.map(range).collect();
        let none = Value::Null;
        let expected = [
            [json!("openat"), none.clone(), none.clone(), none.clone()],
            [json!("read"), json!(0), json!(50), json!(50)],
            [json!("read"), json!(50), json!(60), json!(60)],
            [json!("pread64"), json!(300), json!(100), json!(100)],
            // An append goes to the end, whatever the file's position is.
            [json!("write"), json!(1000), json!(10), json!(10)],
            [json!("fdatasync"), none.clone(), none.clone(), none.clone()],
            [json!("newfstatat"), none.clone(), none.clone(), none.clone()],
            [json!("close"), none.clone(), none.clone(), none.clone()],
        ];
        assert_eq!(of_data, expected);
        let missing = reported.iter().find(|call| call["op"] == "unlinkat").unwrap();
        let told_of_missing = ["path", "path_is", "error"].map(|field| &missing[field]);
        assert_eq!(
            told_of_missing,
            [&json!("below/missing"), &json!("asked"), &json!("ENOENT")]
        );
        assert!(missing["inode"].is_null(), "{missing}");
        let unreadable = reported.iter().find(|call| call["error"] == "EFAULT").unwrap();
        assert_eq!(unreadable["op"], "newfstatat");
        assert!(
            unreadable["path"].is_null() && unreadable["inode"].is_null(),
            "{unreadable}"
        );
        true
    });
}

#[test]
fn calls_beyond_the_limit_are_counted() {
    const READS: u32 = 20_000;
    let folder = Folder::filled();
    let text = folder.traced(&["--slower", "0"], READS);
    let number = |line: &str, index: usize| -> u64 {
        let word = line.split_whitespace().nth(index).unwrap_or_default();
        word.replace(',', "").parse().unwrap_or_else(|_| panic!("{line}"))
    };
    let reported = text.lines().filter(|line| line.contains(" *")).count() as u64;
    let left_out = text.lines().filter(|line| line.starts_with("... "));
    let left_out: u64 = left_out.map(|line| number(line, 1)).sum();
    let line_with = |what: &str| {
        text.lines()
            .find(|line| line.contains(what))
            .unwrap_or_else(|| panic!("{text}"))
    };
    let all = number(line_with(" I/O calls."), 0);
    let not_told = line_with("NOT SHOWN: ");
    assert_eq!((number(not_told, 2), number(not_told, 4)), (left_out, all));
    assert_eq!(reported + left_out, all);
    // The kernel skips only few calls, and these are reported as lost.
    assert!(reported >= 1000 && all > u64::from(READS) / 2, "{reported} of {all}");
}

#[test]
fn one_file_is_known_by_any_name() {
    exact(|| {
        let folder = Folder::filled();
        fs::hard_link(folder.text("below/data"), folder.text("another")).unwrap();
        let file = folder.text("another");
        let text = folder.traced(&["--json", "-T", "syscall", "--file", &file], 0);
        let report = &schema::reports(&text).unwrap_or_else(|error| panic!("{error}"))[0];
        if schema::sum(&report["lost"]) > 0 {
            return false;
        }
        assert_eq!(report["filter"]["file"], file.as_str());
        let ops = schema::layers(report).flat_map(schema::ops);
        let called = ops.filter(|op| schema::number(&op["count"]) > 0);
        let called: Vec<(Value, u64)> = called
            .map(|op| (op["op"].clone(), schema::number(&op["count"])))
            .collect();
        let expected = [
            ("read", 2),
            ("pread64", 1),
            ("write", 1),
            ("openat", 1),
            ("close", 1),
            ("fdatasync", 1),
            // On a descriptor, since its path is empty.
            ("newfstatat", 1),
        ];
        assert_eq!(called, expected.map(|(op, count)| (json!(op), count)));
        true
    });
}
