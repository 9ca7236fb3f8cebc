//! The ext4 file system.

use super::family::{RowFunction, of, wait};
use super::file_system::{FileSystem, Files, ops};
use super::{Layer, Row};

const MODULE: &str = "ext4";

const fn own(function: &'static str) -> RowFunction {
    of(Row::Layer(Layer::Ext4), MODULE, function)
}

pub static FILE_SYSTEM: FileSystem = FileSystem {
    name: "ext4",
    module: Some(MODULE),
    files: Files {
        magic: 0xEF53,
        // ext2 and ext3 have the same magic number.
        operations: Some("ext4_file_operations"),
    },
    ops: ops! {
        // Since 5.5 direct reads do not call generic_file_read_iter (b1b4705d54ab "ext4: introduce direct I/O read
        // using iomap infrastructure").
        READ: "ext4" "ext4_file_read_iter" or "generic_file_read_iter" misses "direct reads";
        WRITE: "ext4" "ext4_file_write_iter";
        // It has its own function since 6.5 (fa6c46e7c2a2).
        SPLICE_READ: "ext4" "ext4_file_splice_read", shared "generic_file_splice_read" unless "ext4_file_splice_read";
        SPLICE_WRITE: shared "iter_file_splice_write";
        // It has no function of its own since 5.13 (d4f5258eae7b and the commits after it).
        FAULT: "ext4" "ext4_filemap_fault", shared "filemap_fault" unless "ext4_filemap_fault";
        MKWRITE: "ext4" "ext4_page_mkwrite";
        OPEN: "ext4" "ext4_file_open";
        FSYNC: "ext4" "ext4_sync_file";
        FALLOCATE: "ext4" "ext4_fallocate";
    },
    rows: &[
        wait("jbd2_log_wait_commit", Row::Journal, Some("jbd2")),
        wait("wait_transaction_locked", Row::Journal, Some("jbd2")),
        own("ext4_lookup"),
        own("ext4_create"),
        own("ext4_unlink"),
        own("ext4_rmdir"),
        own("ext4_mkdir"),
        own("ext4_rename2"),
        own("ext4_link"),
        own("ext4_symlink"),
        own("ext4_getattr"),
        own("ext4_setattr"),
        own("ext4_readdir"),
        // Frees the blocks of a file after its last unlink.
        own("ext4_evict_inode"),
    ],
};
