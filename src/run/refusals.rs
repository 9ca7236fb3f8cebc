//! Explains refusals of the kernel to the user: the missing privilege, or what to do.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use nix::errno::Errno;

use crate::args::{Measure, Talk};
use crate::catalog::Layer;
use crate::kernel::privileges::{self, Denied};
use crate::limits;
use crate::probe::attach::{AttachError, Attached};
use crate::probe::plan::Plan;
use crate::probe::refusal::{Refusal, Refused};
use crate::probe::{Choice, Hook};
use crate::say;

/// Why nothing of a layer is measured: what the best refused hook lacks, or what the kernel does not allow anyone.
fn why_refused(layer: Layer, refused: &[Refusal]) -> String {
    let hooks = if layer == Layer::Blk { "tp_btf" } else { "fentry" };
    let is_reached = refused.iter().any(|refusal| limits::is_reached(refusal.why.errno));
    let lacking = limits::advice(is_reached).or_else(|| denied_of(refused).and_then(privileges::lacking));
    lacking.unwrap_or_else(|| match refused {
        [] => "none of its functions exist in this kernel".to_owned(),
        _ => format!("this kernel refuses kprobes and {hooks}"),
    })
}

/// Why the kernel does not count the runs of programs, as its error says (`bpf_enable_stats` of kernel/bpf/syscall.c).
pub fn why_uncounted(error: &io::Error) -> String {
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EPERM | Errno::EACCES) => "needs CAP_SYS_ADMIN".to_owned(),
        // The kernel does not know the command, or the kind of statistics.
        Some(Errno::EINVAL) => "needs Linux 5.8".to_owned(),
        Some(Errno::EMFILE) => "Too many open files".to_owned(),
        Some(Errno::ENFILE) => "Too many open files on this machine".to_owned(),
        Some(other) => format!("{}: {other:?}", other.desc()),
        None => error.to_string(),
    }
}

/// What was denied for the best hook that was denied, if any.
fn denied_of(refused: &[Refusal]) -> Option<Denied> {
    let denied = refused.iter().find(|refusal| refusal.why.is_denied())?;
    Some(match denied.hook {
        _ if denied.of == Refused::EveryFunction => Denied::Load,
        Hook::KprobeEvent => Denied::TracefsEvent,
        Hook::Kprobe | Hook::KprobeEntry | Hook::Tracepoint => Denied::PerfEvent,
        _ => Denied::Load,
    })
}

/// Why attaching failed, as a missing privilege if that was the cause: that of the best hook which was refused.
pub fn attach_failure(choice: Choice, error: &AttachError) -> String {
    let denied = match error {
        AttachError::Layer { refused, .. } => denied_of(refused),
        AttachError::Follow(why) if why.is_denied() => Some(Denied::PerfEvent),
        AttachError::Load(why) if why.is_denied() => Some(Denied::Load),
        _ => None,
    };
    if let Some(line) = limits::advice(error.whys().any(|why| limits::is_reached(why.errno))) {
        return line;
    }
    let line = error.to_string();
    let line = denied.and_then(privileges::lacking).unwrap_or_else(|| match choice {
        Choice::Auto => line,
        _ => format!("{line}; without --probe, a hook that works here is chosen"),
    });
    match limits::doubt() {
        Some(doubt) => format!("{line} ({doubt})"),
        None => line,
    }
}

/// A named layer that cannot be measured is an error; one of "all" is mentioned in the report.
pub fn check_layers(measure: &Measure, plan: &Plan, attached: &Attached) -> Result<BTreeMap<Layer, String>, String> {
    let mut refused = attached.layers_refused(plan);
    let layers = measure.scope.layers();
    let all_refused = layers.iter().all(|layer| refused.contains_key(layer));
    let first = layers.into_iter().find(|layer| refused.contains_key(layer));
    match first {
        Some(layer) if measure.scope.is_named() || all_refused => {
            let reasons = refused.remove(&layer).unwrap_or_default();
            if measure.talk == Talk::Verbose {
                for line in lines_of(&reasons) {
                    say!("{line}");
                }
            }
            let error = AttachError::Layer {
                layer,
                refused: reasons,
            };
            Err(attach_failure(measure.hooks.choice, &error))
        }
        _ => {
            let reasons = refused.iter();
            Ok(reasons
                .map(|(layer, refused)| (*layer, why_refused(*layer, refused)))
                .collect())
        }
    }
}

