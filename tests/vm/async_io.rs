//! Asynchronous reads, writes and fsyncs of known counts, by io_uring and libaio, in their raw system calls.
//!
//! `/init async FILE KIND:COUNT... [gated]` makes this many requests of each kind, one kind after the other; the gate
//! is that of the workloads. An unexpected result is a panic. For kinds with several possible results, a line `said
//! KIND: N failed` on standard error has the number of requests that ended with an error.
//!
//! | kind | requests |
//! | --- | --- |
//! | `uring-direct`, `uring-cached` | reads past the page cache, and by it |
//! | `uring-write`, `uring-write-cached`, `uring-fsync` | the same for writes; fsyncs |
//! | `...-fixed` | into a buffer that was registered (`IORING_REGISTER_BUFFERS`) |
//! | `uring-file` | of a file that was registered (`IORING_REGISTER_FILES`) |
//! | `uring-forced`, `uring-sqpoll` | by a worker from the start; submitted by a kernel thread |
//! | `uring-polled` | whose completion is polled for (`IORING_SETUP_IOPOLL`) |
//! | `uring-linked` | each second one begins after the one before it |
//! | `uring-broken-links` | the first of two fails, so that the other one is never begun |
//! | `uring-nowait` | direct with `RWF_NOWAIT`: the kernel may refuse with `EAGAIN` whatever it could only do by waiting |
//! | `uring-nowait-cached` | with `RWF_NOWAIT`, of pages that are not in memory: some fail with `EAGAIN` |
//! | `uring-cancelled` | writes that wait for one before them, and are cancelled; that one is not among COUNT |
//! | `uring-abandoned` | reads of pages that are not in memory; at a second signal the process exits without waiting for them |
//! | `aio-direct`, `aio-cached`, `aio-write` | by libaio |

use crate::disks::in_flight;
use crate::guest::wait_for;
use crate::workload::{Gate, arguments, sys};
use std::ffi::CString;
use std::process::ExitCode;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The size of a request. All are within the first `BLOCKS` of these.
pub const BLOCK: u32 = 4096;
pub const BLOCKS: u64 = 16;
/// Requests under way at once.
pub const DEPTH: u32 = 32;

const FSYNC: u8 = 3;
const READ_FIXED: u8 = 4;
const WRITE_FIXED: u8 = 5;
const CANCEL: u8 = 14;
const READ: u8 = 22;
const WRITE: u8 = 23;
/// `IOSQE_FIXED_FILE`: the descriptor is an index into the registered files.
const REGISTERED_FILE: u8 = 1;
/// `IOSQE_IO_LINK`: the next request begins when this one has ended, and is cancelled if it has failed.
const LINKED: u8 = 1 << 2;
/// `IOSQE_ASYNC`: a worker thread executes it from the start.
const FORCED: u8 = 1 << 4;
/// `IORING_SETUP_IOPOLL`
const POLLED: u32 = 1;
/// `IORING_SETUP_SQPOLL`: a kernel thread submits.
const SQPOLL: u32 = 1 << 1;
/// `RWF_NOWAIT`
const NOWAIT: u32 = 8;
const REGISTER_BUFFERS: i64 = 0;
const REGISTER_FILES: i64 = 2;
const GETEVENTS: i64 = 1;
const WAKEUP: i64 = 1 << 1;
/// `IORING_SQ_NEED_WAKEUP`
const NEEDS_WAKEUP: u32 = 1;
const AIO_READ: u16 = 0;
const AIO_WRITE: u16 = 1;
const MOVED: i32 = BLOCK as i32;
/// The disk of the file whose writes wait for each other.
pub const DISK: &str = "nullb0";
const BOUND: Duration = Duration::from_secs(60);

pub fn main() -> ExitCode {
    let (arguments, gated) = arguments();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [file, steps @ ..] = words.as_slice() else {
        panic!("no file in {words:?}");
    };
    let gate = Gate::new(gated);
    let steps: Vec<Step> = steps.iter().map(|step| Step::new(file, step)).collect();
    gate.wait();
    for Step { kind, mut maker, count } in steps {
        let failed = maker.make(count, &gate);
        if maker.may_fail() {
            eprintln!("said {kind}: {failed} failed");
        }
    }
    ExitCode::SUCCESS
}

