//! Processes that get into trouble, or have many children: `/init trouble KIND ARGUMENTS... [gated]`.
//!
//! | kind | what it does |
//! | --- | --- |
//! | `storm CHILDREN READS FILE` | many children and grandchildren read, some after an exec, by the first thread or
//! another one |
//! | `leaf READS FILE` | the program of such an exec |
//! | `waits THREADS FILE` | each thread makes one direct read |
//! | `leaves THREADS FILE` | the same, and at a second signal the process exits without waiting for them |
//! | `fails READS OFFSET FILE` | direct reads that must fail |
//! | `interrupted restart` or `once` | reads from a pipe without a writer, interrupted by signals |
//! | `fills FILE` | writes until three writes in a row have failed for lack of space |
//! | `refused FILE` | calls that a read-only file system refuses |
//! | `compat READS FILE` | reads by the table of 32-bit system calls, each followed by an fdatasync |
//! | `eats MEGABYTES FILE` | allocates all memory except this much, keeps it, and reads the file over and over |
//! | `limits` | prints how many descriptors and how much locked memory it may have |
//!
//! The gate is that of the workloads. Results are on standard error after `said`.

use crate::workload::{Gate, arguments, sys};
use nix::sys::resource::{Resource, getrlimit};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use std::ffi::CString;
use std::process::ExitCode;

const BLOCK: usize = 4096;
/// The size of a write of `fills`.
pub const PIECE: usize = 64 << 10;
/// The size of a read of the children, and of the 32-bit calls.
pub const SHORT: u64 = 77;
/// The calls of `refused`: opens to write, reads, writes.
pub const REFUSED: [u64; 3] = [5, 7, 3];

pub fn main() -> ExitCode {
    let (arguments, gated) = arguments();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let number = |text: &str| -> u64 { text.parse().unwrap_or_else(|e| panic!("{text}: {e}")) };
    let gate = Gate::new(gated);
    match *words.as_slice() {
        ["storm", children, reads, file] => storm(&gate, number(children), number(reads), file),
        ["leaf", reads, file] => read(open(file, libc::O_RDONLY), number(reads)),
        ["waits", threads, file] => waits(&gate, number(threads), file),
        ["leaves", threads, file] => leaves(&gate, number(threads), file),
        ["fails", reads, offset, file] => fails(&gate, number(reads), number(offset), file),
        ["interrupted", kind] => interrupted(&gate, kind == "restart"),
        ["fills", file] => fills(&gate, file),
        ["refused", file] => refused(&gate, file),
        ["compat", reads, file] => compat(&gate, number(reads), file),
        ["eats", left, file] => eats(number(left), file),
        ["limits"] => limits(),
        _ => panic!("nothing is done for {words:?}"),
    }
    ExitCode::SUCCESS
}

fn limits() {
    let limit = |resource| getrlimit(resource).expect("the kernel knows it").0;
    println!("{} {}", limit(Resource::RLIMIT_NOFILE), limit(Resource::RLIMIT_MEMLOCK));
}

fn path(name: &str) -> CString {
    CString::new(name).expect("no path has a NUL")
}

fn open_as_is(name: &str, flags: i32) -> i64 {
    let name = path(name);
    sys(
        libc::SYS_openat,
        &[libc::AT_FDCWD.into(), name.as_ptr() as i64, flags.into(), 0o644],
    )
}

fn open(name: &str, flags: i32) -> i64 {
    let file = open_as_is(name, flags);
    assert!(file >= 0, "{name}: errno {}", -file);
    file
}

fn read(file: i64, times: u64) {
    let mut bytes = [0_u8; SHORT as usize];
    for _ in 0..times {
        let given = sys(libc::SYS_pread64, &[file, bytes.as_mut_ptr() as i64, SHORT as i64, 0]);
        assert_eq!(given, SHORT as i64);
    }
}

