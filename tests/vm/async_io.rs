//! Asynchronous reads, writes and fsyncs of known counts, by io_uring and libaio, in their raw system calls.
//!
//! `/init async FILE KIND:COUNT... [gated]` does so many requests of each kind, one kind after the other; the gate is
//! that of the workloads. A request that does not come to what it should is a panic.

use crate::workload::{Gate, arguments, sys};
use std::ffi::CString;
use std::process::ExitCode;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};

/// What a request moves. All are inside the first `BLOCKS` of them.
pub const BLOCK: u32 = 4096;
pub const BLOCKS: u64 = 16;
/// Requests under way at once.
pub const DEPTH: u32 = 32;

const READ: u8 = 22;
const WRITE: u8 = 23;
const FSYNC: u8 = 3;
/// `IOSQE_ASYNC`: a worker thread does it from the start.
const FORCED: u8 = 1 << 4;
/// `IORING_SETUP_SQPOLL`: a kernel thread submits.
const SQPOLL: u32 = 1 << 1;
const GETEVENTS: i64 = 1;
const WAKEUP: i64 = 1 << 1;
/// `IORING_SQ_NEED_WAKEUP`
const NEEDS_WAKEUP: u32 = 1;
const AIO_READ: u16 = 0;
const AIO_WRITE: u16 = 1;

pub fn main() -> ExitCode {
    let (arguments, gated) = arguments();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [file, steps @ ..] = words.as_slice() else {
        panic!("no file in {words:?}");
    };
    let gate = Gate::new(gated);
    let steps: Vec<(Maker, u32)> = steps.iter().map(|step| maker(file, step)).collect();
    gate.wait();
    for (mut maker, count) in steps {
        maker.make(count);
    }
    ExitCode::SUCCESS
}

enum Maker {
    Uring(Uring, u8, u8, i32),
    Aio(Aio, u16, i32),
}

fn maker(file: &str, step: &str) -> (Maker, u32) {
    let (kind, count) = step.split_once(':').expect("a kind and a count");
    let count = count.parse().expect("a count");
    let (direct, cached) = (libc::O_DIRECT, 0);
    let open = |flags| {
        let path = CString::new(file).expect("no NUL");
        // SAFETY: the path is valid for the call.
        let file = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | flags) };
        assert!(file >= 0, "{}", std::io::Error::last_os_error());
        file
    };
    let uring = |code, flags, setup, file| Maker::Uring(Uring::new(setup), code, flags, open(file));
    let aio = |code, file| Maker::Aio(Aio::new(), code, open(file));
    let maker = match kind {
        "uring-direct" => uring(READ, 0, 0, direct),
        "uring-cached" => uring(READ, 0, 0, cached),
        "uring-forced" => uring(READ, FORCED, 0, direct),
        "uring-forced-cached" => uring(READ, FORCED, 0, cached),
        "uring-sqpoll" => uring(READ, 0, SQPOLL, direct),
        "uring-write" => uring(WRITE, 0, 0, direct),
        "uring-write-cached" => uring(WRITE, 0, 0, cached),
        "uring-fsync" => uring(FSYNC, 0, 0, cached),
        "aio-direct" => aio(AIO_READ, direct),
        "aio-cached" => aio(AIO_READ, cached),
        "aio-write" => aio(AIO_WRITE, direct),
        other => panic!("no requests are {other:?}"),
    };
    (maker, count)
}

/// Memory for requests to work on, for as long as the process lives.
fn buffer() -> u64 {
    let memory: &mut [u8] = Box::leak(vec![b'a'; 2 * BLOCK as usize].into_boxed_slice());
    let aligned = memory.as_ptr().align_offset(BLOCK as usize);
    memory.as_ptr() as u64 + aligned as u64
}

impl Maker {
    /// Keeps `DEPTH` requests under way until all are done.
    fn make(&mut self, count: u32) {
        let buffer = buffer();
        let (mut begun, mut ended) = (0, 0);
        while ended < count {
            while begun < count && begun - ended < DEPTH {
                let at = u64::from(begun) % BLOCKS * u64::from(BLOCK);
                match self {
                    Self::Uring(ring, code, flags, file) => ring.put(*code, *flags, *file, buffer, at),
                    Self::Aio(aio, code, file) => aio.put(*code, *file, buffer, at),
                }
                begun += 1;
            }
            ended += match self {
                Self::Uring(ring, code, ..) => {
                    let expected = if *code == FSYNC { 0 } else { BLOCK as i32 };
                    ring.submit_and_reap(expected)
                }
                Self::Aio(aio, ..) => aio.submit_and_reap(),
            };
        }
    }
}

/// `struct io_uring_sqe`, as far as it is used.
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

/// `struct io_uring_params`: plain numbers all through.
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
    /// Put into the ring and not told to the kernel yet.
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
        // One mapping has both rings (IORING_FEAT_SINGLE_MMAP, 5.4).
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
        // SAFETY: the offsets are the kernel's, inside the mapping, of aligned words that live as long as the process.
        unsafe { &*self.ring.add(at as usize).cast::<AtomicU32>() }
    }

    fn put(&mut self, opcode: u8, flags: u8, fd: i32, address: u64, offset: u64) {
        let tail = self.word(self.parameters.sq[1]);
        let place = tail.load(Ordering::Relaxed) & self.word(self.parameters.sq[2]).load(Ordering::Relaxed);
        let moves = opcode != FSYNC;
        let submission = Submission {
            opcode,
            flags,
            fd,
            offset: if moves { offset } else { 0 },
            address: if moves { address } else { 0 },
            length: if moves { BLOCK } else { 0 },
            ..Submission::default()
        };
        // SAFETY: as many are under way as there is room for, so the kernel has read what was there.
        unsafe { self.submissions.add(place as usize).write(submission) };
        self.word(self.parameters.sq[6] + 4 * place)
            .store(place, Ordering::Relaxed);
        tail.fetch_add(1, Ordering::Release);
        self.new += 1;
    }

    /// Answers how many requests are done, one at least.
    fn submit_and_reap(&mut self, expected: i32) -> u32 {
        let new = std::mem::take(&mut self.new);
        let wakeup = self.polled && self.word(self.parameters.sq[4]).load(Ordering::SeqCst) & NEEDS_WAKEUP != 0;
        let flags = GETEVENTS | if wakeup { WAKEUP } else { 0 };
        let submitted = sys(libc::SYS_io_uring_enter, &[self.fd, new.into(), 1, flags, 0, 0]);
        assert!(
            submitted == i64::from(new) || self.polled && submitted >= 0,
            "io_uring_enter: {submitted}"
        );
        let (head, tail) = (self.word(self.parameters.cq[0]), self.word(self.parameters.cq[1]));
        let mask = self.word(self.parameters.cq[2]).load(Ordering::Relaxed);
        let mut done = 0;
        let mut next = head.load(Ordering::Relaxed);
        while next != tail.load(Ordering::Acquire) {
            let result = self.word(self.parameters.cq[5] + 16 * (next & mask) + 8);
            assert_eq!(
                result.load(Ordering::Relaxed) as i32,
                expected,
                "what a request came to"
            );
            next += 1;
            done += 1;
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
