//! Attaches the programs of the whole-stack view: those of the scheduler's tracepoints, and of functions that have a
//! row and no op.

use std::collections::{BTreeMap, BTreeSet};

use super::{Attaching, Counters, Owner, Probe, Target, Why};
use crate::catalog::family::RowFunction;
use crate::catalog::{Files, Layer, Returns, Row, Shape};
use crate::kernel::interface::types::{family_stats, origin_stats};
use crate::kernel::interface::{DIRECTIONS, FAMILIES, MAX_FRAMES, ORIGINS, SYSCALL_FRAME};
use crate::probe::attach::AttachError;
use crate::probe::config::{Setup, counted_frames, frame_of_requests, sharing_file_systems, slot_of, takes_requests};
use crate::probe::plan::{Plan, PlannedRow};
use crate::probe::slow::SlowRing;
use crate::probe::{Hook, PointWord};

/// The parts of the whole-stack view that belong to no layer.
#[derive(Debug)]
pub struct AttachedStack {
    pub families: Counters<family_stats>,
    pub origins: Counters<origin_stats>,
    /// The hooked functions that have a row and no op.
    pub functions: Vec<&'static RowFunction>,
    /// The records of slow calls, if they are requested.
    pub slow: Option<SlowRing>,
}

impl AttachedStack {
    /// Rows of which at least one function is hooked.
    #[must_use]
    pub fn rows(&self) -> BTreeSet<Row> {
        self.functions.iter().map(|function| function.row).collect()
    }

    /// Hooks that are not loaded, and that functions which could not be hooked may accept.
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
    /// The layer with whose functions a function that has a row and no op is attached and detached: its own, if the
    /// functions of that layer assign time to rows only, too.
    pub(super) fn goes_with(&self, planned: &PlannedRow) -> Option<Layer> {
        let layer = planned.function.row.layer()?;
        let rows = self.rows_alone.as_ref()?;
        rows.slots.contains_key(&layer).then_some(layer)
    }

    /// Attaches all of the whole-stack view except the functions of layers and those attached with them. It must
    /// precede them.
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
            let probe = Probe::on_event(None, Hook::RawTracepoint, &[event], Some(program));
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

    pub(super) fn target_of_row(&self, function: &'static RowFunction) -> Target<'static> {
        let word = row_word(slot_of(self.setup.plan, function.row), function.shape);
        Target {
            function: function.function,
            word,
            shares_requests: false,
            starts_in_cookie: false,
            is_entered_alone: false,
            is_row_only: self.shares_rows(word),
        }
    }

    /// Whether a function with this configuration only has a row, and may share a session with others that do: for that, its row is
    /// in a cookie ([`Setup::keeps_cookies`]).
    pub(super) fn shares_rows(&self, word: PointWord) -> bool {
        let is_uncounted = self.rows_alone.as_ref().is_some_and(|rows| rows.is_uncounted(word));
        let is_row_only = word.shape == Shape::Row || is_uncounted;
        is_row_only && self.setup.keeps_cookies() && !self.setup.request.each_alone
    }

    /// Attaches to functions that have a row and no op. If the kernel refuses one, its time stays in the calling row.
    fn row_functions(&mut self, plan: &Plan) {
        let mut by_layer: BTreeMap<Option<Layer>, Vec<&PlannedRow>> = BTreeMap::new();
        for planned in &plan.row_functions {
            if self.goes_with(planned).is_none() {
                by_layer.entry(planned.function.row.layer()).or_default().push(planned);
            }
        }
        for (layer, rows) in by_layer {
            self.functions(owner(layer), &[], &rows, &plan.function_hooks);
        }
    }
}

/// The owner of functions that have a row and no op. Skipped runs of theirs are not lost calls of their layer, and are
/// reported at vfs. (Those attached with the functions of their layer are reported there.)
fn owner(layer: Option<Layer>) -> Owner {
    Owner {
        layer: Layer::Vfs,
        goes_with: layer,
    }
}

/// The configuration of programs on a function that has a row and no op. `slot`: the index of the row.
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

/// The configuration of functions inside a system call if they only assign time to rows, without counting calls
/// ([`Request::rows_only`]). Functions that asynchronous requests pass through are excepted, and page faults that are
/// recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RowsAlone {
    /// The index of a frame in which no calls are counted.
    frame: u8,
    /// A bit for each frame in which calls are counted nevertheless.
    counted: u16,
    /// The index of the first op of each layer, which stands for all of its ops.
    first: BTreeMap<Layer, u8>,
    /// The indices of the rows of vfs and of the file systems.
    slots: BTreeMap<Layer, u8>,
    /// The frame of the requests of each file system that gets reads or writes by functions of its own.
    requests: BTreeMap<Layer, u8>,
    /// The file systems whose functions that get these share a session.
    sharing: BTreeSet<Layer>,
    /// Whether only some files are selected (`--file`, `--disk`).
    has_filter: bool,
}

