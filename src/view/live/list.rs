//! The lists of the live view: groups, open files and slow calls, filtered and sorted.

use std::collections::BTreeMap;

use super::history::Beside;
use crate::model::histogram::{least_calls, widest};
use crate::model::ids::{By, Row};
use crate::model::owner::unit;
use crate::model::report::Report;
use crate::model::report::group::{GroupsReport, Numbers, Who};
use crate::model::report::moment::{Moment, MomentGroup};
use crate::model::report::slow::SlowCall;

/// What groups are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dimension {
    By(By),
    /// Units of systemd, by the names of control groups.
    Unit,
}

impl Dimension {
    /// In the order of the keys.
    pub const ALL: [Self; 5] = [
        Self::By(By::File),
        Self::By(By::Process),
        Self::By(By::Disk),
        Self::By(By::Cgroup),
        Self::Unit,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::By(by) => by.name(),
            Self::Unit => "unit",
        }
    }

    /// What has to be counted for it.
    fn counted(self) -> By {
        match self {
            Self::By(by) => by,
            Self::Unit => By::Cgroup,
        }
    }

    /// The next one.
    #[must_use]
    pub fn next(self) -> Self {
        let at = Self::ALL.iter().position(|known| *known == self).unwrap_or(0);
        Self::ALL[(at + 1) % Self::ALL.len()]
    }
}

/// What lists are sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Sort {
    #[default]
    Time,
    Calls,
    Bytes,
    /// p99, or the longest call.
    Tail,
    Name,
}

impl Sort {
    pub const ALL: [Self; 5] = [Self::Time, Self::Calls, Self::Bytes, Self::Tail, Self::Name];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Calls => "calls",
            Self::Bytes => "bytes",
            Self::Tail => "longest",
            Self::Name => "name",
        }
    }

    /// The one after it, or before it.
    #[must_use]
    pub fn moved(self, is_forward: bool) -> Self {
        let all = Self::ALL.len();
        let at = Self::ALL.iter().position(|known| *known == self).unwrap_or(0);
        Self::ALL[(at + if is_forward { 1 } else { all - 1 }) % all]
    }
}

/// A line of a list of groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub name: String,
    /// Of a process.
    pub pid: Option<u64>,
    pub calls: u64,
    pub ns: u64,
    pub bytes: u64,
    /// p99 of its calls if there are enough, or else the longest one; `None`: not known.
    pub tail: Option<Tail>,
    /// The row with most of its time, and that time.
    pub mostly: Option<(Row, u64)>,
}

/// How long calls took at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tail {
    P99(u64),
    Longest(u64),
}

impl Tail {
    #[must_use]
    pub fn ns(self) -> u64 {
        match self {
            Self::P99(ns) | Self::Longest(ns) => ns,
        }
    }
}

/// The groups of a second, or why there are none.
///
/// # Errors
/// If the dimension was not counted and there are no records, in one line with what to do.
pub fn groups(report: &Report, beside: &Beside, of: Dimension) -> Result<Vec<Group>, String> {
    // Without the whole stack no group has calls of families, whose numbers these are.
    let counted = report.groups.as_ref().filter(|_| report.stack.is_some());
    if let Some(groups) = counted.filter(|groups| groups.by == of.counted()) {
        return Ok(match of {
            Dimension::By(_) => from_counters(groups),
            Dimension::Unit => by_unit(groups),
        });
    }
    let moment = beside.moment.as_ref();
    let recorded = moment.and_then(|moment| moment.groups.iter().find(|(by, _)| Dimension::By(*by) == of));
    if let Some((_, groups)) = recorded {
        return Ok(groups.iter().map(from_records).collect());
    }
    let by = of.counted();
    let has = counted.map(|groups| format!("counted by {}; ", groups.by));
    Err(format!("{}{} need --by {by}", has.unwrap_or_default(), plural(of)))
}

fn plural(of: Dimension) -> &'static str {
    match of {
        Dimension::By(by) => by.plural(),
        Dimension::Unit => "units",
    }
}

fn from_counters(groups: &GroupsReport) -> Vec<Group> {
    let named = groups.groups.iter().map(|group| of_numbers(&group.who, &group.numbers));
    let others = groups.others.as_ref().map(|others| Group {
        name: match others.groups {
            0 => "(others)".to_owned(),
            n => format!("({n} others)"),
        },
        pid: None,
        ..numbers(String::new(), &others.numbers)
    });
    named.chain(others).collect()
}

fn of_numbers(who: &Who, of: &Numbers) -> Group {
    Group {
        pid: match who {
            Who::Process { pid, .. } => Some(*pid),
            _ => None,
        },
        ..numbers(who.name(), of)
    }
}

const P99: f64 = 0.99;