/// A number of requests of one kind.
struct Step {
    kind: String,
    maker: Maker,
    count: u32,
}

/// A kind of io_uring request, without its buffer and offset.
#[derive(Clone, Copy)]
struct Request {
    code: u8,
    flags: u8,
    rw_flags: u32,
    /// How the file is opened.
    open: i32,
    setup: u32,
    /// Its possible results.
    results: &'static [i32],
}

const READS: Request = Request {
    code: READ,
    flags: 0,
    rw_flags: 0,
    open: 0,
    setup: 0,
    results: &[MOVED],
};
const DIRECT_READS: Request = Request {
    open: libc::O_DIRECT,
    ..READS
};
const WRITES: Request = Request { code: WRITE, ..READS };
const DIRECT_WRITES: Request = Request {
    open: libc::O_DIRECT,
    ..WRITES
};
/// They wait for the disk, one after another: a file is written by one worker at a time.
const SLOW_WRITES: Request = Request {
    open: libc::O_DSYNC,
    results: &[MOVED, -libc::ECANCELED],
    ..WRITES
};

enum Maker {
    Uring(Uring, Request, i32),
    /// The first of two has an invalid descriptor.
    BrokenLinks(Uring, Request, i32),
    Cancelled(Uring, Request, i32),
    Abandoned(Uring, Request, i32),
    Aio(Aio, u16, i32),
}

impl Step {
    fn new(file: &str, step: &str) -> Self {
        let (kind, count) = step.split_once(':').expect("a kind and a count");
        Self {
            kind: kind.to_owned(),
            maker: maker(file, kind),
            count: count.parse().expect("a count"),
        }
    }
}

fn maker(file: &str, kind: &str) -> Maker {
    let open = |flags| {
        let path = CString::new(file).expect("no NUL");
        // SAFETY: the path is valid for the call.
        let file = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | flags) };
        assert!(file >= 0, "{}", std::io::Error::last_os_error());
        file
    };
    let aio = |code, flags| Maker::Aio(Aio::new(), code, open(flags));
    match kind {
        "aio-direct" => return aio(AIO_READ, libc::O_DIRECT),
        "aio-cached" => return aio(AIO_READ, 0),
        "aio-write" => return aio(AIO_WRITE, libc::O_DIRECT),
        _ => {}
    }
    let request = request(kind);
    let (ring, file) = (Uring::new(request.setup), open(request.open));
    if request.flags & REGISTERED_FILE != 0 {
        ring.register(REGISTER_FILES, &raw const file as i64);
    }
    let file = if request.flags & REGISTERED_FILE != 0 { 0 } else { file };
    match kind {
        "uring-broken-links" => Maker::BrokenLinks(ring, request, file),
        "uring-cancelled" => Maker::Cancelled(ring, request, file),
        "uring-abandoned" => Maker::Abandoned(ring, request, file),
        _ => Maker::Uring(ring, request, file),
    }
}

/// The parameters of an io_uring instance.
fn request(kind: &str) -> Request {
    match kind {
        "uring-direct" => DIRECT_READS,
        "uring-cached" => READS,
        "uring-write" => DIRECT_WRITES,
        "uring-write-cached" => WRITES,
        "uring-fixed" => Request {
            code: READ_FIXED,
            ..DIRECT_READS
        },
        "uring-cached-fixed" => Request {
            code: READ_FIXED,
            ..READS
        },
        "uring-write-fixed" => Request {
            code: WRITE_FIXED,
            ..DIRECT_WRITES
        },
        "uring-write-cached-fixed" => Request {
            code: WRITE_FIXED,
            ..WRITES
        },
        "uring-file" => Request {
            flags: REGISTERED_FILE,
            ..DIRECT_READS
        },
        "uring-forced" => Request {
            flags: FORCED,
            ..DIRECT_READS
        },
        "uring-forced-cached" => Request { flags: FORCED, ..READS },
        "uring-sqpoll" => Request {
            setup: SQPOLL,
            ..DIRECT_READS
        },
        "uring-polled" => Request {
            setup: POLLED,
            ..DIRECT_READS
        },
        "uring-linked" => Request {
            flags: LINKED,
            ..DIRECT_READS
        },
        "uring-broken-links" => Request {
            flags: LINKED,
            results: &[-libc::EINVAL, -libc::ECANCELED],
            ..DIRECT_READS
        },
        "uring-nowait" => Request {
            rw_flags: NOWAIT,
            results: &[MOVED, -libc::EAGAIN],
            ..DIRECT_READS
        },
        "uring-nowait-cached" => Request {
            rw_flags: NOWAIT,
            results: &[MOVED, -libc::EAGAIN],
            ..READS
        },
        "uring-cancelled" => SLOW_WRITES,
        "uring-abandoned" => READS,
        "uring-fsync" => Request {
            code: FSYNC,
            results: &[0],
            ..READS
        },
        other => panic!("no requests are {other:?}"),
    }
}

