//! Whether records meet the conditions of a recording in memory.

use std::collections::BTreeSet;

use crate::catalog::families;
use crate::model::ids::Op;
use crate::model::record::{AsyncCall, Call, Records, Request};
use crate::model::report::records::Limited;
use crate::model::trigger::{Fired, Outcome, Trigger};

/// Conditions, and what they have seen.
#[derive(Debug, Clone, Default)]
pub struct Triggers {
    watched: Vec<Watched>,
    /// Calls under way that have met a condition, by thread and begin: each does so once.
    stuck: BTreeSet<(u32, u64)>,
}

/// A condition.
#[derive(Debug, Clone)]
struct Watched {
    trigger: Trigger,
    /// Whether it is about calls of an op, in the order of [`Op::ALL`].
    ops: Vec<bool>,
    /// The longest time of a call or request that it has seen, in nanoseconds; only of [`Trigger::Slower`].
    longest_ns: u64,
}

impl Triggers {
    #[must_use]
    pub fn new(triggers: Vec<Trigger>) -> Self {
        let watched = |trigger| {
            let of = match trigger {
                Trigger::Slower { of, .. } | Trigger::Error { of, .. } => of,
                Trigger::Stuck { .. } => None,
            };
            Watched {
                trigger,
                ops: Op::ALL.into_iter().map(|op| is_of(op, of)).collect(),
                longest_ns: 0,
            }
        };
        Self {
            watched: triggers.into_iter().map(watched).collect(),
            stuck: BTreeSet::new(),
        }
    }

    /// The conditions; [`Trigger::Slower`] with the longest time that it has seen so far, in nanoseconds, the others with 0.
    pub fn seen(&self) -> impl Iterator<Item = (Trigger, u64)> + '_ {
        self.watched.iter().map(|one| (one.trigger, one.longest_ns))
    }

    /// The shortest time after which a call under way meets a condition; `None`: it never does.
    #[must_use]
    pub fn stuck_ns(&self) -> Option<u64> {
        let times = self.watched.iter().filter_map(|one| match one.trigger {
            Trigger::Stuck { ns } => Some(ns),
            _ => None,
        });
        times.min()
    }

    /// The first of these records, by the time of its end, that meets a condition.
    pub fn records(&mut self, records: &Records) -> Option<Fired> {
        let mut first: Option<Fired> = None;
        for one in &mut self.watched {
            let mut look = |fired: Option<Fired>| {
                let is_earlier = |fired: &Fired| first.as_ref().is_none_or(|first| fired.at_ns < first.at_ns);
                if let Some(fired) = fired.filter(is_earlier) {
                    first = Some(fired);
                }
            };
            records.calls.iter().for_each(|call| look(one.call(call)));
            records
                .asynchronous
                .iter()
                .for_each(|call| look(one.asynchronous(call)));
            records.requests.iter().for_each(|request| look(one.request(request)));
        }
        first
    }

    /// The call that has been under way for longest, of those that meet a condition for the first time. `calls`: those that
    /// have been under way for [`Self::stuck_ns`], of all threads if `is_of_all`: one that is missing then has ended.
    /// `is_real`: a call whose return was missed looks as if it were under way.
    pub fn under_way(
        &mut self,
        calls: &[Call],
        is_of_all: bool,
        now_ns: u64,
        is_real: impl Fn(&Call) -> bool,
    ) -> Option<Fired> {
        let limit_ns = self.stuck_ns()?;
        let for_ns = |call: &Call| now_ns.saturating_sub(call.begin_ns);
        let key = |call: &Call| (call.tid, call.begin_ns);
        if is_of_all {
            let known: BTreeSet<(u32, u64)> = calls.iter().map(key).collect();
            self.stuck.retain(|key| known.contains(key));
        }
        let is_new = |call: &&Call| for_ns(call) >= limit_ns && !self.stuck.contains(&key(call));
        let new: Vec<&Call> = calls.iter().filter(is_new).filter(|call| is_real(call)).collect();
        let first = new.iter().min_by_key(|call| call.begin_ns)?;
        let fired = of_call(first, now_ns, Outcome::UnderWay(for_ns(first)));
        self.stuck.extend(new.into_iter().map(key));
        Some(fired)
    }
}

impl Watched {
    fn call(&mut self, call: &Call) -> Option<Fired> {
        let at_ns = call.end_ns?;
        let failed = u32::try_from(call.value.unsigned_abs()).ok().filter(|_| call.value < 0);
        let outcome = self.outcome(call.op, at_ns.saturating_sub(call.begin_ns), failed)?;
        Some(of_call(call, at_ns, outcome))
    }

