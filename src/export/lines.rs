//! Calls and requests as lines of a table, for people: `--events`.

use std::fmt::Write as _;
use std::io;

use super::output::Output;
use super::{Caller, Exporter, LeftOut, Moment, Names, Record};
use crate::model::clock::Clock;
use crate::model::ids::{Layer, Op, Origin, ReadClass};
use crate::model::record::{AsyncCall, Call, Fault, FileNumber, Lost, Request, errno_of};
use crate::model::recording::Meta;
use crate::printable::printable;
use crate::view::errno::errno_name;
use crate::view::text::name::shortened;
use crate::view::text::number::{percent, thousands, time_each};
use crate::view::text::records::of_kind;

/// Narrower terminals show no size, and times in milliseconds.
const MEDIUM: usize = 80;
/// On this width or more, and without a terminal, there is everything.
const WIDE: usize = 150;
/// Without a terminal, nothing is cut.
const OP: usize = 17;
const PROCESS: usize = 24;

/// Turns records into lines.
#[derive(Debug)]
pub struct Lines {
    clock: Clock,
    /// Columns of the terminal; `None` if it is not one.
    width: Option<usize>,
    /// Names of the rows of calls, by index.
    rows: Vec<String>,
    /// Calls are recorded: a request whose call is not known has lost it.
    has_calls: bool,
    /// The thread and the begin of the call in the line above.
    above: Option<(u32, u64)>,
    /// The begin of what is in the line above.
    began_ns: Option<u64>,
}

/// The cells of a line.
#[derive(Debug, Default)]
struct Cells {
    time: String,
    delta: String,
    level: &'static str,
    op: String,
    process: String,
    offset: String,
    size: String,
    took: String,
    how: String,
    file: String,
}

impl Lines {
    /// `width`: columns of the terminal; `None` if it is not one.
    #[must_use]
    pub fn new(meta: &Meta, width: Option<usize>) -> Self {
        Self {
            clock: Clock {
                zero_ns: meta.clocks.offset_ns,
                utc_offset: meta.clocks.utc_offset,
            },
            width,
            rows: meta.rows.clone(),
            has_calls: meta.run.layers.iter().any(|info| info.layer == Layer::Syscall),
            above: None,
            began_ns: None,
        }
    }

    /// The headings of the columns.
    #[must_use]
    pub fn heading(&self) -> String {
        self.line(&Cells {
            time: "TIME".to_owned(),
            delta: "+DELTA".to_owned(),
            level: "LEVEL",
            op: "OP".to_owned(),
            process: "PROCESS".to_owned(),
            offset: "OFFSET/SECTOR".to_owned(),
            size: "SIZE".to_owned(),
            took: "TOOK".to_owned(),
            how: "HOW".to_owned(),
            file: "FILE".to_owned(),
        })
    }

    /// The line of a record; `None`: it has none.
    pub fn of(&mut self, record: &Record, caller: Option<Caller>, names: &Names) -> Option<String> {
        let at_ns = record.begin_ns();
        let above = self.above.take();
        let cells = match record {
            Record::Call(call) => {
                self.above = Some((call.tid, call.begin_ns));
                self.call(call, names)
            }
            Record::Request(request) => {
                let is_above = |caller: &Caller| above == Some((request.tid, caller.begin_ns));
                let of_above = caller.filter(is_above);
                if of_above.is_some() {
                    // The next request may be of the same call.
                    self.above = above;
                }
                self.request(request, caller, of_above.is_some(), names)
            }
            Record::Async(call) => self.asynchronous(call, names),
            Record::Fault(fault) => self.fault(fault, names),
            Record::Lost(lost) => return Some(self.lost(lost)),
            Record::Mark(mark) => {
                let text = printable(&mark.text);
                return Some(format!("{} MARK {text}\n", self.time(mark.at_ns)));
            }
            Record::Sleep(_) | Record::File(_) | Record::Folder(_) | Record::Thread(_) => {
                // They have no lines.
                self.above = above;
                return None;
            }
        };
        let before_ns = self.began_ns.replace(at_ns);
        Some(self.line(&Cells {
            time: self.time(at_ns),
            delta: maybe(before_ns, |before_ns| delta(before_ns, at_ns)),
            ..cells
        }))
    }