impl RowsAlone {
    /// `None`: calls are counted, too.
    pub(super) fn new(setup: &Setup<'_>) -> Option<Self> {
        let Setup { plan, request, .. } = *setup;
        let counted = counted_frames(plan, request);
        let mut frames = (0..MAX_FRAMES).filter(|frame| *frame != SYSCALL_FRAME && counted >> frame & 1 == 0);
        let with_rows = plan
            .layers()
            .filter(|layer| *layer == Layer::Vfs || layer.lives().is_some());
        let slots = with_rows.map(|layer| (layer, slot_of(plan, Row::Layer(layer))));
        // `collect` keeps the last entry of a key, which is the first op of the layer.
        let ops = plan.ops.iter().enumerate().rev();
        request.rows_only.then(|| frames.next()).flatten().map(|frame| Self {
            frame: frame as u8,
            counted,
            requests: plan
                .layers()
                .filter(|layer| layer.lives().is_some())
                .filter_map(|layer| Some((layer, frame_of_requests(plan, layer)?)))
                .collect(),
            sharing: sharing_file_systems(plan, setup.facts)
                .into_iter()
                .flatten()
                .map(|(layer, _)| layer)
                .collect(),
            first: ops.map(|(index, op)| (op.layer, index as u8)).collect(),
            slots: slots.collect(),
            has_filter: request.file.is_some() || request.disk.is_some(),
        })
    }

    /// Whether a function with this configuration looks at files, and counts no calls.
    fn is_uncounted(&self, word: PointWord) -> bool {
        word.frame == self.frame && !matches!(word.shape, Shape::Kiocb0 | Shape::Row | Shape::RowBio0)
    }

    /// The frame of the calls of a function with this configuration, if it is one by which a file system gets reads or writes.
    fn frame_of(&self, layer: Layer, word: PointWord) -> Option<u8> {
        let is_its = takes_requests(word.shape, word.returns) && !word.shared;
        self.requests.get(&layer).copied().filter(|_| is_its)
    }

    /// Whether it shares a session with others by which file systems get reads or writes.
    pub(super) fn shares_requests(&self, layer: Layer, word: PointWord) -> bool {
        self.sharing.contains(&layer) && self.frame_of(layer, word).is_some()
    }

