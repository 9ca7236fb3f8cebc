//! The whole stack in one run: every nanosecond of every call is in exactly one row, and in the right one.
//!
//! Attaching takes seconds, so one run of the tool covers all scenes: each is a process that waits for its turn, and is
//! checked in the intervals until nothing more can arrive.

use super::hard::Mounted;
use super::report::{FILE as REPORT, Tool, number, unfold};
use crate::disks::{MappedDisk, NullDisks, set_queue};
use crate::guest::{Check, Guest, Loaded, run, wait_for};
use crate::nfs::Nfs;
use crate::peers::{self, Peers};
use crate::scene::BLOCK;
use crate::schema;
use crate::workload::{BLK, EXT4, SYSCALL, Spec, VFS, Workload, prepare};
use iostackbreakdown::catalog::Layer;
use iostackbreakdown::sys::page_bytes;
use serde_json::Value;
use std::fs::{self, File};
use std::io::Read;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::ptr;
use std::time::Duration;

pub const CHECKS: &[Check] = &[
    Check::new("stack: every moment is in its row", scenes)
        .when(|guest| guest.tool().is_some())
        .limit(1500)
        .timed(),
    Check::new("stack: the text has every call", text).when(|guest| guest.tool().is_some()),
    Check::new("stack: a read into another file system's page", into_a_page).when(|guest| guest.tool().is_some()),
    Check::new("stack: direct reads that end before a sleep are no readahead", inline)
        .when(|guest| guest.tool().is_some()),
];

const MINUTE: Duration = Duration::from_secs(60);
const FILE: &str = "/mnt/ext4/stack/file";
/// It grows.
const LARGE_FILE: &str = "/mnt/ext4/stack/large";

const DATABASE: &str = "/mnt/ext4/stack/shop.db";
const STORM_FOLDER: &str = "/mnt/ext4/stack/storm";

const F2FS_DISK: &str = "/dev/nullb7";

/// The duration of each request of a slow disk, much longer than everything else in an emulated guest.
const DELAY: Duration = Duration::from_millis(20);
/// For scenes with much to prepare.
const SHORT: Duration = Duration::from_millis(5);
/// Long enough for another thread to arrive meanwhile.
const LONG: Duration = Duration::from_millis(200);

const MIX: Spec = Spec {
    set: "mix",
    threads: 4,
    rounds: 5,
    file: FILE,
    name: "worker",
};

/// Ways into a file by functions that file systems share.
const WAYS: Spec = Spec {
    set: "ways",
    threads: 1,
    ..MIX
};

/// A process whose time is spent in one known row, and how the report is checked.
struct Scene {
    name: &'static str,
    workload: Workload,
    /// Whether it runs together with the next one.
    beside: bool,
    check: Verdict,
}

type Verdict = fn(&Told) -> Result<(), String>;

impl Scene {
    fn new(name: &'static str, command: &[&str], check: Verdict) -> Result<Self, String> {
        let command: Vec<String> = command.iter().copied().map(String::from).collect();
        Ok(Self {
            name,
            workload: Workload::launch(&command)?,
            beside: false,
            check,
        })
    }

    fn beside(self) -> Self {
        Self { beside: true, ..self }
    }
}

fn scene(name: &'static str, file: &str, count: u64, check: Verdict) -> Result<Scene, String> {
    Scene::new(name, &["/init", "scene", name, file, &count.to_string()], check)
}

fn requests(name: &'static str, file: &str, count: u64, check: Verdict) -> Result<Scene, String> {
    Scene::new(name, &["/init", "async", file, &format!("{name}:{count}")], check)
}

/// All scenes, in the order of their turns.
fn in_turn(at: &Places, throttled: Scene) -> Result<Vec<Scene>, String> {
    let mut all = vec![
        Scene {
            name: "mix",
            workload: Workload::start(&MIX)?,
            beside: false,
            check: mix,
        },
        Scene {
            name: "ways",
            workload: Workload::start(&WAYS)?,
            beside: false,
            check: |reported| reported.is_exactly(&WAYS, &[SYSCALL, EXT4]),
        },
        scene("cached", FILE, CACHED, cached)?,
        scene("busy", LARGE_FILE, BUSY, busy)?,
        scene("direct", at.direct, DIRECT, direct)?,
        scene("direct", at.alone, SLOW, slow)?,
        scene("crowd", at.one_by_one, CROWD, crowd)?,
        scene("crowd", at.sorted, CROWD, crowd)?,
        throttled,
        scene("commits", at.slow, COMMITS, commits)?,
        scene("cold", at.slow, 0, cold)?,
        scene("writers", at.slow, 0, writers)?,
        requests("uring-cached", FILE, URING, uring_inline)?,
        requests("uring-direct", at.direct, URING, uring_deep)?,
        requests("uring-sqpoll", at.direct, URING, uring_polled)?,
        scene("files", at.xfs, FILES, |reported| reported.is_of_files(&["xfs"]))?,
        scene("files", at.overlay, FILES, |reported| {
            reported.is_of_files(&["overlay", EXT4])
        })?,
        scene("files", at.btrfs, FILES, on_btrfs)?,
        scene("files", at.nfs, FILES, on_nfs)?,
        scene("files", at.crypt, FILES, |reported| reported.is_of_files(&[EXT4]))?,
        scene("direct", at.crypt, DIRECT, deciphered)?,
        scene("later", FILE, LATER, later)?,
        scene("sqlite", DATABASE, 0, database)?,
        scene("fio", LARGE_FILE, FIO, |_| Ok(()))?.beside(),
        scene("storm", STORM_FOLDER, STORM, storm)?,
    ];
    if let Some(file) = at.f2fs {
        all.push(scene("files", file, FILES, |reported| reported.is_of_files(&["f2fs"]))?);
    }
    Ok(all)
}

