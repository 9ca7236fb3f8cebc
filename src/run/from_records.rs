//! The records of a recording as a source of reports: snapshots of what is selected, and slow calls one by one.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use crate::analyse::records::counters::{Counters, Totals, Wanted};
use crate::analyse::records::names::Names;
use crate::analyse::records::order::InOrder;
use crate::model::abi::SLOW_REPORTED;
use crate::model::clock::Clock;
use crate::model::events::Events;
use crate::model::ids::{By, Layer};
use crate::model::record::Kind;
use crate::model::recording::Clocks;
use crate::model::report::records::Incomplete;
use crate::model::report::slow::SlowCall;
use crate::model::run_info::RunInfo;
use crate::model::selection::Selection;
use crate::model::snapshot::{OpCounters, Snapshot, StackCounters};
use crate::number::thousands;
use crate::recording::{Ahead, Recording, Replayed, Span, Unneeded};
use crate::source::{Item, Source, SourceError, Until};
use crate::view::text::records::{missing, not_written as not_written_line};

use super::progress::Paced;

/// Slow calls that wait for earlier ones.
const SLOW_ROOM: usize = 1 << 14;
/// Records are read up to this long after the span: those of different kinds arrive in any order within it, and a sleep
/// that ends later may have begun before.
const BEYOND: u64 = 5_000_000_000;

/// What is made of the records.
pub struct Wish {
    pub selection: Selection,
    pub by: Option<By>,
    pub slower_ns: Option<u64>,
    /// The unit of histograms in nanoseconds; 0: none.
    pub unit_ns: u64,
    pub span: Span,
    pub interval: Option<Duration>,
    /// Reports at most.
    pub count: Option<u64>,
    /// The span is not one of whole seconds, whose counters are known.
    pub is_inside: bool,
    /// Progress is shown.
    pub is_shown: bool,
}

/// See the module.
pub struct FromRecords {
    /// As the reports describe it.
    info: RunInfo,
    recording: Recording,
    batches: Ahead,
    names: Names,
    counters: Counters,
    totals: Totals,
    bases: Bases,
    /// The counters of the run are those of the selection; else they are made of the records.
    is_exact: bool,
    /// The counters at the start, if they are exact.
    first: Option<(Vec<Arc<OpCounters>>, Option<StackCounters>)>,
    slow: InOrder<SlowCall>,
    ready: VecDeque<Item>,
    clocks: Clocks,
    /// The intervals that were not returned.
    left: usize,
    is_read: bool,
    records: u64,
    shown: Paced,
    kinds: Vec<Kind>,
    is_incomplete: bool,
}

/// What the snapshots have besides the counters.
enum Bases {
    /// The snapshots of the recording.
    Seconds(Box<Replayed>),
    /// The last snapshot before and the first one after some moments, of which records have the counters.
    Moments(Box<[Snapshot; 2]>, VecDeque<u64>),
}

