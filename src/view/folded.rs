//! Folded stacks, one per line: `read;syscall;vfs;ext4 38703339`, as `flamegraph.pl` and `inferno` read them. The value
//! is the time of all calls in that row, in nanoseconds. With `--by`, the group is the first frame.
//!
//! Layers are nested in the order of the stack. The layer from which a wait began is not known, so waits are directly
//! below the family. If no layer below the system calls is measured, all time that was not a wait is in one frame,
//! [`NOT_SPLIT`](crate::model::ids::NOT_SPLIT).

use std::io;

use super::{Sheet, View};
use crate::model::ids::{Layer, Lives, Row};
use crate::model::report::Report;
use crate::model::report::stack::{FamilyReport, RowReport};
use crate::printable::printable;

/// Whether the layer of a row has others below it.
fn is_above(row: Row) -> bool {
    match row {
        Row::Layer(Layer::Syscall | Layer::Vfs) => true,
        Row::Layer(layer) => layer.lives() == Some(Lives::Above),
        _ => false,
    }
}

/// Reports as folded stacks, without slow calls.
#[derive(Debug, Clone, Copy)]
pub struct Folded;

impl View for Folded {
    fn report(&mut self, report: &Report, sheet: &mut Sheet<'_>) -> io::Result<()> {
        print(report, &mut sheet.out)
    }
}

/// Prints the whole stack's part of `report`, or nothing if it has none, in a single write.
///
/// # Errors
///
/// Any error from writing to `out`.
pub fn print(report: &Report, out: &mut impl io::Write) -> io::Result<()> {
    let mut text = String::new();
    match (&report.stack, &report.groups) {
        (Some(_), Some(groups)) => {
            for group in &groups.groups {
                families(Some(&frame(&group.who.name())), &group.numbers.families, &mut text);
            }
            if let Some(others) = &groups.others {
                families(Some("others"), &others.numbers.families, &mut text);
            }
        }
        (Some(stack), None) => families(None, &stack.families, &mut text),
        (None, _) => {}
    }
    out.write_all(text.as_bytes())
}

/// A name as a single frame on one line.
fn frame(name: &str) -> String {
    printable(name).replace(';', "?")
}

/// The lines of a set of calls, below the frame `of`.
fn families(of: Option<&str>, families: &[FamilyReport], text: &mut String) {
    for family in families {
        for (rows, ns) in stacks(family) {
            let names = rows.iter().map(|row| family.label(row));
            let path: Vec<&str> = of.into_iter().chain([family.family.name()]).chain(names).collect();
            text.push_str(&format!("{} {ns}\n", path.join(";")));
        }
    }
}

/// The rows with time, each below the layers that are above it, and that time.
pub(super) fn stacks(family: &FamilyReport) -> impl Iterator<Item = (Vec<&RowReport>, u64)> {
    let above = family.rows.iter().filter(|row| is_above(row.row));
    let above: Vec<&RowReport> = above.filter(|row| row.calls.is_some_and(|calls| calls > 0)).collect();
    family.rows.iter().filter_map(move |row| {
        let ns = row.ns.filter(|ns| *ns > 0)?;
        let outer = above.iter().filter(|_| row.is_layer());
        let outer = outer.take_while(|outer| outer.row != row.row);
        Some((outer.copied().chain([row]).collect(), ns))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::Family;
    use crate::model::report::group::{By, GroupReport, GroupsReport, Numbers, OthersReport, Who};
    use crate::model::report::stack::StackReport;

    #[test]
    fn a_group_is_the_first_frame_whatever_its_name() {
        let ran = |family, ns| Numbers {
            families: vec![FamilyReport {
                rows: vec![RowReport {
                    row: Row::Layer(Layer::Syscall),
                    ns: Some(ns),
                    calls: Some(1),
                }],
                ..FamilyReport::new(family)
            }],
            ..Numbers::default()
        };
        let who = Who::Cgroup {
            path: "/a;b\n c\u{202e}".to_owned(),
        };
        let groups = GroupsReport {
            by: By::Cgroup,
            groups: vec![GroupReport {
                who,
                numbers: ran(Family::Read, 3),
            }],
            others: Some(OthersReport {
                groups: 1,
                no_room: 0,
                numbers: ran(Family::Open, 2),
            }),
            total: Numbers::default(),
        };
        let report = Report {
            stack: Some(StackReport::default()),
            groups: Some(groups),
            ..Report::default()
        };
        let mut text = Vec::new();
        print(&report, &mut text).unwrap();
        let expected = "/a?b  c?;read;kernel (not split) 3\nothers;open;kernel (not split) 2\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }

    #[test]
    fn layers_are_nested_and_waits_are_not() {
        let inner = |layer, ns| (Row::Layer(layer), ns, 2);
        let layers = [
            inner(Layer::Syscall, 5),
            inner(Layer::Vfs, 4),
            inner(Layer::Ext4, 3),
            (Row::Layer(Layer::Overlay), 2, 1),
        ];
        let layers = layers.map(|(row, ns, calls)| (row, ns, Some(calls)));
        let rows = layers.into_iter().chain([(Row::Device, 9, None), (Row::Lock, 0, None)]);
        let rows = rows.map(|(row, ns, calls)| RowReport {
            row,
            ns: Some(ns),
            calls,
        });
        let family = FamilyReport {
            rows: rows.collect(),
            ..FamilyReport::new(Family::Read)
        };
        let report = Report {
            stack: Some(StackReport {
                families: vec![family],
                ..StackReport::default()
            }),
            ..Report::default()
        };
        let mut text = Vec::new();
        print(&report, &mut text).unwrap();
        let expected = "read;syscall 5\nread;syscall;vfs 4\nread;syscall;vfs;overlay;ext4 3\n\
                        read;syscall;vfs;overlay 2\nread;device 9\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}
