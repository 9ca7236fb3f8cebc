//! Slow calls, from the records of the programs.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};

use crate::analyse::Measured;
use crate::kernel::interface::types::slow_call;
use crate::kernel::interface::{PATH_ALONE, SLOW_HAS_FILE, SLOW_HAS_OFFSET, SLOW_HAS_SIZE};
use crate::kernel::names;
use crate::model::events::Events;
use crate::model::ids::Row;
use crate::model::record::errno_of;
use crate::model::report::slow::{CallPath, Inode, LeftOut, PathKind, SlowCall, SlowRow};
use crate::model::run_info::RunInfo;
use crate::probe::attach::Attached;
use crate::sys::clock::monotonic_ns;

use super::counters::{ReadError, utc_offset};
use super::stack;
use super::string::comm;

/// The minimum time between reports of calls that were left out: a little less than a second, so that each second of a
/// screen has its own.
const PAUSE: Duration = Duration::from_millis(900);

/// The state of reading slow calls.
#[derive(Debug, Default)]
pub struct SlowCalls {
    /// Those reported as left out so far.
    left_out: LeftOut,
    at: Option<Instant>,
}

impl SlowCalls {
    /// When to check again.
    pub fn next(&self) -> Instant {
        let now = Instant::now();
        self.at
            .and_then(|at| at.checked_add(PAUSE))
            .map_or(now, |at| at.max(now))
    }

    /// The calls that ended since the last time and, not too often, how many were left out. `is_last`: there is no
    /// later opportunity to report them.
    ///
    /// # Errors
    /// If the kernel does not return them.
    pub fn take(&mut self, attached: &Attached, run: &RunInfo, is_last: bool) -> Result<Events, ReadError> {
        let (Some(from), Some(info)) = (attached.stack.as_ref(), &run.stack) else {
            return Ok(Events::default());
        };
        let Some(ring) = &from.slow else {
            return Ok(Events::default());
        };
        let clocks = Clocks {
            wall: Timestamp::now(),
            monotonic_ns: monotonic_ns(),
        };
        let measured = Measured::of(info);
        let rows = Rows {
            slots: measured
                .rows()
                .filter_map(|row| Some((row, measured.slot(row)?)))
                .collect(),
            is_split: measured.is_split(),
        };
        let mut slow_calls = Vec::new();
        ring.take(|record| slow_calls.extend(slow_call(record, run, &rows, &clocks)))?;
        let utc_offset = slow_calls.last().map_or(0, |call| utc_offset(call.ended));
        let mut left_out = LeftOut::default();
        if is_last || self.next() <= Instant::now() {
            let all = stack::left_out(from);
            left_out = all.since(self.left_out);
            self.left_out = all;
            self.at = Some(Instant::now());
        }
        Ok(Events {
            slow_calls,
            utc_offset,
            left_out,
            ..Events::default()
        })
    }
}

/// The same moment by the wall clock and by the programs' clock.
#[derive(Debug, Clone, Copy)]
struct Clocks {
    wall: Timestamp,
    monotonic_ns: u64,
}

impl Clocks {
    /// The wall clock time at this time of the programs' clock.
    fn wall_at(&self, monotonic_ns: u64) -> Timestamp {
        let ago = self.monotonic_ns.saturating_sub(monotonic_ns);
        let ago = SignedDuration::from_nanos(i64::try_from(ago).unwrap_or(i64::MAX));
        self.wall.checked_sub(ago).unwrap_or(self.wall)
    }
}

/// The rows that are measured, and where records have them.
struct Rows {
    slots: Vec<(Row, usize)>,
    is_split: bool,
}

/// Converts a record. `None` if its op is not among those of the run, which no program writes.
fn slow_call(record: &slow_call, run: &RunInfo, rows: &Rows, clocks: &Clocks) -> Option<SlowCall> {
    let info = run.ops.get(usize::from(record.op))?;
    let has = |what: u32| u32::from(record.has) & what != 0;
    let errno = errno_of(record.value);
    let times = rows.slots.iter().map(|(row, slot)| SlowRow {
        row: *row,
        ns: record.rows[*slot],
    });
    let (major, minor) = names::numbers_of(record.device);
    Some(SlowCall {
        ended: clocks.wall_at(record.ended_ns),
        pid: record.tgid,
        tid: record.thread,
        comm: comm(&record.comm),
        op: info.op,
        path: path(record),
        inode: has(SLOW_HAS_FILE).then_some(Inode {
            number: record.inode,
            major,
            minor,
        }),
        offset: has(SLOW_HAS_OFFSET).then_some(record.offset),
        size: has(SLOW_HAS_SIZE).then_some(record.size),
        bytes: (info.moves_bytes && errno.is_none()).then_some(record.value.unsigned_abs()),
        errno,
        total_ns: record.total_ns,
        rows: times.filter(|row| row.ns > 0).collect(),
        not_split: !rows.is_split,
    })
}

/// The path of a record.
fn path(record: &slow_call) -> Option<CallPath> {
    let pieces = names::pieces(&record.names, record.names_length);
    match u32::from(record.path) {
        PATH_ALONE => Some(CallPath {
            kind: PathKind::Alone,
            text: alone(record.mode, record.inode, pieces.last().map_or("", String::as_str))?,
        }),
        kind => names::path(kind, &pieces),
    }
}

/// The name of a file without a directory: its own, or the one shown in `/proc/PID/fd`.
pub(super) fn alone(mode: u16, inode: u64, name: &str) -> Option<String> {
    match (name, libc::mode_t::from(mode) & libc::S_IFMT) {
        ("", libc::S_IFIFO) => Some(format!("pipe:[{inode}]")),
        ("", libc::S_IFSOCK) => Some(format!("socket:[{inode}]")),
        // A file opened by handle, whose directories are not known.
        ("" | "/", _) => None,
        (name, _) => Some(name.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;
    use crate::kernel::interface::PATH_WHOLE;

    fn record(kind: u32, names: &[u8]) -> slow_call {
        let mut record = slow_call {
            path: kind as u8,
            names_length: names.len() as u32,
            inode: 4711,
            ..slow_call::default()
        };
        record.names[..names.len()].copy_from_slice(names);
        record
    }

    #[test]
    fn a_file_without_a_name_goes_by_its_kind_and_number() {
        let reported = |record: &slow_call| path(record).map(|path| path.text);
        assert_eq!(reported(&record(PATH_WHOLE, b"file\0a\0")).as_deref(), Some("/a/file"));
        assert_eq!(reported(&record(PATH_ALONE, b"memfd:x\0")).as_deref(), Some("memfd:x"));
        let mut pipe = record(PATH_ALONE, b"\0");
        assert_eq!(reported(&pipe), None);
        pipe.mode = libc::S_IFIFO as u16;
        assert_eq!(reported(&pipe).as_deref(), Some("pipe:[4711]"));
    }

    #[test]
    fn a_moment_is_converted_to_the_wall_clock() {
        let wall = Timestamp::from_second(1000).unwrap();
        let clocks = Clocks {
            wall,
            monotonic_ns: 5_000_000_000,
        };
        assert_eq!(clocks.wall_at(3_000_000_000), Timestamp::from_second(998).unwrap());
        // A call may have ended between the readings of the two clocks.
        assert_eq!(clocks.wall_at(6_000_000_000), wall);
        assert_eq!(clocks.wall_at(0), Timestamp::from_second(995).unwrap());
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn any_names_are_read(kind in 0_u32..8, names in proptest::collection::vec(any::<u8>(), 0..1280), length: u32) {
            let mut record = record(kind, &names);
            record.names_length = length;
            let _ = path(&record);
        }
    }
}
