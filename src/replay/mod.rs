//! Replay: which calls of a recording are made again, on which files, in which order and when; and how what they return
//! compares. Pure: [`crate::playback`] makes the calls.
//!
//! [`load`] keeps the selected calls of a recording, [`simulate`] follows what they do to names, sizes and positions,
//! [`order`] finds out which of them wait for which, and [`plan`] is what results.

pub mod does;
pub mod flags;
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

use std::collections::BTreeMap;

use self::load::Loaded;
use self::order::{Order, Ordering, Resource, Timed};
use self::path::{Mounts, Roots};
use self::plan::{NONE, Plan, Thread};
use self::simulate::{Simulation, Step};
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

/// Makes the plan of a replay. `loaded` is finished.
///
/// # Errors
/// Why there is none.
pub fn plan(
    mut loaded: Loaded,
    meta: &Meta,
    roots: &Roots,
    root_count: usize,
    order: Order,
) -> Result<Plan, Impossible> {
    let mounts = meta
        .mounts
        .iter()
        .map(|mount| (mount.point.as_str(), mount.file_system.as_str()));
    let mut simulation = Simulation::new(&mut loaded, roots, Mounts::new(mounts), &meta.machine);
    let calls = std::mem::take(&mut loaded.calls);
    let mut steps: Vec<Step> = calls.into_iter().filter_map(|call| simulation.step(&call)).collect();
    let lanes = lanes(&steps)?;
    let mut plan = Plan {
        prepared: simulation.prepared(),
        needed: simulation.needed(root_count),
        recorded: loaded.recorded,
        not_selected: loaded.not_selected,
        asynchronous: loaded.asynchronous,
        faults: loaded.faults,
        lost: loaded.lost,
        has_classes: loaded.has_classes,
        ..Plan::default()
    };
    if order == Order::Threads {
        steps.iter_mut().for_each(at_recorded_offset);
    }
    let is_changed = |slot: u32| simulation.tree.slots[slot as usize].is_changed;
    let mut ordering = Ordering::default();
    let start_ns = steps.first().map_or(0, |step| step.begin_ns);
    plan.most_open = most_open(&steps, &simulation.files);
    for step in steps {
        let lane = lanes[&step.tid];
        if plan.threads.len() <= lane {
            plan.threads.resize_with(lane + 1, Thread::default);
        }
        let thread = &mut plan.threads[lane];
        if thread.actions.is_empty() {
            thread.tid = step.tid;
        }
        let number = thread.actions.len();
        let mut action = step.action;
        action.begin_ns = step.begin_ns - start_ns;
        action.took_ns = step.end_ns - step.begin_ns;
        thread.actions.push(action);
        let timed = Timed {
            thread: lane as u32,
            number: number as u32,
            begin_ns: step.begin_ns,
            end_ns: step.end_ns,
        };
        let uses = uses(step.uses, order, &is_changed);
        let edges = ordering.edges(timed, &uses);
        plan.add_edges(lane, number, edges);
    }
    plan.left_out = simulation.left_out;
    for (op, calls) in loaded.under_way {
        *plan.left_out.entry((op, does::Why::UnderWay)).or_default() += calls;
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
fn uses(uses: Vec<(Resource, bool)>, order: Order, is_changed: &impl Fn(u32) -> bool) -> Vec<(Resource, bool)> {
    let mut uses = match order {
        Order::Total => vec![(Resource::All, true)],
        // An open file has to be open.
        Order::Threads => uses
            .into_iter()
            .filter(|(of, _)| matches!(of, Resource::Open(_)))
            .collect(),
        Order::Files => uses,
    };
    uses.retain(|(resource, _)| match resource {
        Resource::Name(slot) => is_changed(*slot),
        _ => true,
    });
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
fn lanes(steps: &[Step]) -> Result<BTreeMap<u32, usize>, Impossible> {
    let mut spans: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for step in steps {
        let span = spans.entry(step.tid).or_insert((step.begin_ns, step.end_ns));
        span.1 = span.1.max(step.end_ns);
    }
    if spans.len() <= MOST_THREADS {
        return Ok(spans.into_keys().enumerate().map(|(lane, tid)| (tid, lane)).collect());
    }
    let mut spans: Vec<(u64, u64, u32)> = spans.into_iter().map(|(tid, (begin, end))| (begin, end, tid)).collect();
    spans.sort_unstable();
    // Threads of the replay by the end of their last call.
    let mut free: std::collections::BinaryHeap<std::cmp::Reverse<(u64, usize)>> = std::collections::BinaryHeap::new();
    let mut lanes = BTreeMap::new();
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

/// Open files at the same time, at most, if calls are made in the order of the recording.
fn most_open(steps: &[Step], files: &[plan::Opened]) -> usize {
    let mut left: Vec<u32> = files.iter().map(|file| file.uses).collect();
    let mut open = files.iter().filter(|file| file.found.is_some()).count();
    let mut most = open;
    for step in steps {
        for index in [step.action.file, step.action.file2] {
            let Some(uses) = left.get_mut(index as usize).filter(|_| index != NONE) else {
                continue;
            };
            if files[index as usize].found.is_none() && *uses == files[index as usize].uses {
                open += 1;
                most = most.max(open);
            }
            *uses = uses.saturating_sub(1);
            if *uses == 0 {
                open = open.saturating_sub(1);
            }
        }
    }
    most
}