    fn asynchronous(&mut self, call: &AsyncCall) -> Option<Fired> {
        let failed = u32::try_from(call.value.unsigned_abs()).ok().filter(|_| call.value < 0);
        let ns = call.end_ns.saturating_sub(call.begin_ns);
        let outcome = self.outcome(call.op, ns, failed)?;
        Some(Fired {
            at_ns: call.end_ns,
            op: call.op,
            tid: call.tid,
            pid: call.pid,
            file: call.file,
            disk: None,
            row: None,
            outcome,
        })
    }

    /// Whether a call of this op, which took so long, or failed, meets the condition.
    fn outcome(&mut self, op: Op, ns: u64, failed: Option<u32>) -> Option<Outcome> {
        if !self.ops.get(op as usize).is_some_and(|is_of| *is_of) {
            return None;
        }
        match self.trigger {
            Trigger::Slower { ns: limit_ns, .. } => {
                self.longest_ns = self.longest_ns.max(ns);
                (ns >= limit_ns).then_some(Outcome::Took(ns))
            }
            Trigger::Error { errno, .. } => (failed == Some(errno)).then_some(Outcome::Failed(errno)),
            Trigger::Stuck { .. } => None,
        }
    }

    fn request(&mut self, request: &Request) -> Option<Fired> {
        let outcome = match self.trigger {
            Trigger::Slower { ns: limit_ns, of } => {
                let submitted_ns = request.submitted_ns.or(request.started_ns);
                let (from_ns, to_ns, is_queue) = match of? {
                    Limited::Device => (request.issued_ns?, request.ended_ns, false),
                    Limited::Queue => (submitted_ns?, request.issued_ns?, true),
                    Limited::Family(_) | Limited::Op(_) => return None,
                };
                let ns = to_ns.saturating_sub(from_ns);
                self.longest_ns = self.longest_ns.max(ns);
                match (ns >= limit_ns, is_queue) {
                    (true, true) => Outcome::Queued(ns),
                    (true, false) => Outcome::Took(ns),
                    (false, _) => return None,
                }
            }
            Trigger::Error {
                errno,
                of: None | Some(Limited::Device),
            } if request.errno == errno => Outcome::Failed(errno),
            _ => return None,
        };
        Some(Fired {
            at_ns: request.ended_ns,
            op: request.op,
            tid: request.tid,
            pid: request.pid,
            file: 0,
            disk: Some(request.disk),
            row: None,
            outcome,
        })
    }
}

fn of_call(call: &Call, at_ns: u64, outcome: Outcome) -> Fired {
    let rows = call.rows.iter().copied().enumerate();
    Fired {
        at_ns,
        op: call.op,
        tid: call.tid,
        pid: call.pid,
        file: call.files[0],
        disk: None,
        row: rows.max_by_key(|(_, ns)| *ns).filter(|(_, ns)| *ns > 0),
        outcome,
    }
}