/// Every third child executes another program, every sixth one from a thread other than its first.
fn storm(gate: &Gate, children: u64, reads: u64, file: &str) {
    let opened = open(file, libc::O_RDONLY);
    gate.wait();
    for child in 0..children {
        // SAFETY: this process has a single thread.
        match unsafe { libc::fork() } {
            -1 => panic!("fork: {}", std::io::Error::last_os_error()),
            0 if child % 6 == 3 => {
                let file = file.to_owned();
                let _ = std::thread::spawn(move || become_leaf(reads, &file)).join();
                unreachable!("the thread has become another program");
            }
            0 if child % 3 == 0 => become_leaf(reads, file),
            0 => {
                // SAFETY: as above.
                let grandchild = unsafe { libc::fork() };
                assert!(grandchild >= 0);
                read(opened, reads);
                // SAFETY: ends the child without running the parent's destructors.
                unsafe { libc::_exit(0) }
            }
            _ => {}
        }
    }
    loop {
        let mut status = 0;
        // SAFETY: writes to `status` only.
        match unsafe { libc::wait(&raw mut status) } {
            -1 => break,
            child => assert_eq!(status, 0, "child {child}"),
        }
    }
}

fn become_leaf(reads: u64, file: &str) {
    let words = ["/init", "trouble", "leaf", &reads.to_string(), file].map(path);
    let mut list: Vec<*const libc::c_char> = words.iter().map(|word| word.as_ptr()).collect();
    list.push(std::ptr::null());
    // SAFETY: terminated strings, in a list that ends with null.
    unsafe { libc::execv(list[0], list.as_ptr()) };
    panic!("execv: {}", std::io::Error::last_os_error());
}

/// The result of a direct read of a whole block.
fn direct_read(opened: i64, offset: u64) -> i64 {
    let memory = vec![0_u8; 2 * BLOCK];
    let place = memory.as_ptr() as usize + memory.as_ptr().align_offset(BLOCK);
    let offset = i64::try_from(offset).expect("it is on a disk");
    sys(libc::SYS_pread64, &[opened, place as i64, BLOCK as i64, offset])
}

fn waits(gate: &Gate, threads: u64, file: &str) {
    let opened = open(file, libc::O_RDONLY | libc::O_DIRECT);
    let ready = std::sync::Barrier::new(threads as usize + 1);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                ready.wait();
                assert_eq!(direct_read(opened, 0), BLOCK as i64);
            });
        }
        gate.wait();
        ready.wait();
    });
}

fn leaves(gate: &Gate, threads: u64, file: &str) {
    let opened = open(file, libc::O_RDONLY | libc::O_DIRECT);
    let ready = std::sync::Arc::new(std::sync::Barrier::new(threads as usize + 1));
    for _ in 0..threads {
        let ready = ready.clone();
        std::thread::spawn(move || {
            ready.wait();
            direct_read(opened, 0);
            // Unreachable: the process has exited.
            std::process::abort();
        });
    }
    gate.wait();
    ready.wait();
    gate.pass();
    // SAFETY: ends every thread, whatever it does.
    unsafe { libc::_exit(0) }
}

fn fails(gate: &Gate, reads: u64, offset: u64, file: &str) {
    let opened = open(file, libc::O_RDONLY | libc::O_DIRECT);
    gate.wait();
    for _ in 0..reads {
        let given = direct_read(opened, offset);
        assert!(given < 0, "read {given} bytes");
    }
}

extern "C" fn ignore(_: libc::c_int) {}

fn interrupted(gate: &Gate, restart: bool) {
    let flags = if restart { SaFlags::SA_RESTART } else { SaFlags::empty() };
    let action = SigAction::new(SigHandler::Handler(ignore), flags, SigSet::empty());
    // SAFETY: the handler does nothing.
    unsafe { sigaction(Signal::SIGUSR2, &action) }.expect("a handler can be set");
    let mut ends = [0_i32; 2];
    assert_eq!(sys(libc::SYS_pipe2, &[ends.as_mut_ptr() as i64, 0]), 0);
    gate.wait();
    let mut byte = 0_u8;
    loop {
        let given = sys(libc::SYS_read, &[ends[0].into(), &raw mut byte as i64, 1]);
        assert_eq!((given, restart), (-i64::from(libc::EINTR), false));
    }
}

