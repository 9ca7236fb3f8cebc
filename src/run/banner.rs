//! The banner: what is traced and what is not.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::args::Scope;
use crate::catalog::Layer;
use crate::model::report::nanoseconds;
use crate::model::trigger::Trigger;
use crate::view::text::number::{exact_bytes, length, thousands, time_each};
use crate::view::text::trigger::until;

/// What a run is for.
#[derive(Debug, Clone, Copy)]
pub enum Purpose<'a> {
    Reports,
    /// Lines of calls and requests.
    Lines,
    /// A recording in this directory.
    Recording(&'a Path),
    /// The last part of it is kept in memory, until something happens.
    Ring {
        span: Duration,
        bytes: u64,
        triggers: &'a [Trigger],
    },
}

/// One line, printed when everything that follows it is measured. `refused`: layers that are not measured, and why.
/// `unused`: layers that are neither named nor mounted.
pub fn banner(
    subject: &str,
    scope: &Scope,
    refused: &BTreeMap<Layer, String>,
    unused: &[Layer],
    purpose: Purpose<'_>,
) -> String {
    let is_shown = |layer: &Layer| scope.is_named() || !unused.contains(layer);
    let measured = scope
        .layers()
        .into_iter()
        .filter(|layer| !refused.contains_key(layer) && is_shown(layer));
    let measured: Vec<&str> = measured.map(Layer::name).collect();
    let missing = missing(refused.iter().filter(|(layer, _)| is_shown(layer)));
    if let Purpose::Ring { span, bytes, triggers } = purpose {
        let of = if subject.is_empty() { "all processes" } else { subject };
        return format!(
            "Keeping the last {} of {} of {of} in memory (at most {}){}{missing}... SIGUSR1 writes them now.",
            length(span),
            measured.join(", "),
            exact_bytes(bytes),
            until(triggers),
        );
    }
    let (verb, latency, to) = match purpose {
        Purpose::Recording(to) => ("Recording", "", format!(" to {}", to.display())),
        Purpose::Lines => ("Tracing", "", String::new()),
        _ if scope.is_whole_stack() => ("Tracing", "", String::new()),
        _ => ("Tracing", " latency", String::new()),
    };
    let of = if subject.is_empty() {
        String::new()
    } else {
        format!(" of {subject}")
    };
    let sampled = scope.sample.map_or_else(String::new, |sample| {
        format!(", 1 in {} calls", thousands(sample.one_in().into()))
    });
    let queued = if scope.is_queued() {
        ", time in the queue included"
    } else {
        ""
    };
    let slower = scope.slower().filter(|slower| !slower.is_zero());
    let slower = slower.map_or_else(String::new, |slower| {
        format!(", calls of {} or longer", time_each(nanoseconds(slower)))
    });
    format!(
        "{verb} {}{latency}{of}{to}{queued}{slower}{sampled}{missing}... Hit Ctrl-C to end.",
        measured.join(", "),
    )
}

