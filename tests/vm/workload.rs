//! Processes whose file operations are known to the last call.
//!
//! Both sides are here: the checks start workloads and know what they do ([`Workload`], [`Spec::truth`]), and the
//! runner's executable becomes one if its first argument is `workload` ([`main`]). Every call is made by
//! `libc::syscall`, so that it has the name under which it is counted, and must return what its line of the table says.
//!
//! A workload opens its files and starts its threads, prints `ready` and waits for a signal. Waiting for a signal is
//! not a file operation, so after the signal the process makes only the calls of the table. Without a gate it starts at
//! once.

use crate::guest::{Output, Running, wait_for};
use nix::sys::signal::{SigSet, Signal};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::sync::Barrier;
use std::time::Duration;

/// Size of the file shared by threads and processes. No call of the table changes it.
pub const FILE_SIZE: usize = 64 << 10;
/// The size of direct I/O, and its alignment.
const BLOCK: i64 = 4096;
// include/uapi/linux/fs.h
const BLKDISCARD: i64 = 0x1277;
/// How long a workload may take to open its files, and how long to end, in a busy guest.
const START_BOUND: Duration = Duration::from_secs(60);
pub const END_BOUND: Duration = Duration::from_secs(90);
/// Signals a workload to start.
pub const GO: Signal = Signal::SIGUSR1;

pub const SYSCALL: &str = "syscall";
pub const VFS: &str = "vfs";
pub const EXT4: &str = "ext4";
pub const BLK: &str = "blk";

/// Kinds of files that are not on a disk.
pub const SOCKET: &str = "socket";
pub const PIPE: &str = "pipe";
pub const DEVICE: &str = "character_device";
/// An eventfd, for example.
pub const OTHER: &str = "other";

/// A line of a table: a system call, and what the layers see of it.
struct Step {
    /// How often it is made in a round. The numbers differ, so that mixed-up calls are noticed.
    times: u64,
    /// Name at the layer of system calls.
    name: &'static str,
    /// The operations below it.
    below: &'static [(&'static str, &'static str)],
    /// The kind of file that it works on.
    on: On,
    /// The return value: bytes, 0, a negative errno.
    gives: Gives,
    run: fn(&Hand) -> i64,
}