fn scenes(guest: &Guest) -> Result<(), String> {
    let at = Places::new(guest)?;
    let throttled = scene("direct", at.direct, THROTTLED, throttled)?;
    let _group = Group::new(at.direct, throttled.workload.pid)?;
    let all = in_turn(&at, throttled)?;
    // The tool ends when all processes have ended, so one is never started.
    let last = Workload::start(&MIX)?;
    let pids = all.iter().map(|scene| &scene.workload).chain([&last]);
    let pids: Vec<String> = pids.map(|workload| workload.pid.to_string()).collect();
    let tool = Tool::start(guest, &["--json", "-p", &pids.join(","), "1"])?;
    let mut written = Written::open()?;
    let mut whole = Whole::default();
    let mut wrong = Vec::new();
    let mut company = Vec::new();
    for scene in all {
        scene.workload.go()?;
        if scene.beside {
            company.push(scene.workload);
            continue;
        }
        let Scene {
            name, workload, check, ..
        } = scene;
        workload.finish()?;
        for other in company.drain(..) {
            Workload::finish(other)?;
        }
        // The current report includes what came before; the one after it has the rest.
        let until = written.lines()? + 2;
        wait_for("two more reports", MINUTE, || {
            written.lines().is_ok_and(|lines| lines >= until)
        })?;
        let reported = written.take(until)?;
        whole.add(&reported)?;
        if let Err(error) = check(&reported) {
            wrong.push(format!("{name}: {error}"));
        }
    }
    tool.interrupt()?;
    tool.end()?;
    while written.lines()? > 0 {
        whole.add(&written.take(1)?)?;
    }
    whole.agrees()?;
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("\n"))
    }
}

/// The text has families and rows, and of each layer's ops only failed and excluded calls.
fn text(guest: &Guest) -> Result<(), String> {
    prepare(FILE)?;
    let workload = Workload::start(&MIX)?;
    let tool = Tool::start(guest, &["-p", &workload.pid.to_string()])?;
    workload.work()?;
    let text = tool.written()?;
    let truth = MIX.truth();
    let of_calls = || {
        truth
            .ops
            .iter()
            .filter(|((layer, _), _)| layer == SYSCALL)
            .map(|(_, count)| count)
    };
    let of_kinds = truth.excluded.iter().filter(|((layer, _), _)| layer == SYSCALL);
    let expected = [
        of_calls().map(|count| count.calls).sum(),
        of_calls().map(|count| count.errors).sum(),
        of_kinds.map(|(_, calls)| calls).sum(),
    ];
    let lines = unfold(&text);
    let first = |start: &str| {
        let found = lines
            .iter()
            .find_map(|line| line.strip_prefix(start)?.split(' ').next());
        found.and_then(|text| number(text).ok())
    };
    let all = lines.iter().find_map(|line| line.split_once(" I/O calls took "));
    let all = all.and_then(|(text, _)| number(text).ok());
    let failed = lines.iter().find_map(|line| line.strip_prefix("errors: "));
    // `errors: openat 16 (ENOENT 16); read 5 (EBADF 5)`
    let failed = failed.map(|ops| {
        let ops = ops.split("); ").filter_map(|op| number(op.split(' ').nth(1)?).ok());
        ops.sum::<u64>()
    });
    nothing_lost(&text)?;
    let reported = [all, failed, first("excluded: ")];
    if reported != expected.map(Some) {
        return Err(format!(
            "calls, those that failed, those left out: {expected:?}, not {reported:?}:\n{text}"
        ));
    }
    for family in ["read", "write", "fsync"] {
        let of_family = lines
            .iter()
            .skip_while(|line| !line.starts_with(&format!("{family} ")) || !line.contains(" calls "));
        let rows: Vec<_> = of_family.take_while(|line| !line.is_empty()).collect();
        for row in ["  vfs ", "  ext4 "] {
            let has = |line: &&&String| line.split_whitespace().nth(1).is_some_and(|time| time != "-");
            if !rows.iter().any(|line| line.starts_with(row) && has(&line)) {
                return Err(format!("{family} has nothing at{row}:\n{text}"));
            }
        }
    }
    Ok(())
}

/// Every entry has its return. The report is one of `--verbose`, which shows any number of unpaired ones.
fn nothing_lost(text: &str) -> Result<(), String> {
    match ["UNBALANCED", "LOST "].iter().find(|word| text.contains(**word)) {
        Some(word) => Err(format!("{word}:\n{text}")),
        None => Ok(()),
    }
}

