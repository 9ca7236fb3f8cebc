//! overlayfs, which merges several directory trees: for each call, it calls the file system that contains the file, in
//! the same thread.
//!
//! A mapping of one of its files maps the file of the lower or upper file system, so page faults are not overlayfs's.

use super::family::{RowFunction, of};
use super::file_system::{FileSystem, Files, ops};
use super::{Layer, Row};

const MODULE: &str = "overlay";

const fn own(function: &'static str) -> RowFunction {
    of(Row::Layer(Layer::Overlay), MODULE, function)
}

pub static FILE_SYSTEM: FileSystem = FileSystem {
    name: "overlay",
    module: Some(MODULE),
    files: Files {
        magic: 0x794C_7630,
        operations: None,
    },
    ops: ops! {
        READ: "overlay" "ovl_read_iter";
        WRITE: "overlay" "ovl_write_iter";
        // It has its own function since 6.5.
        SPLICE_READ: "overlay" "ovl_splice_read", shared "generic_file_splice_read" unless "ovl_splice_read";
        // It has its own function since 5.15 (9b91b6b019fd "ovl: fix deadlock in splice write"), and in later stable
        // releases of 5.10.
        SPLICE_WRITE: "overlay" "ovl_splice_write", shared "iter_file_splice_write" unless "ovl_splice_write";
        OPEN: "overlay" "ovl_open";
        FSYNC: "overlay" "ovl_fsync";
        FALLOCATE: "overlay" "ovl_fallocate";
    },
    rows: &[
        own("ovl_lookup"),
        own("ovl_create"),
        own("ovl_unlink"),
        own("ovl_rmdir"),
        own("ovl_mkdir"),
        own("ovl_rename"),
        own("ovl_link"),
        own("ovl_symlink"),
        own("ovl_getattr"),
        own("ovl_setattr"),
        own("ovl_iterate"),
    ],
};
