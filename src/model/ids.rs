//! Identifiers with a fixed name, which is the same in reports, in JSON and in recordings.

use std::fmt;
use std::str::FromStr;

/// The error for a word that is not a name of the requested kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownName {
    /// The kind of name that was expected, for example `layer`.
    pub kind: &'static str,
    pub word: String,
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}' is no {}", self.word, self.kind)
    }
}

impl std::error::Error for UnknownName {}

/// Implements `Display` and serde by name, for a type with `name()` and `FromStr`.
macro_rules! by_name {
    ($Type:ident) => {
        impl std::fmt::Display for $Type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl serde::Serialize for $Type {
            fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                to.serialize_str(self.name())
            }
        }

        impl<'de> serde::Deserialize<'de> for $Type {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                let word = <std::borrow::Cow<'_, str> as serde::Deserialize>::deserialize(from)?;
                word.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}
pub(crate) use by_name;

/// Defines an enumeration with a name for each variant: `Variant = "name"`.
macro_rules! names {
    ($(#[$on:meta])* $kind:literal $Type:ident {
        $($(#[$on_variant:meta])* $Variant:ident = $name:literal,)*
    }) => {
        $(#[$on])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $Type {
            $($(#[$on_variant])* $Variant,)*
        }

        impl $Type {
            /// All variants in the order of their declaration.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$Variant),*];

            /// The name in reports and in JSON.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$Variant => $name,)*
                }
            }
        }

        impl std::str::FromStr for $Type {
            type Err = $crate::model::ids::UnknownName;

            fn from_str(word: &str) -> Result<Self, Self::Err> {
                match word {
                    $($name => Ok(Self::$Variant),)*
                    _ => Err($crate::model::ids::UnknownName { kind: $kind, word: word.to_owned() }),
                }
            }
        }

        $crate::model::ids::by_name!($Type);
    };
}
pub(crate) use names;

/// Where a file system stores its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lives {
    /// On a block device.
    Disk,
    /// On a server.
    Net,
    /// In memory. Every machine has such a file system mounted, and few calls use it, so the whole-stack view includes
    /// it only on request.
    Memory,
    /// In other file systems, which it calls in the same thread.
    Above,
}

/// The file systems that are layers, in the order of reports: the variant of [`Layer`], the name, the file in
/// `src/catalog/`, and [`Lives`]. Every list of file systems is generated from this one.
macro_rules! file_systems {
    ($what:ident) => {
        $what! {
            Ext4 = "ext4" in ext4 on Disk;
            Xfs = "xfs" in xfs on Disk;
            Btrfs = "btrfs" in btrfs on Disk;
            F2fs = "f2fs" in f2fs on Disk;
            Nfs = "nfs" in nfs on Net;
            Overlay = "overlay" in overlay on Above;
            Tmpfs = "tmpfs" in tmpfs on Memory;
        }
    };
}
pub(crate) use file_systems;

macro_rules! layers {
    ($($FileSystem:ident = $name:literal in $file:ident on $Lives:ident;)*) => {
        names! {
            /// A layer of the I/O stack, in the order of the stack.
            #[derive(Default)]
            "layer" Layer {
                Syscall = "syscall",
                #[default]
                Vfs = "vfs",
                $($FileSystem = $name,)*
                Blk = "blk",
            }
        }

        impl Layer {
            /// Where its files are stored; `None`: the layer is not a file system.
            #[must_use]
            pub const fn lives(self) -> Option<Lives> {
                match self {
                    Self::Syscall | Self::Vfs | Self::Blk => None,
                    $(Self::$FileSystem => Some(Lives::$Lives),)*
                }
            }
        }
    };
}

file_systems!(layers);

names! {
    /// A group of system calls with the same purpose. The order is that of `bpf/abi.h`, which names two of them, and of
    /// families with equal times in reports.
    "family of system calls" Family {
        Read = "read",
        Write = "write",
        Open = "open",
        /// fsync, fdatasync, sync_file_range, msync, sync and syncfs.
        Fsync = "fsync",
        /// Calls on names, sizes and attributes.
        Metadata = "metadata",
        /// The calls that submit asynchronous requests and wait for them.
        Asynchronous = "async",
    }
}

names! {
    /// Where the data of a read came from; `enum read_class` of `bpf/abi.h`.
    "class of reads" ReadClass {
        FromCache = "from_cache",
        WaitedForOwn = "waited_for_own",
        WaitedForOthers = "waited_for_others",
        ReadAheadOnly = "read_ahead_only",
        Direct = "direct",
    }
}

names! {
    /// The source of a request that no call waits for; `enum origin` of `bpf/abi.h`.
    #[derive(Default)]
    "origin of requests" Origin {
        #[default]
        Unknown = "unknown",
        Own = "own",
        Asynchronous = "asynchronous",
        Kworker = "kworker",
        Journal = "journal",
        Kernel = "kernel",
        Writeback = "writeback",
        Readahead = "readahead",
    }
}

names! {
    /// How a BPF program is attached to a kernel function or an event. Versions are those of the first kernel that has
    /// it.
    "hook" Hook {
        /// By BPF trampoline, one program per function, called at entry and return (7.0).
        Fsession = "fsession",
        /// By BPF trampoline, one program per function and direction (5.5).
        Fentry = "fentry/fexit",
        /// One program on many functions, called at entry and return (6.10).
        Session = "kprobe.session",
        /// One program on many functions, with separate programs for entry and return (5.18).
        Multi = "kprobe.multi",
        /// Perf's kprobe at the entry; at the return a kretprobe event created through tracefs, which allows more
        /// simultaneous calls (`maxactive`).
        KprobeEvent = "kprobe event",
        /// Perf's kprobe and kretprobe.
        Kprobe = "kprobe/kretprobe",
        /// Perf's kprobe, of a function whose return need not be seen.
        KprobeEntry = "kprobe",
        /// The `sys_enter` and `sys_exit` tracepoints as raw tracepoints with BTF.
        RawTracepoint = "tp_btf",
        /// The same tracepoints as perf events.
        Tracepoint = "tracepoint",
    }
}

impl Hook {
    /// Whether it is attached to a function, rather than to the system call tracepoints.
    #[must_use]
    pub fn is_on_functions(self) -> bool {
        !matches!(self, Self::RawTracepoint | Self::Tracepoint)
    }

    /// Whether one link covers many functions.
    #[must_use]
    pub fn links_many(self) -> bool {
        matches!(self, Self::Session | Self::Multi)
    }

    /// Whether its programs are called by a trampoline.
    #[must_use]
    pub fn is_trampoline(self) -> bool {
        matches!(self, Self::Fsession | Self::Fentry)
    }
}

names! {
    /// What calls and requests are grouped by.
    "group" By {
        Process = "process",
        File = "file",
        Disk = "disk",
        Cgroup = "cgroup",
        /// From records only, as the following ones.
        Thread = "thread",
        /// Threads of one name.
        Comm = "comm",
        /// An open file of a process.
        Fd = "fd",
        User = "user",
        /// Of systemd. Its control groups are counted, as for the following ones.
        Unit = "unit",
        /// Of Kubernetes.
        Pod = "pod",
        Container = "container",
    }
}

impl By {
    /// By which the programs can count, perhaps by control groups whose names then say more.
    pub const COUNTED: [Self; 7] = [
        Self::Process,
        Self::File,
        Self::Disk,
        Self::Cgroup,
        Self::Unit,
        Self::Pod,
        Self::Container,
    ];

    /// Whether the programs count by control group for it.
    #[must_use]
    pub fn is_of_cgroups(self) -> bool {
        matches!(self, Self::Cgroup | Self::Unit | Self::Pod | Self::Container)
    }

    /// Whether files of kubelet and of container runtimes have the names.
    #[must_use]
    pub fn has_names_in_files(self) -> bool {
        matches!(self, Self::Pod | Self::Container)
    }

    /// The plural of the name.
    #[must_use]
    pub fn plural(self) -> &'static str {
        match self {
            Self::Process => "processes",
            Self::File => "files",
            Self::Disk => "disks",
            Self::Cgroup => "cgroups",
            Self::Thread => "threads",
            Self::Comm => "names",
            Self::Fd => "descriptors",
            Self::User => "users",
            Self::Unit => "units",
            Self::Pod => "pods",
            Self::Container => "containers",
        }
    }
}

names! {
    /// The reason why a call is missing in the histogram.
    "reason of a loss" LossReason {
        /// The entry was traced, the return was not (kretprobe instances ran out, or the program was skipped).
        ReturnMissed = "return_missed",
        /// At `blk`: the completion was traced, the issue was not.
        IssueMissed = "issue_missed",
        /// The kernel skipped the program at the entry.
        EntryMissed = "entry_missed",
        /// No task storage could be allocated for the start.
        NoStorage = "no_storage",
        /// The table of starts was full.
        TableFull = "table_full",
        /// The clock at the return was earlier than the clock at the entry.
        ClockBackwards = "clock_backwards",
    }
}

names! {
    /// Why programs that are attached to an event did not run.
    "cause of a loss" CauseKind {
        /// The kernel did not call them: its counter of skipped runs stayed at zero.
        NotCalled = "not_called",
        /// The kernel skipped all of them, since each was already running on that CPU.
        Skipped = "skipped",
    }
}

names! {
    /// What the path of a file is relative to.
    "kind of path" PathKind {
        /// The whole path from the root of the mount namespace.
        Whole = "whole",
        /// The last part of a path, after `…`.
        Cut = "cut",
        /// The name of a file that is in no directory, such as `pipe:[4711]`.
        Alone = "alone",
        /// The argument of the call, which may be relative to its working directory.
        Given = "asked",
        /// The path from the root of its file system, without its mount point.
        Inside = "inside",
    }
}

names! {
    /// An operation of a layer: a system call under its own name, or an operation of the kernel below it. Layers share
    /// the variants of equal names. Not every architecture and kernel has all of them.
    #[derive(Default)]
    "operation" Op {
        Read = "read",
        Pread64 = "pread64",
        Readv = "readv",
        Preadv = "preadv",
        Preadv2 = "preadv2",
        Write = "write",
        Pwrite64 = "pwrite64",
        Writev = "writev",
        Pwritev = "pwritev",
        Pwritev2 = "pwritev2",
        Open = "open",
        Openat = "openat",
        Openat2 = "openat2",
        OpenByHandleAt = "open_by_handle_at",
        Creat = "creat",
        Close = "close",
        Fsync = "fsync",
        Fdatasync = "fdatasync",
        Sync = "sync",
        Syncfs = "syncfs",
        SyncFileRange = "sync_file_range",
        Msync = "msync",
        Sendfile64 = "sendfile64",
        Splice = "splice",
        CopyFileRange = "copy_file_range",
        Fallocate = "fallocate",
        Ftruncate = "ftruncate",
        Truncate = "truncate",
        IoSubmit = "io_submit",
        IoGetevents = "io_getevents",
        IoPgetevents = "io_pgetevents",
        IoUringEnter = "io_uring_enter",
        Stat = "stat",
        Fstat = "fstat",
        Lstat = "lstat",
        Newfstatat = "newfstatat",
        Statx = "statx",
        Access = "access",
        Faccessat = "faccessat",
        Faccessat2 = "faccessat2",
        NameToHandleAt = "name_to_handle_at",
        Statfs = "statfs",
        Fstatfs = "fstatfs",
        Getdents = "getdents",
        Getdents64 = "getdents64",
        Rename = "rename",
        Renameat = "renameat",
        Renameat2 = "renameat2",
        Unlink = "unlink",
        Unlinkat = "unlinkat",
        Rmdir = "rmdir",
        Link = "link",
        Linkat = "linkat",
        Symlink = "symlink",
        Symlinkat = "symlinkat",
        Mkdir = "mkdir",
        Mkdirat = "mkdirat",
        Mknod = "mknod",
        Mknodat = "mknodat",
        Readlink = "readlink",
        Readlinkat = "readlinkat",
        Chdir = "chdir",
        Chmod = "chmod",
        Fchmod = "fchmod",
        Fchmodat = "fchmodat",
        Fchmodat2 = "fchmodat2",
        Chown = "chown",
        Lchown = "lchown",
        Fchown = "fchown",
        Fchownat = "fchownat",
        Utime = "utime",
        Utimes = "utimes",
        Futimesat = "futimesat",
        Utimensat = "utimensat",
        Getxattr = "getxattr",
        Lgetxattr = "lgetxattr",
        Fgetxattr = "fgetxattr",
        Getxattrat = "getxattrat",
        Setxattr = "setxattr",
        Lsetxattr = "lsetxattr",
        Fsetxattr = "fsetxattr",
        Setxattrat = "setxattrat",
        Listxattr = "listxattr",
        Llistxattr = "llistxattr",
        Flistxattr = "flistxattr",
        Listxattrat = "listxattrat",
        Removexattr = "removexattr",
        Lremovexattr = "lremovexattr",
        Fremovexattr = "fremovexattr",
        Removexattrat = "removexattrat",
        Lseek = "lseek",
        Dup = "dup",
        Dup2 = "dup2",
        Dup3 = "dup3",
        Fcntl = "fcntl",
        Mmap = "mmap",
        Munmap = "munmap",
        Mremap = "mremap",
        Madvise = "madvise",
        Readahead = "readahead",
        Fadvise64 = "fadvise64",
        Fchdir = "fchdir",
        Chroot = "chroot",
        Ioctl = "ioctl",
        CloseRange = "close_range",
        ExitGroup = "exit_group",
        SpliceRead = "splice_read",
        SpliceWrite = "splice_write",
        Fault = "fault",
        Mkwrite = "mkwrite",
        Flush = "flush",
        Discard = "discard",
        SecureErase = "secure_erase",
        WriteZeroes = "write_zeroes",
        WriteSame = "write_same",
        ZoneAppend = "zone_append",
        ZoneMgmt = "zone_mgmt",
        Driver = "driver",
        #[default]
        Other = "other",
    }
}

impl Op {
    /// Whether it writes or reads data of one file, or of a disk; `None`: it does neither.
    #[must_use]
    pub const fn is_write(self) -> Option<bool> {
        match self {
            Self::Read | Self::Pread64 | Self::Readv | Self::Preadv | Self::Preadv2 => Some(false),
            Self::Write | Self::Pwrite64 | Self::Writev | Self::Pwritev | Self::Pwritev2 => Some(true),
            _ => None,
        }
    }
}

/// A row of the whole-stack view, to which the time of a call is assigned: the layer in which the thread ran, or what
/// it waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Row {
    Layer(Layer),
    /// The wait for a request of the call, from its submission to its issue.
    Queue,
    /// The wait for a request of the call, from its issue to its completion.
    Device,
    /// The wait for I/O that another thread has submitted.
    Others,
    Journal,
    Lock,
    /// The wait for anything else.
    Other,
    /// Runnable, waiting for a CPU.
    RunQueue,
}