/// The page is read by a function that other file systems share, inside the read of a file of another file system.
fn into_a_page(guest: &Guest) -> Result<(), String> {
    const PAGE: &str = "/mnt/xfs/stack-page";
    const READS: usize = 20;
    prepare(FILE)?;
    fs::write(PAGE, [1; BLOCK]).map_err(|e| format!("{PAGE}: {e}"))?;
    let open = |path: &str| File::open(path).map_err(|e| format!("{path}: {e}"));
    let (file, page) = (open(FILE)?, open(PAGE)?);
    let tool = Tool::start(guest, &["-p", &std::process::id().to_string()])?;
    for _ in 0..READS {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, to which there are no references.
        let mapped = unsafe { libc::mmap(ptr::null_mut(), BLOCK, access, libc::MAP_PRIVATE, page.as_raw_fd(), 0) };
        if mapped == libc::MAP_FAILED {
            return Err(format!("{PAGE}: {}", std::io::Error::last_os_error()));
        }
        // SAFETY: the mapping has room for a byte, and is unmapped once.
        let read = unsafe {
            let read = libc::pread(file.as_raw_fd(), mapped, 1, 0);
            libc::munmap(mapped, BLOCK);
            read
        };
        if read != 1 {
            return Err(format!("{FILE}: {}", std::io::Error::last_os_error()));
        }
    }
    tool.interrupt()?;
    let text = tool.written()?;
    nothing_lost(&text)?;
    let lines = unfold(&text);
    let reads = lines
        .iter()
        .find_map(|line| line.strip_prefix("read ")?.trim().split(' ').next());
    match reads.and_then(|calls| number(calls).ok()) {
        Some(calls) if calls >= READS as u64 && text.contains("  ext4 ") => Ok(()),
        _ => Err(format!("not {READS} reads of ext4:\n{text}")),
    }
}

/// The disk completes requests on submission. Buffered reads use readahead, direct reads do not.
fn inline(guest: &Guest) -> Result<(), String> {
    const READS: u64 = 100;
    const DEVICE: &str = NullDisks::FIRST;
    let _disk = NullDisks::new(guest, 1, &[("irqmode", "0")])?;
    // With a scheduler, a worker submits to the disk, and the reader sleeps meanwhile.
    let name = DEVICE.trim_start_matches("/dev/");
    set_queue(name, &[("scheduler", "none")])?;
    let count = READS.to_string();
    let run = |scene: &str| {
        let words = ["/init", "scene", scene, DEVICE, &count].map(String::from);
        let workload = Workload::launch(&words)?;
        let tool = Tool::start(guest, &["--json", "-p", &workload.pid.to_string()])?;
        workload.work()?;
        let reports = schema::reports(&tool.written()?)?;
        Ok::<_, String>(Told { reports })
    };
    let reported = run("direct")?;
    reported.is_complete()?;
    let of = |reported: &Told, origin| reported.not_waited(origin, "count");
    if (
        reported.class("direct"),
        of(&reported, "own"),
        of(&reported, "readahead"),
    ) != (READS, READS, 0)
    {
        return reported.wrong("not all reads are direct, and none of them readahead");
    }
    // Some of these reads wait for their issue on 5.10.
    if guest.kernel != "5.10" {
        reported.has_none("read", WAITS)?;
    }
    let reported = run("sequential")?;
    reported.is_complete()?;
    if reported.class("read_ahead_only") == 0 || of(&reported, "readahead") == 0 || of(&reported, "own") > 0 {
        return reported.wrong("readahead is not called that");
    }
    Ok(())
}

/// The tool's reports, a line each, read as they are written. Each is read once: a slow machine has more of them than
/// fit into a guest's memory.
struct Written {
    file: File,
    /// Lines that have not been used yet, possibly with an incomplete last one.
    text: String,
}

impl Written {
    fn open() -> Result<Self, String> {
        let file = File::open(REPORT).map_err(|e| format!("{REPORT}: {e}"))?;
        Ok(Self {
            file,
            text: String::new(),
        })
    }

    /// The number of complete lines.
    fn lines(&mut self) -> Result<usize, String> {
        self.file
            .read_to_string(&mut self.text)
            .map_err(|e| format!("{REPORT}: {e}"))?;
        Ok(self.text.matches('\n').count())
    }

    /// Returns the first ones.
    fn take(&mut self, lines: usize) -> Result<Told, String> {
        let end: usize = self.text.split_inclusive('\n').take(lines).map(str::len).sum();
        let taken: String = self.text.drain(..end).collect();
        Ok(Told {
            reports: schema::reports(&taken)?,
        })
    }
}

/// Sums over all reports of the run, for consistency checks.
#[derive(Default)]
struct Whole {
    /// Calls and their time, for families and for the system calls.
    families: [u64; 2],
    calls: [u64; 2],
}

impl Whole {
    const FIELDS: [&str; 2] = ["count", "total_ns"];

    /// Adds reports, which must have no losses and no unpaired events. (Every report is checked for rows that add up to
    /// their family's time.)
    fn add(&mut self, reported: &Told) -> Result<(), String> {
        reported.is_complete()?;
        for (i, field) in Self::FIELDS.into_iter().enumerate() {
            self.families[i] += reported
                .families()
                .map(|family| schema::number(&family[field]))
                .sum::<u64>();
            self.calls[i] += reported.ops(SYSCALL).map(|op| schema::number(&op[field])).sum::<u64>();
        }
        Ok(())
    }

    /// The families' totals equal those of the system calls.
    fn agrees(&self) -> Result<(), String> {
        if self.families == self.calls && self.calls[0] > 0 {
            Ok(())
        } else {
            let (families, calls) = (self.families, self.calls);
            Err(format!(
                "{:?}: {families:?} in families, {calls:?} of system calls",
                Self::FIELDS
            ))
        }
    }
}

/// The reason of a sleep.
const WAITS: &[&str] = &["queue", "device", "others' I/O", "journal", "lock", "other"];

/// The sum of consecutive reports.
struct Told {
    reports: Vec<Value>,
}

