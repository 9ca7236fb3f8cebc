//! `--verbose`: how each op is measured, and why.

use std::collections::BTreeMap;

use crate::catalog::Layer;
use crate::kernel::Facts;
use crate::kernel::file_operations::Narrowing;
use crate::probe::attach::{Attached, AttachedOp};
use crate::probe::plan::Plan;
use crate::probe::program::Loading;
use crate::say;

/// Prints it on stderr.
pub fn report_hooks(facts: &Facts, plan: &Plan, attached: &Attached, narrowing: &BTreeMap<Layer, Narrowing>) {
    say!("preemption in the kernel: {}", facts.preemption);
    say!(
        "start times are kept in {}",
        if attached.in_flight.is_some() {
            "task storage"
        } else {
            "a table"
        }
    );
    say!(
        "counters are kept in {}",
        if attached.looks_counters_up() {
            "array elements"
        } else {
            "a single value"
        }
    );
    let Loading {
        programs,
        as_compiled,
        time,
    } = attached.loading();
    say!(
        "{programs} programs loaded in {} ms, attached in {} ms",
        time.as_millis(),
        attached.attaching.as_millis()
    );
    if as_compiled > 0 {
        say!("{as_compiled} of them loaded as they were compiled");
    }
    for (layer, narrowing) in narrowing {
        say!(
            "{} files in functions that file systems share are recognised by {}",
            layer.name(),
            narrowing.source
        );
    }
    let mut previous = String::new();
    for (op, how) in plan.ops.iter().zip(&attached.ops) {
        let line = describe(how);
        // System calls are usually all measured in one way, and requests always are.
        if matches!(op.layer, Layer::Syscall | Layer::Blk) && line == previous {
            continue;
        }
        let by_tracepoint = how.points.iter().all(|(_, hook)| !hook.is_on_functions()) && !how.points.is_empty();
        let name = match op.layer {
            Layer::Blk => "requests",
            Layer::Syscall if by_tracepoint => "calls",
            _ => op.spec.op.name(),
        };
        say!("{} {name}: {line}", op.layer.name());
        for refusal in &how.refused {
            say!("  {refusal}");
        }
        previous = line;
    }
}

/// The hooks of an op and their functions.
fn describe(how: &AttachedOp) -> String {
    let mut by_hook: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (function, hook) in &how.points {
        by_hook.entry(hook.name()).or_default().push(function);
    }
    let points: Vec<String> = by_hook
        .iter()
        .map(|(hook, of)| format!("{hook} on {}", of.join(", ")))
        .collect();
    if points.is_empty() {
        "not measured".to_owned()
    } else {
        points.join("; ")
    }
}
