//! System calls that work on files; each is an op with its own name.
//!
//! They are traced at the `sys_enter` and `sys_exit` tracepoints, or at their functions, whose symbols have the
//! architecture's prefix. Either way the number of the call determines the op, so one program serves all of them.

use super::{Family, Op, OpSpec, Point, Returns, Shape};

/// The properties of a system call that [`OpSpec`] lacks.
#[derive(Debug)]
pub struct Syscall {
    pub op: Op,
    /// Its number on this architecture.
    pub number: libc::c_long,
    pub files: Files,
    /// The family in the whole-stack view; `None`: its time is in no row.
    pub family: Option<Family>,
    pub says: Says,
}

/// Which arguments are descriptors of the files that the call works on; `enum file_args` of `bpf/abi.h`. `Arg0` is the
/// first argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Files {
    /// None: the call takes a path, or works on no particular file.
    None,
    /// The first one.
    Arg0,
    /// The first or the second one: the call is counted if either is a selected file.
    Arg0Or1,
    /// The first or the third one.
    Arg0Or2,
    /// The first one, if the path after it is empty or null (`AT_EMPTY_PATH`).
    Arg0WithoutPath,
    /// The first one, if the second one is among the [`COMMANDS`] of the call.
    Arg0OfCommand,
    /// The fifth one, unless the fourth one says that no file is mapped (`MAP_ANONYMOUS`).
    Arg4,
    /// None, and the call never returns.
    Ends,
}

/// What the arguments of a call say about its range in the file, or about the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Says {
    Nothing,
    /// The third argument is the size; the offset is the file position.
    Size,
    /// The size is not an argument; the offset is the file position.
    Position,
    /// The second argument is the size.
    Size1,
    /// The second argument is the size, the sixth the offset.
    Size1AndOffset5,
    /// The third argument is the size, the fourth the offset.
    SizeAndOffset,
    /// The fourth argument is the offset.
    Offset,
    /// Offset and size are two consecutive arguments, beginning with this index (from 0).
    RangeFrom1,
    RangeFrom2,
    /// A path, at this index (from 0).
    Path0,
    Path1,
    Path2,
    /// The descriptor is closed when the call returns.
    Close,
}

/// Further arguments of a system call, which only records have. They are counted from 1; 0: there is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MoreArguments {
    /// The second path.
    pub second_path: u8,
    /// The descriptor of the folder that it starts from.
    pub second_folder: u8,
    /// The first path starts from the working directory although an argument precedes it.
    pub is_in_working_directory: bool,
    /// The size, of a call whose [`Says`] has none.
    pub size: u8,
    /// The argument that is particular to the call: flags, a mode, a length, a number of buffers.
    pub extra: u8,
    /// A pointer to the offset in the file that data is taken from; null: the call uses the position.
    pub offset_pointer: u8,
    /// The same of the file that data is copied to. Records have this offset as the argument that is particular to the call.
    pub second_offset_pointer: u8,
}

impl Syscall {
    /// The arguments that [`Says`] lacks.
    #[must_use]
    pub fn more_arguments(&self) -> MoreArguments {
        let extra = |extra| MoreArguments {
            extra,
            ..MoreArguments::default()
        };
        match self.op.name() {
            "rename" | "link" => MoreArguments {
                second_path: 2,
                ..extra(0)
            },
            "renameat" | "renameat2" | "linkat" => MoreArguments {
                second_path: 4,
                second_folder: 3,
                ..extra(5)
            },
            // The text of the link.
            "symlink" => MoreArguments {
                second_path: 1,
                is_in_working_directory: true,
                ..extra(0)
            },
            "symlinkat" => MoreArguments {
                second_path: 1,
                ..extra(0)
            },
            "sendfile64" => MoreArguments {
                size: 4,
                offset_pointer: 3,
                ..extra(0)
            },
            "splice" => MoreArguments {
                size: 5,
                offset_pointer: 2,
                ..extra(6)
            },
            // Its flags are always 0.
            "copy_file_range" => MoreArguments {
                size: 5,
                offset_pointer: 2,
                second_offset_pointer: 4,
                ..extra(0)
            },
            "open" | "creat" | "mkdir" | "mknod" | "chmod" | "fchmod" | "access" | "fallocate" | "ftruncate"
            | "truncate" | "io_submit" | "io_uring_enter" => extra(2),
            "openat" | "readv" | "writev" | "preadv" | "pwritev" | "mkdirat" | "mknodat" | "fchmodat" | "fchmodat2"
            | "faccessat" | "faccessat2" | "unlinkat" | "statx" | "msync" | "getdents" | "getdents64" => extra(3),
            "newfstatat" | "sync_file_range" | "utimensat" => extra(4),
            "fchownat" => MoreArguments { size: 4, ..extra(3) },
            "name_to_handle_at" => extra(5),
            "preadv2" | "pwritev2" => extra(6),
            // User and group: records have the latter as the size, until they are read.
            "chown" | "lchown" | "fchown" => MoreArguments { size: 3, ..extra(2) },
            "lseek" | "mmap" | "madvise" | "dup3" | "close_range" => extra(3),
            "dup2" | "fcntl" | "ioctl" => extra(2),
            "mremap" => MoreArguments { size: 3, ..extra(4) },
            "fadvise64" => extra(4),
            "exit_group" => extra(1),
            _ => extra(0),
        }
    }
}

