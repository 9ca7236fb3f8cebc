//! The run that a report of some records is about.

use std::sync::Arc;

use crate::model::ids::{By, Layer};
use crate::model::report::{Filter, NotMeasured};
use crate::model::run_info::RunInfo;

/// What a report of records is to show.
#[derive(Debug, Clone, Default)]
pub struct Shown {
    /// These layers, each on its own; empty: what the run measured.
    pub layers: Vec<Layer>,
    pub by: Option<By>,
    pub top: usize,
    pub slower_ns: Option<u64>,
    /// The whole selection, as fields and in words.
    pub filter: Filter,
    pub subject: String,
    /// Only some records are selected: the counters of the run are not theirs.
    pub is_selected: bool,
    pub notes: Vec<String>,
}

/// Layers of which records have the operations.
pub const IN_RECORDS: [Layer; 2] = [Layer::Syscall, Layer::Blk];

impl Shown {
    /// The run as reports of the records describe it.
    #[must_use]
    pub fn run(&self, run: &RunInfo) -> RunInfo {
        let mut run = RunInfo {
            by: self.by,
            top: self.top,
            slower_ns: self.slower_ns,
            filter: self.filter.clone(),
            subject: self.subject.clone(),
            ..run.clone()
        };
        run.notes.extend(self.notes.iter().cloned());
        if !self.layers.is_empty() {
            run.stack = None;
            run.slower_ns = None;
            run.layers.retain(|info| self.layers.contains(&info.layer));
        }
        if self.is_selected {
            run.is_filtered = true;
            run.disks = None;
            // Each call and request is counted.
            run.ops.iter_mut().for_each(|op| op.is_partial = false);
            let missing = run.ops.iter_mut().filter(|op| !IN_RECORDS.contains(&op.layer));
            for op in missing.filter(|op| !op.points.is_empty()) {
                op.points = Arc::default();
                op.not_measured.clear();
                op.absent = Some(NotMeasured {
                    what: op.op.to_string(),
                    reason: format!(
                        "records of calls have the time in {}, and not its single operations",
                        op.layer
                    ),
                });
            }
        }
        run
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::Op;
    use crate::model::report::AttachPoint;
    use crate::model::run_info::{LayerInfo, OpInfo, StackInfo};

    fn run() -> RunInfo {
        let layers = [Layer::Syscall, Layer::Vfs, Layer::Blk];
        RunInfo {
            layers: layers
                .map(|layer| LayerInfo {
                    layer,
                    refused: None,
                    not_measured: Vec::new(),
                    completions_skip_interrupts: false,
                })
                .to_vec(),
            ops: layers
                .map(|layer| OpInfo {
                    layer,
                    op: Op::Read,
                    moves_bytes: true,
                    points: [AttachPoint {
                        function: "f".to_owned(),
                        hook: crate::model::ids::Hook::Kprobe,
                    }]
                    .into(),
                    refused: Arc::default(),
                    not_measured: Vec::new(),
                    absent: None,
                    is_partial: false,
                })
                .to_vec(),
            stack: Some(StackInfo::default()),
            ..RunInfo::default()
        }
    }

    #[test]
    fn layers_below_calls_have_no_operations_in_records() {
        let is_selected = true;
        let shown = Shown {
            is_selected,
            ..Shown::default()
        };
        let selected = shown.run(&run());
        let absent: Vec<bool> = selected.ops.iter().map(|op| op.absent.is_some()).collect();
        assert_eq!(absent, [false, true, false]);
        assert!(selected.is_filtered && selected.stack.is_some());
        let whole = Shown::default().run(&run());
        assert!(whole.ops.iter().all(|op| op.absent.is_none()) && !whole.is_filtered);
    }

    #[test]
    fn single_layers_of_a_whole_stack_are_without_it() {
        let shown = Shown {
            layers: vec![Layer::Blk],
            ..Shown::default()
        };
        let only = shown.run(&run());
        assert_eq!((only.layers.len(), only.stack.is_none()), (1, true));
    }
}
