//! Keeps the counters of each second for a recording that is written if `w` is pressed.
//!
//! A second is kept as what changed in it, compressed. It is encoded as a recording only when one is written, in a thread:
//! that takes a hundred times as long, and seconds go on meanwhile.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::cause::Cause;
use crate::model::packed::Packed;
use crate::model::recording::{Meta, Names};
use crate::model::run_info::RunInfo;
use crate::model::snapshot::{Difference, Snapshot, StackIncreases};
use crate::number::thousands;
use crate::printable::printable;
use crate::recording::{EXTENSION, Ring, RingLimits};
use crate::run::record::{meta, named_by_host, now_in_name, under_free_name};

/// The most that is kept, and the most that is written: the shorter of both.
const LIMITS: RingLimits = RingLimits {
    span: Duration::from_secs(24 * 60 * 60),
    bytes: 8 << 20,
};
/// A part ends with this share of the bytes.
const PARTS: usize = 12;

/// The last seconds of a run.
pub struct KeptSeconds {
    meta: Meta,
    kept: Kept,
    writing: Option<JoinHandle<Result<String, Cause>>>,
}

/// Snapshots, the oldest first. They share their bytes with their clones.
#[derive(Clone)]
struct Kept {
    parts: VecDeque<Part>,
    /// The most bytes, beside those of the newest part.
    limit: usize,
}

/// Seconds that need no others.
#[derive(Clone)]
struct Part {
    /// The counters before the first of them.
    first: Packed<Snapshot>,
    seconds: Vec<Packed<Difference>>,
    bytes: usize,
}

impl KeptSeconds {
    /// Begins with the counters at the start of the run.
    ///
    /// # Errors
    /// If they cannot be encoded, in one line.
    pub fn begin(info: &RunInfo, start: &Snapshot) -> Result<Self, Cause> {
        let meta = Meta {
            has_records: false,
            ..meta(info, start)
        };
        Ok(Self {
            meta,
            kept: Kept::begin(start, LIMITS.bytes as usize)?,
            writing: None,
        })
    }

    /// Adds the counters at the end of a second. `before`: those at its start; `stacks`: what groups have counted in it.
    ///
    /// # Errors
    /// As above.
    pub fn second(&mut self, before: &Snapshot, after: &Snapshot, stacks: StackIncreases) -> Result<(), Cause> {
        self.kept.second(before, after, stacks)
    }

