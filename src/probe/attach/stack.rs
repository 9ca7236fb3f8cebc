//! The whole stack's view: the scheduler's events, and the functions that have a row and no op.

use std::collections::{BTreeMap, BTreeSet};

use super::{Attaching, Counters, Owner, Probe, Target, Why};
use crate::catalog::family::RowFunction;
use crate::catalog::{Files, Layer, Returns, Row, Shape};
use crate::kernel::interface::types::{family_stats, origin_stats};
use crate::kernel::interface::{DIRECTIONS, FAMILIES, MAX_FRAMES, ORIGINS, SYSCALL_FRAME};
use crate::probe::attach::AttachError;
use crate::probe::config::{counted_frames, slot_of};
use crate::probe::plan::{Plan, PlannedRow};
use crate::probe::request::Request;
use crate::probe::slow::SlowRing;
use crate::probe::{Hook, PointWord};

/// What the whole stack's view has beside the layers.
#[derive(Debug)]
pub struct AttachedStack {
    pub families: Counters<family_stats>,
    pub origins: Counters<origin_stats>,
    /// Those of the functions that have a row and no op that are seen.
    pub functions: Vec<&'static RowFunction>,
    /// Where slow calls are asked for.
    pub slow: Option<SlowRing>,
}

impl AttachedStack {
    /// Rows that have functions of their own, of which one or more are seen.
    #[must_use]
    pub fn rows(&self) -> BTreeSet<Row> {
        self.functions.iter().map(|function| function.row).collect()
    }

    /// Hooks that might do for functions which those that are loaded did not.
    pub(super) fn untried(&self, plan: &Plan, loaded: &[Hook]) -> Vec<Hook> {
        let is_seen = |planned: &PlannedRow| {
            let mut functions = self.functions.iter();
            functions.any(|function| function.function == planned.function.function)
        };
        let unseen = plan.row_functions.iter().filter(|planned| !is_seen(planned));
        let fitting = unseen.flat_map(|planned| plan.function_hooks.iter().filter(|hook| planned.fits(**hook)));
        fitting.copied().filter(|hook| !loaded.contains(hook)).collect()
    }
}

impl Attaching<'_> {
    /// The layer with whose functions one goes that has a row and no op: a file system's, where rows are all that is told of these, too.
    pub(super) fn goes_with(&self, planned: &PlannedRow, plan: &Plan) -> Option<Layer> {
        let layer = planned.function.row.layer()?;
        let goes = self.rows_alone.is_some() && layer.lives().is_some() && plan.has(layer);
        goes.then_some(layer)
    }

    /// All of it but the layers' functions, and what goes with these, before any of them.
    pub(super) fn stack(&mut self, plan: &Plan) -> Result<(), AttachError> {
        for event in ["sched_wakeup", "sched_switch"] {
            let progs = &self.attached.skeleton.progs;
            let program = match event {
                "sched_wakeup" => &progs.sched_wakeup_btf,
                _ => &progs.sched_switch_btf,
            };
            let (program, link) = self
                .event(program)
                .map_err(|error| AttachError::Load(Why::from(error).at("the scheduler's events")))?;
            let probe = Probe::on_event(None, Hook::RawTracepoint, event, Some(program));
            self.attached.probes.push(probe);
            self.attached.returns.push((None, link));
        }
        let skeleton = &self.attached.skeleton;
        let map = |name, error: std::io::Error| AttachError::Map(name, error.into());
        let families =
            Counters::map(&skeleton.maps.families, FAMILIES as usize).map_err(|error| map("families", error))?;
        let origins = Counters::map(&skeleton.maps.origins, (ORIGINS * DIRECTIONS) as usize)
            .map_err(|error| map("origins", error))?;
        let slow = skeleton.maps.slow_calls.autocreate();
        let slow = slow.then(|| SlowRing::open(&skeleton.maps.slow_calls)).transpose();
        let slow = slow.map_err(|error| AttachError::Map("slow_calls", error.into()))?;
        self.attached.stack = Some(AttachedStack {
            families,
            origins,
            functions: Vec::new(),
            slow,
        });
        self.row_functions(plan);
        Ok(())
    }

    /// The time of what a kernel refuses stays in the row above.
    fn row_functions(&mut self, plan: &Plan) {
        let mut by_layer: BTreeMap<Option<Layer>, Vec<&PlannedRow>> = BTreeMap::new();
        for planned in &plan.row_functions {
            if self.goes_with(planned, plan).is_none() {
                by_layer.entry(planned.function.row.layer()).or_default().push(planned);
            }
        }
        for (layer, rows) in by_layer {
            self.functions(owner(layer), &[], &rows, &plan.function_hooks);
        }
    }
}

/// What is skipped of them is no call of their layer's, and told at vfs. (Those that go with their layer's functions are told there.)
fn owner(layer: Option<Layer>) -> Owner {
    Owner {
        layer: Layer::Vfs,
        goes_with: layer,
    }
}

