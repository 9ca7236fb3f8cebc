//! Scenes for the whole stack: processes whose time is spent in one known row.
//!
//! `/init scene NAME FILE COUNT [gated]`; the gate is that of the workloads. A call that fails is a panic.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::process::ExitCode;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::disks::in_flight;
use crate::peers;
use crate::workload::{Gate, arguments};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

/// The size of a small call, and the alignment of direct ones.
pub const BLOCK: usize = 4096;
/// The size of a read among busy loops: it takes longer than it takes a kernel to preempt it, even if that is done at the
/// second tick of 4 ms (`PREEMPT_LAZY`).
pub const LARGE: usize = 32 << 20;
/// Busy loops beside a reader.
const BUSY: u32 = 4;

pub fn main() -> ExitCode {
    let (arguments, gated) = arguments();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [name, file, count] = *words.as_slice() else {
        panic!("a scene does not understand {words:?}");
    };
    let count = count.parse().unwrap_or_else(|e| panic!("{count}: {e}"));
    let gate = Gate::new(gated);
    let gate = || gate.wait();
    match name {
        "cached" => cached(file, count, gate),
        "direct" => direct(file, 1, count, gate),
        "sequential" => sequential(file, count, gate),
        "crowd" => direct(file, 16, count, gate),
        "commits" => commits(file, count, gate),
        "cold" => cold(file, gate),
        "writers" => writers(file, gate),
        "busy" => busy(file, count, gate),
        "files" => files(file, count, gate),
        "later" => later(file, count, gate),
        "many" => many(file, count, gate),
        "storm" => storm(file, count, gate),
        "sqlite" => {
            gate();
            return peers::become_one("sqlite3", &[file, &format!(".read {file}.sql")]);
        }
        "fio" => {
            gate();
            return fio(file, count);
        }
        other => panic!("there is no scene {other:?}"),
    }
    ExitCode::SUCCESS
}

fn open(path: &str, flags: i32) -> File {
    let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
    file.unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Memory aligned for direct calls.
fn aligned() -> &'static mut [u8] {
    let memory: &'static mut [u8] = Box::leak(vec![7; 2 * BLOCK].into_boxed_slice());
    let start = memory.as_ptr().align_offset(BLOCK);
    &mut memory[start..start + BLOCK]
}

fn read_block(file: &File, memory: &mut [u8], offset: u64) {
    let read = file.read_at(memory, offset).expect("a block can be read");
    assert_eq!(read, memory.len());
}

/// Reads of a cached block.
fn cached(path: &str, count: u32, gate: impl FnOnce()) {
    let file = open(path, 0);
    let mut memory = vec![0; BLOCK];
    read_block(&file, &mut memory, 0);
    gate();
    (0..count).for_each(|_| read_block(&file, &mut memory, 0));
}

/// Reads of consecutive blocks, none of which is cached.
fn sequential(path: &str, count: u32, gate: impl FnOnce()) {
    let file = open(path, 0);
    let mut memory = vec![0; BLOCK];
    gate();
    (0..u64::from(count)).for_each(|number| read_block(&file, &mut memory, number * BLOCK as u64));
}

/// Direct reads, in each thread of its own blocks, one after another.
fn direct(path: &str, threads: u64, count: u32, gate: impl FnOnce()) {
    let file = open(path, libc::O_DIRECT);
    let (opened, released) = (Barrier::new(threads as usize + 1), Barrier::new(threads as usize + 1));
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (file, opened, released) = (&file, &opened, &released);
            scope.spawn(move || {
                let memory = aligned();
                opened.wait();
                released.wait();
                for number in 0..u64::from(count) {
                    read_block(file, memory, (thread * 8 + number % 8) * BLOCK as u64);
                }
            });
        }
        opened.wait();
        gate();
        released.wait();
    });
}

/// Small writes, each followed by an fsync.
fn commits(path: &str, count: u32, gate: impl FnOnce()) {
    let file = open(path, 0);
    let memory = vec![1; 100];
    gate();
    for number in 0..u64::from(count) {
        file.write_at(&memory, number * BLOCK as u64)
            .expect("it can be written");
        file.sync_all().expect("it can be synced");
    }
}

/// Small writes, each followed by an fsync and a cached read.
fn files(path: &str, count: u32, gate: impl FnOnce()) {
    let file = open(path, 0);
    let mut memory = vec![1; BLOCK];
    gate();
    for number in 0..u64::from(count) {
        file.write_at(&memory[..100], number * BLOCK as u64)
            .expect("it can be written");
        file.sync_all().expect("it can be synced");
        read_block(&file, &mut memory, 0);
    }
}