/// A buffer for requests, never freed.
fn buffer() -> u64 {
    let memory: &mut [u8] = Box::leak(vec![b'a'; 2 * BLOCK as usize].into_boxed_slice());
    let aligned = memory.as_ptr().align_offset(BLOCK as usize);
    memory.as_ptr() as u64 + aligned as u64
}

impl Maker {
    fn may_fail(&self) -> bool {
        match self {
            Self::Uring(_, request, _)
            | Self::BrokenLinks(_, request, _)
            | Self::Cancelled(_, request, _)
            | Self::Abandoned(_, request, _) => request.results.len() > 1,
            Self::Aio(..) => false,
        }
    }

    /// Makes this many requests, and returns how many of them failed.
    fn make(&mut self, count: u32, gate: &Gate) -> u32 {
        let buffer = buffer();
        match self {
            Self::Cancelled(ring, request, file) => cancel(ring, *request, *file, buffer, count),
            Self::Abandoned(ring, request, file) => {
                for number in 0..count {
                    ring.put(request, *file, buffer, u64::from(number) * u64::from(BLOCK), number);
                }
                ring.submit(0);
                gate.pass();
                0
            }
            _ => self.make_all(count, buffer),
        }
    }

    /// Keeps `DEPTH` requests under way until all have completed.
    fn make_all(&mut self, count: u32, buffer: u64) -> u32 {
        if let Self::Uring(ring, request, _) = self
            && matches!(request.code, READ_FIXED | WRITE_FIXED)
        {
            let vector = libc::iovec {
                iov_base: buffer as *mut libc::c_void,
                iov_len: BLOCK as usize,
            };
            ring.register(REGISTER_BUFFERS, &raw const vector as i64);
        }
        let (mut begun, mut ended, mut failed) = (0, 0, 0);
        while ended < count {
            // Both of a pair are submitted together: a link does not extend to the next submission.
            while begun < count && (begun % 2 == 1 || begun - ended + 2 <= DEPTH) {
                let at = u64::from(begun) % BLOCKS * u64::from(BLOCK);
                match self {
                    Self::Uring(ring, request, file) => ring.put(&request.nth(begun), *file, buffer, at, begun),
                    // A direct read into an unaligned address fails.
                    Self::BrokenLinks(ring, request, file) => {
                        ring.put(
                            &request.nth(begun),
                            *file,
                            buffer + u64::from(begun % 2 == 0),
                            at,
                            begun,
                        );
                    }
                    Self::Aio(aio, code, file) => aio.put(*code, *file, buffer, at),
                    Self::Cancelled(..) | Self::Abandoned(..) => unreachable!("these are not repeated"),
                }
                begun += 1;
            }
            match self {
                Self::Uring(ring, request, _) | Self::BrokenLinks(ring, request, _) => {
                    ring.submit(1);
                    for (_, result) in ring.reap() {
                        assert!(request.results.contains(&result), "a request came to {result}");
                        ended += 1;
                        failed += u32::from(result < 0);
                    }
                }
                Self::Aio(aio, ..) => ended += aio.submit_and_reap(),
                Self::Cancelled(..) | Self::Abandoned(..) => unreachable!("these are not repeated"),
            }
        }
        failed
    }
}

impl Request {
    /// Of linked requests, each second one is the end of a chain.
    fn nth(&self, number: u32) -> Self {
        let ends = if number % 2 == 1 { LINKED } else { 0 };
        Self {
            flags: self.flags & !ends,
            ..*self
        }
    }
}

