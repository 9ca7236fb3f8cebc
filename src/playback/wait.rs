//! Waiting for a moment, and for calls of other threads.

use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use crate::sys::clock::monotonic_ns;

/// A thread that waits looks at least this often whether the replay is to end, in nanoseconds.
const LOOK: u64 = 100_000_000;
/// A sleep ends this long before its moment, in nanoseconds; the rest is spent looking at the clock.
const SPIN: u64 = 60_000;

/// The name that threads of a traced replay have while they are inside a recorded call, and while they are not: the
/// tracer selects threads by name, and so leaves out what else a replay does.
pub const INSIDE: &CStr = c"iosb-replaying";
const ASIDE: &CStr = c"iosb-aside";

/// Says whether a thread is inside a recorded call, if a process traces it.
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    /// One does.
    pub is_traced: bool,
}

impl Mark {
    /// The recorded call begins.
    pub fn inside(self) {
        self.name(INSIDE);
    }

    /// It has ended, or has not begun.
    pub fn aside(self) {
        self.name(ASIDE);
    }

    fn name(self, name: &CStr) {
        if self.is_traced {
            // SAFETY: the name is terminated, and changes this thread's alone.
            unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
        }
    }
}

/// Waits for moments. Threads that look at the clock leave a CPU for the others.
#[derive(Debug)]
pub struct Timer {
    spinning: AtomicUsize,
    most: usize,
}

impl Timer {
    /// `cpus`: those that this process may use.
    #[must_use]
    pub fn new(cpus: usize) -> Self {
        Self {
            spinning: AtomicUsize::new(0),
            most: cpus.saturating_sub(1).max(1),
        }
    }

    /// Makes sleeps of this thread end on time.
    pub fn prepare_thread() {
        // SAFETY: it takes a number, and changes this thread alone.
        unsafe {
            libc::prctl(libc::PR_SET_TIMERSLACK, 1);
        }
    }

    /// Returns at a moment, or earlier if `stop` is set.
    pub fn until(&self, at_ns: u64, stop: &AtomicBool) {
        loop {
            let now = monotonic_ns();
            if now >= at_ns || stop.load(Ordering::Relaxed) {
                return;
            }
            if at_ns - now <= SPIN {
                if self.spinning.fetch_add(1, Ordering::Relaxed) < self.most {
                    while monotonic_ns() < at_ns {
                        std::hint::spin_loop();
                    }
                } else {
                    sleep(at_ns);
                }
                self.spinning.fetch_sub(1, Ordering::Relaxed);
                return;
            }
            sleep((at_ns - SPIN).min(now + LOOK));
        }
    }
}

