//! Answers from records, which are folded as they come: the state grows with the files, processes and disks that they
//! name, not with their number.

pub mod access;
pub mod counters;
pub mod groups;
pub mod limits;
pub mod lost;
pub mod moment;
pub mod names;
pub mod order;
pub mod quick;
pub mod run;
pub mod seeks;
pub mod slow;
#[cfg(test)]
pub(crate) mod synthetic;
pub mod usage;
mod waited;

use self::access::Access;
use self::limits::Limits;
use self::lost::LostRecords;
use self::names::Names;
use self::seeks::Seeks;
use self::usage::Usage;
use crate::model::record::{Kind, Records};
use crate::model::report::records::{LimitsReport, Questions, RecordsReport, SeeksReport};

/// Folds records into the requested answers.
#[derive(Debug)]
pub struct Answers {
    names: Names,
    lost: LostRecords,
    span: Option<(u64, u64)>,
    access: Option<Access>,
    seeks: Option<Seeks>,
    limits: Option<Limits>,
    /// Of answers that show disks.
    usage: Option<Usage>,
    top: usize,
}

impl Answers {
    /// `names`: what is known before the first record, such as the names of disks.
    #[must_use]
    pub fn new(questions: &Questions, names: Names) -> Self {
        let has_limits = !questions.limits.is_empty();
        Self {
            names,
            lost: LostRecords::default(),
            span: None,
            access: questions.access.then(Access::default),
            seeks: questions.seeks.map(Seeks::new),
            limits: has_limits.then(|| Limits::new(&questions.limits)),
            usage: (has_limits || questions.seeks.is_some()).then(Usage::default),
            top: match questions.top {
                0 => usize::MAX,
                top => top,
            },
        }
    }

    /// Sets the recorded time, in nanoseconds of the programs' clock, before the first record. Without it, it is that of
    /// the records.
    pub fn set_span(&mut self, from_ns: u64, to_ns: u64) {
        self.span = Some((from_ns, to_ns));
        if let Some(usage) = &mut self.usage {
            usage.set_span(from_ns, to_ns);
        }
    }

    /// Folds the next records.
    pub fn take(&mut self, records: &Records) {
        self.names.learn(records);
        self.lost.take(records);
        if let Some(access) = &mut self.access {
            access.take(records, &self.names);
        }
        if let Some(seeks) = &mut self.seeks {
            seeks.take(records, &self.names);
        }
        if let Some(limits) = &mut self.limits {
            limits.take(records, &self.names);
        }
        if let Some(usage) = &mut self.usage {
            usage.take(records, &self.names);
        }
    }

    /// The answers to what was folded.
    #[must_use]
    pub fn finish(self) -> RecordsReport {
        let Self {
            names,
            lost,
            span,
            access,
            seeks,
            limits,
            usage,
            top,
        } = self;
        let used = usage.map(|usage| usage.finish(&names)).unwrap_or_default();
        let end_ns = span.map(|(_, to_ns)| to_ns);
        let mut kinds = Vec::new();
        if access.is_some() {
            kinds.extend([Kind::Call, Kind::Request, Kind::Async, Kind::File]);
        }
        if seeks.is_some() {
            kinds.push(Kind::Request);
        }
        if limits.is_some() {
            kinds.extend([Kind::Call, Kind::Request, Kind::Async]);
        }
        RecordsReport {
            access: access.map(|access| access.finish(&names, top)),
            seeks: seeks.map(|seeks| seeks.finish(&names, top, &used)),
            limits: limits.map(|limits| LimitsReport {
                limits: limits.finish(&names, end_ns),
                disks: used,
            }),
            incomplete: lost.of(&kinds),
        }
    }
}

impl Seeks {
    /// The report, with the use of each disk.
    fn finish(self, names: &Names, top: usize, used: &[crate::model::report::records::DiskUsage]) -> SeeksReport {
        let mut report = self.report(names, top);
        for disk in &mut report.disks {
            if let Some(usage) = used.iter().find(|usage| usage.disk == disk.disk) {
                disk.usage = usage.clone();
            }
        }
        report
    }
}
