//! Replay: which calls of a recording are made again, on which files, in which order and when; and how what they return
//! compares. Pure: [`crate::playback`] makes the calls.
//!
//! A recording is gone through three times, so that its calls are never held as a whole: [`load`] learns what has to be known
//! before they are followed; [`plan()`] finds out what must be prepared and what all of them need; [`windows`] makes them, some
//! at a time, while they are replayed. [`simulate`] follows what they do to names, sizes and positions, and [`order`] finds
//! out which of them wait for which.

pub mod does;
pub mod flags;
mod in_order;
pub mod load;
mod making;
pub mod order;
pub mod path;
pub mod plan;
pub mod ranges;
pub mod results;
mod simulate;
pub mod tree;
pub mod windows;
pub mod working;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap, HashSet};

use self::does::Does;
use self::load::{Loaded, Span};
use self::making::Making;
use self::order::Order;
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
    let mut making = Making {
        lanes: lanes(&loaded.spans)?,
        loaded,
        roots: roots.clone(),
        mounts: Mounts::new(mounts),
        machine: meta.machine.clone(),
        order,
        start_ns: 0,
    };
    let mut simulation = making.simulation();
    let mut survey = Survey::default();
    for call in making.loaded.calls(batches) {
        if let Some(step) = making.step(&mut simulation, &call) {
            survey.add(&step, making.lane(step.tid));
        }
    }
    let needed = simulation.needed(root_count);
    let prepared = simulation.prepared();
    let most_open = survey.open.most(&simulation.files);
    let spots = simulation.take_spots();
    let Simulation {
        files,
        sharing,
        texts,
        made,
        mut left_out,
        ..
    } = simulation;
    for (op, calls) in &making.loaded.under_way {
        *left_out.entry((*op, does::Why::UnderWay)).or_default() += calls;
    }
    let start_ns = survey.start_ns.ok_or(Impossible::Nothing)?;
    let mut threads = survey.threads;
    set_alone(&mut threads, &making.lanes, &sharing);
    let (threads, lanes) = without_idle(threads, &making.lanes);
    (making.start_ns, making.lanes) = (start_ns, lanes);
    Ok(Plan {
        threads,
        files,
        spots,
        texts,
        prepared,
        made: made.into_iter().collect(),
        needed,
        most_open,
        changes_of_owners: survey.changes_of_owners,
        span_ns: survey.end_ns - start_ns,
        left_out,
        recorded: making.loaded.recorded,
        not_selected: making.loaded.not_selected,
        asynchronous: making.loaded.asynchronous,
        faults: making.loaded.faults,
        lost: making.loaded.lost.clone(),
        has_classes: making.loaded.has_classes,
        making,
    })
}

/// What the calls of a plan have in common, and how many there are.
#[derive(Default)]
struct Survey {
    threads: Vec<Thread>,
    open: OpenAtOnce,
    /// When the first call began, and the last one ended.
    start_ns: Option<u64>,
    end_ns: u64,
    changes_of_owners: usize,
}

impl Survey {
    /// Adds the next call.
    fn add(&mut self, step: &Step, lane: usize) {
        let action = &step.action;
        self.start_ns.get_or_insert(step.begin_ns);
        self.end_ns = self.end_ns.max(step.end_ns);
        self.open.uses(action);
        self.changes_of_owners += usize::from(matches!(action.does, Does::Chown | Does::Fchown));
        if self.threads.len() <= lane {
            self.threads.resize_with(lane + 1, Thread::default);
        }
        let thread = &mut self.threads[lane];
        if thread.calls == 0 {
            thread.tid = step.tid;
        }
        thread.calls += 1;
        let largest = match () {
            () if action.does.reads() => &mut thread.largest_read,
            () if action.does.writes() => &mut thread.largest_write,
            () => return,
        };
        *largest = action.size.max(*largest);
    }
}

/// Finds out which threads of the replay are alone: those that make no calls of a recorded thread in `sharing`.
fn set_alone(threads: &mut [Thread], lanes: &HashMap<u32, usize>, sharing: &HashSet<u32>) {
    threads.iter_mut().for_each(|thread| thread.is_alone = true);
    for lane in sharing.iter().filter_map(|tid| lanes.get(tid)) {
        if let Some(thread) = threads.get_mut(*lane) {
            thread.is_alone = false;
        }
    }
}

/// Threads that have calls, and which of them makes those of each recorded one.
fn without_idle(threads: Vec<Thread>, lanes: &HashMap<u32, usize>) -> (Vec<Thread>, HashMap<u32, usize>) {
    let mut left = 0;
    let numbers: Vec<Option<usize>> = threads
        .iter()
        .map(|thread| {
            left += usize::from(thread.calls > 0);
            (thread.calls > 0).then(|| left - 1)
        })
        .collect();
    let renumbered = lanes
        .iter()
        .filter_map(|(tid, lane)| Some((*tid, numbers.get(*lane).copied().flatten()?)));
    let lanes = renumbered.collect();
    (threads.into_iter().filter(|thread| thread.calls > 0).collect(), lanes)
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
    /// Of open files, whose numbers are in the order of their first uses: ascending.
    firsts: Vec<u32>,
    lasts: Vec<u32>,
}

impl OpenAtOnce {
    /// Adds the next call.
    fn uses(&mut self, action: &Action) {
        for file in [action.file, action.file2].into_iter().filter(|file| *file != NONE) {
            let index = file as usize;
            if self.firsts.len() <= index {
                self.firsts.resize(index + 1, self.calls);
                self.lasts.resize(index + 1, self.calls);
            }
            self.lasts[index] = self.calls;
        }
        self.calls = self.calls.saturating_add(1);
    }

    /// Open files at the same time, at most, if calls are made in the order of the recording.
    fn most(mut self, files: &[plan::Opened]) -> usize {
        // What was open before the recording is open until its last use.
        let found = files.iter().filter(|file| file.found.is_some()).count();
        self.lasts.sort_unstable();
        let opened = self.firsts.iter().zip(files).filter(|(_, file)| file.found.is_none());
        let mut most = found;
        let mut ended = 0;
        for (begun, (first, _)) in opened.enumerate() {
            ended += self.lasts[ended..].iter().take_while(|last| *last < first).count();
            most = most.max(found + begun + 1 - ended);
        }
        most
    }
}