/// Sleeps until a moment, or until a signal.
fn sleep(at_ns: u64) {
    let at = libc::timespec {
        tv_sec: (at_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (at_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: the structure is only read.
    unsafe {
        libc::clock_nanosleep(
            libc::CLOCK_MONOTONIC,
            libc::TIMER_ABSTIME,
            &raw const at,
            std::ptr::null_mut(),
        );
    }
}

/// How many calls a thread has made. Each is in a cache line of its own.
#[derive(Debug)]
#[repr(align(128))]
pub struct Made {
    calls: AtomicU32,
    /// The smallest number that a thread waits for. Calls up to it wake no thread: each thread of a process may wait for
    /// the same call of its first one, and looking after each call would be most of what a replay does.
    needed: AtomicU32,
    /// How often threads were woken: what they sleep on.
    wakes: AtomicU32,
}

impl Default for Made {
    fn default() -> Self {
        Self {
            calls: AtomicU32::new(0),
            needed: AtomicU32::new(u32::MAX),
            wakes: AtomicU32::new(0),
        }
    }
}

impl Made {
    /// The thread has made another call.
    pub fn add(&self) {
        let calls = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
        if calls > self.needed.load(Ordering::SeqCst) {
            self.wake();
        }
    }

    /// The thread makes no more calls: nothing waits for it.
    pub fn end(&self) {
        self.calls.store(u32::MAX, Ordering::SeqCst);
        self.wake();
    }

    /// Wakes all that wait. Those that wait for a later call say so again: a thread that said so before `needed` is
    /// reset has read `wakes` before, and does not sleep once it has changed.
    fn wake(&self) {
        self.needed.store(u32::MAX, Ordering::SeqCst);
        self.wakes.fetch_add(1, Ordering::SeqCst);
        futex(&self.wakes, libc::FUTEX_WAKE, i32::MAX.cast_unsigned(), None);
    }

    #[must_use]
    pub fn calls(&self) -> u32 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Waits until it has made more than `number` calls, or `stop` is set. Returns whether it had to wait.
    pub fn wait(&self, number: u32, stop: &AtomicBool) -> bool {
        if self.calls.load(Ordering::SeqCst) > number {
            return false;
        }
        loop {
            let wakes = self.wakes.load(Ordering::SeqCst);
            self.needed.fetch_min(number, Ordering::SeqCst);
            if self.calls.load(Ordering::SeqCst) > number || stop.load(Ordering::Relaxed) {
                return true;
            }
            futex(&self.wakes, libc::FUTEX_WAIT, wakes, Some(LOOK));
        }
    }
}

fn futex(word: &AtomicU32, what: i32, value: u32, timeout_ns: Option<u64>) {
    let timeout = libc::timespec {
        tv_sec: 0,
        tv_nsec: timeout_ns.unwrap_or(0) as libc::c_long,
    };
    let timeout = timeout_ns.map_or(std::ptr::null(), |_| &raw const timeout);
    // SAFETY: the word lives as long as the call, and the structure is only read.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            what | libc::FUTEX_PRIVATE_FLAG,
            value,
            timeout,
        );
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn a_wait_ends_when_the_call_was_made_or_none_will_be() {
        let stop = AtomicBool::new(false);
        let made = Arc::new(Made::default());
        let of_thread = Arc::clone(&made);
        let thread = std::thread::spawn(move || (0..1000).for_each(|_| of_thread.add()));
        made.wait(999, &stop);
        assert_eq!(made.calls(), 1000);
        assert!(!made.wait(5, &stop));
        thread.join().unwrap();
        let of_thread = Arc::clone(&made);
        let thread = std::thread::spawn(move || of_thread.end());
        made.wait(5000, &stop);
        thread.join().unwrap();
        stop.store(true, Ordering::Relaxed);
        let never = Made::default();
        assert!(never.wait(0, &stop));
    }

    #[test]
    fn calls_that_no_thread_waits_for_wake_none() {
        let made = Made::default();
        let wakes_after = |calls| {
            (0..calls).for_each(|_| made.add());
            made.wakes.load(Ordering::SeqCst)
        };
        assert_eq!(wakes_after(100), 0);
        // As a thread does before it sleeps.
        made.needed.fetch_min(150, Ordering::SeqCst);
        assert_eq!(wakes_after(50), 0);
        assert_eq!(wakes_after(1), 1);
        assert_eq!(wakes_after(100), 1);
    }

    #[test]
    fn threads_that_wait_for_each_other_go_on() {
        const CALLS: u32 = 20_000;
        let made: Arc<[Made; 2]> = Arc::default();
        let of_other = Arc::clone(&made);
        // Each call of one thread waits for one of the other: a wake that is missed takes LOOK.
        let turns = move |made: &[Made; 2], own: usize| {
            let stop = AtomicBool::new(false);
            for number in 0..CALLS {
                if own == 1 {
                    made[0].wait(number, &stop);
                }
                made[own].add();
                if own == 0 {
                    made[1].wait(number, &stop);
                }
            }
        };
        let begun = monotonic_ns();
        let other = std::thread::spawn(move || turns(&of_other, 1));
        turns(&made, 0);
        other.join().unwrap();
        assert!(monotonic_ns() - begun < u64::from(CALLS) / 100 * LOOK);
    }

    #[test]
    fn nothing_begins_before_its_moment() {
        let timer = Timer::new(2);
        let stop = AtomicBool::new(false);
        for length in [0, 10_000, 1_000_000, 3_000_000] {
            let at = monotonic_ns() + length;
            timer.until(at, &stop);
            assert!(monotonic_ns() >= at);
        }
        stop.store(true, Ordering::Relaxed);
        timer.until(monotonic_ns() + 10_000_000_000, &stop);
    }
}
