//! Which calls wait for which: a call begins only when those have ended that ended before it began in the recording and
//! that it depends on. What overlapped in the recording stays free to overlap.

use std::collections::HashMap;

/// What is kept in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Order {
    /// Calls on the same open file, file, or path, if one of them changes what the other depends on
    Files,
    /// Calls of each thread alone; reads and writes at the position of a file become ones at the recorded offset
    Threads,
    /// All calls: each one after all that had ended
    Total,
}

/// What two calls have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resource {
    /// An open file: its position and flags.
    Open(u32),
    /// The size of a file, or whether a directory is removed: then one that is open cannot be listed any more. What it
    /// lists is not kept in order, since only the names that calls use are known.
    Size(u32),
    /// 4 KiB of a file.
    Block(u32, u64),
    /// A name in a directory, and who may do what with what has it.
    Name(u32),
    All,
}

/// A call, by what decides its order.
#[derive(Debug, Clone, Copy)]
pub struct Timed {
    pub thread: u32,
    /// Which call of its thread it is, from 0.
    pub number: u32,
    pub begin_ns: u64,
    pub end_ns: u64,
}

/// Wait until this thread has made this call (from 0).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    pub thread: u32,
    pub number: u32,
}

/// The last calls of a thread that used a resource with others: the last but one, which has ended, and the last one.
#[derive(Debug, Clone, Copy)]
struct Shared {
    thread: u32,
    numbers: [u32; 2],
    ends_ns: [u64; 2],
}

/// The calls that later ones may have to wait for. Those that another of them waits for are removed.
#[derive(Debug, Default)]
struct Entries {
    exclusive: Vec<Timed>,
    /// In the order of their threads. They may be many, such as those that look up a name in the same directory, so that they
    /// are gone through only for an exclusive call.
    shared: Vec<Shared>,
    /// All shared ones that ended by then are removed.
    removed_ns: u64,
}

/// Makes the edges of calls, which come in the order of their begins.
#[derive(Debug, Default)]
pub struct Ordering {
    entries: HashMap<Resource, Entries>,
    /// By thread: the calls of others that have been made when it comes to its next one.
    made: Vec<HashMap<u32, u32>>,
}

impl Ordering {
    /// The edges of a call that uses these resources, some of them exclusively.
    pub fn edges(&mut self, call: Timed, uses: &[(Resource, bool)]) -> Vec<Edge> {
        let mut edges: Vec<Edge> = Vec::new();
        for (resource, is_exclusive) in uses {
            let entries = self.entries.entry(*resource).or_default();
            entries.remove_implied(call.begin_ns);
            entries.edges(call, *is_exclusive, &mut edges);
            entries.add(call, *is_exclusive);
        }
        self.reduced(call.thread, edges)
    }

    /// Forgets calls that nothing has to wait for any more: of each thread, all before this number.
    pub fn forget(&mut self, before: &[u32]) {
        let is_made = |thread: u32, number: u32| before.get(thread as usize).is_some_and(|end| number < *end);
        self.entries.retain(|_, entries| {
            entries.exclusive.retain(|call| !is_made(call.thread, call.number));
            entries.shared.retain(|call| !is_made(call.thread, call.numbers[1]));
            !entries.exclusive.is_empty() || !entries.shared.is_empty()
        });
        for made in &mut self.made {
            made.retain(|thread, number| !is_made(*thread, *number));
        }
    }

    /// The last call of each thread, without those that an earlier call of this thread waited for.
    fn reduced(&mut self, thread: u32, mut edges: Vec<Edge>) -> Vec<Edge> {
        if edges.is_empty() {
            return edges;
        }
        let thread = thread as usize;
        if self.made.len() <= thread {
            self.made.resize_with(thread + 1, HashMap::new);
        }
        edges.sort_unstable_by(|a, b| b.cmp(a));
        edges.dedup_by_key(|edge| edge.thread);
        let made = &mut self.made[thread];
        edges.retain(|edge| {
            let is_new = made.get(&edge.thread).is_none_or(|known| *known < edge.number);
            if is_new {
                made.insert(edge.thread, edge.number);
            }
            is_new
        });
        edges
    }
}

impl Entries {
    /// Removes what ended before the begin of an exclusive call that had ended by `now_ns` itself, and waited for it.
    fn remove_implied(&mut self, now_ns: u64) {
        let ended = self.exclusive.iter().enumerate();
        let ended = ended.filter(|(_, entry)| entry.end_ns <= now_ns);
        let Some((last, begin_ns)) = ended
            .map(|(index, entry)| (index, entry.begin_ns))
            .max_by_key(|(_, begin_ns)| *begin_ns)
        else {
            return;
        };
        let mut index = 0;
        self.exclusive.retain(|entry| {
            index += 1;
            index - 1 == last || entry.end_ns > begin_ns
        });
        // Calls that began later ended later.
        if begin_ns > self.removed_ns {
            self.shared.retain(|entry| entry.ends_ns[1] > begin_ns);
            self.removed_ns = begin_ns;
        }
    }

    fn edges(&self, call: Timed, is_exclusive: bool, edges: &mut Vec<Edge>) {
        let has_ended = |entry: &&Timed| entry.end_ns <= call.begin_ns && entry.thread != call.thread;
        let exclusive = self.exclusive.iter().filter(has_ended);
        edges.extend(exclusive.map(|entry| Edge {
            thread: entry.thread,
            number: entry.number,
        }));
        if !is_exclusive {
            return;
        }
        for entry in self.shared.iter().filter(|entry| entry.thread != call.thread) {
            let mut ended = entry.numbers.iter().zip(entry.ends_ns).rev();
            let last = ended.find(|(_, end_ns)| *end_ns <= call.begin_ns && *end_ns > self.removed_ns);
            edges.extend(last.map(|(number, _)| Edge {
                thread: entry.thread,
                number: *number,
            }));
        }
    }

