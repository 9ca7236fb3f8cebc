//! The ext4 file system.

use super::{Fallback, FileSystem, Op, Point, Returns, Shape};

pub static FILE_SYSTEM: FileSystem = FileSystem {
    name: "ext4",
    module: "ext4",
    file_operations: "ext4_file_operations",
    magic: 0xEF53,
};

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

pub static OPS: [Op; 5] = [
    Op {
        name: "read",
        moves_bytes: true,
        points: &[point("ext4_file_read_iter", Shape::Kiocb0, Returns::Bytes)],
        // Direct reads left it in 5.5 (b1b4705d54ab "ext4: introduce direct I/O read using iomap infrastructure").
        instead: Some(Fallback {
            points: &[Point {
                function: "generic_file_read_iter",
                shape: Shape::Kiocb0,
                returns: Returns::Bytes,
                outermost: true,
                shared: true,
                inlined: false,
                unless: None,
            }],
            misses: "direct reads",
        }),
    },
    Op {
        name: "write",
        moves_bytes: true,
        points: &[point("ext4_file_write_iter", Shape::Kiocb0, Returns::Bytes)],
        instead: None,
    },
    Op {
        name: "open",
        moves_bytes: false,
        points: &[point("ext4_file_open", Shape::File1, Returns::StatusInt)],
        instead: None,
    },
    Op {
        name: "fsync",
        moves_bytes: false,
        points: &[point("ext4_sync_file", Shape::File0, Returns::StatusInt)],
        instead: None,
    },
    Op {
        name: "fallocate",
        moves_bytes: false,
        points: &[point("ext4_fallocate", Shape::File0, Returns::Status)],
        instead: None,
    },
];
