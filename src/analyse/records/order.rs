//! Puts records, which arrive in the order of their ends, into the order of other moments, such as their begins.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Records that can wait for earlier ones. At 100,000 a second, those that overtake each other within 2.6 s are put into
/// order.
const ROOM: usize = 1 << 18;
/// Runs of records in order. Each CPU's arrive in the order of their ends, which for most is that of their begins.
const RUNS: usize = 32;

/// A queue that returns what is earliest once it is full.
///
/// Records in order are appended to a run, which is faster than a heap by far; those that fit in no run are in a heap.
#[derive(Debug)]
pub struct InOrder<T> {
    runs: Vec<Run<T>>,
    others: BinaryHeap<Reverse<Waiting<T>>>,
    waiting: usize,
    room: usize,
    arrived: u64,
    /// The moment of the latest one that was returned.
    returned: u64,
    out_of_order: u64,
}

/// Equal moments are in the order of their ranks, then in that in which they arrived.
type Key = (u64, u8, u64);

/// Some in order.
#[derive(Debug)]
struct Run<T> {
    /// The keys at both ends, which are looked at more often than the rest.
    first: Key,
    last: Key,
    /// Not empty.
    all: VecDeque<Waiting<T>>,
}

#[derive(Debug)]
struct Waiting<T> {
    key: Key,
    what: T,
}

impl<T> PartialEq for Waiting<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl<T> Eq for Waiting<T> {}

impl<T> PartialOrd for Waiting<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Waiting<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key.cmp(&other.key)
    }
}

impl<T> Default for InOrder<T> {
    fn default() -> Self {
        Self::with_room(ROOM)
    }
}

impl<T> InOrder<T> {
    /// At most `room` wait.
    #[must_use]
    pub fn with_room(room: usize) -> Self {
        Self {
            runs: Vec::new(),
            others: BinaryHeap::new(),
            waiting: 0,
            room,
            arrived: 0,
            returned: 0,
            out_of_order: 0,
        }
    }

    /// Adds one, and returns the earliest one with its moment if there is no room for more.
    pub fn push(&mut self, at_ns: u64, what: T) -> Option<(u64, T)> {
        self.push_ranked(at_ns, 0, what)
    }

    /// The same. At the same moment, a lower `rank` comes first.
    pub fn push_ranked(&mut self, at_ns: u64, rank: u8, what: T) -> Option<(u64, T)> {
        let key = (at_ns, rank, self.arrived);
        self.arrived = self.arrived.saturating_add(1);
        self.waiting += 1;
        self.add(Waiting { key, what });
        (self.waiting > self.room).then(|| self.pop())?
    }

    /// Appends it to the run whose end it follows most closely.
    fn add(&mut self, one: Waiting<T>) {
        let ends = self.runs.iter().enumerate().map(|(index, run)| (run.last, index));
        let fitting = ends.filter(|(last, _)| *last < one.key).max();
        match fitting {
            Some((_, index)) => {
                let run = &mut self.runs[index];
                run.last = one.key;
                run.all.push_back(one);
            }
            None if self.runs.len() < RUNS => self.runs.push(Run {
                first: one.key,
                last: one.key,
                all: VecDeque::from([one]),
            }),
            None => self.others.push(Reverse(one)),
        }
    }

    /// The earliest one, with its moment.
    pub fn pop(&mut self) -> Option<(u64, T)> {
        let Waiting { key: (at_ns, ..), what } = match self.earliest()? {
            (_, None) => self.others.pop()?.0,
            (_, Some(index)) => self.pop_of_run(index)?,
        };
        self.waiting -= 1;
        if at_ns < self.returned {
            self.out_of_order += 1;
        }
        self.returned = self.returned.max(at_ns);
        Some((at_ns, what))
    }

    fn pop_of_run(&mut self, index: usize) -> Option<Waiting<T>> {
        let run = self.runs.get_mut(index)?;
        let earliest = run.all.pop_front();
        match run.all.front() {
            Some(next) => run.first = next.key,
            None => drop(self.runs.swap_remove(index)),
        }
        earliest
    }