#[derive(Clone, Copy, PartialEq)]
enum On {
    /// A file on a disk: counted.
    File,
    /// A file that is not on a disk, such as a pipe: only counted with `--all-files`. Its kind, as in JSON reports.
    Other(&'static str),
    /// No file: a name or an invalid descriptor. Counted, unless the files of a disk are selected.
    Nothing,
}

/// Which files are selected.
#[derive(Clone, Copy, PartialEq)]
enum Asked {
    OnDisks,
    All,
    /// `-d`, the disk that they are on.
    OnOneDisk,
}

#[derive(Clone, Copy)]
enum Gives {
    Bytes(i64),
    /// A status, or a number other than bytes.
    Status(i64),
    /// 0, and the disk moves this many bytes.
    Done(i64),
    Error(i32),
}
use Gives::{Bytes, Done, Error, Status};

const NOTHING: &[(&str, &str)] = &[];
const READ: &[(&str, &str)] = &[(VFS, "read"), (EXT4, "read")];
const WRITE: &[(&str, &str)] = &[(VFS, "write"), (EXT4, "write")];
const OPEN: &[(&str, &str)] = &[(VFS, "open"), (EXT4, "open")];
const FSYNC: &[(&str, &str)] = &[(VFS, "fsync"), (EXT4, "fsync")];
/// A synchronous write is a write with an fsync inside.
const WRITE_FSYNC: &[(&str, &str)] = &[(VFS, "write"), (EXT4, "write"), (VFS, "fsync"), (EXT4, "fsync")];
/// Only regular files are opened by the file system's own function.
const OPEN_FOLDER: &[(&str, &str)] = &[(VFS, "open")];
const READ_VFS: &[(&str, &str)] = &[(VFS, "read")];
const WRITE_VFS: &[(&str, &str)] = &[(VFS, "write")];
/// A file on ext4.
const READ_DIRECT: &[(&str, &str)] = &[(VFS, "read"), (EXT4, "read"), (BLK, "read")];
/// A whole disk, of which only the block layer is checked.
const READ_DISK: &[(&str, &str)] = &[(BLK, "read")];
const WRITE_DISK: &[(&str, &str)] = &[(BLK, "write")];
const DISCARD: &[(&str, &str)] = &[(BLK, "discard")];
const ZEROES: &[(&str, &str)] = &[(BLK, "write_zeroes")];
const FLUSH: &[(&str, &str)] = &[(BLK, "flush")];
/// A disk without FUA is flushed after the write, and again for the fsync inside it.
const WRITE_FUA: &[(&str, &str)] = &[(BLK, "write"), (BLK, "flush"), (BLK, "flush")];

const fn step(
    times: u64,
    name: &'static str,
    below: &'static [(&'static str, &'static str)],
    gives: Gives,
    run: fn(&Hand) -> i64,
) -> Step {
    Step {
        times,
        name,
        below,
        on: On::File,
        gives,
        run,
    }
}

const fn on_socket(step: Step) -> Step {
    on_kind(SOCKET, step)
}

const fn on_pipe(step: Step) -> Step {
    on_kind(PIPE, step)
}

const fn on_device(step: Step) -> Step {
    on_kind(DEVICE, step)
}

const fn on_other(step: Step) -> Step {
    on_kind(OTHER, step)
}

const fn on_kind(kind: &'static str, step: Step) -> Step {
    Step {
        on: On::Other(kind),
        ..step
    }
}

const fn no_file(step: Step) -> Step {
    Step {
        on: On::Nothing,
        ..step
    }
}

/// Operations that all three layers see, in the same way for every file system.
const CALLS: &[Step] = &[
    step(13, "pread64", READ, Bytes(100), |h| {
        sys(libc::SYS_pread64, &[h.file, h.buffer, 100, 4000])
    }),
    // At the end of the file, and on an invalid descriptor.
    step(1, "pread64", READ, Bytes(0), |h| {
        sys(libc::SYS_pread64, &[h.file, h.buffer, 100, FILE_SIZE as i64])
    }),
    no_file(step(1, "pread64", NOTHING, Error(libc::EBADF), |h| {
        sys(libc::SYS_pread64, &[-1, h.buffer, 100, 0])
    })),
    step(11, "read", READ, Bytes(77), |h| {
        at_start(h.file) + sys(libc::SYS_read, &[h.file, h.buffer, 77])
    }),
    step(3, "readv", READ, Bytes(80), |h| {
        at_start(h.file) + sys(libc::SYS_readv, &[h.file, h.vectors, 2])
    }),
    step(4, "preadv", READ, Bytes(80), |h| {
        sys(libc::SYS_preadv, &[h.file, h.vectors, 2, 7, 0])
    }),
    step(5, "preadv2", READ, Bytes(80), |h| {
        sys(libc::SYS_preadv2, &[h.file, h.vectors, 2, 7, 0, 0])
    }),
    step(9, "pwrite64", WRITE, Bytes(120), |h| {
        sys(libc::SYS_pwrite64, &[h.file, h.buffer, 120, 5000])
    }),
    step(7, "write", WRITE, Bytes(61), |h| {
        at_start(h.file) + sys(libc::SYS_write, &[h.file, h.buffer, 61])
    }),
    step(2, "writev", WRITE, Bytes(80), |h| {
        at_start(h.file) + sys(libc::SYS_writev, &[h.file, h.vectors, 2])
    }),
    step(4, "pwritev", WRITE, Bytes(80), |h| {
        sys(libc::SYS_pwritev, &[h.file, h.vectors, 2, 9, 0])
    }),
    step(3, "pwritev2", WRITE, Bytes(80), |h| {
        sys(libc::SYS_pwritev2, &[h.file, h.vectors, 2, 9, 0, 0])
    }),
    step(2, "fsync", FSYNC, Status(0), |h| sys(libc::SYS_fsync, &[h.file])),
    step(1, "fdatasync", FSYNC, Status(0), |h| {
        sys(libc::SYS_fdatasync, &[h.file])
    }),
    step(6, "openat", OPEN, Status(0), |h| {
        h.keep(open_at(h.folder, h.path, libc::O_RDONLY))
    }),
    step(6, "close", NOTHING, Status(0), |h| sys(libc::SYS_close, &[h.kept()])),
    step(1, "openat", OPEN_FOLDER, Status(0), |h| {
        h.keep(open_at(h.folder, h.dot, libc::O_DIRECTORY))
    }),
    step(1, "close", NOTHING, Status(0), |h| sys(libc::SYS_close, &[h.kept()])),
];

/// Calls that not every file system supports.
const PAST_THE_CACHE: &[Step] = &[step(2, "pread64", READ, Bytes(BLOCK), |h| {
    sys(libc::SYS_pread64, &[h.direct, h.buffer, BLOCK, 2 * BLOCK])
})];

/// Synchronous writes, by their flags or by those of the file.
const SYNCHRONOUS: &[Step] = &[
    step(1, "pwritev2", WRITE_FSYNC, Bytes(80), |h| {
        sys(
            libc::SYS_pwritev2,
            &[h.file, h.vectors, 2, 9, 0, libc::RWF_DSYNC.into()],
        )
    }),
    step(2, "write", WRITE_FSYNC, Bytes(300), |h| {
        at_start(h.sync) + sys(libc::SYS_write, &[h.sync, h.buffer, 300])
    }),
];

/// The value written to an eventfd.
static ONE: u64 = 1;

/// Missing files, and files that are not on a disk.
const NO_FILES: &[Step] = &[
    no_file(step(3, "openat", NOTHING, Error(libc::ENOENT), |h| {
        open_at(h.folder, h.missing, libc::O_RDONLY)
    })),
    on_pipe(step(2, "write", WRITE_VFS, Bytes(1), |h| {
        sys(libc::SYS_write, &[h.pipe[1], h.buffer, 1])
    })),
    on_pipe(step(2, "read", READ_VFS, Bytes(1), |h| {
        sys(libc::SYS_read, &[h.pipe[0], h.buffer, 1])
    })),
    on_socket(step(1, "write", WRITE_VFS, Bytes(2), |h| {
        sys(libc::SYS_write, &[h.socket[1], h.buffer, 2])
    })),
    on_socket(step(1, "read", READ_VFS, Bytes(2), |h| {
        sys(libc::SYS_read, &[h.socket[0], h.buffer, 2])
    })),
    on_device(step(2, "openat", OPEN_FOLDER, Status(0), |h| {
        h.keep(open_at(h.folder, h.null, libc::O_RDWR))
    })),
    on_device(step(3, "write", WRITE_VFS, Bytes(4), |h| {
        sys(libc::SYS_write, &[h.newest(), h.buffer, 4])
    })),
    on_device(step(2, "close", NOTHING, Status(0), |h| {
        sys(libc::SYS_close, &[h.kept()])
    })),
    on_other(step(5, "write", WRITE_VFS, Bytes(8), |h| {
        sys(libc::SYS_write, &[h.event, (&raw const ONE) as i64, 8])
    })),
    // Everything that was written to it.
    on_other(step(1, "read", READ_VFS, Bytes(8), |h| {
        sys(libc::SYS_read, &[h.event, h.buffer, 8])
    })),
];

/// Writes with flags, for single calls or for the file.
const FLAGS: &[Step] = &[
    step(3, "pwritev2", WRITE_FSYNC, Bytes(80), |h| {
        sys(libc::SYS_pwritev2, &[h.file, h.vectors, 2, 9, 0, libc::RWF_SYNC.into()])
    }),
    step(2, "pwritev2", WRITE_FSYNC, Bytes(80), |h| {
        sys(
            libc::SYS_pwritev2,
            &[h.file, h.vectors, 2, 9, 0, libc::RWF_DSYNC.into()],
        )
    }),
    step(4, "pwrite64", WRITE_FSYNC, Bytes(120), |h| {
        sys(libc::SYS_pwrite64, &[h.data_sync, h.buffer, 120, 5000])
    }),
    step(1, "pwrite64", WRITE_FSYNC, Bytes(BLOCK), |h| {
        sys(libc::SYS_pwrite64, &[h.sync, h.buffer, BLOCK, BLOCK])
    }),
    step(5, "pwritev2", WRITE, Bytes(80), |h| {
        sys(
            libc::SYS_pwritev2,
            &[h.file, h.vectors, 2, 0, 0, libc::RWF_APPEND.into()],
        )
    }),
];

/// Operations that not every file system supports, or passes on to one below it.
const ODD: &[Step] = &[
    // Nothing is written, so there is nothing to sync.
    step(2, "pwrite64", WRITE, Bytes(0), |h| {
        sys(libc::SYS_pwrite64, &[h.sync, h.buffer, 0, BLOCK])
    }),
    step(6, "preadv2", READ, Bytes(80), |h| {
        sys(
            libc::SYS_preadv2,
            &[h.file, h.vectors, 2, 9, 0, libc::RWF_NOWAIT.into()],
        )
    }),
    step(2, "preadv2", READ, Bytes(BLOCK), |h| {
        sys(
            libc::SYS_preadv2,
            &[h.direct, h.block, 1, BLOCK, 0, libc::RWF_HIPRI.into()],
        )
    }),
    // An unknown flag is refused before the file system is called.
    step(3, "preadv2", READ_VFS, Error(libc::EOPNOTSUPP), |h| {
        sys(libc::SYS_preadv2, &[h.file, h.vectors, 2, 9, 0, 1 << 30])
    }),
];

/// Results of a file system that was shut down.
const DEAD: &[Step] = &[
    step(5, "pread64", READ, Error(libc::EIO), |h| {
        sys(libc::SYS_pread64, &[h.file, h.buffer, 100, 0])
    }),
    step(4, "pwrite64", WRITE, Error(libc::EIO), |h| {
        sys(libc::SYS_pwrite64, &[h.file, h.buffer, 100, 0])
    }),
    step(3, "openat", OPEN, Error(libc::EIO), |h| {
        open_at(h.folder, h.path, libc::O_RDONLY)
    }),
    step(2, "fsync", FSYNC, Error(libc::EIO), |h| sys(libc::SYS_fsync, &[h.file])),
];

/// Reads of a disk that fails them.
const FAILING: &[Step] = &[step(3, "pread64", READ_DIRECT, Error(libc::EIO), |h| {
    sys(libc::SYS_pread64, &[h.direct, h.buffer, BLOCK, 0])
})];

/// Cached reads of one byte, as fast as possible.
const CACHED: &[Step] = &[step(1, "pread64", READ, Bytes(1), |h| {
    sys(libc::SYS_pread64, &[h.file, h.buffer, 1, 0])
})];

/// Reads that wait for the device.
const DIRECT: &[Step] = &[step(1, "pread64", READ_DIRECT, Bytes(BLOCK), |h| {
    sys(libc::SYS_pread64, &[h.direct, h.buffer, BLOCK, 0])
})];

/// Writes that wait for the journal.
const SYNCED: &[Step] = &[step(1, "pwrite64", WRITE_FSYNC, Bytes(1), |h| {
    sys(libc::SYS_pwrite64, &[h.sync, h.buffer, 1, 0])
})];

/// Requests of a disk, which is the file. None of them are adjacent, so that they are not merged.
const DISK: &[Step] = &[
    step(5, "pread64", READ_DISK, Bytes(BLOCK), |h| {
        sys(libc::SYS_pread64, &[h.direct, h.buffer, BLOCK, 0])
    }),
    step(2, "pread64", READ_DISK, Bytes(4 * BLOCK), |h| {
        sys(libc::SYS_pread64, &[h.direct, h.buffer, 4 * BLOCK, 8 * BLOCK])
    }),
    step(3, "pwrite64", WRITE_DISK, Bytes(2 * BLOCK), |h| {
        sys(libc::SYS_pwrite64, &[h.direct, h.buffer, 2 * BLOCK, 32 * BLOCK])
    }),
];

/// Requests of a disk that supports discards.
const DISCARDS: &[Step] = &[step(2, "ioctl", DISCARD, Done(8 * BLOCK), |h| {
    let range = [64 * BLOCK, 8 * BLOCK];
    sys(libc::SYS_ioctl, &[h.direct, BLKDISCARD, range.as_ptr() as i64])
})];

/// Requests of a disk that can write zeroes itself.
const ZEROED: &[Step] = &[step(1, "fallocate", ZEROES, Done(16 * BLOCK), |h| {
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    sys(libc::SYS_fallocate, &[h.direct, mode.into(), 128 * BLOCK, 16 * BLOCK])
})];

/// Requests of a disk with a write cache and without FUA.
const FLUSHED: &[Step] = &[
    step(3, "fsync", FLUSH, Status(0), |h| sys(libc::SYS_fsync, &[h.direct])),
    step(2, "pwritev2", WRITE_FUA, Bytes(BLOCK), |h| {
        sys(
            libc::SYS_pwritev2,
            &[h.direct, h.block, 1, 96 * BLOCK, 0, libc::RWF_DSYNC.into()],
        )
    }),
];

const SPLICE_READ: &[(&str, &str)] = &[(EXT4, "splice_read")];
const SPLICE_WRITE: &[(&str, &str)] = &[(EXT4, "splice_write")];
const COPY: &[(&str, &str)] = &[(EXT4, "splice_read"), (EXT4, "splice_write")];
/// The numbers of the pages that are modified through a mapping. Those of 16 KiB are in the shared file as well.
pub const MAPPED_PAGES: [i64; 3] = [0, 1, 3];
/// These pages modified, and synced by msync.
const MAPPED: &[(&str, &str)] = &[
    (EXT4, "fault"),
    (EXT4, "fault"),
    (EXT4, "fault"),
    (EXT4, "mkwrite"),
    (EXT4, "mkwrite"),
    (EXT4, "mkwrite"),
    (EXT4, "fsync"),
];

/// Ways into a file that are neither a read nor a write, and have none inside that would be counted.
const SPLICES: &[Step] = &[
    step(4, "splice", SPLICE_READ, Bytes(BLOCK), |h| {
        sys(libc::SYS_splice, &[h.file, h.offset(0, 100), h.pipe[1], 0, BLOCK, 0])
    }),
    step(4, "splice", SPLICE_WRITE, Bytes(BLOCK), |h| {
        sys(
            libc::SYS_splice,
            &[h.pipe[0], 0, h.file, h.offset(0, 3 * BLOCK), BLOCK, 0],
        )
    }),
    step(5, "sendfile64", COPY, Bytes(BLOCK), |h| {
        at_start(h.file) + sys(libc::SYS_sendfile, &[h.file, h.reader, h.offset(0, 5 * BLOCK), BLOCK])
    }),
];

const MAPPINGS: &[Step] = &[step(3, "msync", MAPPED, Status(0), |h| {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: takes an integer.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let length = 4 * page;
    let place = must(sys(
        libc::SYS_mmap,
        &[0, length, protection.into(), flags.into(), h.file, 0],
    ));
    for number in MAPPED_PAGES {
        // SAFETY: within the mapping.
        unsafe { ((place + number * page) as *mut u8).write_volatile(b'm') };
    }
    let reported = sys(libc::SYS_msync, &[place, length, libc::MS_SYNC.into()]);
    reported + sys(libc::SYS_munmap, &[place, length])
})];

/// The same for file systems without shared extents.
const COPIES: &[Step] = &[step(7, "copy_file_range", COPY, Bytes(BLOCK), |h| {
    let (from, to) = (h.offset(0, BLOCK), h.offset(1, 7 * BLOCK));
    sys(libc::SYS_copy_file_range, &[h.reader, from, h.file, to, BLOCK, 0])
})];

/// Creates a file, and allocates space in one.
const MADE: &[Step] = &[
    step(1, "openat", OPEN, Status(0), |h| {
        h.keep(open_at(
            h.folder,
            h.fresh,
            libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY,
        ))
    }),
    step(1, "close", NOTHING, Status(0), |h| sys(libc::SYS_close, &[h.kept()])),
    step(1, "unlinkat", NOTHING, Status(0), |h| {
        sys(libc::SYS_unlinkat, &[h.folder, h.fresh, 0])
    }),
    step(3, "fallocate", &[(EXT4, "fallocate")], Status(0), |h| {
        sys(libc::SYS_fallocate, &[h.file, 0, 2 * BLOCK, BLOCK])
    }),
];

const SETS: &[(&str, &[&[Step]])] = &[
    ("others", &[SPLICES, MAPPINGS, COPIES]),
    ("ways", &[SPLICES, MAPPINGS]),
    ("splices", &[SPLICES]),
    ("none", &[]),
    ("mix", &[CALLS, PAST_THE_CACHE, SYNCHRONOUS, NO_FILES]),
    ("local", &[CALLS, PAST_THE_CACHE, SYNCHRONOUS, NO_FILES, MADE]),
    ("remote", &[CALLS, PAST_THE_CACHE, MADE]),
    ("memory", &[CALLS, NO_FILES, MADE]),
    ("flags", &[FLAGS]),
    ("odd", &[ODD]),
    ("dead", &[DEAD]),
    ("failing", &[FAILING]),
    ("cached", &[CACHED]),
    ("direct", &[DIRECT]),
    ("synced", &[SYNCED]),
    ("disk", &[DISK]),
    ("discards", &[DISCARDS]),
    ("zeroed", &[ZEROED]),
    ("flushed", &[FLUSHED]),
];

fn set_of(name: &str) -> impl Iterator<Item = &'static Step> {
    let found = SETS.iter().find(|(set, _)| *set == name);
    let found = found.unwrap_or_else(|| panic!("no set of calls is named {name:?}"));
    found.1.iter().copied().flatten()
}