impl FromRecords {
    /// `info`: the run as the reports describe it.
    ///
    /// # Errors
    /// If counters are needed that the recording does not have.
    pub fn new(recording: &Recording, info: RunInfo, wish: Wish) -> Result<Self, SourceError> {
        let (bases, moments) = bases(recording, &wish)?;
        let clocks = recording.meta().clocks;
        let mut names = Names::of(recording.meta(), wish.selection);
        // A run of the whole stack has no counters of single operations.
        let is_split = recording.meta().run.stack.is_some() && info.stack.is_none();
        let is_exact = names.selection().is_all() && !wish.is_inside && !is_split;
        recording.definitions().for_each(|records| names.learn(&records));
        let (from_ns, ends_ns) = moments
            .split_first()
            .map_or((0, &[][..]), |(first, ends)| (*first, ends));
        let wanted = Wanted {
            by: wish.by,
            slower_ns: wish.slower_ns,
            unit_ns: wish.unit_ns,
            clock: Clock {
                zero_ns: clocks.offset_ns,
                utc_offset: clocks.utc_offset,
            },
            from_ns,
            ends_ns: ends_ns.to_vec(),
        };
        // Only the whole stack has rows.
        let unneeded: &'static [Unneeded] = match info.stack {
            Some(_) => &[],
            None => &[Unneeded::Waits, Unneeded::Sleeps],
        };
        let until_ns = ends_ns.last().map_or(from_ns, |last| last.saturating_add(BEYOND));
        let mut source = Self {
            batches: recording
                .batches(Some(from_ns), Some(until_ns))
                .without(unneeded)
                .ahead(),
            counters: Counters::new(&info, wanted),
            totals: Totals::new(&info, wish.by),
            kinds: kinds(&info, names.selection(), wish.by),
            recording: recording.clone(),
            names,
            is_exact,
            first: None,
            slow: InOrder::with_room(SLOW_ROOM),
            ready: VecDeque::new(),
            clocks,
            left: ends_ns.len(),
            is_read: false,
            records: 0,
            shown: Paced::new(wish.is_shown),
            is_incomplete: false,
            info,
            bases,
        };
        // What wrote the recording has no record, nor has what could not be written.
        source.is_incomplete = recording
            .end()
            .is_none_or(|end| end.own_writes.requests > 0 || !end.not_written.is_empty());
        let first = source.base()?;
        source.first = is_exact.then(|| (first.ops.clone(), first.stack.clone()));
        let first = source.complete(first);
        source.ready.push_back(Item::Snapshot(Box::new(first)));
        Ok(source)
    }

    /// Names a control group by its path from the root of its hierarchy.
    pub fn define_cgroup(&mut self, number: u64, path: String) {
        self.names.define_cgroup(number, path);
    }

    /// The definitions of the recording.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// The next snapshot of the run.
    fn base(&mut self) -> Result<Snapshot, SourceError> {
        next_base(&mut self.bases, self.clocks)
    }

    /// Replaces the counters by those of the selection.
    fn complete(&mut self, mut snapshot: Snapshot) -> Snapshot {
        if self.is_exact {
            if let (Some(stack), Some(known)) = (&mut snapshot.stack, &self.totals.stack) {
                for (family, known) in stack.families.iter_mut().zip(&known.families) {
                    Arc::make_mut(family).slow[SLOW_REPORTED as usize] = known.slow[SLOW_REPORTED as usize];
                }
            }
        } else {
            let losses = std::mem::replace(&mut snapshot.ops, self.totals.ops.clone());
            for (op, of_all) in snapshot.ops.iter_mut().zip(losses) {
                let op = Arc::make_mut(op);
                (op.lost, op.unmatched_ends) = (of_all.lost, of_all.unmatched_ends);
            }
            let of_all = std::mem::replace(&mut snapshot.stack, self.totals.stack.clone());
            if let (Some(stack), Some(of_all)) = (&mut snapshot.stack, of_all) {
                for (family, of_all) in stack.families.iter_mut().zip(of_all.families) {
                    Arc::make_mut(family).unbalanced = of_all.unbalanced;
                }
            }
            snapshot.neighbours = None;
            snapshot.disks = None;
            snapshot.under_way = None;
        }
        snapshot.groups = self.totals.groups_since();
        snapshot
    }

    /// Reads records until an item is ready.
    fn read(&mut self) -> Result<(), SourceError> {
        while self.ready.is_empty() && self.left > 0 {
            if self.is_read || self.counters.is_ready() {
                self.end_interval()?;
                continue;
            }
            let Some(records) = self.batches.next() else {
                self.is_read = true;
                continue;
            };
            self.records += records.len() as u64;
            self.show();
            self.names.learn(&records);
            self.counters.take(&records, &self.names);
            let slow = self.counters.slow_calls();
            let slow = slow
                .into_iter()
                .filter_map(|(end_ns, call)| self.slow.push(end_ns, call));
            let slow: Vec<SlowCall> = slow.map(|(_, call)| call).collect();
            self.report_slow(slow);
        }
        Ok(())
    }

    fn show(&mut self) {
        self.shown
            .show(|| format!("reading: {} records", thousands(self.records)));
    }

    fn report_slow(&mut self, slow_calls: Vec<SlowCall>) {
        if slow_calls.is_empty() {
            return;
        }
        let events = Events {
            slow_calls,
            utc_offset: self.clocks.utc_offset,
            ..Events::default()
        };
        self.ready.push_back(Item::Events(events));
    }

    fn end_interval(&mut self) -> Result<(), SourceError> {
        self.left -= 1;
        let base = self.base()?;
        let slow = std::iter::from_fn(|| self.slow.pop_before(base.at_ns.saturating_add(1)));
        let slow: Vec<SlowCall> = slow.map(|(_, call)| call).collect();
        self.report_slow(slow);
        let Some(interval) = self.counters.next_interval() else {
            return Ok(());
        };
        self.totals.add(&interval, &self.names);
        let mut warnings = self.warnings(&interval.incomplete(&self.kinds));
        if interval.without_rows > 0 {
            warnings.push(format!(
                "INCOMPLETE: the rows of {} calls cannot be read; they are in no family",
                thousands(interval.without_rows)
            ));
        }
        if self.left == 0 {
            warnings.extend(self.at_end());
        }
        self.is_incomplete |= !warnings.is_empty();
        if let Some((ops, stack)) = self.first.as_ref().filter(|_| self.is_incomplete) {
            let ops: Vec<OpCounters> = base.ops.iter().zip(ops).map(|(now, first)| now.since(first)).collect();
            let stack = base
                .stack
                .as_ref()
                .zip(stack.as_ref())
                .map(|(now, first)| StackCounters {
                    families: now
                        .families
                        .iter()
                        .zip(&first.families)
                        .map(|(now, first)| Arc::new(now.combined(first, u64::wrapping_sub)))
                        .collect(),
                    origins: Arc::new(
                        now.origins
                            .iter()
                            .zip(first.origins.iter())
                            .map(|(now, first)| std::array::from_fn(|i| now[i].wrapping_sub(first[i])))
                            .collect(),
                    ),
                });
            self.totals.add_rest(&ops, stack.as_ref());
        }
        let mut snapshot = self.complete(base);
        snapshot.warnings.extend(warnings);
        self.ready.push_back(Item::Snapshot(Box::new(snapshot)));
        Ok(())
    }

    fn warnings(&self, incomplete: &[Incomplete]) -> Vec<String> {
        let clock = Clock {
            zero_ns: self.clocks.offset_ns,
            utc_offset: self.clocks.utc_offset,
        };
        let lines = incomplete.iter().map(|one| missing(one, clock, self.is_exact));
        lines.collect()
    }

    /// What is known to be missing when everything was read.
    fn at_end(&self) -> Vec<String> {
        let mut lines = Vec::new();
        let after = self.counters.after_end();
        if after > 0 {
            lines.push(format!(
                "INCOMPLETE: {} requests ended in an interval that had been reported",
                thousands(after)
            ));
        }
        let not_written = self.recording.end().into_iter().flat_map(|end| &end.not_written);
        let not_written = not_written.filter(|(kind, _)| self.kinds.contains(kind));
        lines.extend(not_written.map(|(kind, records)| format!("INCOMPLETE: {}", not_written_line(*records, *kind))));
        let damage = self.recording.damage();
        // The counters are not made of these.
        let of_records = damage.iter().filter(|damage| !damage.file.ends_with("seconds.arrow"));
        lines.extend(of_records.map(|damage| format!("INCOMPLETE: {}: {}", damage.file, damage.what)));
        lines
    }
}

