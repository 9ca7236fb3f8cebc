//! Calls that only runs that record measure, made by a process that makes each of them with known arguments.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use iostackbreakdown::catalog::RECORDED;
use iostackbreakdown::model::record::{Call, Folder};
use libc::c_long;

use super::{Recorded, open};

/// A call that was made.
#[derive(Debug, Clone, Copy)]
struct Made {
    number: c_long,
    arguments: [i64; 6],
    value: i64,
}

const NONE: Made = Made {
    number: -1,
    arguments: [0; 6],
    value: 0,
};
/// More than there are calls.
const MOST: usize = 64;

/// The calls of a child process, in memory that its parent shares.
struct Shared(*mut [Made; MOST]);

impl Shared {
    fn new() -> Self {
        let (protection, flags) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_ANONYMOUS,
        );
        // SAFETY: a new mapping.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size_of::<[Made; MOST]>(),
                protection,
                flags,
                -1,
                0,
            )
        };
        assert_ne!(memory, libc::MAP_FAILED);
        let shared: *mut [Made; MOST] = memory.cast();
        // SAFETY: it is large enough, and no other process has it.
        unsafe { shared.write([NONE; MOST]) };
        Self(shared)
    }

    fn all(&self) -> Vec<Made> {
        // SAFETY: the child has ended.
        let all = unsafe { self.0.read() };
        all.into_iter().take_while(|made| made.number != -1).collect()
    }
}

/// Makes calls, and notes them. Nothing here allocates memory: it runs in the child of a process with threads.
struct Maker {
    made: *mut [Made; MOST],
    next: usize,
}

impl Maker {
    /// A call that is recorded.
    fn make(&mut self, number: c_long, given: &[i64]) -> i64 {
        let mut arguments = [0; 6];
        arguments[..given.len()].copy_from_slice(given);
        let [a, b, c, d, e, f] = arguments;
        let mut made = Made {
            number,
            arguments,
            value: 0,
        };
        // Before the call: one of them does not return.
        // SAFETY: the memory is shared, and has room; the arguments are those of a call that is known.
        unsafe {
            (*self.made)[self.next] = made;
            made.value = match libc::syscall(number, a, b, c, d, e, f) {
                -1 => -i64::from(*libc::__errno_location()),
                value => value,
            };
            (*self.made)[self.next] = made;
        }
        self.next += 1;
        made.value
    }
}

/// Makes each of the calls in a child process. `data`: a file of 64 KiB; `folder`: one with a folder `root` in it. Returns
/// the child and the descriptor of the file, which must be closed.
pub struct Positions {
    shared: Shared,
    pid: u32,
    data: String,
    folder: String,
}

