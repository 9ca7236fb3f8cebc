//! Records: one for each call, request, sleep and page fault, written at its end, and definitions of the files and
//! threads that they name.
//!
//! Times are nanoseconds of the programs' clock (`CLOCK_MONOTONIC`). Thread and process numbers are those of the initial
//! PID namespace. A call is identified by its thread and its begin. A request belongs to the call of its submitter in
//! which it was submitted.

use serde::{Deserialize, Serialize};

use super::abi::{RECORD_ARGUMENTS, ROWS};
use super::ids::{Layer, Op, Origin, ReadClass};
use crate::model::report::slow::{CallPath, Inode};

/// Records that arrived together, each kind in the order of its ends on each CPU.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Records {
    pub calls: Vec<Call>,
    pub requests: Vec<Request>,
    pub sleeps: Vec<Sleep>,
    pub asynchronous: Vec<AsyncCall>,
    pub faults: Vec<Fault>,
    pub files: Vec<OpenFile>,
    pub folders: Vec<Folder>,
    pub threads: Vec<Thread>,
    pub lost: Vec<Lost>,
    pub marks: Vec<Mark>,
}

impl Records {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of records of all kinds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.calls.len()
            + self.requests.len()
            + self.sleeps.len()
            + self.asynchronous.len()
            + self.faults.len()
            + self.files.len()
            + self.folders.len()
            + self.threads.len()
            + self.lost.len()
            + self.marks.len()
    }

    /// Whether they are of something that has ended, or of something that was lost. Definitions and calls under way are not.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        let ended = self.calls.iter().any(|call| call.end_ns.is_some());
        ended
            || !(self.requests.is_empty()
                && self.asynchronous.is_empty()
                && self.faults.is_empty()
                && self.lost.is_empty())
    }

    /// Appends the records of `other`, which arrived later.
    pub fn append(&mut self, mut other: Self) {
        self.calls.append(&mut other.calls);
        self.requests.append(&mut other.requests);
        self.sleeps.append(&mut other.sleeps);
        self.asynchronous.append(&mut other.asynchronous);
        self.faults.append(&mut other.faults);
        self.files.append(&mut other.files);
        self.folders.append(&mut other.folders);
        self.threads.append(&mut other.threads);
        self.lost.append(&mut other.lost);
        self.marks.append(&mut other.marks);
    }
}

/// Number of an open file (`struct file`), given when it is first seen; not a descriptor. 0 is no file.
pub type FileNumber = u32;

/// A system call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    pub tid: u32,
    pub pid: u32,
    pub begin_ns: u64,
    /// `None`: the call was under way at the end of the run.
    pub end_ns: Option<u64>,
    /// The CPUs on which it began and ended.
    pub cpus: [u16; 2],
    /// An op of the layer `syscall`.
    pub op: Op,
    /// By the 32-bit table of system calls.
    pub is_32bit: bool,
    /// What it returned: a negative errno, bytes, a descriptor, or 0.
    pub value: i64,
    /// The offset given, or else the position of the open file before the call; of an append, where the data went.
    pub offset: Option<u64>,
    /// The requested number of bytes.
    pub size: Option<u64>,
    /// The open file, and the second one of calls that have two (splice, sendfile64, copy_file_range).
    pub files: [FileNumber; 2],
    /// The descriptor of the first file; of an open, the new one.
    pub fd: Option<i32>,
    /// The argument that is particular to the op: flags of an open, mode of fallocate, whence of lseek, advice, ...; of
    /// calls that change owners, [`owners`].
    pub extra: u64,
    /// All arguments as given, of calls that only runs that record measure (`catalog::RECORDED`).
    pub arguments: Option<Box<[i64; RECORD_ARGUMENTS as usize]>>,
    /// Of a read in the whole-stack view: where its data came from.
    pub class: Option<ReadClass>,
    /// The open file bypasses the page cache (`O_DIRECT`).
    pub is_direct: bool,
    /// Nanoseconds by row of `enum row`, in the whole-stack view, where they add up to the duration; else all 0.
    pub rows: [u64; ROWS as usize],
    /// The paths that it was given.
    pub paths: Option<Box<Paths>>,
    /// Which of its thread's calls with paths it is, while the paths are on their way; then 0.
    pub number: u16,
}

