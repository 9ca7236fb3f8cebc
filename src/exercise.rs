//! The operations that a process performs for `--check`, so that every probe can be hit: each system call of the table
//! once, and each way into a file, on files in a new directory that is removed afterwards.

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::ptr;

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, Pid};

use crate::catalog::{Op, number};
use crate::signals::Kept;

/// Bytes of one read or write: a multiple of any disk's block, as direct I/O requires.
const BLOCK: usize = 4096;
/// Size of the file.
const SIZE: i64 = 16 * BLOCK as i64;
/// Calls that would write back all files of the machine or of the file system.
pub const TOO_MUCH: [Op; 2] = [Op::Sync, Op::Syncfs];

/// What a step exercises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tried {
    Call(Op),
    /// A write that bypasses the page cache.
    DirectWrite,
    DirectRead,
    /// A page fault on a mapped file.
    MappedPage,
}

/// A step and its result.
pub type Done = (Tried, io::Result<()>);

/// A process that waits to start.
pub struct Exercise {
    pub pid: u32,
    gate: File,
    results: File,
}

impl Exercise {
    /// Forks a process that will work in a new directory below `base`. Call it while this process has a single thread.
    ///
    /// # Errors
    /// If no process or directory can be created.
    pub fn fork(base: &Path) -> io::Result<Self> {
        let (gate_reader, gate) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        let (results, results_writer) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        // The child removes the directory, so a signal to the whole group must not kill it.
        let kept = Kept::back()?;
        let forked = Workspace::new(base).and_then(|workspace| {
            // SAFETY: this process has a single thread, so the child may do everything that the parent may.
            Ok((workspace, unsafe { nix::unistd::fork() }?))
        });
        if !matches!(forked, Ok((_, ForkResult::Child))) {
            kept.let_come()?;
        }
        let (workspace, forked) = forked?;
        match forked {
            ForkResult::Parent { child } => {
                // The child removes it.
                std::mem::forget(workspace);
                Ok(Self {
                    pid: child.as_raw().unsigned_abs(),
                    gate: File::from(gate),
                    results: File::from(results),
                })
            }
            ForkResult::Child => {
                drop((gate, results));
                let mut byte = [0];
                let go = nix::unistd::read(&gate_reader, &mut byte).unwrap_or(0);
                if go > 0 {
                    let mut out = File::from(results_writer);
                    for (number, (_, step)) in STEPS.iter().enumerate() {
                        let errno = step(&workspace)
                            .err()
                            .map_or(0, |error| error.raw_os_error().unwrap_or(libc::EIO));
                        // If the reader is gone, there is nothing to report.
                        let _ = writeln!(out, "{number} {errno}");
                    }
                }
                drop(workspace);
                // SAFETY: ends the child; the parent still owns what both of them have.
                unsafe { libc::_exit(0) }
            }
        }
    }

    /// Starts the steps, and waits for the end of the process.
    ///
    /// # Errors
    /// If it ends early.
    pub fn run(mut self) -> io::Result<Vec<Done>> {
        self.gate.write_all(&[1])?;
        let mut done = Vec::new();
        for line in BufReader::new(&self.results).lines() {
            let line = line?;
            done.push(read_back(&line).ok_or(io::ErrorKind::InvalidData)?);
        }
        Ok(done)
    }
}

/// A line of the process: the number of a step, and its errno or 0.
fn read_back(line: &str) -> Option<Done> {
    let (number, errno) = line.split_once(' ')?;
    let (tried, _) = STEPS.get(number.parse::<usize>().ok()?)?;
    let outcome = match errno.parse().ok()? {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    };
    Some((*tried, outcome))
}

impl Drop for Exercise {
    fn drop(&mut self) {
        // The process has ended, or waits for its start: closing the gate makes it remove its directory and exit.
        if let Ok(nothing) = File::open("/dev/null") {
            self.gate = nothing;
        }
        let child = Pid::from_raw(self.pid as i32);
        if waitpid(child, None).is_err() {
            let _ = kill(child, Signal::SIGKILL);
        }
    }
}

