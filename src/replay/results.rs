//! What replayed calls returned, compared with the recording, and when they began.

use std::collections::BTreeMap;

use super::does::Does;
use super::plan::Action;
use crate::model::histogram::Histogram;
use crate::model::ids::Op;

/// Why a call began after its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The timer, or the CPU was busy.
    Timer,
    /// It waited for a call of another thread.
    Earlier,
    /// Its thread was still inside its previous call.
    Busy,
}

/// How the result of a call compares with the recorded one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    FewerBytes,
    MoreBytes,
    /// It failed with this errno, which the recorded call did not.
    Failed(i32),
    /// It did not fail, and the recorded call did, with this errno.
    Succeeded(i32),
    /// It returned another number.
    Other,
}

/// The difference between two results; `None`: they are equal.
///
/// An open returns any descriptor. What a directory has is known only if a call used it: its entries compare by
/// whether there were any.
#[must_use]
pub fn compare(action: &Action, value: i64) -> Option<Difference> {
    let errno = |value: i64| i32::try_from(value.unsigned_abs()).unwrap_or(i32::MAX);
    let recorded = action.value;
    match (recorded < 0, value < 0) {
        (true, true) if recorded == value => return None,
        // Where one that failed was to move the position is not recorded, so it fails in another way.
        (true, true) if action.does == Does::Seek => return None,
        (_, true) => return Some(Difference::Failed(errno(value))),
        (true, false) => return Some(Difference::Succeeded(errno(recorded))),
        (false, false) => {}
    }
    let is_same = match action.does {
        Does::Open => true,
        Does::Getdents | Does::Flistxattr | Does::Listxattr => (recorded > 0) == (value > 0),
        _ => recorded == value,
    };
    if is_same {
        return None;
    }
    let moves = action.does.reads() || action.does.writes() || action.does == Does::Getdents;
    Some(match value.cmp(&recorded) {
        _ if !moves => Difference::Other,
        std::cmp::Ordering::Less => Difference::FewerBytes,
        _ => Difference::MoreBytes,
    })
}

/// What calls returned, of one thread or of all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Results {
    pub done: u64,
    pub equal: u64,
    pub different: BTreeMap<(Op, Difference), u64>,
    /// How long after its time each call began, in nanoseconds.
    pub lateness: Histogram,
    pub most_ns: u64,
    /// Nanoseconds of that, by cause: timer, an earlier call, the thread itself.
    pub causes: [u64; 3],
    /// Times of calls: in the recording, and in the replay.
    pub families: BTreeMap<Op, Times>,
    /// Calls of direct I/O whose offset and size were rounded to blocks.
    pub direct_rounded: u64,
    /// Files without `O_DIRECT`, since their file system refuses it.
    pub not_direct: u64,
}

/// The calls of an operation that were replayed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Times {
    pub calls: u64,
    pub recorded: Side,
    pub replayed: Side,
}

/// The same calls in the recording, or in the replay. Times are in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Side {
    pub total_ns: u64,
    pub most_ns: u64,
    pub times: Histogram,
    /// Those that they read or wrote.
    pub bytes: u64,
}

impl Side {
    /// Adds a call that took so long. `moved`: what it returned, if it reads or writes.
    fn record(&mut self, took_ns: u64, moved: Option<i64>) {
        self.total_ns = self.total_ns.saturating_add(took_ns);
        self.most_ns = self.most_ns.max(took_ns);
        self.times.record(took_ns);
        let bytes = moved.unwrap_or(0).max(0).unsigned_abs();
        self.bytes = self.bytes.saturating_add(bytes);
    }

    fn append(&mut self, other: &Self) {
        self.total_ns = self.total_ns.saturating_add(other.total_ns);
        self.most_ns = self.most_ns.max(other.most_ns);
        self.times.add(&other.times);
        self.bytes = self.bytes.saturating_add(other.bytes);
    }
}

impl Times {
    fn append(&mut self, other: &Self) {
        self.calls += other.calls;
        self.recorded.append(&other.recorded);
        self.replayed.append(&other.replayed);
    }
}