    /// The key of the earliest one, and its run; `None`: it is in none.
    fn earliest(&self) -> Option<(Key, Option<usize>)> {
        let other = self.others.peek().map(|Reverse(other)| (other.key, None));
        let runs = self.runs.iter().enumerate();
        let firsts = runs.map(|(index, run)| (run.first, Some(index)));
        firsts.chain(other).min_by_key(|(key, _)| *key)
    }

    /// The earliest one, if it is earlier than a moment.
    pub fn pop_before(&mut self, before_ns: u64) -> Option<(u64, T)> {
        let ((at_ns, ..), _) = self.earliest()?;
        (at_ns < before_ns).then(|| self.pop())?
    }

    /// How many were returned after one with a later moment.
    #[must_use]
    pub fn out_of_order(&self) -> u64 {
        self.out_of_order
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(room: usize, moments: &[u64]) -> (Vec<(u64, usize)>, u64) {
        let mut queue = InOrder::with_room(room);
        let mut all: Vec<_> = moments
            .iter()
            .enumerate()
            .filter_map(|(index, at)| queue.push(*at, index))
            .collect();
        all.extend(std::iter::from_fn(|| queue.pop()));
        (all, queue.out_of_order())
    }

    #[test]
    fn what_overtakes_within_the_room_is_put_into_order() {
        let (all, out_of_order) = ordered(3, &[3, 1, 2, 2, 5, 4, u64::MAX, 0]);
        assert_eq!(
            all,
            [(1, 1), (2, 2), (2, 3), (3, 0), (0, 7), (4, 5), (5, 4), (u64::MAX, 6)]
        );
        assert_eq!(out_of_order, 1);
        assert_eq!(ordered(0, &[2, 1]), (vec![(2, 0), (1, 1)], 1));
        assert_eq!(ordered(9, &[]), (vec![], 0));
    }

    #[test]
    fn any_order_is_that_of_a_queue_that_is_sorted_each_time() {
        use crate::analyse::records::synthetic::random;
        for (spread, room) in [(1, 0), (3, 50), (1_000, 50), (100_000, 700), (100_000, 5_000)] {
            let moments: Vec<u64> = (0..3_000)
                .zip(random(7))
                .map(|(n, far)| n * 10 + far % spread)
                .collect();
            let (found, out_of_order) = ordered(room, &moments);
            let (mut waiting, mut expected, mut late, mut latest) = (Vec::new(), Vec::new(), 0, 0);
            for next in moments
                .into_iter()
                .zip(0..)
                .map(Some)
                .chain(std::iter::repeat_n(None, room))
            {
                waiting.extend(next);
                waiting.sort_unstable();
                if waiting.len() > room || next.is_none() && !waiting.is_empty() {
                    let first: (u64, usize) = waiting.remove(0);
                    late += u64::from(first.0 < latest);
                    latest = latest.max(first.0);
                    expected.push(first);
                }
            }
            assert_eq!((found, out_of_order), (expected, late), "{spread} {room}");
        }
    }

    #[test]
    fn those_before_a_moment_are_taken_alone() {
        let mut queue = InOrder::default();
        for at in [7, 5, 6] {
            assert_eq!(queue.push(at, ()), None);
        }
        let before: Vec<u64> = std::iter::from_fn(|| queue.pop_before(7)).map(|(at, ())| at).collect();
        assert_eq!(before, [5, 6]);
        assert_eq!(queue.pop(), Some((7, ())));
    }

    #[test]
    fn a_rank_decides_at_the_same_moment() {
        let mut queue = InOrder::default();
        queue.push_ranked(5, 1, "second");
        queue.push_ranked(5, 0, "first");
        queue.push(4, "before");
        let all: Vec<&str> = std::iter::from_fn(|| queue.pop()).map(|(_, what)| what).collect();
        assert_eq!(all, ["before", "first", "second"]);
    }
}