    /// Begins to write all that is kept to a new directory in the current one. Returns what to say.
    ///
    /// # Errors
    /// If there can be no thread, in one line.
    pub fn write(&mut self) -> Result<String, Cause> {
        if self.writing.is_some() {
            return Ok("the seconds are still being written".to_owned());
        }
        let (meta, kept) = (self.meta.clone(), self.kept.clone());
        let spawned = thread::Builder::new()
            .name("iosb-kept".to_owned())
            .spawn(move || write(&meta, &kept));
        self.writing = Some(spawned.map_err(|error| Cause::of("cannot begin to write", &error))?);
        Ok("writing...".to_owned())
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

fn write(meta: &Meta, kept: &Kept) -> Result<String, Cause> {
    let kept = kept.ring(meta)?.copy("the key w of the live view")?;
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

impl Kept {
    fn begin(start: &Snapshot, limit: usize) -> Result<Self, Cause> {
        let parts = VecDeque::from([Part::begin(start)?]);
        Ok(Self { parts, limit })
    }

    fn second(&mut self, before: &Snapshot, after: &Snapshot, stacks: StackIncreases) -> Result<(), Cause> {
        let limit = self.limit / PARTS;
        let open = self.parts.back_mut().filter(|part| part.bytes < limit);
        match (open, Difference::between(before, after, stacks)) {
            (Some(part), Some(difference)) => part.add(&difference)?,
            (None, Some(difference)) => {
                let mut part = Part::begin(before)?;
                part.add(&difference)?;
                self.parts.push_back(part);
            }
            (_, None) => self.parts.push_back(Part::begin(after)?),
        }
        while self.parts.len() > 1 && self.bytes() > self.limit {
            self.parts.pop_front();
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.bytes).sum()
    }

    /// The same as a recording without single calls.
    fn ring(&self, meta: &Meta) -> Result<Ring, Cause> {
        let mut ring: Option<Ring> = None;
        self.each(|snapshot| {
            match &mut ring {
                Some(ring) => ring.second(snapshot)?,
                None => ring = Some(Ring::new(meta.clone(), Names::Full, LIMITS, snapshot)?),
            }
            Ok(())
        })?;
        ring.ok_or_else(|| "there is no second yet".to_owned().into())
    }

    /// Passes on the snapshots, each once.
    fn each(&self, mut act: impl FnMut(&Snapshot) -> Result<(), Cause>) -> Result<(), Cause> {
        let mut last_ns = None;
        for part in &self.parts {
            let mut snapshot = part.first.get().map_err(cannot_read)?;
            // A part may begin with the last snapshot of the one before it.
            if last_ns != Some(snapshot.at_ns) {
                act(&snapshot)?;
            }
            for second in &part.seconds {
                snapshot = second.get().map_err(cannot_read)?.after(snapshot);
                act(&snapshot)?;
            }
            last_ns = Some(snapshot.at_ns);
        }
        Ok(())
    }
}

fn cannot_read(error: io::Error) -> Cause {
    Cause::of("cannot read the counters that were kept", &error)
}

fn cannot_keep(error: io::Error) -> Cause {
    Cause::of("cannot keep counters", &error)
}

impl Part {
    fn begin(first: &Snapshot) -> Result<Self, Cause> {
        let first = Packed::new(first).map_err(cannot_keep)?;
        Ok(Self {
            bytes: first.bytes(),
            first,
            seconds: Vec::new(),
        })
    }

    fn add(&mut self, difference: &Difference) -> Result<(), Cause> {
        let second = Packed::new(difference).map_err(cannot_keep)?;
        self.bytes += second.bytes() + size_of::<Packed<Difference>>();
        self.seconds.push(second);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::snapshot::StackCounters;
    use crate::model::snapshot::difference::tests::with_groups;

    const ROOM: usize = 64 << 10;

    /// Seconds in which one of many groups is called.
    fn seconds(groups: u32, count: u64) -> Vec<Snapshot> {
        let of = |second: u64| {
            let calls: Vec<_> = (0..groups)
                .map(|group| (2 + group, 50, if group == 0 { second } else { 0 }))
                .collect();
            let mut snapshot = with_groups(second * 1_000_000_000, &calls);
            let stacks = snapshot
                .groups
                .iter_mut()
                .flat_map(|groups| groups.stacks.values_mut())
                .skip(1);
            stacks.for_each(StackCounters::forget_extremes);
            snapshot
        };
        (1..=count).map(of).collect()
    }

    fn kept(seconds: &[Snapshot], room: usize) -> Kept {
        let mut kept = Kept::begin(&seconds[0], room).ok().unwrap();
        for pair in seconds.windows(2) {
            let stacks = StackIncreases::between(&pair[0], &pair[1]);
            kept.second(&pair[0], &pair[1], stacks).ok().unwrap();
            assert!(kept.bytes() <= room, "{}", kept.bytes());
        }
        kept
    }

    fn snapshots(kept: &Kept) -> Vec<Snapshot> {
        let mut all = Vec::new();
        let act = |snapshot: &Snapshot| {
            all.push(snapshot.clone());
            Ok(())
        };
        kept.each(act).ok().unwrap();
        all
    }

    #[test]
    fn seconds_come_back_as_they_were() {
        let mut seconds = seconds(20, 90);
        // A group that is gone begins a part.
        seconds[40]
            .groups
            .as_mut()
            .unwrap()
            .stacks
            .insert(99, Default::default());
        let kept = kept(&seconds, ROOM);
        assert!(kept.parts.len() > 1);
        assert_eq!(snapshots(&kept), seconds);
    }

    #[test]
    fn the_oldest_are_dropped() {
        let seconds = seconds(20, 900);
        let all = snapshots(&kept(&seconds, ROOM));
        assert!((100..850).contains(&all.len()), "{}", all.len());
        assert!(seconds.ends_with(&all));
    }

    #[test]
    fn groups_without_calls_take_no_room() {
        let [few, many] = [2, 900].map(|groups| {
            let kept = kept(&seconds(groups, 10), 12 << 20);
            kept.bytes() - kept.parts[0].first.bytes()
        });
        assert!(many < few + few / 4, "{few} {many}");
    }
}