impl Told {
    /// A line for each family: its rows above 0, in microseconds.
    fn wrong<T>(&self, why: &str) -> Result<T, String> {
        let mut reported = vec![why.to_owned()];
        for family in ["read", "write", "open", "fsync", "metadata", "async"] {
            let (count, total) = (self.count(family), self.sum(family, None, "total_ns"));
            if count == 0 {
                continue;
            }
            let mut line = format!("{family} {count} calls {} us:", total / 1_000);
            let names = self.families().find(|reported| reported["family"] == family);
            for row in names
                .map(|reported| schema::array(&reported["rows"]))
                .into_iter()
                .flatten()
            {
                let name = row["row"].as_str().unwrap_or_default();
                let (ns, calls) = (self.ns(family, name), self.came_by(family, name));
                if ns > 0 || calls > 0 {
                    line += &format!(" {name} {}", ns / 1_000);
                }
                if calls > 0 {
                    line += &format!(" ({calls})");
                }
            }
            reported.push(line);
        }
        let classes = [
            "from_cache",
            "waited_for_own",
            "waited_for_others",
            "read_ahead_only",
            "direct",
        ];
        reported.push(format!("{:?}", classes.map(|class| (class, self.class(class)))));
        for report in &self.reports {
            for origin in schema::array(&report["stack"]["not_waited"]) {
                reported.push(origin.to_string());
            }
        }
        reported.truncate(15);
        Err(reported.join("\n"))
    }

    /// No losses, and no unpaired events.
    fn is_complete(&self) -> Result<(), String> {
        for report in &self.reports {
            let lost = schema::sum(&report["lost"]);
            let unbalanced = schema::sum(&report["stack"]["unbalanced"]);
            let missing = schema::array(&report["stack"]["not_measured"]);
            if lost > at_most_lost(report) || unbalanced > 0 || !missing.is_empty() {
                let probes = schema::array(&report["probes"]).iter();
                let skipping: Vec<&Value> = probes.filter(|probe| probe["skipped"].as_u64() > Some(0)).collect();
                return self.wrong(&format!(
                    "{} lost, {unbalanced} unbalanced, {missing:?}, {skipping:?}",
                    report["lost"]
                ));
            }
        }
        Ok(())
    }

    fn families(&self) -> impl Iterator<Item = &Value> {
        self.reports
            .iter()
            .flat_map(|report| schema::array(&report["stack"]["families"]))
    }

    /// The ops of a layer, from each report.
    fn ops(&self, layer: &str) -> impl Iterator<Item = &Value> {
        let layers = self.reports.iter().flat_map(schema::layers);
        layers
            .filter(move |reported| reported["layer"] == layer)
            .flat_map(schema::ops)
    }

    /// Counts and bytes at these layers are those of the workload.
    fn is_exactly(&self, spec: &Spec, layers: &[&str]) -> Result<(), String> {
        let truth = spec.truth();
        for &layer in layers {
            for op in self.ops(layer).map(|op| op["op"].as_str().unwrap_or_default()) {
                let expected = truth.ops.get(&(layer.to_owned(), op.to_owned()));
                let expected = expected.map_or((0, 0), |count| (count.calls, count.bytes));
                let sum = |field: &str| -> u64 {
                    let same = self.ops(layer).filter(|reported| reported["op"] == op);
                    same.map(|op| schema::number(&op[field])).sum()
                };
                if (sum("count"), sum("bytes")) != expected {
                    return self.wrong(&format!("{layer} {op}: {} calls, not {expected:?}", sum("count")));
                }
            }
        }
        Ok(())
    }

    /// A number of a family, or an entry in one of its lists, summed over reports.
    fn sum(&self, family: &str, part: Option<(&str, &str, &str)>, field: &str) -> u64 {
        let families = self.families().filter(|reported| reported["family"] == family);
        let number = |family: &Value| match part {
            None => schema::number(&family[field]),
            Some((list, key, name)) => {
                let mut parts = schema::array(&family[list]).iter();
                parts
                    .find(|part| part[key] == name)
                    .map_or(0, |part| schema::number(&part[field]))
            }
        };
        families.map(number).sum()
    }

    fn count(&self, family: &str) -> u64 {
        self.sum(family, None, "count")
    }

    fn ns(&self, family: &str, row: &str) -> u64 {
        self.sum(family, Some(("rows", "row", row)), "ns")
    }

    /// Calls that reached a layer.
    fn came_by(&self, family: &str, row: &str) -> u64 {
        self.sum(family, Some(("rows", "row", row)), "calls")
    }

    /// Requests of an origin that no call waited for.
    fn not_waited(&self, origin: &str, field: &str) -> u64 {
        let stacks = self.reports.iter().map(|report| &report["stack"]);
        let origins = stacks.flat_map(|stack| schema::array(&stack["not_waited"]));
        let these = origins.filter(|reported| reported["origin"] == origin);
        these.map(|reported| schema::number(&reported[field])).sum()
    }

    fn class(&self, class: &str) -> u64 {
        self.sum("read", Some(("classes", "class", class)), "count")
    }

    /// At least this share of a family's time is in these rows.
    fn has_share(&self, family: &str, rows: &[&str], percent: u64) -> Result<(), String> {
        let total = self.sum(family, None, "total_ns");
        let ns: u64 = rows.iter().map(|row| self.ns(family, row)).sum();
        if ns * 100 < total * percent || total == 0 {
            return self.wrong(&format!("{family}: {ns} of {total} ns in {rows:?}, not {percent} %"));
        }
        Ok(())
    }

