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
        shared: false,
        inlined: false,
    }
}

pub static OPS: [Op; 4] = [
    Op {
        name: "read",
        moves_bytes: true,
        points: &[
            point("vfs_read", Shape::File0, Returns::Bytes),
            point("vfs_readv", Shape::File0, Returns::Bytes),
            point("vfs_iter_read", Shape::File0, Returns::Bytes),
        ],
        instead: None,
    },
    Op {
        name: "write",
        moves_bytes: true,
        points: &[
            point("vfs_write", Shape::File0, Returns::Bytes),
            point("vfs_writev", Shape::File0, Returns::Bytes),
            point("vfs_iter_write", Shape::File0, Returns::Bytes),
        ],
        instead: None,
    },
    Op {
        name: "open",
        moves_bytes: false,
        points: &[point("vfs_open", Shape::Path0, Returns::StatusInt)],
        instead: None,
    },
    Op {
        name: "fsync",
        moves_bytes: false,
        points: &[
            point("vfs_fsync_range", Shape::File0, Returns::StatusInt),
            Point {
                inlined: true,
                ..point("vfs_fsync", Shape::File0, Returns::StatusInt)
            },
            point("do_fsync", Shape::Fd0, Returns::StatusInt),
        ],
        instead: None,
    },
];