/// An operation of a layer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Count {
    pub calls: u64,
    pub bytes: u64,
    pub errors: u64,
}

/// Calls as seen by the layers, either known or reported.
#[derive(Clone, Debug, Default)]
pub struct Calls {
    /// By layer and operation.
    pub ops: BTreeMap<(String, String), Count>,
    /// Calls left out because of the kind of their file, by layer and kind.
    pub excluded: BTreeMap<(String, String), u64>,
}

impl Calls {
    /// The same on a file system other than ext4.
    pub fn on(self, file_system: &str) -> Self {
        self.moved(EXT4, file_system)
    }

    /// With the calls of one layer made another one's.
    pub fn moved(self, from: &str, to: &str) -> Self {
        let name = |layer: String| if layer == from { to.to_owned() } else { layer };
        let ops = self
            .ops
            .into_iter()
            .map(|((layer, op), count)| ((name(layer), op), count));
        let excluded = self
            .excluded
            .into_iter()
            .map(|((layer, kind), calls)| ((name(layer), kind), calls));
        Self {
            ops: ops.collect(),
            excluded: excluded.collect(),
        }
    }

    /// The sum of both.
    pub fn with(mut self, others: &Self) -> Self {
        for (op, count) in &others.ops {
            let sum = self.ops.entry(op.clone()).or_default();
            sum.calls += count.calls;
            sum.bytes += count.bytes;
            sum.errors += count.errors;
        }
        for (kind, excluded) in &others.excluded {
            *self.excluded.entry(kind.clone()).or_default() += excluded;
        }
        self
    }
}