/// A line for each refusal. Ops that were refused in the same way have one together.
fn lines_of(refused: &[Refusal]) -> Vec<String> {
    let mut known = BTreeSet::new();
    let lines = refused.iter().map(ToString::to_string);
    lines.filter(|line| known.insert(line.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(of: Refused, hook: Hook, errno: i32) -> Refusal {
        let why = io::Error::from_raw_os_error(errno).into();
        Refusal { of, hook, why }
    }

    #[test]
    fn ops_that_were_refused_in_the_same_way_have_one_line() {
        let of_op =
            || [Hook::RawTracepoint, Hook::Kprobe].map(|hook| refusal(Refused::BlockEvents, hook, libc::EINVAL));
        let refused: Vec<Refusal> = [of_op(), of_op()].concat();
        assert_eq!(
            lines_of(&refused),
            [
                "tp_btf on block events: refused (Invalid argument)",
                "kprobe/kretprobe on block events: refused (Invalid argument)"
            ]
        );
    }

    #[test]
    fn what_was_denied_is_that_of_the_first_hook_that_was() {
        let one = || Refused::Function("vfs_read".to_owned());
        let invalid = refusal(one(), Hook::Fentry, libc::EINVAL);
        assert_eq!(denied_of(&[]), None);
        assert_eq!(denied_of(std::slice::from_ref(&invalid)), None);
        for (of, hook, denied) in [
            (one(), Hook::Fentry, Denied::Load),
            (one(), Hook::KprobeEvent, Denied::TracefsEvent),
            (one(), Hook::Kprobe, Denied::PerfEvent),
            (Refused::Calls, Hook::Tracepoint, Denied::PerfEvent),
            (Refused::EveryFunction, Hook::Kprobe, Denied::Load),
            (Refused::BlockEvents, Hook::RawTracepoint, Denied::Load),
        ] {
            for errno in [libc::EPERM, libc::EACCES, libc::ENOSYS] {
                let refused = [invalid.clone(), refusal(of.clone(), hook, errno)];
                assert_eq!(denied_of(&refused), Some(denied), "{refused:?}");
            }
        }
    }

    #[test]
    fn why_runs_are_not_counted_is_what_the_kernel_says() {
        for (errno, why) in [
            (libc::EPERM, "needs CAP_SYS_ADMIN"),
            (libc::EINVAL, "needs Linux 5.8"),
            (libc::EMFILE, "Too many open files"),
            (libc::ENFILE, "Too many open files on this machine"),
            (libc::ENOMEM, "Out of memory: ENOMEM"),
        ] {
            assert_eq!(why_uncounted(&io::Error::from_raw_os_error(errno)), why);
        }
        assert_eq!(why_uncounted(&io::Error::other("no file")), "no file");
    }

    #[test]
    fn the_kernels_numbers_are_found_in_every_error() {
        let why = || io::Error::from_raw_os_error(libc::EMFILE).into();
        let refused = vec![
            refusal(Refused::EveryFunction, Hook::Fentry, libc::EPERM),
            refusal(Refused::EveryFunction, Hook::Kprobe, libc::EMFILE),
        ];
        for error in [
            AttachError::Load(why()),
            AttachError::Map("stats", why()),
            AttachError::Follow(why()),
            AttachError::Layer {
                layer: Layer::Vfs,
                refused,
            },
        ] {
            assert!(error.whys().any(|why| limits::is_reached(why.errno)), "{error}");
        }
    }
}
