//! Calls that this process makes and knows, and whether a recording has each of them.

#[path = "../chroot/mod.rs"]
pub mod chroot;
pub mod copies;
pub mod positions;

use std::collections::BTreeMap;
use std::ffi::CString;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Barrier;

use iostackbreakdown::model::ids::Layer;
use iostackbreakdown::model::record::{Call, Kind, OpenFile, Records};
use iostackbreakdown::recording::Recording;
use nix::time::{ClockId, clock_gettime};

/// A pread of this process. Its number is its offset.
#[derive(Debug, Clone, Copy)]
pub struct Made {
    pub number: u64,
    pub tid: u32,
    /// Before and after it, by `CLOCK_MONOTONIC`.
    pub begin_ns: u64,
    pub end_ns: u64,
}

pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).unwrap();
    now.tv_sec() as u64 * 1_000_000_000 + now.tv_nsec() as u64
}

pub fn open(file: &Path, flags: i32) -> i32 {
    let path = CString::new(file.as_os_str().as_bytes()).unwrap();
    // SAFETY: the path is terminated.
    let fd = unsafe { libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0o600) };
    assert!(fd >= 0, "{}: {}", file.display(), std::io::Error::last_os_error());
    fd as i32
}

/// Makes preads of `size` bytes of a file at these offsets, by so many threads at once. `step`: the distance of offsets.
pub fn numbered(fd: i32, offsets: Range<u64>, threads: u64, size: usize, step: u64) -> Vec<Made> {
    let start = Barrier::new(threads as usize);
    let one = |thread: u64| {
        // SAFETY: takes nothing.
        let tid = unsafe { libc::gettid() }.cast_unsigned();
        let mut memory = vec![0_u8; 2 * size.max(4096)];
        let aligned = memory.as_ptr().align_offset(4096);
        start.wait();
        let numbers = (offsets.start + thread * step..offsets.end).step_by((threads * step) as usize);
        let pread = |number: u64| {
            let begin_ns = now_ns();
            let at = memory[aligned..].as_mut_ptr();
            // SAFETY: the memory is large enough.
            let read = unsafe { libc::syscall(libc::SYS_pread64, fd, at, size, number) };
            assert!(read >= 0, "{}", std::io::Error::last_os_error());
            Made {
                number,
                tid,
                begin_ns,
                end_ns: now_ns(),
            }
        };
        numbers.map(pread).collect::<Vec<Made>>()
    };
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|thread| scope.spawn(move || one(thread))).collect();
        running.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    })
}

/// See [`Recorded::root`].
fn root() -> String {
    let root = chroot::from_root(Path::new("/"));
    root.to_str().unwrap().trim_end_matches('/').to_owned()
}

/// What a recording has, with its exact counts.
pub struct Recorded {
    pub records: Records,
    pub files: BTreeMap<u32, OpenFile>,
    /// Calls that were counted, by op; requests under [`Layer::Blk`].
    pub counted: BTreeMap<(Layer, &'static str), u128>,
    /// The root directory of this process, as recordings have it; empty: that of the mount namespace.
    root: String,
}

impl Recorded {
    pub fn open(folder: &Path) -> Result<Self, String> {
        let recording = Recording::open(folder).map_err(|cause| cause.to_string())?;
        let mut records = Records::default();
        recording.batches(None, None).for_each(|batch| records.append(batch));
        let seconds: Vec<_> = recording.seconds().collect();
        let [first, .., last] = &seconds[..] else {
            return Err(format!("it has {} seconds", seconds.len()));
        };
        let counts = |at: usize| {
            let of = |steps: &[u128]| steps.iter().sum::<u128>();
            of(&last.ops[at].steps) - of(&first.ops[at].steps)
        };
        let ops = recording.meta().run.ops.iter().enumerate();
        Ok(Self {
            counted: ops.map(|(at, op)| ((op.layer, op.op.name()), counts(at))).collect(),
            files: records.files.iter().map(|file| (file.number, file.clone())).collect(),
            records,
            root: root(),
        })
    }

    /// A recorded path, as this process sees it.
    pub fn seen<'a>(&self, path: &'a str) -> &'a str {
        match path.strip_prefix(&self.root) {
            Some("") => "/",
            Some(below) => below,
            None => path,
        }
    }

    /// Ended calls of this process, in the order in which they began.
    pub fn calls(&self, op: &str) -> Vec<&Call> {
        let is_its = |call: &&Call| call.pid == std::process::id() && call.op.name() == op && call.end_ns.is_some();
        let mut calls: Vec<&Call> = self.records.calls.iter().filter(is_its).collect();
        calls.sort_by_key(|call| call.begin_ns);
        calls
    }

    pub fn path(&self, number: u32) -> Option<&str> {
        Some(self.seen(&self.files.get(&number)?.path.as_ref()?.text))
    }

    /// Records that were lost.
    pub fn lost(&self, kind: Kind) -> u64 {
        let lost = self.records.lost.iter().filter(|lost| lost.kind == kind);
        lost.map(|lost| lost.records).sum()
    }

    /// Whether each pread is recorded once, with its times, thread and file, or else was lost when it says. Returns how
    /// many were lost.
    pub fn has_each(&self, made: &[Made], file: &str) -> Result<u64, String> {
        let mut by_number: BTreeMap<u64, Vec<&Call>> = BTreeMap::new();
        for call in self.calls("pread64") {
            by_number.entry(call.offset.unwrap_or(u64::MAX)).or_default().push(call);
        }
        let mut missing = 0;
        for made in made {
            let found = by_number.remove(&made.number).unwrap_or_default();
            match found[..] {
                [] => {
                    missing += 1;
                    let mut lost = self.records.lost.iter().filter(|lost| lost.kind == Kind::Call);
                    if !lost.any(|lost| lost.from_ns <= made.end_ns && made.begin_ns <= lost.to_ns) {
                        return Err(format!(
                            "{made:?} is missing, and in no loss of {:?}",
                            self.records.lost
                        ));
                    }
                }
                [call] => {
                    let end_ns = call.end_ns.unwrap_or(0);
                    let is_inside = made.begin_ns <= call.begin_ns && call.begin_ns <= end_ns && end_ns <= made.end_ns;
                    let has_file = self.lost(Kind::File) > 0 || self.path(call.files[0]) == Some(file);
                    if !is_inside || call.tid != made.tid || !has_file || call.cpus.iter().any(|cpu| *cpu > 1024) {
                        return Err(format!("{made:?} is {call:?} of {:?}", self.path(call.files[0])));
                    }
                }
                _ => return Err(format!("{made:?} is there {} times", found.len())),
            }
        }
        if let Some((number, _)) = by_number.first_key_value() {
            return Err(format!("no thread made the call {number}"));
        }
        let lost = self.lost(Kind::Call);
        if missing > lost {
            return Err(format!("{missing} are missing, and {lost} were lost"));
        }
        Ok(missing)
    }

    /// Whether what was counted is what was recorded and what was lost.
    pub fn adds_up(&self) -> Result<(), String> {
        let of = |layer: Layer| -> u128 {
            let counted = self.counted.iter().filter(|((of, _), _)| *of == layer);
            counted.map(|(_, calls)| calls).sum()
        };
        let ended = self.records.calls.iter().filter(|call| call.end_ns.is_some()).count() as u128;
        let lost = u128::from(self.lost(Kind::Call));
        if of(Layer::Syscall) != ended + lost {
            return Err(format!(
                "{} calls were counted, {ended} recorded and {lost} lost",
                of(Layer::Syscall)
            ));
        }
        Ok(())
    }
}