    /// Nearly all of a family's waiting is in one of these rows. The rest is an emulated CPU's, which may stand still between
    /// two steps of a request: 3 % were seen where three guests share two CPUs.
    fn sleeps_for(&self, family: &str, rows: &[&str]) -> Result<(), String> {
        let sum = |rows: &[&str]| -> u64 { rows.iter().map(|row| self.ns(family, row)).sum() };
        let (asleep, these) = (sum(WAITS), sum(rows));
        if these * 100 < asleep * 90 || asleep == 0 {
            return self.wrong(&format!("{family}: {these} of {asleep} ns asleep in {rows:?}"));
        }
        Ok(())
    }

    /// At most this share of a family's time is in a row.
    fn has_little(&self, family: &str, row: &str, percent: u64) -> Result<(), String> {
        let (total, ns) = (self.sum(family, None, "total_ns"), self.ns(family, row));
        if ns * 100 > total * percent {
            return self.wrong(&format!("{family}: {ns} of {total} ns in {row}, more than {percent} %"));
        }
        Ok(())
    }

    /// The time in a layer's own counters equals that of the families less the rows above the layer; waits may be above
    /// it, or below.
    fn is_inclusive(&self) -> Result<(), String> {
        // An fsync may be part of a write, which at ext4 includes vfs's work in between. The lookup and creation by an
        // open precede the op, but are in the file system's row.
        let all = [
            (VFS, &[SYSCALL][..], &["read", "write", "open"][..]),
            (EXT4, &[SYSCALL, VFS], &["read", "open"]),
        ];
        for (layer, above, families) in all {
            for family in families {
                let ops = self.ops(layer).filter(|op| op["op"] == *family);
                let inclusive: u64 = ops.map(|op| schema::number(&op["total_ns"])).sum();
                let above: u64 = above.iter().map(|row| self.ns(family, row)).sum();
                let waits = WAITS.iter().chain(&["run queue"]);
                let waits: u64 = waits.map(|row| self.ns(family, row)).sum();
                let most = self.sum(family, None, "total_ns") - above;
                let has_more = *family != "open" && inclusive < most - waits;
                if inclusive > most || has_more || inclusive == 0 {
                    return self.wrong(&format!("{inclusive} ns of {family} at {layer}, and {most} in rows"));
                }
            }
        }
        Ok(())
    }

    /// Writes, fsyncs and reads all reached these file systems.
    fn is_of_files(&self, file_systems: &[&str]) -> Result<(), String> {
        self.came_by_files(file_systems)?;
        for family in ["write", "fsync", "read"] {
            self.has_little(family, "other", 1)?;
        }
        match self.ns("fsync", "device") + self.ns("fsync", "journal") {
            0 => self.wrong("no fsync waited for the disk"),
            _ => Ok(()),
        }
    }

    /// The same, whatever they waited for.
    fn came_by_files(&self, file_systems: &[&str]) -> Result<(), String> {
        for family in ["write", "fsync", "read"] {
            for layer in [SYSCALL, VFS].iter().chain(file_systems) {
                if (self.count(family), self.came_by(family, layer)) != (FILES, FILES) || self.ns(family, layer) == 0 {
                    return self.wrong(&format!("not every {family} reached {layer}"));
                }
            }
            let others = Layer::file_systems().map(Layer::name);
            let mut others = others.filter(|name| !file_systems.contains(name));
            if let Some(other) = others.find(|name| self.came_by(family, name) > 0) {
                return self.wrong(&format!("{family}s at {other}"));
            }
        }
        Ok(())
    }

    fn has_none(&self, family: &str, rows: &[&str]) -> Result<(), String> {
        match rows.iter().find(|row| self.ns(family, row) > 0) {
            Some(row) => self.wrong(&format!("{family} has time in {row}")),
            None => Ok(()),
        }
    }

    fn has_time(&self, family: &str, rows: &[&str]) -> Result<(), String> {
        match rows.iter().find(|row| self.ns(family, row) == 0) {
            Some(row) => self.wrong(&format!("{family} has no time in {row}")),
            None => Ok(()),
        }
    }
}

fn mix(reported: &Told) -> Result<(), String> {
    reported.is_exactly(&MIX, &[SYSCALL, VFS, EXT4])?;
    reported.is_inclusive()
}

/// Events of bios have two programs each. How often both were skipped at the same event is not known: the reported
/// number is that of the less often skipped one, mostly at different events. A busy host preempts a guest's task there
/// now and then.
fn at_most_lost(report: &Value) -> u64 {
    const EVENTS: [&str; 3] = ["block_getrq", "block_bio_backmerge", "block_bio_frontmerge"];
    let probes = schema::array(&report["probes"]).iter();
    let of_bios = probes.filter(|probe| EVENTS.iter().any(|event| probe["functions"][0] == *event));
    let skipped = of_bios.map(|probe| {
        (
            schema::number(&probe["skipped"]),
            schema::number(&probe["entry"]["count"]),
        )
    });
    let few = skipped.filter(|(skipped, seen)| skipped * 50 <= *seen);
    few.map(|(skipped, _)| skipped).sum()
}

/// How long a thread sleeps for a slow request: it falls asleep some time after the request was issued, and an emulated
/// disk's completion may be delayed.
fn about(ns: u64) -> Range<u64> {
    ns * 9 / 10..ns * 2
}

const CACHED: u64 = 5_000;

fn cached(reported: &Told) -> Result<(), String> {
    let bytes = reported.sum("read", Some(("classes", "class", "from_cache")), "bytes");
    if [
        reported.count("read"),
        reported.class("from_cache"),
        bytes / BLOCK as u64,
    ] != [CACHED; 3]
    {
        return reported.wrong("not all came from memory");
    }
    reported.has_none("read", WAITS)?;
    reported.has_time("read", &[SYSCALL, VFS, EXT4])
}