impl Row {
    /// The waits, in the order of reports.
    pub const WAITS: [Self; 7] = [
        Self::Queue,
        Self::Device,
        Self::Others,
        Self::Journal,
        Self::Lock,
        Self::Other,
        Self::RunQueue,
    ];

    /// The name in reports and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Layer(layer) => layer.name(),
            Self::Queue => "queue",
            Self::Device => "device",
            Self::Others => "others' I/O",
            Self::Journal => "journal",
            Self::Lock => "lock",
            Self::Other => "other",
            Self::RunQueue => "run queue",
        }
    }

    /// Whether it is a wait, rather than a layer.
    #[must_use]
    pub fn is_wait(self) -> bool {
        Self::WAITS.contains(&self)
    }

    /// The layer that must be measured for this row to be known, if there is one.
    #[must_use]
    pub fn layer(self) -> Option<Layer> {
        match self {
            Self::Layer(layer) => Some(layer),
            Self::Queue | Self::Device => Some(Layer::Blk),
            Self::Others | Self::Journal | Self::Lock | Self::Other | Self::RunQueue => None,
        }
    }
}

/// The label of the row `syscall` if no layer below it is measured: all time that the thread ran in the kernel.
pub const NOT_SPLIT: &str = "kernel (not split)";

impl Row {
    /// The name in a text report. `is_split`: a layer below the system calls is measured.
    #[must_use]
    pub fn label(self, is_split: bool) -> &'static str {
        match self {
            Self::Layer(Layer::Syscall) if !is_split => NOT_SPLIT,
            row => row.name(),
        }
    }
}