    /// Adds a call. Those of its thread have ended: the last one implies those before it.
    fn add(&mut self, call: Timed, is_exclusive: bool) {
        if is_exclusive {
            let own = self.exclusive.iter().filter(|entry| entry.thread == call.thread);
            let last = own.map(|entry| entry.number).max();
            self.exclusive
                .retain(|entry| entry.thread != call.thread || Some(entry.number) == last);
            if self.exclusive.is_empty() {
                // Most resources are used by one call at a time, and there are very many.
                self.exclusive.reserve_exact(1);
            }
            self.exclusive.push(call);
            return;
        }
        match self.shared.binary_search_by_key(&call.thread, |entry| entry.thread) {
            Ok(index) => {
                let entry = &mut self.shared[index];
                entry.numbers = [entry.numbers[1], call.number];
                entry.ends_ns = [entry.ends_ns[1], call.end_ns];
            }
            Err(index) => {
                if self.shared.is_empty() {
                    self.shared.reserve_exact(1);
                }
                let entry = Shared {
                    thread: call.thread,
                    numbers: [call.number; 2],
                    ends_ns: [call.end_ns; 2],
                };
                self.shared.insert(index, entry);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;

    fn timed(thread: u32, number: u32, begin_ns: u64, end_ns: u64) -> Timed {
        Timed {
            thread,
            number,
            begin_ns,
            end_ns,
        }
    }

    #[test]
    fn only_calls_that_had_ended_are_waited_for() {
        let mut ordering = Ordering::default();
        let file = [(Resource::Open(1), true)];
        assert_eq!(ordering.edges(timed(0, 0, 0, 10), &file), []);
        // It overlapped.
        assert_eq!(ordering.edges(timed(1, 0, 5, 20), &file), []);
        let after_both = [Edge { thread: 1, number: 0 }, Edge { thread: 0, number: 0 }];
        assert_eq!(ordering.edges(timed(2, 0, 20, 30), &file), after_both);
        // One waits for the last one alone, which waited for the others.
        assert_eq!(
            ordering.edges(timed(3, 0, 31, 40), &file),
            [Edge { thread: 2, number: 0 }]
        );
    }

    #[test]
    fn calls_that_change_nothing_do_not_wait_for_each_other() {
        let mut ordering = Ordering::default();
        let size = |is_exclusive| [(Resource::Size(1), is_exclusive)];
        assert_eq!(ordering.edges(timed(0, 0, 0, 1), &size(false)), []);
        assert_eq!(ordering.edges(timed(1, 0, 2, 3), &size(false)), []);
        assert_eq!(ordering.edges(timed(2, 0, 4, 5), &size(true)).len(), 2);
        assert_eq!(
            ordering.edges(timed(0, 1, 6, 7), &size(false)),
            [Edge { thread: 2, number: 0 }]
        );
        // The thread has waited for it already.
        assert_eq!(ordering.edges(timed(0, 2, 8, 9), &size(false)), []);
    }

    /// Whether the edges, with the order of each thread, put `a` before `b`.
    fn is_before(a: (u32, u32), b: (u32, u32), edges: &HashMap<(u32, u32), Vec<Edge>>) -> bool {
        let mut seen = std::collections::HashSet::new();
        let mut left = vec![b];
        while let Some(call) = left.pop() {
            if call.0 == a.0 && call.1 >= a.1 && call != a {
                return true;
            }
            if call == a {
                return true;
            }
            if !seen.insert(call) {
                continue;
            }
            if call.1 > 0 {
                left.push((call.0, call.1 - 1));
            }
            left.extend(edges[&call].iter().map(|edge| (edge.thread, edge.number)));
        }
        false
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        /// Each pair of calls with a resource in common, one of them exclusive, of which one ended before the other began.
        #[test]
        fn every_dependency_is_kept_by_the_reduced_edges(
            calls in proptest::collection::vec((0..4_u32, 1..5_u64, 0..4_u64, 0..3_u32, any::<bool>()), 1..40),
        ) {
            let mut free = [0_u64; 4];
            let mut begin = 0;
            let mut numbers = [0_u32; 4];
            let mut all: Vec<(Timed, u32, bool)> = Vec::new();
            for (thread, length, gap, resource, is_exclusive) in calls {
                begin = (begin + gap).max(free[thread as usize]);
                free[thread as usize] = begin + length;
                let number = numbers[thread as usize];
                numbers[thread as usize] += 1;
                all.push((timed(thread, number, begin, begin + length), resource, is_exclusive));
            }
            let mut ordering = Ordering::default();
            let mut edges = HashMap::new();
            for (call, resource, is_exclusive) in &all {
                let found = ordering.edges(*call, &[(Resource::Name(*resource), *is_exclusive)]);
                edges.insert((call.thread, call.number), found);
            }
            for (index, (b, of_b, b_exclusive)) in all.iter().enumerate() {
                for (a, of_a, a_exclusive) in &all[..index] {
                    let depends = of_a == of_b && (*a_exclusive || *b_exclusive) && a.end_ns <= b.begin_ns;
                    if depends {
                        prop_assert!(is_before((a.thread, a.number), (b.thread, b.number), &edges), "{a:?} {b:?} {edges:?}");
                    }
                }
                for edge in &edges[&(b.thread, b.number)] {
                    let a = all.iter().find(|(a, ..)| (a.thread, a.number) == (edge.thread, edge.number)).unwrap().0;
                    prop_assert!(a.end_ns <= b.begin_ns, "nothing that overlapped is waited for");
                }
            }
        }
    }
}