const BUSY: u64 = 30;

fn busy(reported: &Told) -> Result<(), String> {
    if reported.class("from_cache") < BUSY {
        return reported.wrong("not all came from memory");
    }
    reported.has_share("read", &["run queue"], 60)
}

const DIRECT: u64 = 40;

fn direct(reported: &Told) -> Result<(), String> {
    let (waited, requests) = direct_waits(reported, DIRECT)?;
    if waited.abs_diff(requests) * 10 > waited {
        return reported.wrong(&format!("requests took {requests} ns"));
    }
    reported.sleeps_for("read", &["device"])?;
    // The rest is the machine's, which may be slow: 20 ms for the disk, and up to some milliseconds for the call.
    reported.has_share("read", &["device"], 80)
}

const SLOW: u64 = 5;

/// The machine's part is small compared with such a disk's.
fn slow(reported: &Told) -> Result<(), String> {
    let (waited, requests) = direct_waits(reported, SLOW)?;
    if waited.abs_diff(requests) * 20 > waited {
        return reported.wrong(&format!("requests took {requests} ns"));
    }
    reported.has_share("read", &["device"], 95)
}

/// What is read must also be decrypted.
fn deciphered(reported: &Told) -> Result<(), String> {
    let (waited, requests) = direct_waits(reported, DIRECT)?;
    if waited * 20 < requests * 19 {
        return reported.wrong(&format!("requests took {requests} ns"));
    }
    reported.sleeps_for("read", &["device"])
}

/// The time waited for the disk, and the duration of its requests, in nanoseconds.
fn direct_waits(reported: &Told, reads: u64) -> Result<(u64, u64), String> {
    if (reported.count("read"), reported.class("direct")) != (reads, reads) {
        return reported.wrong("not all reads are direct");
    }
    let requests = reported.ops(BLK).filter(|op| op["op"] == "read");
    let requests: u64 = requests.map(|op| schema::number(&op["total_ns"])).sum();
    if requests < reads * DELAY.as_nanos() as u64 {
        return reported.wrong(&format!("requests took {requests} ns"));
    }
    Ok((reported.ns("read", "device"), requests))
}

const CROWD: u64 = 4;

/// Each waits for 15 others: by Little's law 15/16 of its time is in the queue.
fn crowd(reported: &Told) -> Result<(), String> {
    if reported.count("read") != 16 * CROWD {
        return reported.wrong("not all reads");
    }
    reported.has_share("read", &["queue"], 85)?;
    reported.sleeps_for("read", &["queue", "device"])
}

const THROTTLED: u64 = 10;
const PER_SECOND: u64 = 10;

/// All time except the disk's is the throttle's.
fn throttled(reported: &Told) -> Result<(), String> {
    let alone = THROTTLED * DELAY.as_nanos() as u64;
    let (total, device) = (reported.sum("read", None, "total_ns"), reported.ns("read", "device"));
    // The first one or more are not throttled.
    let (least, wanted) = (THROTTLED - 4, 1_000_000_000 / PER_SECOND);
    if reported.count("read") != THROTTLED || total < least * wanted {
        return reported.wrong("not so many reads, or not so slow");
    }
    if !about(alone).contains(&device) {
        return reported.wrong("the disk's time is not its own");
    }
    reported.sleeps_for("read", &["queue", "device"])
}

const URING: u64 = 64;

/// Cached requests complete on submission.
fn uring_inline(reported: &Told) -> Result<(), String> {
    reported.has_time("async", &[SYSCALL, VFS, EXT4])?;
    reported.has_none("async", WAITS)
}

/// The submitter waits for requests as well; they are its own.
fn uring_deep(reported: &Told) -> Result<(), String> {
    let delay = DELAY.as_nanos() as u64;
    // Two calls wait for half of the requests each, which are under way together.
    if !(2 * delay * 9 / 10..URING * delay / 8).contains(&reported.ns("async", "device")) {
        return reported.wrong("not twice what the disk takes");
    }
    if reported.not_waited("asynchronous", "count") > URING {
        return reported.wrong("more requests than there were");
    }
    reported.sleeps_for("async", &["device", "queue"])
}

/// All of them are submitted by a thread that makes no calls.
fn uring_polled(reported: &Told) -> Result<(), String> {
    let [requests, bytes, device] =
        ["count", "bytes", "device_ns"].map(|field| reported.not_waited("asynchronous", field));
    // Adjacent ones may have been merged.
    if bytes != URING * BLOCK as u64 || device < requests * DELAY.as_nanos() as u64 {
        return reported.wrong("not all requests, or shorter than the disk takes");
    }
    reported.has_none("async", &["queue", "device"])
}

const FILES: u64 = 5;

fn on_btrfs(reported: &Told) -> Result<(), String> {
    if reported.ns("fsync", "device") < FILES * SHORT.as_nanos() as u64 / 2 {
        return reported.wrong("shorter than the disk takes");
    }
    reported.is_of_files(&["btrfs"])
}

/// The server's disk I/O belongs to the server.
fn on_nfs(reported: &Told) -> Result<(), String> {
    reported.came_by_files(&["nfs"])?;
    for family in ["write", "fsync", "read"] {
        reported.has_none(family, &["queue", "device", "journal"])?;
    }
    match reported.ns("fsync", "others' I/O") + reported.ns("fsync", "other") {
        0 => reported.wrong("no fsync waited for the server"),
        _ => Ok(()),
    }
}

const ROWS: u64 = 20;

