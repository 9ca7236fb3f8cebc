//! Coordinates runs: attaching a new run takes precedence over detaching an earlier one.
//!
//! There are two reasons. The kernel attaches under locks that it also holds while it waits for a detached probe to
//! become unused, which may take a second for each: a start would wait for all of them. And when one of several
//! programs is removed from a function's trampoline, tasks that sleep in the function skip the other programs at its
//! return (`bpf_tramp_image_put()` in kernel/bpf/trampoline.c): a run that is already counting would miss these
//! returns.
//!
//! So detaching pauses while a run attaches. Then the run waits until its functions are released, which is quick while
//! it is attached to them as well, and begins to count. Everything else may be detached while it counts.
//!
//! The two sides communicate by locks on bytes of a file that every kernel has: the kernel releases them when the
//! holder ends, however it ends. Any user may read that file, and so lock it for reading; that is why every wait is
//! bounded. A process that cannot lock it proceeds as if it were alone.

use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::time::{Duration, Instant};

/// Another network namespace has its own copy, so runs in it do not coordinate with those outside.
const LOCKED: &str = "/sys/kernel/btf/vmlinux";

/// Locked by each run that attaches.
const ATTACHING: Bytes = Bytes::one(0);
/// Each process that pauses locks one of them. If none is free, further ones do not pause: even if runs follow each
/// other without a gap, everything is detached eventually.
const PAUSED: [Bytes; 4] = [Bytes::one(1), Bytes::one(2), Bytes::one(3), Bytes::one(4)];
/// One byte for each function; this many numbers.
const FUNCTIONS: i64 = 1 << 32;
/// Locked by a run that waits for the function.
const WANTED: Bytes = Bytes {
    first: FUNCTIONS,
    count: FUNCTIONS,
};
/// Locked by a process that will detach from the function.
const HELD: Bytes = Bytes {
    first: 2 * FUNCTIONS,
    count: FUNCTIONS,
};

/// How long one side waits for the other, in total.
const PATIENCE: Duration = Duration::from_secs(60);
/// Polling interval.
const LOOK: Duration = Duration::from_millis(20);

#[derive(Clone, Copy)]
struct Bytes {
    first: i64,
    count: i64,
}

impl Bytes {
    const fn one(byte: i64) -> Self {
        Self { first: byte, count: 1 }
    }

    /// The byte of a function.
    fn of(self, function: u32) -> Self {
        Self::one(self.first + i64::from(function))
    }
}

/// Locks that a process shares with those that it forks.
struct Locks(Option<File>);

impl Locks {
    fn open() -> Self {
        Self(File::open(LOCKED).ok())
    }

    fn set(&self, kind: i32, bytes: Bytes) {
        self.call(libc::F_OFD_SETLK, kind, bytes);
    }

    /// Whether another process holds a lock on one of these bytes.
    fn are_others_on(&self, bytes: Bytes) -> bool {
        let found = self.call(libc::F_OFD_GETLK, libc::F_WRLCK, bytes);
        found.is_some_and(|found| found != libc::F_UNLCK)
    }

    /// Makes the system call only. `None`: it was refused.
    fn call(&self, command: i32, kind: i32, bytes: Bytes) -> Option<i32> {
        let mut lock = libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: bytes.first,
            l_len: bytes.count,
            l_pid: 0,
        };
        // SAFETY: the kernel writes to the structure, which outlives the call.
        let done = unsafe { libc::fcntl(self.0.as_ref()?.as_raw_fd(), command, &raw mut lock) };
        (done == 0).then_some(lock.l_type.into())
    }
}

/// While it exists, other processes do not detach.
pub struct Attaching(Locks);

impl Attaching {
    #[must_use]
    pub fn begin() -> Self {
        Self::by(Locks::open())
    }

    fn by(locks: Locks) -> Self {
        locks.set(libc::F_RDLCK, ATTACHING);
        Self(locks)
    }

    /// Everything is attached: lets others detach, and waits until they have released these functions. Calls `waiting`
    /// with the number left whenever it changes.
    pub fn end(self, functions: &[u32], mut waiting: impl FnMut(usize)) {
        let Self(locks) = self;
        // Announce what this run waits for, so that it is released first.
        functions
            .iter()
            .for_each(|&function| locks.set(libc::F_RDLCK, WANTED.of(function)));
        locks.set(libc::F_UNLCK, ATTACHING);
        let begun = Instant::now();
        let mut reported = 0;
        loop {
            let held = functions
                .iter()
                .filter(|&&function| locks.are_others_on(HELD.of(function)));
            let left = held.count();
            if left == 0 || begun.elapsed() > PATIENCE {
                return;
            }
            if reported != left {
                waiting(left);
                reported = left;
            }
            std::thread::sleep(LOOK);
        }
    }
}

/// A link that attaches a program to a function.
#[derive(Debug, Clone, Copy)]
pub struct Link {
    pub descriptor: RawFd,
    /// The function's type number in BTF. Functions of two modules may share a number, which at worst costs a wait.
    pub function: u32,
}

/// What a process will detach. It is built before the fork, since the child only makes system calls.
pub struct Detaching {
    locks: Locks,
    /// Links of trampolines.
    links: Vec<Link>,
    patience: Duration,
}