    fn time(&self, at_ns: u64) -> String {
        match self.width {
            Some(width) if width < MEDIUM => self.clock.milliseconds(at_ns),
            _ => self.clock.time_of_day(at_ns),
        }
    }

    fn call(&self, call: &Call, names: &Names) -> Cells {
        let ns = call.duration_ns();
        let mut how = Vec::new();
        let errno = errno_of(call.value).filter(|_| ns.is_some());
        match (ns, errno) {
            (None, _) => how.push("under way".to_owned()),
            (_, Some(errno)) => how.push(errno_name(errno)),
            _ => how.extend(call.class.map(|class| class_word(class).to_owned())),
        }
        how.extend(ns.and_then(|ns| self.largest_row(call, ns)));
        if errno.is_none()
            && let Some(size) = call.size.filter(|size| call.op.is_write().is_some() && *size > 0)
            && let Ok(moved) = u64::try_from(call.value)
            && ns.is_some()
            && moved < size
        {
            how.push(format!("moved {}", bytes(moved)));
        }
        let given = call.paths.as_deref().and_then(|paths| paths.first.as_ref());
        Cells {
            level: "call",
            op: call.op.name().to_owned(),
            process: process(names, call.pid, call.tid, call.end_ns.unwrap_or(call.begin_ns)),
            offset: maybe(call.offset, thousands),
            size: maybe(call.size, bytes),
            took: maybe(ns, time_each),
            how: how.join(", "),
            file: match file(names, call.files[0]) {
                "" => given.map_or("", |path| &path.text).to_owned(),
                path => path.to_owned(),
            },
            ..Cells::default()
        }
    }

    /// The row in which most of the time was spent: `device 97 %`.
    fn largest_row(&self, call: &Call, ns: u64) -> Option<String> {
        let (slot, row_ns) = call.rows.iter().enumerate().rev().max_by_key(|(_, ns)| **ns)?;
        let name = self.rows.get(slot).filter(|name| !name.is_empty())?;
        // All of a call that is not split is in the first one.
        let is_only = call.rows.iter().filter(|ns| **ns > 0).count() < 2;
        (*row_ns > 0 && !is_only).then(|| format!("{name} {}", percent(*row_ns, ns)))
    }

    fn request(&self, request: &Request, caller: Option<Caller>, is_above: bool, names: &Names) -> Cells {
        let mut how = Vec::new();
        if request.errno > 0 {
            how.push(errno_name(request.errno.cast_signed()));
        }
        let begin_ns = request.submitted_ns.or(request.started_ns);
        match (begin_ns, request.issued_ns) {
            (Some(begin_ns), Some(issued_ns)) => {
                how.push(format!("queue {}", time_each(issued_ns.saturating_sub(begin_ns))));
            }
            (_, None) => how.push("never issued".to_owned()),
            _ => {}
        }
        match caller {
            Some(_) if is_above => how.push("of the call above".to_owned()),
            Some(caller) => how.push(format!("of {} {}", caller.op, self.time(caller.begin_ns))),
            None if request.origin == Origin::Own && !self.has_calls => {}
            None => how.push(origin_words(request.origin).to_owned()),
        }
        let at_ns = request.submitted_ns.unwrap_or(request.ended_ns);
        let begin_ns = request.issued_ns.or(begin_ns).unwrap_or(request.ended_ns);
        Cells {
            level: "blk",
            op: request.op.name().to_owned(),
            process: match request.tid {
                0 => "-".to_owned(),
                tid => process(names, request.pid, tid, at_ns),
            },
            offset: thousands(request.sector),
            size: bytes(request.bytes),
            took: time_each(request.ended_ns.saturating_sub(begin_ns)),
            how: how.join(", "),
            file: request.inode.map_or_else(String::new, |inode| {
                names.path_of_inode(inode, request.begin_ns()).to_owned()
            }),
            ..Cells::default()
        }
    }