impl Call {
    /// Its duration; `None` while it is under way.
    #[must_use]
    pub fn duration_ns(&self) -> Option<u64> {
        Some(self.end_ns?.saturating_sub(self.begin_ns))
    }

    /// Until when its requests carry no page of its file; `None`: they do.
    #[must_use]
    pub fn direct_until(&self) -> Option<u64> {
        self.is_direct.then(|| self.end_ns.unwrap_or(u64::MAX))
    }
}

/// Largest errno that a system call returns.
const MAX_ERRNO: i64 = 4095;

/// The errno of a call that failed, by what it returned.
#[must_use]
pub fn errno_of(value: i64) -> Option<i32> {
    (-MAX_ERRNO..0).contains(&value).then(|| -value as i32)
}

/// The paths that a call was given, as the program wrote them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Paths {
    pub first: Option<GivenPath>,
    pub second: Option<GivenPath>,
}

/// A path as given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenPath {
    pub text: String,
    /// The folder that a relative path starts from: an open file; 0: the working directory of the process.
    pub base: FileNumber,
}

impl GivenPath {
    #[must_use]
    pub fn new(text: impl Into<String>, base: FileNumber) -> Self {
        let text = text.into();
        Self { text, base }
    }
}

/// A request of a disk, or a bio of a disk without requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The whole disk, as major and minor number.
    pub disk: [u32; 2],
    /// The partition; the same as `disk` if there is none.
    pub partition: [u32; 2],
    /// First sector of 512 bytes, counted from the start of the disk; 0 of a request without data, such as a flush.
    pub sector: u64,
    pub bytes: u64,
    /// An op of the layer `blk`.
    pub op: Op,
    /// `cmd_flags` of the kernel, whose bits differ between kernels; see the fields below.
    pub flags: u32,
    pub is_sync: bool,
    pub is_meta: bool,
    pub is_readahead: bool,
    pub is_fua: bool,
    pub is_preflush: bool,
    /// A positive errno; 0: it succeeded.
    pub errno: u32,
    /// When its first bio was submitted; `None`: unknown.
    pub submitted_ns: Option<u64>,
    /// When it was made; `None`: unknown.
    pub started_ns: Option<u64>,
    /// `None`: it was never issued itself.
    pub issued_ns: Option<u64>,
    pub ended_ns: u64,
    /// The submitting thread and its process; 0: unknown.
    pub tid: u32,
    pub pid: u32,
    pub origin: Origin,
    /// The file of its first page, or of the call that submitted it.
    pub inode: Option<Inode>,
    /// The CPU on which it ended.
    pub cpu: u16,
}

impl Request {
    /// When it was submitted, or else the first moment that is known of it; not after its end.
    #[must_use]
    pub fn begin_ns(&self) -> u64 {
        let first = self.submitted_ns.or(self.started_ns).or(self.issued_ns);
        first.unwrap_or(self.ended_ns).min(self.ended_ns)
    }
}

/// A time off the CPU inside a call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sleep {
    pub tid: u32,
    pub out_ns: u64,
    /// `None`: it was ready to run all the time.
    pub woken_ns: Option<u64>,
    pub in_ns: u64,
    /// Index in [`Call::rows`] of what it waited for.
    pub row: u8,
    /// The thread that woke it, and its process; 0: unknown, or an interrupt.
    pub waker_tid: u32,
    pub waker_pid: u32,
    /// The CPUs that it left and got.
    pub cpus: [u16; 2],
}

/// An asynchronous request of io_uring or AIO, at its completion.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AsyncCall {
    pub pid: u32,
    /// The thread that submitted it.
    pub tid: u32,
    pub op: Op,
    /// When its first attempt began, and its last one ended.
    pub begin_ns: u64,
    pub attempt_end_ns: u64,
    pub end_ns: u64,
    /// Address of the kernel's request, which distinguishes requests that are under way at the same time.
    pub key: u64,
    pub file: FileNumber,
    pub offset: Option<u64>,
    pub size: Option<u64>,
    pub value: i64,
    /// Distinguishes rings, and is the number of an AIO context.
    pub context: u64,
    /// Flags of its submission (`IOSQE_...`): linked, drained, by a worker; of AIO 0.
    pub flags: u32,
    /// How often it was tried.
    pub attempts: u32,
    pub is_aio: bool,
    pub is_direct: bool,
}