/// The calls of this many rounds of a set, in all threads.
fn truth(set: &str, rounds: u64, asked: Asked) -> Calls {
    let mut truth = Calls::default();
    for step in set_of(set) {
        let calls = rounds * step.times;
        for &(layer, op) in [(SYSCALL, step.name)].iter().chain(step.below) {
            if step.on == On::Nothing && asked == Asked::OnOneDisk {
                continue;
            }
            if let On::Other(kind) = step.on
                && asked != Asked::All
            {
                *truth.excluded.entry((layer.into(), kind.into())).or_default() += calls;
                continue;
            }
            let count = truth.ops.entry((layer.into(), op.into())).or_default();
            count.calls += calls;
            match step.gives {
                // The fsync or flush of a write moves no bytes of its own.
                Bytes(bytes) if !matches!(op, "fsync" | "flush") => count.bytes += calls * bytes.unsigned_abs(),
                Done(bytes) if layer == BLK => count.bytes += calls * bytes.unsigned_abs(),
                Error(_) => count.errors += calls,
                Bytes(_) | Status(_) | Done(_) => {}
            }
        }
    }
    truth
}

/// The description of a workload.
#[derive(Clone, Copy)]
pub struct Spec<'a> {
    pub set: &'a str,
    pub threads: u64,
    /// Rounds of each thread.
    pub rounds: u64,
    pub file: &'a str,
    /// The name of its threads, followed by `-` and their number.
    pub name: &'a str,
}