    fn asynchronous(&self, call: &AsyncCall, names: &Names) -> Cells {
        let how = errno_of(call.value).map_or_else(String::new, errno_name);
        Cells {
            level: "async",
            op: call.op.name().to_owned(),
            process: process(names, call.pid, call.tid, call.begin_ns),
            offset: maybe(call.offset, thousands),
            size: maybe(call.size, bytes),
            took: time_each(call.end_ns.saturating_sub(call.begin_ns)),
            how,
            file: file(names, call.file).to_owned(),
            ..Cells::default()
        }
    }

    fn fault(&self, fault: &Fault, names: &Names) -> Cells {
        let how = match fault.errno {
            0 => String::new(),
            errno => errno_name(errno.cast_signed()),
        };
        Cells {
            level: "fault",
            op: if fault.is_write { Op::Mkwrite } else { Op::Fault }.name().to_owned(),
            process: process(names, fault.pid, fault.tid, fault.begin_ns),
            offset: thousands(fault.offset),
            size: "-".to_owned(),
            took: time_each(fault.end_ns.saturating_sub(fault.begin_ns)),
            how,
            file: file(names, fault.file).to_owned(),
            ..Cells::default()
        }
    }

    /// In place of what has no line.
    fn lost(&self, lost: &Lost) -> String {
        let text = format!(
            "{} LOST {} on CPU {}, until {}",
            self.time(lost.from_ns),
            of_kind(lost.records, lost.kind),
            lost.cpu,
            self.time(lost.to_ns)
        );
        format!(
            "{}\n",
            self.width.map_or_else(|| text.clone(), |width| shortened(&text, width))
        )
    }

    fn line(&self, cells: &Cells) -> String {
        let Cells {
            time,
            delta,
            level,
            op,
            process,
            offset,
            size,
            took,
            how,
            file,
        } = cells;
        let cell = |text: &str, room: usize| match self.width {
            Some(_) => shortened(text, room),
            None => text.to_owned(),
        };
        let mut line = match self.width {
            Some(width) if width < MEDIUM => {
                let process = cell(process, 12);
                let op = cell(op, 9);
                format!("{time:<12} {level:<5} {op:<9} {process:<12} {took:>7} ")
            }
            Some(width) if width < WIDE => {
                // Half of the additional width goes to processes.
                let room = 13 + (width - MEDIUM) / 4;
                let (op, process) = (cell(op, 10), cell(process, room));
                format!("{time:<15} {level:<5} {op:<10} {process:<room$} {size:>7} {took:>7} ")
            }
            _ => {
                let (op, process) = (cell(op, OP), cell(process, PROCESS));
                let begin = format!("{time:<15} {delta:>9} {level:<5} {op:<OP$} {process:<PROCESS$}");
                format!("{begin} {offset:>15} {size:>9} {took:>8} ")
            }
        };
        let rest = match (how.as_str(), file.as_str()) {
            (how, "") => how.to_owned(),
            ("", file) if self.width.is_none_or(|width| width >= WIDE) => format!("{:<34} {file}", ""),
            ("", file) => file.to_owned(),
            (how, file) if self.width.is_none_or(|width| width >= WIDE) => format!("{how:<34} {file}"),
            (how, file) => format!("{how}  {file}"),
        };
        let line_length = line.chars().count();
        let rest = match self.width {
            Some(width) => shortened_end(&rest, how, file, width.saturating_sub(line_length)),
            None => rest,
        };
        let _ = write!(line, "{rest}");
        // Names are chosen by others.
        format!("{}\n", printable(line.trim_end()))
    }
}

