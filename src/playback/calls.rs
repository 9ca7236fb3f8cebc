//! Makes one call of a replay.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU32, Ordering};

use super::confined::{Parent, Target, process_path};
use super::data::{Memory, Source};
use super::owners::{Owners, Privileged};
use super::wait::Mark;
use crate::model::ids::Op;
use crate::model::record::users;
use crate::replay::does::Does;
use crate::replay::flags;
use crate::replay::plan::{AT_POSITION, Action, NONE, Plan};
use crate::replay::results::Results;

/// Bytes of a buffer for names of directory entries, when their number is unknown.
const ENTRIES: u64 = 32 << 10;
/// Buffers of one call (`UIO_MAXIOV`, include/uapi/linux/uio.h).
const MOST_BUFFERS: u32 = 1024;
/// Direct I/O begins and ends at multiples of this on any disk.
const DIRECT: u64 = 4096;

/// Nothing looked at it yet.
pub const UNKNOWN: u8 = 0;
/// A regular file, a directory, or a link that was opened with `O_PATH`.
const FILE: u8 = 1;
/// Something else, which others put there. It is not used.
const OTHER: u8 = 2;

/// What all threads use.
pub struct Files<'a> {
    pub plan: &'a Plan,
    /// By spot; `None`: it is no name.
    pub targets: Vec<Option<Target>>,
    /// Descriptors by open file; -1: it is not open.
    pub fds: Vec<AtomicI32>,
    /// What each is ([`UNKNOWN`], [`FILE`] or [`OTHER`]).
    pub kinds: Vec<AtomicU8>,
    /// Uses of each open file that are left.
    pub left: Vec<AtomicU32>,
    /// The directory of the replay, and where sent data goes.
    pub root: RawFd,
    pub nowhere: OwnedFd,
    pub owners: Owners,
}

/// What a call needs that is opened before its time.
#[derive(Default)]
pub struct Ready<'a> {
    first: Option<Parent<'a>>,
    second: Option<Parent<'a>>,
    /// The file itself, for calls that take no directory and name.
    object: Option<OwnedFd>,
    /// What is closed.
    closed: Option<RawFd>,
    /// While the call is made, this thread may change owners.
    _privileged: Option<Privileged>,
}

/// The buffers and results of a thread.
pub struct Caller<'a> {
    pub files: &'a Files<'a>,
    pub source: Source,
    pub memory: Memory,
    pub results: Results,
    pub mark: Mark,
}

/// The result of a call as the kernel returns it: an error is a negative number.
fn result(value: i64) -> i64 {
    if value < 0 {
        failed(&io::Error::last_os_error())
    } else {
        value
    }
}

/// An offset as copies take it; null: they use the position of the file.
fn offset_pointer(offset: &mut u64) -> *mut i64 {
    if *offset == AT_POSITION {
        std::ptr::null_mut()
    } else {
        (&raw mut *offset).cast()
    }
}

pub fn failed(error: &io::Error) -> i64 {
    -i64::from(error.raw_os_error().unwrap_or(libc::EIO))
}

impl<'a> Files<'a> {
    fn target(&self, spot: u32) -> io::Result<&Target> {
        let target = self.targets.get(spot as usize).and_then(Option::as_ref);
        target.ok_or_else(|| io::Error::from_raw_os_error(libc::EINVAL))
    }

    fn fd(&self, file: u32) -> io::Result<RawFd> {
        let fd = self.fds.get(file as usize).map_or(-1, |fd| fd.load(Ordering::Acquire));
        if fd < 0 {
            Err(io::Error::from_raw_os_error(libc::EBADF))
        } else {
            Ok(fd)
        }
    }

    /// Looks at what an open file is, if nothing did.
    ///
    /// # Errors
    /// EPERM, if it is not to be used.
    fn admit(&self, file: u32) -> io::Result<()> {
        let Some(kind) = self.kinds.get(file as usize) else {
            return Ok(());
        };
        let mut known = kind.load(Ordering::Acquire);
        if known == UNKNOWN {
            known = if is_file(self.fd(file)?) { FILE } else { OTHER };
            kind.store(known, Ordering::Release);
        }
        match known {
            OTHER => Err(io::Error::from_raw_os_error(libc::EPERM)),
            _ => Ok(()),
        }
    }

    /// How many open files were not used.
    pub fn refused(&self) -> u64 {
        let kinds = self.kinds.iter().map(|kind| kind.load(Ordering::Acquire));
        kinds.filter(|kind| *kind == OTHER).count() as u64
    }