fn numbers(name: String, of: &Numbers) -> Group {
    let sums = of.sums(None);
    // Families of a report have the same rows.
    let rows = of.families.first().map_or(&[][..], |family| &family.rows).iter();
    let rows = rows.enumerate().map(|(at, row)| {
        let all = of.families.iter().filter_map(|family| family.rows.get(at)?.ns);
        (row.row, all.fold(0, u64::saturating_add))
    });
    let extremes = of.families.iter().filter_map(|family| family.extremes);
    let extremes = extremes.reduce(widest);
    // Most groups have too few calls in a second.
    let p99 = least_calls(P99).filter(|least| sums.count >= *least).and_then(|_| {
        let mut histograms = of.families.iter().map(|family| &family.histogram);
        let mut histogram = histograms.next()?.clone();
        histograms.for_each(|other| histogram.add(other));
        histogram.quantile(P99, extremes).map(Tail::P99)
    });
    Group {
        name,
        pid: None,
        calls: sums.count,
        ns: sums.ns,
        bytes: sums.bytes,
        tail: p99.or(extremes.map(|(_, longest)| Tail::Longest(longest))),
        mostly: rows.max_by_key(|(_, ns)| *ns).filter(|(_, ns)| *ns > 0),
    }
}

fn from_records(group: &MomentGroup) -> Group {
    Group {
        name: group.who.name(),
        pid: match group.who {
            Who::Process { pid, .. } => Some(pid),
            _ => None,
        },
        calls: group.calls,
        ns: group.ns,
        bytes: group.bytes,
        tail: Some(Tail::Longest(group.longest_ns)),
        mostly: group.rows.first().copied(),
    }
}

fn by_unit(groups: &GroupsReport) -> Vec<Group> {
    let mut units: BTreeMap<String, Numbers> = BTreeMap::new();
    let named = groups.groups.iter().map(|group| {
        let name = match &group.who {
            Who::Cgroup { path } => unit(path).unwrap_or("(no unit)").to_owned(),
            _ => "(no unit)".to_owned(),
        };
        (name, &group.numbers)
    });
    let others = groups
        .others
        .iter()
        .map(|others| ("(others)".to_owned(), &others.numbers));
    for (name, numbers) in named.chain(others) {
        units.entry(name).or_default().add(numbers);
    }
    units.into_iter().map(|(name, of)| numbers(name, &of)).collect()
}

/// Whether a name is shown. `filter` is in lower case; an empty one shows all.
fn passes(filter: &str, name: &str) -> bool {
    filter.is_empty() || name.to_lowercase().contains(filter)
}

/// Removes what the filter hides, and sorts the rest.
pub fn arrange(groups: &mut Vec<Group>, filter: &str, sort: Sort) {
    let filter = filter.to_lowercase();
    groups.retain(|group| passes(&filter, &group.name));
    let tail = |group: &Group| group.tail.map_or(0, Tail::ns);
    groups.sort_by(|a, b| {
        let order = match sort {
            Sort::Time => b.ns.cmp(&a.ns),
            Sort::Calls => b.calls.cmp(&a.calls),
            Sort::Bytes => b.bytes.cmp(&a.bytes),
            Sort::Tail => tail(b).cmp(&tail(a)),
            Sort::Name => std::cmp::Ordering::Equal,
        };
        order.then_with(|| a.name.cmp(&b.name))
    });
}

/// The open files of a process in a second, as groups; the first byte count is in `bytes`.
///
/// # Errors
/// If there are no records, in one line with what to do.
pub fn open_files(moment: Option<&Moment>, pid: u64) -> Result<Vec<OpenFile>, String> {
    let Some(moment) = moment else {
        return Err("open files need records of single calls: --live -o FILE".to_owned());
    };
    let files = moment.open_files.iter().filter(|file| u64::from(file.pid) == pid);
    Ok(files
        .map(|file| OpenFile {
            fd: file.fd,
            name: file.who.name(),
            read_bytes: file.read_bytes,
            written_bytes: file.written_bytes,
            calls: file.calls,
            ns: file.ns,
            longest_ns: file.longest_ns,
        })
        .collect())
}

/// An open file of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenFile {
    pub fd: Option<i32>,
    pub name: String,
    pub read_bytes: u64,
    pub written_bytes: u64,
    pub calls: u64,
    pub ns: u64,
    pub longest_ns: u64,
}

/// The same for open files.
pub fn arrange_files(files: &mut Vec<OpenFile>, filter: &str, sort: Sort) {
    let filter = filter.to_lowercase();
    files.retain(|file| passes(&filter, &file.name));
    let bytes = |file: &OpenFile| file.read_bytes.saturating_add(file.written_bytes);
    files.sort_by(|a, b| {
        let order = match sort {
            Sort::Time => b.ns.cmp(&a.ns),
            Sort::Calls => b.calls.cmp(&a.calls),
            Sort::Bytes => bytes(b).cmp(&bytes(a)),
            Sort::Tail => b.longest_ns.cmp(&a.longest_ns),
            Sort::Name => std::cmp::Ordering::Equal,
        };
        order.then_with(|| a.name.cmp(&b.name)).then_with(|| a.fd.cmp(&b.fd))
    });
}

