//! Puts records, which arrive in the order of their ends, into the order of other moments, such as their begins.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Records that can wait for earlier ones. At 100,000 a second, those that overtake each other within 2.6 s are put into
/// order.
const ROOM: usize = 1 << 18;

/// A queue that returns what is earliest once it is full.
#[derive(Debug)]
pub struct InOrder<T> {
    waiting: BinaryHeap<Reverse<Waiting<T>>>,
    room: usize,
    arrived: u64,
    /// The moment of the latest one that was returned.
    returned: u64,
    out_of_order: u64,
}

/// Equal moments are in the order of their ranks, then in that in which they arrived.
#[derive(Debug)]
struct Waiting<T> {
    key: (u64, u8, u64),
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
            waiting: BinaryHeap::new(),
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
        self.waiting.push(Reverse(Waiting { key, what }));
        (self.waiting.len() > self.room).then(|| self.pop())?
    }

    /// The earliest one, with its moment.
    pub fn pop(&mut self) -> Option<(u64, T)> {
        let Reverse(Waiting { key: (at_ns, ..), what }) = self.waiting.pop()?;
        if at_ns < self.returned {
            self.out_of_order += 1;
        }
        self.returned = self.returned.max(at_ns);
        Some((at_ns, what))
    }

    /// The earliest one, if it is earlier than a moment.
    pub fn pop_before(&mut self, before_ns: u64) -> Option<(u64, T)> {
        let Reverse(first) = self.waiting.peek()?;
        (first.key.0 < before_ns).then(|| self.pop())?
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
