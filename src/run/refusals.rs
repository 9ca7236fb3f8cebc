//! What the kernel has refused, as the user has to know it: the privilege that is missing, or the way out.

use std::collections::BTreeMap;

use crate::args::Options;
use crate::catalog::Layer;
use crate::kernel::privileges::{self, Denied};
use crate::limits;
use crate::probe::attach::{AttachError, Attached, EVERY_FUNCTION, Refusal};
use crate::probe::plan::Plan;
use crate::probe::{Choice, Hook};
use crate::say;

/// Why nothing of a layer is measured: what the best hook of those that were refused lacks, or what the kernel does not let anybody do.
fn why_refused(layer: Layer, refused: &[Refusal]) -> String {
    let hooks = if layer == Layer::Blk { "tp_btf" } else { "fentry" };
    let lacking = limits::advice(&errors_of(refused)).or_else(|| denied_of(refused).and_then(privileges::lacking));
    lacking.unwrap_or_else(|| match refused {
        [] => "this kernel has none of the functions".to_owned(),
        _ => format!("this kernel refuses kprobes and {hooks}"),
    })
}

fn errors_of(refused: &[Refusal]) -> String {
    refused.iter().map(|refusal| refusal.error.as_str()).collect()
}

fn is_denied(why: &str) -> bool {
    ["denied", "permitted", "not implemented"]
        .iter()
        .any(|word| why.contains(word))
}

/// What was denied, if anything was: of the best hook that was.
fn denied_of(refused: &[Refusal]) -> Option<Denied> {
    let denied = refused.iter().find(|refusal| is_denied(&refusal.error))?;
    Some(match denied.hook {
        _ if denied.function == EVERY_FUNCTION => Denied::Load,
        Hook::KprobeEvent => Denied::TracefsEvent,
        Hook::Kprobe | Hook::Tracepoint => Denied::PerfEvent,
        _ => Denied::Load,
    })
}

/// What stands in the way, as a privilege that this process lacks where it is one: that of the best hook which was refused.
pub fn attach_failure(options: &Options, error: &AttachError) -> String {
    let denied = match error {
        AttachError::Layer { refused, .. } => denied_of(refused),
        AttachError::Follow(why) if is_denied(why) => Some(Denied::PerfEvent),
        AttachError::Load(why) if is_denied(why) => Some(Denied::Load),
        _ => None,
    };
    let line = error.to_string();
    let lines = match error {
        AttachError::Layer { refused, .. } => errors_of(refused),
        _ => line.clone(),
    };
    if let Some(line) = limits::advice(&lines) {
        return line;
    }
    let line = denied
        .and_then(privileges::lacking)
        .unwrap_or_else(|| match options.probe {
            Choice::Auto => line,
            _ => format!("{line}; without --probe, what works here is chosen"),
        });
    match limits::doubt() {
        Some(doubt) => format!("{line} ({doubt})"),
        None => line,
    }
}

/// A layer that was named and cannot be measured is an error; one of "all" is told in the report.
pub fn check_layers(options: &Options, plan: &Plan, attached: &Attached) -> Result<BTreeMap<Layer, String>, String> {
    let mut refused = attached.layers_refused(plan);
    let all_refused = options.layers.iter().all(|layer| refused.contains_key(layer));
    let first = options.layers.iter().find(|layer| refused.contains_key(layer)).copied();
    match first {
        Some(layer) if options.layers_named || all_refused => {
            let reasons = refused.remove(&layer).unwrap_or_default();
            if options.verbose {
                for refusal in &reasons {
                    say!("{} by {}: {}", refusal.function, refusal.hook.name(), refusal.error);
                }
            }
            let error = AttachError::Layer {
                layer,
                refused: reasons,
            };
            Err(attach_failure(options, &error))
        }
        _ => {
            let reasons = refused.iter();
            Ok(reasons
                .map(|(layer, refused)| (*layer, why_refused(*layer, refused)))
                .collect())
        }
    }
}
