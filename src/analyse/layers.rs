//! The layers of a report.

use std::sync::Arc;

use super::cause::Seen;
use super::{Span, disks, neighbour, since};
use crate::catalog::REQUESTS;
use crate::model::abi::{LOST_CLOCK, LOST_REASONS, LOST_RETURN, LOST_STORAGE, LOST_TABLE_FULL};
use crate::model::ids::{Hook, Layer, LossReason};
use crate::model::report::{Agreement, LayerReport, Loss, NotMeasured, OpReport, SetAside};
use crate::model::run_info::{BlockInfo, LayerInfo};
use crate::model::snapshot::OpCounters;

/// All selected layers.
pub fn report(span: &Span<'_>) -> Vec<LayerReport> {
    span.run.layers.iter().map(|info| of_layer(info, span)).collect()
}

fn of_layer(info: &LayerInfo, span: &Span<'_>) -> LayerReport {
    let layer = info.layer;
    let mut report = LayerReport::new(layer);
    if let Some(why) = &info.refused {
        report.absent = span.run.ops_of(layer).filter_map(|(_, op)| op.absent.clone()).collect();
        report.not_measured.push(NotMeasured::new("everything", why));
        return report;
    }
    if let Some(detached) = span.detached(layer) {
        let not_measured = |what: &str| NotMeasured::new(what, since(detached));
        if span.is_gone(layer) {
            let ops = span.run.ops_of(layer);
            report.absent = ops.map(|(_, op)| not_measured(op.op.name())).collect();
            report.not_measured.push(not_measured("everything"));
            return report;
        }
        report.not_measured.push(not_measured(match layer {
            Layer::Blk => "later requests",
            _ => "later calls",
        }));
    }
    report.not_measured.extend(info.not_measured.iter().cloned());
    let lost = ops_of_layer(&mut report, span);
    report.losses = losses(layer, &lost, span);
    report.losses_unknown = span.run.is_without_counters;
    report.skips_unknown = !report.losses_unknown && skips_unknown(layer, span);
    let under_way = span.after.under_way.as_ref();
    report.in_flight = under_way.map(|known| known.by_layer.get(&layer).copied().unwrap_or(0));
    if let Some(error) = span.after.unread.as_ref().filter(|_| layer == Layer::Vfs) {
        report.warnings.push(format!(
            "the last calls at {layer} are missing, since their counters could not be read: {error}"
        ));
    }
    if info.completions_skip_interrupts {
        report.warnings.push(format!(
            "asynchronous calls at {layer} can be lost: completions are seen only by kprobes, which miss some in interrupts"
        ));
    }
    warn_of_lossy_hooks(&mut report, span);
    report
}

/// The losses of a layer's ops.
#[derive(Default)]
struct Lost {
    /// In the order of `enum lost_reason`.
    by_reason: [u64; LOST_REASONS as usize],
    unseen_issues: u64,
}

/// Fills in the counts and the hooks of each op.
fn ops_of_layer(report: &mut LayerReport, span: &Span<'_>) -> Lost {
    let mut lost = Lost::default();
    let mut queue_times = Vec::new();
    for (index, op) in span.run.ops_of(report.layer) {
        report.not_measured.extend(op.not_measured.iter().cloned());
        if op.points.is_empty() {
            report.absent.extend(op.absent.clone());
            continue;
        }
        report.partial.extend(op.is_partial.then_some(op.op));
        for point in &*op.points {
            if !report.hooks.contains(&point.hook) {
                report.hooks.push(point.hook);
            }
        }
        let difference = span.counted(index);
        let sample = span.run.sample_at(report.layer);
        let mut set_aside = SetAside::default();
        if report.layer == Layer::Blk {
            queue_times.push((report.ops.len(), difference.queue_time_ns()));
            set_aside = difference.requests_set_aside();
        } else {
            report.excluded.add(difference.excluded().estimated(sample));
        }
        for (sum, n) in lost.by_reason.iter_mut().zip(difference.lost_samples()) {
            *sum = sum.saturating_add(n);
        }
        let unseen_issues = unseen_issues_of(report.layer, &difference);
        lost.unseen_issues = lost.unseen_issues.saturating_add(unseen_issues);
        report.ops.push(OpReport {
            attach: Arc::clone(&op.points),
            refused: Arc::clone(&op.refused),
            losses: losses_of_op(report.layer, &difference),
            set_aside,
            ..difference.report(op.op, op.moves_bytes).estimated(sample)
        });
    }
    if report.layer == Layer::Blk {
        block_report(report, &queue_times, span);
    }
    lost
}