    /// The configuration of programs on a function of a layer, instead of `word`. It is the same for all functions of a
    /// layer that look at no file, so that they share programs.
    pub(super) fn word(&self, layer: Layer, word: PointWord) -> PointWord {
        let is_recorded = word.shape == Shape::Fault0 && self.counted >> word.frame & 1 == 1;
        // Their files are those of system calls that have not been checked yet, or may be written back later.
        let needs_file = layer == Layer::Vfs && word.returns == Returns::Bytes;
        if let Some(frame) = self.frame_of(layer, word) {
            return PointWord { frame, ..word };
        }
        if layer == Layer::Syscall || word.shape == Shape::Kiocb0 || is_recorded {
            return word;
        }
        match self.slots.get(&layer) {
            Some(&slot) if !word.shared && !needs_file && !self.has_filter => row_word(slot, Shape::Row),
            _ => {
                // A shared function also returns from calls of other file systems, which must not be taken for the
                // return of an active call: its own op distinguishes them.
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
            counted: 1 << 7,
            first: [(Layer::Vfs, 1), (Layer::Ext4, 5), (Layer::Xfs, 14)].into(),
            slots: [(Layer::Vfs, 1), (Layer::Ext4, 2), (Layer::Xfs, 3)].into(),
            requests: [(Layer::Ext4, 6)].into(),
            sharing: [Layer::Ext4].into(),
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
    fn functions_of_a_layer_share_a_configuration_if_only_rows_are_reported() {
        let alone = alone();
        let fsync = alone.word(Layer::Ext4, of(Shape::File0));
        for shape in [Shape::Fault0, Shape::File1] {
            assert_eq!(fsync, alone.word(Layer::Ext4, of(shape)));
        }
        assert_eq!(fsync, row_word(2, Shape::Row));
        assert_eq!(alone.word(Layer::Xfs, of(Shape::File1)), row_word(3, Shape::Row));
        for shape in [Shape::File0, Shape::Path0, Shape::Fd0] {
            assert_eq!(alone.word(Layer::Vfs, of(shape)), row_word(1, Shape::Row));
        }
    }

    #[test]
    fn a_function_checks_files_if_they_are_not_all_selected_or_not_all_its_own() {
        let filtered = RowsAlone {
            has_filter: true,
            ..alone()
        };
        let checking = |op, word| PointWord { op, frame: 9, ..word };
        let fsync = of(Shape::File0);
        assert_eq!(filtered.word(Layer::Ext4, fsync), checking(5, fsync));
        let guarded = PointWord { shared: true, ..fsync };
        assert_eq!(alone().word(Layer::Ext4, guarded), checking(guarded.op, guarded));
        let read = PointWord {
            returns: Returns::Bytes,
            ..of(Shape::File0)
        };
        assert_eq!(alone().word(Layer::Vfs, read), checking(1, read));
    }

    #[test]
    fn functions_of_asynchronous_requests_and_system_calls_count_their_calls() {
        for (layer, shape) in [(Layer::Vfs, Shape::Kiocb0), (Layer::Syscall, Shape::Syscall)] {
            assert_eq!(alone().word(layer, of(shape)), of(shape));
            assert!(!alone().shares_requests(layer, of(shape)));
        }
    }

    #[test]
    fn reads_and_writes_of_a_file_system_count_theirs_and_share_a_frame_and_a_session() {
        let alone = alone();
        let moving = |op, frame| PointWord {
            op,
            frame,
            returns: Returns::Bytes,
            ..of(Shape::Kiocb0)
        };
        let words = [moving(5, 6), moving(8, 7)].map(|word| alone.word(Layer::Ext4, word));
        assert_eq!(words, [moving(5, 6), moving(8, 6)]);
        for word in words {
            assert!(alone.shares_requests(Layer::Ext4, word));
        }
        // A function that other file systems use, too; an entry point of requests; a file system without any.
        let guarded = PointWord {
            shared: true,
            ..moving(8, 7)
        };
        let entry = PointWord {
            returns: Returns::Issued,
            ..moving(8, 7)
        };
        for (layer, word) in [(Layer::Ext4, guarded), (Layer::Ext4, entry), (Layer::Xfs, moving(8, 7))] {
            assert_eq!(
                (alone.word(layer, word), alone.shares_requests(layer, word)),
                (word, false)
            );
        }
    }

    #[test]
    fn page_faults_that_are_recorded_count_their_calls() {
        let fault = PointWord {
            frame: 7,
            ..of(Shape::Fault0)
        };
        assert_eq!(alone().word(Layer::Ext4, fault), fault);
        let not_recorded = of(Shape::Fault0);
        assert_ne!(alone().word(Layer::Ext4, not_recorded), not_recorded);
    }
}
