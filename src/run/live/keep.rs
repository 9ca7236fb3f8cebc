//! Keeps the counters of each second: to show it again, and for a recording or a page that is written if a key is pressed.
//!
//! A second is kept as what changed in it, compressed. Its report is made again when it is shown again. It is encoded as a
//! recording only when one is written, in a thread: that takes a hundred times as long, and seconds go on meanwhile.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::analyse;
use crate::cause::Cause;
use crate::model::packed::Packed;
use crate::model::recording::{Meta, Names};
use crate::model::report::Report;
use crate::model::run_info::RunInfo;
use crate::model::snapshot::{Difference, Snapshot, StackIncreases};
use crate::number::thousands;
use crate::printable::printable;
use crate::recording::{EXTENSION, Ring, RingLimits};
use crate::run::record::{meta, named_by_host, now_in_name, under_free_name};
use crate::view::live::{Beside, History};

/// The most that is written as a recording: the shorter of both.
const LIMITS: RingLimits = RingLimits {
    span: Duration::from_secs(24 * 60 * 60),
    bytes: 8 << 20,
};
/// The most seconds of a part: to show one of them, those before it are read as well.
const SECONDS: usize = 30;
/// A part ends with this share of the bytes.
const PARTS: usize = 12;

/// The last seconds of a run, the oldest first. They are numbered from 0 on, whether they are still kept or not.
pub struct KeptSeconds {
    info: RunInfo,
    parts: VecDeque<Part>,
    bytes: usize,
    /// The most bytes, with those of the digests; `None`: no limit.
    limit: Option<usize>,
    /// What a recording of them has besides; `None`: all of the run is in one already.
    meta: Option<Meta>,
    writing: Option<JoinHandle<Result<String, Cause>>>,
}

/// Seconds that need no others. They share their bytes with their clones.
#[derive(Clone)]
struct Part {
    /// The number of the first of them.
    number: usize,
    /// The counters before it.
    start: Packed<Snapshot>,
    seconds: Vec<Packed<(Difference, Beside)>>,
    bytes: usize,
}

/// A second, unpacked.
struct Second {
    before: Snapshot,
    after: Snapshot,
    beside: Beside,
}

impl KeptSeconds {
    /// `limit`: bytes; `None`: no limit.
    pub fn new(info: RunInfo, limit: Option<usize>) -> Self {
        Self {
            info,
            parts: VecDeque::new(),
            bytes: 0,
            limit,
            meta: None,
            writing: None,
        }
    }

    /// From now on, they can be written as a recording. `start`: the counters at the start of the run.
    pub fn can_be_written(&mut self, start: &Snapshot) {
        self.meta = Some(Meta {
            has_records: false,
            ..meta(&self.info, start)
        });
    }

    /// Adds a second, with the counters at its start and at its end, and what groups have counted in it.
    ///
    /// # Errors
    /// If it cannot be encoded, in one line.
    pub fn second(
        &mut self,
        (before, after): (&Snapshot, &Snapshot),
        stacks: StackIncreases,
        beside: &Beside,
    ) -> Result<(), Cause> {
        let second = (Difference::between(before, after, stacks), beside.clone());
        let second = Packed::new(&second).map_err(cannot_keep)?;
        let bytes = self.limit.map_or(usize::MAX, |limit| limit / PARTS);
        let number = self.parts.back().map_or(0, |part| part.number + part.seconds.len());
        let is_open = |part: &Part| part.seconds.len() < SECONDS && part.bytes < bytes;
        if !self.parts.back().is_some_and(is_open) {
            let start = Packed::new(before).map_err(cannot_keep)?;
            self.bytes += start.bytes();
            self.parts.push_back(Part {
                number,
                bytes: start.bytes(),
                start,
                seconds: Vec::new(),
            });
        }
        if let Some(part) = self.parts.back_mut() {
            let bytes = second.bytes() + size_of_val(&second);
            self.bytes += bytes;
            part.bytes += bytes;
            part.seconds.push(second);
        }
        Ok(())
    }

    /// Drops the oldest while there is no room for all of them and their digests.
    pub fn fit(&mut self, digests: &mut History) {
        let Some(limit) = self.limit else { return };
        while self.parts.len() > 1 && self.bytes + digests.bytes() > limit {
            self.bytes -= self.parts.pop_front().map_or(0, |oldest| oldest.bytes);
            digests.drop_before(self.parts.front().map_or(0, |part| part.number));
        }
    }