impl Positions {
    /// Makes the calls. The child is one of this process, which must be recorded with its children.
    pub fn make(data: &Path, folder: &Path) -> Self {
        let fd = i64::from(open(data, libc::O_RDWR));
        let base = i64::from(open(folder, libc::O_RDONLY | libc::O_DIRECTORY));
        let root = CString::new(folder.join("root").as_os_str().as_bytes()).unwrap();
        let root = root.as_ptr() as i64;
        let shared = Shared::new();
        // SAFETY: the child only makes system calls.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            make_all(
                &mut Maker {
                    made: shared.0,
                    next: 0,
                },
                fd,
                base,
                root,
            );
        }
        let mut status = 0;
        // SAFETY: its own child, and descriptors.
        unsafe {
            assert_eq!(libc::waitpid(pid, &raw mut status, 0), pid);
            libc::close(fd as i32);
            libc::close(base as i32);
        }
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status}");
        Self {
            shared,
            pid: pid.cast_unsigned(),
            data: data.to_str().unwrap().to_owned(),
            folder: folder.to_str().unwrap().to_owned(),
        }
    }

    /// Whether each call is recorded once, in its order and with its arguments, and nothing else of these kinds.
    pub fn are_in(&self, recorded: &Recorded) -> Result<(), String> {
        let is_its = |call: &&Call| call.pid == self.pid && RECORDED.iter().any(|known| known.op == call.op);
        let mut calls: Vec<&Call> = recorded.records.calls.iter().filter(is_its).collect();
        calls.sort_by_key(|call| call.begin_ns);
        let made = self.shared.all();
        for (call, made) in calls.iter().zip(&made) {
            self.is_right(call, made, recorded)
                .map_err(|what| format!("{what}: {made:?} is {call:?}"))?;
        }
        let ops: Vec<&str> = calls.iter().map(|call| call.op.name()).collect();
        if calls.len() != made.len() {
            return Err(format!("{} of {} calls: {ops:?}", calls.len(), made.len()));
        }
        match RECORDED.iter().find(|known| !ops.contains(&known.op.name())) {
            Some(known) => Err(format!("{} was not made", known.op)),
            None => Ok(()),
        }
    }

    /// Whether the working and the root directory of the child are defined at its first call, and again after each call
    /// that changes one of them.
    pub fn folders_are_in(&self, recorded: &Recorded) -> Result<(), String> {
        let here = std::env::current_dir().unwrap().to_str().unwrap().to_owned();
        let root = format!("{}/root", self.folder);
        let expected = [
            (false, &*here),
            (true, "/"),
            (false, &self.folder),
            (true, "/"),
            (false, &self.folder),
            (true, &root),
        ];
        let of_child = |folder: &&Folder| folder.pid == self.pid;
        let mut its: Vec<_> = recorded.records.folders.iter().filter(of_child).collect();
        // They are written by CPU, and the child may move between two calls. At its first call both have one time.
        its.sort_by_key(|folder| folder.at_ns);
        let its: Vec<_> = its
            .iter()
            .map(|folder| (folder.is_root, recorded.seen(&folder.path)))
            .collect();
        match its == expected {
            true => Ok(()),
            false => Err(format!("{its:?}, not {expected:?}")),
        }
    }

    fn is_right(&self, call: &Call, made: &Made, recorded: &Recorded) -> Result<(), String> {
        let known = RECORDED.iter().find(|known| known.op == call.op);
        if known.is_none_or(|known| known.number != made.number) {
            return Err("another call".to_owned());
        }
        if call.value != made.value || call.arguments.as_deref() != Some(&made.arguments) {
            return Err("another value or other arguments".to_owned());
        }
        let [a, b, c, d, _, f] = made.arguments;
        let u = i64::cast_unsigned;
        // The descriptor, the offset, the size, and what is particular to the call.
        let (fd, offset, size, extra) = match made.number {
            // The position before the call.
            libc::SYS_lseek if made.value == 100 => (Some(a), Some(0), None, c),
            libc::SYS_lseek => (Some(a), Some(if made.value == 95 { 100 } else { 95 }), None, c),
            libc::SYS_dup | libc::SYS_fchdir => (Some(a), None, None, 0),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => (Some(a), None, None, b),
            libc::SYS_dup3 => (Some(a), None, None, c),
            libc::SYS_fcntl | libc::SYS_ioctl => (Some(a), None, None, b),
            libc::SYS_mmap => (Some(made.arguments[4]), Some(u(f)), Some(u(b)), c),
            libc::SYS_munmap => (None, None, Some(u(b)), 0),
            libc::SYS_mremap => (None, None, Some(u(c)), d),
            libc::SYS_madvise => (None, None, Some(u(b)), c),
            libc::SYS_readahead => (Some(a), Some(u(b)), Some(u(c)), 0),
            libc::SYS_fadvise64 => (Some(a), Some(u(b)), Some(u(c)), d),
            libc::SYS_close_range => (None, None, None, c),
            libc::SYS_exit_group => (None, None, None, a),
            _ => (None, None, None, 0),
        };
        let file = if made.number == libc::SYS_fchdir {
            &self.folder
        } else {
            &self.data
        };
        let is_right = call.fd.map(i64::from) == fd
            && (call.offset, call.size) == (offset, size)
            && call.extra == u(extra)
            && recorded.path(call.files[0]) == fd.map(|_| &**file)
            && call.rows.iter().all(|ns| *ns == 0)
            && call.end_ns.is_some();
        if !is_right {
            return Err(format!("expected {fd:?}, {offset:?}, {size:?}, {extra} of {file}"));
        }
        let given = call.paths.as_ref().and_then(|paths| paths.first.as_ref());
        let root = format!("{}/root", self.folder);
        match given.map(|given| &*given.text) == (made.number == libc::SYS_chroot).then_some(&*root) {
            true => Ok(()),
            false => Err(format!("given {given:?}")),
        }
    }
}