/// Whether a condition is about calls of this op.
fn is_of(op: Op, of: Option<Limited>) -> bool {
    match of {
        None => true,
        Some(Limited::Family(family)) => families().any(|known| known == (op, family)),
        Some(Limited::Op(limited)) => limited == op,
        Some(Limited::Queue | Limited::Device) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::Family;

    const MS: u64 = 1_000_000;

    fn call(op: Op, begin_ms: u64, ms: u64, value: i64) -> Call {
        Call {
            tid: 12,
            pid: 11,
            begin_ns: begin_ms * MS,
            end_ns: Some((begin_ms + ms) * MS),
            op,
            value,
            files: [7, 0],
            ..Call::default()
        }
    }

    fn request(errno: u32) -> Request {
        Request {
            disk: [8, 0],
            partition: [8, 1],
            bytes: 4096,
            op: Op::Read,
            is_sync: true,
            errno,
            submitted_ns: Some(100 * MS),
            started_ns: Some(101 * MS),
            issued_ns: Some(130 * MS),
            ended_ns: 200 * MS,
            tid: 12,
            pid: 11,
            ..Request::default()
        }
    }

    fn records(calls: Vec<Call>, requests: Vec<Request>) -> Records {
        Records {
            calls,
            requests,
            ..Records::default()
        }
    }

    fn slower(ms: u64, of: Option<Limited>) -> Trigger {
        Trigger::Slower { ns: ms * MS, of }
    }

    fn outcome(trigger: Trigger, records: &Records) -> Option<Outcome> {
        Some(Triggers::new(vec![trigger]).records(records)?.outcome)
    }

    #[test]
    fn the_first_call_that_takes_as_long_as_the_limit_or_longer() {
        let fsync = Some(Limited::Family(Family::Fsync));
        let mut triggers = Triggers::new(vec![slower(500, fsync)]);
        let short = records(
            vec![call(Op::Read, 0, 900, 1), call(Op::Fsync, 0, 499, 0)],
            vec![request(0)],
        );
        assert_eq!(triggers.records(&short), None);
        assert_eq!(triggers.seen().next(), Some((slower(500, fsync), 499 * MS)));
        let mut slow = call(Op::Fdatasync, 100, 500, 0);
        slow.rows[3] = 400 * MS;
        slow.rows[5] = 40 * MS;
        let fired = triggers.records(&records(vec![call(Op::Fsync, 200, 800, 0), slow], Vec::new()));
        let expected = Fired {
            at_ns: 600 * MS,
            op: Op::Fdatasync,
            tid: 12,
            pid: 11,
            file: 7,
            disk: None,
            row: Some((3, 400 * MS)),
            outcome: Outcome::Took(500 * MS),
        };
        assert_eq!(fired, Some(expected));
        assert_eq!(triggers.seen().next(), Some((slower(500, fsync), 800 * MS)));
    }

    #[test]
    fn a_limit_may_be_of_any_call_of_one_name_or_of_requests() {
        let one = records(vec![call(Op::Pread64, 0, 80, 1)], vec![request(0)]);
        let op = |op| Some(Limited::Op(op));
        for (of, ms, expected) in [
            (None, 80, Some(Outcome::Took(80 * MS))),
            (None, 81, None),
            (op(Op::Pread64), 80, Some(Outcome::Took(80 * MS))),
            (op(Op::Read), 1, None),
            (Some(Limited::Device), 70, Some(Outcome::Took(70 * MS))),
            (Some(Limited::Device), 71, None),
            (Some(Limited::Queue), 30, Some(Outcome::Queued(30 * MS))),
            (Some(Limited::Queue), 31, None),
        ] {
            assert_eq!(outcome(slower(ms, of), &one), expected, "{of:?} {ms}");
        }
    }

    #[test]
    fn an_error_of_a_call_or_of_a_request() {
        let failed = |errno: i64| {
            records(
                vec![call(Op::Pread64, 0, 1, -errno), call(Op::Write, 0, 1, 5)],
                Vec::new(),
            )
        };
        let error = |errno, of| Trigger::Error { errno, of };
        let read = Some(Limited::Family(Family::Read));
        let write = Some(Limited::Family(Family::Write));
        assert_eq!(outcome(error(5, None), &failed(5)), Some(Outcome::Failed(5)));
        assert_eq!(outcome(error(5, read), &failed(5)), Some(Outcome::Failed(5)));
        assert_eq!(outcome(error(5, write), &failed(5)), None);
        assert_eq!(outcome(error(5, None), &failed(28)), None);
        let requests = records(Vec::new(), vec![request(5)]);
        assert_eq!(outcome(error(5, None), &requests), Some(Outcome::Failed(5)));
        assert_eq!(
            outcome(error(5, Some(Limited::Device)), &requests),
            Some(Outcome::Failed(5))
        );
        assert_eq!(outcome(error(5, read), &requests), None);
    }

    #[test]
    fn a_call_under_way_fires_once() {
        let stuck = Trigger::Stuck { ns: 5_000 * MS };
        let mut triggers = Triggers::new(vec![stuck]);
        let open = |begin_ms| Call {
            end_ns: None,
            ..call(Op::Read, begin_ms, 0, 0)
        };
        // What is written at the end of a run has no end either.
        assert_eq!(triggers.records(&records(vec![open(1)], Vec::new())), None);
        assert_eq!(triggers.stuck_ns(), Some(5_000 * MS));
        assert_eq!(triggers.under_way(&[open(100)], true, 5_099 * MS, |_| true), None);
        let fired = triggers
            .under_way(&[open(150), open(100)], true, 5_160 * MS, |_| true)
            .unwrap();
        assert_eq!(
            (fired.at_ns, fired.outcome),
            (5_160 * MS, Outcome::UnderWay(5_060 * MS))
        );
        assert_eq!(
            triggers.under_way(&[open(150), open(100)], true, 5_260 * MS, |_| true),
            None
        );
        // Of some threads only: the call of another one goes on, and does not fire again.
        for calls in [&[][..], &[open(150), open(100)]] {
            assert_eq!(triggers.under_way(calls, false, 5_270 * MS, |_| true), None);
        }
        let next = triggers
            .under_way(&[open(150), open(100), open(300)], true, 5_360 * MS, |_| true)
            .unwrap();
        assert_eq!(next.outcome, Outcome::UnderWay(5_060 * MS));
        // Another thread's call may begin at the same time.
        let other = Call { tid: 13, ..open(100) };
        assert_eq!(
            triggers.under_way(&[open(100), other.clone()], true, 5_460 * MS, |call| call.tid != 13),
            None
        );
        assert!(
            triggers
                .under_way(&[open(100), other], true, 5_560 * MS, |_| true)
                .is_some()
        );
        assert_eq!(triggers.seen().next(), Some((stuck, 0)));
        assert_eq!(
            Triggers::new(vec![slower(1, None)]).under_way(&[open(1)], true, 9_000 * MS, |_| true),
            None
        );
    }
}