impl AsyncCall {
    /// As of a call.
    #[must_use]
    pub fn direct_until(&self) -> Option<u64> {
        self.is_direct.then_some(self.attempt_end_ns)
    }
}

/// A page fault on a mapped file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    pub tid: u32,
    pub pid: u32,
    pub begin_ns: u64,
    pub end_ns: u64,
    pub layer: Layer,
    pub file: FileNumber,
    pub offset: u64,
    pub is_write: bool,
    /// A positive errno; 0: it succeeded.
    pub errno: u32,
}

/// Defines an open file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenFile {
    /// Not 0.
    pub number: FileNumber,
    /// When this definition was written. A later definition of the same number replaces it.
    pub at_ns: u64,
    pub inode: Option<Inode>,
    pub generation: u32,
    /// `i_mode`: type and permissions.
    pub mode: u32,
    pub links: u32,
    /// Size in bytes, and blocks of 512 bytes.
    pub size: u64,
    pub blocks: u64,
    /// `f_flags`, with the numbers of the recorded architecture.
    pub flags: u32,
    /// Position of the open file.
    pub position: u64,
    pub mount: u32,
    /// Type of its file system, such as `ext4`.
    pub file_system: String,
    pub path: Option<CallPath>,
    /// The process and descriptor by which it was found; `None`: by a call.
    pub found_at: Option<(u32, i32)>,
}

/// Defines the working or root directory of a process.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folder {
    pub pid: u32,
    pub at_ns: u64,
    pub is_root: bool,
    pub path: String,
}

/// Defines a thread.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    pub tid: u32,
    pub pid: u32,
    /// When this definition was written. A later definition replaces it.
    pub at_ns: u64,
    /// The parent process; 0: unknown.
    pub parent: u32,
    /// Nanoseconds since boot at which the process started; 0: unknown.
    pub started_ns: u64,
    pub comm: String,
    pub uid: u32,
    pub cgroup: u64,
    /// The executable's path; empty: unknown.
    pub exe: String,
    /// The first bytes of the command line, arguments separated by spaces; empty: unknown.
    pub command: String,
    /// It has ended.
    pub has_ended: bool,
}

impl Thread {
    /// How long a thread may be at work after its end was recorded, in nanoseconds: it closes its files, and submits what is
    /// to be written of them. Its number is not used again that soon, since numbers are given in turn.
    pub const ENDING_NS: u64 = 1_000_000_000;

    /// The last moment that this definition can describe: another thread may have the number of one that has ended.
    #[must_use]
    pub fn until_ns(&self) -> u64 {
        match self.has_ended {
            true => self.at_ns.saturating_add(Self::ENDING_NS),
            false => u64::MAX,
        }
    }
}

/// Records of one kind that one CPU could not store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    pub cpu: u16,
    pub kind: Kind,
    /// More than 0.
    pub records: u64,
    /// The first and the last moment at which one was lost.
    pub from_ns: u64,
    pub to_ns: u64,
}

/// A moment that is named: a trigger, or what a user marked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    pub at_ns: u64,
    pub text: String,
}

super::ids::names! {
    /// A kind of record.
    #[derive(Default)]
    "kind of record" Kind {
        #[default]
        Call = "calls",
        Request = "requests",
        Sleep = "sleeps",
        Async = "asynchronous",
        Fault = "faults",
        File = "files",
        Folder = "folders",
        Thread = "threads",
        Path = "paths",
    }
}

impl Kind {
    /// Calls, requests and what is done inside of them, and not what defines or names them.
    #[must_use]
    pub const fn is_operation(self) -> bool {
        match self {
            Self::Call | Self::Request | Self::Sleep | Self::Async | Self::Fault => true,
            Self::File | Self::Folder | Self::Thread | Self::Path => false,
        }
    }
}

/// User and group in one number, as [`Call::extra`] has them; `u32::MAX`: as before.
#[must_use]
pub fn owners(user: u32, group: u32) -> u64 {
    u64::from(group) << 32 | u64::from(user)
}

/// User and group of [`owners`].
#[must_use]
pub fn users(owners: u64) -> (u32, u32) {
    (owners as u32, (owners >> 32) as u32)
}