/// A write that waits for the disk, and writes that wait for it. One worker writes a file at a time, and takes all
/// requests that are queued when it begins; so these are submitted after it has begun.
fn put_in_a_row(ring: &mut Uring, request: Request, file: i32, buffer: u64, count: u32) {
    assert!(2 * count < DEPTH, "all are in the ring at once");
    for number in 0..=count {
        ring.put(&request, file, buffer, u64::from(number) * u64::from(BLOCK), number);
        if number == 0 {
            ring.submit(0);
            wait_for("the first write to be at the disk", BOUND, || in_flight(DISK) > 0).expect("a worker writes");
        }
    }
    ring.submit(0);
}

/// Returns how many could be cancelled: the disk may have been faster.
fn cancel(ring: &mut Uring, request: Request, file: i32, buffer: u64, count: u32) -> u32 {
    put_in_a_row(ring, request, file, buffer, count);
    for number in 1..=count {
        ring.put(&Request { code: CANCEL, ..READS }, -1, number.into(), 0, DEPTH + number);
    }
    let (mut ended, mut cancelled) = (0, 0);
    while ended < 2 * count + 1 {
        ring.submit(1);
        for (number, result) in ring.reap() {
            ended += 1;
            if number < DEPTH {
                assert!(request.results.contains(&result), "write {number} came to {result}");
                cancelled += u32::from(result < 0);
            }
        }
    }
    cancelled
}

/// The used part of `struct io_uring_sqe`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Submission {
    opcode: u8,
    flags: u8,
    ioprio: u16,
    fd: i32,
    offset: u64,
    address: u64,
    length: u32,
    rw_flags: u32,
    user_data: u64,
    rest: [u64; 3],
}

/// `struct io_uring_params`, made of integers.
#[derive(Default)]
#[repr(C)]
struct Parameters {
    sq_entries: u32,
    cq_entries: u32,
    flags: u32,
    sq_thread_cpu: u32,
    sq_thread_idle: u32,
    features: u32,
    wq_fd: u32,
    reserved: [u32; 3],
    /// head, tail, ring_mask, ring_entries, flags, dropped, array, and three more.
    sq: [u32; 10],
    /// head, tail, ring_mask, ring_entries, overflow, cqes, and four more.
    cq: [u32; 10],
}

struct Uring {
    fd: i64,
    polled: bool,
    ring: *mut u8,
    parameters: Parameters,
    submissions: *mut Submission,
    /// Entries in the ring that have not been submitted.
    new: u32,
}

impl Uring {
    const SUBMISSIONS_AT: i64 = 0x1000_0000;

