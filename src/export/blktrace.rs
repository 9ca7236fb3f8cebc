//! Binary files of blktrace: `DISK.blktrace.CPU`, with the events Q (submitted), G (made), D (issued) and C (completed) of
//! each request, all in the file of the CPU on which it completed. Times are since the start of the recording.
//!
//! The layout and the numbers are those of `include/uapi/linux/blktrace_api.h`.

use std::collections::HashMap;
use std::io;

use super::iotracer::start_of_recording;
use super::output::Output;
use super::{About, Exporter, Leaving, LeftOut, Moment, Point, Record};
use crate::model::ids::Op;
use crate::model::record::{Kind, Request};

const MAGIC: u32 = 0x6561_7407;

const QUEUE: u32 = 1;
const GET_REQUEST: u32 = 4;
const ISSUE: u32 = 7;
const COMPLETE: u32 = 8;

const TC_READ: u32 = 1;
const TC_WRITE: u32 = 1 << 1;
const TC_FLUSH: u32 = 1 << 2;
const TC_SYNC: u32 = 1 << 3;
const TC_QUEUE: u32 = 1 << 4;
const TC_ISSUE: u32 = 1 << 6;
const TC_COMPLETE: u32 = 1 << 7;
const TC_FS: u32 = 1 << 8;
const TC_NOTIFY: u32 = 1 << 10;
const TC_AHEAD: u32 = 1 << 11;
const TC_META: u32 = 1 << 12;
const TC_DISCARD: u32 = 1 << 13;
const TC_FUA: u32 = 1 << 15;

/// Length of a thread's name in a notification, with its end.
const COMM: usize = 16;
/// A notification of the wall clock.
const TIMESTAMP: u32 = 1;

pub struct Blktrace<'a> {
    about: About<'a>,
    start_ns: u64,
    files: HashMap<([u32; 2], u16), File>,
    /// Requests that each CPU has lost so far.
    lost: HashMap<u16, u32>,
    leaving: Leaving,
}

/// What a file has so far.
#[derive(Default)]
struct File {
    name: String,
    sequence: u32,
    /// Losses that are gaps in its sequence.
    lost: u32,
    comms: HashMap<u32, String>,
}

struct Event<'a> {
    sequence: u32,
    time: u64,
    sector: u64,
    bytes: u32,
    action: u32,
    pid: u32,
    device: [u32; 2],
    cpu: u16,
    errno: u32,
    data: &'a [u8],
}

impl Event<'_> {
    fn encode(&self) -> Vec<u8> {
        let mut to = Vec::with_capacity(48 + self.data.len());
        to.extend(MAGIC.to_le_bytes());
        to.extend(self.sequence.to_le_bytes());
        to.extend(self.time.to_le_bytes());
        to.extend(self.sector.to_le_bytes());
        let [major, minor] = self.device;
        let device = (major << 20) | (minor & 0xf_ffff);
        for field in [self.bytes, self.action, self.pid, device, u32::from(self.cpu)] {
            to.extend(field.to_le_bytes());
        }
        // The kernel stores its negative errors in 16 bits.
        to.extend((self.errno as u16).wrapping_neg().to_le_bytes());
        to.extend((self.data.len() as u16).to_le_bytes());
        to.extend(self.data);
        to
    }
}

/// `None`: blktrace has no letter for it.
fn category(request: &Request) -> Option<u32> {
    let op = match request.op {
        Op::Read => TC_READ,
        Op::Write | Op::WriteZeroes | Op::WriteSame | Op::ZoneAppend => TC_WRITE,
        Op::Flush => TC_FLUSH,
        Op::Discard | Op::SecureErase => TC_DISCARD | TC_WRITE,
        _ => return None,
    };
    let flags = [
        (request.is_sync, TC_SYNC),
        (request.is_meta, TC_META),
        (request.is_readahead, TC_AHEAD),
        (request.is_fua, TC_FUA),
        (request.is_preflush, TC_FLUSH),
    ];
    let flags = flags.into_iter().filter(|(has, _)| *has);
    Some(flags.fold(op | TC_FS, |all, (_, flag)| all | flag))
}

impl<'a> Blktrace<'a> {
    #[must_use]
    pub fn new(about: About<'a>) -> Self {
        Self {
            about,
            start_ns: start_of_recording(about),
            files: HashMap::new(),
            lost: HashMap::new(),
            leaving: Leaving::default(),
        }
    }

