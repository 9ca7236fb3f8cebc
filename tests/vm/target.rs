//! A process that reads, and whose own clock tells how long each read took: a second opinion.
//!
//! `/init target direct FILE 20 cached FILE 1 sync FILE 3` leaves a line for each three words; see [`Reads`].

use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What a direct read moves, and its alignment.
pub const BLOCK: usize = 4096;

/// Where it leaves them: standard output and error belong to the tool.
const SAID: &str = "/tmp/target";

/// What the process says of some reads of `BLOCK` bytes: `sum min max`, in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub struct Reads {
    pub total: Duration,
    pub min: Duration,
    pub max: Duration,
}

impl Reads {
    /// What the last process said; it says it once.
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
        "direct" => libc::O_DIRECT,
        "cached" | "sync" => 0,
        other => return Err(format!("no reads are {other}")),
    };
    let count: u32 = count.parse().map_err(|_| "no number")?;
    let failed = |error: std::io::Error| error.to_string();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(file)
        .map_err(failed)?;
    let mut memory = vec![0; 2 * BLOCK];
    let aligned = memory.as_ptr().align_offset(BLOCK);
    let memory = &mut memory[aligned..aligned + BLOCK];
    let mut all = Reads {
        total: Duration::ZERO,
        min: Duration::MAX,
        max: Duration::ZERO,
    };
    for _ in 0..count {
        let start = Instant::now();
        let n = match kind {
            "sync" => file.sync_all().map(|()| BLOCK),
            _ => file.read_at(memory, 0),
        };
        let n = n.map_err(failed)?;
        let took = start.elapsed();
        if n != BLOCK {
            return Err(format!("a read of {n} bytes"));
        }
        all.total += took;
        all.min = all.min.min(took);
        all.max = all.max.max(took);
    }
    Ok(all)
}