fn fills(gate: &Gate, file: &str) {
    let opened = open(file, libc::O_WRONLY | libc::O_CREAT);
    let piece = vec![1_u8; PIECE];
    gate.wait();
    let (mut calls, mut bytes, mut errors) = (0, 0_i64, 0);
    while errors < 3 {
        let given = sys(
            libc::SYS_pwrite64,
            &[opened, piece.as_ptr() as i64, PIECE as i64, bytes],
        );
        calls += 1;
        if given == -i64::from(libc::ENOSPC) {
            errors += 1;
        } else {
            assert!(given > 0, "errno {}", -given);
            bytes += given;
        }
    }
    eprintln!("said {calls} {bytes} {errors}");
}

fn refused(gate: &Gate, file: &str) {
    let opened = open(file, libc::O_RDONLY);
    let byte = [1_u8];
    gate.wait();
    for _ in 0..REFUSED[0] {
        assert_eq!(open_as_is(file, libc::O_RDWR), -i64::from(libc::EROFS));
    }
    read(opened, REFUSED[1]);
    for _ in 0..REFUSED[2] {
        let given = sys(libc::SYS_pwrite64, &[opened, byte.as_ptr() as i64, 1, 0]);
        assert_eq!(given, -i64::from(libc::EBADF));
    }
}

/// A 32-bit address.
#[cfg(target_arch = "x86_64")]
fn compat(gate: &Gate, times: u64, file: &str) {
    /// In arch/x86/entry/syscalls/syscall_32.tbl.
    const READ: i64 = 3;
    const FDATASYNC: i64 = 148;
    let opened = open(file, libc::O_RDONLY);
    let (protection, flags) = (
        libc::PROT_READ | libc::PROT_WRITE,
        libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_32BIT,
    );
    let place = sys(
        libc::SYS_mmap,
        &[0, BLOCK as i64, protection.into(), flags.into(), -1, 0],
    );
    assert!(place > 0, "errno {}", -place);
    gate.wait();
    let call = |number: i64| {
        let mut answer = number;
        // SAFETY: the call writes to the mapping only; rbx, which the compiler reserves, is restored.
        unsafe {
            std::arch::asm!(
                "xchg rbx, {file}",
                "int 0x80",
                "xchg rbx, {file}",
                file = inout(reg) opened => _,
                inout("rax") answer,
                in("rcx") place,
                in("rdx") 1,
                out("r8") _, out("r9") _, out("r10") _, out("r11") _,
            );
        }
        answer
    };
    for _ in 0..times {
        assert_eq!((call(READ), call(FDATASYNC)), (1, 0));
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn compat(_: &Gate, _: u64, _: &str) {
    panic!("this machine has another table");
}

/// Waits until the kernel has only this many megabytes left.
fn eats(left: u64, file: &str) {
    const BITE: usize = 1 << 20;
    let available = || -> u64 {
        let text = std::fs::read_to_string("/proc/meminfo").expect("/proc is mounted");
        let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
        let words = line.and_then(|line| line.split_whitespace().next());
        words
            .and_then(|kilobytes| kilobytes.parse().ok())
            .expect("the kernel reports it")
    };
    let mut eaten: Vec<Vec<u8>> = Vec::new();
    while available() > left << 10 {
        eaten.push(vec![1; BITE]);
    }
    eprintln!("ready {}", std::process::id());
    loop {
        let mut file = std::fs::File::open(file).expect("the file is there");
        std::io::copy(&mut file, &mut std::io::sink()).expect("it can be read");
        std::hint::black_box(&eaten);
    }
}