    fn request(&mut self, at_ns: u64, point: Point, request: &Request, output: &mut dyn Output) -> io::Result<()> {
        let Some(category) = category(request) else {
            if point == Point::Begin {
                self.leaving
                    .count("requests of drivers and zones, for which blktrace has no events");
            }
            return Ok(());
        };
        let actions: &[u32] = match point {
            // Where the submission is unknown, so is the time in the queue.
            Point::Begin if request.submitted_ns.is_none() && request.started_ns.is_none() => return Ok(()),
            Point::Begin => &[QUEUE | TC_QUEUE << 16, GET_REQUEST | TC_QUEUE << 16],
            Point::Issue => &[ISSUE | TC_ISSUE << 16],
            Point::End => &[COMPLETE | TC_COMPLETE << 16],
        };
        let comm = self.about.outline.names.comm_at(request.tid, at_ns);
        let time = at_ns.saturating_sub(self.start_ns);
        self.prepare(time, request, comm, output)?;
        let Some(file) = self.files.get_mut(&(request.disk, request.cpu)) else {
            return Ok(());
        };
        for action in actions {
            file.sequence = file.sequence.wrapping_add(1);
            let event = Event {
                sequence: file.sequence,
                time,
                sector: request.sector,
                bytes: u32::try_from(request.bytes).unwrap_or(u32::MAX),
                action: action | category << 16,
                pid: if point == Point::End { 0 } else { request.tid },
                device: request.disk,
                cpu: request.cpu,
                errno: if point == Point::End { request.errno } else { 0 },
                data: &[],
            };
            output.write(&file.name, &event.encode())?;
        }
        Ok(())
    }

    /// Makes the file, and writes what the next event needs: the name of its thread, and a gap where events were lost.
    fn prepare(&mut self, time: u64, request: &Request, comm: &str, output: &mut dyn Output) -> io::Result<()> {
        let notify = |action: u32, pid: u32, data: &[u8]| {
            let event = Event {
                sequence: 0,
                time,
                sector: 0,
                bytes: 0,
                action: action | TC_NOTIFY << 16,
                pid,
                device: request.disk,
                cpu: request.cpu,
                errno: 0,
                data,
            };
            event.encode()
        };
        let is_new = !self.files.contains_key(&(request.disk, request.cpu));
        let file = self.files.entry((request.disk, request.cpu)).or_default();
        if is_new {
            let disk = self
                .about
                .outline
                .disks
                .get(&request.disk)
                .map_or("disk", String::as_str);
            // A name of the recording must not lead out of the directory.
            let disk: String = disk
                .chars()
                .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
                .collect();
            file.name = format!("{disk}.blktrace.{}", request.cpu);
            let wall = self.about.meta.clocks.wall_ns(self.start_ns).max(0);
            let mut clock = ((wall / 1_000_000_000) as u32).to_le_bytes().to_vec();
            clock.extend(((wall % 1_000_000_000) as u32).to_le_bytes());
            output.write(&file.name, &notify(TIMESTAMP, 0, &clock))?;
        }
        if request.tid > 0 && !comm.is_empty() && file.comms.get(&request.tid).is_none_or(|known| known != comm) {
            let mut name = [0; COMM];
            let length = comm.len().min(COMM - 1);
            name[..length].copy_from_slice(&comm.as_bytes()[..length]);
            output.write(&file.name, &notify(0, request.tid, &name))?;
            file.comms.insert(request.tid, comm.to_owned());
        }
        let lost = self.lost.get(&request.cpu).copied().unwrap_or(0);
        file.sequence = file.sequence.wrapping_add(lost.wrapping_sub(file.lost));
        file.lost = lost;
        Ok(())
    }
}

impl Exporter for Blktrace<'_> {
    fn points(&self) -> &'static [Point] {
        &[Point::Begin, Point::Issue, Point::End]
    }

    fn moment(&mut self, moment: &Moment<'_>, output: &mut dyn Output) -> io::Result<()> {
        match moment.record {
            Record::Request(request) => self.request(moment.at_ns, moment.point, request, output),
            Record::Lost(lost) if lost.kind == Kind::Request && moment.point == Point::End => {
                let all = self.lost.entry(lost.cpu).or_default();
                *all = all.wrapping_add(lost.records as u32);
                Ok(())
            }
            Record::Call(_) | Record::Async(_) | Record::Fault(_) if moment.point == Point::Begin => {
                self.leaving.count("calls and page faults: blktrace has only requests");
                Ok(())
            }
            Record::Mark(_) if moment.point == Point::Begin => {
                self.leaving.count("marks");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn end(&mut self, output: &mut dyn Output) -> io::Result<Vec<LeftOut>> {
        // blkparse looks for the files of CPUs from 0 on, and ends at the first that is missing.
        let last: Vec<(String, u16)> = self
            .files
            .iter()
            .map(|((_, cpu), file)| (file.name.clone(), *cpu))
            .collect();
        for (name, cpu) in last {
            let disk = name.trim_end_matches(|c: char| c.is_ascii_digit());
            (0..cpu).try_for_each(|cpu| output.write(&format!("{disk}{cpu}"), &[]))?;
        }
        Ok(self.leaving.take())
    }
}
