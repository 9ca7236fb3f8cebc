//! System calls that work on files, each under its own name.
//!
//! They are found by number at the `sys_enter` and `sys_exit` tracepoints, or by function, whose name has the
//! architecture's prefix. Either way the number decides which op it is, so one program serves them all.

use super::family::Family;
use super::{Op, Point, Returns, Shape};

/// What a system call has beside its [`Op`].
#[derive(Debug)]
pub struct Syscall {
    pub name: &'static str,
    /// Its number on this architecture.
    pub number: libc::c_long,
    pub files: Files,
    /// In the whole stack's view.
    pub family: Family,
    pub says: Says,
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
    /// The first one, where the path behind it is empty or missing (`AT_EMPTY_PATH`).
    Arg0WithoutPath,
}

/// What a call's arguments say of its place in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Says {
    Nothing,
    /// A size, third; the place is the file's own position.
    Size,
    /// The place is the file's own position.
    Position,
    /// A size, third, and an offset, fourth.
    SizeAndOffset,
    /// An offset, fourth.
    Offset,
    /// An offset and a size, from this one on, counted from 0.
    RangeFrom1,
    RangeFrom2,
    /// A path instead: the first argument, the second or the third.
    Path0,
    Path1,
    Path2,
    /// The descriptor is none any more when the call returns.
    Close,
}

/// Numbers of system calls, by the names that libc gives them (include/uapi/asm-generic/unistd.h, arch/x86/entry/syscalls/syscall_64.tbl).
pub(crate) mod number {
    #![allow(non_upper_case_globals)]

    pub use libc::*;

    // Those that libc does not know on every architecture.
    #[cfg(target_arch = "x86_64")]
    pub const SYS_io_pgetevents: c_long = 333;
    #[cfg(not(target_arch = "x86_64"))]
    pub const SYS_io_pgetevents: c_long = 292;
    pub const SYS_fchmodat2: c_long = 452;
    pub const SYS_setxattrat: c_long = 463;
    pub const SYS_getxattrat: c_long = 464;
    pub const SYS_listxattrat: c_long = 465;
    pub const SYS_removexattrat: c_long = 466;
}

