//! Replay: which calls of a recording are made again, on which files, in which order and when; and how what they return
//! compares. Pure: [`crate::playback`] makes the calls.
//!
//! [`load`] learns from a recording what has to be known before its calls are followed, [`simulate`] follows what they do to names, sizes and positions,
//! [`order`] finds out which of them wait for which, and [`plan`] is what results.

pub mod does;
pub mod flags;
mod in_order;
pub mod load;
pub mod order;
pub mod path;
pub mod plan;
pub mod ranges;
pub mod results;
mod simulate;
pub mod tree;
pub mod working;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};

use self::load::{Loaded, Span};
use self::order::{Order, Ordering, Resource, Timed};
use self::path::{Mounts, Roots};
use self::plan::{Action, NONE, Plan, Thread};
use self::simulate::{Simulation, Step};
use crate::model::record::Records;
use crate::model::recording::Meta;

/// Threads of a replay, at most.
pub const MOST_THREADS: usize = 4096;

/// Why there is no plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Impossible {
    /// No call can be replayed.
    Nothing,
    /// More threads were inside calls at the same time than a replay may have.
    Threads(usize),
}

/// Makes the plan of a replay. `loaded` is finished; `batches` are those that it was made of, which are read again.
///
/// # Errors
/// Why there is none.
pub fn plan(
    loaded: Loaded,
    batches: impl Iterator<Item = Records>,
    meta: &Meta,
    roots: &Roots,
    root_count: usize,
    order: Order,
) -> Result<Plan, Impossible> {
    let mounts = meta
        .mounts
        .iter()
        .map(|mount| (mount.point.as_str(), mount.file_system.as_str()));
    let mut simulation = Simulation::new(&loaded, roots, Mounts::new(mounts), &meta.machine);
    let lanes = lanes(&loaded.spans)?;
    let mut plan = Plan {
        recorded: loaded.recorded,
        not_selected: loaded.not_selected,
        asynchronous: loaded.asynchronous,
        faults: loaded.faults,
        lost: loaded.lost.clone(),
        has_classes: loaded.has_classes,
        ..Plan::default()
    };
    plan.threads
        .resize_with(lanes.values().max().map_or(0, |lane| lane + 1), Thread::default);
    let mut ordering = Ordering::default();
    let mut open = OpenAtOnce::default();
    let mut start_ns = None;
    for call in loaded.calls(batches) {
        let Some(mut step) = simulation.step(&call) else {
            continue;
        };
        if order == Order::Threads {
            at_recorded_offset(&mut step);
        }
        let start_ns = *start_ns.get_or_insert(step.begin_ns);
        let lane = lanes[&step.tid];
        let thread = &mut plan.threads[lane];
        if thread.actions.is_empty() {
            thread.tid = step.tid;
        }
        let number = thread.actions.len();
        let mut action = step.action;
        action.begin_ns = step.begin_ns - start_ns;
        action.took_ns = step.end_ns - step.begin_ns;
        open.uses(&action);
        thread.actions.push(action);
        let timed = Timed {
            thread: lane as u32,
            number: number as u32,
            begin_ns: step.begin_ns,
            end_ns: step.end_ns,
        };
        let edges = ordering.edges(timed, &uses(step.uses, order));
        plan.add_edges(lane, number, edges);
    }
    drop(ordering);
    plan.leave_out_idle_threads();
    plan.prepared = simulation.prepared();
    plan.needed = simulation.needed(root_count);
    plan.most_open = open.most(&simulation.files);
    plan.left_out = simulation.left_out;
    for (op, calls) in &loaded.under_way {
        *plan.left_out.entry((*op, does::Why::UnderWay)).or_default() += calls;
    }
    (plan.files, plan.spots, plan.texts) = (simulation.files, simulation.spots, simulation.texts);
    plan.made = simulation.made.into_iter().collect();
    if plan.calls() == 0 {
        Err(Impossible::Nothing)
    } else {
        Ok(plan)
    }
}

