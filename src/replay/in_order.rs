//! Calls in the order of their begins. Recordings have them in about that of their ends, so that a bounded number of them is
//! held and sorted. A call that took longer than so many others is overtaken: it is found when the recording is read first, and
//! comes in its turn when it is read again.

use super::load::Recorded;

/// Calls that are given out at once. Twice as many are held, of 96 bytes.
const HELD: usize = 1 << 14;

/// Holds calls until all that began before them have come, but for overtaken ones.
#[derive(Debug)]
pub struct Sorter {
    /// See [`HELD`].
    window: usize,
    held: Vec<Recorded>,
    /// The last call that was given out.
    passed: (u64, u64),
}

impl Default for Sorter {
    fn default() -> Self {
        Self::new(HELD)
    }
}

impl Sorter {
    #[must_use]
    pub fn new(window: usize) -> Self {
        Self {
            window,
            held: Vec::new(),
            passed: (0, 0),
        }
    }

    /// One that treats calls in the same way, and has none.
    #[must_use]
    pub fn fresh(&self) -> Self {
        Self::new(self.window)
    }

    /// Adds a call. Returns those whose turn it is; overtaken ones are added to `overtaken`.
    pub fn add(&mut self, call: Recorded, overtaken: &mut Vec<Recorded>) -> std::vec::Drain<'_, Recorded> {
        self.held.push(call);
        let count = if self.held.len() < 2 * self.window {
            0
        } else {
            self.sort(overtaken);
            self.held.len().min(self.window)
        };
        self.give(count)
    }

    /// All calls have come. Returns the last ones.
    pub fn end(&mut self, overtaken: &mut Vec<Recorded>) -> std::vec::Drain<'_, Recorded> {
        self.sort(overtaken);
        self.give(self.held.len())
    }

    fn sort(&mut self, overtaken: &mut Vec<Recorded>) {
        // By keys with indices: calls are large.
        self.held.sort_by_cached_key(Recorded::key);
        let count = self.held.partition_point(|call| call.key() < self.passed);
        overtaken.extend(self.held.drain(..count));
    }

    fn give(&mut self, count: usize) -> std::vec::Drain<'_, Recorded> {
        if let Some(last) = count.checked_sub(1) {
            self.passed = self.held[last].key();
        }
        self.held.drain(..count)
    }
}

/// Calls that come again, and the overtaken ones among them.
pub struct InOrder<'a, I> {
    calls: I,
    sorter: Sorter,
    overtaken: std::iter::Peekable<std::slice::Iter<'a, Recorded>>,
    ready: std::iter::Peekable<std::vec::IntoIter<Recorded>>,
}

impl<'a, I: Iterator<Item = Recorded>> InOrder<'a, I> {
    /// `overtaken`: those that a sorter such as this one found overtaken, in the order of their begins.
    pub fn new(calls: I, sorter: Sorter, overtaken: &'a [Recorded]) -> Self {
        Self {
            calls,
            sorter,
            overtaken: overtaken.iter().peekable(),
            ready: Vec::new().into_iter().peekable(),
        }
    }

    fn refill(&mut self) {
        // Overtaken ones are known.
        let mut overtaken = Vec::new();
        for call in self.calls.by_ref() {
            let given: Vec<Recorded> = self.sorter.add(call, &mut overtaken).collect();
            overtaken.clear();
            if !given.is_empty() {
                self.ready = given.into_iter().peekable();
                return;
            }
        }
        let given: Vec<Recorded> = self.sorter.end(&mut overtaken).collect();
        self.ready = given.into_iter().peekable();
    }
}

impl<I: Iterator<Item = Recorded>> Iterator for InOrder<'_, I> {
    type Item = Recorded;

    fn next(&mut self) -> Option<Recorded> {
        if self.ready.peek().is_none() {
            self.refill();
        }
        let next = self.ready.peek().map(Recorded::key);
        let overtaken = self
            .overtaken
            .next_if(|overtaken| next.is_none_or(|next| overtaken.key() < next));
        overtaken.cloned().or_else(|| self.ready.next())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::fuzz;
    use crate::model::ids::Op;
    use crate::model::record::{Call, Records};
    use crate::replay::load::{Loaded, Selection};

    fn read(begin_ns: u64, length: u64, tid: u32) -> Call {
        Call {
            tid,
            begin_ns,
            end_ns: Some(begin_ns + length),
            op: Op::Read,
            ..Call::default()
        }
    }

    fn batch(calls: &[Call]) -> Records {
        Records {
            calls: calls.to_vec(),
            ..Records::default()
        }
    }

    /// The threads of calls that come in this order, and how many of them were overtaken.
    fn in_order(calls: &[Call], window: usize) -> (Vec<u32>, usize) {
        let mut loaded = Loaded::new(Selection::default());
        loaded.hold(window);
        loaded.take(batch(calls));
        loaded.finish();
        let again = std::iter::once(batch(calls));
        (loaded.calls(again).map(|call| call.tid).collect(), loaded.overtaken())
    }

    #[test]
    fn a_call_that_took_long_comes_in_its_turn() {
        let mut calls: Vec<Call> = (1..100).map(|at| read(at, 1, 7)).collect();
        calls.push(read(3, 200, 8));
        assert_eq!(in_order(&calls, 1000).1, 0);
        let (order, overtaken) = in_order(&calls, 4);
        assert_eq!((order.len(), overtaken), (100, 1));
        // After the one that began with it and ended earlier.
        assert_eq!(order.iter().position(|tid| *tid == 8), Some(3));
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn calls_are_sorted_whatever_the_window(
            spans in proptest::collection::vec((0..50_u64, 0..60_u64), 0..60), window in 1..9_usize, is_by_end in any::<bool>(),
        ) {
            let mut calls: Vec<Call> = spans.into_iter().map(|(begin, length)| read(begin, length, 0)).collect();
            if is_by_end {
                calls.sort_by_key(|call| call.end_ns);
            }
            for (tid, call) in (0..).zip(&mut calls) {
                call.tid = tid;
            }
            let order = in_order(&calls, window).0;
            calls.sort_by_key(|call| (call.begin_ns, call.end_ns));
            let sorted: Vec<u32> = calls.iter().map(|call| call.tid).collect();
            prop_assert_eq!(order, sorted);
        }
    }
}
