//! What was attached, in the form that reports need.

use std::collections::BTreeMap;

use crate::catalog::COMPAT;
use crate::kernel::Facts;
use crate::model::ids::{Hook, Layer};
use crate::model::report::{AttachPoint, NotMeasured, Refused};
use crate::model::run_info::{BlockEvent, BlockInfo, LayerInfo, OpInfo, ProbeInfo, RunInfo, StackInfo};
use crate::probe::attach::{self, Attached, AttachedOp};
use crate::probe::plan::{
    BlockWay, END_FUNCTIONS, ISSUE_FUNCTION, Plan, PlannedOp, function_name, loses, loses_requests,
};
use crate::probe::refusal::Refusal;

/// The data of a run in addition to the options.
pub struct OfRun<'a> {
    pub facts: &'a Facts,
    pub plan: &'a Plan,
    pub attached: &'a Attached,
    /// Layers that are not measured, and why.
    pub refused: &'a BTreeMap<Layer, String>,
    /// Times of requests include the queue.
    pub queued: bool,
}

/// Adds what was attached to `run`, which has the options.
#[must_use]
pub fn describe(of: &OfRun<'_>, run: RunInfo) -> RunInfo {
    let OfRun {
        facts, plan, attached, ..
    } = *of;
    let ops: Vec<OpInfo> = plan
        .ops
        .iter()
        .zip(&attached.ops)
        .map(|(op, how)| op_info(op, how))
        .collect();
    let hooks = ops.iter().flat_map(|op| &*op.points).map(|point| point.hook);
    let lossy = hooks.filter_map(|hook| Some((hook, loses(hook, facts)?.to_owned())));
    let stack = stack_info(plan, attached);
    // In the whole stack, calls that submit asynchronous requests have rows; a note has what is missing.
    let lacks_asynchronous = run.sample.is_some() && stack.is_none();
    let layer_info = |layer| layer_info(layer, of, lacks_asynchronous);
    RunInfo {
        lossy: lossy.collect(),
        layers: plan.layers().map(layer_info).collect(),
        probes: attached.probes.iter().map(probe_info).collect(),
        block: attached.block_way.as_ref().map(|way| block_info(way, of)),
        stack,
        by: attached.groups.as_ref().map(|groups| groups.by),
        ops,
        ..run
    }
}

fn layer_info(layer: Layer, of: &OfRun<'_>, lacks_asynchronous: bool) -> LayerInfo {
    let skips_interrupts = |hooks: &Vec<Hook>| matches!(hooks[..], [Hook::Kprobe | Hook::Session]);
    let has_async_entries = !matches!(layer, Layer::Syscall | Layer::Blk);
    let left_out = programs_left_out(of.plan, of.attached).filter(|_| layer == Layer::Syscall);
    let asynchronous = (lacks_asynchronous && has_async_entries).then(|| NotMeasured {
        what: "asynchronous requests".to_owned(),
        reason: "--sample is about calls that return to their caller".to_owned(),
    });
    LayerInfo {
        layer,
        refused: of.refused.get(&layer).cloned(),
        not_measured: left_out.into_iter().chain(asynchronous).collect(),
        completions_skip_interrupts: has_async_entries
            && !lacks_asynchronous
            && of.attached.completions.values().any(skips_interrupts),
    }
}

fn op_info(planned: &PlannedOp, attached: &AttachedOp) -> OpInfo {
    let mut not_measured: Vec<NotMeasured> = planned.not_measured.iter().cloned().collect();
    let is_measured = !attached.points.is_empty();
    if is_measured {
        not_measured.extend(asynchronous_left_out(planned, attached));
    } else {
        // A system call that the kernel does not have is not missing.
        let is_no_call = planned.layer == Layer::Syscall && planned.points.is_empty();
        if planned.not_measured.is_none() && !is_no_call {
            not_measured.push(refused(planned, attached));
        }
    }
    OpInfo {
        layer: planned.layer,
        op: planned.spec.op,
        moves_bytes: planned.spec.moves_bytes,
        points: attach_points(attached).into(),
        refused: refusals(attached).into(),
        not_measured,
        absent: (!is_measured).then(|| absent(planned, attached)),
        is_partial: attached.is_partial,
    }
}

fn probe_info(probe: &attach::Probe) -> ProbeInfo {
    ProbeInfo {
        layer: probe.layer,
        hook: probe.hook,
        functions: probe.functions.clone(),
    }
}

