//! The calls of a plan, which are made window by window while they are replayed: the plan is never held as a whole.

use super::load::Recorded;
use super::making::{Making, uses};
use super::order::{Ordering, Timed};
use super::plan::Part;
use super::simulate::{Simulation, Step};

/// Calls of a window: enough that threads hardly ever wait for its end.
pub const WINDOW: usize = 1 << 17;

/// Calls that follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// Calls of each thread that have been made before any of these is. So have all before the last window that had ended in
    /// the recording when this one began; no edge leads to them.
    pub after: Vec<u32>,
    /// Of each thread that has some.
    pub parts: Vec<Part>,
}

/// Makes the windows of a plan.
pub struct Windows<'a, I> {
    calls: I,
    making: &'a Making,
    simulation: Simulation<'a>,
    ordering: Ordering,
    /// Now, at the end of the last window, and of the one before it.
    reached: Vec<Reached>,
    ends: [Vec<Reached>; 2],
    size: usize,
}

/// How far a thread is.
#[derive(Debug, Clone, Copy, Default)]
struct Reached {
    calls: u32,
    /// The end of the last one.
    end_ns: u64,
}

impl Reached {
    /// Calls that had ended.
    fn ended(self, by_ns: u64) -> u32 {
        self.calls.saturating_sub(u32::from(self.end_ns > by_ns))
    }
}

impl<'a, I: Iterator<Item = Recorded>> Windows<'a, I> {
    pub(super) fn new(making: &'a Making, threads: usize, calls: I) -> Self {
        let none = vec![Reached::default(); threads];
        Self {
            calls,
            making,
            simulation: making.simulation().without_survey(),
            ordering: Ordering::default(),
            reached: none.clone(),
            ends: [none.clone(), none],
            size: WINDOW,
        }
    }

    /// Makes windows of so many calls, in place of [`WINDOW`].
    #[cfg(test)]
    pub(crate) fn of(mut self, size: usize) -> Self {
        self.size = size;
        self
    }

    /// The next call that is replayed.
    fn step(&mut self) -> Option<Step> {
        loop {
            let call = self.calls.next()?;
            if let Some(step) = self.making.step(&mut self.simulation, &call) {
                return Some(step);
            }
        }
    }

    /// Adds a call to the part of its thread.
    fn add(&mut self, step: Step, parts: &mut [Part]) {
        let lane = self.making.lane(step.tid);
        let (Some(part), Some(reached)) = (parts.get_mut(lane), self.reached.get_mut(lane)) else {
            return;
        };
        let timed = Timed {
            thread: lane as u32,
            number: reached.calls,
            begin_ns: step.begin_ns,
            end_ns: step.end_ns,
        };
        let edges = self.ordering.edges(timed, &uses(step.uses, self.making.order));
        part.add(step.action, edges);
        reached.calls += 1;
        reached.end_ns = reached.end_ns.max(step.end_ns);
    }
}

impl<I: Iterator<Item = Recorded>> Iterator for Windows<'_, I> {
    type Item = Window;

    fn next(&mut self) -> Option<Window> {
        let first = self.step()?;
        let before = self.ends[0].iter();
        let after: Vec<u32> = before.map(|reached| reached.ended(first.begin_ns)).collect();
        self.ordering.forget(&after);
        let mut parts: Vec<Part> = (0..after.len() as u32).map(Part::new).collect();
        self.add(first, &mut parts);
        for _ in 1..self.size {
            let Some(step) = self.step() else { break };
            self.add(step, &mut parts);
        }
        parts.retain(|part| !part.actions.is_empty());
        self.ends.rotate_left(1);
        self.ends[1].clone_from(&self.reached);
        Some(Window { after, parts })
    }
}