    fn new(setup: u32) -> Self {
        let mut parameters = Parameters {
            flags: setup,
            sq_thread_idle: 1000,
            ..Parameters::default()
        };
        let place = &raw mut parameters as i64;
        let fd = sys(libc::SYS_io_uring_setup, &[DEPTH.into(), place]);
        assert!(fd >= 0, "io_uring_setup: errno {}", -fd);
        let map = |size: usize, at: i64| {
            let (protection, flags) = (
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_POPULATE,
            );
            // SAFETY: a new mapping of a descriptor that is open.
            let place = unsafe { libc::mmap(ptr::null_mut(), size, protection, flags, fd as i32, at) };
            assert_ne!(place, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
            place.cast::<u8>()
        };
        // A single mapping contains both rings (IORING_FEAT_SINGLE_MMAP, 5.4).
        let size = (parameters.sq[6] + parameters.sq_entries * 4).max(parameters.cq[5] + parameters.cq_entries * 16);
        Self {
            fd,
            polled: setup & SQPOLL != 0,
            ring: map(size as usize, 0),
            submissions: map(
                parameters.sq_entries as usize * size_of::<Submission>(),
                Self::SUBMISSIONS_AT,
            )
            .cast(),
            parameters,
            new: 0,
        }
    }

    fn word(&self, at: u32) -> &AtomicU32 {
        // SAFETY: the offsets are the kernel's, within the mapping, of aligned words that are never unmapped.
        unsafe { &*self.ring.add(at as usize).cast::<AtomicU32>() }
    }

    fn register(&self, what: i64, first: i64) {
        let registered = sys(libc::SYS_io_uring_register, &[self.fd, what, first, 1]);
        assert_eq!(registered, 0, "io_uring_register");
    }

    /// `address`: the buffer, or the number of the request to cancel.
    fn put(&mut self, request: &Request, fd: i32, address: u64, offset: u64, number: u32) {
        let tail = self.word(self.parameters.sq[1]);
        let place = tail.load(Ordering::Relaxed) & self.word(self.parameters.sq[2]).load(Ordering::Relaxed);
        let moves = !matches!(request.code, FSYNC | CANCEL);
        let submission = Submission {
            opcode: request.code,
            flags: request.flags,
            fd,
            offset: if moves { offset } else { 0 },
            address: if request.code == FSYNC { 0 } else { address },
            length: if moves { BLOCK } else { 0 },
            rw_flags: request.rw_flags,
            user_data: number.into(),
            ..Submission::default()
        };
        // SAFETY: there is room for as many as are under way, so the kernel has read the previous entry.
        unsafe { self.submissions.add(place as usize).write(submission) };
        self.word(self.parameters.sq[6] + 4 * place)
            .store(place, Ordering::Relaxed);
        tail.fetch_add(1, Ordering::Release);
        self.new += 1;
    }

    /// Submits the entries, and waits for this many completions.
    fn submit(&mut self, wait_for: u32) {
        let new = std::mem::take(&mut self.new);
        let wakeup = self.polled && self.word(self.parameters.sq[4]).load(Ordering::SeqCst) & NEEDS_WAKEUP != 0;
        let flags = if wait_for > 0 { GETEVENTS } else { 0 } | if wakeup { WAKEUP } else { 0 };
        let arguments = [self.fd, new.into(), wait_for.into(), flags, 0, 0];
        let submitted = sys(libc::SYS_io_uring_enter, &arguments);
        assert!(
            submitted == i64::from(new) || self.polled && submitted >= 0,
            "io_uring_enter: {submitted}"
        );
    }

    /// The numbers of completed requests, with their results.
    fn reap(&mut self) -> Vec<(u32, i32)> {
        let (head, tail) = (self.word(self.parameters.cq[0]), self.word(self.parameters.cq[1]));
        let mask = self.word(self.parameters.cq[2]).load(Ordering::Relaxed);
        let mut done = Vec::new();
        let mut next = head.load(Ordering::Relaxed);
        while next != tail.load(Ordering::Acquire) {
            let at = self.parameters.cq[5] + 16 * (next & mask);
            let [number, result] = [at, at + 8].map(|at| self.word(at).load(Ordering::Relaxed));
            done.push((number, result as i32));
            next += 1;
        }
        head.store(next, Ordering::Release);
        done
    }
}

/// `struct iocb`
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: u16,
    priority: i16,
    fd: u32,
    address: u64,
    length: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_fd: u32,
}

/// `struct io_event`
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Event {
    data: u64,
    object: u64,
    result: i64,
    result2: i64,
}

struct Aio {
    context: u64,
    new: Vec<Iocb>,
}

impl Aio {
    fn new() -> Self {
        let mut context = 0u64;
        let made = sys(libc::SYS_io_setup, &[DEPTH.into(), &raw mut context as i64]);
        assert_eq!(made, 0, "io_setup");
        Self {
            context,
            new: Vec::with_capacity(DEPTH as usize),
        }
    }

    fn put(&mut self, opcode: u16, fd: i32, address: u64, offset: u64) {
        self.new.push(Iocb {
            opcode,
            fd: fd as u32,
            address,
            length: BLOCK.into(),
            offset: offset as i64,
            ..Iocb::default()
        });
    }

    fn submit_and_reap(&mut self) -> u32 {
        let mut new: Vec<*mut Iocb> = self.new.iter_mut().map(ptr::from_mut).collect();
        let submitted = sys(
            libc::SYS_io_submit,
            &[self.context as i64, new.len() as i64, new.as_mut_ptr() as i64],
        );
        assert_eq!(submitted, new.len() as i64, "io_submit");
        // The kernel has copied them.
        self.new.clear();
        let mut events = [Event::default(); DEPTH as usize];
        let done = sys(
            libc::SYS_io_getevents,
            &[self.context as i64, 1, DEPTH.into(), events.as_mut_ptr() as i64, 0],
        );
        assert!(done > 0, "io_getevents: {done}");
        for event in &events[..done as usize] {
            assert_eq!(event.result, i64::from(BLOCK), "what a request came to");
        }
        done as u32
    }
}