fn block_info(way: &BlockWay, of: &OfRun<'_>) -> BlockInfo {
    let functions = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let ends: Vec<&str> = END_FUNCTIONS
        .into_iter()
        .filter(|name| way.ends.contains(name))
        .collect();
    let queue_from = way.start.describe(way.bio_stamps).filter(|_| of.queued);
    BlockInfo {
        hook: way.hook,
        is_bio_based: way.is_bio_based,
        issue: BlockEvent {
            tracepoint: "block_rq_issue".to_owned(),
            functions: functions(&[ISSUE_FUNCTION]),
        },
        end: BlockEvent {
            tracepoint: "block_rq_complete".to_owned(),
            functions: functions(&ends),
        },
        queue_from: queue_from.map(str::to_owned),
        lossy: loses_requests(way, of.facts).map(str::to_owned),
        flags: of.facts.block.flags.clone(),
    }
}

/// `None` if the whole stack is not measured.
fn stack_info(plan: &Plan, attached: &Attached) -> Option<StackInfo> {
    let is_measured = |layer: Layer| {
        let mut ops = plan.ops.iter().zip(&attached.ops);
        ops.any(|(op, how)| op.layer == layer && !how.points.is_empty())
    };
    Some(StackInfo {
        layers: plan.layers().map(|layer| (layer, is_measured(layer))).collect(),
        seen: attached.stack.as_ref()?.rows(),
    })
}

/// Refused attempts to measure an op.
fn refusals(attached: &AttachedOp) -> Vec<Refused> {
    let refused = |refusal: &Refusal| Refused {
        function: refusal.of.to_string(),
        hook: refusal.hook,
        error: refusal.why.to_string(),
    };
    attached.refused.iter().map(refused).collect()
}

/// Functions and tracepoints at which an op is timed. A pair of tracepoints counts as two.
fn attach_points(attached: &AttachedOp) -> Vec<AttachPoint> {
    let of_point = |(names, hook): &(String, Hook)| {
        let point = |function: &str| AttachPoint {
            function: function.to_owned(),
            hook: *hook,
        };
        names.split(", ").map(point).collect::<Vec<_>>()
    };
    attached.points.iter().flat_map(of_point).collect()
}

/// An op without numbers, and why. Other missing parts of it then do not matter.
fn absent(planned: &PlannedOp, attached: &AttachedOp) -> NotMeasured {
    let reason = match &planned.not_measured {
        Some(known) if planned.points.is_empty() => known.reason.clone(),
        None if planned.points.is_empty() && attached.refused.is_empty() => {
            let functions: Vec<String> = planned.spec.points.iter().map(function_name).collect();
            format!("{}: not in this kernel", functions.join(", "))
        }
        _ => refused(planned, attached).reason,
    };
    NotMeasured {
        what: planned.spec.op.to_string(),
        reason,
    }
}

/// What is missing from an op if asynchronous requests cannot be seen at their entry points.
fn asynchronous_left_out(planned: &PlannedOp, attached: &AttachedOp) -> Option<NotMeasured> {
    let entry_points = planned
        .points
        .iter()
        .filter(|entry| entry.point.returns.is_async_entry() && entry.suppressed.is_none());
    let missing: Vec<&str> = entry_points
        .map(|entry| entry.function.as_str())
        .filter(|name| !attached.points.iter().any(|(function, _)| function == name))
        .collect();
    (!missing.is_empty()).then(|| NotMeasured {
        what: format!("asynchronous {}", planned.spec.op),
        reason: format!("{}: refused by this kernel", missing.join(", ")),
    })
}

/// What is missing from the system calls if only some of an op's functions are probed.
fn programs_left_out(plan: &Plan, attached: &Attached) -> Option<NotMeasured> {
    let ops = plan.ops.iter().zip(&attached.ops);
    let mut left_out = ops.filter(|(planned, attached)| {
        let is_probed = |name: &str| attached.points.iter().any(|(function, _)| function == name);
        let by_function = attached.points.iter().any(|(_, hook)| hook.is_on_functions());
        let mut compat = planned.points.iter().filter(|point| point.is_compat());
        by_function && compat.any(|point| !is_probed(&point.function))
    });
    let reason = match left_out.next() {
        Some(_) => {
            "their system calls are separate functions, which only kprobe.session, kprobe.multi and tracepoints cover"
        }
        None if COMPAT.is_empty() => "their table of numbers is not known on this architecture",
        None => return None,
    };
    Some(NotMeasured {
        what: "32-bit programs".to_owned(),
        reason: reason.to_owned(),
    })
}

/// Why a planned op is not measured.
fn refused(planned: &PlannedOp, attached: &AttachedOp) -> NotMeasured {
    let mut tried: Vec<String> = attached.refused.iter().map(|refusal| refusal.of.to_string()).collect();
    tried.dedup();
    let reason = if tried.is_empty() {
        let functions: Vec<&str> = planned.points.iter().map(|point| point.function.as_str()).collect();
        format!("{}: the hook in use cannot measure it", functions.join(", "))
    } else {
        format!("{}: refused by this kernel", tried.join(", "))
    };
    NotMeasured {
        what: planned.spec.op.to_string(),
        reason,
    }
}
