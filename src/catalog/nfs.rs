//! The NFS client. Version 4 is in a module of its own, which uses most functions of the module `nfs`.

use super::family::{RowFunction, of};
use super::file_system::{FileSystem, Files, ops};
use super::{Layer, Row};

const MODULE: &str = "nfs";

const fn own(function: &'static str) -> RowFunction {
    of(Row::Layer(Layer::Nfs), MODULE, function)
}

pub static FILE_SYSTEM: FileSystem = FileSystem {
    name: "nfs",
    module: Some(MODULE),
    files: Files {
        magic: 0x6969,
        operations: None,
    },
    ops: ops! {
        READ: "nfs" "nfs_file_read";
        WRITE: "nfs" "nfs_file_write";
        // It has its own function since 6.5.
        SPLICE_READ: "nfs" "nfs_file_splice_read", shared "generic_file_splice_read" unless "nfs_file_splice_read";
        SPLICE_WRITE: shared "iter_file_splice_write";
        FAULT: shared "filemap_fault";
        MKWRITE: "nfs" "nfs_vm_page_mkwrite";
        // Version 4 opens a file during the lookup (atomic open), unless the name is in the dentry cache.
        OPEN: "nfs" "nfs_file_open", "nfsv4" "nfs4_file_open", "nfs" "nfs_atomic_open" with Dir0;
        FSYNC: "nfs" "nfs_file_fsync";
        FALLOCATE: "nfsv4" "nfs42_fallocate";
    },
    rows: &[
        own("nfs_lookup"),
        own("nfs_create"),
        own("nfs_unlink"),
        own("nfs_rmdir"),
        own("nfs_mkdir"),
        own("nfs_rename"),
        own("nfs_link"),
        own("nfs_symlink"),
        own("nfs_getattr"),
        own("nfs_setattr"),
        own("nfs_readdir"),
    ],
};
