//! Counters kept in a file, and reports made of them later: by another process, without privileges, on another machine.
//!
//! A line of JSON each: what is known of the run, then its moments.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Write};
use std::path::Path;

use crate::args::Options;
use crate::event::Signals;
use crate::model::run_info::RunInfo;
use crate::model::snapshot::Snapshot;

use super::output::{Output, Piece};
use super::reporter::Reporter;
use super::{COULD_NOT_MEASURE, Failure, or_leave};

/// Where the moments of a run are kept.
pub struct Saved(BufWriter<File>);

impl Saved {
    /// # Errors
    /// When the file cannot be made, in one line.
    pub fn create(path: &Path) -> Result<Self, String> {
        let file = File::create(path).map_err(|error| format!("cannot write '{}': {error}", path.display()))?;
        Ok(Self(BufWriter::new(file)))
    }

    /// The run comes first.
    ///
    /// # Errors
    /// When it cannot be written, in one line.
    pub fn run(&mut self, run: &RunInfo) -> Result<(), String> {
        self.line(run)
    }

    /// Each moment is in the file when this returns.
    ///
    /// # Errors
    /// As above.
    pub fn moment(&mut self, moment: &Snapshot) -> Result<(), String> {
        self.line(moment)?;
        self.0.flush().map_err(cannot_save)
    }

    fn line(&mut self, what: &impl serde::Serialize) -> Result<(), String> {
        serde_json::to_writer(&mut self.0, what).map_err(cannot_save)?;
        self.0.write_all(b"\n").map_err(cannot_save)
    }
}

fn cannot_save(error: impl std::fmt::Display) -> String {
    format!("the snapshots cannot be saved: {error}")
}

/// Prints the reports of a run that was saved, as the run itself has printed them.
///
/// # Errors
/// When the file cannot be read, or a report cannot be written.
pub fn print(path: &Path, options: &Options) -> Result<u8, Failure> {
    let cannot = |line: String| Failure::new(COULD_NOT_MEASURE, line);
    let signals = Signals::install().map_err(|error| cannot(format!("signals cannot be handled: {error}")))?;
    let mut output = Output::open(options).map_err(cannot)?;
    let (run, moments) = read(path).map_err(|error| cannot(format!("cannot read '{}': {error}", path.display())))?;
    output.begin().map_err(cannot)?;
    let mut reporter = Reporter::new(options);
    if let Some(first) = moments.first() {
        reporter.begin(&run, first);
    }
    for (before, after) in moments.iter().zip(moments.iter().skip(1)) {
        let screen = output.screen();
        let piece = Piece {
            reports: 1,
            ..Piece::default()
        };
        let written = output.write(piece, |out| reporter.print(&run, before, after, screen, out));
        or_leave(written).map_err(cannot)?;
    }
    or_leave(output.finish(&signals)).map_err(cannot)?;
    Ok(0)
}

fn read(path: &Path) -> io::Result<(RunInfo, Vec<Snapshot>)> {
    parse(BufReader::new(File::open(path)?))
}