    /// What a call that changes the owners of this file needs; nothing, if the recorded one failed.
    fn privileged(&self, action: &Action, file: RawFd) -> io::Result<Option<Privileged>> {
        if action.value < 0 {
            return Ok(None);
        }
        self.owners.admit(file)?;
        Privileged::begin().map(Some)
    }

    /// A call of an open file has ended. The last one closes it, unless it was a close itself.
    pub fn release(&self, action: &Action) {
        for file in [action.file, action.file2] {
            let Some(left) = self.left.get(file as usize).filter(|_| file != NONE) else {
                continue;
            };
            if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                let fd = self.fds[file as usize].swap(-1, Ordering::AcqRel);
                if fd >= 0 {
                    // SAFETY: no thread uses the descriptor any more.
                    drop(unsafe { OwnedFd::from_raw_fd(fd) });
                }
            }
        }
    }
}

impl<'a> Caller<'a> {
    /// Opens what a call needs, and moves the position of its file if that was moved without a recorded call.
    ///
    /// # Errors
    /// The error that the call would have returned.
    pub fn ready(&self, action: &Action) -> io::Result<Ready<'a>> {
        let files = self.files;
        let mut ready = Ready::default();
        // Only now, and not when it is opened: most programs look at what they opened first, and their call would be faster
        // than it was.
        if action.does.uses_file() {
            for file in [action.file, action.file2] {
                files.admit(file)?;
            }
        }
        match action.does {
            Does::Close => {
                let fd = files.fd(action.file)?;
                // While it is used, another descriptor of it is closed: which one the program closed makes no difference.
                let is_last = files.left[action.file as usize].load(Ordering::Acquire) == 1;
                ready.closed = Some(if is_last {
                    files.fds[action.file as usize].swap(-1, Ordering::AcqRel)
                } else {
                    // SAFETY: the descriptor is open.
                    super::confined::check(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) }.into())? as RawFd
                });
            }
            Does::Rename | Does::Link => {
                ready.first = Some(files.target(action.spot)?.parent()?);
                ready.second = Some(files.target(action.spot2)?.parent()?);
            }
            Does::LinkOpen => ready.second = Some(files.target(action.spot2)?.parent()?),
            Does::Symlink | Does::Mkdir | Does::Unlink | Does::Rmdir | Does::Readlink | Does::Utimens => {
                ready.first = Some(files.target(action.spot)?.parent()?);
            }
            Does::Stat | Does::Statx | Does::Access => ready.first = Some(files.target(action.spot)?.looked_at()?),
            Does::Truncate | Does::Chmod | Does::Listxattr | Does::Statfs | Does::Chdir => {
                ready.object = Some(files.target(action.spot)?.open(libc::O_PATH | libc::O_NOFOLLOW, 0)?);
            }
            Does::Chown => {
                let object = files.target(action.spot)?.open(libc::O_PATH | libc::O_NOFOLLOW, 0)?;
                ready._privileged = files.privileged(action, object.as_raw_fd())?;
                ready.object = Some(object);
            }
            Does::Fchown => ready._privileged = files.privileged(action, files.fd(action.file)?)?,
            _ => {}
        }
        if action.seeks {
            let fd = files.fd(action.file)?;
            // SAFETY: the descriptor is open.
            unsafe { libc::lseek64(fd, action.offset.cast_signed(), libc::SEEK_SET) };
        }
        Ok(ready)
    }

    /// Makes the call; what it returned, or a negative errno.
    pub fn call(&mut self, action: &Action, ready: &Ready<'a>) -> i64 {
        let does = action.does;
        let made = if does == Does::Open {
            self.open(action)
        } else if does.reads() || does.writes() {
            self.transfer(action)
        } else if does.has_file() || does == Does::Syncfs {
            self.on_file(action, ready)
        } else {
            self.on_path(action, ready)
        };
        made.unwrap_or_else(|error| failed(&error))
    }

    fn open(&mut self, action: &Action) -> io::Result<i64> {
        let target = self.files.target(action.spot)?;
        // A pipe that another program put there must not be waited for.
        let mut flags = flags::of_machine(action.extra, std::env::consts::ARCH).cast_signed();
        if flags & libc::O_PATH == 0 {
            flags |= libc::O_NONBLOCK | libc::O_NOCTTY;
        }
        let makes = flags & libc::O_CREAT != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE;
        let mode = if makes { action.size as u32 & 0o1777 } else { 0 };
        let (file, is_refused) = target.open_maybe_direct(flags, mode)?;
        self.results.not_direct += u64::from(is_refused);
        if let Some(fd) = self.files.fds.get(action.file as usize) {
            use std::os::fd::IntoRawFd;
            fd.store(file.into_raw_fd(), Ordering::Release);
        }
        Ok(0)
    }

    fn transfer(&mut self, action: &Action) -> io::Result<i64> {
        let fd = self.files.fd(action.file)?;
        if action.does == Does::CopyFileRange {
            let to = self.files.fd(action.file2)?;
            let size = usize::try_from(action.size).unwrap_or(usize::MAX).min(MOST_COPIED);
            let (mut from, mut into) = (action.offset, action.other_offset);
            let (from, into) = (offset_pointer(&mut from), offset_pointer(&mut into));
            // SAFETY: the descriptors are open, and the offsets live until it returns.
            return Ok(result(
                unsafe { libc::copy_file_range(fd, from, to, into, size, 0) } as i64
            ));
        }
        if action.does == Does::Sendfile {
            let to = self.files.nowhere.as_raw_fd();
            let size = usize::try_from(action.size).unwrap_or(usize::MAX).min(MOST_COPIED);
            let mut from = action.offset;
            let from = offset_pointer(&mut from);
            // SAFETY: the descriptors are open, and the offset lives until it returns.
            return Ok(result(unsafe { libc::sendfile64(to, fd, from, size) } as i64));
        }
        let (at, length) = if action.does.writes() {
            self.source.next(action.size)
        } else {
            (self.memory.pointer(), self.memory.fitting(action.size))
        };
        let value = transfer(fd, action, at, length, action.offset);
        // A disk with larger blocks than the recorded one.
        let is_positional = matches!(action.does, Does::Pread | Does::Pwrite);
        let is_unaligned = !action.offset.is_multiple_of(DIRECT) || !action.size.is_multiple_of(DIRECT);
        if value == -i64::from(libc::EINVAL) && action.value >= 0 && is_positional && is_unaligned {
            self.results.direct_rounded += 1;
            let from = action.offset / DIRECT * DIRECT;
            let to = action
                .offset
                .saturating_add(action.size)
                .div_ceil(DIRECT)
                .saturating_mul(DIRECT);
            let (at, length) = if action.does.writes() {
                self.source.next(to.saturating_sub(from))
            } else {
                (self.memory.pointer(), self.memory.fitting(to.saturating_sub(from)))
            };
            let value = transfer(fd, action, at, length, from);
            return Ok(if value > 0 { value.min(action.value) } else { value });
        }
        Ok(value)
    }

    fn on_file(&mut self, action: &Action, ready: &Ready<'a>) -> io::Result<i64> {
        if let Some(closed) = ready.closed {
            // SAFETY: the descriptor is this call's alone.
            return Ok(result(unsafe { libc::close(closed) }.into()));
        }
        let fd = match action.file {
            NONE => self.files.root,
            file => self.files.fd(file)?,
        };
        if action.does == Does::SetFlags {
            return Ok(self.set_flags(fd, action));
        }
        let (offset, size) = (action.offset.cast_signed(), action.size.cast_signed());
        let memory = self.memory.pointer();
        let flags = action.extra.cast_signed();
        let empty = c"".as_ptr();
        // SAFETY: the descriptor is open; the buffers have room for what these calls return (`new` in the module above
        // makes them large enough), and texts are terminated.
        let value: i64 = unsafe {
            match action.does {
                Does::Fsync => libc::fsync(fd).into(),
                Does::Fdatasync => libc::fdatasync(fd).into(),
                Does::Syncfs => libc::syncfs(fd).into(),
                Does::SyncFileRange => libc::sync_file_range(fd, offset, size, action.extra).into(),
                Does::Fallocate => libc::fallocate64(fd, flags, offset, size).into(),
                Does::Ftruncate => libc::ftruncate64(fd, offset).into(),
                Does::Seek => libc::lseek64(fd, offset, libc::SEEK_SET),
                Does::Fadvise => libc::syscall(libc::SYS_fadvise64, fd, offset, size, flags),
                Does::Readahead => libc::syscall(libc::SYS_readahead, fd, offset, size),
                Does::Getdents => {
                    let size = if action.extra == 0 {
                        ENTRIES
                    } else {
                        action.extra.into()
                    };
                    libc::syscall(
                        libc::SYS_getdents64,
                        fd,
                        memory,
                        self.memory.fitting(size.min(ENTRIES * 32)),
                    )
                }
                Does::Fstat if action.op == Op::Newfstatat => {
                    libc::syscall(libc::SYS_newfstatat, fd, empty, memory, libc::AT_EMPTY_PATH)
                }
                Does::Fstat => libc::syscall(libc::SYS_fstat, fd, memory),
                Does::Fstatx => libc::syscall(
                    libc::SYS_statx,
                    fd,
                    empty,
                    libc::AT_EMPTY_PATH,
                    libc::STATX_BASIC_STATS,
                    memory,
                ),
                Does::Fstatfs => libc::fstatfs64(fd, memory.cast()).into(),
                Does::Fchmod => libc::fchmod(fd, mode(action)).into(),
                Does::Fchown => {
                    let (user, group) = users(action.offset);
                    libc::fchown(fd, user, group).into()
                }
                Does::Futimens => libc::futimens(fd, std::ptr::null()).into(),
                Does::Flistxattr => libc::flistxattr(fd, memory.cast(), self.memory.fitting(ENTRIES * 2)) as i64,
                Does::LinkOpen => match &ready.second {
                    Some(to) => {
                        let from = process_path(fd);
                        let follow = libc::AT_SYMLINK_FOLLOW;
                        libc::linkat(libc::AT_FDCWD, from.as_ptr().cast(), to.fd(), to.name.as_ptr(), follow).into()
                    }
                    None => return Err(io::Error::from_raw_os_error(libc::EINVAL)),
                },
                _ => return Err(io::Error::from_raw_os_error(libc::ENOSYS)),
            }
        };
        Ok(result(value))
    }

    /// Direct I/O that the file system refuses is left out, as when a file is opened.
    fn set_flags(&mut self, fd: RawFd, action: &Action) -> i64 {
        let flags = flags::of_machine(action.extra, std::env::consts::ARCH).cast_signed();
        // SAFETY: the descriptor is open, and the call takes numbers.
        let set = |flags: i32| result(unsafe { libc::fcntl(fd, libc::F_SETFL, flags) }.into());
        let value = set(flags);
        let is_refused = value == -i64::from(libc::EINVAL) && action.value >= 0 && flags & libc::O_DIRECT != 0;
        if is_refused {
            self.results.not_direct += 1;
            return set(flags & !libc::O_DIRECT);
        }
        value
    }

    fn on_path(&mut self, action: &Action, ready: &Ready<'a>) -> io::Result<i64> {
        let memory = self.memory.pointer();
        if let Some(object) = &ready.object {
            let path = process_path(object.as_raw_fd());
            let path = path.as_ptr().cast();
            // SAFETY: the path is terminated, and names the open file; the buffers are large enough.
            let value: i64 = unsafe {
                match action.does {
                    Does::Truncate => libc::truncate64(path, action.offset.cast_signed()).into(),
                    Does::Chown => {
                        let (user, group) = users(action.offset);
                        let flags = libc::AT_EMPTY_PATH;
                        libc::fchownat(object.as_raw_fd(), c"".as_ptr(), user, group, flags).into()
                    }
                    Does::Chmod => libc::fchmodat(libc::AT_FDCWD, path, mode(action), 0).into(),
                    Does::Listxattr => libc::listxattr(path, memory.cast(), self.memory.fitting(ENTRIES * 2)) as i64,
                    Does::Statfs => libc::statfs64(path, memory.cast()).into(),
                    _ => libc::fchdir(object.as_raw_fd()).into(),
                }
            };
            return Ok(result(value));
        }
        let missing = || io::Error::from_raw_os_error(libc::EINVAL);
        let at = ready.first.as_ref().ok_or_else(missing)?;
        let (fd, name) = (at.fd(), at.name.as_ptr());
        let no_follow = libc::AT_SYMLINK_NOFOLLOW;
        // SAFETY: the names and texts are terminated, and the buffers are large enough.
        let value: i64 = unsafe {
            match action.does {
                Does::Stat => libc::syscall(libc::SYS_newfstatat, fd, name, memory, no_follow),
                Does::Statx => libc::syscall(libc::SYS_statx, fd, name, no_follow, libc::STATX_BASIC_STATS, memory),
                Does::Access => libc::syscall(libc::SYS_faccessat2, fd, name, action.extra & 7, no_follow),
                Does::Readlink => libc::readlinkat(fd, name, memory.cast(), libc::PATH_MAX as usize) as i64,
                Does::Utimens => libc::utimensat(fd, name, std::ptr::null(), no_follow).into(),
                Does::Mkdir => libc::mkdirat(fd, name, action.extra & 0o1777).into(),
                Does::Unlink => libc::unlinkat(fd, name, 0).into(),
                Does::Rmdir => libc::unlinkat(fd, name, libc::AT_REMOVEDIR).into(),
                Does::Symlink => {
                    let text = self
                        .files
                        .plan
                        .texts
                        .get(action.spot2 as usize)
                        .filter(|text| !text.is_empty());
                    let text = text.and_then(|text| std::ffi::CString::new(text.as_str()).ok());
                    match text {
                        Some(text) => libc::symlinkat(text.as_ptr(), fd, name).into(),
                        // It leads out of the replay: an empty file stands for it.
                        None => libc::mknodat(fd, name, libc::S_IFREG | 0o644, 0).into(),
                    }
                }
                Does::Rename => {
                    let to = ready.second.as_ref().ok_or_else(missing)?;
                    let flags = if action.op == crate::model::ids::Op::Renameat2 {
                        action.extra
                    } else {
                        0
                    };
                    libc::syscall(libc::SYS_renameat2, fd, name, to.fd(), to.name.as_ptr(), flags)
                }
                Does::Link => {
                    let to = ready.second.as_ref().ok_or_else(missing)?;
                    libc::linkat(fd, name, to.fd(), to.name.as_ptr(), 0).into()
                }
                _ => return Err(missing()),
            }
        };
        Ok(result(value))
    }
}