/// Each commit makes the database and its journal durable.
fn database(reported: &Told) -> Result<(), String> {
    if reported.count("fsync") < 2 * ROWS || reported.count("write") < 2 * ROWS {
        return reported.wrong("not so many commits");
    }
    for family in ["read", "write", "open", "fsync", "metadata"] {
        reported.has_little(family, "other", 1)?;
    }
    reported.has_time("fsync", &["device", EXT4])
}

const LATER: u64 = 16;

/// No call waits for the writes, but they are attributed to this process.
fn later(reported: &Told) -> Result<(), String> {
    if reported.count("write") != LATER || reported.not_waited("writeback", "bytes") < LATER * BLOCK as u64 {
        return reported.wrong("not all was written back");
    }
    reported.has_none("write", &["queue", "device"])
}

const FIO: u64 = 100;
const STORM: u64 = 100;

fn storm(reported: &Told) -> Result<(), String> {
    if reported.count("open") < 2 * STORM || reported.count("metadata") < STORM || reported.class("direct") == 0 {
        return reported.wrong("not all of it");
    }
    for family in ["read", "write", "open", "metadata"] {
        reported.has_little(family, "other", 1)?;
    }
    // All files are renamed and half of them removed.
    let below = [VFS, EXT4].map(|layer| reported.came_by("metadata", layer));
    if below.iter().any(|&calls| calls < STORM * 3 / 2) {
        return reported.wrong("names that were not changed at vfs and ext4");
    }
    reported.has_time("open", &[EXT4])?;
    reported.has_time("metadata", &[VFS, EXT4])
}

const COMMITS: u64 = 5;

fn commits(reported: &Told) -> Result<(), String> {
    if (reported.count("fsync"), reported.count("write")) != (COMMITS, COMMITS) {
        return reported.wrong("not all commits");
    }
    reported.has_time("fsync", &["device", "journal"])?;
    reported.sleeps_for("fsync", &["device", "journal", "queue"])?;
    let mut origins = reported
        .reports
        .iter()
        .flat_map(|report| schema::array(&report["stack"]["not_waited"]));
    if !origins.any(|origin| origin["origin"] == "journal") {
        return reported.wrong("no requests of the journal");
    }
    Ok(())
}

fn cold(reported: &Told) -> Result<(), String> {
    if (reported.class("waited_for_own"), reported.class("waited_for_others")) != (1, 1) {
        return reported.wrong("not one read of each kind");
    }
    let (device, others) = (reported.ns("read", "device"), reported.ns("read", "others' I/O"));
    let long = LONG.as_nanos() as u64;
    // The second one follows some time after the first, with a delay on a busy host.
    if !about(long).contains(&device) || !(long / 10..long * 2).contains(&others) {
        return reported.wrong("one of them did not wait, or both did for the same");
    }
    reported.sleeps_for("read", &["device", "others' I/O"])
}

fn writers(reported: &Told) -> Result<(), String> {
    let (device, lock) = (reported.ns("write", "device"), reported.ns("write", "lock"));
    let long = LONG.as_nanos() as u64;
    // One of them waits for the disk, and the other one as long, less the moment that it began later.
    if reported.count("write") != 2 || !about(long).contains(&device) || !(long / 2..long * 3 / 2).contains(&lock) {
        return reported.wrong("not one of each kind");
    }
    reported.sleeps_for("write", &["device", "lock"])
}

/// Disks and file systems of the scenes.
struct Places {
    /// An ext4 file system on a slow disk.
    slow: &'static str,
    /// A slow disk without a file system.
    alone: &'static str,
    /// Moderately slow disks: one that serves many requests at once, and two that serve one at a time.
    direct: &'static str,
    one_by_one: &'static str,
    sorted: &'static str,
    xfs: &'static str,
    overlay: &'static str,
    btrfs: &'static str,
    nfs: &'static str,
    /// If the kernel has it.
    f2fs: Option<&'static str>,
    /// An ext4 file system on dm-crypt on a moderately slow disk.
    crypt: &'static str,
    // Dropped in this order.
    _mounted: Vec<Mounted>,
    _nfs: Nfs,
    _crypt: MappedDisk,
    _disks: NullDisks,
    _peers: Peers,
    _modules: Vec<Loaded>,
}

impl Places {
    /// Created in [`Self::new`].
    fn disks(guest: &Guest) -> Result<NullDisks, String> {
        let mut disks = NullDisks::slow(guest, LONG, &[])?;
        let delay = DELAY.as_nanos().to_string();
        let slow = [("irqmode", "2"), ("completion_nsec", &*delay)];
        let one_by_one = [slow[0], slow[1], ("submit_queues", "1"), ("hw_queue_depth", "1")];
        disks.add(&slow)?;
        disks.add(&one_by_one)?;
        disks.add(&one_by_one)?;
        disks.add(&slow)?;
        let short = SHORT.as_nanos().to_string();
        disks.add(&[("size", "256"), slow[0], ("completion_nsec", &short)])?;
        disks.add(&[slow[0], ("completion_nsec", &LONG.as_nanos().to_string())])?;
        disks.add(&[("size", "128"), slow[0], ("completion_nsec", &short)])?;
        for (disk, scheduler) in [("nullb2", "none"), ("nullb3", "mq-deadline")] {
            set_queue(disk, &[("scheduler", scheduler)])?;
        }
        Ok(disks)
    }

