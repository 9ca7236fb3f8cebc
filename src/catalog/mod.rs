//! What can be measured: layers, their ops, and the kernel functions where each op can be timed.
//!
//! All of it is data. Adding an op is a line in a layer's table; adding a file system is a table, in a file of its own, and
//! its line in `file_systems!` (`model::ids`). Which lines are used on a given machine is decided by `probe::plan`.

mod blk;
pub mod family;
mod file_system;
mod syscall;
mod vfs;

pub use crate::model::ids::{Family, Layer, Lives, Op, Origin, ReadClass, Row};
pub use blk::{Counter, REQUESTS, Request};
pub use file_system::FileSystem;
pub(crate) use syscall::number;
pub use syscall::{COMPAT, Compat, Files, SYSCALLS, Says, Syscall};

macro_rules! tables {
    ($($FileSystem:ident = $name:literal in $file:ident on $Lives:ident;)*) => {
        $(mod $file;)*

        impl Layer {
            /// The file system that this layer is.
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
    /// The ops of this layer, in the order of reports.
    #[must_use]
    pub fn ops(self) -> &'static [OpSpec] {
        match self {
            Self::Syscall => syscall::OPS,
            Self::Vfs => &vfs::OPS,
            Self::Blk => blk::OPS,
            file_system => file_system.file_system().map_or(&[], |table| table.ops),
        }
    }

    /// All that are file systems, in the order of reports.
    pub fn file_systems() -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(|layer| layer.lives().is_some())
    }
}

/// How an op is measured.
#[derive(Debug)]
pub struct OpSpec {
    pub op: Op,
    /// Moves bytes, so that a report has a number for them.
    pub moves_bytes: bool,
    /// Where the op can be timed. All that this kernel has are used together: which of them the kernel's own callers
    /// have inlined cannot be told, and the outermost call alone is counted. Empty at `blk`, whose ops share their events.
    pub points: &'static [Point],
    /// Used when the kernel has none of `points`.
    pub instead: Option<Fallback>,
    /// An op of the same layer that calls of this one may pass through on their way: inside them it is not counted.
    pub around: Option<Op>,
}

/// A poorer way to time an op.
#[derive(Debug)]
pub struct Fallback {
    pub points: &'static [Point],
    /// The calls of the op that do not come by there.
    pub misses: &'static str,
}

/// One kernel function where an op can be timed.
#[derive(Debug)]
pub struct Point {
    /// Without the architecture's prefix when it is a system call.
    pub function: &'static str,
    pub shape: Shape,
    pub returns: Returns,
    /// The module that it may be in.
    pub module: Option<&'static str>,
    /// It is never called inside another call of its op by the same thread. So an entry that finds one under way proves
    /// that its return was lost. (It may be called inside one of the op around, [`OpSpec::around`].)
    pub outermost: bool,
    /// Other file systems use the function too.
    pub shared: bool,
    /// Its callers in the kernel have it inlined on every kernel that was looked at, so that alone it sees next to none.
    pub inlined: bool,
    /// Only of use where the kernel does not have this function, which sees the same calls more closely.
    pub unless: Option<&'static str>,
}

impl Point {
    /// In the kernel itself, and for all of its op's calls.
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

    /// What every file system has.
    const fn of(function: &'static str, kind: &file_system::Kind) -> Self {
        Self::new(function, kind.shape, kind.returns)
    }
}

/// Where a function's arguments name the file; `enum shape` of `bpf/abi.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// `struct file *` first.
    File0,
    /// `struct file *` second.
    File1,
    /// `struct kiocb *` first.
    Kiocb0,
    /// `struct path *` first: an open, whose file has no inode yet.
    Path0,
    /// `struct inode *` first, of the directory: an open, whose file may have to be made.
    Folder0,
    /// A file descriptor first.
    Fd0,
    /// The registers of a system call, whose number says which op it is.
    Syscall,
    /// The same of a call that a 32-bit program makes, by its own table of numbers.
    Syscall32,
    /// The registers of a system call whose first argument is a file descriptor.
    SyscallFd0,
    /// The same of a call that a 32-bit program makes.
    Syscall32Fd0,
    /// `struct vm_fault *` first, whose area maps the file.
    Fault0,
    /// The function has a row of the whole stack's view, and no op: [`family::RowFunction`].
    Row,
    /// The same, `struct bio *` first, which may be held back and submitted by somebody else.
    RowBio0,
}

impl Shape {
    /// Whether the function is a system call's, and so has the architecture's prefix.
    #[must_use]
    pub fn is_syscall(self) -> bool {
        matches!(self, Self::Syscall | Self::SyscallFd0)
    }

    /// Whether only 32-bit programs come by.
    #[must_use]
    pub fn is_32_bit(self) -> bool {
        matches!(self, Self::Syscall32 | Self::Syscall32Fd0)
    }

    /// Whether the function has a row of the whole stack's view, and no op.
    #[must_use]
    pub fn is_row(self) -> bool {
        matches!(self, Self::Row | Self::RowBio0)
    }
}

/// How a shared function is narrowed to one file system; `enum guard` of `bpf/abi.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// By the file's operations.
    FileOperations,
    /// By the super block's magic number.
    Magic,
}

/// What a function returns when it succeeds; `enum return_kind` of `bpf/abi.h`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Returns {
    /// An `int` with nothing to count.
    StatusInt,
    /// A `long` with nothing to count.
    Status,
    /// A `ssize_t`: bytes moved.
    Bytes,
    /// A new file descriptor, whose file says whether the call is of interest.
    Fd,
    /// An `int` that says what has become of an io_uring request so far; `bpf/async.bpf.h`.
    Issued,
    /// The same of an AIO request.
    Submitted,
    /// A `vm_fault_t`, flags of which some are errors.
    Fault,
}

impl Returns {
    /// Whether the function is the door by which asynchronous requests come in.
    #[must_use]
    pub fn is_async_entry(self) -> bool {
        matches!(self, Self::Issued | Self::Submitted)
    }
}

/// Functions that asynchronous requests are completed by: the kiocb is their first argument, what it comes to the
/// second. The kernel calls the first three through `kiocb->ki_complete`, whether the request was queued or not.
pub static COMPLETIONS: [Completion; 4] = [
    completion("io_complete_rw", None),
    completion("io_complete_rw_iopoll", None),
    completion("aio_complete_rw", None),
    // Before 6.0 what io_uring has done at once ends here (97b388d70b53 "io_uring: handle completions in the core"); after it,
    // the doors say so by what they return.
    completion("kiocb_done", Some(FAILURE)),
];

/// Called with a request of io_uring that has failed without another attempt, as one that was cancelled (since 6.1).
pub const FAILURE: &str = "io_rw_fail";

/// One of [`COMPLETIONS`].
#[derive(Debug)]
pub struct Completion {
    pub function: &'static str,
    /// Only of use where the kernel does not have this function.
    pub unless: Option<&'static str>,
}

const fn completion(function: &'static str, unless: Option<&'static str>) -> Completion {
    Completion { function, unless }
}

/// Where the asynchronous requests come in that are this op of a file system: the doors of the op of the same name at vfs.
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