/// Adds warnings about hooks that lose calls on this machine.
fn warn_of_lossy_hooks(report: &mut LayerReport, span: &Span<'_>) {
    let block = span.run.block.as_ref().filter(|_| report.layer == Layer::Blk);
    for hook in report.hooks.clone() {
        let why = match block {
            // The first reason is enough.
            Some(block) if block.hook != hook => None,
            Some(block) => block.lossy.as_ref(),
            None => span.run.lossy.get(&hook),
        };
        let Some(why) = why else { continue };
        report
            .warnings
            .push(format!("{hook} at {} can lose calls: {why}", report.layer));
        // A call whose return was missed looks like one under way.
        let Some(under_way) = report.in_flight.take().filter(|&n| n > 0) else {
            continue;
        };
        let mut known = report.losses.iter_mut();
        match known.find(|loss| loss.reason == LossReason::ReturnMissed && loss.cause.is_none()) {
            Some(loss) => (loss.count, loss.up_to) = (loss.count.saturating_add(under_way), true),
            None => report.losses.insert(
                0,
                Loss {
                    reason: LossReason::ReturnMissed,
                    count: under_way,
                    up_to: true,
                    cause: None,
                },
            ),
        }
    }
}

/// Fills in what only the block layer has.
fn block_report(report: &mut LayerReport, queue_times: &[(usize, u64)], span: &Span<'_>) {
    report.queue_from = span.run.block.as_ref().and_then(|block| block.queue_from.clone());
    for &(index, queue_ns) in queue_times {
        let is_queued = REQUESTS.get(index).is_some_and(|request| request.queued);
        report.ops[index].queue_ns = (report.queue_from.is_some() && is_queued).then_some(queue_ns);
    }
    let readings = span.before.neighbours.as_ref().zip(span.after.neighbours.as_ref());
    report.neighbours = readings.map(|(before, after)| neighbour::report(before, after));
    let disks = span.run.disks.zip(span.before.disks.zip(span.after.disks));
    report.diskstats = disks.map(|(info, (first, last))| disks::report(&info, first, last, &report.ops));
    if let (Some(stats), Some(_)) = (&mut report.diskstats, span.detached(Layer::Blk)) {
        stats.agreement = Agreement::NotComparable("blk was detached before the end".to_owned());
    }
}

/// Losses counted by the programs.
fn own_losses(lost: &[u64]) -> Vec<Loss> {
    let own = [
        (LOST_RETURN, LossReason::ReturnMissed),
        (LOST_STORAGE, LossReason::NoStorage),
        (LOST_TABLE_FULL, LossReason::TableFull),
        (LOST_CLOCK, LossReason::ClockBackwards),
    ];
    own.into_iter()
        .map(|(index, reason)| Loss {
            reason,
            count: lost[index as usize],
            up_to: false,
            cause: None,
        })
        .filter(|loss| loss.count > 0)
        .collect()
}

/// Requests whose completion was seen but not their issue. A request that found no room at its issue is counted as lost
/// for that.
fn unseen_issues_of(layer: Layer, difference: &OpCounters) -> u64 {
    let lost = difference.lost_samples();
    let no_room = lost[LOST_STORAGE as usize].saturating_add(lost[LOST_TABLE_FULL as usize]);
    let unseen = if layer == Layer::Blk {
        difference.half_seen_calls()
    } else {
        0
    };
    unseen.saturating_sub(no_room)
}

/// Losses of one op counted by the programs.
fn losses_of_op(layer: Layer, difference: &OpCounters) -> Vec<Loss> {
    let issues = Loss {
        reason: LossReason::IssueMissed,
        count: unseen_issues_of(layer, difference),
        up_to: false,
        cause: None,
    };
    let mut losses = own_losses(&difference.lost_samples());
    losses.extend(Some(issues).filter(|issues| issues.count > 0));
    losses
}

