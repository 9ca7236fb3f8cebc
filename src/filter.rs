//! Filters the events and counters of a saved run. While a run measures, the kernel side filters, and everything passes
//! here.

use crate::model::events::Events;
use crate::model::report::slow::SlowCall;
use crate::model::run_info::RunInfo;
use crate::number::time_each;

/// The selected events. The default selects all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// These processes; empty: all.
    pub pids: Vec<u32>,
    /// Threads of this name.
    pub comm: Option<String>,
    /// Calls that take this long or longer, in nanoseconds.
    pub slower_ns: Option<u64>,
}

impl Filter {
    /// Checks that a run has all the selected events.
    ///
    /// # Errors
    /// What is missing, in one line.
    pub fn check(&self, run: &RunInfo) -> Result<(), String> {
        match (self.slower_ns, run.slower_ns) {
            (Some(_), None) => Err("the run was saved without slow calls; leave out --slower".to_owned()),
            (Some(threshold), Some(kept)) if threshold < kept => Err(format!(
                "calls shorter than {} were not saved; use --slower {kept}ns or more",
                time_each(kept)
            )),
            _ => Ok(()),
        }
    }

    /// Removes the events that are not selected.
    pub fn events(&self, events: &mut Events) {
        events.slow_calls.retain(|call| self.passes(call));
    }

    fn passes(&self, call: &SlowCall) -> bool {
        (self.pids.is_empty() || self.pids.contains(&call.pid))
            && self.comm.as_ref().is_none_or(|comm| *comm == call.comm)
            && self.slower_ns.is_none_or(|ns| call.total_ns >= ns)
    }

    /// Whether a run's counters are those of the selected events: they are not saved by process or by length.
    #[must_use]
    pub fn has_counters(&self, run: &RunInfo) -> bool {
        (self.pids.is_empty() || self.pids == run.filter.pids)
            && (self.comm.is_none() || self.comm == run.filter.comm)
            && (self.slower_ns.is_none() || self.slower_ns == run.slower_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::Op;

    fn call(pid: u32, comm: &str, total_ns: u64) -> SlowCall {
        SlowCall {
            pid,
            comm: comm.to_owned(),
            total_ns,
            op: Op::Read,
            ..SlowCall::default()
        }
    }

    fn passed(filter: &Filter) -> Vec<u64> {
        let mut events = Events {
            slow_calls: vec![call(7, "a", 10), call(7, "b", 20), call(8, "a", 30)],
            ..Events::default()
        };
        filter.events(&mut events);
        events.slow_calls.iter().map(|call| call.total_ns).collect()
    }

    #[test]
    fn a_call_passes_by_its_process_its_thread_and_its_length() {
        let all = Filter::default();
        assert_eq!(passed(&all), [10, 20, 30]);
        let pids = vec![7];
        assert_eq!(passed(&Filter { pids, ..all.clone() }), [10, 20]);
        let comm = Some("a".to_owned());
        assert_eq!(passed(&Filter { comm, ..all.clone() }), [10, 30]);
        let slower_ns = Some(20);
        assert_eq!(passed(&Filter { slower_ns, ..all }), [20, 30]);
    }

    #[test]
    fn a_filter_cannot_select_what_was_not_saved() {
        let kept = |slower_ns| RunInfo {
            slower_ns,
            ..RunInfo::default()
        };
        let with_threshold = |slower_ns| Filter {
            slower_ns,
            ..Filter::default()
        };
        assert!(with_threshold(Some(20)).check(&kept(Some(20))).is_ok());
        assert!(with_threshold(Some(30)).check(&kept(Some(20))).is_ok());
        assert!(with_threshold(None).check(&kept(None)).is_ok());
        assert!(with_threshold(Some(10)).check(&kept(Some(20))).is_err());
        assert!(with_threshold(Some(20)).check(&kept(None)).is_err());
    }

    #[test]
    fn counters_are_of_all_that_was_kept_or_not_looked_at() {
        let mut run = RunInfo {
            slower_ns: Some(20),
            ..RunInfo::default()
        };
        let all = Filter::default();
        assert!(all.has_counters(&run));
        let slower = |slower_ns| Filter {
            slower_ns: Some(slower_ns),
            ..all.clone()
        };
        assert!(slower(20).has_counters(&run) && !slower(30).has_counters(&run));
        let pids = vec![7];
        let of_one = Filter { pids, ..all };
        assert!(!of_one.has_counters(&run));
        run.filter.pids = vec![7];
        assert!(of_one.has_counters(&run));
    }
}
