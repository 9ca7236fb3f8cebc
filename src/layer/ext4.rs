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

/// One that every file system may use, and that only matters where ext4 has none of its own.
const fn shared(function: &'static str, shape: Shape, returns: Returns, unless: Option<&'static str>) -> Point {
    Point {
        shared: true,
        unless,
        ..point(function, shape, returns)
    }
}

pub static OPS: [Op; 9] = [
    Op {
        name: "read",
        moves_bytes: true,
        points: &[point("ext4_file_read_iter", Shape::Kiocb0, Returns::Bytes)],
        // Direct reads left it in 5.5 (b1b4705d54ab "ext4: introduce direct I/O read using iomap infrastructure").
        instead: Some(Fallback {
            points: &[Point {
                shared: true,
                ..point("generic_file_read_iter", Shape::Kiocb0, Returns::Bytes)
            }],
            misses: "direct reads",
        }),
        around: None,
    },
    Op {
        name: "write",
        moves_bytes: true,
        points: &[point("ext4_file_write_iter", Shape::Kiocb0, Returns::Bytes)],
        instead: None,
        around: None,
    },
    // splice, sendfile and copy_file_range out of a file.
    Op {
        name: "splice_read",
        moves_bytes: true,
        points: &[
            point("ext4_file_splice_read", Shape::File0, Returns::Bytes),
            // Before 6.5 (fa6c46e7c2a2), by way of the file's read_iter.
            shared(
                "generic_file_splice_read",
                Shape::File0,
                Returns::Bytes,
                Some("ext4_file_splice_read"),
            ),
        ],
        instead: None,
        around: Some("read"),
    },
    // The same into a file: by way of its write_iter.
    Op {
        name: "splice_write",
        moves_bytes: true,
        points: &[shared("iter_file_splice_write", Shape::File1, Returns::Bytes, None)],
        instead: None,
        around: Some("write"),
    },
    // A page that is mapped and not there. What is in memory may be mapped around it without a call.
    Op {
        name: "fault",
        moves_bytes: false,
        points: &[
            point("ext4_filemap_fault", Shape::Fault0, Returns::Fault),
            // Since 5.13 (d4f5258eae7b ff.) the file system's function is this one.
            shared(
                "filemap_fault",
                Shape::Fault0,
                Returns::Fault,
                Some("ext4_filemap_fault"),
            ),
        ],
        instead: None,
        around: None,
    },
    // The first write to a page that is mapped shared.
    Op {
        name: "mkwrite",
        moves_bytes: false,
        points: &[point("ext4_page_mkwrite", Shape::Fault0, Returns::Fault)],
        instead: None,
        around: None,
    },
    Op {
        name: "open",
        moves_bytes: false,
        points: &[point("ext4_file_open", Shape::File1, Returns::StatusInt)],
        instead: None,
        around: None,
    },
    Op {
        name: "fsync",
        moves_bytes: false,
        points: &[point("ext4_sync_file", Shape::File0, Returns::StatusInt)],
        instead: None,
        around: None,
    },
    Op {
        name: "fallocate",
        moves_bytes: false,
        points: &[point("ext4_fallocate", Shape::File0, Returns::Status)],
        instead: None,
        around: None,
    },
];
