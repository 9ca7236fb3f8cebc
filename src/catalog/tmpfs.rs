//! tmpfs, whose files are in memory: those of `/dev/shm`, `/run` and memfd, and shared anonymous memory.

use super::family::{RowFunction, wait};
use super::file_system::{FileSystem, Files, ops};
use super::{Layer, Row};

const fn own(function: &'static str) -> RowFunction {
    wait(function, Row::Layer(Layer::Tmpfs), None)
}

pub static FILE_SYSTEM: FileSystem = FileSystem {
    name: "tmpfs",
    module: None,
    files: Files {
        magic: 0x0102_1994,
        operations: None,
    },
    ops: ops! {
        READ: builtin "shmem_file_read_iter";
        // It has its own function since 6.6 (e88e0d366f9c "tmpfs: trivial support for direct IO").
        WRITE: builtin "shmem_file_write_iter", shared "generic_file_write_iter" unless "shmem_file_write_iter";
        // It has its own function since 6.5.
        SPLICE_READ: builtin "shmem_file_splice_read", shared "generic_file_splice_read" unless "shmem_file_splice_read";
        SPLICE_WRITE: shared "iter_file_splice_write";
        FAULT: builtin "shmem_fault";
        // Since 6.6; before, tmpfs has no `open`.
        OPEN: builtin "shmem_file_open";
        FSYNC: shared "noop_fsync";
        FALLOCATE: builtin "shmem_fallocate";
    },
    rows: &[
        own("shmem_mknod"),
        own("shmem_create"),
        own("shmem_unlink"),
        own("shmem_rmdir"),
        own("shmem_mkdir"),
        own("shmem_rename2"),
        own("shmem_link"),
        own("shmem_symlink"),
        own("shmem_getattr"),
        own("shmem_setattr"),
        own("shmem_evict_inode"),
    ],
};