/// `rest`, which is how and file, in so many columns: the file is cut first.
fn shortened_end(rest: &str, how: &str, file: &str, room: usize) -> String {
    if rest.chars().count() <= room {
        return rest.to_owned();
    }
    let of_how = how.chars().count();
    // A file's name of less than this says nothing.
    const LEAST: usize = 8;
    match room.checked_sub(of_how + 2) {
        Some(left) if left >= LEAST && !file.is_empty() && of_how > 0 => format!("{how}  {}", shortened(file, left)),
        _ if of_how == 0 => shortened(file, room),
        _ => crate::view::text::name::beginning(how, room),
    }
}

/// From the begin of one to that of the next one: `+812 us`; negative if it began before the one above, and is printed at its
/// end.
fn delta(before_ns: u64, at_ns: u64) -> String {
    let sign = if at_ns < before_ns { '-' } else { '+' };
    format!("{sign}{}", time_each(at_ns.abs_diff(before_ns)))
}

fn maybe(number: Option<u64>, form: impl FnOnce(u64) -> String) -> String {
    number.map_or_else(|| "-".to_owned(), form)
}

/// `8 KiB`, and what is no multiple in bytes.
fn bytes(n: u64) -> String {
    crate::view::text::number::exact_bytes(n)
}

/// `postgres 4711`, `postgres 4711/4715`
fn process(names: &Names, pid: u32, tid: u32, at_ns: u64) -> String {
    let comm = names.comm_at(tid, at_ns);
    let number = match pid {
        0 => tid.to_string(),
        pid if pid == tid => pid.to_string(),
        pid => format!("{pid}/{tid}"),
    };
    if comm.is_empty() {
        number
    } else {
        format!("{comm} {number}")
    }
}

fn file(names: &Names, number: FileNumber) -> &str {
    names.path_of(number)
}

const fn class_word(class: ReadClass) -> &'static str {
    match class {
        ReadClass::FromCache => "cached",
        ReadClass::WaitedForOwn => "missed",
        ReadClass::WaitedForOthers => "others' I/O",
        ReadClass::ReadAheadOnly => "read ahead",
        ReadClass::Direct => "direct",
    }
}

/// Of a request that was submitted in no call.
const fn origin_words(origin: Origin) -> &'static str {
    match origin {
        Origin::Unknown => "of no known call",
        Origin::Own => "of a call without a record",
        Origin::Asynchronous => "asynchronous",
        Origin::Kworker => "kworker",
        Origin::Journal => "journal",
        Origin::Kernel => "kernel thread",
        Origin::Writeback => "writeback",
        Origin::Readahead => "readahead",
    }
}

/// The exporter of lines.
pub struct LinesOf(pub Lines);

impl Exporter for LinesOf {
    fn begin(&mut self, output: &mut dyn Output) -> io::Result<()> {
        output.write("", self.0.heading().as_bytes())
    }

    fn moment(&mut self, moment: &Moment<'_>, output: &mut dyn Output) -> io::Result<()> {
        match self.0.of(moment.record, moment.caller, moment.names) {
            Some(line) => output.write("", line.as_bytes()),
            None => Ok(()),
        }
    }