/// `MAX_RW_COUNT` of the kernel (include/linux/fs.h).
const MOST_COPIED: usize = 0x7fff_f000;

/// Permissions without those that change the user of a program.
fn mode(action: &Action) -> u32 {
    action.extra & 0o1777
}

/// Whether it is a regular file, a directory or a link.
fn is_file(fd: RawFd) -> bool {
    // SAFETY: a structure of zero bytes is valid, and the call only fills it in.
    let mode = unsafe {
        let mut state: libc::stat = std::mem::zeroed();
        libc::fstat(fd, &raw mut state);
        state.st_mode & libc::S_IFMT
    };
    [libc::S_IFREG, libc::S_IFDIR, libc::S_IFLNK].contains(&mode)
}

/// Reads or writes `length` bytes of this memory.
fn transfer(fd: RawFd, action: &Action, at: *mut u8, length: usize, offset: u64) -> i64 {
    let offset = offset.cast_signed();
    let at = at.cast::<libc::c_void>();
    // Of preadv2 and pwritev2 the flags are known, and not the number of buffers.
    let flags = matches!(action.op, Op::Preadv2 | Op::Pwritev2).then_some(action.extra);
    let several = || {
        let count = if flags.is_some() { 1 } else { action.extra };
        let count = count.clamp(1, MOST_BUFFERS) as usize;
        let part = length.div_ceil(count).max(1);
        let starts = (0..length).step_by(part);
        let buffers: Vec<libc::iovec> = starts
            .map(|start| libc::iovec {
                iov_base: at.wrapping_byte_add(start),
                iov_len: part.min(length - start),
            })
            .collect();
        buffers
    };
    // SAFETY: the memory has this length.
    let value = unsafe {
        match action.does {
            Does::Read => libc::read(fd, at, length),
            Does::Write => libc::write(fd, at, length),
            Does::Pread => libc::pread64(fd, at, length, offset),
            Does::Pwrite => libc::pwrite64(fd, at, length, offset),
            other => {
                let buffers = several();
                let (all, count) = (buffers.as_ptr(), buffers.len() as i32);
                let with_flags = |call, flags: u32| libc::syscall(call, fd, all, count, offset, 0, flags) as isize;
                match (other, flags) {
                    (Does::Preadv, Some(flags)) => with_flags(libc::SYS_preadv2, flags),
                    (Does::Pwritev, Some(flags)) => with_flags(libc::SYS_pwritev2, flags),
                    (Does::Readv, _) => libc::readv(fd, all, count),
                    (Does::Writev, _) => libc::writev(fd, all, count),
                    (Does::Preadv, _) => libc::preadv64(fd, all, count, offset),
                    _ => libc::pwritev64(fd, all, count, offset),
                }
            }
        }
    };
    result(value as i64)
}