impl Source for FromRecords {
    fn info(&self) -> &RunInfo {
        &self.info
    }

    /// Ignores `until`, since the run is over.
    fn next(&mut self, _: Until) -> Result<Item, SourceError> {
        self.read()?;
        Ok(self.ready.pop_front().unwrap_or(Item::Nothing))
    }
}

/// The kinds of records without which a report is incomplete.
fn kinds(info: &RunInfo, selection: &Selection, by: Option<By>) -> Vec<Kind> {
    let has = |layer| info.layers.iter().any(|info| info.layer == layer);
    let is_stack = info.stack.is_some();
    let by_thread = selection.comm.is_some()
        || !selection.cgroups.is_empty()
        || selection.follow
        || by.is_some_and(|by| matches!(by, By::Comm | By::User) || by.is_of_cgroups());
    let by_file =
        selection.is_by_file() || !selection.devices.is_empty() || matches!(by, Some(By::File | By::Disk | By::Fd));
    let kinds = [
        (is_stack || has(Layer::Syscall), Kind::Call),
        (is_stack || has(Layer::Blk), Kind::Request),
        (is_stack, Kind::Sleep),
        (by_file, Kind::File),
        (by_thread, Kind::Thread),
    ];
    kinds
        .into_iter()
        .filter_map(|(is_needed, kind)| is_needed.then_some(kind))
        .collect()
}

