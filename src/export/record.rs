//! One record, and its moments.

use super::names::Names;
use crate::model::ids::Op;
use crate::model::record::{
    AsyncCall, Call, Fault, FileNumber, Folder, Lost, Mark, OpenFile, Records, Request, Sleep, Thread,
};

/// A record of any kind.
#[allow(clippy::large_enum_variant, reason = "most records are calls, which are the largest")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    Call(Call),
    Request(Request),
    Sleep(Sleep),
    Async(AsyncCall),
    Fault(Fault),
    Lost(Lost),
    Mark(Mark),
    File(OpenFile),
    Folder(Folder),
    Thread(Thread),
}

/// Which moment of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Point {
    /// The only moment of a record without length.
    Begin,
    /// A request was issued to the device.
    Issue,
    /// A call that was under way at the end of the recording has none.
    End,
}

/// A moment of a record.
#[derive(Debug, Clone, Copy)]
pub struct Moment<'a> {
    pub at_ns: u64,
    pub point: Point,
    pub record: &'a Record,
    /// What the record refers to by number.
    pub names: &'a Names,
    /// At the begin of a request: the call in which it was submitted, if it was in one.
    pub caller: Option<Caller>,
}

/// A call, identified together with the thread of the request that names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caller {
    pub op: Op,
    pub begin_ns: u64,
    /// `None`: it is under way, or was at the end of the recording.
    pub end_ns: Option<u64>,
    /// The open file of a call that bypasses the page cache; else 0.
    pub direct: FileNumber,
}

impl Caller {
    #[must_use]
    pub fn of(call: &Call) -> Self {
        Self {
            op: call.op,
            begin_ns: call.begin_ns,
            end_ns: call.end_ns,
            direct: if call.is_direct { call.files[0] } else { 0 },
        }
    }

    /// Whether that moment is inside.
    #[must_use]
    pub fn has(&self, at_ns: u64) -> bool {
        self.begin_ns <= at_ns && self.end_ns.is_none_or(|end_ns| at_ns <= end_ns)
    }
}

/// Moments that are equal are ordered so that what is inside another record is inside it in the output.
const ENDS: u8 = 0;
const BEGINS: u8 = 2;
const ENDS_OF_NO_LENGTH: u8 = 5;

impl Record {
    /// When it began. Of a request: when it was submitted, as far as that is known.
    #[must_use]
    pub fn begin_ns(&self) -> u64 {
        match self {
            Self::Call(call) => call.begin_ns,
            Self::Request(request) => request.begin_ns(),
            Self::Sleep(sleep) => sleep.out_ns,
            Self::Async(call) => call.begin_ns,
            Self::Fault(fault) => fault.begin_ns,
            Self::Lost(lost) => lost.from_ns,
            Self::Mark(mark) => mark.at_ns,
            Self::File(file) => file.at_ns,
            Self::Folder(folder) => folder.at_ns,
            Self::Thread(thread) => thread.at_ns,
        }
    }

    /// A moment at which its thread has the name that it is known by: a thread is defined after the begin of the first
    /// call with a new name.
    #[must_use]
    pub fn named_ns(&self) -> u64 {
        match self {
            Self::Call(call) => call.end_ns.unwrap_or(call.begin_ns),
            other => other.begin_ns(),
        }
    }

    /// When it ended, not before it began; `None`: it was under way at the end of the recording.
    #[must_use]
    pub fn end_ns(&self) -> Option<u64> {
        let end = match self {
            Self::Call(call) => call.end_ns?,
            Self::Request(request) => request.ended_ns,
            Self::Sleep(sleep) => sleep.in_ns,
            Self::Async(call) => call.end_ns,
            Self::Fault(fault) => fault.end_ns,
            Self::Lost(lost) => lost.to_ns,
            Self::Mark(_) | Self::File(_) | Self::Folder(_) | Self::Thread(_) => return Some(self.begin_ns()),
        };
        Some(end.max(self.begin_ns()))
    }

