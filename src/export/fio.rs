//! A job for fio: for each thread a log in fio's format 3, a job file, and a script that makes the files.
//!
//! All files are below the directory `files/`, so that a replay never writes to the recorded ones. Only what was done is
//! in the logs: calls that failed or moved nothing are left out, and counted.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt::Write as _;
use std::io;
use std::rc::Rc;

use super::iotracer::start_of_recording;
use super::output::Output;
use super::{About, Exporter, Leaving, LeftOut, Moment, Record};
use crate::model::ids::Op;
use crate::model::record::FileNumber;

/// The longest name that fio reads, in bytes.
const LONGEST: usize = 255;

/// `S_IFMT` and two of its values.
const TYPE: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
const BLOCK: u32 = 0o060_000;

pub struct Fio<'a> {
    about: About<'a>,
    start_ns: u64,
    /// Names by path.
    names: HashMap<Rc<str>, Rc<str>>,
    taken: HashSet<Rc<str>>,
    aliases: Vec<(Rc<str>, Rc<str>)>,
    /// Bytes that each file needs.
    sizes: BTreeMap<Rc<str>, u64>,
    threads: BTreeMap<u32, Thread>,
    leaving: Leaving,
    lost: u64,
}

#[derive(Default)]
struct Thread {
    open: BTreeSet<Rc<str>>,
    is_direct: bool,
    last_us: u64,
}

/// An operation of a log.
struct Action {
    word: &'static str,
    offset: u64,
    bytes: u64,
    /// It needs data that existed before.
    is_read: bool,
    is_direct: bool,
}

impl<'a> Fio<'a> {
    #[must_use]
    pub fn new(about: About<'a>) -> Self {
        Self {
            about,
            start_ns: start_of_recording(about),
            names: HashMap::new(),
            taken: HashSet::new(),
            aliases: Vec::new(),
            sizes: BTreeMap::new(),
            threads: BTreeMap::new(),
            leaving: Leaving::default(),
            lost: 0,
        }
    }

    /// The name below the directory; `None`: it is no file that fio can replay.
    fn name(&mut self, number: FileNumber) -> Option<Rc<str>> {
        let about = self.about;
        let Some(file) = about.outline.names.file_of(number) else {
            self.leaving.count("calls on files that are not defined");
            return None;
        };
        if ![REGULAR, BLOCK, 0].contains(&(file.mode & TYPE)) {
            self.leaving
                .count("calls on files that are neither regular nor block devices");
            return None;
        }
        if let Some(name) = self.names.get(&file.path) {
            return Some(Rc::clone(name));
        }
        let wanted = format!("files/{}", file.path.trim_start_matches('/'));
        let mut name: Rc<str> = wanted.as_str().into();
        if !is_usable(&wanted) || self.taken.contains(&name) {
            name = format!("files/alias-{}", self.aliases.len() + 1).into();
            self.aliases.push((Rc::clone(&file.path), Rc::clone(&name)));
        }
        self.taken.insert(Rc::clone(&name));
        self.names.insert(Rc::clone(&file.path), Rc::clone(&name));
        self.sizes.insert(Rc::clone(&name), file.size);
        Some(name)
    }

    fn action(&mut self, op: Op, offset: Option<u64>, value: i64, is_direct: bool) -> Option<Action> {
        let moved = u64::try_from(value).ok();
        let action = |word, offset, bytes, is_read| Action {
            word,
            offset,
            bytes,
            is_read,
            is_direct,
        };
        let sync = |word| Some(action(word, 0, 0, false));
        let Some(is_write) = op.is_write() else {
            return match op {
                Op::Fsync if value == 0 => sync("sync"),
                Op::Fdatasync if value == 0 => sync("datasync"),
                Op::Fsync | Op::Fdatasync => {
                    self.leaving.count("calls that failed");
                    None
                }
                _ => {
                    self.leaving.count("calls that neither read nor write nor synchronise");
                    None
                }
            };
        };
        match (moved, offset) {
            (None, _) => self.leaving.count("calls that failed"),
            (Some(0), _) => self
                .leaving
                .count("reads and writes of 0 bytes, such as at the end of a file"),
            (_, None) => self.leaving.count("reads and writes whose offset is unknown"),
            (Some(bytes), Some(offset)) => {
                return Some(action(
                    if is_write { "write" } else { "read" },
                    offset,
                    bytes,
                    !is_write,
                ));
            }
        }
        None
    }

