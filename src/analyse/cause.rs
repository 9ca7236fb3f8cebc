//! Why issues and ends of requests were not seen: the kernel skipped the programs on them, or never called them.
//!
//! A kernel may call no tracepoint while certain tasks are current, nor in interrupts that hit them. Then no program on it runs, and
//! none is skipped.

use crate::model::ids::{CauseKind, Hook, Layer, LossReason};
use crate::model::report::{Cause, Loss};
use crate::model::run_info::{BlockEvent, BlockInfo};

use super::Span;

/// Programs that see the same events, in the span of a report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    event: String,
    is_tracepoint: bool,
    programs: u8,
    /// How many events all of them were skipped at, at most; `None`: the kernel does not count it.
    skipped: Option<u64>,
}

impl Seen {
    /// What sees requests issued.
    pub fn issues(span: &Span<'_>, block: &BlockInfo) -> Self {
        Self::of(span, block, &block.issue)
    }

    /// What sees them end.
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

    /// Losses of so many of these events, by what caused them. Whatever all programs were skipped at is among them.
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

    /// Events that were skipped, whosever they were.
    pub fn skipped(&self) -> u64 {
        self.skipped.unwrap_or(0)
    }
}

/// How often programs were all skipped at the same event, at most: each of the tracepoint's sees all events, the functions' together
/// do. So it is no more often than the least skipped of them. `None` where none is counted.
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
        // Each of the functions sees a part of the events.
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