/// The files that the steps use.
struct Workspace {
    directory: PathBuf,
    /// The file, open for reading and writing.
    file: File,
    /// The same, opened for direct I/O. `None`: the file system does not support it.
    direct: Option<File>,
    /// A second file.
    other: File,
    /// `BLOCK` bytes, aligned to their size.
    buffer: *mut u8,
}

impl Workspace {
    fn new(base: &Path) -> io::Result<Self> {
        // With mode 0700 whatever the umask is, and an unpredictable name: other users cannot interfere.
        let directory = nix::unistd::mkdtemp(&base.join("IOStackBreakdown-check.XXXXXX"))?;
        Self::fill(&directory).inspect_err(|_| {
            // An error is already being reported.
            let _ = fs::remove_dir_all(&directory);
        })
    }

    fn fill(directory: &Path) -> io::Result<Self> {
        let path = directory.join("file");
        let options = |flags| {
            let mut options = File::options();
            options.read(true).write(true).custom_flags(libc::O_NOFOLLOW | flags);
            options
        };
        let file = options(0).create_new(true).open(&path)?;
        (&file).write_all(&[b'a'; SIZE as usize])?;
        file.sync_all()?;
        // SAFETY: a new mapping.
        let buffer = unsafe {
            let (protection, flags) = (
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            );
            libc::mmap(ptr::null_mut(), BLOCK, protection, flags, -1, 0)
        };
        if buffer == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        std::os::unix::fs::symlink("file", directory.join("link"))?;
        Ok(Self {
            directory: directory.to_owned(),
            direct: options(libc::O_DIRECT).open(&path).ok(),
            other: options(0).create_new(true).open(directory.join("other"))?,
            file,
            buffer: buffer.cast(),
        })
    }

    fn path(&self, name: &str) -> CString {
        // The directory was created by this name, so it contains no NUL.
        CString::new(self.directory.join(name).as_os_str().as_bytes()).unwrap_or_default()
    }

    fn fd(&self) -> i64 {
        self.file.as_raw_fd().into()
    }

    fn other(&self) -> i64 {
        self.other.as_raw_fd().into()
    }

    fn buffer(&self) -> i64 {
        self.buffer as i64
    }

    fn vector(&self) -> libc::iovec {
        libc::iovec {
            iov_base: self.buffer.cast(),
            iov_len: BLOCK,
        }
    }

