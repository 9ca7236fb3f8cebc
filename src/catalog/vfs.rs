//! The virtual file system switch, which the reads, writes, opens and fsyncs of every file system pass through.
//!
//! io_uring and Linux AIO have entry points of their own (`io_read`, `aio_read` and similar). Their reads and writes
//! are counted with all others: once per request, with the time from the first attempt to the completion. io_uring's
//! fsyncs need no entry point of their own: a worker thread of the process calls `vfs_fsync_range` for them.

use super::{Op, OpSpec, Point, Returns, Shape};

const fn point(function: &'static str, shape: Shape, returns: Returns) -> Point {
    Point::new(function, shape, returns)
}

/// A function that other points of its op call, or that overlayfs calls again for the file system below.
const fn inner(function: &'static str, shape: Shape, returns: Returns) -> Point {
    Point {
        outermost: false,
        ..point(function, shape, returns)
    }
}

/// An entry point of io_uring. Those for registered buffers, where they exist (6.15), jump to the others, or have them
/// inlined.
const fn issue(function: &'static str) -> Point {
    inner(function, Shape::Kiocb0, Returns::Issued)
}

/// An entry point of Linux AIO.
const fn submit(function: &'static str) -> Point {
    point(function, Shape::Kiocb0, Returns::Submitted)
}

pub static OPS: [OpSpec; 4] = [
    OpSpec {
        op: Op::Read,
        moves_bytes: true,
        points: &[
            point("vfs_read", Shape::File0, Returns::Bytes),
            point("vfs_readv", Shape::File0, Returns::Bytes),
            inner("vfs_iter_read", Shape::File0, Returns::Bytes),
            issue("io_read"),
            issue("io_read_fixed"),
            submit("aio_read"),
        ],
        instead: None,
        around: None,
    },
    OpSpec {
        op: Op::Write,
        moves_bytes: true,
        points: &[
            point("vfs_write", Shape::File0, Returns::Bytes),
            point("vfs_writev", Shape::File0, Returns::Bytes),
            inner("vfs_iter_write", Shape::File0, Returns::Bytes),
            issue("io_write"),
            issue("io_write_fixed"),
            submit("aio_write"),
        ],
        instead: None,
        around: None,
    },
    OpSpec {
        op: Op::Open,
        moves_bytes: false,
        points: &[inner("vfs_open", Shape::Path0, Returns::StatusInt)],
        instead: None,
        around: None,
    },
    OpSpec {
        op: Op::Fsync,
        moves_bytes: false,
        points: &[
            inner("vfs_fsync_range", Shape::File0, Returns::StatusInt),
            Point {
                inlined: true,
                ..inner("vfs_fsync", Shape::File0, Returns::StatusInt)
            },
            point("do_fsync", Shape::Fd0, Returns::StatusInt),
            // Where the compiler has inlined do_fsync into the system calls, vfs_fsync_range may be inlined as well: on
            // 6.1 fdatasync calls the file system directly.
            Point {
                unless: Some("do_fsync"),
                ..point("fsync", Shape::SyscallFd0, Returns::Status)
            },
            Point {
                unless: Some("do_fsync"),
                ..point("fdatasync", Shape::SyscallFd0, Returns::Status)
            },
            #[cfg(target_arch = "x86_64")]
            Point {
                unless: Some("do_fsync"),
                ..point("sys_fdatasync", Shape::Syscall32Fd0, Returns::Status)
            },
        ],
        instead: None,
        around: None,
    },
];