impl Spec<'_> {
    /// The command line that runs it without a gate.
    pub fn command(&self) -> Vec<String> {
        let Self {
            set,
            threads,
            rounds,
            file,
            name,
        } = self;
        [
            "/init",
            "workload",
            set,
            &threads.to_string(),
            &rounds.to_string(),
            file,
            name,
        ]
        .map(String::from)
        .to_vec()
    }

    /// Whether it makes this system call.
    pub fn makes(&self, call: &str) -> bool {
        set_of(self.set).any(|step| step.name == call)
    }

    /// The calls after the signal.
    pub fn truth(&self) -> Calls {
        truth(self.set, self.threads * self.rounds, Asked::OnDisks)
    }

    /// The same with `-d` of its disk.
    pub fn truth_of_disk(&self) -> Calls {
        truth(self.set, self.threads * self.rounds, Asked::OnOneDisk)
    }

    /// The same with `--all-files`.
    pub fn truth_of_all_files(&self) -> Calls {
        truth(self.set, self.threads * self.rounds, Asked::All)
    }
}

/// A workload that waits for [`Workload::go`]. Dropping it ends it.
pub struct Workload {
    process: Running,
    /// Its number in its own PID namespace.
    pub pid: u32,
}

impl Workload {
    pub fn start(spec: &Spec) -> Result<Self, String> {
        Self::launch(&spec.command())
    }