    /// The report of a second, and what it has besides; `None`: it is not kept.
    ///
    /// # Errors
    /// If it cannot be read, in one line.
    pub fn shown(&self, number: usize) -> Result<Option<(Report, Beside)>, Cause> {
        let Some(part) = self.parts.iter().rfind(|part| part.number <= number) else {
            return Ok(None);
        };
        let second = part.seconds()?.nth(number - part.number).transpose()?;
        Ok(second.map(|second| (self.report(&second), second.beside)))
    }

    fn report(&self, second: &Second) -> Report {
        analyse::report(&self.info, &second.before, &second.after)
    }

    /// Passes on the reports of all seconds with their numbers.
    ///
    /// # Errors
    /// As above, and those of `act`.
    pub fn reports(&self, mut act: impl FnMut(usize, &Report) -> Result<(), Cause>) -> Result<(), Cause> {
        each(&self.parts, |number, second| act(number, &self.report(second)))
    }

    /// Begins to write the last of them to a new directory in the current one. Returns what to say.
    ///
    /// # Errors
    /// If there can be no thread, in one line.
    pub fn write(&mut self) -> Result<String, Cause> {
        let Some(meta) = &self.meta else {
            return Ok("all of the run is in a recording".to_owned());
        };
        if self.writing.is_some() {
            return Ok("the seconds are still being written".to_owned());
        }
        let (meta, parts) = (meta.clone(), self.last(LIMITS.bytes as usize));
        let spawned = thread::Builder::new()
            .name("iosb-kept".to_owned())
            .spawn(move || write(&meta, &parts));
        self.writing = Some(spawned.map_err(|error| Cause::of("cannot begin to write", &error))?);
        Ok("writing...".to_owned())
    }

    /// The last parts that have no more bytes than this together.
    fn last(&self, bytes: usize) -> VecDeque<Part> {
        let mut sum = 0;
        let last = self.parts.iter().rev().take_while(|part| {
            sum += part.bytes;
            sum <= bytes
        });
        let first = self.parts.len() - last.count();
        self.parts.range(first..).cloned().collect()
    }

    /// What was written since the last time, or why not; `None`: nothing was.
    pub fn written(&mut self) -> Option<Result<String, Cause>> {
        self.writing.take_if(|writing| writing.is_finished()).map(joined)
    }

    /// Waits until all is written.
    pub fn finish(&mut self) -> Option<Result<String, Cause>> {
        self.writing.take().map(joined)
    }
}

fn joined(writing: JoinHandle<Result<String, Cause>>) -> Result<String, Cause> {
    let failed = |_| Err("the thread that writes the seconds has failed".to_owned().into());
    writing.join().unwrap_or_else(failed)
}

fn write(meta: &Meta, parts: &VecDeque<Part>) -> Result<String, Cause> {
    let kept = ring(meta, parts)?.copy("the key w of the live view")?;
    let path = named_by_host(&now_in_name(), EXTENSION);
    let path = under_free_name(&path, |path| {
        let written = kept.write(path, |_| ());
        // The seconds are still kept, so that it can be written elsewhere.
        if written.as_ref().is_err_and(|cause| cause.errno != Some(libc::EEXIST)) {
            let _ = fs::remove_dir_all(path);
        }
        written
    })?;
    let seconds = Duration::from_nanos(kept.end.to_ns.saturating_sub(kept.end.from_ns)).as_secs_f64();
    Ok(format!(
        "written to {}: {} seconds, without single calls (with them: --live -o FILE)",
        printable(&path.display().to_string()),
        thousands(seconds.round() as u64)
    ))
}

/// The same as a recording without single calls.
fn ring(meta: &Meta, parts: &VecDeque<Part>) -> Result<Ring, Cause> {
    let mut ring: Option<Ring> = None;
    each(parts, |_, second| {
        let ring = match &mut ring {
            Some(ring) => ring,
            none => none.insert(Ring::new(meta.clone(), Names::Full, LIMITS, &second.before)?),
        };
        ring.second(&second.after)
    })?;
    ring.ok_or_else(|| "there is no second yet".to_owned().into())
}

/// Passes on the seconds with their numbers.
fn each(parts: &VecDeque<Part>, mut act: impl FnMut(usize, &Second) -> Result<(), Cause>) -> Result<(), Cause> {
    for part in parts {
        for (number, second) in (part.number..).zip(part.seconds()?) {
            act(number, &second?)?;
        }
    }
    Ok(())
}

