//! `--budget`: whether measuring costs too much, and which layer to detach. Numbers only; the messages are in `run`.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::ids::Layer;

pub use crate::model::cost::{CpuShare, Detached};

/// CPU time in nanoseconds: that of each layer's probes, and under `None` that of the process and of probes shared by
/// layers.
pub type CpuTimes = BTreeMap<Option<Layer>, u64>;

/// By how much a limit was exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Excess {
    /// The layer whose detaching saves most, or the most expensive one if none saves enough.
    pub layer: Layer,
    pub saves: Saves,
    /// The cost of its probes.
    pub of_layer: CpuShare,
    /// The whole cost.
    pub of_all: CpuShare,
}

/// The effect of detaching a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Saves {
    /// It saves a substantial part of the excess, and other layers remain.
    Enough,
    /// No layer that could be detached saves a substantial part of it.
    TooLittle,
    /// It is the only layer left.
    All,
}

/// Detaching a layer saves too little if it saves less than this fraction of the excess.
const GOOD_PART: u64 = 20;

/// Compares the cost of a span with the limit; `None` if the limit was kept. `after` has only attached layers.
/// `whole_stack`: all other layers are measured inside system calls, which are detached last.
#[must_use]
pub fn excess(
    limit: CpuShare,
    before: &CpuTimes,
    after: &CpuTimes,
    span: Duration,
    whole_stack: bool,
) -> Option<Excess> {
    let taken = |(of, ns): (&Option<Layer>, &u64)| (*of, ns.saturating_sub(before.get(of).copied().unwrap_or(0)));
    let taken: Vec<(Option<Layer>, u64)> = after.iter().map(taken).collect();
    let all = taken.iter().fold(0, |sum: u64, (_, ns)| sum.saturating_add(*ns));
    let of_all = CpuShare::of(all, span);
    if of_all <= limit {
        return None;
    }
    let layers: Vec<(Layer, u64)> = taken.into_iter().filter_map(|(of, ns)| Some((of?, ns))).collect();
    let costliest =
        |layers: &mut dyn Iterator<Item = &(Layer, u64)>| layers.max_by_key(|(layer, ns)| (*ns, *layer)).copied();
    let may_go = |(layer, _): &&(Layer, u64)| layers.len() > 1 && (!whole_stack || *layer != Layer::Syscall);
    let too_much = of_all.ns_per_s - limit.ns_per_s;
    let helps = |(_, ns): &(Layer, u64)| *ns > 0 && CpuShare::of(*ns, span).ns_per_s >= too_much / GOOD_PART;
    let best = costliest(&mut layers.iter().filter(may_go)).filter(helps);
    let ((layer, ns), saves) = match best {
        Some(best) => (best, Saves::Enough),
        None if layers.len() == 1 => (layers[0], Saves::All),
        None => (costliest(&mut layers.iter())?, Saves::TooLittle),
    };
    Some(Excess {
        layer,
        saves,
        of_layer: CpuShare::of(ns, span),
        of_all,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;
    use crate::model::cost::SECOND;

    const SPAN: Duration = Duration::from_secs(2);

    fn percent(text: &str) -> CpuShare {
        CpuShare::parse(text, 4).unwrap()
    }

    fn times(own: u64, layers: &[(Layer, u64)]) -> CpuTimes {
        let layers = layers.iter().map(|&(layer, ms)| (Some(layer), ms * 1_000_000));
        layers.chain([(None, own * 1_000_000)]).collect()
    }

    fn goes(limit: &str, after: &CpuTimes, whole_stack: bool) -> Option<Layer> {
        let before = after.keys().map(|&of| (of, 0)).collect();
        excess(percent(limit), &before, after, SPAN, whole_stack).map(|excess| excess.layer)
    }

    #[test]
    fn a_limit_is_printed_as_given() {
        for limit in ["0.001", "15", "0.5", "99.99", "400"] {
            assert_eq!(percent(limit).exactly(), format!("{limit} %"));
        }
    }

    #[test]
    fn shares_are_of_one_cpu() {
        assert_eq!(percent("1").ns_per_s, 10_000_000);
        assert_eq!(percent("0.01").ns_per_s, 100_000);
        assert_eq!(CpuShare::of(60_000_000, SPAN), percent("3"));
        assert_eq!(CpuShare::of(1, Duration::ZERO).ns_per_s, u64::MAX);
        assert_eq!(CpuShare::of(0, Duration::ZERO), CpuShare::default());
        for text in ["0", "-1", "400.1", "nan", "inf", "1e300", "1e-12", "", "x", "5%"] {
            let line = CpuShare::parse(text, 4).unwrap_err();
            assert_eq!(
                line,
                "not a percentage above 0 and up to 400 (100 for each CPU), without the sign %"
            );
        }
    }

    #[test]
    fn the_costliest_layer_goes_when_all_together_is_too_much() {
        let all = times(10, &[(Layer::Syscall, 8), (Layer::Vfs, 12), (Layer::Blk, 9)]);
        // 39 ms of 2 s.
        assert_eq!(goes("1.95", &all, false), None);
        assert_eq!(goes("1.94", &all, false), Some(Layer::Vfs));
        let before = times(4, &[(Layer::Syscall, 2), (Layer::Vfs, 11), (Layer::Blk, 0)]);
        let excess = excess(percent("1"), &before, &all, SPAN, false);
        assert_eq!(
            excess,
            Some(Excess {
                layer: Layer::Blk,
                saves: Saves::Enough,
                of_layer: percent("0.45"),
                of_all: percent("1.1"),
            })
        );
    }

    #[test]
    fn the_whole_stack_keeps_its_system_calls_to_the_last() {
        let all = times(1, &[(Layer::Syscall, 50), (Layer::Ext4, 3), (Layer::Blk, 3)]);
        assert_eq!(goes("1", &all, false), Some(Layer::Syscall));
        // Of layers with the same cost the lower one is detached.
        assert_eq!(goes("1", &all, true), Some(Layer::Blk));
        assert_eq!(
            goes("1", &times(1, &[(Layer::Syscall, 50)]), true),
            Some(Layer::Syscall)
        );
    }

    #[test]
    fn a_layer_that_saves_too_little_stays() {
        let saves = |after: &CpuTimes, whole_stack| {
            let before = after.keys().map(|&of| (of, 0)).collect();
            excess(percent("1"), &before, after, SPAN, whole_stack).map(|excess| (excess.layer, excess.saves))
        };
        let whole = times(1, &[(Layer::Syscall, 500), (Layer::Ext4, 3), (Layer::Blk, 3)]);
        assert_eq!(saves(&whole, true), Some((Layer::Syscall, Saves::TooLittle)));
        assert_eq!(saves(&whole, false), Some((Layer::Syscall, Saves::Enough)));
        // The cost of the process itself is not saved by detaching any layer.
        let own = times(900, &[(Layer::Vfs, 10), (Layer::Blk, 0)]);
        assert_eq!(saves(&own, false), Some((Layer::Vfs, Saves::TooLittle)));
        assert_eq!(
            saves(&times(0, &[(Layer::Vfs, 900)]), false),
            Some((Layer::Vfs, Saves::All))
        );
        assert_eq!(saves(&times(900, &[]), true), None);
        // 980 ms of two seconds are in excess; 49 ms are a twentieth of that.
        assert_eq!(
            saves(&times(950, &[(Layer::Vfs, 49), (Layer::Blk, 1)]), false),
            Some((Layer::Vfs, Saves::Enough))
        );
        assert_eq!(
            saves(&times(951, &[(Layer::Vfs, 48), (Layer::Blk, 1)]), false),
            Some((Layer::Vfs, Saves::TooLittle))
        );
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn any_percent_is_read(text in fuzz::text_like("12.5"), cpus in 1_u64..8192) {
            if let Ok(share) = CpuShare::parse(&text, cpus) {
                prop_assert!(share.ns_per_s > 0 && share.ns_per_s <= cpus * SECOND);
            }
        }

        #[test]
        fn a_layer_goes_just_when_the_limit_is_passed(
            limit in 1_u64..4_000_000_000, own in any::<u32>(), vfs in any::<u32>(), blk in any::<u32>(), whole_stack: bool,
        ) {
            let after: CpuTimes = [(None, own), (Some(Layer::Vfs), vfs), (Some(Layer::Blk), blk)]
                .map(|(of, ns)| (of, u64::from(ns)))
                .into();
            let reported = excess(CpuShare { ns_per_s: limit }, &CpuTimes::new(), &after, Duration::from_secs(1), whole_stack);
            let all = u64::from(own) + u64::from(vfs) + u64::from(blk);
            prop_assert_eq!(reported.map(|excess| excess.of_all.ns_per_s), (all > limit).then_some(all));
            prop_assert!(reported.is_none_or(|excess| excess.of_layer.ns_per_s == u64::from(vfs.max(blk))));
        }
    }
}