/// Reads a block of the first file in a directory once, of the second one twice, and so on. The first file is renamed,
/// and the second one removed, while they are open.
fn many(folder: &str, count: u32, gate: impl FnOnce()) {
    std::fs::create_dir_all(folder).expect("a folder can be made");
    let name = |number: u32| format!("{folder}/{number}");
    for number in 1..=count {
        std::fs::write(name(number), [7; BLOCK]).expect("a file can be written");
    }
    gate();
    for number in 1..=count {
        let file = open(&name(number), 0);
        for read in 0..number {
            read_block(&file, &mut vec![0; BLOCK], 0);
            match (number, read) {
                (2, 0) => std::fs::remove_file(name(number)).expect("it can be removed"),
                (1, 0) => std::fs::rename(name(number), name(number) + ".renamed").expect("it can be renamed"),
                _ => {}
            }
        }
    }
}

/// Cached writes of whole blocks, which kernel threads then write to the disk.
fn later(path: &str, count: u32, gate: impl FnOnce()) {
    let file = open(path, 0);
    gate();
    for number in 0..u64::from(count) {
        file.write_at(&[9; BLOCK], number * BLOCK as u64)
            .expect("it can be written");
    }
    nix::unistd::sync();
}

/// Small files that are created, linked and removed.
fn storm(folder: &str, count: u32, gate: impl FnOnce()) {
    std::fs::create_dir_all(folder).expect("a folder can be made");
    gate();
    for number in 0..count {
        let (name, other) = (format!("{folder}/{number}"), format!("{folder}/{number}.kept"));
        std::fs::write(&name, [7; 1000]).expect("a file can be written");
        std::fs::rename(&name, &other).expect("it can be renamed");
        let read = std::fs::read(&other).expect("it can be read");
        assert_eq!(read.len(), 1000);
        if number % 2 == 0 {
            std::fs::remove_file(&other).expect("it can be removed");
        }
    }
}

/// Direct reads and writes of a file of 1 MB.
fn fio(file: &str, count: u32) -> ExitCode {
    let (file, count) = (format!("--filename={file}"), format!("--number_ios={count}"));
    let arguments = [
        "--name=beside",
        "--thread",
        "--direct=1",
        "--rw=randrw",
        "--bs=4k",
        "--size=1m",
        "--time_based=0",
        // Its clock must be calibrated first.
        "--clocksource=clock_gettime",
        "--output=/tmp/fio",
        &file,
        &count,
    ];
    peers::become_one("fio", &arguments)
}

/// Two threads need a page that is not cached, the second while the first waits for it.
fn cold(path: &str, gate: impl FnOnce()) {
    let file = open(path, 0);
    // SAFETY: integers. No other page may be read ahead.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM) };
    // SAFETY: integers.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    gate();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| read_block(&file, &mut vec![0; BLOCK], 0));
        wait_for_request();
        read_block(&file, &mut vec![0; BLOCK], 0);
        first.join().expect("it reads");
    });
}

/// One thread extends a file by a direct write, which holds the inode's lock until the disk has completed it; the other
/// one wants to write meanwhile.
fn writers(path: &str, gate: impl FnOnce()) {
    let (slow, fast) = (open(path, libc::O_DIRECT), open(path, 0));
    let end = slow.metadata().expect("it has a length").len();
    gate();
    // The journal may still be using the file, which both threads would wait for.
    nix::unistd::sync();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| slow.write_at(aligned(), end).expect("it can be written"));
        wait_for_request();
        fast.write_at(&[2; 10], 0).expect("it can be written");
        first.join().expect("it writes");
    });
}

/// Waits until the slow disk has a request in flight.
fn wait_for_request() {
    while in_flight(SLOW) == 0 {
        std::thread::yield_now();
    }
}

const SLOW: &str = "nullb0";

/// Cached reads on a CPU that other threads want as well.
fn busy(path: &str, count: u32, gate: impl FnOnce()) {
    let mut one = CpuSet::new();
    one.set(0).expect("there is a CPU");
    sched_setaffinity(Pid::from_raw(0), &one).expect("it can be chosen");
    let file = open(path, 0);
    let mut memory = vec![0; LARGE];
    file.write_at(&memory, 0).expect("it can be written");
    let over = AtomicBool::new(false);
    let running = AtomicU32::new(0);
    gate();
    std::thread::scope(|scope| {
        for _ in 0..BUSY {
            scope.spawn(|| {
                running.fetch_add(1, Ordering::Relaxed);
                while !over.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        while running.load(Ordering::Relaxed) < BUSY {
            std::thread::yield_now();
        }
        (0..count).for_each(|_| read_block(&file, &mut memory, 0));
        over.store(true, Ordering::Relaxed);
    });
}