    /// Whether it only names what other records refer to.
    #[must_use]
    pub fn is_definition(&self) -> bool {
        matches!(self, Self::File(_) | Self::Folder(_) | Self::Thread(_))
    }

    /// Whether it has two moments or more.
    fn has_length(&self) -> bool {
        !self.is_definition() && !matches!(self, Self::Mark(_))
    }

    /// When that moment is, and its order among those at the same time; `None`: it has no such moment.
    #[must_use]
    pub fn at(&self, point: Point) -> Option<(u64, u8)> {
        let begin = self.begin_ns();
        let level: u8 = match self {
            Self::Call(_) => 0,
            Self::Sleep(_) => 2,
            _ => 1,
        };
        match point {
            Point::Begin => Some((begin, BEGINS + level)),
            Point::Issue => match self {
                Self::Request(request) => {
                    let issued = request.issued_ns?.clamp(begin, request.ended_ns);
                    Some((issued, BEGINS + level))
                }
                _ => None,
            },
            Point::End if !self.has_length() => None,
            Point::End => {
                let end = self.end_ns()?;
                let rank = if end > begin { ENDS } else { ENDS_OF_NO_LENGTH };
                // What is inside ends first.
                Some((end, rank + u8::from(level == 0)))
            }
        }
    }
}

/// The records of a batch, definitions first.
pub fn all(batch: Records) -> impl Iterator<Item = Record> {
    let Records {
        calls,
        requests,
        sleeps,
        asynchronous,
        faults,
        files,
        folders,
        threads,
        lost,
        marks,
    } = batch;
    let definitions = threads.into_iter().map(Record::Thread);
    let definitions = definitions.chain(folders.into_iter().map(Record::Folder));
    let definitions = definitions.chain(files.into_iter().map(Record::File));
    let records = definitions.chain(lost.into_iter().map(Record::Lost));
    let records = records.chain(marks.into_iter().map(Record::Mark));
    let records = records.chain(calls.into_iter().map(Record::Call));
    let records = records.chain(requests.into_iter().map(Record::Request));
    let records = records.chain(sleeps.into_iter().map(Record::Sleep));
    let records = records.chain(asynchronous.into_iter().map(Record::Async));
    records.chain(faults.into_iter().map(Record::Fault))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sleep(out_ns: u64, in_ns: u64) -> Record {
        Record::Sleep(Sleep {
            tid: 1,
            out_ns,
            woken_ns: None,
            in_ns,
            row: 0,
            waker_tid: 0,
            waker_pid: 0,
            cpus: [0, 0],
        })
    }

    #[test]
    fn what_is_inside_a_call_stays_inside_it_at_the_same_time() {
        let call = Record::Call(super::super::synthetic::call(1, Op::Read, 100, Some(200)));
        let inside = sleep(100, 200);
        let mut moments = Vec::new();
        for (name, record) in [("call", &call), ("sleep", &inside)] {
            moments.push((record.at(Point::Begin), name, "begin"));
            moments.push((record.at(Point::End), name, "end"));
        }
        moments.sort_by_key(|(at, ..)| *at);
        let order: Vec<(&str, &str)> = moments.iter().map(|(_, name, what)| (*name, *what)).collect();
        assert_eq!(
            order,
            [("call", "begin"), ("sleep", "begin"), ("sleep", "end"), ("call", "end")]
        );
        // Without length, too.
        let nothing = sleep(7, 7);
        assert!(nothing.at(Point::Begin) < nothing.at(Point::End));
    }

    #[test]
    fn a_record_never_ends_before_it_began() {
        assert_eq!(sleep(9, 5).end_ns(), Some(9));
        let under_way = Record::Call(super::super::synthetic::call(1, Op::Read, 100, None));
        assert_eq!((under_way.end_ns(), under_way.at(Point::End)), (None, None));
    }
}
