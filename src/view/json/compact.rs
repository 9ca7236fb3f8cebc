//! The compact form: without what was measured but never called.

use super::form::{Op, Probe, Report, Row};
use super::of::PARTIAL;
use crate::model::ids::Layer;
use crate::model::object::Named;
use crate::model::report::NotMeasured;

impl Report {
    /// Removes what was measured but never called. Entries of `not_measured` stay even with numbers, which are then
    /// incomplete.
    pub(super) fn leave_out_unused(&mut self) {
        for layer in &mut self.layers {
            // If the layer was not measured, or only some calls of its operations, its own reason is enough.
            let (is_measured, not_measured) = (layer.measured, &layer.not_measured);
            layer
                .ops
                .retain(|op| is_measured && !op.is_partial() && (!op.is_unused() || is_named(not_measured, &op.op)));
        }
        if let Some(stack) = &mut self.stack {
            stack.families.retain(|family| family.count > 0 || family.errors > 0);
            for family in &mut stack.families {
                family.classes.retain(|class| class.count > 0);
                family
                    .rows
                    .retain(|row| !row.is_unused() || is_named(&stack.not_measured, &row.row));
            }
        }
        self.probes.retain(|probe| !probe.is_unused());
    }
}

fn is_named(not_measured: &[NotMeasured], name: &str) -> bool {
    not_measured.iter().any(|part| part.what == name)
}

impl Op {
    /// Only some calls were counted.
    fn is_partial(&self) -> bool {
        self.reason.as_deref() == Some(PARTIAL)
    }

    /// Nothing was counted or lost.
    fn is_unused(&self) -> bool {
        let is_set_aside = self
            .apart
            .is_some_and(|it| [it.at_start, it.never_issued, it.by_kernel, it.unowned, it.untimed] != [0; 5]);
        let is_zero = |counts: &Named<u64>| counts.0.iter().all(|(_, count)| *count == 0);
        self.count == Some(0)
            && self.errors.as_ref().is_none_or(|errors| errors.0.is_empty())
            && self.async_not_timed.is_none_or(|calls| calls == 0)
            && !is_set_aside
            && self.lost.as_ref().is_none_or(is_zero)
    }
}

impl Row {
    /// The row of the system calls themselves always stays: it says whether time in the kernel was split.
    fn is_unused(&self) -> bool {
        self.row != Layer::Syscall.name() && self.ns == Some(0) && self.calls.is_none_or(|calls| calls == 0)
    }
}

impl Probe {
    /// Its runs were counted, and there were none.
    fn is_unused(&self) -> bool {
        let has_run = self.entry.iter().chain(&self.leave).any(|runs| runs.count > 0);
        self.entry.is_some() && !has_run && self.skipped.is_none_or(|entries| entries == 0)
    }
}
