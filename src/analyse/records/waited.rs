//! Which requests no call waited for: those that ended when their submitter was not asleep in a call.
//!
//! A sleep is known at its end, which may be long after that of a request, and records of different kinds arrive in any
//! order within some time. So a request is kept until a later record of its thread has arrived.

use std::collections::{HashMap, VecDeque};

use crate::model::record::{Request, Sleep};

/// The longest time by which records of different kinds may arrive out of order, in nanoseconds: they are written when
/// they are a second old.
pub const OUT_OF_ORDER: u64 = 3_000_000_000;
/// Requests that are kept before it is looked at which can be decided.
const MANY: usize = 1 << 14;

/// Requests that wait for a decision, each with what it is needed for afterwards.
#[derive(Debug)]
pub struct Undecided<T> {
    requests: HashMap<u32, OfThread<T>>,
    number: usize,
    /// When it is looked at again.
    look_at: usize,
    sleeps: HashMap<u32, VecDeque<(u64, u64)>>,
    /// The latest end of a record so far.
    now_ns: u64,
}

#[derive(Debug)]
struct OfThread<T> {
    /// By the end.
    waiting: Vec<(u64, T)>,
    /// The latest end of a later call of the thread.
    seen_ns: u64,
}

impl<T> Default for Undecided<T> {
    fn default() -> Self {
        Self {
            requests: HashMap::new(),
            number: 0,
            look_at: MANY,
            sleeps: HashMap::new(),
            now_ns: 0,
        }
    }
}

impl<T> Undecided<T> {
    /// A thread slept in a call. Requests that ended meanwhile were waited for.
    pub fn sleep(&mut self, sleep: &Sleep) {
        self.now_ns = self.now_ns.max(sleep.in_ns);
        // Without a wakeup it was ready to run all the time.
        let Some(woken_ns) = sleep.woken_ns else { return };
        if let Some(of_thread) = self.requests.get_mut(&sleep.tid) {
            let before = of_thread.waiting.len();
            let is_inside = |ended_ns: u64| (sleep.out_ns..woken_ns).contains(&ended_ns);
            of_thread.waiting.retain(|(ended_ns, _)| !is_inside(*ended_ns));
            self.number -= before - of_thread.waiting.len();
        }
        let sleeps = self.sleeps.entry(sleep.tid).or_default();
        let oldest = self.now_ns.saturating_sub(2 * OUT_OF_ORDER);
        while sleeps.front().is_some_and(|(_, woken_ns)| *woken_ns < oldest) {
            sleeps.pop_front();
        }
        sleeps.push_back((sleep.out_ns, woken_ns));
    }

    /// A thread has returned from a call: its sleeps before are known soon.
    pub fn call(&mut self, tid: u32, end_ns: u64) {
        self.now_ns = self.now_ns.max(end_ns);
        if self.number > 0
            && let Some(of_thread) = self.requests.get_mut(&tid)
        {
            of_thread.seen_ns = of_thread.seen_ns.max(end_ns);
        }
    }

    /// A request has ended. `what` is returned if no call waited for it.
    pub fn request(&mut self, request: &Request, what: T) {
        let ended_ns = request.ended_ns;
        self.now_ns = self.now_ns.max(ended_ns);
        let sleeps = self.sleeps.get(&request.tid);
        let is_inside = |(out_ns, woken_ns): &(u64, u64)| (*out_ns..*woken_ns).contains(&ended_ns);
        if sleeps.is_some_and(|sleeps| sleeps.iter().any(is_inside)) {
            return;
        }
        let of_thread = self.requests.entry(request.tid).or_insert_with(|| OfThread {
            waiting: Vec::new(),
            seen_ns: 0,
        });
        of_thread.waiting.push((ended_ns, what));
        self.number += 1;
    }

    /// Returns the requests of which it is known by now that no call waited for them, if there are many.
    pub fn known(&mut self) -> Vec<T> {
        if self.number < self.look_at {
            return Vec::new();
        }
        let mut known = Vec::new();
        let now_ns = self.now_ns;
        for of_thread in self.requests.values_mut() {
            let seen_ns = of_thread.seen_ns;
            if seen_ns.saturating_add(OUT_OF_ORDER) < now_ns {
                known.extend(take(&mut of_thread.waiting, |ended_ns| ended_ns < seen_ns));
            }
        }
        self.forget(known.len());
        let oldest = now_ns.saturating_sub(2 * OUT_OF_ORDER);
        self.sleeps
            .retain(|_, sleeps| sleeps.back().is_some_and(|(_, woken_ns)| *woken_ns >= oldest));
        known
    }

    /// Returns all requests that ended up to this time, whose threads have made no call since.
    pub fn until(&mut self, end_ns: u64) -> Vec<T> {
        let of_threads = self.requests.values_mut();
        let ended = of_threads.flat_map(|of_thread| take(&mut of_thread.waiting, |ended_ns| ended_ns <= end_ns));
        let ended: Vec<T> = ended.collect();
        self.forget(ended.len());
        ended
    }

    fn forget(&mut self, number: usize) {
        self.number -= number;
        self.look_at = (self.number * 2).max(MANY);
        self.requests.retain(|_, of_thread| !of_thread.waiting.is_empty());
    }
}

fn take<T>(waiting: &mut Vec<(u64, T)>, is_taken: impl Fn(u64) -> bool) -> Vec<T> {
    let taken = waiting.extract_if(.., |(ended_ns, _)| is_taken(*ended_ns));
    taken.map(|(_, what)| what).collect()
}

#[cfg(test)]
mod tests {
    use super::super::synthetic;
    use super::*;
    use crate::model::ids::Op;

    fn sleep(out_ns: u64, woken_ns: Option<u64>) -> Sleep {
        Sleep {
            tid: 7,
            out_ns,
            woken_ns,
            in_ns: woken_ns.unwrap_or(out_ns) + 5,
            row: 0,
            waker_tid: 0,
            waker_pid: 0,
            cpus: [0, 0],
        }
    }

    fn request(ended_ns: u64) -> Request {
        Request {
            ended_ns,
            ..synthetic::request(Op::Read, 0, 0, 512)
        }
    }

    #[test]
    fn a_request_that_ends_in_a_sleep_of_its_thread_was_waited_for() {
        let mut undecided = Undecided::default();
        undecided.sleep(&sleep(100, Some(200)));
        undecided.sleep(&sleep(300, None));
        for ended_ns in [99, 100, 199, 200, 301, 450, 500] {
            undecided.request(&request(ended_ns), ended_ns);
        }
        // This one arrives after the requests that ended in it.
        undecided.sleep(&sleep(400, Some(460)));
        let other = Sleep {
            tid: 8,
            ..sleep(490, Some(600))
        };
        undecided.sleep(&other);
        assert_eq!(undecided.until(499), [99, 200, 301]);
        assert_eq!(undecided.until(u64::MAX), [500]);
        assert!(undecided.until(u64::MAX).is_empty());
    }

    #[test]
    fn many_requests_are_decided_once_their_thread_goes_on() {
        let mut undecided = Undecided::default();
        for at in 0..2 * MANY as u64 {
            undecided.request(&request(at), at);
            assert!(at >= MANY as u64 || undecided.known().is_empty());
        }
        undecided.call(7, 1_000);
        undecided.call(8, 2 * OUT_OF_ORDER);
        assert_eq!(undecided.known(), (0..1_000).collect::<Vec<_>>());
        assert_eq!(undecided.until(u64::MAX).len(), 2 * MANY - 1_000);
    }
}