impl Detaching {
    /// From now on a run that starts waits for the functions of these links.
    #[must_use]
    pub fn new(links: Vec<Link>) -> Self {
        Self::by(Locks::open(), links)
    }

    fn by(locks: Locks, links: Vec<Link>) -> Self {
        links
            .iter()
            .for_each(|link| locks.set(libc::F_RDLCK, HELD.of(link.function)));
        let free = PAUSED.into_iter().find(|byte| !locks.are_others_on(*byte));
        if let Some(byte) = free {
            locks.set(libc::F_RDLCK, byte);
        }
        Self {
            locks,
            links,
            patience: free.map_or(Duration::ZERO, |_| PATIENCE),
        }
    }

    /// The descriptor that holds the locks.
    #[must_use]
    pub fn descriptor(&self) -> Option<RawFd> {
        self.locks.0.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// Waits while a run attaches.
    pub fn pause(&mut self) {
        while !self.patience.is_zero() && self.locks.are_others_on(ATTACHING) {
            std::thread::sleep(LOOK);
            self.patience = self.patience.saturating_sub(LOOK);
        }
    }

    /// Calls `close` for each of the links, beginning with those that a run waits for.
    pub fn close_links(&mut self, close: impl Fn(RawFd)) {
        while let Some(link) = self.next() {
            close(link.descriptor);
            if !self.links.iter().any(|other| other.function == link.function) {
                self.locks.set(libc::F_UNLCK, HELD.of(link.function));
            }
        }
    }

    /// Removes and returns the next link.
    fn next(&mut self) -> Option<Link> {
        self.pause();
        let is_wanted = |link: &Link| self.locks.are_others_on(WANTED.of(link.function));
        let wanted = self.locks.are_others_on(WANTED);
        let wanted = wanted.then(|| self.links.iter().position(is_wanted)).flatten();
        let index = wanted.or_else(|| self.links.len().checked_sub(1))?;
        Some(self.links.swap_remove(index))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::fs;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    /// A file for this test alone: real runs hold locks on the kernel's.
    struct LockFile(PathBuf);

    impl LockFile {
        fn new() -> Self {
            static FILES: AtomicU32 = AtomicU32::new(0);
            let number = FILES.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("iosb-turn-{}-{number}", std::process::id()));
            fs::write(&path, "").unwrap();
            Self(path)
        }

        fn locks(&self) -> Locks {
            Locks(Some(File::open(&self.0).unwrap()))
        }
    }

    impl Drop for LockFile {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    /// Two for each function, numbered as descriptors from 0 on.
    fn links(functions: &[u32]) -> Vec<Link> {
        let all = functions.iter().flat_map(|&function| [function, function]);
        all.zip(0..)
            .map(|(function, descriptor)| Link { descriptor, function })
            .collect()
    }

    #[test]
    fn a_run_goes_first_and_then_what_it_waits_for() {
        let file = LockFile::new();
        let attaching = Attaching::by(file.locks());
        let mut detaching = Detaching::by(file.locks(), links(&[5, 6, 7]));
        let (closed, order) = mpsc::channel();
        let last = closed.clone();
        thread::scope(|scope| {
            scope.spawn(move || {
                detaching.close_links(|descriptor| closed.send(descriptor).unwrap());
                last.send(-1).unwrap();
            });
            assert!(order.recv_timeout(LOOK * 5).is_err(), "a run attaches");
            let reported = RefCell::new(Vec::new());
            attaching.end(&[6, 1], |left| reported.borrow_mut().push(left));
            assert_eq!(reported.take(), [1]);
            // The links of function 6 are closed before that of 7, which is later in the list.
            let order: Vec<i32> = order.iter().take_while(|&descriptor| descriptor >= 0).collect();
            assert_eq!(order[..2], [2, 3]);
            assert_eq!(order.len(), 6);
        });
    }

    #[test]
    fn a_function_is_held_until_its_last_link_is_closed() {
        let file = LockFile::new();
        let others = file.locks();
        let mut detaching = Detaching::by(file.locks(), links(&[5, 6]));
        let held = || [5, 6, 7].map(|function| others.are_others_on(HELD.of(function)));
        let seen = RefCell::new(Vec::new());
        detaching.close_links(|_| seen.borrow_mut().push(held()));
        let all = [true, true, false];
        assert_eq!(seen.take(), [all, all, [true, false, false], [true, false, false]]);
        assert_eq!(held(), [false; 3]);
    }

    #[test]
    fn one_of_many_does_not_pause() {
        let file = LockFile::new();
        let _attaching = Attaching::by(file.locks());
        let _others = PAUSED.map(|_| Detaching::by(file.locks(), Vec::new()));
        let mut detaching = Detaching::by(file.locks(), links(&[5]));
        detaching.close_links(|_| {});
        assert!(detaching.links.is_empty());
    }

    #[test]
    fn no_process_waits_without_a_lock_file() {
        let attaching = Attaching::by(Locks(None));
        let mut detaching = Detaching::by(Locks(None), links(&[5]));
        detaching.close_links(|_| {});
        attaching.end(&[5], |_| panic!("no other process"));
    }
}