fn parse(text: impl BufRead) -> io::Result<(RunInfo, Vec<Snapshot>)> {
    let mut lines = text.lines();
    let run = lines.next().ok_or(io::ErrorKind::UnexpectedEof)??;
    let moments = lines.map(|line| Ok(serde_json::from_str(&line?)?));
    Ok((serde_json::from_str(&run)?, moments.collect::<io::Result<_>>()?))
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;

    use super::*;
    use crate::analyse;
    use crate::fuzz;
    use crate::model::ids::{By, Hook, Layer, Op, Row};
    use crate::model::report::AttachPoint;
    use crate::model::run_info::{BlockEvent, BlockInfo, DisksInfo, LayerInfo, OpInfo, ProbeInfo, StackInfo};
    use crate::model::snapshot::{FamilyCounters, GroupsCounters, NeighbourCounters, OpCounters, StackCounters};
    use crate::view::View;
    use crate::view::json::Form;
    use crate::view::text::{TextOptions, Unit};

    fn run() -> RunInfo {
        let event = |name: &str| BlockEvent {
            tracepoint: name.to_owned(),
            functions: Vec::new(),
        };
        let layers = [(Layer::Syscall, Op::Read), (Layer::Blk, Op::Read)];
        let info = |(layer, op)| OpInfo {
            layer,
            op,
            moves_bytes: true,
            points: vec![AttachPoint {
                function: "sys_enter".to_owned(),
                hook: Hook::Tracepoint,
            }],
            refused: Vec::new(),
            not_measured: Vec::new(),
            absent: None,
        };
        let layer = |(layer, _)| LayerInfo {
            layer,
            refused: None,
            not_measured: Vec::new(),
            completions_skip_interrupts: false,
        };
        RunInfo {
            top: 3,
            by: Some(By::Process),
            layers: layers.map(layer).to_vec(),
            ops: layers.map(info).to_vec(),
            probes: vec![ProbeInfo {
                layer: Some(Layer::Syscall),
                hook: Hook::Tracepoint,
                functions: vec!["sys_enter".to_owned()],
            }],
            block: Some(BlockInfo {
                hook: Hook::RawTracepoint,
                is_bio_based: false,
                issue: event("block_rq_issue"),
                end: event("block_rq_complete"),
                queue_from: Some("block_io_start".to_owned()),
                lossy: None,
            }),
            stack: Some(StackInfo {
                layers: layers.map(|(layer, _)| (layer, true)).to_vec(),
                planned: [Row::Lock].into(),
                seen: [Row::Lock].into(),
            }),
            disks: Some(DisksInfo::default()),
            ..RunInfo::default()
        }
    }

    fn moment(calls: u64) -> Snapshot {
        let op = OpCounters {
            total_ns: u128::from(calls) * 100,
            steps: vec![0, calls.into()],
            extremes: Some((1, 1)),
            errnos: [(5, 1)].into(),
            ..OpCounters::default()
        };
        let stack = StackCounters {
            families: vec![FamilyCounters {
                steps: vec![0, calls],
                ..FamilyCounters::default()
            }],
            origins: vec![[calls; 4]],
        };
        Snapshot {
            at_ns: calls,
            wall: jiff::Timestamp::UNIX_EPOCH,
            utc_offset: 19_800,
            ops: vec![op.clone(), op.clone()],
            probes: vec![Default::default()],
            own_ns: calls,
            not_followed: calls,
            stack: Some(stack.clone()),
            groups: Some(GroupsCounters {
                ops: [((2, 0), op)].into(),
                stacks: [(2, stack)].into(),
                who: Default::default(),
            }),
            neighbours: Some(NeighbourCounters::default()),
            disks: Some(Default::default()),
            under_way: Some(Default::default()),
            detached: Vec::new(),
            unread: None,
            warnings: Vec::new(),
        }
    }

    static TEXT: LazyLock<String> = LazyLock::new(|| {
        let lines = [
            serde_json::to_string(&run()).unwrap(),
            serde_json::to_string(&moment(0)).unwrap(),
            serde_json::to_string(&moment(7)).unwrap(),
        ];
        lines.join("\n")
    });

    #[test]
    fn what_is_kept_is_read_back() {
        let (info, moments) = parse(TEXT.as_bytes()).unwrap();
        assert_eq!((info, moments), (run(), vec![moment(0), moment(7)]));
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn damaged_counters_make_a_report_or_none(text in fuzz::text_like(&TEXT)) {
            let Ok((run, moments)) = parse(text.as_bytes()) else { return Ok(()) };
            let text = TextOptions {
                unit: Unit::Nanoseconds,
                summary_only: false,
                verbose: true,
                is_interval: false,
                is_first: true,
                width: None,
            };
            for pair in moments.windows(2) {
                let report = analyse::report(&run, &pair[0], &pair[1]);
                for view in [View::Text(text), View::Json(Form::Full), View::Folded] {
                    view.print(&report, &mut io::sink()).unwrap();
                }
            }
        }
    }
}
