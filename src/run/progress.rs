//! The progress shown on a terminal while a run starts, and the time left until it ends.

use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::kernel::processes::numbers_in_proc;
use crate::leave::DETACHING;
use crate::probe::request::Stage;
use crate::say;
use crate::view::text::counted;
use crate::view::text::number::{length, thousands};

use super::record::Recorder;

/// Shows the progress of attaching, and whether an earlier run is still being detached, which slows it down.
pub fn show(stage: Stage) {
    if say::can_erase() {
        let mut earlier = EARLIER.lock().unwrap_or_else(PoisonError::into_inner);
        let pid = earlier.during(stage, || numbers_in_proc().find(|pid| is_detaching(*pid)), is_detaching);
        say::status(&text(stage, pid));
    }
}

/// `attaching: 12 of 104 functions`
fn text(stage: Stage, earlier: Option<u32>) -> String {
    let what = match stage {
        Stage::Looking => "inspecting the kernel".to_owned(),
        Stage::Loading => "loading programs".to_owned(),
        Stage::Attaching { done, of } => {
            let [done, of] = [done.min(of), of].map(|n| thousands(n as u64));
            format!("attaching: {done} of {of} functions")
        }
        Stage::Waiting { functions } => {
            let functions = counted(functions as u64, "function");
            return match earlier {
                Some(pid) => format!("waiting for PID {pid} ({DETACHING}) to release {functions} of an earlier run"),
                None => format!("waiting for an earlier run to release {functions}"),
            };
        }
    };
    match earlier {
        Some(pid) => format!("{what} (PID {pid}, {DETACHING}, is detaching an earlier run)"),
        None => what,
    }
}

/// How often a line of progress changes.
const STEP: Duration = Duration::from_millis(200);

/// Progress that is made much faster than anyone reads it: shown from time to time.
#[derive(Debug)]
pub struct Paced {
    is_wanted: bool,
    shown: Instant,
}

impl Paced {
    /// `is_wanted`: without `-q`, and not where the line would be among others.
    pub fn new(is_wanted: bool) -> Self {
        Self {
            is_wanted,
            shown: Instant::now(),
        }
    }

    /// Shows a text on a terminal, unless another one was shown a moment ago.
    pub fn show(&mut self, text: impl FnOnce() -> String) {
        if self.is_wanted && self.shown.elapsed() >= STEP && say::can_erase() {
            self.shown = Instant::now();
            say::status(&text());
        }
    }
}

/// What is known of an earlier run that is being detached.
static EARLIER: Mutex<Earlier> = Mutex::new(Earlier {
    pid: None,
    has_looked: false,
    has_looked_waiting: false,
});

/// The process that is detaching an earlier run. It is looked for among all processes, of which there may be thousands,
/// while the line of progress changes hundreds of times: so once, and once more if this run has to wait for it.
#[derive(Debug, Default)]
struct Earlier {
    pid: Option<u32>,
    has_looked: bool,
    has_looked_waiting: bool,
}

impl Earlier {
    /// Its number, if there is one. `find` looks among all processes, `is_it` at one of them.
    fn during(
        &mut self,
        stage: Stage,
        find: impl FnOnce() -> Option<u32>,
        is_it: impl FnOnce(u32) -> bool,
    ) -> Option<u32> {
        if self.pid.is_some_and(is_it) {
            return self.pid;
        }
        // If one has ended, there may be another one.
        let has_ended = self.pid.is_some();
        let looked = match stage {
            Stage::Waiting { .. } => &mut self.has_looked_waiting,
            Stage::Looking | Stage::Loading | Stage::Attaching { .. } => &mut self.has_looked,
        };
        if !std::mem::replace(looked, true) || has_ended {
            self.pid = find();
        }
        self.pid
    }
}

fn is_detaching(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_end() == DETACHING)
}

/// Shows the time left until `end`, and returns when it has to be updated; `None` if it is not shown.
pub fn show_left(end: Instant) -> Option<Instant> {
    if !say::can_erase() {
        return None;
    }
    let now = Instant::now();
    let left = end.saturating_duration_since(now);
    say::status(&time_left(left));
    now.checked_add(until_change(left))
}

/// Shows what was recorded so far, and the time left.
pub fn show_recording(recorder: &Recorder, end: Option<Instant>) {
    if say::can_erase() {
        let left = end.map(|end| time_left(end.saturating_duration_since(Instant::now())));
        say::status(&recorder.progress(left.as_deref()));
    }
}

/// The time left in started seconds: `8 s left`, `1m 40s left`.
fn time_left(left: Duration) -> String {
    let seconds = left.as_secs() + u64::from(left.subsec_nanos() > 0);
    match seconds {
        0 => "ending".to_owned(),
        1..100 => format!("{seconds} s left"),
        _ => format!("{} left", length(Duration::from_secs(seconds))),
    }
}

/// How long the current text stays valid.
fn until_change(left: Duration) -> Duration {
    match left.subsec_nanos() {
        0 => Duration::from_secs(1),
        part => Duration::from_nanos(part.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_says_how_far_it_is_and_what_holds_it_up() {
        assert_eq!(text(Stage::Looking, None), "inspecting the kernel");
        assert_eq!(
            text(Stage::Attaching { done: 12, of: 104 }, None),
            "attaching: 12 of 104 functions"
        );
        // Some functions are tried with several hooks.
        assert_eq!(
            text(Stage::Attaching { done: 9, of: 8 }, None),
            "attaching: 8 of 8 functions"
        );
        assert_eq!(
            text(Stage::Loading, Some(7)),
            "loading programs (PID 7, iosb-detach, is detaching an earlier run)"
        );
        let waiting = Stage::Waiting { functions: 12 };
        assert_eq!(
            text(waiting, Some(7)),
            "waiting for PID 7 (iosb-detach) to release 12 functions of an earlier run"
        );
        // The process may be in another PID namespace.
        assert_eq!(
            text(waiting, None),
            "waiting for an earlier run to release 12 functions"
        );
    }

    #[test]
    fn an_earlier_run_is_looked_for_once_and_again_when_it_is_waited_for() {
        let (attaching, waiting) = (Stage::Attaching { done: 1, of: 9 }, Stage::Waiting { functions: 3 });
        let mut earlier = Earlier::default();
        let mut looks = 0;
        let mut at = |stage, found: Option<u32>, is_there: bool| {
            let find = || {
                looks += 1;
                found
            };
            (earlier.during(stage, find, |_| is_there), looks)
        };
        assert_eq!(at(attaching, None, false), (None, 1));
        assert_eq!(at(attaching, Some(7), true), (None, 1));
        assert_eq!(at(waiting, Some(7), true), (Some(7), 2));
        assert_eq!(at(waiting, None, true), (Some(7), 2));
        // It has ended, and another one has not.
        assert_eq!(at(waiting, Some(8), false), (Some(8), 3));
        assert_eq!(at(waiting, None, false), (None, 4));
        assert_eq!(at(waiting, Some(9), true), (None, 4));
    }

    #[test]
    fn time_left_counts_down_in_whole_seconds() {
        let ms = Duration::from_millis;
        let shown: Vec<String> = [7_001, 7_000, 1, 0, 99_000, 99_001, 3_600_000]
            .map(|left| time_left(ms(left)))
            .into();
        assert_eq!(
            shown,
            [
                "8 s left",
                "7 s left",
                "1 s left",
                "ending",
                "99 s left",
                "1m 40s left",
                "1h 0m 0s left"
            ]
        );
        assert_eq!(until_change(ms(7_300)), ms(300));
        assert_eq!(until_change(ms(7_000)), ms(1_000));
    }
}