    /// Starts any command that waits for the signal if its last argument is `gated`.
    pub fn launch(command: &[String]) -> Result<Self, String> {
        let process = Running::start(Command::new(&command[0]).args(&command[1..]).arg("gated"))?;
        let mut pid = None;
        wait_for("a workload to be ready", START_BOUND, || {
            pid = process
                .stderr()
                .lines()
                .find_map(|line| line.strip_prefix("ready ")?.parse().ok());
            pid.is_some()
        })
        .map_err(|e| format!("{e}: {}", process.stderr()))?;
        let pid = pid.ok_or("a workload has no number")?;
        Ok(Self { process, pid })
    }

    pub fn go(&self) -> Result<(), String> {
        self.process.signal(GO)
    }

    /// Lets it work, and waits for its end.
    pub fn work(self) -> Result<(), String> {
        self.go()?;
        self.finish()
    }

    /// Waits for its end, which is a success if every call returned what its table says.
    pub fn finish(self) -> Result<(), String> {
        self.output().map(drop)
    }

    /// The same, with its output.
    pub fn output(self) -> Result<Output, String> {
        self.process.finish(END_BOUND)?.success()
    }
}

/// The file shared by workloads, alone in its directory.
pub fn prepare(file: &str) -> Result<(), String> {
    let folder = Path::new(file)
        .parent()
        .ok_or_else(|| format!("{file} has no folder"))?;
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(file, vec![b'x'; FILE_SIZE]))
        .and_then(|()| std::fs::File::open(file)?.sync_all())
        .map_err(|e| format!("{file}: {e}"))
}

