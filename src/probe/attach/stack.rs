//! The whole stack's view: the scheduler's events, and the functions that have a row and no op.

use std::collections::{BTreeMap, BTreeSet};

use super::{Attaching, Counters, Owner, Probe, Target, one_line};
use crate::kernel::interface::types::{family_stats, origin_stats};
use crate::kernel::interface::{DIRECTIONS, FAMILIES, ORIGINS};
use crate::layer::family::{Row, RowFunction};
use crate::layer::{Files, Layer, Returns};
use crate::probe::attach::AttachError;
use crate::probe::plan::{Plan, PlannedRow};
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
    /// All of it but the layers' functions, before any of these.
    pub(super) fn stack(&mut self, plan: &Plan) -> Result<(), AttachError> {
        for event in ["sched_wakeup", "sched_switch"] {
            let progs = &self.attached.skeleton.progs;
            let program = match event {
                "sched_wakeup" => &progs.sched_wakeup_btf,
                _ => &progs.sched_switch_btf,
            };
            let (program, link) = self
                .event(program)
                .map_err(|error| AttachError::Load(format!("the scheduler's events: {error}")))?;
            let probe = Probe::on_event(None, Hook::RawTracepoint, event, Some(program));
            self.attached.probes.push(probe);
            self.attached.returns.push((None, link));
        }
        let skeleton = &self.attached.skeleton;
        let map = |name, error: std::io::Error| AttachError::Map(name, error.to_string());
        let families =
            Counters::map(&skeleton.maps.families, FAMILIES as usize).map_err(|error| map("families", error))?;
        let origins = Counters::map(&skeleton.maps.origins, (ORIGINS * DIRECTIONS) as usize)
            .map_err(|error| map("origins", error))?;
        let slow = skeleton.maps.slow_calls.autocreate();
        let slow = slow.then(|| SlowRing::open(&skeleton.maps.slow_calls)).transpose();
        let slow = slow.map_err(|error| AttachError::Map("slow_calls", one_line(&error)))?;
        let functions = self.row_functions(plan);
        self.attached.stack = Some(AttachedStack {
            families,
            origins,
            functions,
            slow,
        });
        Ok(())
    }

    /// Those of a row together where that can be, else each with the first hook that works; the time of what a kernel refuses stays in the
    /// row above.
    fn row_functions(&mut self, plan: &Plan) -> Vec<&'static RowFunction> {
        let loaded = plan.function_hooks.iter().copied();
        let loaded: Vec<Hook> = loaded.filter(|hook| self.hooks.contains(hook)).collect();
        let first = loaded.first().copied().filter(|hook| self.joins(*hook));
        let rows = plan.row_functions.iter();
        let (many, mut single): (Vec<_>, Vec<_>) =
            rows.partition(|planned| first.is_some_and(|hook| planned.fits(hook)));
        let mut seen = Vec::new();
        let mut by_layer: BTreeMap<Option<Layer>, Vec<&PlannedRow>> = BTreeMap::new();
        for planned in many {
            by_layer.entry(planned.function.row.layer()).or_default().push(planned);
        }
        for many in by_layer.into_values() {
            if let Some((first, any)) = first.zip(many.first().copied()) {
                let many = many.into_iter().map(|planned| (target(planned.function), planned));
                let (taken, left) = self.each_kind_together(owner(any), many.collect(), first);
                seen.extend(taken);
                single.extend(left);
            }
        }
        single.retain(|planned| {
            let mut hooks = loaded.iter().filter(|hook| planned.fits(**hook));
            hooks.any(|&hook| self.one(owner(planned), &target(planned.function), hook).is_ok())
        });
        seen.extend(single);
        seen.into_iter().map(|planned| planned.function).collect()
    }
}

/// What is skipped of them is no call of their layer's, and told at vfs.
fn owner(planned: &PlannedRow) -> Owner {
    Owner {
        layer: Layer::Vfs,
        goes_with: planned.function.row.layer(),
    }
}

fn target(function: &RowFunction) -> Target<'_> {
    Target {
        function: function.function,
        word: word(function),
        starts_in_cookie: false,
    }
}

fn word(function: &RowFunction) -> PointWord {
    PointWord {
        op: function.row.place() as u8,
        frame: 0,
        shape: function.shape,
        args: 0,
        returns: Returns::Status,
        guard: None,
        files: Files::None,
        outermost: false,
        silent: false,
        plain: false,
        late: false,
    }
}
