//! `--budget`: checks the cost of measuring regularly, and detaches the layer that saves most when it is too high.

use std::time::{Duration, Instant};

use crate::budget::{CpuShare, CpuTimes, Excess, Saves, excess};
use crate::catalog::Layer;
use crate::number::length;
use crate::say;
use crate::source::live::Live;

/// The time between checks, and how long calls under way may take to return once no more are entered.
const PAUSE: Duration = Duration::from_secs(1);

/// The limit, and the CPU times of the last check.
pub struct Keeping {
    limit: CpuShare,
    /// Whether other layers are measured inside system calls.
    whole_stack: bool,
    /// The time of the last check.
    at: Instant,
    times: CpuTimes,
    /// Nothing is left that could be detached.
    is_over: bool,
}

impl Keeping {
    pub fn new(limit: CpuShare, whole_stack: bool, live: &Live) -> Self {
        Self {
            limit,
            whole_stack,
            at: Instant::now(),
            times: live.cpu_times(),
            is_over: false,
        }
    }

    /// The time of the next check, if any.
    pub fn next(&self) -> Option<Instant> {
        self.at.checked_add(PAUSE).filter(|_| !self.is_over)
    }

    /// Checks the cost if it is time, and detaches the layer that saves most if it is too high. Returns whether the run
    /// is over: if that would save too little, and no command has to be waited for.
    pub fn look(&mut self, live: &mut Live, has_command: bool) -> bool {
        let now = Instant::now();
        if self.next().is_none_or(|next| now < next) {
            return false;
        }
        if live.leaving().is_some() {
            live.detach_returns();
            self.start_over(live);
            return false;
        }
        let times = live.cpu_times();
        let span = now.duration_since(self.at);
        let excess = excess(self.limit, &self.times, &times, span, self.whole_stack);
        (self.at, self.times) = (now, times);
        let Some(excess) = excess else { return false };
        let is_end = excess.saves != Saves::Enough && !has_command;
        let after = live.began().elapsed();
        say!("{}", sentence(&excess, is_end, after, self.limit, self.whole_stack));
        if !is_end {
            live.detach_entries(excess.layer, excess.of_layer, excess.of_all);
            self.at = Instant::now();
            if live.leaving().is_none() {
                self.start_over(live);
            }
        }
        is_end
    }

    /// A layer is detached: later checks are about the rest.
    fn start_over(&mut self, live: &Live) {
        self.at = Instant::now();
        self.times = live.cpu_times();
        self.is_over = live.is_detached();
    }
}

/// One line: what is done at `after`, what was measured and what is allowed. `is_end`: the run ends.
fn sentence(excess: &Excess, is_end: bool, after: Duration, limit: CpuShare, whole_stack: bool) -> String {
    let layer = excess.layer.name();
    let after = length(after);
    let of_layer = excess.of_layer;
    let what = match (is_end, excess.saves) {
        (false, _) => format!("detaching {layer} at {after} (its probes took {of_layer})"),
        (true, Saves::All) => format!("ending the run at {after}, since only {layer} is left"),
        (true, _) if whole_stack && excess.layer == Layer::Syscall => format!(
            "ending the run at {after}, since detaching any layer but syscall (its probes took {of_layer}) would save \
             too little"
        ),
        (true, _) => {
            format!(
                "ending the run at {after}, since detaching {layer} (its probes took {of_layer}) would save too little"
            )
        }
    };
    format!(
        "budget: measuring took {} of a CPU, and {} is allowed; {what}",
        excess.of_all,
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
        let after = Duration::from_secs(3);
        let sentence = |saves, is_end| super::sentence(&excess(saves), is_end, after, percent("5"), true);
        assert_eq!(
            sentence(Saves::Enough, false),
            "budget: measuring took 9.21 % of a CPU, and 5 % is allowed; detaching vfs at 3.0 s (its probes took 6.10 %)"
        );
        assert_eq!(
            sentence(Saves::All, true),
            "budget: measuring took 9.21 % of a CPU, and 5 % is allowed; ending the run at 3.0 s, since only vfs is left"
        );
        assert_eq!(
            sentence(Saves::TooLittle, true),
            "budget: measuring took 9.21 % of a CPU, and 5 % is allowed; ending the run at 3.0 s, since detaching vfs (its probes took 6.10 %) would save too little"
        );
        let calls = Excess {
            layer: Layer::Syscall,
            ..excess(Saves::TooLittle)
        };
        assert_eq!(
            super::sentence(&calls, true, after, percent("5"), true),
            "budget: measuring took 9.21 % of a CPU, and 5 % is allowed; ending the run at 3.0 s, since detaching any layer but syscall (its probes took 6.10 %) would save too little"
        );
    }
}
