//! `--budget`: a look now and then at what measuring takes, and the layer that saves most is detached when it is too much.

use std::time::{Duration, Instant};

use super::session::Session;
use crate::budget::{CpuShare, CpuTimes, Detached, Excess, Saves, excess};
use crate::catalog::Layer;
use crate::kernel::interface::{STOP_PAIRS, STOP_REQUESTS};
use crate::number::length;
use crate::probe::attach::Attached;
use crate::say;
use crate::source::live;

/// From one look to the next; as long, calls under way may take to return once no more are entered.
const PAUSE: Duration = Duration::from_secs(1);

/// What measuring may take, and what was done so far to keep to it.
pub struct Keeping {
    limit: CpuShare,
    /// The last look.
    at: Instant,
    times: CpuTimes,
    detached: Vec<Detached>,
    /// Nothing is left that could be detached.
    is_over: bool,
}

impl Keeping {
    pub fn new(limit: CpuShare, attached: &Attached) -> Self {
        Self {
            limit,
            at: Instant::now(),
            times: live::cpu_times(attached),
            detached: Vec::new(),
            is_over: false,
        }
    }

    /// When to look again, if ever.
    pub fn next(&self) -> Option<Instant> {
        self.at.checked_add(PAUSE).filter(|_| !self.is_over)
    }

    /// In the order in which they went.
    pub fn detached(&self) -> &[Detached] {
        &self.detached
    }
}

impl Session<'_> {
    /// Looks at what measuring took, when it is time to, and detaches the layer that saves most where that is too much. Says whether the
    /// run is over: where that would save too little, and there is no command whose end is to be waited for.
    pub(super) fn keep_to_budget(&mut self, has_command: bool) -> bool {
        let now = Instant::now();
        let Some(keeping) = &mut self.budget else { return false };
        if keeping.next().is_none_or(|next| now < next) {
            return false;
        }
        let leaving = keeping.detached.last().filter(|last| last.until.is_none());
        if let Some(layer) = leaving.map(|last| last.layer) {
            self.detach_rest(layer);
            return false;
        }
        let times = live::cpu_times(&self.attached);
        let span = now.duration_since(keeping.at);
        let excess = excess(keeping.limit, &keeping.times, &times, span, self.options.whole_stack);
        (keeping.at, keeping.times) = (now, times);
        let Some(excess) = excess else { return false };
        let is_end = excess.saves != Saves::Enough && !has_command;
        say!("{}", sentence(&excess, is_end, self.began.elapsed(), keeping.limit));
        if !is_end {
            self.detach(&excess);
        }
        is_end
    }

    /// No more of a layer's calls are begun. Of requests nothing is counted any more, as at the end of a run.
    fn detach(&mut self, excess: &Excess) {
        let layer = excess.layer;
        let stop = if layer == Layer::Blk { STOP_REQUESTS } else { STOP_PAIRS };
        self.attached.control(|control| control.stopped |= stop);
        let after = self.began.elapsed();
        self.attached.detach_entries(layer);
        if let Some(keeping) = &mut self.budget {
            keeping.detached.push(Detached {
                layer,
                after,
                until: None,
                of_layer: excess.of_layer,
                of_all: excess.of_all,
                under_way: None,
            });
            keeping.at = Instant::now();
        }
        if layer == Layer::Blk {
            self.detach_rest(layer);
        }
    }

    /// Those of its calls that are still under way stay so.
    fn detach_rest(&mut self, layer: Layer) {
        self.attached.detach_returns(layer);
        self.attached.control(|control| control.stopped &= !STOP_PAIRS);
        let under_way = live::under_way(&self.attached, self.plan).ok();
        let Some(keeping) = &mut self.budget else { return };
        if let Some(detached) = keeping.detached.last_mut() {
            detached.until = Some(self.began.elapsed());
            detached.under_way = under_way.map(|known| known.by_layer.get(&layer).copied().unwrap_or(0));
        }
        keeping.at = Instant::now();
        keeping.times = live::cpu_times(&self.attached);
        keeping.is_over = self.attached.layers().is_empty();
    }
}

/// One line: what is done `after` so much of the run, what was measured and what is allowed. `is_end`: the run ends.
fn sentence(excess: &Excess, is_end: bool, after: Duration, limit: CpuShare) -> String {
    let layer = excess.layer.name();
    let after = length(after);
    let what = match (is_end, excess.saves) {
        (false, _) => format!("{layer} is detached after {after}, which saves most"),
        (true, Saves::All) => format!("the run ends after {after}, since only {layer} is left"),
        (true, _) => format!("the run ends after {after}, since detaching a layer would save too little"),
    };
    format!(
        "budget: {what}: measuring took {} of a CPU (the probes of {layer} {}), with {} allowed",
        excess.of_all,
        excess.of_layer,
        limit.exactly()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn percent(text: &str) -> CpuShare {
        CpuShare::parse(text, 4).unwrap()
    }

    #[test]
    fn a_sentence_has_what_was_measured_and_what_is_allowed() {
        let excess = |saves| Excess {
            layer: Layer::Vfs,
            saves,
            of_layer: percent("6.1"),
            of_all: percent("9.21"),
        };
        let sentence = |saves, is_end| super::sentence(&excess(saves), is_end, Duration::from_secs(3), percent("5"));
        assert_eq!(
            sentence(Saves::Enough, false),
            "budget: vfs is detached after 3.0 s, which saves most: measuring took 9.21 % of a CPU (the probes of vfs 6.10 %), with 5 % allowed"
        );
        assert_eq!(
            sentence(Saves::All, true),
            "budget: the run ends after 3.0 s, since only vfs is left: measuring took 9.21 % of a CPU (the probes of vfs 6.10 %), with 5 % allowed"
        );
        assert_eq!(
            sentence(Saves::TooLittle, true),
            "budget: the run ends after 3.0 s, since detaching a layer would save too little: measuring took 9.21 % of a CPU (the probes of vfs 6.10 %), with 5 % allowed"
        );
    }
}