    fn make_file_systems(crypt: &str, has_f2fs: bool) -> Result<(), String> {
        for device in [NullDisks::FIRST, crypt] {
            // Features are named, since 5.10 cannot mount today's defaults.
            let features = "none,has_journal,extent,filetype,sparse_super,large_file";
            let mut mkfs = Command::new("mkfs.ext4");
            run(mkfs.args(["-q", "-F", "-O", features, device]), MINUTE)?.success()?;
        }
        let mut mkfs = peers::command(&["mkfs.btrfs", "-q", "-f", "/dev/nullb5"]);
        run(&mut mkfs, MINUTE)?.success()?;
        if has_f2fs {
            let mut mkfs = peers::command(&["mkfs.f2fs", "-q", "-f", F2FS_DISK]);
            run(&mut mkfs, MINUTE)?.success()?;
        }
        Ok(())
    }

    fn new(guest: &Guest) -> Result<Self, String> {
        const UPPER: &str = "/mnt/ext4/stack/upper";
        const WORK: &str = "/mnt/ext4/stack/work";
        // If it is not a module, it is built in.
        let optional = ["mq_deadline", "aesni_intel"];
        let mut modules: Vec<Loaded> = optional.iter().filter_map(|name| guest.load(name, "").ok()).collect();
        for module in ["overlay", "btrfs"] {
            modules.push(guest.load(module, "")?);
        }
        // Its blocks of 4 KiB have to be pages.
        let has_f2fs = guest.has_module("f2fs") && page_bytes() == 4096;
        if has_f2fs {
            modules.push(guest.load("crc32_generic", "")?);
            modules.push(guest.load("f2fs", "")?);
        }
        let peers = Peers::new(guest)?;
        let disks = Self::disks(guest)?;
        let key = "00".repeat(16);
        let sectors = 64 << 11;
        let crypt = MappedDisk::new(
            guest,
            "dm_crypt",
            "crypt",
            sectors,
            &format!("aes-cbc-plain64 {key} 0 /dev/nullb4 0"),
        )?;
        let device = crypt.device();
        Self::make_file_systems(&device, has_f2fs)?;
        for folder in [UPPER, WORK] {
            fs::create_dir_all(folder).map_err(|e| format!("{folder}: {e}"))?;
        }
        let layers = format!("lowerdir=/mnt/ext4,upperdir={UPPER},workdir={WORK}");
        let mut mounted = vec![
            Mounted::mount(NullDisks::FIRST, "/mnt/stack-slow", "ext4", "")?,
            Mounted::mount("overlay", "/mnt/stack-overlay", "overlay", &layers)?,
            Mounted::mount("/dev/nullb5", "/mnt/stack-btrfs", "btrfs", "")?,
            Mounted::mount(&device, "/mnt/stack-crypt", "ext4", "")?,
        ];
        if has_f2fs {
            mounted.push(Mounted::mount(F2FS_DISK, "/mnt/stack-f2fs", "f2fs", "")?);
        }
        let places = Self {
            slow: "/mnt/stack-slow/file",
            alone: "/dev/nullb6",
            direct: "/dev/nullb1",
            one_by_one: "/dev/nullb2",
            sorted: "/dev/nullb3",
            xfs: "/mnt/xfs/stack/file",
            overlay: "/mnt/stack-overlay/file",
            btrfs: "/mnt/stack-btrfs/file",
            nfs: "/mnt/nfs/stack/file",
            f2fs: has_f2fs.then_some("/mnt/stack-f2fs/file"),
            crypt: "/mnt/stack-crypt/file",
            _mounted: mounted,
            _nfs: Nfs::new(guest)?,
            _crypt: crypt,
            _disks: disks,
            _peers: peers,
            _modules: modules,
        };
        for file in [
            FILE,
            LARGE_FILE,
            places.slow,
            places.xfs,
            places.overlay,
            places.btrfs,
            places.nfs,
            places.crypt,
        ]
        .into_iter()
        .chain(places.f2fs)
        {
            prepare(file)?;
        }
        // An earlier attempt may have created it.
        if fs::exists(DATABASE).map_err(|e| format!("{DATABASE}: {e}"))? {
            fs::remove_file(DATABASE).map_err(|e| format!("{DATABASE}: {e}"))?;
        }
        fs::write(format!("{DATABASE}.sql"), statements()).map_err(|e| format!("{DATABASE}.sql: {e}"))?;
        Ok(places)
    }
}

/// Creates a table and inserts rows one by one, each in its own commit.
fn statements() -> String {
    let rows = (0..ROWS).map(|row| format!("insert into t values ({row}, 'row {row}');\n"));
    ["create table t (id integer primary key, text);\n".into()]
        .into_iter()
        .chain(rows)
        .collect()
}

/// A control group with a limit on reads per second, and a process in it.
struct Group;

impl Group {
    const FOLDER: &str = "/sys/fs/cgroup/stack";

    fn new(disk: &str, pid: u32) -> Result<Self, String> {
        let number = fs::metadata(disk).map_err(|e| format!("{disk}: {e}"))?.rdev();
        let (major, minor) = (libc::major(number), libc::minor(number));
        let write = |file: &str, text: &str| fs::write(file, text).map_err(|e| format!("{file}: {text}: {e}"));
        write("/sys/fs/cgroup/cgroup.subtree_control", "+io")?;
        fs::create_dir_all(Self::FOLDER).map_err(|e| format!("{}: {e}", Self::FOLDER))?;
        let in_it = |name: &str| format!("{}/{name}", Self::FOLDER);
        write(&in_it("io.max"), &format!("{major}:{minor} riops={PER_SECOND}"))?;
        write(&in_it("cgroup.procs"), &pid.to_string())?;
        Ok(Self)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(Self::FOLDER);
    }
}