/// Whether a slow call is shown.
#[must_use]
pub fn shows_call(call: &SlowCall, filter: &str) -> bool {
    if filter.is_empty() {
        return true;
    }
    let filter = filter.to_lowercase();
    let path = call.path.as_ref().map_or("", |path| &path.text);
    let process = format!("{} {}", call.comm, call.pid);
    [&process, path, call.op.name()]
        .iter()
        .any(|name| passes(&filter, name))
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn groups_are_those_that_were_counted_or_recorded() {
        let (report, beside) = (example::report(3), example::beside(3));
        let counted = groups(&report, &beside, Dimension::By(By::Process)).unwrap();
        let numbers = report.groups.as_ref().unwrap();
        assert_eq!(counted.len(), numbers.groups.len() + 1);
        assert_eq!(counted[0].ns, numbers.groups[0].numbers.ns());
        assert!(counted[0].pid.is_some() && counted.last().unwrap().pid.is_none());
        let recorded = groups(&report, &beside, Dimension::By(By::File)).unwrap();
        assert_eq!(recorded.len(), beside.moment.as_ref().unwrap().groups[0].1.len());
        assert_eq!(
            groups(&report, &Beside::default(), Dimension::By(By::File)).unwrap_err(),
            "counted by process; files need --by file"
        );
        assert!(
            groups(&report, &beside, Dimension::Unit)
                .unwrap_err()
                .ends_with("; units need --by cgroup")
        );
    }

    #[test]
    fn without_the_whole_stack_groups_are_those_of_records() {
        let (mut report, mut beside) = (example::report(3), example::beside(3));
        report.stack = None;
        let of = Dimension::By(By::Process);
        assert_eq!(groups(&report, &beside, of).unwrap_err(), "processes need --by process");
        let moment = beside.moment.as_mut().unwrap();
        moment.groups[0].0 = By::Process;
        let recorded = moment.groups[0].1.len();
        assert_eq!(groups(&report, &beside, of).unwrap().len(), recorded);
    }

    #[test]
    fn a_unit_has_the_control_groups_below_it() {
        let mut report = example::report(3);
        let groups_of = report.groups.as_mut().unwrap();
        groups_of.by = By::Cgroup;
        for (index, group) in groups_of.groups.iter_mut().enumerate() {
            let name = if index < 2 { "a" } else { "b" };
            group.who = Who::Cgroup {
                path: format!("/system.slice/{name}.service/{index}"),
            };
        }
        let both: u64 = groups_of.groups[..2].iter().map(|group| group.numbers.ns()).sum();
        let units = groups(&report, &Beside::default(), Dimension::Unit).unwrap();
        let a = units.iter().find(|unit| unit.name == "a.service").unwrap();
        assert_eq!(a.ns, both);
    }

    #[test]
    fn lists_are_sorted_and_filtered() {
        let (report, beside) = (example::report(3), example::beside(3));
        let all = groups(&report, &beside, Dimension::By(By::Process)).unwrap();
        for sort in Sort::ALL {
            let mut sorted = all.clone();
            arrange(&mut sorted, "", sort);
            assert_eq!(sorted.len(), all.len());
            let is_before = |pair: &[Group]| match sort {
                Sort::Time => pair[0].ns >= pair[1].ns,
                Sort::Calls => pair[0].calls >= pair[1].calls,
                Sort::Bytes => pair[0].bytes >= pair[1].bytes,
                Sort::Tail => pair[0].tail.map(Tail::ns) >= pair[1].tail.map(Tail::ns),
                Sort::Name => pair[0].name <= pair[1].name,
            };
            assert!(sorted.windows(2).all(is_before), "{sort:?}");
            assert_eq!(sort.moved(true).moved(false), sort);
        }
        let mut some = all.clone();
        arrange(&mut some, "POST", Sort::Time);
        assert!(!some.is_empty() && some.len() < all.len());
        assert!(some.iter().all(|group| group.name.contains("post")));
    }

    #[test]
    fn open_files_are_those_of_the_process() {
        let beside = example::beside(3);
        let mut files = open_files(beside.moment.as_ref(), 4711).unwrap();
        arrange_files(&mut files, "", Sort::Bytes);
        assert_eq!(files.iter().map(|file| file.fd).collect::<Vec<_>>(), [Some(8), Some(7)]);
        assert!(open_files(None, 4711).is_err());
    }

    #[test]
    fn a_slow_call_is_found_by_process_path_and_operation() {
        let (calls, _) = example::slow(3);
        assert!(
            ["postgres 4711", "/srv/", "fdatasync", ""]
                .iter()
                .all(|filter| shows_call(&calls[0], filter))
        );
        assert!(!shows_call(&calls[0], "mysqld"));
    }
}