/// The snapshots, and their moments.
fn bases(recording: &Recording, wish: &Wish) -> Result<(Bases, Vec<u64>), SourceError> {
    if wish.is_inside {
        let (start, end) = recording.span();
        let (from_ns, to_ns) = (wish.span.from_ns.max(start), wish.span.to_ns.min(end));
        let mut moments = vec![from_ns];
        if let Some(interval) = wish.interval {
            let step = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
            let inner = std::iter::successors(from_ns.checked_add(step), |at| at.checked_add(step));
            let most = wish
                .count
                .map_or(usize::MAX, |count| usize::try_from(count).unwrap_or(usize::MAX));
            moments.extend(inner.take_while(|at| *at < to_ns).take(most));
        }
        let most = wish.count.and_then(|count| usize::try_from(count).ok());
        if most.is_none_or(|most| moments.len() <= most || wish.interval.is_none()) {
            moments.push(to_ns);
        }
        let around = around(recording, from_ns, to_ns).unwrap_or_else(|| [from_ns, to_ns].map(Snapshot::empty));
        return Ok((
            Bases::Moments(Box::new(around), moments.iter().copied().collect()),
            moments,
        ));
    }
    let replayed = || {
        let mut replayed = Replayed::new(recording, wish.span, wish.interval);
        if let Some(count) = wish.count {
            replayed.limit(count);
        }
        replayed
    };
    let mut moments = Vec::new();
    let mut first = replayed();
    while let Item::Snapshot(snapshot) = first.next(Until::End)? {
        moments.push(snapshot.at_ns);
    }
    if moments.is_empty() {
        return Err(SourceError(recording.without_counters().line));
    }
    Ok((Bases::Seconds(Box::new(replayed())), moments))
}

/// The last snapshot up to a moment, and the first one from another on; `None`: the recording has none that can be read.
fn around(recording: &Recording, from_ns: u64, to_ns: u64) -> Option<[Snapshot; 2]> {
    let mut before = None;
    let mut after = None;
    for second in recording.seconds() {
        if second.at_ns <= from_ns || before.is_none() {
            before = Some(second.clone());
        }
        let is_last = second.at_ns >= to_ns;
        after = Some(second);
        if is_last {
            break;
        }
    }
    Some([before?, after?])
}

fn no_counters() -> SourceError {
    SourceError("the recording has changed while it was read".to_owned())
}

fn next_base(bases: &mut Bases, clocks: Clocks) -> Result<Snapshot, SourceError> {
    match bases {
        Bases::Seconds(replayed) => match replayed.next(Until::End)? {
            Item::Snapshot(snapshot) => Ok(*snapshot),
            _ => Err(no_counters()),
        },
        Bases::Moments(around, moments) => {
            let at_ns = moments.pop_front().ok_or_else(no_counters)?;
            let [before, after] = &**around;
            // The losses of all are known at the end.
            let template = if moments.is_empty() { after } else { before };
            let part = at_ns.saturating_sub(before.at_ns);
            let span = after.at_ns.saturating_sub(before.at_ns).max(1);
            let own = after.own_ns.saturating_sub(before.own_ns);
            Ok(Snapshot {
                own_ns: before.own_ns + (u128::from(own) * u128::from(part.min(span)) / u128::from(span)) as u64,
                probes: before.probes.clone(),
                at_ns,
                wall: Clock {
                    zero_ns: clocks.offset_ns,
                    utc_offset: 0,
                }
                .wall(at_ns),
                utc_offset: clocks.utc_offset,
                ..template.clone()
            })
        }
    }
}