/// The arguments of a helper process, and whether it waits for its signal.
pub fn arguments() -> (Vec<String>, bool) {
    let mut words: Vec<String> = std::env::args().skip(2).collect();
    let gated = words.pop_if(|last| last == "gated").is_some();
    (words, gated)
}

/// Where a helper process waits for its signal, if it is gated.
pub struct Gate(Option<SigSet>);

impl Gate {
    pub fn new(gated: bool) -> Self {
        let go = SigSet::from_iter([GO]);
        if gated {
            // Blocked before threads exist, so that none of them receives it.
            go.thread_block().expect("a signal can be blocked");
        }
        Self(gated.then_some(go))
    }

    pub fn wait(&self) {
        if self.0.is_some() {
            eprintln!("ready {}", std::process::id());
        }
        self.pass();
    }

    /// Waits without printing anything.
    pub fn pass(&self) {
        if let Some(go) = &self.0 {
            go.wait().expect("a signal can be waited for");
        }
    }
}

/// Runs the workload: the arguments of [`Spec::command`], optionally followed by `gated`. A call that does not return
/// what its table says is a panic, and so a failed workload.
pub fn main() -> ExitCode {
    let (arguments, gated) = arguments();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [set, threads, rounds, file, name] = *words.as_slice() else {
        panic!("a workload does not understand {words:?}");
    };
    let number = |text: &str| -> u64 { text.parse().unwrap_or_else(|e| panic!("{text}: {e}")) };
    let set: Vec<&Step> = set_of(set).collect();
    work(&set, number(threads) as usize, number(rounds), file, name, gated);
    ExitCode::SUCCESS
}

fn work(set: &[&Step], threads: usize, rounds: u64, file: &str, name: &str, gated: bool) {
    let gate = Gate::new(gated);
    let (opened, released) = (Barrier::new(threads + 1), Barrier::new(threads + 1));
    std::thread::scope(|scope| {
        for number in 0..threads {
            let (opened, released) = (&opened, &released);
            let run = move || {
                let hand = Hand::open(file);
                opened.wait();
                released.wait();
                (0..rounds).for_each(|_| hand.round(set));
            };
            let thread = std::thread::Builder::new().name(format!("{name}-{number}"));
            thread.spawn_scoped(scope, run).expect("a thread can be made");
        }
        opened.wait();
        gate.wait();
        released.wait();
    });
}

/// The data of one thread. Integers and addresses are in the kernel's form.
struct Hand {
    /// Two file offsets, for calls that take their addresses.
    offsets: RefCell<[i64; 2]>,
    /// Each thread has its own descriptor, with a position of its own.
    file: i64,
    /// The same file, opened with O_SYNC and with O_DIRECT.
    sync: i64,
    direct: i64,
    /// And with O_DSYNC.
    data_sync: i64,
    /// The same file, opened read-only.
    reader: i64,
    folder: i64,
    pipe: [i64; 2],
    socket: [i64; 2],
    event: i64,
    buffer: i64,
    /// Two pieces of the buffer, 50 and 30 bytes.
    vectors: i64,
    /// An aligned block of the buffer.
    block: i64,
    path: i64,
    dot: i64,
    missing: i64,
    /// Names that no other thread creates.
    fresh: i64,
    null: i64,
    /// Open descriptors that are still to be closed.
    kept: RefCell<Vec<i64>>,
}

