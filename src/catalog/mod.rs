//! What can be measured: layers, their operations (ops), and the kernel functions where each op can be timed.
//!
//! All of it is data. An op is a line in the table of its layer; a file system is a table in a file of its own, and a
//! line in `file_systems!` (`model::ids`). `probe::plan` decides which of them a machine and a run use.

mod blk;
pub mod family;
mod file_system;
mod syscall;
mod vfs;

pub use crate::model::ids::{Family, Layer, Lives, Op, Origin, ReadClass, Row};
pub use blk::{Counter, REQUESTS, Request};
pub use file_system::FileSystem;
pub(crate) use syscall::number;
pub use syscall::{
    COMMANDS, COMPAT, Compat, Files, MoreArguments, RECORDED, RECORDED_OPS, SYSCALLS, Says, Syscall, families,
    syscall_of,
};

macro_rules! tables {
    ($($FileSystem:ident = $name:literal in $file:ident on $Lives:ident;)*) => {
        $(mod $file;)*

        impl Layer {
            /// The table of this layer if it is a file system.
            #[must_use]
            pub fn file_system(self) -> Option<&'static FileSystem> {
                match self {
                    Self::Syscall | Self::Vfs | Self::Blk => None,
                    $(Self::$FileSystem => Some(&$file::FILE_SYSTEM),)*
                }
            }
        }
    };
}

crate::model::ids::file_systems!(tables);

impl Layer {
    /// The ops of this layer in the order of reports.
    #[must_use]
    pub fn ops(self) -> &'static [OpSpec] {
        match self {
            Self::Syscall => syscall::OPS,
            Self::Vfs => &vfs::OPS,
            Self::Blk => blk::OPS,
            file_system => file_system.file_system().map_or(&[], |table| table.ops),
        }
    }

    /// The layers that are file systems, in the order of reports.
    pub fn file_systems() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|layer| layer.lives().is_some())
    }
}

/// How an op is measured.
#[derive(Debug)]
pub struct OpSpec {
    pub op: Op,
    /// Whether the op moves bytes, which a report then counts.
    pub moves_bytes: bool,
    /// Where the op can be timed. All of them that the kernel has are used together, because it is not known which of
    /// them are inlined into their callers; of nested calls only the outermost one is counted. Empty at `blk`, whose
    /// ops share their events.
    pub points: &'static [Point],
    /// Used when the kernel has none of `points`.
    pub instead: Option<Fallback>,
    /// An op of the same layer that calls of this op may call in turn: inside a call of this op it is not counted.
    pub around: Option<Op>,
}

/// A less complete way to time an op.
#[derive(Debug)]
pub struct Fallback {
    pub points: &'static [Point],
    /// The calls of the op that do not pass through these points.
    pub misses: &'static str,
}

/// One kernel function where an op can be timed.
#[derive(Debug)]
pub struct Point {
    /// The symbol, without the architecture's prefix (`__x64_sys_`) if it is a system call.
    pub function: &'static str,
    pub shape: Shape,
    pub returns: Returns,
    /// The module that contains it, unless it is built in.
    pub module: Option<&'static str>,
    /// Whether it is never called inside another call of its op by the same thread. An entry that finds such a call
    /// active then proves that its return was missed. (It may be called inside an op that shares its frame,
    /// [`OpSpec::around`].)
    pub outermost: bool,
    /// Whether other file systems use the function too.
    pub shared: bool,
    /// Whether its callers in the kernel have it inlined on every known kernel: without other points it sees almost no
    /// calls.
    pub inlined: bool,
    /// Used only if the kernel does not have this function, which sees the same calls more precisely.
    pub unless: Option<&'static str>,
}

impl Point {
    /// A built-in function that is never nested in its op and belongs to one file system or layer.
    const fn new(function: &'static str, shape: Shape, returns: Returns) -> Self {
        Self {
            function,
            shape,
            returns,
            module: None,
            outermost: true,
            shared: false,
            inlined: false,
            unless: None,
        }
    }

    /// A built-in function with the arguments and the result that this op has at every file system.
    const fn of(function: &'static str, kind: &file_system::Kind) -> Self {
        Self::new(function, kind.shape, kind.returns)
    }
}

