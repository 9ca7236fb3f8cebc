//! The virtual file system switch: what every file system's reads, writes, opens and fsyncs come through.
//!
//! The asynchronous doors (`io_read`, `aio_read` and their like) are not here yet: io_uring and libaio reach the file
//! systems without passing these functions.

use super::{Op, Point, Returns, Shape};

const fn point(function: &'static str, shape: Shape, returns: Returns) -> Point {
    Point {
        function,
        shape,
        returns,
        outermost: true,
        shared: false,
        inlined: false,
        unless: None,
    }
}

/// One that others of its op call, or that an overlay file system calls again.
const fn inner(function: &'static str, shape: Shape, returns: Returns) -> Point {
    Point {
        outermost: false,
        ..point(function, shape, returns)
    }
}

pub static OPS: [Op; 4] = [
    Op {
        name: "read",
        moves_bytes: true,
        points: &[
            point("vfs_read", Shape::File0, Returns::Bytes),
            point("vfs_readv", Shape::File0, Returns::Bytes),
            inner("vfs_iter_read", Shape::File0, Returns::Bytes),
        ],
        instead: None,
    },
    Op {
        name: "write",
        moves_bytes: true,
        points: &[
            point("vfs_write", Shape::File0, Returns::Bytes),
            point("vfs_writev", Shape::File0, Returns::Bytes),
            inner("vfs_iter_write", Shape::File0, Returns::Bytes),
        ],
        instead: None,
    },
    Op {
        name: "open",
        moves_bytes: false,
        points: &[inner("vfs_open", Shape::Path0, Returns::StatusInt)],
        instead: None,
    },
    Op {
        name: "fsync",
        moves_bytes: false,
        points: &[
            inner("vfs_fsync_range", Shape::File0, Returns::StatusInt),
            Point {
                inlined: true,
                ..inner("vfs_fsync", Shape::File0, Returns::StatusInt)
            },
            point("do_fsync", Shape::Fd0, Returns::StatusInt),
            // Where the compiler has inlined it into the system calls, the rest of the way is inlined too: on 6.1
            // fdatasync calls the file system directly.
            Point {
                unless: Some("do_fsync"),
                ..point("fsync", Shape::SyscallFd0, Returns::Status)
            },
            Point {
                unless: Some("do_fsync"),
                ..point("fdatasync", Shape::SyscallFd0, Returns::Status)
            },
        ],
        instead: None,
    },
];
