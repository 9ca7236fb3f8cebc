//! The file of a request whose pages belong to no file: that of the access that bypasses the page cache and submitted it.

use std::collections::HashMap;

use super::ids::Origin;
use super::record::{AsyncCall, Call, Request};

/// An access that bypasses the page cache, while its thread may submit its requests. `F`: how its file is named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectAccess<F> {
    pub by: Submitter,
    pub file: F,
    pub begin_ns: u64,
    pub end_ns: u64,
}

/// Such accesses, in the order of their begins.
#[derive(Debug)]
pub struct DirectAccesses<F> {
    /// The latest one of each thread.
    latest: HashMap<u32, DirectAccess<F>>,
    /// Those that workers attempt, or may.
    attempted: Vec<DirectAccess<F>>,
}

impl<F> Default for DirectAccesses<F> {
    fn default() -> Self {
        Self {
            latest: HashMap::new(),
            attempted: Vec::new(),
        }
    }
}

impl<F: Copy + PartialEq> DirectAccesses<F> {
    /// An access begins.
    pub fn note(&mut self, access: DirectAccess<F>) {
        self.latest.insert(access.by.tid, access);
        if access.by.is_by_worker {
            self.attempted.retain(|earlier| earlier.end_ns >= access.begin_ns);
            self.attempted.push(access);
        }
    }

    /// The file of the access that submitted a request. That of a worker is not known: it is on the file of all that were
    /// attempted then. `None`: it is of none, or of several.
    #[must_use]
    pub fn file_of(&self, at_ns: u64, by: Submitter) -> Option<F> {
        if by.tid == 0 {
            return None;
        }
        let own = self.latest.get(&by.tid).filter(|access| at_ns <= access.end_ns);
        if own.is_some() || !by.is_by_worker {
            return own.map(|access| access.file);
        }
        let is_its = |access: &&DirectAccess<F>| at_ns <= access.end_ns && [0, access.by.pid].contains(&by.pid);
        let mut files = self.attempted.iter().filter(is_its).map(|access| access.file);
        let file = files.next()?;
        files.all(|other| other == file).then_some(file)
    }
}

/// Who submits requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Submitter {
    /// 0: unknown.
    pub pid: u32,
    /// 0: unknown, or not on behalf of an access: metadata is of no file, even if a call on one submits it.
    pub tid: u32,
    /// Of an access: another thread than its own has attempted it, a worker of io_uring. Of a request: such a thread may
    /// have submitted it.
    pub is_by_worker: bool,
}

impl Submitter {
    /// Of the requests of a call.
    #[must_use]
    pub fn of_call(call: &Call) -> Self {
        Self {
            pid: call.pid,
            tid: call.tid,
            is_by_worker: false,
        }
    }

    /// Of the requests of an asynchronous call.
    #[must_use]
    pub fn of_async(call: &AsyncCall) -> Self {
        Self {
            pid: call.pid,
            tid: call.tid,
            is_by_worker: call.is_direct && call.attempts > 1,
        }
    }

    /// Of a request.
    #[must_use]
    pub fn of_request(request: &Request) -> Self {
        Self {
            pid: request.pid,
            tid: if request.is_meta { 0 } else { request.tid },
            is_by_worker: request.origin == Origin::Asynchronous,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PID: u32 = 7;

    fn access(tid: u32, file: char, span: (u64, u64), is_by_worker: bool) -> DirectAccess<char> {
        DirectAccess {
            by: by(tid, is_by_worker),
            file,
            begin_ns: span.0,
            end_ns: span.1,
        }
    }

    fn by(tid: u32, is_by_worker: bool) -> Submitter {
        Submitter {
            pid: PID,
            tid,
            is_by_worker,
        }
    }

    #[test]
    fn a_request_is_on_the_file_of_the_access_that_its_thread_is_in() {
        let mut accesses = DirectAccesses::default();
        accesses.note(access(1, 'a', (10, 20), false));
        accesses.note(access(2, 'b', (15, 40), false));
        assert_eq!(accesses.file_of(20, by(1, false)), Some('a'));
        assert_eq!(accesses.file_of(21, by(1, false)), None);
        assert_eq!(accesses.file_of(21, by(2, true)), Some('b'));
        assert_eq!(accesses.file_of(16, by(0, false)), None);
        accesses.note(access(1, 'c', (30, 35), false));
        assert_eq!(accesses.file_of(31, by(1, false)), Some('c'));
    }

    #[test]
    fn one_of_a_worker_is_on_the_only_file_that_is_attempted_then() {
        let mut accesses = DirectAccesses::default();
        accesses.note(access(1, 'a', (10, 30), true));
        assert_eq!(accesses.file_of(12, by(9, true)), Some('a'));
        assert_eq!(accesses.file_of(12, by(9, false)), None);
        let other_process = Submitter { pid: 8, ..by(9, true) };
        assert_eq!(accesses.file_of(12, other_process), None);
        assert_eq!(
            accesses.file_of(
                12,
                Submitter {
                    pid: 0,
                    ..other_process
                }
            ),
            Some('a')
        );
        accesses.note(access(2, 'b', (20, 50), true));
        assert_eq!(accesses.file_of(25, by(9, true)), None);
        assert_eq!(accesses.file_of(40, by(9, true)), Some('b'));
    }
}