/// Numbers of system calls under libc's names (include/uapi/asm-generic/unistd.h,
/// arch/x86/entry/syscalls/syscall_64.tbl).
pub(crate) mod number {
    #![allow(non_upper_case_globals)]

    pub use libc::*;

    // Numbers that libc does not define on every architecture.
    #[cfg(target_arch = "x86_64")]
    pub const SYS_io_pgetevents: c_long = 333;
    #[cfg(not(target_arch = "x86_64"))]
    pub const SYS_io_pgetevents: c_long = 292;
    pub const SYS_close_range: c_long = 436;
    pub const SYS_fchmodat2: c_long = 452;
    pub const SYS_setxattrat: c_long = 463;
    pub const SYS_getxattrat: c_long = 464;
    pub const SYS_listxattrat: c_long = 465;
    pub const SYS_removexattrat: c_long = 466;
}

macro_rules! family {
    (NoRow) => {
        None
    };
    ($family:ident) => {
        Some(Family::$family)
    };
}

macro_rules! syscalls {
    ($(#[$on_calls:meta])* $calls:ident $(#[$on_ops:meta])* $ops:ident;
     $($(#[$on:meta])* $op:ident $number:ident $function:literal $files:ident $returns:ident $family:ident $says:ident;)*) => {
        $(#[$on_calls])*
        pub static $calls: &[Syscall] = &[
            $($(#[$on])* Syscall {
                op: Op::$op,
                number: number::$number,
                files: Files::$files,
                family: family!($family),
                says: Says::$says,
            },)*
        ];
        $(#[$on_ops])*
        pub static $ops: &[OpSpec] = &[
            $($(#[$on])* OpSpec {
                op: Op::$op,
                moves_bytes: matches!(Returns::$returns, Returns::Bytes),
                points: &[Point::new($function, Shape::Syscall, Returns::$returns)],
                instead: None,
                around: None,
            },)*
        ];
    };
}

// Op, number, function, descriptors among the arguments, meaning of the result, family, what else the arguments say.
// Calls without a `cfg` exist on every architecture; the others are missing in the table that newer architectures
// share.
syscalls! {
    /// In the order of the ops of system calls ([`super::Layer::ops`]).
    SYSCALLS
    OPS;
    Read SYS_read "read" Arg0 Bytes Read Size;
    Pread64 SYS_pread64 "pread64" Arg0 Bytes Read SizeAndOffset;
    Readv SYS_readv "readv" Arg0 Bytes Read Position;
    Preadv SYS_preadv "preadv" Arg0 Bytes Read Offset;
    Preadv2 SYS_preadv2 "preadv2" Arg0 Bytes Read Offset;
    Write SYS_write "write" Arg0 Bytes Write Size;
    Pwrite64 SYS_pwrite64 "pwrite64" Arg0 Bytes Write SizeAndOffset;
    Writev SYS_writev "writev" Arg0 Bytes Write Position;
    Pwritev SYS_pwritev "pwritev" Arg0 Bytes Write Offset;
    Pwritev2 SYS_pwritev2 "pwritev2" Arg0 Bytes Write Offset;
    #[cfg(target_arch = "x86_64")]
    Open SYS_open "open" None Fd Open Path0;
    Openat SYS_openat "openat" None Fd Open Path1;
    Openat2 SYS_openat2 "openat2" None Fd Open Path1;
    OpenByHandleAt SYS_open_by_handle_at "open_by_handle_at" None Fd Open Nothing;
    #[cfg(target_arch = "x86_64")]
    Creat SYS_creat "creat" None Fd Open Path0;
    Close SYS_close "close" Arg0 Status Metadata Close;
    Fsync SYS_fsync "fsync" Arg0 Status Fsync Nothing;
    Fdatasync SYS_fdatasync "fdatasync" Arg0 Status Fsync Nothing;
    Sync SYS_sync "sync" None Status Fsync Nothing;
    Syncfs SYS_syncfs "syncfs" Arg0 Status Fsync Nothing;
    SyncFileRange SYS_sync_file_range "sync_file_range" Arg0 Status Fsync RangeFrom1;
    Msync SYS_msync "msync" None Status Fsync Nothing;
    Sendfile64 SYS_sendfile "sendfile64" Arg0Or1 Bytes Read Nothing;
    Splice SYS_splice "splice" Arg0Or2 Bytes Read Nothing;
    CopyFileRange SYS_copy_file_range "copy_file_range" Arg0Or2 Bytes Write Nothing;
    Fallocate SYS_fallocate "fallocate" Arg0 Status Metadata RangeFrom2;
    Ftruncate SYS_ftruncate "ftruncate" Arg0 Status Metadata Nothing;
    Truncate SYS_truncate "truncate" None Status Metadata Path0;
    IoSubmit SYS_io_submit "io_submit" None Status Asynchronous Nothing;
    IoGetevents SYS_io_getevents "io_getevents" None Status Asynchronous Nothing;
    IoPgetevents SYS_io_pgetevents "io_pgetevents" None Status Asynchronous Nothing;
    IoUringEnter SYS_io_uring_enter "io_uring_enter" None Status Asynchronous Nothing;
    #[cfg(target_arch = "x86_64")]
    Stat SYS_stat "newstat" None Status Metadata Path0;
    Fstat SYS_fstat "newfstat" Arg0 Status Metadata Nothing;
    #[cfg(target_arch = "x86_64")]
    Lstat SYS_lstat "newlstat" None Status Metadata Path0;
    Newfstatat SYS_newfstatat "newfstatat" Arg0WithoutPath Status Metadata Path1;
    Statx SYS_statx "statx" Arg0WithoutPath Status Metadata Path1;
    #[cfg(target_arch = "x86_64")]
    Access SYS_access "access" None Status Metadata Path0;
    Faccessat SYS_faccessat "faccessat" None Status Metadata Path1;
    Faccessat2 SYS_faccessat2 "faccessat2" Arg0WithoutPath Status Metadata Path1;
    NameToHandleAt SYS_name_to_handle_at "name_to_handle_at" Arg0WithoutPath Status Metadata Path1;
    Statfs SYS_statfs "statfs" None Status Metadata Path0;
    Fstatfs SYS_fstatfs "fstatfs" Arg0 Status Metadata Nothing;
    #[cfg(target_arch = "x86_64")]
    Getdents SYS_getdents "getdents" Arg0 Status Metadata Nothing;
    Getdents64 SYS_getdents64 "getdents64" Arg0 Status Metadata Nothing;
    #[cfg(target_arch = "x86_64")]
    Rename SYS_rename "rename" None Status Metadata Path0;
    Renameat SYS_renameat "renameat" None Status Metadata Path1;
    Renameat2 SYS_renameat2 "renameat2" None Status Metadata Path1;
    #[cfg(target_arch = "x86_64")]
    Unlink SYS_unlink "unlink" None Status Metadata Path0;
    Unlinkat SYS_unlinkat "unlinkat" None Status Metadata Path1;
    #[cfg(target_arch = "x86_64")]
    Rmdir SYS_rmdir "rmdir" None Status Metadata Path0;
    #[cfg(target_arch = "x86_64")]
    Link SYS_link "link" None Status Metadata Path0;
    Linkat SYS_linkat "linkat" Arg0WithoutPath Status Metadata Path1;
    // The second path is that of the link; the first one is its text.
    #[cfg(target_arch = "x86_64")]
    Symlink SYS_symlink "symlink" None Status Metadata Path1;
    Symlinkat SYS_symlinkat "symlinkat" None Status Metadata Path2;
    #[cfg(target_arch = "x86_64")]
    Mkdir SYS_mkdir "mkdir" None Status Metadata Path0;
    Mkdirat SYS_mkdirat "mkdirat" None Status Metadata Path1;
    #[cfg(target_arch = "x86_64")]
    Mknod SYS_mknod "mknod" None Status Metadata Path0;
    Mknodat SYS_mknodat "mknodat" None Status Metadata Path1;
    #[cfg(target_arch = "x86_64")]
    Readlink SYS_readlink "readlink" None Status Metadata Path0;
    Readlinkat SYS_readlinkat "readlinkat" None Status Metadata Path1;
    Chdir SYS_chdir "chdir" None Status Metadata Path0;
    #[cfg(target_arch = "x86_64")]
    Chmod SYS_chmod "chmod" None Status Metadata Path0;
    Fchmod SYS_fchmod "fchmod" Arg0 Status Metadata Nothing;
    Fchmodat SYS_fchmodat "fchmodat" None Status Metadata Path1;
    Fchmodat2 SYS_fchmodat2 "fchmodat2" Arg0WithoutPath Status Metadata Path1;
    #[cfg(target_arch = "x86_64")]
    Chown SYS_chown "chown" None Status Metadata Path0;
    #[cfg(target_arch = "x86_64")]
    Lchown SYS_lchown "lchown" None Status Metadata Path0;
    Fchown SYS_fchown "fchown" Arg0 Status Metadata Nothing;
    Fchownat SYS_fchownat "fchownat" Arg0WithoutPath Status Metadata Path1;
    #[cfg(target_arch = "x86_64")]
    Utime SYS_utime "utime" None Status Metadata Path0;
    #[cfg(target_arch = "x86_64")]
    Utimes SYS_utimes "utimes" None Status Metadata Path0;
    #[cfg(target_arch = "x86_64")]
    Futimesat SYS_futimesat "futimesat" Arg0WithoutPath Status Metadata Path1;
    Utimensat SYS_utimensat "utimensat" Arg0WithoutPath Status Metadata Path1;
    Getxattr SYS_getxattr "getxattr" None Status Metadata Path0;
    Lgetxattr SYS_lgetxattr "lgetxattr" None Status Metadata Path0;
    Fgetxattr SYS_fgetxattr "fgetxattr" Arg0 Status Metadata Nothing;
    Getxattrat SYS_getxattrat "getxattrat" Arg0WithoutPath Status Metadata Path1;
    Setxattr SYS_setxattr "setxattr" None Status Metadata Path0;
    Lsetxattr SYS_lsetxattr "lsetxattr" None Status Metadata Path0;
    Fsetxattr SYS_fsetxattr "fsetxattr" Arg0 Status Metadata Nothing;
    Setxattrat SYS_setxattrat "setxattrat" Arg0WithoutPath Status Metadata Path1;
    Listxattr SYS_listxattr "listxattr" None Status Metadata Path0;
    Llistxattr SYS_llistxattr "llistxattr" None Status Metadata Path0;
    Flistxattr SYS_flistxattr "flistxattr" Arg0 Status Metadata Nothing;
    Listxattrat SYS_listxattrat "listxattrat" Arg0WithoutPath Status Metadata Path1;
    Removexattr SYS_removexattr "removexattr" None Status Metadata Path0;
    Lremovexattr SYS_lremovexattr "lremovexattr" None Status Metadata Path0;
    Fremovexattr SYS_fremovexattr "fremovexattr" Arg0 Status Metadata Nothing;
    Removexattrat SYS_removexattrat "removexattrat" Arg0WithoutPath Status Metadata Path1;
}

// As above. What these calls do to positions, descriptors, mappings and processes is needed to understand the others.
syscalls! {
    /// Calls that only runs that record measure, in the order of [`RECORDED_OPS`]. Each record has all arguments.
    RECORDED
    /// Their ops, after those of all runs.
    RECORDED_OPS;
    Lseek SYS_lseek "lseek" Arg0 Status NoRow Position;
    Dup SYS_dup "dup" Arg0 Status NoRow Nothing;
    #[cfg(target_arch = "x86_64")]
    Dup2 SYS_dup2 "dup2" Arg0 Status NoRow Nothing;
    Dup3 SYS_dup3 "dup3" Arg0 Status NoRow Nothing;
    Fcntl SYS_fcntl "fcntl" Arg0OfCommand Status NoRow Nothing;
    Mmap SYS_mmap "mmap" Arg4 Status NoRow Size1AndOffset5;
    Munmap SYS_munmap "munmap" None Status NoRow Size1;
    Mremap SYS_mremap "mremap" None Status NoRow Nothing;
    Madvise SYS_madvise "madvise" None Status NoRow Size1;
    Readahead SYS_readahead "readahead" Arg0 Status NoRow RangeFrom1;
    #[cfg(target_arch = "x86_64")]
    Fadvise64 SYS_fadvise64 "fadvise64" Arg0 Status NoRow RangeFrom1;
    #[cfg(not(target_arch = "x86_64"))]
    Fadvise64 SYS_fadvise64 "fadvise64_64" Arg0 Status NoRow RangeFrom1;
    Fchdir SYS_fchdir "fchdir" Arg0 Status NoRow Nothing;
    Chroot SYS_chroot "chroot" None Status NoRow Path0;
    Ioctl SYS_ioctl "ioctl" Arg0OfCommand Status NoRow Nothing;
    CloseRange SYS_close_range "close_range" None Status NoRow Nothing;
    ExitGroup SYS_exit_group "exit_group" Ends Status NoRow Nothing;
}

/// A command of a call with [`Files::Arg0OfCommand`].
#[derive(Debug, Clone, Copy)]
pub struct Command {
    pub op: Op,
    /// The second argument of the call has this value in the bits of `mask`.
    pub mask: u32,
    pub value: u32,
}

const fn command(op: Op, value: u32) -> Command {
    Command {
        op,
        mask: u32::MAX,
        value,
    }
}

/// The commands that are recorded (include/uapi/linux/fcntl.h and fs.h): fcntl and ioctl have many more.
pub static COMMANDS: &[Command] = &[
    // F_DUPFD, F_DUPFD_CLOEXEC and F_SETFL.
    command(Op::Fcntl, 0),
    command(Op::Fcntl, 1030),
    command(Op::Fcntl, 4),
    // FICLONE, FICLONERANGE, FIDEDUPERANGE and FITRIM.
    command(Op::Ioctl, 0x4004_9409),
    command(Op::Ioctl, 0x4020_940d),
    command(Op::Ioctl, 0xc018_9436),
    command(Op::Ioctl, 0xc018_5879),
    // Those of block devices (BLK...) have a type of their own.
    Command {
        mask: 0xff00,
        ..command(Op::Ioctl, 0x12 << 8)
    },
];

/// The system call that is this op.
#[must_use]
pub fn syscall_of(op: Op) -> Option<&'static Syscall> {
    SYSCALLS.iter().chain(RECORDED).find(|call| call.op == op)
}

/// The family of each system call that has one.
pub fn families() -> impl Iterator<Item = (Op, Family)> {
    SYSCALLS.iter().filter_map(|call| Some((call.op, call.family?)))
}

/// A system call of 32-bit programs on a 64-bit kernel, which have a number table of their own.
#[derive(Debug)]
pub struct Compat {
    pub number: usize,
    pub op: Op,
    /// Its function. The kind of its result is not used: that of the op applies.
    pub point: Point,
}

#[cfg(target_arch = "x86_64")]
macro_rules! compat {
    ($($number:literal $op:ident $function:literal;)*) => {
        &[$(Compat {
            number: $number,
            op: Op::$op,
            point: Point::new($function, Shape::Syscall32, Returns::Status),
        },)*]
    };
}

// Number, op, function. Calls that differ only in the width of an offset or a structure are one op.
/// In the order of their numbers (arch/x86/entry/syscalls/syscall_32.tbl).
#[cfg(target_arch = "x86_64")]
pub static COMPAT: &[Compat] = compat! {
    3 Read "sys_read";
    4 Write "sys_write";
    5 Open "compat_sys_open";
    6 Close "sys_close";
    8 Creat "sys_creat";
    9 Link "sys_link";
    10 Unlink "sys_unlink";
    12 Chdir "sys_chdir";
    14 Mknod "sys_mknod";
    15 Chmod "sys_chmod";
    16 Lchown "sys_lchown16";
    19 Lseek "compat_sys_lseek";
    30 Utime "sys_utime32";
    33 Access "sys_access";
    36 Sync "sys_sync";
    38 Rename "sys_rename";
    39 Mkdir "sys_mkdir";
    40 Rmdir "sys_rmdir";
    41 Dup "sys_dup";
    54 Ioctl "compat_sys_ioctl";
    55 Fcntl "compat_sys_fcntl";
    61 Chroot "sys_chroot";
    63 Dup2 "sys_dup2";
    83 Symlink "sys_symlink";
    85 Readlink "sys_readlink";
    91 Munmap "sys_munmap";
    92 Truncate "compat_sys_truncate";
    93 Ftruncate "compat_sys_ftruncate";
    94 Fchmod "sys_fchmod";
    95 Fchown "sys_fchown16";
    99 Statfs "compat_sys_statfs";
    100 Fstatfs "compat_sys_fstatfs";
    106 Stat "compat_sys_newstat";
    107 Lstat "compat_sys_newlstat";
    108 Fstat "compat_sys_newfstat";
    118 Fsync "sys_fsync";
    133 Fchdir "sys_fchdir";
    141 Getdents "compat_sys_getdents";
    144 Msync "sys_msync";
    145 Readv "sys_readv";
    146 Writev "sys_writev";
    148 Fdatasync "sys_fdatasync";
    163 Mremap "sys_mremap";
    180 Pread64 "sys_ia32_pread64";
    181 Pwrite64 "sys_ia32_pwrite64";
    182 Chown "sys_chown16";
    187 Sendfile64 "compat_sys_sendfile";
    192 Mmap "sys_mmap_pgoff";
    193 Truncate "sys_ia32_truncate64";
    194 Ftruncate "sys_ia32_ftruncate64";
    195 Stat "compat_sys_ia32_stat64";
    196 Lstat "compat_sys_ia32_lstat64";
    197 Fstat "compat_sys_ia32_fstat64";
    198 Lchown "sys_lchown";
    207 Fchown "sys_fchown";
    212 Chown "sys_chown";
    219 Madvise "sys_madvise";
    220 Getdents64 "sys_getdents64";
    221 Fcntl "compat_sys_fcntl64";
    225 Readahead "sys_ia32_readahead";
    226 Setxattr "sys_setxattr";
    227 Lsetxattr "sys_lsetxattr";
    228 Fsetxattr "sys_fsetxattr";
    229 Getxattr "sys_getxattr";
    230 Lgetxattr "sys_lgetxattr";
    231 Fgetxattr "sys_fgetxattr";
    232 Listxattr "sys_listxattr";
    233 Llistxattr "sys_llistxattr";
    234 Flistxattr "sys_flistxattr";
    235 Removexattr "sys_removexattr";
    236 Lremovexattr "sys_lremovexattr";
    237 Fremovexattr "sys_fremovexattr";
    239 Sendfile64 "sys_sendfile64";
    247 IoGetevents "sys_io_getevents_time32";
    248 IoSubmit "compat_sys_io_submit";
    250 Fadvise64 "sys_ia32_fadvise64";
    252 ExitGroup "sys_exit_group";
    268 Statfs "compat_sys_statfs64";
    269 Fstatfs "compat_sys_fstatfs64";
    271 Utimes "sys_utimes_time32";
    272 Fadvise64 "sys_ia32_fadvise64_64";
    295 Openat "compat_sys_openat";
    296 Mkdirat "sys_mkdirat";
    297 Mknodat "sys_mknodat";
    298 Fchownat "sys_fchownat";
    299 Futimesat "sys_futimesat_time32";
    300 Newfstatat "compat_sys_ia32_fstatat64";
    301 Unlinkat "sys_unlinkat";
    302 Renameat "sys_renameat";
    303 Linkat "sys_linkat";
    304 Symlinkat "sys_symlinkat";
    305 Readlinkat "sys_readlinkat";
    306 Fchmodat "sys_fchmodat";
    307 Faccessat "sys_faccessat";
    313 Splice "sys_splice";
    314 SyncFileRange "sys_ia32_sync_file_range";
    320 Utimensat "sys_utimensat_time32";
    324 Fallocate "sys_ia32_fallocate";
    330 Dup3 "sys_dup3";
    333 Preadv "compat_sys_preadv";
    334 Pwritev "compat_sys_pwritev";
    341 NameToHandleAt "sys_name_to_handle_at";
    342 OpenByHandleAt "compat_sys_open_by_handle_at";
    344 Syncfs "sys_syncfs";
    353 Renameat2 "sys_renameat2";
    377 CopyFileRange "sys_copy_file_range";
    378 Preadv2 "compat_sys_preadv2";
    379 Pwritev2 "compat_sys_pwritev2";
    383 Statx "sys_statx";
    385 IoPgetevents "compat_sys_io_pgetevents";
    412 Utimensat "sys_utimensat";
    416 IoPgetevents "compat_sys_io_pgetevents_time64";
    426 IoUringEnter "sys_io_uring_enter";
    436 CloseRange "sys_close_range";
    437 Openat2 "sys_openat2";
    439 Faccessat2 "sys_faccessat2";
    452 Fchmodat2 "sys_fchmodat2";
    463 Setxattrat "sys_setxattrat";
    464 Getxattrat "sys_getxattrat";
    465 Listxattrat "sys_listxattrat";
    466 Removexattrat "sys_removexattrat";
};
/// On other architectures, calls of 32-bit programs are not distinguished.
#[cfg(not(target_arch = "x86_64"))]
pub static COMPAT: &[Compat] = &[];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::abi::{self as c, MAX_SYSCALLS};

    #[test]
    fn numbers_are_unique_and_fit_the_table() {
        let mut numbers: Vec<_> = SYSCALLS.iter().chain(RECORDED).map(|call| call.number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), SYSCALLS.len() + RECORDED.len());
        assert!(numbers.iter().all(|&n| (0..i64::from(MAX_SYSCALLS)).contains(&n)));
    }

    #[test]
    fn every_op_has_a_number_for_32_bit_programs() {
        let mut numbers: Vec<usize> = COMPAT.iter().map(|call| call.number).collect();
        numbers.dedup();
        assert!(numbers.is_sorted() && numbers.len() == COMPAT.len());
        assert!(numbers.iter().all(|&number| number < MAX_SYSCALLS as usize));
        let ops = || OPS.iter().chain(RECORDED_OPS);
        let is_op = |op: Op| ops().any(|spec| spec.op == op);
        assert!(COMPAT.iter().all(|call| is_op(call.op)));
        let has_number = |spec: &OpSpec| COMPAT.is_empty() || COMPAT.iter().any(|call| call.op == spec.op);
        assert!(ops().all(has_number));
    }

    #[test]
    fn system_calls_and_ops_are_in_the_same_order() {
        assert_eq!(SYSCALLS.len(), OPS.len());
        assert!(SYSCALLS.iter().zip(OPS).all(|(call, spec)| call.op == spec.op));
        assert!(RECORDED.iter().zip(RECORDED_OPS).all(|(call, spec)| call.op == spec.op));
    }

    #[test]
    fn calls_with_commands_have_some() {
        let of_command = RECORDED.iter().filter(|call| call.files == Files::Arg0OfCommand);
        let of_command: Vec<Op> = of_command.map(|call| call.op).collect();
        assert!(
            of_command
                .iter()
                .all(|op| COMMANDS.iter().any(|command| command.op == *op))
        );
        assert!(COMMANDS.iter().all(|command| of_command.contains(&command.op)));
        assert!(COMMANDS.len() <= c::COMMANDS as usize);
    }
}
