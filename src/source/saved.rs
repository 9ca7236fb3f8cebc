//! Saves counters and events to a file, to be read later by another process, without privileges, or on another machine.
//!
//! The file has the data of the run, then its items: each preceded by its length in bytes, in the compact format of
//! `postcard`.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::vec;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::cause::Cause;
use crate::model::events::Events;
use crate::model::run_info::RunInfo;
use crate::model::snapshot::Snapshot;

use super::{Item, Source, SourceError, Until};

/// A saved item.
#[derive(Serialize, Deserialize)]
enum Kept<S, E> {
    Snapshot(S),
    Events(E),
}

/// Saves the items of a source.
pub struct Keeper(BufWriter<File>);

impl Keeper {
    /// # Errors
    /// If the file cannot be created, in one line.
    pub fn create(path: &Path) -> Result<Self, Cause> {
        let file = File::create(path);
        let file = file.map_err(|error| Cause::of(format_args!("cannot write '{}'", path.display()), &error))?;
        Ok(Self(BufWriter::new(file)))
    }

    /// Saves the run's data, which comes first.
    ///
    /// # Errors
    /// If it cannot be written, in one line.
    pub fn run(&mut self, run: &RunInfo) -> Result<(), String> {
        self.record(run)
    }

    /// Saves a snapshot, which is in the file on return.
    ///
    /// # Errors
    /// As above.
    pub fn snapshot(&mut self, snapshot: &Snapshot) -> Result<(), String> {
        self.record(&Kept::<_, ()>::Snapshot(snapshot))?;
        self.0.flush().map_err(cannot_save)
    }

    /// Saves events.
    ///
    /// # Errors
    /// As above.
    pub fn events(&mut self, events: &Events) -> Result<(), String> {
        self.record(&Kept::<(), _>::Events(events))
    }

    fn record(&mut self, what: &impl Serialize) -> Result<(), String> {
        let bytes = postcard::to_allocvec(what).map_err(cannot_save)?;
        self.0
            .write_all(&(bytes.len() as u64).to_le_bytes())
            .map_err(cannot_save)?;
        self.0.write_all(&bytes).map_err(cannot_save)
    }
}

fn cannot_save(error: impl std::fmt::Display) -> String {
    format!("cannot save the snapshots: {error}")
}

/// A saved run.
pub struct Saved {
    info: RunInfo,
    items: vec::IntoIter<Item>,
}

impl Saved {
    /// # Errors
    /// If the file cannot be read, or does not contain a run.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::parse(&fs::read(path)?)
    }

    fn parse(mut bytes: &[u8]) -> io::Result<Self> {
        let info = record(&mut bytes)?;
        let mut items = Vec::new();
        while !bytes.is_empty() {
            items.push(match record(&mut bytes)? {
                Kept::Snapshot(snapshot) => Item::Snapshot(Box::new(snapshot)),
                Kept::Events(events) => Item::Events(events),
            });
        }
        Ok(Self {
            info,
            items: items.into_iter(),
        })
    }
}

impl Source for Saved {
    fn info(&self) -> &RunInfo {
        &self.info
    }

    /// Ignores `until`, since the run is over.
    fn next(&mut self, _: Until) -> Result<Item, SourceError> {
        Ok(self.items.next().unwrap_or(Item::Nothing))
    }
}