impl Results {
    /// Adds a call: what it returned and how long it took.
    pub fn add(&mut self, action: &Action, value: i64, took_ns: u64) {
        self.done += 1;
        match compare(action, value) {
            None => self.equal += 1,
            Some(difference) => *self.different.entry((action.op, difference)).or_default() += 1,
        }
        let times = self.families.entry(action.op).or_default();
        times.calls += 1;
        let moves = action.does.reads() || action.does.writes();
        let moved = |value: i64| moves.then_some(value);
        times.recorded.record(action.took_ns, moved(action.value));
        times.replayed.record(took_ns, moved(value));
    }

    /// Adds when a call began, in nanoseconds after its time.
    pub fn began(&mut self, after_ns: u64, cause: Cause) {
        self.lateness.record(after_ns);
        self.most_ns = self.most_ns.max(after_ns);
        let sum = &mut self.causes[cause as usize];
        *sum = sum.saturating_add(after_ns);
    }

    /// Adds those of another thread.
    pub fn append(&mut self, other: Self) {
        self.done += other.done;
        self.equal += other.equal;
        for (key, calls) in other.different {
            *self.different.entry(key).or_default() += calls;
        }
        self.lateness.add(&other.lateness);
        self.most_ns = self.most_ns.max(other.most_ns);
        for (sum, ns) in self.causes.iter_mut().zip(other.causes) {
            *sum = sum.saturating_add(ns);
        }
        for (op, times) in other.families {
            self.families.entry(op).or_default().append(&times);
        }
        self.direct_rounded += other.direct_rounded;
        self.not_direct += other.not_direct;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(does: Does, value: i64) -> Action {
        let mut action = Action::new(Op::Read, does);
        action.value = value;
        action.took_ns = 40;
        action
    }

    #[test]
    fn results_are_equal_if_a_program_could_not_see_a_difference() {
        assert_eq!(compare(&action(Does::Open, 0), 17), None);
        assert_eq!(compare(&action(Does::Read, 4096), 4096), None);
        assert_eq!(compare(&action(Does::Read, 4096), 100), Some(Difference::FewerBytes));
        assert_eq!(compare(&action(Does::Read, 0), 1), Some(Difference::MoreBytes));
        assert_eq!(compare(&action(Does::Unlink, 0), -2), Some(Difference::Failed(2)));
        assert_eq!(compare(&action(Does::Unlink, -2), -13), Some(Difference::Failed(13)));
        assert_eq!(compare(&action(Does::Unlink, -2), 0), Some(Difference::Succeeded(2)));
        assert_eq!(compare(&action(Does::Stat, -2), -2), None);
        assert_eq!(compare(&action(Does::Seek, -6), -22), None);
        assert_eq!(compare(&action(Does::Seek, 6), -22), Some(Difference::Failed(22)));
        assert_eq!(compare(&action(Does::Readlink, 3), 4), Some(Difference::Other));
        assert_eq!(compare(&action(Does::Getdents, 600), 48), None);
        assert_eq!(compare(&action(Does::Getdents, 0), 48), Some(Difference::MoreBytes));
    }

    #[test]
    fn threads_add_up() {
        let mut all = Results::default();
        for value in [10, 5] {
            let mut one = Results::default();
            one.add(&action(Does::Read, 10), value, 100);
            one.began(7, Cause::Busy);
            all.append(one);
        }
        assert_eq!((all.done, all.equal, all.most_ns, all.causes), (2, 1, 7, [0, 0, 14]));
        assert_eq!(all.different[&(Op::Read, Difference::FewerBytes)], 1);
        let times = &all.families[&Op::Read];
        assert_eq!((all.lateness.count(), times.replayed.total_ns), (2, 200));
        let Side { most_ns, bytes, .. } = times.replayed;
        assert_eq!((bytes, most_ns, times.replayed.times.count()), (15, 100, 2));
        assert_eq!((times.recorded.bytes, times.recorded.total_ns), (20, 80));
    }
}