    fn log(
        &mut self,
        at_ns: u64,
        (tid, file): (u32, FileNumber),
        action: &Action,
        output: &mut dyn Output,
    ) -> io::Result<()> {
        let Some(name) = self.name(file) else {
            return Ok(());
        };
        if action.is_read {
            let size = self.sizes.entry(Rc::clone(&name)).or_default();
            *size = (*size).max(action.offset.saturating_add(action.bytes));
        }
        let us = at_ns.saturating_sub(self.start_ns) / 1_000;
        let is_new = !self.threads.contains_key(&tid);
        let thread = self.threads.entry(tid).or_default();
        let mut line = String::new();
        // Writing to a String cannot fail.
        if is_new {
            thread.is_direct = true;
            line.push_str("fio version 3 iolog\n");
        }
        thread.is_direct &= action.is_direct || matches!(action.word, "sync" | "datasync");
        thread.last_us = us;
        if thread.open.insert(Rc::clone(&name)) {
            let _ = writeln!(line, "{us} {name} add\n{us} {name} open");
        }
        let Action {
            word, offset, bytes, ..
        } = action;
        let _ = writeln!(line, "{us} {name} {word} {offset} {bytes}");
        output.write(&log_name(tid), line.as_bytes())
    }

    fn job(&self) -> String {
        let mut job = String::from(
            "; fio thread.fio, in this directory, after ./prepare.sh: replays the recorded calls, each thread's with its gaps.\n\
             ; As fast as possible: fio --replay_no_stall=1 thread.fio\n",
        );
        if self.lost > 0 {
            let _ = writeln!(
                job,
                "; INCOMPLETE: {} calls were lost while recording, and are not in the logs",
                self.lost
            );
        }
        for (path, name) in &self.aliases {
            let _ = writeln!(job, "; {name} is {}", crate::printable::printable(path));
        }
        job.push_str("[global]\nioengine=psync\nthread\n");
        for (tid, thread) in &self.threads {
            let direct = if thread.is_direct { "direct=1\n" } else { "" };
            let _ = write!(job, "\n[thread-{tid}]\nread_iolog={}\n{direct}", log_name(*tid));
        }
        job
    }

    fn script(&self) -> String {
        let mut script = String::from(
            "#!/bin/sh\n# Makes the files that thread.fio uses, with their sizes.\nset -eu\ncd \"$(dirname \"$0\")\"\n",
        );
        script.push_str("make() {\n    mkdir -p \"$(dirname \"$1\")\"\n    : >>\"$1\"\n    [ \"$2\" -eq 0 ] || fallocate -l \"$2\" \"$1\" 2>/dev/null || truncate -s \"$2\" \"$1\"\n}\n");
        for (name, size) in &self.sizes {
            let _ = writeln!(script, "make '{}' {size}", name.replace('\'', "'\\''"));
        }
        script
    }
}

fn log_name(tid: u32) -> String {
    format!("thread-{tid}.log")
}

/// Whether fio reads the name as one word, and it stays below its directory.
fn is_usable(name: &str) -> bool {
    let is_component = |part: &str| !part.is_empty() && part != "." && part != "..";
    name.len() <= LONGEST
        && name.split('/').all(is_component)
        && name
            .chars()
            .all(|c| c.is_alphanumeric() || "/._-+=@%,~#[]{}()".contains(c))
}

impl Exporter for Fio<'_> {
    fn moment(&mut self, moment: &Moment<'_>, output: &mut dyn Output) -> io::Result<()> {
        let (tid, file, action) = match moment.record {
            Record::Call(call) if call.end_ns.is_none() => {
                self.leaving
                    .count("calls that were under way at the end of the recording");
                return Ok(());
            }
            Record::Call(call) => {
                let action = self.action(call.op, call.offset, call.value, call.is_direct);
                (call.tid, call.files[0], action)
            }
            Record::Async(call) => {
                let action = self.action(call.op, call.offset, call.value, call.is_direct);
                (call.tid, call.file, action)
            }
            Record::Fault(_) => {
                self.leaving.count("page faults, for which fio has no word");
                return Ok(());
            }
            Record::Lost(lost) if lost.kind == crate::model::record::Kind::Call => {
                self.lost += lost.records;
                return Ok(());
            }
            Record::Mark(_) => {
                self.leaving.count("marks");
                return Ok(());
            }
            _ => return Ok(()),
        };
        match action {
            Some(action) => self.log(moment.at_ns, (tid, file), &action, output),
            None => Ok(()),
        }
    }

    fn end(&mut self, output: &mut dyn Output) -> io::Result<Vec<LeftOut>> {
        for (tid, thread) in &self.threads {
            for name in &thread.open {
                output.write(&log_name(*tid), format!("{} {name} close\n", thread.last_us).as_bytes())?;
            }
        }
        output.write("thread.fio", self.job().as_bytes())?;
        output.write("prepare.sh", self.script().as_bytes())?;
        Ok(self.leaving.take())
    }
}