/// Losses counted by the programs, and entries that the kernel skipped.
fn losses(layer: Layer, lost: &Lost, span: &Span<'_>) -> Vec<Loss> {
    let mut losses = own_losses(&lost.by_reason);
    let mut skipped_and_known = 0;
    let block: Option<&BlockInfo> = span.run.block.as_ref();
    if let Some(block) = block.filter(|block| layer == Layer::Blk && !block.is_bio_based) {
        let missed = losses.extract_if(.., |loss| loss.reason == LossReason::ReturnMissed);
        let missed = missed.fold(0, |sum, loss| loss.count.saturating_add(sum));
        let issues = Seen::issues(span, block);
        // Their completions were seen; the other skipped issues are additional losses.
        skipped_and_known = lost.unseen_issues.min(issues.skipped());
        losses.splice(..0, issues.losses(LossReason::IssueMissed, lost.unseen_issues));
        losses.splice(..0, Seen::ends(span, block).losses(LossReason::ReturnMissed, missed));
    }
    let skipped = |is_counted: fn(Hook) -> bool| -> u64 {
        span.probes()
            .filter(|(probe, _)| probe.layer == Some(layer) && is_counted(probe.hook))
            .filter_map(|(_, counts)| counts.skipped)
            .fold(0, u64::saturating_add)
    };
    let ends = skipped(|hook| hook == Hook::Fsession);
    let entries = skipped(|hook| hook != Hook::Fsession).saturating_sub(skipped_and_known);
    let entries = entries.saturating_add(entries_of_ends(layer, ends, span));
    if entries > 0 {
        let of_layer = span.probes().filter(|(probe, _)| probe.layer == Some(layer));
        let programs: Vec<_> = of_layer
            .map(|(probe, counts)| (&probe.functions[..], counts.skipped))
            .collect();
        losses.push(Loss {
            reason: LossReason::EntryMissed,
            count: entries,
            up_to: span.run.is_filtered || ends > 0 || has_shared_skips(&programs),
            cause: None,
        });
    }
    losses
}

/// Whether some of the skipped events were another program's as well, on the same tracepoint: an event is lost if both
/// were skipped, and the kernel counts the skips of each. The smaller count is then the most that can be lost.
/// `programs`: what each program is attached to, and its skipped events.
fn has_shared_skips(programs: &[(&[String], Option<u64>)]) -> bool {
    let number_on = |functions| programs.iter().filter(|(others, _)| *others == functions).count();
    let mut skipped = programs.iter().filter(|(_, skipped)| skipped.is_some_and(|n| n > 0));
    skipped.any(|(functions, _)| number_on(*functions) > 1)
}

/// The number of calls with skipped entries, computed from skipped entries and returns. A call with one of the two seen
/// is known; the others lack both. A call with only its return skipped looks like one under way, and is counted as lost
/// at the end of the run.
fn entries_of_ends(layer: Layer, ends: u64, span: &Span<'_>) -> u64 {
    if ends == 0 {
        return 0;
    }
    let (mut unmatched_ends, mut under_way) = (0u64, 0u64);
    for (index, _) in span.run.ops_of(layer) {
        let difference = span.counted(index);
        unmatched_ends = unmatched_ends.saturating_add(difference.half_seen_calls());
        let in_cookies = span
            .after
            .under_way
            .as_ref()
            .and_then(|known| known.in_cookies.get(index));
        under_way = under_way.saturating_add(in_cookies.copied().unwrap_or(0));
    }
    ends.saturating_add(unmatched_ends)
        .saturating_sub(under_way)
        .div_ceil(2)
}

/// Whether skipped entries are counted for none of the layer's hooks.
fn skips_unknown(layer: Layer, span: &Span<'_>) -> bool {
    span.probes()
        .all(|(probe, counts)| probe.layer != Some(layer) || counts.skipped.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skips_of_one_of_two_programs_on_an_event_are_a_bound() {
        let [merge, issue] = ["block_rq_merge", "block_rq_issue"].map(|name| [name.to_owned()]);
        let merges = |skipped| [(&merge[..], Some(skipped)), (&merge[..], None)];
        assert!(has_shared_skips(&merges(3)));
        assert!(!has_shared_skips(&merges(0)));
        // Nothing else sees these.
        assert!(!has_shared_skips(&[merges(0)[0], (&issue[..], Some(3))]));
    }
}
