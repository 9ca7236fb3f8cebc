//! The btrfs file system.

use super::family::{RowFunction, of};
use super::file_system::{FileSystem, Files, ops};
use super::{Layer, Row};

const MODULE: &str = "btrfs";

const fn own(function: &'static str) -> RowFunction {
    of(Row::Layer(Layer::Btrfs), MODULE, function)
}

pub static FILE_SYSTEM: FileSystem = FileSystem {
    name: "btrfs",
    module: Some(MODULE),
    files: Files {
        magic: 0x9123_683E,
        operations: None,
    },
    ops: ops! {
        READ: "btrfs" "btrfs_file_read_iter";
        WRITE: "btrfs" "btrfs_file_write_iter";
        // Before it had its own function, it used the common one, whose name changed in 6.5.
        SPLICE_READ: "btrfs" "btrfs_file_splice_read",
            shared "filemap_splice_read" unless "btrfs_file_splice_read",
            shared "generic_file_splice_read" unless "btrfs_file_splice_read";
        SPLICE_WRITE: shared "iter_file_splice_write";
        FAULT: shared "filemap_fault";
        MKWRITE: "btrfs" "btrfs_page_mkwrite";
        OPEN: "btrfs" "btrfs_file_open";
        FSYNC: "btrfs" "btrfs_sync_file";
        FALLOCATE: "btrfs" "btrfs_fallocate";
    },
    rows: &[
        own("btrfs_lookup"),
        own("btrfs_create"),
        own("btrfs_unlink"),
        own("btrfs_rmdir"),
        own("btrfs_mkdir"),
        own("btrfs_rename2"),
        own("btrfs_link"),
        own("btrfs_symlink"),
        own("btrfs_getattr"),
        own("btrfs_setattr"),
        own("btrfs_evict_inode"),
        own("btrfs_real_readdir"),
    ],
};
