//! The running kernel: reads the counters of the programs, and the events that they report.

mod counters;
mod groups;
mod neighbours;
mod op;
mod probes;
mod records;
mod run_info;
mod slow;
mod stack;
mod string;
mod under_way;

use std::collections::BTreeMap;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::budget::{CpuShare, CpuTimes, Detached};
use crate::catalog::Layer;
use crate::kernel::disks::Disks;
use crate::kernel::diskstats::Diskstats;
use crate::model::abi::{EPOCH_STEP, LOST_REASONS, STOP_CALLS, STOP_PAIRS, STOP_REQUESTS};
use crate::model::events::Events;
use crate::model::record::{Call, Records};
use crate::model::run_info::RunInfo;
use crate::model::snapshot::{DiskCounters, Snapshot};
use crate::probe::attach::Attached;
use crate::probe::plan::Plan;

use super::{Item, Source, SourceError, Until};

use self::probes::ProbeReader;
use self::records::RecordReader;
use self::slow::SlowCalls;

pub use self::counters::{ReadError, read, utc_offset};
pub use self::run_info::{OfRun, describe};
pub use self::stack::LastRead;
pub use crate::sys::clock::monotonic_ns;

/// The programs in the kernel, and the state of reading them.
pub struct Live {
    /// Detaching takes seconds, so it is left to the end of the process, in the background.
    attached: ManuallyDrop<Attached>,
    plan: Plan,
    info: RunInfo,
    /// The disks whose counters are compared with ours.
    disks: Option<Disks>,
    /// The generation of extremes that the next snapshot ends.
    epoch: u64,
    probes: ProbeReader,
    slow: SlowCalls,
    /// What groups had counted at the last snapshot.
    last: LastRead,
    /// If the run records.
    records: Option<RecordReader>,
    /// Layers detached during the run.
    detached: Vec<Detached>,
    /// What their ops had lost by then, by the index of the op. Calls that were under way are reported as such: they are
    /// no losses when their threads exit.
    lost_by_detached: BTreeMap<usize, [u128; LOST_REASONS as usize]>,
    began: Instant,
    /// The snapshot of the start of measuring, until it is returned.
    first: Option<Box<Snapshot>>,
    given: Given,
    /// While this is held, the kernel counts the runs of programs, unless it is an error. `None`: not requested.
    _runs: Option<io::Result<OwnedFd>>,
}

/// How much of the items of one moment has been returned.
enum Given {
    /// Nothing: the moment has not come.
    Nothing,
    /// The events that precede this snapshot.
    Events(Box<Snapshot>),
    All,
}

/// How often the last counters of a run that records are read, at most, while calls under way end.
const LAST_READINGS: usize = 20;

fn no_records(error: ReadError) -> SourceError {
    SourceError(format!("cannot read records: {error}"))
}

impl Source for Live {
    fn info(&self) -> &RunInfo {
        &self.info
    }

    fn next(&mut self, until: Until) -> Result<Item, SourceError> {
        if let Some(first) = self.first.take() {
            return Ok(Item::Snapshot(first));
        }
        match std::mem::replace(&mut self.given, Given::Nothing) {
            Given::All => Ok(Item::Nothing),
            Given::Events(snapshot) => {
                self.given = Given::All;
                Ok(Item::Snapshot(snapshot))
            }
            Given::Nothing => {
                let is_last = until == Until::End;
                // Calls that the snapshot includes are returned before it.
                if until != Until::Now {
                    self.given = Given::Events(Box::new(self.end_interval(is_last)));
                }
                let mut events = self.events(is_last)?;
                if is_last && self.records.is_some() {
                    self.count_last_calls(&mut events.records)?;
                }
                if !events.is_empty() {
                    return Ok(Item::Events(events));
                }
                match until {
                    Until::Now => Ok(Item::Nothing),
                    Until::Interval | Until::End => self.next(until),
                }
            }
        }
    }
}