/// In the child: ends it.
fn make_all(maker: &mut Maker, fd: i64, base: i64, root: i64) {
    use libc as l;
    const PAGE: i64 = 4096;
    /// `FICLONE`, `FITRIM`, `BLKGETSIZE64` and `FIONREAD` (include/uapi/linux/fs.h, asm-generic/ioctls.h).
    const FICLONE: i64 = 0x4004_9409;
    const FITRIM: i64 = 0xc018_5879;
    const BLKGETSIZE64: i64 = 0x8008_1272;
    const FIONREAD: i64 = 0x541b;
    maker.make(l::SYS_lseek, &[fd, 100, l::SEEK_SET.into()]);
    maker.make(l::SYS_lseek, &[fd, -5, l::SEEK_CUR.into()]);
    maker.make(l::SYS_lseek, &[fd, -1, 99]);
    maker.make(l::SYS_dup, &[fd]);
    #[cfg(target_arch = "x86_64")]
    maker.make(l::SYS_dup2, &[fd, 500]);
    maker.make(l::SYS_dup3, &[fd, 501, l::O_CLOEXEC.into()]);
    maker.make(l::SYS_fcntl, &[fd, l::F_DUPFD.into(), 600]);
    maker.make(l::SYS_fcntl, &[fd, l::F_DUPFD_CLOEXEC.into(), 601]);
    maker.make(l::SYS_fcntl, &[fd, l::F_SETFL.into(), l::O_APPEND.into()]);
    let shared = i64::from(l::MAP_SHARED);
    let anonymous = i64::from(l::MAP_PRIVATE | l::MAP_ANONYMOUS);
    // SAFETY: they are not recorded, and change nothing.
    unsafe {
        l::syscall(l::SYS_fcntl, fd, l::F_GETFL, 0);
        l::syscall(l::SYS_ioctl, fd, FIONREAD, 0);
        let (nowhere, none): (i64, i64) = (0, -1);
        l::syscall(
            l::SYS_mmap,
            nowhere,
            PAGE,
            i64::from(l::PROT_READ),
            anonymous,
            none,
            nowhere,
        );
    }
    let at = maker.make(l::SYS_mmap, &[0, 2 * PAGE, l::PROT_READ.into(), shared, fd, PAGE]);
    maker.make(l::SYS_madvise, &[at, 2 * PAGE, l::MADV_RANDOM.into()]);
    maker.make(l::SYS_mremap, &[at, 2 * PAGE, PAGE, l::MREMAP_MAYMOVE.into(), 0]);
    maker.make(l::SYS_munmap, &[at, PAGE]);
    maker.make(l::SYS_readahead, &[fd, PAGE, 2 * PAGE]);
    maker.make(l::SYS_fadvise64, &[fd, 0, PAGE, l::POSIX_FADV_WILLNEED.into()]);
    maker.make(l::SYS_ioctl, &[fd, FICLONE, fd]);
    maker.make(l::SYS_ioctl, &[fd, FITRIM, 0]);
    maker.make(l::SYS_ioctl, &[fd, BLKGETSIZE64, 0]);
    maker.make(l::SYS_close_range, &[500, 501, 0]);
    maker.make(l::SYS_fchdir, &[base]);
    maker.make(l::SYS_chroot, &[root]);
    maker.make(l::SYS_exit_group, &[7]);
}
