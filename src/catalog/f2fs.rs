//! The f2fs file system.

use super::family::{RowFunction, of};
use super::file_system::{FileSystem, Files, ops};
use super::{Layer, Row};

const MODULE: &str = "f2fs";

const fn own(function: &'static str) -> RowFunction {
    of(Row::Layer(Layer::F2fs), MODULE, function)
}

pub static FILE_SYSTEM: FileSystem = FileSystem {
    name: "f2fs",
    module: Some(MODULE),
    files: Files {
        magic: 0xF2F5_2010,
        operations: None,
    },
    ops: ops! {
        READ: "f2fs" "f2fs_file_read_iter";
        WRITE: "f2fs" "f2fs_file_write_iter";
        // It has its own function since 6.5.
        SPLICE_READ: "f2fs" "f2fs_file_splice_read", shared "generic_file_splice_read" unless "f2fs_file_splice_read";
        SPLICE_WRITE: shared "iter_file_splice_write";
        FAULT: "f2fs" "f2fs_filemap_fault";
        MKWRITE: "f2fs" "f2fs_vm_page_mkwrite";
        OPEN: "f2fs" "f2fs_file_open";
        FSYNC: "f2fs" "f2fs_sync_file";
        FALLOCATE: "f2fs" "f2fs_fallocate";
    },
    rows: &[
        own("f2fs_lookup"),
        own("f2fs_create"),
        own("f2fs_unlink"),
        own("f2fs_rmdir"),
        own("f2fs_mkdir"),
        own("f2fs_rename2"),
        own("f2fs_link"),
        own("f2fs_symlink"),
        own("f2fs_getattr"),
        own("f2fs_setattr"),
        own("f2fs_readdir"),
        own("f2fs_evict_inode"),
    ],
};