pub(super) fn target(function: &'static RowFunction, plan: &Plan) -> Target<'static> {
    Target {
        function: function.function,
        word: row_word(slot_of(plan, function.row), function.shape),
        starts_in_cookie: false,
    }
}

/// What the programs of a function are told that has a row, and no op. `slot`: the row's.
fn row_word(slot: u8, shape: Shape) -> PointWord {
    PointWord {
        op: slot,
        frame: 0,
        shape,
        args: 0,
        returns: Returns::Status,
        shared: false,
        files: Files::None,
        outermost: false,
        suppressed: false,
        checked_at_return: false,
    }
}

/// Where the rows' time is all that is told of the functions inside a system call, if no request can come by them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RowsAlone {
    /// A frame in which no call is counted, so that nobody looks there.
    frame: u8,
    /// Each layer's first op, by its place, which stands for the others.
    first: BTreeMap<Layer, u8>,
    /// The slots of file systems' rows.
    slots: BTreeMap<Layer, u8>,
    /// Files are told apart.
    has_filter: bool,
}

impl RowsAlone {
    /// `None`: calls are counted, too.
    pub(super) fn new(plan: &Plan, request: &Request) -> Option<Self> {
        let counted = counted_frames(plan, request);
        let mut frames = (0..MAX_FRAMES).filter(|frame| *frame != SYSCALL_FRAME && counted >> frame & 1 == 0);
        let file_systems = plan.layers().filter(|layer| layer.lives().is_some());
        let slots = file_systems.map(|layer| (layer, slot_of(plan, Row::Layer(layer))));
        // The last one of a key is kept.
        let ops = plan.ops.iter().enumerate().rev();
        request.rows_only.then(|| frames.next()).flatten().map(|frame| Self {
            frame: frame as u8,
            first: ops.map(|(index, op)| (op.layer, index as u8)).collect(),
            slots: slots.collect(),
            has_filter: request.file.is_some() || request.disk.is_some(),
        })
    }

    /// What the programs of a layer's function, which are otherwise told `word`, need to know. Those of a file system that are for its
    /// own files alone are then all the same, and the others differ by what they judge.
    pub(super) fn word(&self, layer: Layer, word: PointWord) -> PointWord {
        let is_by_requests = word.shape == Shape::Kiocb0;
        // It opened directories by the function for files once; bpf/function.bpf.h.
        let may_be_others = layer == Layer::Xfs && word.shape == Shape::File1;
        if layer == Layer::Syscall || is_by_requests {
            return word;
        }
        match self.slots.get(&layer) {
            Some(&slot) if !word.shared && !may_be_others && !self.has_filter => row_word(slot, Shape::Row),
            _ => {
                // A shared one returns from others' calls, too, which must not be taken for the return of one that is open.
                let alone = self.first.get(&layer).copied().filter(|_| !word.shared);
                PointWord {
                    op: alone.unwrap_or(word.op),
                    frame: self.frame,
                    ..word
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    fn alone() -> RowsAlone {
        RowsAlone {
            frame: 9,
            first: [(Layer::Vfs, 1), (Layer::Ext4, 5), (Layer::Xfs, 14)].into(),
            slots: [(Layer::Ext4, 2), (Layer::Xfs, 3)].into(),
            has_filter: false,
        }
    }

    fn of(shape: Shape) -> PointWord {
        PointWord {
            op: 20,
            frame: 2,
            returns: Returns::StatusInt,
            ..row_word(0, shape)
        }
    }

    #[test]
    fn a_file_systems_functions_are_told_the_same_where_rows_are_all_that_is_told() {
        let alone = alone();
        let fsync = alone.word(Layer::Ext4, of(Shape::File0));
        for shape in [Shape::Fault0, Shape::File1] {
            assert_eq!(fsync, alone.word(Layer::Ext4, of(shape)));
        }
        assert_eq!(fsync, row_word(2, Shape::Row));
        assert_ne!(fsync, alone.word(Layer::Xfs, of(Shape::File0)));
    }

    #[test]
    fn a_function_is_told_whose_files_it_is_for_where_they_are_not_all_its_own() {
        let filtered = RowsAlone {
            has_filter: true,
            ..alone()
        };
        let judging = |op, word| PointWord { op, frame: 9, ..word };
        let fsync = of(Shape::File0);
        assert_eq!(filtered.word(Layer::Ext4, fsync), judging(5, fsync));
        let guarded = PointWord { shared: true, ..fsync };
        assert_eq!(alone().word(Layer::Ext4, guarded), judging(guarded.op, guarded));
        let open = of(Shape::File1);
        assert_eq!(alone().word(Layer::Xfs, open), judging(14, open));
        let read = of(Shape::File0);
        assert_eq!(alone().word(Layer::Vfs, read), judging(1, read));
    }

    #[test]
    fn what_requests_come_by_and_system_calls_count_their_calls() {
        for (layer, shape) in [
            (Layer::Ext4, Shape::Kiocb0),
            (Layer::Vfs, Shape::Kiocb0),
            (Layer::Syscall, Shape::Syscall),
        ] {
            assert_eq!(alone().word(layer, of(shape)), of(shape));
        }
    }
}
