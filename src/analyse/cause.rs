//! Why issues and completions of requests were not seen: the kernel skipped the programs on them, or never called them.
//!
//! Some kernels call no tracepoint while certain tasks are current, nor in interrupts that arrive meanwhile. Then no
//! program on it runs, and none is counted as skipped.

use crate::model::ids::{CauseKind, Hook, Layer, LossReason};
use crate::model::report::{Cause, Loss};
use crate::model::run_info::{BlockEvent, BlockInfo};

use super::Span;

/// The programs that see the same events, over the span of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    event: String,
    is_tracepoint: bool,
    programs: u8,
    /// The maximum number of events at which all of them were skipped; `None`: the kernel does not count it.
    skipped: Option<u64>,
}

impl Seen {
    /// The programs that see requests issued.
    pub fn issues(span: &Span<'_>, block: &BlockInfo) -> Self {
        Self::of(span, block, &block.issue)
    }

    /// The programs that see requests complete.
    pub fn ends(span: &Span<'_>, block: &BlockInfo) -> Self {
        Self::of(span, block, &block.end)
    }

    fn of(span: &Span<'_>, block: &BlockInfo, event: &BlockEvent) -> Self {
        let probes = span.probes().filter(|(probe, _)| probe.layer == Some(Layer::Blk));
        let (mut on_event, mut on_functions) = (Vec::new(), Vec::new());
        for (probe, counts) in probes {
            let is_on = |name: &str| probe.functions.iter().any(|function| function == name);
            if is_on(&event.tracepoint) {
                // Kernels that do not count it skip none (05b24ff9b2cf).
                on_event.push(Some(counts.skipped_alone.unwrap_or(0)));
            } else if event.functions.iter().any(|name| is_on(name)) {
                on_functions.push(counts.skipped_alone);
            }
        }
        let is_tracepoint = block.hook == Hook::RawTracepoint || !on_event.is_empty();
        Self {
            event: if is_tracepoint {
                event.tracepoint.clone()
            } else {
                event.functions.join(", ")
            },
            is_tracepoint,
            programs: (on_event.len() + usize::from(!on_functions.is_empty())) as u8,
            skipped: skipped_by_all(&on_event, &on_functions),
        }
    }

    /// Splits the losses of these events by cause. Events at which all programs were skipped are included.
    pub fn losses(&self, reason: LossReason, lost: u64) -> Vec<Loss> {
        let loss = |count, kind: Option<CauseKind>| Loss {
            reason,
            count,
            up_to: false,
            cause: kind.map(|kind| Cause {
                kind,
                event: self.event.clone(),
                is_tracepoint: self.is_tracepoint,
                programs: self.programs,
            }),
        };
        let parts = match self.skipped {
            None => vec![loss(lost, None)],
            Some(skipped) => vec![
                loss(lost.saturating_sub(skipped), Some(CauseKind::NotCalled)),
                loss(lost.min(skipped), Some(CauseKind::Skipped)),
            ],
        };
        parts.into_iter().filter(|loss| loss.count > 0).collect()
    }

    /// The number of skipped events, of all processes.
    pub fn skipped(&self) -> u64 {
        self.skipped.unwrap_or(0)
    }
}

/// The maximum number of events at which all programs were skipped. Each program on the tracepoint sees all events, and
/// those on functions see them all together, so it is at most the least skip count of these. `None` if no skips are
/// counted.
fn skipped_by_all(on_event: &[Option<u64>], on_functions: &[Option<u64>]) -> Option<u64> {
    let functions = on_functions
        .iter()
        .copied()
        .reduce(|sum, one| Some(sum?.saturating_add(one?)));
    on_event.iter().copied().chain(functions).flatten().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_program_was_not_skipped_at_was_seen() {
        assert_eq!(skipped_by_all(&[Some(7), Some(3)], &[]), Some(3));
        assert_eq!(skipped_by_all(&[Some(7), Some(0)], &[]), Some(0));
        // Each function's program sees a part of the events.
        assert_eq!(skipped_by_all(&[Some(9)], &[Some(2), Some(3)]), Some(5));
        assert_eq!(skipped_by_all(&[Some(4)], &[Some(2), None]), Some(4));
        assert_eq!(skipped_by_all(&[], &[Some(2), Some(3)]), Some(5));
        assert_eq!(skipped_by_all(&[], &[None]), None);
        assert_eq!(skipped_by_all(&[], &[]), None);
    }

    #[test]
    fn a_loss_has_its_cause() {
        let causes = |skipped, lost| {
            let seen = Seen {
                event: "block_rq_complete".to_owned(),
                is_tracepoint: true,
                programs: 2,
                skipped,
            };
            let losses = seen.losses(LossReason::ReturnMissed, lost);
            let parts = losses
                .iter()
                .map(|loss| (loss.count, loss.cause.as_ref().map(|cause| cause.kind)));
            parts.collect::<Vec<_>>()
        };
        assert_eq!(causes(Some(0), 1174), [(1174, Some(CauseKind::NotCalled))]);
        assert_eq!(causes(Some(5), 3), [(3, Some(CauseKind::Skipped))]);
        assert_eq!(
            causes(Some(2), 3),
            [(1, Some(CauseKind::NotCalled)), (2, Some(CauseKind::Skipped))]
        );
        assert_eq!(causes(None, 3), [(3, None)]);
        assert_eq!(causes(Some(2), 0), []);
    }
}
