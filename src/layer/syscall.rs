//! System calls that work on files, each under its own name.
//!
//! They are found by number at the `sys_enter` and `sys_exit` tracepoints, or by function, whose name has the
//! architecture's prefix. Either way the number decides which op it is, so one program serves them all.

use super::{Op, Point, Returns, Shape};

/// What a system call has beside its [`Op`].
#[derive(Debug)]
pub struct Syscall {
    pub name: &'static str,
    /// Its number on this architecture.
    pub number: libc::c_long,
    pub files: Files,
}

/// Which arguments are descriptors of the files that the call works on; `enum file_args` of `bpf/interface.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Files {
    /// None: it takes a path, or works on no file in particular.
    None,
    /// The first one.
    Arg0,
    /// The first or the second one: the call counts when either is a file of interest.
    Arg0Or1,
    /// The first or the third one.
    Arg0Or2,
}

macro_rules! syscalls {
    ($($(#[$on:meta])* $name:literal $number:ident $function:literal $files:ident $returns:ident;)*) => {
        /// In the order of [`OPS`].
        pub static SYSCALLS: &[Syscall] = &[
            $($(#[$on])* Syscall { name: $name, number: libc::$number, files: Files::$files },)*
        ];
        pub static OPS: &[Op] = &[
            $($(#[$on])* Op {
                name: $name,
                moves_bytes: matches!(Returns::$returns, Returns::Bytes),
                points: &[Point {
                    function: $function,
                    shape: Shape::Syscall,
                    returns: Returns::$returns,
                    outermost: true,
                    shared: false,
                    inlined: false,
                    unless: None,
                }],
                instead: None,
                around: None,
            },)*
        ];
    };
}

// Name, number, function, descriptors among the arguments, meaning of the result. Calls without a condition exist on
// every architecture; the others were left out of the tables that newer architectures share.
syscalls! {
    "read" SYS_read "read" Arg0 Bytes;
    "pread64" SYS_pread64 "pread64" Arg0 Bytes;
    "readv" SYS_readv "readv" Arg0 Bytes;
    "preadv" SYS_preadv "preadv" Arg0 Bytes;
    "preadv2" SYS_preadv2 "preadv2" Arg0 Bytes;
    "write" SYS_write "write" Arg0 Bytes;
    "pwrite64" SYS_pwrite64 "pwrite64" Arg0 Bytes;
    "writev" SYS_writev "writev" Arg0 Bytes;
    "pwritev" SYS_pwritev "pwritev" Arg0 Bytes;
    "pwritev2" SYS_pwritev2 "pwritev2" Arg0 Bytes;
    #[cfg(target_arch = "x86_64")]
    "open" SYS_open "open" None Fd;
    "openat" SYS_openat "openat" None Fd;
    "openat2" SYS_openat2 "openat2" None Fd;
    #[cfg(target_arch = "x86_64")]
    "creat" SYS_creat "creat" None Fd;
    "close" SYS_close "close" Arg0 Status;
    "fsync" SYS_fsync "fsync" Arg0 Status;
    "fdatasync" SYS_fdatasync "fdatasync" Arg0 Status;
    "sync" SYS_sync "sync" None Status;
    "syncfs" SYS_syncfs "syncfs" Arg0 Status;
    "sync_file_range" SYS_sync_file_range "sync_file_range" Arg0 Status;
    "msync" SYS_msync "msync" None Status;
    "sendfile64" SYS_sendfile "sendfile64" Arg0Or1 Bytes;
    "splice" SYS_splice "splice" Arg0Or2 Bytes;
    "copy_file_range" SYS_copy_file_range "copy_file_range" Arg0Or2 Bytes;
    "fallocate" SYS_fallocate "fallocate" Arg0 Status;
    "ftruncate" SYS_ftruncate "ftruncate" Arg0 Status;
    "truncate" SYS_truncate "truncate" None Status;
    "io_submit" SYS_io_submit "io_submit" None Status;
    "io_getevents" SYS_io_getevents "io_getevents" None Status;
    "io_uring_enter" SYS_io_uring_enter "io_uring_enter" None Status;
    #[cfg(target_arch = "x86_64")]
    "stat" SYS_stat "newstat" None Status;
    "fstat" SYS_fstat "newfstat" Arg0 Status;
    #[cfg(target_arch = "x86_64")]
    "lstat" SYS_lstat "newlstat" None Status;
    "newfstatat" SYS_newfstatat "newfstatat" None Status;
    "statx" SYS_statx "statx" None Status;
    #[cfg(target_arch = "x86_64")]
    "getdents" SYS_getdents "getdents" Arg0 Status;
    "getdents64" SYS_getdents64 "getdents64" Arg0 Status;
    #[cfg(target_arch = "x86_64")]
    "rename" SYS_rename "rename" None Status;
    #[cfg(target_arch = "x86_64")]
    "renameat" SYS_renameat "renameat" None Status;
    "renameat2" SYS_renameat2 "renameat2" None Status;
    #[cfg(target_arch = "x86_64")]
    "unlink" SYS_unlink "unlink" None Status;
    "unlinkat" SYS_unlinkat "unlinkat" None Status;
    #[cfg(target_arch = "x86_64")]
    "mkdir" SYS_mkdir "mkdir" None Status;
    "mkdirat" SYS_mkdirat "mkdirat" None Status;
    #[cfg(target_arch = "x86_64")]
    "readlink" SYS_readlink "readlink" None Status;
    "readlinkat" SYS_readlinkat "readlinkat" None Status;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::interface::MAX_SYSCALLS;

    #[test]
    fn numbers_are_unique_and_fit_the_table() {
        let mut numbers: Vec<_> = SYSCALLS.iter().map(|call| call.number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), SYSCALLS.len());
        assert!(numbers.iter().all(|&n| (0..i64::from(MAX_SYSCALLS)).contains(&n)));
    }

    #[test]
    fn calls_and_ops_go_together() {
        assert_eq!(SYSCALLS.len(), OPS.len());
        assert!(SYSCALLS.iter().zip(OPS).all(|(call, op)| call.name == op.name));
    }
}
