//! The kernel's own tracer: its events of a disk's requests, with its own clock, and of a process' system calls, without
//! programs of ours.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The events where a request begins and ends for its device, or those of bios for a disk without requests.
pub const REQUESTS: [&str; 2] = ["block_rq_issue", "block_rq_complete"];
pub const BIOS: [&str; 2] = ["block_bio_queue", "block_bio_complete"];

/// A trace of two block events from its creation until it is dropped, with a buffer of its own.
pub struct Trace {
    folder: PathBuf,
    events: [&'static str; 2],
}

impl Trace {
    pub fn start(events: [&'static str; 2]) -> Result<Self, String> {
        let folder = PathBuf::from(format!("/sys/kernel/tracing/instances/check-{}", std::process::id()));
        fs::create_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let trace = Self { folder, events };
        // Times are those of a clock that cannot be set, in microseconds.
        trace.set("trace_clock", "mono")?;
        for event in events {
            trace.set(&format!("events/block/{event}/enable"), "1")?;
        }
        Ok(trace)
    }

    fn set(&self, file: &str, value: &str) -> Result<(), String> {
        let file = self.folder.join(file);
        fs::write(&file, value).map_err(|e| format!("{}: {value}: {e}", file.display()))
    }

    /// How long each request of a disk took. Requests of one sector are assumed to complete in order.
    pub fn times(&self, disk: &str) -> Result<Vec<Duration>, String> {
        let number = Path::new("/sys/block").join(disk).join("dev");
        let number = fs::read_to_string(&number).map_err(|e| format!("{}: {e}", number.display()))?;
        let number = number.trim().replace(':', ",");
        let file = self.folder.join("trace");
        let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        let mut begun: HashMap<u64, VecDeque<Duration>> = HashMap::new();
        let mut times = Vec::new();
        for event in text.lines().filter_map(parse).filter(|event| event.disk == number) {
            let begun = begun.entry(event.sector).or_default();
            if event.name == self.events[0] {
                begun.push_back(event.at);
            } else {
                let start = begun
                    .pop_front()
                    .ok_or_else(|| format!("an end without a start: {event:?}"))?;
                times.push(event.at - start);
            }
        }
        match begun.values().map(VecDeque::len).sum::<usize>() {
            0 => Ok(times),
            open => Err(format!("{open} requests of {disk} have no end in the trace")),
        }
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        for event in self.events {
            let _ = self.set(&format!("events/block/{event}/enable"), "0");
        }
        if let Err(error) = fs::remove_dir(&self.folder) {
            eprintln!("{}: {error}", self.folder.display());
        }
    }
}

#[derive(Debug)]
struct Event<'a> {
    at: Duration,
    name: &'a str,
    /// `252,0`
    disk: &'a str,
    sector: u64,
}

/// Parses `reader-71  [001] d..1.  12.345678: block_rq_issue: 252,0 R 4096 () 8 + 8 [reader]`; a task's name may
/// contain anything.
fn parse(line: &str) -> Option<Event<'_>> {
    let (before, rest) = line.split_once(": block_")?;
    let (seconds, micros) = before.split_whitespace().last()?.split_once('.')?;
    let micros: u64 = seconds.parse::<u64>().ok()? * 1_000_000 + micros.parse::<u64>().ok()?;
    let name = &line[line.len() - rest.len() - "block_".len()..];
    let (name, rest) = name.split_once(": ")?;
    let mut words = rest.split_whitespace();
    let disk = words.next()?;
    let sector = words.take_while(|word| *word != "+").last()?.parse().ok()?;
    Some(Event {
        at: Duration::from_micros(micros),
        name,
        disk,
        sector,
    })
}

/// System calls of a process, from now on until it is dropped.
pub struct Calls(PathBuf);

/// System calls that the tracer has other names for: those of the functions that they came to be.
const OTHER_NAMES: [(&str, &str); 3] = [("newstat", "stat"), ("newfstat", "fstat"), ("newlstat", "lstat")];

impl Calls {
    pub fn start(pid: u32) -> Result<Self, String> {
        let folder = PathBuf::from(format!("/sys/kernel/tracing/instances/calls-{}", std::process::id()));
        fs::create_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let calls = Self(folder);
        calls.set("set_event_pid", &pid.to_string())?;
        calls.set("events/syscalls/enable", "1")?;
        Ok(calls)
    }

    fn set(&self, file: &str, value: &str) -> Result<(), String> {
        let file = self.0.join(file);
        fs::write(&file, value).map_err(|e| format!("{}: {value}: {e}", file.display()))
    }

    /// Whether this kernel has events of a system call: it has none of calls that it does not implement.
    pub fn has(&self, name: &str) -> bool {
        let other = OTHER_NAMES.iter().find(|(_, known)| *known == name);
        let name = other.map_or(name, |(name, _)| name);
        self.0.join(format!("events/syscalls/sys_enter_{name}")).is_dir()
    }

    /// How often each was entered.
    pub fn entered(&self) -> Result<BTreeMap<String, u64>, String> {
        let file = self.0.join("trace");
        let text = fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        if text.contains("LOST") {
            return Err(format!("{}: events were lost", file.display()));
        }
        let mut counts = BTreeMap::new();
        for name in text.lines().filter_map(entered) {
            let other = OTHER_NAMES.iter().find(|(known, _)| *known == name);
            let name = other.map_or(name, |(_, name)| name);
            *counts.entry(name.to_owned()).or_default() += 1;
        }
        Ok(counts)
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        let _ = self.set("events/syscalls/enable", "0");
        if let Err(error) = fs::remove_dir(&self.0) {
            eprintln!("{}: {error}", self.0.display());
        }
    }
}

/// `worker-71  [001] d..1.  12.345678: sys_openat(dfd: ffffff9c, ...)`; returns have an arrow instead of arguments.
fn entered(line: &str) -> Option<&str> {
    let (_, call) = line.split_once(": sys_")?;
    let (name, _) = call.split_once('(')?;
    name.chars()
        .all(|c| c.is_ascii_alphanumeric() || c == '_')
        .then_some(name)
}