impl Part {
    fn seconds(&self) -> Result<impl Iterator<Item = Result<Second, Cause>>, Cause> {
        let mut last = self.start.get().map_err(cannot_read)?;
        Ok(self.seconds.iter().map(move |second| {
            let (difference, beside) = second.get().map_err(cannot_read)?;
            let after = difference.after(last.clone());
            let before = std::mem::replace(&mut last, after.clone());
            Ok(Second { before, after, beside })
        }))
    }
}

fn cannot_read(error: io::Error) -> Cause {
    Cause::of("cannot read a second that was kept", &error)
}

fn cannot_keep(error: io::Error) -> Cause {
    Cause::of("cannot keep a second", &error)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::ids::By;
    use crate::model::report::group::Who;
    use crate::model::snapshot::increases::tests::{in_order, with_groups};
    use crate::view::live::example;

    const ROOM: usize = 64 << 10;

    /// Counters at the ends of seconds in which one of many groups is called.
    fn snapshots(groups: u32, count: u64) -> Vec<Snapshot> {
        let of = |second: u64| {
            let calls: Vec<_> = (0..groups)
                .map(|group| (2 + group, 50, if group == 0 { second } else { 0 }))
                .collect();
            with_groups(second * 1_000_000_000, &calls)
        };
        in_order(&(1..=count).map(of).collect::<Vec<_>>())
    }

    fn kept(snapshots: &[Snapshot], room: Option<usize>) -> (KeptSeconds, History) {
        let mut digests = History::default();
        let mut kept = KeptSeconds::new(RunInfo::default(), room);
        for (second, pair) in snapshots.windows(2).enumerate() {
            let stacks = pair[1].clone().take_stacks();
            let beside = example::beside(second);
            kept.second((&pair[0], &pair[1]), stacks, &beside).ok().unwrap();
            digests.push(&Report::default(), (Vec::new(), 0));
            kept.fit(&mut digests);
            let bytes = kept.bytes + digests.bytes();
            assert!(room.is_none_or(|room| bytes <= room), "{bytes}");
        }
        (kept, digests)
    }

    #[test]
    fn seconds_come_back_as_they_were() {
        let mut snapshots = snapshots(20, 90);
        // A group that is gone afterwards.
        let who = &mut snapshots[40].groups.as_mut().unwrap().who;
        Arc::make_mut(who).insert(99, Who::Unknown(By::Process));
        let (kept, _) = kept(&snapshots, None);
        assert!(kept.parts.len() > 1);
        let mut numbers = 0..89;
        let act = |number: usize, second: &Second| {
            assert_eq!(numbers.next(), Some(number));
            assert_eq!(
                [&second.before, &second.after],
                [&snapshots[number], &snapshots[number + 1]]
            );
            assert_eq!(second.beside, example::beside(number));
            Ok(())
        };
        each(&kept.parts, act).ok().unwrap();
        assert!(numbers.is_empty());
        for number in 0..89 {
            let (report, beside) = kept.shown(number).ok().unwrap().unwrap();
            let made = analyse::report(&kept.info, &snapshots[number], &snapshots[number + 1]);
            assert_eq!(
                serde_json::to_string(&report).unwrap(),
                serde_json::to_string(&made).unwrap()
            );
            assert_eq!(beside, example::beside(number));
        }
        assert!(kept.shown(89).ok().unwrap().is_none());
    }

    #[test]
    fn the_oldest_are_dropped_with_their_digests() {
        let snapshots = snapshots(20, 900);
        let (kept, digests) = kept(&snapshots, Some(ROOM));
        let (first, last) = digests.range().unwrap();
        assert!(last == 898 && (10..890).contains(&first), "{first}");
        assert_eq!(kept.parts[0].number, first);
        assert!(kept.shown(first - 1).ok().unwrap().is_none());
        // What is written is the end of what is kept.
        let most = kept.parts.back().unwrap().bytes * 3;
        let last = kept.last(most);
        assert!(last.len() > 1 && last.iter().map(|part| part.bytes).sum::<usize>() <= most);
        assert_eq!(last.back().unwrap().number, kept.parts.back().unwrap().number);
    }

    #[test]
    fn groups_without_calls_take_no_room() {
        let [few, many] = [2, 900].map(|groups| {
            let (kept, _) = kept(&snapshots(groups, 10), None);
            kept.bytes - kept.parts[0].start.bytes()
        });
        assert!(many < few + few / 4, "{few} {many}");
    }
}
