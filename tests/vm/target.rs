//! A process whose own clock measures how long each of its reads takes, as an independent measurement.
//!
//! `/init target direct FILE 20 cached FILE 1 sync FILE 3 together FILE 8` prints a line for each three words; see
//! [`Reads`].

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::ExitCode;
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// The size of a direct read, and its alignment.
pub const BLOCK: usize = 4096;

/// Where it writes the results: standard output and error belong to the tool.
const SAID: &str = "/tmp/target";

/// The process's measurements of reads of `BLOCK` bytes: `sum min max`, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub struct Reads {
    pub total: Duration,
    pub min: Duration,
    pub max: Duration,
}

impl Reads {
    fn none() -> Self {
        Self {
            total: Duration::ZERO,
            min: Duration::MAX,
            max: Duration::ZERO,
        }
    }

    fn add(&mut self, took: Duration) {
        self.total += took;
        self.min = self.min.min(took);
        self.max = self.max.max(took);
    }

    /// The results of the last process, which are removed.
    pub fn said() -> Result<Vec<Self>, String> {
        let text = std::fs::read_to_string(SAID).map_err(|e| format!("{SAID}: {e}"))?;
        std::fs::remove_file(SAID).map_err(|e| format!("{SAID}: {e}"))?;
        let line = |line: &str| {
            let numbers: Option<Vec<u64>> = line.split(' ').map(|word| word.parse().ok()).collect();
            let [total, min, max] = numbers.as_deref()?.try_into().ok()?;
            let [total, min, max] = [total, min, max].map(Duration::from_nanos);
            Some(Self { total, min, max })
        };
        let all: Option<Vec<Self>> = text.lines().map(line).collect();
        all.ok_or_else(|| format!("not what a target says: {text:?}"))
    }
}

pub fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(2).collect();
    let mut said = String::new();
    for step in words.chunks(3) {
        let reads = match step {
            [kind, file, count] => read(kind, file, count),
            _ => Err("not three words".into()),
        };
        match reads {
            Ok(Reads { total, min, max }) => {
                said += &format!("{} {} {}\n", total.as_nanos(), min.as_nanos(), max.as_nanos());
            }
            Err(error) => {
                eprintln!("target {step:?}: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    match std::fs::write(SAID, said) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{SAID}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn read(kind: &str, file: &str, count: &str) -> Result<Reads, String> {
    let flags = match kind {
        "direct" | "together" => libc::O_DIRECT,
        "cached" | "sync" => 0,
        other => return Err(format!("no reads are {other}")),
    };
    let count: u32 = count.parse().map_err(|_| "no number")?;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(file);
    let file = file.map_err(|e| e.to_string())?;
    let mut all = Reads::none();
    if kind == "together" {
        let start = Barrier::new(count as usize);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..count)
                .map(|_| {
                    scope.spawn(|| {
                        let mut memory = Memory::new();
                        start.wait();
                        memory.read(&file)
                    })
                })
                .collect();
            for thread in threads {
                all.add(thread.join().map_err(|_| "a thread panicked")??);
            }
            Ok::<(), String>(())
        })?;
    } else {
        let mut memory = Memory::new();
        for _ in 0..count {
            all.add(match kind {
                "sync" => timed(|| file.sync_all())?.1,
                _ => memory.read(&file)?,
            });
        }
    }
    Ok(all)
}

/// An aligned block.
struct Memory {
    bytes: Vec<u8>,
    start: usize,
}

impl Memory {
    fn new() -> Self {
        let bytes = vec![0; 2 * BLOCK];
        let start = bytes.as_ptr().align_offset(BLOCK);
        Self { bytes, start }
    }

    fn read(&mut self, file: &File) -> Result<Duration, String> {
        let block = &mut self.bytes[self.start..][..BLOCK];
        match timed(|| file.read_at(block, 0))? {
            (BLOCK, took) => Ok(took),
            (n, _) => Err(format!("a read of {n} bytes")),
        }
    }
}

fn timed<T>(call: impl FnOnce() -> std::io::Result<T>) -> Result<(T, Duration), String> {
    let start = Instant::now();
    let answer = call().map_err(|e| e.to_string())?;
    Ok((answer, start.elapsed()))
}
