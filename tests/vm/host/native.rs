//! Measurements on the machine itself for the table of costs: its times are real, but its kernel may only allow
//! tracepoints.

use super::initramfs::in_path;
use crate::figures::{Figures, HERE, Selection};
use crate::guest::{Running, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);
/// The fastest of these batches counts, which had its CPU for itself.
const BATCHES: u32 = 50;
const BATCH: u32 = 400;

/// Whose reads are traced, and by which tool.
struct Watcher<'a> {
    figure: &'static str,
    /// The number of threads that read at the same time.
    readers: usize,
    words: &'a [&'a str],
    /// The output that shows that it has begun; `None` if only the traced process notices.
    begun: &'a str,
}

pub fn measure(tool: &Path) -> Result<Figures, String> {
    let mut figures = Figures::new();
    let mut put = |figure: &str, value: u64| figures.insert((HERE.into(), figure.into()), value);

    let file = File::open("/proc/self/exe").map_err(|e| format!("this executable: {e}"))?;
    let pid = std::process::id().to_string();
    let tool = tool.to_string_lossy();
    // Debian's names, before and since the split into two packages.
    let syscount = ["syscount-libbpf", "syscount"]
        .into_iter()
        .find(|name| in_path(name).is_some())
        .ok_or("libbpf-tools: there is no syscount")?;
    let watchers = [
        Watcher {
            figure: "-T syscall",
            readers: 1,
            words: &[&tool, "-T", "syscall", "-p", &pid, "-o", "/dev/null"],
            begun: "Tracing ",
        },
        Watcher {
            figure: "-T syscall --sample",
            readers: 1,
            words: &[
                &tool,
                "-T",
                "syscall",
                "-p",
                &pid,
                "--sample",
                "1/1000",
                "-o",
                "/dev/null",
            ],
            begun: "Tracing ",
        },
        Watcher {
            figure: "-T syscall on two CPUs",
            readers: 2,
            words: &[&tool, "-T", "syscall", "-p", &pid, "-o", "/dev/null"],
            begun: "Tracing ",
        },
        Watcher {
            figure: "syscount -L",
            readers: 1,
            words: &[syscount, "-L", "-p", &pid],
            begun: "Tracing ",
        },
        Watcher {
            figure: "strace -c",
            readers: 1,
            words: &["strace", "-f", "-c", "-o", "/dev/null", "-p", &pid],
            begun: " attached",
        },
        Watcher {
            figure: "perf trace -s",
            readers: 1,
            words: &["perf", "trace", "-s", "-o", "/dev/null", "-p", &pid],
            begun: "",
        },
    ];
    put("pread", per_read(&file, 1)?);
    for watcher in watchers {
        let base = per_read(&file, watcher.readers)?;
        let with = watched(&file, &watcher, base)?;
        put(watcher.figure, with.saturating_sub(base));
    }
    for (figure, view) in [("start", &[][..]), ("start syscall", &["-T", "syscall"])] {
        for selection in Selection::EACH {
            let words = [&["-o", "/dev/null"], view, &selection.words(&pid, &["true"])].concat();
            let took = to_banner(&tool, &words)?.as_millis() as u64;
            put(&format!("{figure}{}", selection.end()), took);
        }
    }
    Ok(figures)
}

/// The time from starting the tool to its banner: the median of some starts.
fn to_banner(tool: &str, words: &[&str]) -> Result<Duration, String> {
    const STARTS: usize = 15;
    let failed = |error: std::io::Error| format!("{words:?}: {error}");
    let start = || -> Result<Duration, String> {
        let begun = Instant::now();
        let mut command = Command::new(tool);
        command
            .args(words)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let stderr = child.stderr.take().ok_or("no standard error")?;
        let mut lines = BufReader::new(stderr).lines();
        let banner = lines.find(|line| line.as_ref().is_ok_and(|line| line.starts_with("Tracing ")));
        let took = begun.elapsed();
        // One that measures a command may have ended with it.
        let _ = kill(Pid::from_raw(child.id() as i32), Signal::SIGINT);
        // Until its end, so that it can write what is left.
        lines.for_each(drop);
        let status = child.wait().map_err(failed)?;
        match banner {
            Some(_) if status.success() => Ok(took),
            _ => Err(format!("{words:?}: {status}, and the banner {banner:?}")),
        }
    };
    let mut all = (0..STARTS).map(|_| start()).collect::<Result<Vec<_>, _>>()?;
    all.sort();
    Ok(all[STARTS / 2])
}

/// The time of a read in each of this many concurrent threads: the mean of the minimum of each.
fn per_read(file: &File, readers: usize) -> Result<u64, String> {
    let least =
        || -> Result<Duration, String> { (0..BATCHES).try_fold(Duration::MAX, |least, _| Ok(least.min(batch(file)?))) };
    // Some tools do not see threads that start later.
    if readers == 1 {
        return Ok((least()? / BATCH).as_nanos() as u64);
    }
    let all: Result<Vec<Duration>, String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..readers).map(|_| scope.spawn(least)).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|read| read.map_err(|_| "a reader has panicked")?).collect()
    });
    let sum: Duration = all?.iter().sum();
    Ok((sum / BATCH).as_nanos() as u64 / readers as u64)
}

fn batch(file: &File) -> Result<Duration, String> {
    let mut byte = [0];
    let start = Instant::now();
    for _ in 0..BATCH {
        file.read_at(&mut byte, 0).map_err(|e| format!("pread: {e}"))?;
    }
    Ok(start.elapsed())
}

/// The time of a read while a tool traces it.
fn watched(file: &File, watcher: &Watcher, base: u64) -> Result<u64, String> {
    let words = watcher.words;
    // Otherwise its output is only visible when it has ended.
    let stdbuf = [&["-oL"], words].concat();
    let running = Running::start(Command::new("stdbuf").args(stdbuf))?;
    let begun = wait_for("it to begin", MINUTE, || {
        if watcher.begun.is_empty() {
            // One may be slow because its CPU was needed elsewhere.
            let is_slow = |took: Duration| took.as_nanos() as u64 > 4 * base * u64::from(BATCH);
            return (0..BATCHES).all(|_| batch(file).is_ok_and(is_slow));
        }
        running.stdout().contains(watcher.begun) || running.stderr().contains(watcher.begun)
    });
    let said = || format!("{words:?}: {}{}", running.stdout(), running.stderr());
    begun.map_err(|e| format!("{e}: {}", said()))?;
    let with = per_read(file, watcher.readers)?;
    let stat = format!("/proc/{}/stat", running.pid());
    let stat = std::fs::read_to_string(&stat).map_err(|e| format!("{stat}: {e}"))?;
    if stat.contains(") Z") {
        return Err(format!("it ended by itself: {}", said()));
    }
    running.signal(Signal::SIGINT)?;
    running.finish(MINUTE)?;
    Ok(with)
}