/// What decides the order of a call.
fn uses(uses: Vec<(Resource, bool)>, order: Order) -> Vec<(Resource, bool)> {
    let mut uses = match order {
        Order::Total => vec![(Resource::All, true)],
        // An open file has to be open.
        Order::Threads => uses
            .into_iter()
            .filter(|(of, _)| matches!(of, Resource::Open(_)))
            .collect(),
        Order::Files => uses,
    };
    uses.sort_by_key(|(resource, is_exclusive)| (key(*resource), !*is_exclusive));
    uses.dedup_by_key(|(resource, _)| *resource);
    uses
}

fn key(resource: Resource) -> (u8, u32, u64) {
    match resource {
        Resource::Open(file) => (0, file, 0),
        Resource::Size(node) => (1, node, 0),
        Resource::Block(node, block) => (2, node, block),
        Resource::Name(slot) => (3, slot, 0),
        Resource::All => (4, 0, 0),
    }
}

/// Reads and writes at the position of a file become ones at the offset where they were in the recording.
fn at_recorded_offset(step: &mut Step) {
    use does::Does;
    let positional = match step.action.does {
        Does::Read => Does::Pread,
        Does::Readv => Does::Preadv,
        Does::Write => Does::Pwrite,
        Does::Writev => Does::Pwritev,
        _ => return,
    };
    step.action.does = positional;
    step.action.seeks = false;
    for (resource, is_exclusive) in &mut step.uses {
        if matches!(resource, Resource::Open(_)) {
            *is_exclusive = false;
        }
    }
}

/// Which thread of the replay makes the calls of each recorded one. Beyond [`MOST_THREADS`], recorded threads that never
/// overlapped share one.
fn lanes(spans: &BTreeMap<u32, Span>) -> Result<HashMap<u32, usize>, Impossible> {
    if spans.len() <= MOST_THREADS {
        return Ok(spans.keys().enumerate().map(|(lane, tid)| (*tid, lane)).collect());
    }
    let spans = spans.iter();
    let mut spans: Vec<(u64, u64, u32)> = spans.map(|(tid, span)| (span.begin_ns, span.end_ns, *tid)).collect();
    spans.sort_unstable();
    // Threads of the replay by the end of their last call.
    let mut free: std::collections::BinaryHeap<std::cmp::Reverse<(u64, usize)>> = std::collections::BinaryHeap::new();
    let mut lanes = HashMap::new();
    let mut count = 0;
    for (begin, end, tid) in spans {
        let lane = match free.peek() {
            Some(std::cmp::Reverse((ended, _))) if *ended <= begin => free.pop().map_or(0, |entry| entry.0.1),
            _ => {
                count += 1;
                count - 1
            }
        };
        free.push(std::cmp::Reverse((end, lane)));
        lanes.insert(tid, lane);
    }
    if count > MOST_THREADS {
        Err(Impossible::Threads(count))
    } else {
        Ok(lanes)
    }
}

/// The first and the last call that uses each open file, by their numbers in the order of the recording.
#[derive(Default)]
struct OpenAtOnce {
    calls: u32,
    spans: Vec<[u32; 2]>,
}

impl OpenAtOnce {
    /// Adds the next call.
    fn uses(&mut self, action: &Action) {
        for file in [action.file, action.file2].into_iter().filter(|file| *file != NONE) {
            let index = file as usize;
            if self.spans.len() <= index {
                self.spans.resize(index + 1, [self.calls; 2]);
            }
            self.spans[index][1] = self.calls;
        }
        self.calls = self.calls.saturating_add(1);
    }

    /// Open files at the same time, at most, if calls are made in the order of the recording.
    fn most(self, files: &[plan::Opened]) -> usize {
        let mut opened: Vec<u32> = Vec::with_capacity(self.spans.len());
        let mut closed: Vec<u32> = Vec::with_capacity(self.spans.len());
        for ([first, last], file) in self.spans.into_iter().zip(files) {
            opened.push(if file.found.is_some() { 0 } else { first });
            closed.push(last);
        }
        opened.sort_unstable();
        closed.sort_unstable();
        let mut most = 0;
        let mut ended = 0;
        for (begun, at) in opened.into_iter().enumerate() {
            ended += closed[ended..].iter().take_while(|last| **last < at).count();
            most = most.max(begun + 1 - ended);
        }
        most
    }
}
