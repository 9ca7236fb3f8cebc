//! The log of iotracer: a line for each read or write of a file (`VFS`) and for each request of a disk (`BLK`), in the
//! order in which they began.
//!
//! `seconds.nanoseconds;R|W;address;size;VFS|BLK;comm;pid`, where the time is since the start of the recording, the
//! address a byte in the file or a sector of 512 bytes in the partition, and the size the requested one.

use std::fmt::Write as _;
use std::io;

use super::outline::start_of;
use super::output::Output;
use super::{About, Exporter, Leaving, LeftOut, Moment, Record};
use crate::model::ids::Op;
use crate::model::recording::{Disk, Meta};
use crate::printable::is_printable;

pub struct Iotracer {
    disks: Vec<Disk>,
    start_ns: u64,
    line: String,
    leaving: Leaving,
}

impl Iotracer {
    /// `start_ns`: the moment from which times count.
    #[must_use]
    pub fn new(meta: &Meta, start_ns: u64) -> Self {
        Self {
            disks: meta.disks.clone(),
            start_ns,
            line: String::new(),
            leaving: Leaving::default(),
        }
    }

    /// The direction, the address, the size, the level, the thread and the process; `None`: there is no line for it.
    fn fields(&mut self, record: &Record) -> Option<(char, u64, u64, &'static str, u32, u32)> {
        match record {
            Record::Call(call) => {
                let (letter, offset, size) = self.access(call.op, call.offset, call.size, call.value)?;
                Some((letter, offset, size, "VFS", call.tid, call.pid))
            }
            Record::Async(call) => {
                let (letter, offset, size) = self.access(call.op, call.offset, call.size, call.value)?;
                Some((letter, offset, size, "VFS", call.tid, call.pid))
            }
            Record::Request(request) => {
                let letter = match request.op {
                    Op::Read => 'R',
                    Op::Write => 'W',
                    _ => {
                        self.leaving.count("requests that are neither reads nor writes");
                        return None;
                    }
                };
                let start = start_of(&self.disks, request.partition);
                let address = request.sector.saturating_sub(start);
                Some((letter, address, request.bytes, "BLK", request.tid, request.pid))
            }
            Record::Fault(_) => {
                self.leaving.count("page faults");
                None
            }
            Record::Mark(_) => {
                self.leaving.count("marks");
                None
            }
            _ => None,
        }
    }

    /// The direction, the offset and the size of a call that returned `value`.
    fn access(&mut self, op: Op, offset: Option<u64>, size: Option<u64>, value: i64) -> Option<(char, u64, u64)> {
        let Some(is_write) = op.is_write() else {
            self.leaving.count("calls that are neither reads nor writes");
            return None;
        };
        let letter = if is_write { 'W' } else { 'R' };
        let size = size.or_else(|| u64::try_from(value).ok());
        let known = offset.zip(size);
        if known.is_none() {
            self.leaving.count("reads and writes whose offset or size is unknown");
        }
        let (offset, size) = known?;
        Some((letter, offset, size))
    }
}

/// The start of the recording, or its first moment if that is earlier.
#[must_use]
pub fn start_of_recording(about: About<'_>) -> u64 {
    match about.meta.run.began_ns {
        0 => about.outline.from_ns,
        began => began.min(about.outline.from_ns),
    }
}

impl Exporter for Iotracer {
    fn moment(&mut self, moment: &Moment<'_>, output: &mut dyn Output) -> io::Result<()> {
        let Some((letter, address, size, level, tid, pid)) = self.fields(moment.record) else {
            return Ok(());
        };
        let since = moment.at_ns.saturating_sub(self.start_ns);
        let (seconds, rest) = (since / 1_000_000_000, since % 1_000_000_000);
        self.line.clear();
        // Writing to a String cannot fail.
        let _ = write!(self.line, "{seconds}.{rest:09};{letter};{address};{size};{level};");
        let comm = moment.names.comm_at(tid, moment.record.named_ns());
        // The reader splits lines at semicolons.
        let readable = |c: char| if c == ';' || !is_printable(c) { '_' } else { c };
        self.line.extend(comm.chars().map(readable));
        let _ = writeln!(self.line, ";{pid}");
        output.write("", self.line.as_bytes())
    }

    fn end(&mut self, _: &mut dyn Output) -> io::Result<Vec<LeftOut>> {
        Ok(self.leaving.take())
    }
}