macro_rules! syscalls {
    ($($(#[$on:meta])* $name:literal $number:ident $function:literal $files:ident $returns:ident $family:ident $says:ident;)*) => {
        /// In the order of [`OPS`].
        pub static SYSCALLS: &[Syscall] = &[
            $($(#[$on])* Syscall {
                name: $name,
                number: number::$number,
                files: Files::$files,
                family: Family::$family,
                says: Says::$says,
            },)*
        ];
        pub static OPS: &[Op] = &[
            $($(#[$on])* Op {
                name: $name,
                moves_bytes: matches!(Returns::$returns, Returns::Bytes),
                points: &[Point::new($function, Shape::Syscall, Returns::$returns)],
                instead: None,
                around: None,
            },)*
        ];
    };
}

// Name, number, function, descriptors among the arguments, meaning of the result, family, what else the arguments
// say. Calls without a condition exist on
// every architecture; the others were left out of the tables that newer architectures share.
syscalls! {
    "read" SYS_read "read" Arg0 Bytes Read Size;
    "pread64" SYS_pread64 "pread64" Arg0 Bytes Read SizeAndOffset;
    "readv" SYS_readv "readv" Arg0 Bytes Read Position;
    "preadv" SYS_preadv "preadv" Arg0 Bytes Read Offset;
    "preadv2" SYS_preadv2 "preadv2" Arg0 Bytes Read Offset;
    "write" SYS_write "write" Arg0 Bytes Write Size;
    "pwrite64" SYS_pwrite64 "pwrite64" Arg0 Bytes Write SizeAndOffset;
    "writev" SYS_writev "writev" Arg0 Bytes Write Position;
    "pwritev" SYS_pwritev "pwritev" Arg0 Bytes Write Offset;
    "pwritev2" SYS_pwritev2 "pwritev2" Arg0 Bytes Write Offset;
    #[cfg(target_arch = "x86_64")]
    "open" SYS_open "open" None Fd Open Path0;
    "openat" SYS_openat "openat" None Fd Open Path1;
    "openat2" SYS_openat2 "openat2" None Fd Open Path1;
    "open_by_handle_at" SYS_open_by_handle_at "open_by_handle_at" None Fd Open Nothing;
    #[cfg(target_arch = "x86_64")]
    "creat" SYS_creat "creat" None Fd Open Path0;
    "close" SYS_close "close" Arg0 Status Metadata Close;
    "fsync" SYS_fsync "fsync" Arg0 Status Fsync Nothing;
    "fdatasync" SYS_fdatasync "fdatasync" Arg0 Status Fsync Nothing;
    "sync" SYS_sync "sync" None Status Fsync Nothing;
    "syncfs" SYS_syncfs "syncfs" Arg0 Status Fsync Nothing;
    "sync_file_range" SYS_sync_file_range "sync_file_range" Arg0 Status Fsync RangeFrom1;
    "msync" SYS_msync "msync" None Status Fsync Nothing;
    "sendfile64" SYS_sendfile "sendfile64" Arg0Or1 Bytes Read Nothing;
    "splice" SYS_splice "splice" Arg0Or2 Bytes Read Nothing;
    "copy_file_range" SYS_copy_file_range "copy_file_range" Arg0Or2 Bytes Write Nothing;
    "fallocate" SYS_fallocate "fallocate" Arg0 Status Metadata RangeFrom2;
    "ftruncate" SYS_ftruncate "ftruncate" Arg0 Status Metadata Nothing;
    "truncate" SYS_truncate "truncate" None Status Metadata Path0;
    "io_submit" SYS_io_submit "io_submit" None Status Asynchronous Nothing;
    "io_getevents" SYS_io_getevents "io_getevents" None Status Asynchronous Nothing;
    "io_pgetevents" SYS_io_pgetevents "io_pgetevents" None Status Asynchronous Nothing;
    "io_uring_enter" SYS_io_uring_enter "io_uring_enter" None Status Asynchronous Nothing;
    #[cfg(target_arch = "x86_64")]
    "stat" SYS_stat "newstat" None Status Metadata Path0;
    "fstat" SYS_fstat "newfstat" Arg0 Status Metadata Nothing;
    #[cfg(target_arch = "x86_64")]
    "lstat" SYS_lstat "newlstat" None Status Metadata Path0;
    "newfstatat" SYS_newfstatat "newfstatat" Arg0WithoutPath Status Metadata Path1;
    "statx" SYS_statx "statx" Arg0WithoutPath Status Metadata Path1;
    #[cfg(target_arch = "x86_64")]
    "access" SYS_access "access" None Status Metadata Path0;
    "faccessat" SYS_faccessat "faccessat" None Status Metadata Path1;
    "faccessat2" SYS_faccessat2 "faccessat2" Arg0WithoutPath Status Metadata Path1;
    "name_to_handle_at" SYS_name_to_handle_at "name_to_handle_at" Arg0WithoutPath Status Metadata Path1;
    "statfs" SYS_statfs "statfs" None Status Metadata Path0;
    "fstatfs" SYS_fstatfs "fstatfs" Arg0 Status Metadata Nothing;
    #[cfg(target_arch = "x86_64")]
    "getdents" SYS_getdents "getdents" Arg0 Status Metadata Nothing;
    "getdents64" SYS_getdents64 "getdents64" Arg0 Status Metadata Nothing;
    #[cfg(target_arch = "x86_64")]
    "rename" SYS_rename "rename" None Status Metadata Path0;
    "renameat" SYS_renameat "renameat" None Status Metadata Path1;
    "renameat2" SYS_renameat2 "renameat2" None Status Metadata Path1;
    #[cfg(target_arch = "x86_64")]
    "unlink" SYS_unlink "unlink" None Status Metadata Path0;
    "unlinkat" SYS_unlinkat "unlinkat" None Status Metadata Path1;
    #[cfg(target_arch = "x86_64")]
    "rmdir" SYS_rmdir "rmdir" None Status Metadata Path0;
    #[cfg(target_arch = "x86_64")]
    "link" SYS_link "link" None Status Metadata Path0;
    "linkat" SYS_linkat "linkat" Arg0WithoutPath Status Metadata Path1;
    // The second path is that of the link; the first one is its text.
    #[cfg(target_arch = "x86_64")]
    "symlink" SYS_symlink "symlink" None Status Metadata Path1;
    "symlinkat" SYS_symlinkat "symlinkat" None Status Metadata Path2;
    #[cfg(target_arch = "x86_64")]
    "mkdir" SYS_mkdir "mkdir" None Status Metadata Path0;
    "mkdirat" SYS_mkdirat "mkdirat" None Status Metadata Path1;
    #[cfg(target_arch = "x86_64")]
    "mknod" SYS_mknod "mknod" None Status Metadata Path0;
    "mknodat" SYS_mknodat "mknodat" None Status Metadata Path1;
    #[cfg(target_arch = "x86_64")]
    "readlink" SYS_readlink "readlink" None Status Metadata Path0;
    "readlinkat" SYS_readlinkat "readlinkat" None Status Metadata Path1;
    "chdir" SYS_chdir "chdir" None Status Metadata Path0;
    #[cfg(target_arch = "x86_64")]
    "chmod" SYS_chmod "chmod" None Status Metadata Path0;
    "fchmod" SYS_fchmod "fchmod" Arg0 Status Metadata Nothing;
    "fchmodat" SYS_fchmodat "fchmodat" None Status Metadata Path1;
    "fchmodat2" SYS_fchmodat2 "fchmodat2" Arg0WithoutPath Status Metadata Path1;
    #[cfg(target_arch = "x86_64")]
    "chown" SYS_chown "chown" None Status Metadata Path0;
    #[cfg(target_arch = "x86_64")]
    "lchown" SYS_lchown "lchown" None Status Metadata Path0;
    "fchown" SYS_fchown "fchown" Arg0 Status Metadata Nothing;
    "fchownat" SYS_fchownat "fchownat" Arg0WithoutPath Status Metadata Path1;
    #[cfg(target_arch = "x86_64")]
    "utime" SYS_utime "utime" None Status Metadata Path0;
    #[cfg(target_arch = "x86_64")]
    "utimes" SYS_utimes "utimes" None Status Metadata Path0;
    #[cfg(target_arch = "x86_64")]
    "futimesat" SYS_futimesat "futimesat" Arg0WithoutPath Status Metadata Path1;
    "utimensat" SYS_utimensat "utimensat" Arg0WithoutPath Status Metadata Path1;
    "getxattr" SYS_getxattr "getxattr" None Status Metadata Path0;
    "lgetxattr" SYS_lgetxattr "lgetxattr" None Status Metadata Path0;
    "fgetxattr" SYS_fgetxattr "fgetxattr" Arg0 Status Metadata Nothing;
    "getxattrat" SYS_getxattrat "getxattrat" Arg0WithoutPath Status Metadata Path1;
    "setxattr" SYS_setxattr "setxattr" None Status Metadata Path0;
    "lsetxattr" SYS_lsetxattr "lsetxattr" None Status Metadata Path0;
    "fsetxattr" SYS_fsetxattr "fsetxattr" Arg0 Status Metadata Nothing;
    "setxattrat" SYS_setxattrat "setxattrat" Arg0WithoutPath Status Metadata Path1;
    "listxattr" SYS_listxattr "listxattr" None Status Metadata Path0;
    "llistxattr" SYS_llistxattr "llistxattr" None Status Metadata Path0;
    "flistxattr" SYS_flistxattr "flistxattr" Arg0 Status Metadata Nothing;
    "listxattrat" SYS_listxattrat "listxattrat" Arg0WithoutPath Status Metadata Path1;
    "removexattr" SYS_removexattr "removexattr" None Status Metadata Path0;
    "lremovexattr" SYS_lremovexattr "lremovexattr" None Status Metadata Path0;
    "fremovexattr" SYS_fremovexattr "fremovexattr" Arg0 Status Metadata Nothing;
    "removexattrat" SYS_removexattrat "removexattrat" Arg0WithoutPath Status Metadata Path1;
}

/// A call that 32-bit programs make on a 64-bit kernel, by a number of their own table.
#[derive(Debug)]
pub struct Compat {
    pub number: usize,
    /// The op that it is.
    pub op: &'static str,
    /// Its function. What it returns is its op's matter.
    pub point: Point,
}

#[cfg(target_arch = "x86_64")]
macro_rules! compat {
    ($($number:literal $op:literal $function:literal;)*) => {
        &[$(Compat {
            number: $number,
            op: $op,
            point: Point::new($function, Shape::Syscall32, Returns::Status),
        },)*]
    };
}

// Number, op, function. Calls that differ in the width of an offset or a structure only are one op.
/// By number (arch/x86/entry/syscalls/syscall_32.tbl).
#[cfg(target_arch = "x86_64")]
pub static COMPAT: &[Compat] = compat! {
    3 "read" "sys_read";
    4 "write" "sys_write";
    5 "open" "compat_sys_open";
    6 "close" "sys_close";
    8 "creat" "sys_creat";
    9 "link" "sys_link";
    10 "unlink" "sys_unlink";
    12 "chdir" "sys_chdir";
    14 "mknod" "sys_mknod";
    15 "chmod" "sys_chmod";
    16 "lchown" "sys_lchown16";
    30 "utime" "sys_utime32";
    33 "access" "sys_access";
    36 "sync" "sys_sync";
    38 "rename" "sys_rename";
    39 "mkdir" "sys_mkdir";
    40 "rmdir" "sys_rmdir";
    83 "symlink" "sys_symlink";
    85 "readlink" "sys_readlink";
    92 "truncate" "compat_sys_truncate";
    93 "ftruncate" "compat_sys_ftruncate";
    94 "fchmod" "sys_fchmod";
    95 "fchown" "sys_fchown16";
    99 "statfs" "compat_sys_statfs";
    100 "fstatfs" "compat_sys_fstatfs";
    106 "stat" "compat_sys_newstat";
    107 "lstat" "compat_sys_newlstat";
    108 "fstat" "compat_sys_newfstat";
    118 "fsync" "sys_fsync";
    141 "getdents" "compat_sys_getdents";
    144 "msync" "sys_msync";
    145 "readv" "sys_readv";
    146 "writev" "sys_writev";
    148 "fdatasync" "sys_fdatasync";
    180 "pread64" "sys_ia32_pread64";
    181 "pwrite64" "sys_ia32_pwrite64";
    182 "chown" "sys_chown16";
    187 "sendfile64" "compat_sys_sendfile";
    193 "truncate" "sys_ia32_truncate64";
    194 "ftruncate" "sys_ia32_ftruncate64";
    195 "stat" "compat_sys_ia32_stat64";
    196 "lstat" "compat_sys_ia32_lstat64";
    197 "fstat" "compat_sys_ia32_fstat64";
    198 "lchown" "sys_lchown";
    207 "fchown" "sys_fchown";
    212 "chown" "sys_chown";
    220 "getdents64" "sys_getdents64";
    226 "setxattr" "sys_setxattr";
    227 "lsetxattr" "sys_lsetxattr";
    228 "fsetxattr" "sys_fsetxattr";
    229 "getxattr" "sys_getxattr";
    230 "lgetxattr" "sys_lgetxattr";
    231 "fgetxattr" "sys_fgetxattr";
    232 "listxattr" "sys_listxattr";
    233 "llistxattr" "sys_llistxattr";
    234 "flistxattr" "sys_flistxattr";
    235 "removexattr" "sys_removexattr";
    236 "lremovexattr" "sys_lremovexattr";
    237 "fremovexattr" "sys_fremovexattr";
    239 "sendfile64" "sys_sendfile64";
    247 "io_getevents" "sys_io_getevents_time32";
    248 "io_submit" "compat_sys_io_submit";
    268 "statfs" "compat_sys_statfs64";
    269 "fstatfs" "compat_sys_fstatfs64";
    271 "utimes" "sys_utimes_time32";
    295 "openat" "compat_sys_openat";
    296 "mkdirat" "sys_mkdirat";
    297 "mknodat" "sys_mknodat";
    298 "fchownat" "sys_fchownat";
    299 "futimesat" "sys_futimesat_time32";
    300 "newfstatat" "compat_sys_ia32_fstatat64";
    301 "unlinkat" "sys_unlinkat";
    302 "renameat" "sys_renameat";
    303 "linkat" "sys_linkat";
    304 "symlinkat" "sys_symlinkat";
    305 "readlinkat" "sys_readlinkat";
    306 "fchmodat" "sys_fchmodat";
    307 "faccessat" "sys_faccessat";
    313 "splice" "sys_splice";
    314 "sync_file_range" "sys_ia32_sync_file_range";
    320 "utimensat" "sys_utimensat_time32";
    324 "fallocate" "sys_ia32_fallocate";
    333 "preadv" "compat_sys_preadv";
    334 "pwritev" "compat_sys_pwritev";
    341 "name_to_handle_at" "sys_name_to_handle_at";
    342 "open_by_handle_at" "compat_sys_open_by_handle_at";
    344 "syncfs" "sys_syncfs";
    353 "renameat2" "sys_renameat2";
    377 "copy_file_range" "sys_copy_file_range";
    378 "preadv2" "compat_sys_preadv2";
    379 "pwritev2" "compat_sys_pwritev2";
    383 "statx" "sys_statx";
    385 "io_pgetevents" "compat_sys_io_pgetevents";
    412 "utimensat" "sys_utimensat";
    416 "io_pgetevents" "compat_sys_io_pgetevents_time64";
    426 "io_uring_enter" "sys_io_uring_enter";
    437 "openat2" "sys_openat2";
    439 "faccessat2" "sys_faccessat2";
    452 "fchmodat2" "sys_fchmodat2";
    463 "setxattrat" "sys_setxattrat";
    464 "getxattrat" "sys_getxattrat";
    465 "listxattrat" "sys_listxattrat";
    466 "removexattrat" "sys_removexattrat";
};
/// Those of this architecture are not told from others.
#[cfg(not(target_arch = "x86_64"))]
pub static COMPAT: &[Compat] = &[];

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
    fn numbers_of_32_bit_programs_are_those_of_all_ops() {
        let mut numbers: Vec<usize> = COMPAT.iter().map(|call| call.number).collect();
        numbers.dedup();
        assert!(numbers.is_sorted() && numbers.len() == COMPAT.len());
        assert!(numbers.iter().all(|&number| number < MAX_SYSCALLS as usize));
        let is_op = |name: &str| OPS.iter().any(|op| op.name == name);
        assert!(COMPAT.iter().all(|call| is_op(call.op)));
        let has_number = |op: &Op| COMPAT.is_empty() || COMPAT.iter().any(|call| call.op == op.name);
        assert!(OPS.iter().all(has_number));
    }

    #[test]
    fn calls_and_ops_go_together() {
        assert_eq!(SYSCALLS.len(), OPS.len());
        assert!(SYSCALLS.iter().zip(OPS).all(|(call, op)| call.name == op.name));
    }
}
