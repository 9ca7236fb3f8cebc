//! Makes the actions of calls, in the same way each time that a recording is gone through: to find out what must be
//! prepared, and again while they are made.

use std::collections::HashMap;

use super::does::Does;
use super::load::{Loaded, Recorded};
use super::order::{Order, Resource};
use super::path::{Mounts, Roots};
use super::simulate::{Simulation, Step};

/// What decides the actions of calls.
#[derive(Debug)]
pub struct Making {
    pub loaded: Loaded,
    pub roots: Roots,
    pub mounts: Mounts,
    /// The architecture of the recorded machine.
    pub machine: String,
    pub order: Order,
    /// Which thread of the replay makes the calls of each recorded one.
    pub lanes: HashMap<u32, usize>,
    /// When the first call began.
    pub start_ns: u64,
}

impl Making {
    /// Follows calls from the start on.
    pub fn simulation(&self) -> Simulation<'_> {
        Simulation::new(&self.loaded, &self.roots, &self.mounts, &self.machine)
    }

    /// Follows a call; `None`: it is not replayed, which the simulation has counted.
    pub fn step(&self, simulation: &mut Simulation<'_>, call: &Recorded) -> Option<Step> {
        let mut step = simulation.step(call)?;
        if self.order == Order::Threads {
            at_recorded_offset(&mut step);
        }
        step.action.begin_ns = step.begin_ns - self.start_ns;
        step.action.took_ns = step.end_ns - step.begin_ns;
        Some(step)
    }

    /// The thread that makes the calls of a recorded one that has some.
    pub fn lane(&self, tid: u32) -> usize {
        self.lanes.get(&tid).copied().unwrap_or(usize::MAX)
    }
}

/// What decides the order of a call.
pub fn uses(uses: Vec<(Resource, bool)>, order: Order) -> Vec<(Resource, bool)> {
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
