//! The XFS file system.

use super::family::{RowFunction, of, wait};
use super::file_system::{FileSystem, Files, ops};
use super::{Layer, Row};

const MODULE: &str = "xfs";

const fn own(function: &'static str) -> RowFunction {
    of(Row::Layer(Layer::Xfs), MODULE, function)
}

pub static FILE_SYSTEM: FileSystem = FileSystem {
    name: "xfs",
    module: Some(MODULE),
    files: Files {
        magic: 0x5846_5342,
        operations: None,
    },
    ops: ops! {
        READ: "xfs" "xfs_file_read_iter";
        WRITE: "xfs" "xfs_file_write_iter";
        // It has its own function since 6.5.
        SPLICE_READ: "xfs" "xfs_file_splice_read", shared "generic_file_splice_read" unless "xfs_file_splice_read";
        SPLICE_WRITE: shared "iter_file_splice_write";
        FAULT: "xfs" "xfs_filemap_fault";
        MKWRITE: "xfs" "xfs_filemap_page_mkwrite";
        OPEN: "xfs" "xfs_file_open";
        FSYNC: "xfs" "xfs_file_fsync";
        FALLOCATE: "xfs" "xfs_file_fallocate";
    },
    rows: &[
        // The wait of an fsync for the log: by LSN before 5.13 (5f9b4b0de8dc), by the sequence number of a CIL context
        // since.
        wait("xfs_log_force_lsn", Row::Journal, Some(MODULE)),
        wait("xfs_log_force_seq", Row::Journal, Some(MODULE)),
        own("xfs_vn_lookup"),
        own("xfs_vn_create"),
        // Removes directories, too.
        own("xfs_vn_unlink"),
        own("xfs_vn_mkdir"),
        own("xfs_vn_rename"),
        own("xfs_vn_link"),
        own("xfs_vn_symlink"),
        own("xfs_vn_getattr"),
        own("xfs_vn_setattr"),
        own("xfs_file_readdir"),
    ],
};