impl Live {
    /// Starts measuring: the first snapshot is taken. `runs` is held so that the kernel counts the runs of programs.
    #[must_use]
    pub fn begin(
        attached: ManuallyDrop<Attached>,
        plan: Plan,
        info: RunInfo,
        disks: Option<Disks>,
        runs: Option<io::Result<OwnedFd>>,
    ) -> Self {
        let epoch = u64::from(EPOCH_STEP);
        let records = attached.records.as_ref().map(|_| RecordReader::new(&info));
        let mut live = Self {
            attached,
            plan,
            info,
            disks,
            epoch,
            probes: ProbeReader::default(),
            slow: SlowCalls::default(),
            last: LastRead::default(),
            records,
            detached: Vec::new(),
            lost_by_detached: BTreeMap::new(),
            began: Instant::now(),
            first: None,
            given: Given::Nothing,
            _runs: runs,
        };
        let disks = live.read_disks();
        let mut snapshot = read(&live.attached, &live.plan, epoch, live.info.has_runs, &mut live.last);
        // It is from before the run.
        snapshot.take_stacks();
        // Until the programs record starts, all requests under way are from before; afterwards, those that started
        // before this time.
        live.attached.control(|control| {
            control.began_ns = u64::MAX;
            control.stopped = 0;
        });
        live.attached.control(|control| control.began_ns = monotonic_ns());
        live.began = Instant::now();
        snapshot.at_ns = monotonic_ns();
        snapshot.wall = jiff::Timestamp::now();
        live.info.began_ns = snapshot.at_ns;
        snapshot.disks = disks.zip(live.read_disks()).map(<[DiskCounters; 2]>::from);
        live.first = Some(Box::new(snapshot));
        live
    }

    /// When measuring began.
    #[must_use]
    pub fn began(&self) -> Instant {
        self.began
    }

    /// From now on, how often probes were skipped is read no more often than this, unless programs have lost something, and
    /// at the end.
    pub fn look_at_probes_every(&mut self, pause: Duration) {
        self.probes = ProbeReader::every(pause);
    }