/// Which argument of a function names the file; `enum shape` of `bpf/abi.h`. The digit is the index of the argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// The first argument is a `struct file *`.
    File0,
    /// The second argument is a `struct file *`.
    File1,
    /// The first argument is a `struct kiocb *`.
    Kiocb0,
    /// The first argument is a `struct path *`: an open, whose `struct file` has no inode yet.
    Path0,
    /// The first argument is the directory's `struct inode *`: an open that may create the file.
    Dir0,
    /// The first argument is a file descriptor.
    Fd0,
    /// The only argument is the `struct pt_regs *` of a system call, whose number determines the op.
    Syscall,
    /// As `Syscall`, for a call of a 32-bit program, which has a number table of its own.
    Syscall32,
    /// The only argument is the `struct pt_regs *` of a system call whose first argument is a file descriptor.
    SyscallFd0,
    /// As `SyscallFd0`, for a call of a 32-bit program.
    Syscall32Fd0,
    /// The first argument is a `struct vm_fault *`, whose VMA maps the file.
    Fault0,
    /// The function has a row of the whole-stack view and no op: [`family::RowFunction`].
    Row,
    /// As `Row`; the first argument is a `struct bio *`, which may be throttled and then submitted by another thread.
    RowBio0,
}

impl Shape {
    /// Whether the function is that of a system call, whose symbol has the architecture's prefix.
    #[must_use]
    pub fn is_syscall(self) -> bool {
        matches!(self, Self::Syscall | Self::SyscallFd0)
    }

    /// Whether only 32-bit programs call the function.
    #[must_use]
    pub fn is_32_bit(self) -> bool {
        matches!(self, Self::Syscall32 | Self::Syscall32Fd0)
    }

    /// Whether the function has a row of the whole-stack view and no op.
    #[must_use]
    pub fn is_row(self) -> bool {
        matches!(self, Self::Row | Self::RowBio0)
    }
}

/// How calls of a shared function are assigned to a file system; `enum guard` of `bpf/abi.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// By the file's `f_op`.
    FileOperations,
    /// By the magic number of the superblock.
    Magic,
}

/// What a function returns if it succeeds; `enum return_kind` of `bpf/abi.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Returns {
    /// An `int` that counts nothing.
    StatusInt,
    /// A `long` that counts nothing.
    Status,
    /// A `ssize_t`: the number of bytes moved.
    Bytes,
    /// A new file descriptor, whose file determines whether the call is selected.
    Fd,
    /// An `int`: the state of an io_uring request after this attempt; `bpf/async.bpf.h`.
    Issued,
    /// An `int`: the state of a Linux AIO request after its submission.
    Submitted,
    /// A `vm_fault_t`: flags, some of which mean errors.
    Fault,
}

impl Returns {
    /// Whether the function is the entry point of asynchronous requests.
    #[must_use]
    pub fn is_async_entry(self) -> bool {
        matches!(self, Self::Issued | Self::Submitted)
    }
}

/// Functions that complete asynchronous requests. Their first argument is the kiocb, the second one the result. The
/// kernel calls the first three through `kiocb->ki_complete`, whether or not the request was queued.
pub static COMPLETIONS: [Completion; 4] = [
    completion("io_complete_rw", None),
    completion("io_complete_rw_iopoll", None),
    completion("aio_complete_rw", None),
    // Before 6.0 io_uring's requests that complete at once end here (97b388d70b53 "io_uring: handle completions in the
    // core"); since then, the entry points return that they are complete.
    completion("kiocb_done", Some(FAILURE)),
];

/// Called for an io_uring request that has failed without another attempt, for example because it was cancelled (since
/// 6.1).
pub const FAILURE: &str = "io_rw_fail";

/// One of [`COMPLETIONS`].
#[derive(Debug)]
pub struct Completion {
    pub function: &'static str,
    /// Used only if the kernel does not have this function.
    pub unless: Option<&'static str>,
}

const fn completion(function: &'static str, unless: Option<&'static str>) -> Completion {
    Completion { function, unless }
}

/// The entry points of asynchronous requests that are this op of a file system: those of the op of the same name at
/// vfs.
pub fn async_entries(op: Op) -> impl Iterator<Item = &'static Point> {
    let same = vfs::OPS.iter().filter(move |of_vfs| of_vfs.op == op);
    same.flat_map(|of_vfs| of_vfs.points)
        .filter(|point| point.returns.is_async_entry())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_every_op_has_a_point() {
        for layer in Layer::ALL {
            let mut seen = HashSet::new();
            for op in layer.ops() {
                assert!(seen.insert(op.op), "{} twice at {layer}", op.op);
                assert_eq!(op.points.is_empty(), layer == Layer::Blk, "{} at {layer}", op.op);
            }
        }
    }

    #[test]
    fn a_shared_point_belongs_to_a_file_system() {
        for layer in Layer::ALL {
            let points = layer
                .ops()
                .iter()
                .flat_map(|op| op.points.iter().chain(op.instead.iter().flat_map(|f| f.points)));
            for point in points {
                assert!(!point.shared || layer.lives().is_some(), "{}", point.function);
            }
        }
    }
}