    fn direct(&self) -> io::Result<i64> {
        let file = self.direct.as_ref().ok_or(io::ErrorKind::Unsupported);
        Ok(file
            .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?
            .as_raw_fd()
            .into())
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        // What cannot be removed stays, since the error cannot be reported.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// A raw system call.
fn call(number: libc::c_long, arguments: &[i64]) -> io::Result<i64> {
    let argument = |index| arguments.get(index).copied().unwrap_or(0);
    // SAFETY: what the arguments point to outlives the call, and has the size that is passed.
    let result = unsafe {
        libc::syscall(
            number,
            argument(0),
            argument(1),
            argument(2),
            argument(3),
            argument(4),
            argument(5),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}

/// Closes the descriptor that a call returned.
fn closed(descriptor: io::Result<i64>) -> io::Result<i64> {
    // SAFETY: the system call returned this new descriptor.
    descriptor.inspect(|fd| drop(unsafe { OwnedFd::from_raw_fd(*fd as i32) }))
}

const LENGTH: i64 = BLOCK as i64;
const HERE: i64 = libc::AT_FDCWD as i64;
const FOR_READING: i64 = libc::O_RDONLY as i64;
const REGULAR: i64 = libc::S_IFREG as i64 | 0o600;
/// An owner or a group that is not to be changed.
const AS_IT_IS: i64 = -1;
/// No times are given: the current time is used.
const NOW: i64 = 0;
const FOR_WRITING: i64 = (libc::O_WRONLY | libc::O_CREAT) as i64;

fn vectored(workspace: &Workspace, number: libc::c_long) -> io::Result<i64> {
    let vector = workspace.vector();
    call(number, &[workspace.fd(), &raw const vector as i64, 1, 0, 0, 0])
}

/// A call with a path as its first argument. Newer architectures have most of these only with a directory before it.
fn on_path(workspace: &Workspace, number: libc::c_long, name: &str, rest: &[i64]) -> io::Result<i64> {
    call(number, &[&[workspace.path(name).as_ptr() as i64], rest].concat())
}

/// A call with a path as its second argument.
fn at_path(workspace: &Workspace, number: libc::c_long, name: &str, rest: &[i64]) -> io::Result<i64> {
    let path = workspace.path(name);
    call(number, &[&[HERE, path.as_ptr() as i64], rest].concat())
}

/// The arguments of a call on extended attributes, after the file.
enum Takes {
    /// The attribute's name, a value, its size and flags, which calls that do not set it ignore.
    Value,
    /// The name, and a structure with the rest (`struct xattr_args`, include/uapi/linux/xattr.h) and its size.
    Structure,
    /// The name only.
    Name,
    /// A buffer for names, and its size.
    List,
}

/// How a call on extended attributes names the file.
enum Subject {
    Path,
    Fd,
    /// By a directory, a path and flags.
    At,
}

/// A call on an extended attribute, which exists if the file system supports them.
fn attribute(workspace: &Workspace, number: libc::c_long, subject: Subject, takes: Takes) -> io::Result<i64> {
    const NAME: &CStr = c"user.check";
    let name = NAME.as_ptr() as i64;
    let value = [name, workspace.buffer(), 1, 0];
    // If this fails, the tested call reports the same error.
    let _ = call(libc::SYS_fsetxattr, &[&[workspace.fd()][..], &value].concat());
    let structure = [workspace.buffer(), 1];
    let rest = match takes {
        Takes::Value => value.to_vec(),
        Takes::Structure => vec![name, &raw const structure as i64, size_of_val(&structure) as i64],
        Takes::Name => vec![name],
        Takes::List => vec![workspace.buffer(), LENGTH],
    };
    let path = workspace.path("file");
    let subject = match subject {
        Subject::Path => vec![path.as_ptr() as i64],
        Subject::Fd => vec![workspace.fd()],
        Subject::At => vec![HERE, path.as_ptr() as i64, 0],
    };
    call(number, &[subject, rest].concat())
}

fn at_start(workspace: &Workspace) -> io::Result<i64> {
    call(libc::SYS_lseek, &[workspace.fd(), 0, libc::SEEK_SET.into()])
}

/// A call that fills in a buffer.
fn filling(number: libc::c_long, before: &[i64], after: &[i64]) -> io::Result<i64> {
    let mut room = [0u64; 64];
    let room = &raw mut room as i64;
    call(number, &[before, &[room], after].concat())
}

/// The result of a step: that of its last call.
type Step = fn(&Workspace) -> io::Result<i64>;

macro_rules! tried {
    (Op $op:ident) => {
        Tried::Call(Op::$op)
    };
    (Tried $tried:ident) => {
        Tried::$tried
    };
}

macro_rules! steps {
    ($($(#[$on:meta])* $kind:ident::$tried:ident => $step:expr;)*) => {
        /// The steps. Each restores the files that it found, except for new names.
        const STEPS: &[(Tried, Step)] = &[$($(#[$on])* (tried!($kind $tried), $step)),*];
    };
}

steps! {
    Op::Read => |p| at_start(p).and_then(|_| call(libc::SYS_read, &[p.fd(), p.buffer(), LENGTH]));
    Op::Pread64 => |p| call(libc::SYS_pread64, &[p.fd(), p.buffer(), LENGTH, 0]);
    Op::Readv => |p| at_start(p).and_then(|_| vectored(p, libc::SYS_readv));
    Op::Preadv => |p| vectored(p, libc::SYS_preadv);
    Op::Preadv2 => |p| vectored(p, libc::SYS_preadv2);
    Op::Write => |p| at_start(p).and_then(|_| call(libc::SYS_write, &[p.fd(), p.buffer(), LENGTH]));
    Op::Pwrite64 => |p| call(libc::SYS_pwrite64, &[p.fd(), p.buffer(), LENGTH, 0]);
    Op::Writev => |p| at_start(p).and_then(|_| vectored(p, libc::SYS_writev));
    Op::Pwritev => |p| vectored(p, libc::SYS_pwritev);
    Op::Pwritev2 => |p| vectored(p, libc::SYS_pwritev2);
    #[cfg(target_arch = "x86_64")]
    Op::Open => |p| closed(on_path(p, libc::SYS_open, "file", &[FOR_READING]));
    Op::Openat => |p| closed(at_path(p, libc::SYS_openat, "file", &[FOR_READING]));
    Op::OpenByHandleAt => |p| {
        let mut handle = Handle::default();
        named(p, &mut handle)?;
        closed(call(libc::SYS_open_by_handle_at, &[p.fd(), &raw mut handle as i64, FOR_READING]))
    };
    Op::Openat2 => |p| {
        let how = [0u64; 3];
        closed(at_path(p, libc::SYS_openat2, "file", &[&raw const how as i64, size_of_val(&how) as i64]))
    };
    #[cfg(target_arch = "x86_64")]
    Op::Creat => |p| closed(on_path(p, libc::SYS_creat, "new", &[0o600]));
    Op::Close => |p| {
        let fd = at_path(p, libc::SYS_openat, "file", &[FOR_READING])?;
        call(libc::SYS_close, &[fd])
    };
    Op::Fsync => |p| call(libc::SYS_fsync, &[p.fd()]);
    Op::Fdatasync => |p| {
        call(libc::SYS_pwrite64, &[p.fd(), p.buffer(), LENGTH, 0])?;
        call(libc::SYS_fdatasync, &[p.fd()])
    };
    Op::SyncFileRange => |p| call(libc::SYS_sync_file_range, &[p.fd(), 0, LENGTH, 2]);
    Op::Msync => |p| mapped(p, |page| call(libc::SYS_msync, &[page, LENGTH, libc::MS_SYNC.into()]));
    Op::Sendfile64 => |p| {
        let mut offset = 0i64;
        call(libc::SYS_sendfile, &[p.other(), p.fd(), &raw mut offset as i64, LENGTH])
    };
    Op::Splice => |p| {
        let (reader, writer) = nix::unistd::pipe()?;
        let (mut from, mut to) = (0i64, 0i64);
        let (reader, writer) = (reader.as_raw_fd().into(), writer.as_raw_fd().into());
        call(libc::SYS_splice, &[p.fd(), &raw mut from as i64, writer, 0, LENGTH, 0])?;
        call(libc::SYS_splice, &[reader, 0, p.other(), &raw mut to as i64, LENGTH, 0])
    };
    Op::CopyFileRange => |p| {
        let (mut from, mut to) = (0i64, 0i64);
        let (from, to) = (&raw mut from as i64, &raw mut to as i64);
        call(libc::SYS_copy_file_range, &[p.fd(), from, p.other(), to, LENGTH, 0])
    };
    Op::Fallocate => |p| call(libc::SYS_fallocate, &[p.fd(), 0, SIZE, LENGTH]);
    Op::Ftruncate => |p| call(libc::SYS_ftruncate, &[p.fd(), SIZE]);
    Op::Truncate => |p| on_path(p, libc::SYS_truncate, "file", &[SIZE]);
    #[cfg(target_arch = "x86_64")]
    Op::Stat => |p| filling(libc::SYS_stat, &[p.path("file").as_ptr() as i64], &[]);
    Op::Fstat => |p| filling(libc::SYS_fstat, &[p.fd()], &[]);
    #[cfg(target_arch = "x86_64")]
    Op::Lstat => |p| filling(libc::SYS_lstat, &[p.path("link").as_ptr() as i64], &[]);
    Op::Newfstatat => |p| filling(libc::SYS_newfstatat, &[HERE, p.path("file").as_ptr() as i64], &[0]);
    Op::Statx => |p| {
        let all = i64::from(libc::STATX_BASIC_STATS);
        filling(libc::SYS_statx, &[HERE, p.path("file").as_ptr() as i64, 0, all], &[])
    };
    #[cfg(target_arch = "x86_64")]
    Op::Access => |p| on_path(p, libc::SYS_access, "file", &[0]);
    Op::Faccessat => |p| at_path(p, libc::SYS_faccessat, "file", &[0]);
    Op::Faccessat2 => |p| at_path(p, libc::SYS_faccessat2, "file", &[0, 0]);
    Op::NameToHandleAt => |p| named(p, &mut Handle::default());
    Op::Statfs => |p| filling(libc::SYS_statfs, &[p.path("file").as_ptr() as i64], &[]);
    Op::Fstatfs => |p| filling(libc::SYS_fstatfs, &[p.fd()], &[]);
    #[cfg(target_arch = "x86_64")]
    Op::Getdents => |p| listed(p, libc::SYS_getdents);
    Op::Getdents64 => |p| listed(p, libc::SYS_getdents64);
    #[cfg(target_arch = "x86_64")]
    Op::Rename => |p| {
        create(p, "one")?;
        on_path(p, libc::SYS_rename, "one", &[p.path("two").as_ptr() as i64])
    };
    Op::Renameat => |p| renamed(p, libc::SYS_renameat);
    Op::Renameat2 => |p| renamed(p, libc::SYS_renameat2);
    #[cfg(target_arch = "x86_64")]
    Op::Unlink => |p| create(p, "one").and_then(|_| on_path(p, libc::SYS_unlink, "one", &[]));
    Op::Unlinkat => |p| create(p, "one").and_then(|_| at_path(p, libc::SYS_unlinkat, "one", &[0]));
    #[cfg(target_arch = "x86_64")]
    Op::Rmdir => |p| {
        at_path(p, libc::SYS_mkdirat, "empty", &[0o700])?;
        on_path(p, libc::SYS_rmdir, "empty", &[])
    };
    #[cfg(target_arch = "x86_64")]
    Op::Link => |p| on_path(p, libc::SYS_link, "file", &[p.path("name").as_ptr() as i64]);
    Op::Linkat => |p| {
        let to = p.path("another name");
        at_path(p, libc::SYS_linkat, "file", &[HERE, to.as_ptr() as i64, 0])
    };
    #[cfg(target_arch = "x86_64")]
    Op::Symlink => |p| call(libc::SYS_symlink, &[c"file".as_ptr() as i64, p.path("pointer").as_ptr() as i64]);
    Op::Symlinkat => |p| {
        let pointer = p.path("another pointer");
        call(libc::SYS_symlinkat, &[c"file".as_ptr() as i64, HERE, pointer.as_ptr() as i64])
    };
    #[cfg(target_arch = "x86_64")]
    Op::Mkdir => |p| on_path(p, libc::SYS_mkdir, "directory", &[0o700]);
    Op::Mkdirat => |p| at_path(p, libc::SYS_mkdirat, "another", &[0o700]);
    #[cfg(target_arch = "x86_64")]
    Op::Readlink => |p| filling(libc::SYS_readlink, &[p.path("link").as_ptr() as i64], &[64]);
    Op::Readlinkat => |p| filling(libc::SYS_readlinkat, &[HERE, p.path("link").as_ptr() as i64], &[64]);
    #[cfg(target_arch = "x86_64")]
    Op::Mknod => |p| on_path(p, libc::SYS_mknod, "node", &[REGULAR]);
    Op::Mknodat => |p| at_path(p, libc::SYS_mknodat, "another node", &[REGULAR]);
    Op::Chdir => |_| call(libc::SYS_chdir, &[c".".as_ptr() as i64]);
    #[cfg(target_arch = "x86_64")]
    Op::Chmod => |p| on_path(p, libc::SYS_chmod, "file", &[0o600]);
    Op::Fchmod => |p| call(libc::SYS_fchmod, &[p.fd(), 0o600]);
    Op::Fchmodat => |p| at_path(p, libc::SYS_fchmodat, "file", &[0o600]);
    Op::Fchmodat2 => |p| at_path(p, number::SYS_fchmodat2, "file", &[0o600, 0]);
    #[cfg(target_arch = "x86_64")]
    Op::Chown => |p| on_path(p, libc::SYS_chown, "file", &[AS_IT_IS, AS_IT_IS]);
    #[cfg(target_arch = "x86_64")]
    Op::Lchown => |p| on_path(p, libc::SYS_lchown, "link", &[AS_IT_IS, AS_IT_IS]);
    Op::Fchown => |p| call(libc::SYS_fchown, &[p.fd(), AS_IT_IS, AS_IT_IS]);
    Op::Fchownat => |p| at_path(p, libc::SYS_fchownat, "file", &[AS_IT_IS, AS_IT_IS, 0]);
    #[cfg(target_arch = "x86_64")]
    Op::Utime => |p| on_path(p, libc::SYS_utime, "file", &[NOW]);
    #[cfg(target_arch = "x86_64")]
    Op::Utimes => |p| on_path(p, libc::SYS_utimes, "file", &[NOW]);
    #[cfg(target_arch = "x86_64")]
    Op::Futimesat => |p| at_path(p, libc::SYS_futimesat, "file", &[NOW]);
    Op::Utimensat => |p| at_path(p, libc::SYS_utimensat, "file", &[NOW, 0]);
    Op::Setxattr => |p| attribute(p, libc::SYS_setxattr, Subject::Path, Takes::Value);
    Op::Lsetxattr => |p| attribute(p, libc::SYS_lsetxattr, Subject::Path, Takes::Value);
    Op::Fsetxattr => |p| attribute(p, libc::SYS_fsetxattr, Subject::Fd, Takes::Value);
    Op::Setxattrat => |p| attribute(p, number::SYS_setxattrat, Subject::At, Takes::Structure);
    Op::Getxattr => |p| attribute(p, libc::SYS_getxattr, Subject::Path, Takes::Value);
    Op::Lgetxattr => |p| attribute(p, libc::SYS_lgetxattr, Subject::Path, Takes::Value);
    Op::Fgetxattr => |p| attribute(p, libc::SYS_fgetxattr, Subject::Fd, Takes::Value);
    Op::Getxattrat => |p| attribute(p, number::SYS_getxattrat, Subject::At, Takes::Structure);
    Op::Listxattr => |p| attribute(p, libc::SYS_listxattr, Subject::Path, Takes::List);
    Op::Llistxattr => |p| attribute(p, libc::SYS_llistxattr, Subject::Path, Takes::List);
    Op::Flistxattr => |p| attribute(p, libc::SYS_flistxattr, Subject::Fd, Takes::List);
    Op::Listxattrat => |p| attribute(p, number::SYS_listxattrat, Subject::At, Takes::List);
    Op::Removexattr => |p| attribute(p, libc::SYS_removexattr, Subject::Path, Takes::Name);
    Op::Lremovexattr => |p| attribute(p, libc::SYS_lremovexattr, Subject::Path, Takes::Name);
    Op::Fremovexattr => |p| attribute(p, libc::SYS_fremovexattr, Subject::Fd, Takes::Name);
    Op::Removexattrat => |p| attribute(p, number::SYS_removexattrat, Subject::At, Takes::Name);
    Tried::DirectWrite => |p| call(libc::SYS_pwrite64, &[p.direct()?, p.buffer(), LENGTH, 0]);
    Tried::DirectRead => |p| call(libc::SYS_pread64, &[p.direct()?, p.buffer(), LENGTH, 0]);
    Tried::MappedPage => |p| {
        p.file.sync_all()?;
        // Cached pages are mapped without calling the file system.
        call(libc::SYS_fadvise64, &[p.fd(), 0, 0, libc::POSIX_FADV_DONTNEED.into()])?;
        mapped(p, |page| {
            // SAFETY: the page is mapped for reading and writing, and the file is long enough.
            unsafe {
                let byte = (page as *mut u8).read_volatile();
                (page as *mut u8).write_volatile(byte);
            }
            Ok(0)
        })
    };
    Op::IoSubmit => aio;
    Op::IoPgetevents => |_| {
        let mut context = 0u64;
        call(libc::SYS_io_setup, &[1, &raw mut context as i64])?;
        // There are no events to wait for.
        let mut event = [0u64; 4];
        let ended = call(number::SYS_io_pgetevents, &[context as i64, 0, 1, &raw mut event as i64, 0, 0]);
        call(libc::SYS_io_destroy, &[context as i64])?;
        ended
    };
    Op::IoUringEnter => uring;
}

/// Calls `use_it` with a shared mapping of the file's first block.
fn mapped(workspace: &Workspace, use_it: fn(i64) -> io::Result<i64>) -> io::Result<i64> {
    // SAFETY: a new mapping of a file that is open.
    let page = unsafe {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        libc::mmap(
            ptr::null_mut(),
            BLOCK,
            protection,
            libc::MAP_SHARED,
            workspace.file.as_raw_fd(),
            0,
        )
    };
    if page == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let result = use_it(page as i64);
    // SAFETY: it is our mapping, and nothing points into it any more.
    unsafe { libc::munmap(page, BLOCK) };
    result
}

fn create(workspace: &Workspace, name: &str) -> io::Result<i64> {
    closed(at_path(workspace, libc::SYS_openat, name, &[FOR_WRITING, 0o600]))
}

/// `struct file_handle` of linux/fs.h, with room for any file system's handle (`MAX_HANDLE_SZ`).
#[repr(C)]
struct Handle {
    bytes: u32,
    kind: i32,
    handle: [u8; 128],
}

impl Default for Handle {
    fn default() -> Self {
        Self {
            bytes: 128,
            kind: 0,
            handle: [0; 128],
        }
    }
}

fn named(workspace: &Workspace, handle: &mut Handle) -> io::Result<i64> {
    let mut mount = 0_i32;
    let rest = [ptr::from_mut(handle) as i64, &raw mut mount as i64, 0];
    at_path(workspace, libc::SYS_name_to_handle_at, "file", &rest)
}

fn renamed(workspace: &Workspace, number: libc::c_long) -> io::Result<i64> {
    create(workspace, "one")?;
    let to = workspace.path("two");
    at_path(workspace, number, "one", &[HERE, to.as_ptr() as i64, 0])
}

fn listed(workspace: &Workspace, number: libc::c_long) -> io::Result<i64> {
    let directory = File::open(&workspace.directory)?;
    call(number, &[directory.as_raw_fd().into(), workspace.buffer(), LENGTH])
}

/// A direct read and a direct write by libaio; `io_getevents` waits for them.
fn aio(workspace: &Workspace) -> io::Result<i64> {
    /// `struct iocb` of linux/aio_abi.h, on a little-endian machine.
    #[repr(C)]
    #[derive(Default)]
    struct Request {
        data: u64,
        key: u32,
        rw_flags: u32,
        opcode: u16,
        priority: u16,
        fd: u32,
        buffer: u64,
        length: u64,
        offset: i64,
        reserved: [u64; 2],
    }
    const READ: u16 = 0;
    const WRITE: u16 = 1;
    let fd = workspace.direct().unwrap_or(workspace.fd());
    let mut context = 0u64;
    call(libc::SYS_io_setup, &[2, &raw mut context as i64])?;
    let request = |opcode| Request {
        opcode,
        fd: fd as u32,
        buffer: workspace.buffer as u64,
        length: BLOCK as u64,
        ..Request::default()
    };
    let all = [READ, WRITE].map(request);
    let pointers = [&raw const all[0], &raw const all[1]];
    let mut events = [[0u64; 4]; 2];
    let submitted = call(libc::SYS_io_submit, &[context as i64, 2, &raw const pointers as i64]);
    let ended = submitted.and_then(|n| {
        call(
            libc::SYS_io_getevents,
            &[context as i64, n, 2, &raw mut events as i64, 0],
        )
    });
    call(libc::SYS_io_destroy, &[context as i64])?;
    ended
}

/// A read and a write by io_uring.
fn uring(workspace: &Workspace) -> io::Result<i64> {
    use io_uring::{IoUring, opcode, types};
    let file = types::Fd(workspace.direct().unwrap_or(workspace.fd()) as i32);
    let mut ring = IoUring::new(2)?;
    let read = opcode::Read::new(file, workspace.buffer, BLOCK as u32).build();
    let write = opcode::Write::new(file, workspace.buffer.cast_const(), BLOCK as u32).build();
    for request in [read, write] {
        // SAFETY: the buffer and the file live until both requests have completed, for which the code waits.
        let pushed = unsafe { ring.submission().push(&request) };
        pushed.map_err(|_| io::Error::from_raw_os_error(libc::EBUSY))?;
        ring.submit_and_wait(1)?;
        let result = ring.completion().next().map_or(-libc::EIO, |event| event.result());
        if result < 0 {
            return Err(io::Error::from_raw_os_error(-result));
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::SYSCALLS;

    #[test]
    fn every_system_call_is_exercised_or_too_much() {
        for syscall in SYSCALLS {
            let by_another = match syscall.op {
                Op::IoGetevents => Op::IoSubmit,
                op => op,
            };
            let has_step = STEPS.iter().any(|(tried, _)| *tried == Tried::Call(by_another));
            assert!(has_step != TOO_MUCH.contains(&syscall.op), "{}", syscall.op);
        }
    }

    #[test]
    fn what_a_process_says_of_a_step_is_read_back() {
        let of =
            |line: &str| read_back(line).map(|(tried, outcome)| (tried, outcome.map_err(|error| error.raw_os_error())));
        for (number, (tried, _)) in STEPS.iter().enumerate() {
            assert_eq!(of(&format!("{number} 0")), Some((*tried, Ok(()))));
            assert_eq!(of(&format!("{number} 22")), Some((*tried, Err(Some(libc::EINVAL)))));
        }
        for line in ["", "0", "0 ", "x 0", "-1 0", "0 x", "4711 0"] {
            assert_eq!(of(line), None, "{line}");
        }
    }

    #[test]
    fn steps_work_and_leave_nothing() {
        let base = std::env::temp_dir();
        let workspace = Workspace::new(&base).unwrap();
        let directory = workspace.directory.clone();
        for (tried, step) in STEPS {
            let name = match tried {
                Tried::Call(op) => op.name(),
                _ => "",
            };
            match (tried, step(&workspace).map_err(|error| error.raw_os_error())) {
                (_, Ok(_)) => {}
                // These may be disabled on a machine, and a file system in memory does not support direct I/O.
                (_, Err(Some(libc::EPERM | libc::ENOSYS))) if name.starts_with("io_") => {}
                // Since 5.8, 6.6 and 6.13.
                (Tried::Call(Op::Faccessat2 | Op::Fchmodat2), Err(Some(libc::ENOSYS))) => {}
                (_, Err(Some(libc::ENOSYS))) if name.ends_with("xattrat") => {}
                (_, Err(Some(libc::EOPNOTSUPP))) if name.contains("xattr") => {}
                (Tried::DirectRead | Tried::DirectWrite, Err(Some(libc::EINVAL))) => {}
                (_, Err(error)) => panic!("{tried:?}: {error:?}"),
            }
        }
        drop(workspace);
        assert!(!directory.exists());
    }

    /// Otherwise anybody who may write to `/tmp` could plant a link in the directory, or create a file with a
    /// predictable name first.
    #[test]
    fn other_users_cannot_enter_the_directory() {
        use nix::sys::stat::{Mode, umask};
        use std::os::unix::fs::PermissionsExt;
        let base = std::env::temp_dir();
        let before = umask(Mode::empty());
        let workspaces = [Workspace::new(&base), Workspace::new(&base)];
        umask(before);
        let [one, other] = workspaces.map(Result::unwrap);
        assert_eq!(
            fs::metadata(&one.directory).unwrap().permissions().mode() & 0o7777,
            0o700
        );
        assert_ne!(one.directory, other.directory);
        let planted = one.directory.join("planted");
        fs::create_dir(&planted).unwrap();
        std::os::unix::fs::symlink("/dev/null", planted.join("file")).unwrap();
        assert!(Workspace::fill(&planted).is_err());
    }
}