/// Reads the next record.
fn record<T: DeserializeOwned>(bytes: &mut &[u8]) -> io::Result<T> {
    let cut = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let length = bytes.split_off(..size_of::<u64>()).ok_or_else(cut)?;
    let length = length.try_into().map(u64::from_le_bytes).map_err(io::Error::other)?;
    let record = usize::try_from(length)
        .ok()
        .and_then(|length| bytes.split_off(..length));
    postcard::from_bytes(record.ok_or_else(cut)?).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, LazyLock};

    use proptest::prelude::*;

    use super::*;
    use crate::analyse;
    use crate::fuzz;
    use crate::model::ids::{By, Hook, Layer, Op, Row};
    use crate::model::report::AttachPoint;
    use crate::model::report::slow::{LeftOut, SlowCall, SlowRow};
    use crate::model::run_info::{BlockEvent, BlockInfo, DisksInfo, LayerInfo, OpInfo, ProbeInfo, StackInfo};
    use crate::model::snapshot::{
        FamilyCounters, GroupsCounters, NeighbourCounters, OpCounters, StackCounters, StackIncreases, StackTotals,
    };
    use crate::view::json::Form;
    use crate::view::text::TextOptions;
    use crate::view::{Folded, Json, Screen, Sheet, Text, View};

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
            points: [AttachPoint {
                function: "sys_enter".to_owned(),
                hook: Hook::Tracepoint,
            }]
            .into(),
            refused: Arc::default(),
            not_measured: Vec::new(),
            absent: None,
            is_partial: false,
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
                flags: std::collections::BTreeMap::new(),
            }),
            stack: Some(StackInfo {
                layers: layers.map(|(layer, _)| (layer, true)).to_vec(),
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
            families: vec![Arc::new(FamilyCounters {
                steps: [0, calls][..].into(),
                ..FamilyCounters::default()
            })],
            origins: Arc::new(vec![[calls; 4]]),
        };
        Snapshot {
            at_ns: calls,
            wall: jiff::Timestamp::UNIX_EPOCH,
            utc_offset: 19_800,
            ops: vec![Arc::new(op.clone()), Arc::new(op.clone())],
            probes: vec![Default::default()],
            own_ns: calls,
            not_followed: calls,
            stack: Some(stack.clone()),
            groups: Some(GroupsCounters {
                ops: [((2, 0), op)].into(),
                stacks: StackIncreases::since(&StackTotals::new(), &[(2, stack)].into()),
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

    fn events() -> Events {
        let mut call = SlowCall {
            op: Op::Read,
            ..SlowCall::default()
        };
        call.total_ns = 7;
        call.rows = vec![SlowRow { row: Row::Lock, ns: 7 }];
        Events {
            slow_calls: vec![call],
            utc_offset: 19_800,
            left_out: LeftOut { limited: 1, no_room: 2 },
            ..Events::default()
        }
    }

    static BYTES: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let records = [
            postcard::to_allocvec(&run()).unwrap(),
            postcard::to_allocvec(&Kept::<_, ()>::Snapshot(moment(0))).unwrap(),
            postcard::to_allocvec(&Kept::<(), _>::Events(events())).unwrap(),
            postcard::to_allocvec(&Kept::<_, ()>::Snapshot(moment(7))).unwrap(),
        ];
        let with_length = |record: &Vec<u8>| [&(record.len() as u64).to_le_bytes()[..], record].concat();
        records.iter().flat_map(with_length).collect()
    });

    #[test]
    fn what_is_kept_is_read_back() {
        let mut saved = Saved::parse(&BYTES).unwrap();
        assert_eq!(saved.info(), &run());
        let items: [Item; 4] = std::array::from_fn(|_| saved.next(Until::Now).unwrap());
        let snapshot = |calls| Item::Snapshot(Box::new(moment(calls)));
        let expected = [snapshot(0), Item::Events(events()), snapshot(7), Item::Nothing];
        assert_eq!(items, expected);
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn damaged_counters_make_a_report_or_none(bytes in fuzz::bytes_like(&BYTES[..])) {
            let Ok(mut saved) = Saved::parse(&bytes) else { return Ok(()) };
            let text = TextOptions {
                verbose: true,
                is_first: true,
                ..TextOptions::default()
            };
            let mut views: [Box<dyn View>; 3] = [Box::new(Text::new(text, false)), Box::new(Json(Form::Full)), Box::new(Folded)];
            let mut before = None;
            loop {
                let mut sheet = Sheet { out: &mut io::sink(), screen: Screen::default() };
                match saved.next(Until::Now).unwrap() {
                    Item::Nothing => break,
                    Item::Events(events) => views.iter_mut().for_each(|view| view.events(&events, &mut sheet).unwrap()),
                    Item::Snapshot(after) => {
                        let report = analyse::report(&saved.info, before.as_ref().unwrap_or(&after), &after);
                        for view in &mut views {
                            if before.is_none() {
                                view.begin(&report, &mut sheet).unwrap();
                            }
                            view.report(&report, &mut sheet).unwrap();
                        }
                        before = Some(*after);
                    }
                }
            }
        }
    }
}