impl Hand {
    fn open(file: &str) -> Self {
        let path = address(file);
        let folder = Path::new(file)
            .parent()
            .and_then(Path::to_str)
            .expect("a file has a folder");
        let here = i64::from(libc::AT_FDCWD);
        let (mut pipe, mut socket) = ([0i32; 2], [0i32; 2]);
        must(sys(libc::SYS_pipe2, &[pipe.as_mut_ptr() as i64, 0]));
        let pair = socket.as_mut_ptr() as i64;
        must(sys(
            libc::SYS_socketpair,
            &[libc::AF_UNIX.into(), libc::SOCK_STREAM.into(), 0, pair],
        ));
        // The longest read, and the padding for alignment.
        let memory: &mut [u8] = Box::leak(vec![0; 5 * BLOCK as usize].into_boxed_slice());
        let buffer = memory
            .as_ptr()
            .wrapping_add(memory.as_ptr().align_offset(BLOCK as usize)) as i64;
        let piece = |at: i64, iov_len| libc::iovec {
            iov_base: (buffer + at) as *mut libc::c_void,
            iov_len,
        };
        let vectors: &[libc::iovec] = Box::leak(Box::new([piece(0, 50), piece(50, 30)]));
        let block: &libc::iovec = Box::leak(Box::new(piece(0, BLOCK as usize)));
        Self {
            offsets: RefCell::default(),
            file: must(open_at(here, path, libc::O_RDWR)),
            reader: must(open_at(here, path, libc::O_RDONLY)),
            sync: must(open_at(here, path, libc::O_RDWR | libc::O_SYNC)),
            data_sync: must(open_at(here, path, libc::O_RDWR | libc::O_DSYNC)),
            // Not every file system supports this; a set that needs it fails when it is used.
            direct: open_at(here, path, libc::O_RDWR | libc::O_DIRECT),
            folder: must(open_at(here, address(folder), libc::O_DIRECTORY)),
            pipe: pipe.map(i64::from),
            socket: socket.map(i64::from),
            event: must(sys(libc::SYS_eventfd2, &[0, 0])),
            buffer,
            vectors: vectors.as_ptr() as i64,
            block: std::ptr::from_ref(block) as i64,
            path,
            dot: address("."),
            missing: address("no such file"),
            fresh: address(&format!("of thread {}", nix::unistd::gettid())),
            null: address("/dev/null"),
            kept: RefCell::new(Vec::with_capacity(16)),
        }
    }

    fn round(&self, set: &[&Step]) {
        for step in set {
            let expected = match step.gives {
                Bytes(number) | Status(number) => number,
                Done(_) => 0,
                Error(errno) => -i64::from(errno),
            };
            for _ in 0..step.times {
                let given = (step.run)(self);
                assert_eq!(given, expected, "{}", step.name);
            }
        }
    }

    /// The address of one of the offsets, set to this value.
    fn offset(&self, which: usize, value: i64) -> i64 {
        self.offsets.borrow_mut()[which] = value;
        self.offsets.as_ptr() as i64 + 8 * which as i64
    }

    /// Stores a new descriptor, and returns 0 as a call without a result does.
    fn keep(&self, descriptor: i64) -> i64 {
        self.kept.borrow_mut().push(descriptor);
        descriptor.min(0)
    }

    /// The descriptor that is removed next.
    fn newest(&self) -> i64 {
        self.kept.borrow().last().copied().unwrap_or(-1)
    }

    fn kept(&self) -> i64 {
        self.kept.borrow_mut().pop().unwrap_or(-1)
    }
}

fn open_at(folder: i64, path: i64, flags: i32) -> i64 {
    sys(libc::SYS_openat, &[folder, path, flags.into()])
}

/// Sets a file's position, which is not a counted operation.
fn at_start(file: i64) -> i64 {
    sys(libc::SYS_lseek, &[file, 0, libc::SEEK_SET.into()])
}

/// A C string that is never freed.
fn address(text: &str) -> i64 {
    CString::new(text).expect("no path has a NUL").into_raw() as i64
}

fn must(answer: i64) -> i64 {
    assert!(answer >= 0, "errno {}", -answer);
    answer
}

/// A system call by this very name. On failure returns the negative errno, like the kernel.
pub fn sys(number: libc::c_long, arguments: &[i64]) -> i64 {
    let mut all = [0; 6];
    all[..arguments.len()].copy_from_slice(arguments);
    let [a, b, c, d, e, f] = all;
    // SAFETY: every address among the arguments is of memory that is never freed.
    match unsafe { libc::syscall(number, a, b, c, d, e, f) } {
        -1 => -i64::from(nix::errno::Errno::last_raw()),
        answer => answer,
    }
}