/// ` (vfs and ext4 are not measured: this kernel refuses kprobes and fentry)`
fn missing<'a>(refused: impl Iterator<Item = (&'a Layer, &'a String)>) -> String {
    let mut kinds: Vec<(&str, Vec<&str>)> = Vec::new();
    for (layer, why) in refused {
        match kinds.iter_mut().find(|(known, _)| known == why) {
            Some((_, layers)) => layers.push(layer.name()),
            None => kinds.push((why, vec![layer.name()])),
        }
    }
    let kinds: Vec<String> = kinds
        .iter()
        .map(|(why, layers)| match layers.as_slice() {
            [others @ .., last] if !others.is_empty() => {
                format!("{} and {last} are not measured: {why}", others.join(", "))
            }
            one => format!("{} is not measured: {why}", one.concat()),
        })
        .collect();
    if kinds.is_empty() {
        String::new()
    } else {
        format!(" ({})", kinds.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::*;
    use crate::args::{self, Command};

    fn banner_of(words: &str, subject: &str, refused: &[(Layer, &str)]) -> String {
        banner_for(words, subject, refused, Purpose::Reports)
    }

    fn banner_for(words: &str, subject: &str, refused: &[(Layer, &str)], purpose: Purpose<'_>) -> String {
        let all = std::iter::once("IOStackBreakdown").chain(words.split_whitespace());
        let Ok(Command::Trace(options)) = args::parse(all.map(OsString::from)) else {
            panic!("{words}");
        };
        let mut scope = options.measure.scope;
        scope
            .upper
            .retain(|layer| layer.lives().is_none() || *layer == Layer::Ext4);
        let refused = refused.iter().map(|&(layer, why)| (layer, why.to_owned())).collect();
        banner(subject, &scope, &refused, &[Layer::Overlay], purpose)
    }

    #[test]
    fn a_banner_names_what_is_measured_and_why_the_rest_is_not() {
        let here = "this kernel refuses kprobes and fentry";
        assert_eq!(
            banner_of("", "", &[(Layer::Ext4, here), (Layer::Vfs, here)]),
            "Tracing syscall, blk (vfs and ext4 are not measured: this kernel refuses kprobes and fentry)... Hit Ctrl-C to end."
        );
        assert_eq!(
            banner_of(
                "",
                "PID 1 (init)",
                &[
                    (Layer::Ext4, "none of its functions exist in this kernel"),
                    (Layer::Blk, "x")
                ]
            ),
            "Tracing syscall, vfs of PID 1 (init) (ext4 is not measured: none of its functions exist in this kernel; blk is not measured: x)... Hit Ctrl-C to end."
        );
        assert!(!banner_of("", "", &[(Layer::Overlay, here)]).contains("overlay"));
        assert_eq!(
            banner_of("-T syscall,overlay", "", &[(Layer::Overlay, here)]),
            "Tracing syscall latency (overlay is not measured: this kernel refuses kprobes and fentry)... Hit Ctrl-C to end."
        );
        assert_eq!(
            banner_of("-T blk -Q -d sda", "sda", &[]),
            "Tracing blk latency of sda, time in the queue included... Hit Ctrl-C to end."
        );
        assert_eq!(
            banner_of("--slower 6ms", "", &[]),
            "Tracing syscall, vfs, ext4, blk, calls of 6.0 ms or longer... Hit Ctrl-C to end."
        );
        assert_eq!(
            banner_of("-T vfs --sample 1/1000", "PID 1 (init)", &[]),
            "Tracing vfs latency of PID 1 (init), 1 in 1,000 calls... Hit Ctrl-C to end."
        );
    }

    #[test]
    fn a_recording_has_its_name_and_a_ring_its_size_and_its_triggers() {
        assert_eq!(
            banner_for("-T blk", "sda", &[], Purpose::Recording(Path::new("x.iosb"))),
            "Recording blk of sda to x.iosb... Hit Ctrl-C to end."
        );
        assert_eq!(
            banner_for("-T blk -Q", "sda", &[], Purpose::Recording(Path::new("x.iosb"))),
            "Recording blk of sda to x.iosb, time in the queue included... Hit Ctrl-C to end."
        );
        let ring = |triggers| Purpose::Ring {
            span: Duration::from_secs(60),
            bytes: 256 << 20,
            triggers,
        };
        assert_eq!(
            banner_for("-T syscall,blk", "", &[], ring(&[])),
            "Keeping the last 60.0 s of syscall, blk of all processes in memory (at most 256 MiB)... SIGUSR1 writes them now."
        );
        assert_eq!(
            banner_for(
                "-T syscall",
                "PID 1 (init)",
                &[],
                ring(&[Trigger::Stuck { ns: 5_000_000_000 }])
            ),
            "Keeping the last 60.0 s of syscall of PID 1 (init) in memory (at most 256 MiB) until a call is under way for 5.0 s... \
             SIGUSR1 writes them now."
        );
    }
}