impl FromStr for Row {
    type Err = UnknownName;

    fn from_str(word: &str) -> Result<Self, UnknownName> {
        let waits = Self::WAITS.into_iter();
        // The block layer has no row: calls have the waits for its requests.
        let layers = Layer::ALL.into_iter().filter(|layer| *layer != Layer::Blk);
        let mut all = waits.chain(layers.map(Self::Layer));
        all.find(|row| row.name() == word).ok_or_else(|| UnknownName {
            kind: "row",
            word: word.to_owned(),
        })
    }
}

by_name!(Row);

/// The names of several values, separated by commas: `vfs_read, vfs_readv`.
#[must_use]
pub fn joined<T: Copy>(all: &[T], name: fn(T) -> &'static str) -> String {
    let names: Vec<&str> = all.iter().map(|one| name(*one)).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;

    /// Asserts that parsing the name of each value gives that value.
    fn assert_read_back<T>(all: &[T], name: fn(T) -> &'static str)
    where
        T: FromStr + PartialEq + fmt::Debug + Copy + Serialize + for<'de> Deserialize<'de>,
    {
        for &one in all {
            assert_eq!(name(one).parse().ok(), Some(one), "{one:?}");
            let json = serde_json::to_string(&one).unwrap();
            assert_eq!(json, serde_json::to_string(name(one)).unwrap());
            assert_eq!(serde_json::from_str::<T>(&json).unwrap(), one);
        }
        assert!("Read ".parse::<T>().is_err() && "".parse::<T>().is_err());
    }

    #[test]
    fn names_are_read_back() {
        assert_read_back(&Layer::ALL, Layer::name);
        assert_read_back(&Family::ALL, Family::name);
        assert_read_back(&ReadClass::ALL, ReadClass::name);
        assert_read_back(&Origin::ALL, Origin::name);
        assert_read_back(&Hook::ALL, Hook::name);
        assert_read_back(&By::ALL, By::name);
        assert_read_back(&LossReason::ALL, LossReason::name);
        assert_read_back(&CauseKind::ALL, CauseKind::name);
        assert_read_back(&PathKind::ALL, PathKind::name);
        assert_read_back(&Op::ALL, Op::name);
        let layers = Layer::ALL.into_iter().filter(|layer| *layer != Layer::Blk);
        let rows: Vec<Row> = layers.map(Row::Layer).chain(Row::WAITS).collect();
        assert_read_back(&rows, Row::name);
        assert!("blk".parse::<Row>().is_err());
    }

    #[test]
    fn an_error_names_the_word_and_the_kind() {
        let error = "disc".parse::<By>().unwrap_err();
        assert_eq!(error.to_string(), "'disc' is no group");
    }
}