    /// Readable when there are events; `None` if there will be none.
    #[must_use]
    pub fn ready(&self) -> Option<BorrowedFd<'_>> {
        if let Some(rings) = &self.attached.records {
            return Some(rings.as_fd());
        }
        let ring = self.attached.stack.as_ref()?.slow.as_ref()?;
        Some(ring.as_fd())
    }

    /// When to check for events that are not signalled at once; `None` if there will be none.
    #[must_use]
    pub fn look_at(&self) -> Option<Instant> {
        let records = self.records.as_ref().map(RecordReader::next);
        let slow = self.info.slower_ns.map(|_| self.slow.next());
        records.into_iter().chain(slow).min()
    }

    /// The calls under way that began before this moment, of a run that records; see [`RecordReader::under_way`].
    ///
    /// # Errors
    /// If the kernel does not return them.
    pub fn under_way(&self, before_ns: u64, of_all: bool) -> Result<Vec<Call>, SourceError> {
        let Some(reader) = &self.records else {
            return Ok(Vec::new());
        };
        let calls = reader.under_way(&self.attached, before_ns, of_all);
        calls.map_err(|error| SourceError(format!("cannot read the calls under way: {error}")))
    }

    /// Whether a call may be under way, as far as `/proc` shows it.
    #[must_use]
    pub fn may_be_under_way(&self, call: &Call) -> bool {
        self.records
            .as_ref()
            .is_some_and(|reader| reader.may_be_under_way(call))
    }

    fn events(&mut self, is_last: bool) -> Result<Events, SourceError> {
        let events = self.slow.take(&self.attached, &self.info, is_last);
        let mut events = events.map_err(|error| SourceError(format!("cannot read slow calls: {error}")))?;
        if let Some(reader) = &mut self.records {
            let records = reader.take(&mut self.attached, is_last);
            events.records = Box::new(records.map_err(no_records)?);
        }
        Ok(events)
    }

    /// The kernel's counters of the disks so far; `None` if they are not compared, or not available.
    fn read_disks(&self) -> Option<DiskCounters> {
        self.disks.as_ref()?.read()
    }

    /// What the kernel counts of disks, which is read at the end of each interval; `None`: it is not.
    #[must_use]
    pub fn diskstats(&self) -> Option<Rc<Diskstats>> {
        self.disks.as_ref()?.stats.clone()
    }

    /// What groups had counted at the last snapshot.
    #[must_use]
    pub fn last_read(&self) -> &LastRead {
        &self.last
    }

    /// The counters so far, and what the whole stack has counted for groups since `last`. It ends no interval.
    #[must_use]
    pub fn counters(&self, last: &mut LastRead) -> Snapshot {
        let mut snapshot = read(&self.attached, &self.plan, self.epoch, self.info.has_runs, last);
        self.add_detached(&mut snapshot);
        snapshot.utc_offset = counters::utc_offset(snapshot.wall);
        snapshot
    }

    /// Adds the layers that were detached, and what their ops had lost by then.
    fn add_detached(&self, snapshot: &mut Snapshot) {
        snapshot.detached.clone_from(&self.detached);
        for (&index, lost) in &self.lost_by_detached {
            Arc::make_mut(&mut snapshot.ops[index]).lost = *lost;
        }
    }

    /// Calls under way when counting stops are finished. Those that end while the counters are read have a record and may not be
    /// counted, so the last counters and the records after them are read until no call has ended in between.
    fn count_last_calls(&mut self, records: &mut Records) -> Result<(), SourceError> {
        for _ in 0..LAST_READINGS {
            let again = self.count(self.epoch - u64::from(EPOCH_STEP), true);
            let (Some(reader), Given::Events(last)) = (&mut self.records, &mut self.given) else {
                break;
            };
            let again = Snapshot {
                probes: std::mem::take(&mut last.probes),
                disks: last.disks.take(),
                utc_offset: last.utc_offset,
                ..again
            };
            let earlier = std::mem::replace(&mut **last, again);
            last.widen(earlier);
            let more = reader.take(&mut self.attached, true).map_err(no_records)?;
            let has_ended = more.has_ended();
            // Calls under way are returned each time.
            records.calls.retain(|call| call.end_ns.is_some());
            records.append(more);
            if !has_ended {
                break;
            }
        }
        Ok(())
    }

    /// What the programs have counted in the generation of extremes that ends, and the calls under way if `is_last`.
    fn count(&mut self, epoch: u64, is_last: bool) -> Snapshot {
        let mut snapshot = counters::read_programs(&self.attached, &self.plan, epoch, &mut self.last);
        self.add_detached(&mut snapshot);
        if is_last {
            match under_way::read(&self.attached, &self.plan) {
                Ok(under_way) => snapshot.under_way = Some(under_way),
                Err(error) => snapshot
                    .warnings
                    .push(format!("cannot count the calls under way at the end: {error}")),
            }
        }
        snapshot
    }

    fn end_interval(&mut self, is_last: bool) -> Snapshot {
        let disks = self.read_disks();
        let epoch = self.epoch;
        self.epoch += u64::from(EPOCH_STEP);
        let next = self.epoch;
        self.attached.control(|control| {
            control.epoch = next;
            // No new calls are counted; those under way are reported as such.
            if is_last {
                control.stopped = STOP_CALLS | STOP_REQUESTS;
            }
        });
        let mut snapshot = self.count(epoch, is_last);
        let (attached, has_runs) = (&self.attached, self.info.has_runs);
        let read = || counters::probe_counts(attached, has_runs);
        snapshot.probes = self
            .probes
            .counts(probes::lost(&snapshot), is_last || has_runs, Instant::now(), read);
        snapshot.disks = disks.zip(self.read_disks()).map(<[DiskCounters; 2]>::from);
        snapshot.utc_offset = counters::utc_offset(snapshot.wall);
        snapshot
    }

    /// CPU time so far of the attached layers, and of everything else that measuring costs. Requires that the kernel
    /// counts runs.
    #[must_use]
    pub fn cpu_times(&self) -> CpuTimes {
        counters::cpu_times(&self.attached)
    }

    /// The layer whose entries are detached, while calls under way may return.
    #[must_use]
    pub fn leaving(&self) -> Option<Layer> {
        let last = self.detached.last()?;
        last.until.is_none().then_some(last.layer)
    }

    /// Whether no layer is measured any more.
    #[must_use]
    pub fn is_detached(&self) -> bool {
        self.attached.layers().is_empty()
    }

    /// Detaches the entries of a layer; requests are not counted any more at all, as at the end of a run. `of_layer`
    /// and `of_all` are the measured costs.
    pub fn detach_entries(&mut self, layer: Layer, of_layer: CpuShare, of_all: CpuShare) {
        let stop = if layer == Layer::Blk { STOP_REQUESTS } else { STOP_PAIRS };
        self.attached.control(|control| control.stopped |= stop);
        let after = self.began.elapsed();
        self.attached.detach_entries(layer);
        self.detached.push(Detached {
            layer,
            after,
            until: None,
            of_layer,
            of_all,
            under_way: None,
        });
        if layer == Layer::Blk {
            self.detach_returns();
        }
    }

    /// Completes [`Self::detach_entries`]. Calls that are still under way are reported as such.
    pub fn detach_returns(&mut self) {
        let Some(layer) = self.leaving() else { return };
        self.attached.detach_returns(layer);
        self.attached.control(|control| control.stopped &= !STOP_PAIRS);
        let (ops, _) = counters::read_ops(&self.attached, &self.plan, self.epoch);
        let ops = ops.into_iter().zip(&self.plan.ops).enumerate();
        let of_layer = ops.filter(|(_, (_, planned))| planned.layer == layer);
        self.lost_by_detached
            .extend(of_layer.map(|(index, (op, _))| (index, op.lost)));
        let under_way = under_way::read(&self.attached, &self.plan).ok();
        if let Some(detached) = self.detached.last_mut() {
            detached.until = Some(self.began.elapsed());
            detached.under_way = under_way.map(|known| known.by_layer.get(&layer).copied().unwrap_or(0));
        }
    }
}