    fn end(&mut self, _: &mut dyn Output) -> io::Result<Vec<LeftOut>> {
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use super::super::output::Memory;
    use super::super::synthetic;
    use super::super::{About, Form, Selection, export_as};
    use super::*;
    use crate::model::run_info::LayerInfo;

    /// Where the column of levels begins.
    const LEVEL_AT: usize = 26;

    struct Columns(Option<usize>);

    impl Form for Columns {
        fn exporter<'a>(&self, about: About<'a>) -> Box<dyn Exporter + 'a> {
            Box::new(LinesOf(Lines::new(about.meta, self.0)))
        }
    }

    fn lines(width: Option<usize>, selection: &Selection) -> Vec<String> {
        let mut output = Memory::default();
        let batches = synthetic::batches();
        let read = || batches.iter().cloned();
        let meta = synthetic::meta();
        export_as(&Columns(width), &meta, selection, read, &mut output, |_, _| ()).unwrap();
        let text = String::from_utf8(output.0.remove("").unwrap()).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn each_call_and_request_has_a_line_in_the_order_of_time() {
        let all = lines(None, &Selection::default());
        let mut expected = [0; 2];
        for batch in synthetic::batches() {
            expected[0] += batch.calls.len();
            expected[1] += batch.requests.len();
        }
        let of = |level: &str| all.iter().filter(|line| line[LEVEL_AT..].starts_with(level)).count();
        assert_eq!([of("call "), of("blk ")], expected);
        let times: Vec<&str> = all[1..].iter().map(|line| &line[..15]).collect();
        assert!(times.is_sorted(), "{times:?}");
        assert!(all[0].starts_with("TIME               +DELTA LEVEL OP"));
        assert!(all.iter().any(|line| line.contains("of the call above")), "{all:#?}");
        assert!(
            all.iter().any(|line| line.contains("LOST 2,113 calls on CPU")),
            "{all:#?}"
        );
    }

    #[test]
    fn a_line_says_how_long_after_the_one_above_it_is() {
        let mut table = Lines::new(&synthetic::meta(), None);
        let mut delta_of = |record: &Record| {
            let line = table.of(record, None, &Names::default());
            line.map(|line| line[16..LEVEL_AT - 1].trim().to_owned())
        };
        let call = |begin_ns: u64| Record::Call(synthetic::call(1, Op::Read, begin_ns, Some(begin_ns + 5)));
        let mark = Record::Mark(crate::model::record::Mark {
            at_ns: 3_000,
            text: "here".to_owned(),
        });
        assert_eq!(delta_of(&call(1_000)).unwrap(), "-");
        assert_eq!(delta_of(&call(1_000)).unwrap(), "+0 ns");
        assert_eq!(delta_of(&call(3_500)).unwrap(), "+2.5 us");
        // What is no call and no request is not counted.
        delta_of(&mark);
        assert_eq!(delta_of(&call(812_003_500)).unwrap(), "+812 ms");
        // One that took long comes when it has ended.
        assert_eq!(delta_of(&call(811_003_500)).unwrap(), "-1.0 ms");
        assert_eq!(delta_of(&call(3_811_003_500)).unwrap(), "+3.0 s");
    }

    #[test]
    fn a_line_fits_the_terminal() {
        for width in [60, 80, 100, 149, 150, 200] {
            for line in lines(Some(width), &Selection::default()) {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
    }

    /// The call that a request names is known even if it is not shown itself.
    #[test]
    fn a_request_names_a_call_that_is_not_selected() {
        let only = Selection {
            layers: [crate::model::ids::Layer::Blk].into(),
            ..Selection::default()
        };
        let requests = lines(None, &only);
        assert!(!requests.iter().any(|line| line[LEVEL_AT..].starts_with("call ")));
        let named = requests
            .iter()
            .filter(|line| line.contains(", of ") && !line.contains("above"));
        assert!(named.count() > 0, "{requests:#?}");
    }

    /// What is not recorded is not lost.
    #[test]
    fn a_request_lacks_a_call_only_if_calls_are_recorded() {
        let request = synthetic::batches()
            .into_iter()
            .flat_map(|batch| batch.requests)
            .next()
            .unwrap();
        let line = |layer: Layer| {
            let mut meta = synthetic::meta();
            meta.run.layers.push(LayerInfo {
                layer,
                refused: None,
                not_measured: Vec::new(),
                completions_skip_interrupts: false,
            });
            let record = Record::Request(Request {
                origin: Origin::Own,
                ..request.clone()
            });
            Lines::new(&meta, None).of(&record, None, &Names::default()).unwrap()
        };
        let [with, without] = [Layer::Syscall, Layer::Blk].map(line);
        assert!(with.contains("of a call without a record"), "{with}");
        assert!(!without.contains("of a call"), "{without}");
    }

    #[test]
    fn hostile_names_are_inert() {
        let all = lines(None, &Selection::default());
        assert!(all.iter().all(|line| line.chars().all(crate::printable::is_printable)));
    }
}
