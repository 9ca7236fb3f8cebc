//! The icicle of the whole stack: the width of a box is time. All calls are at the top; below them are their families,
//! below a family its layers, each below the one that calls it, and its waits. What is not covered by boxes below a
//! layer is the time that threads ran in the layer itself.

use std::fmt::Write as _;

use super::folded::stacks;
use super::markup::{class, escaped};
use super::text::number::{percent, thousands, time_sum};
use crate::model::ids::Row;
use crate::model::report::stack::FamilyReport;

/// Dimensions in the units of the picture.
pub const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 26.0;
/// An average character of the labels, generously.
const CHARACTER: f64 = 7.2;
/// Between a label and the edges of its box.
const MARGIN: f64 = 5.0;

/// A box with those below it.
struct Node {
    /// `None`: all calls, or a family.
    row: Option<Row>,
    name: &'static str,
    class: &'static str,
    /// What stands before the time in the box's hint.
    hint: String,
    /// The time of the box without those below it.
    own_ns: u64,
    below: Vec<Node>,
}

impl Node {
    fn ns(&self) -> u64 {
        self.below
            .iter()
            .fold(self.own_ns, |sum, node| sum.saturating_add(node.ns()))
    }

    fn depth(&self) -> usize {
        1 + self.below.iter().map(Self::depth).max().unwrap_or(0)
    }
}

/// The tree of these calls.
fn tree(families: &[FamilyReport]) -> Node {
    let mut called: Vec<&FamilyReport> = families.iter().filter(|family| family.count() > 0).collect();
    called.sort_by_key(|family| std::cmp::Reverse(family.total_ns));
    let count = called
        .iter()
        .fold(0_u64, |sum, family| sum.saturating_add(family.count()));
    let calls = |count: u64| format!("{} calls", thousands(count));
    Node {
        row: None,
        name: "all calls",
        class: "all",
        hint: format!("all families, {}", calls(count)),
        own_ns: 0,
        below: called
            .into_iter()
            .map(|family| Node {
                row: None,
                name: family.family.name(),
                class: "family",
                hint: format!("{}, {}", family.family, calls(family.count())),
                own_ns: 0,
                below: rows(family),
            })
            .collect(),
    }
}

/// The layers and waits of a family.
fn rows(family: &FamilyReport) -> Vec<Node> {
    let mut nodes: Vec<Node> = Vec::new();
    for (path, ns) in stacks(family) {
        let mut level = &mut nodes;
        let last = path.len().saturating_sub(1);
        for (depth, row) in path.into_iter().enumerate() {
            let index = match level.iter().position(|node| node.row == Some(row.row)) {
                Some(index) => index,
                None => {
                    let wait = if row.is_layer() { "layer" } else { "wait" };
                    level.push(Node {
                        row: Some(row.row),
                        name: family.label(row),
                        class: class(row.row),
                        hint: format!("{} ({wait}) of {}", family.label(row), family.family),
                        own_ns: 0,
                        below: Vec::new(),
                    });
                    level.len() - 1
                }
            };
            if depth == last {
                level[index].own_ns = level[index].own_ns.saturating_add(ns);
            }
            level = &mut level[index].below;
        }
    }
    nodes
}

/// The boxes as SVG elements, and the height of them all. Empty if there was no time.
#[must_use]
pub fn boxes(families: &[FamilyReport]) -> (String, f64) {
    let tree = tree(families);
    let total = tree.ns();
    let mut svg = String::new();
    if total == 0 {
        return (svg, 0.0);
    }
    draw(&tree, total, total, 0, 0.0, &mut svg);
    (svg, tree.depth() as f64 * HEIGHT)
}

/// Draws a box at its depth from `x` on, and those below it. `of_ns`: the time of its family.
fn draw(node: &Node, of_ns: u64, total_ns: u64, depth: usize, x: f64, svg: &mut String) {
    let ns = node.ns();
    let width = ns as f64 / total_ns as f64 * WIDTH;
    let y = depth as f64 * HEIGHT;
    let own = if node.below.is_empty() || node.own_ns == 0 {
        String::new()
    } else {
        format!(", itself {}", time_sum(node.own_ns))
    };
    let of_family = if depth > 1 {
        format!("{} of the family, ", percent(ns, of_ns))
    } else {
        String::new()
    };
    let hint = format!(
        "{}: {}, {of_family}{} of all{own}",
        node.hint,
        time_sum(ns),
        percent(ns, total_ns)
    );
    // Writing to a String cannot fail.
    let _ = write!(
        svg,
        "<g><title>{}</title><rect class=\"{}\" x=\"{x:.2}\" y=\"{y:.0}\" width=\"{width:.2}\" height=\"{:.0}\"/>",
        escaped(&hint),
        node.class,
        HEIGHT - 1.0
    );
    let room = ((width - 2.0 * MARGIN) / CHARACTER).max(0.0) as usize;
    let name = node.name;
    let forms = [
        format!("{name}  {}  {}", time_sum(ns), percent(ns, total_ns)),
        format!("{name} {}", percent(ns, total_ns)),
        name.to_owned(),
    ];
    if let Some(label) = forms.iter().find(|form| form.chars().count() <= room) {
        let _ = write!(
            svg,
            "<text class=\"in\" x=\"{:.2}\" y=\"{:.0}\">{}</text>",
            x + MARGIN,
            y + HEIGHT * 0.66,
            escaped(label)
        );
    }
    svg.push_str("</g>\n");
    let mut x = x;
    for below in &node.below {
        let of_ns = if depth == 0 { below.ns() } else { of_ns };
        draw(below, of_ns, total_ns, depth + 1, x, svg);
        x += below.ns() as f64 / total_ns as f64 * WIDTH;
    }
}

/// The time of each row in all families together, in the order of the stack: name, class, nanoseconds.
#[must_use]
pub fn sums(families: &[FamilyReport]) -> Vec<(&'static str, &'static str, u64)> {
    let mut sums: Vec<(&'static str, &'static str, u64)> = Vec::new();
    for family in families {
        for row in &family.rows {
            let Some(ns) = row.ns else { continue };
            let name = family.label(row);
            match sums.iter_mut().find(|(known, ..)| *known == name) {
                Some((.., sum)) => *sum = sum.saturating_add(ns),
                None => sums.push((name, class(row.row), ns)),
            }
        }
    }
    sums.retain(|(.., ns)| *ns > 0);
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::{Family, Layer};
    use crate::model::report::stack::RowReport;

    fn family(which: Family, rows: &[(Row, u64)]) -> FamilyReport {
        let mut family = FamilyReport::new(which);
        family.rows = rows
            .iter()
            .map(|(row, ns)| RowReport {
                row: *row,
                ns: Some(*ns),
                calls: (!row.is_wait()).then_some(1),
            })
            .collect();
        family.total_ns = rows.iter().map(|(_, ns)| ns).sum();
        family.histogram.record(family.total_ns);
        family
    }

    /// The class, x and width of each box.
    fn drawn(families: &[FamilyReport]) -> Vec<(String, f64, f64)> {
        let (svg, _) = boxes(families);
        let svg = format!("<svg>{svg}</svg>");
        let document = roxmltree::Document::parse(&svg).unwrap();
        let rects = document.descendants().filter(|node| node.has_tag_name("rect"));
        rects
            .map(|rect| {
                let number = |name| rect.attribute(name).unwrap().parse::<f64>().unwrap();
                (
                    rect.attribute("class").unwrap().to_owned(),
                    number("x"),
                    number("width"),
                )
            })
            .collect()
    }

    #[test]
    fn a_width_is_time_and_a_box_is_above_what_it_calls() {
        let families = [
            family(
                Family::Write,
                &[(Row::Layer(Layer::Syscall), 100), (Row::Layer(Layer::Vfs), 0)],
            ),
            family(
                Family::Read,
                &[
                    (Row::Layer(Layer::Syscall), 50),
                    (Row::Layer(Layer::Vfs), 30),
                    (Row::Layer(Layer::Ext4), 20),
                    (Row::Device, 200),
                    (Row::Lock, 0),
                ],
            ),
        ];
        let expected = [
            ("all", 0.0, 1200.0),
            ("family", 0.0, 900.0),
            ("syscall", 0.0, 300.0),
            ("vfs", 0.0, 150.0),
            ("fs", 0.0, 60.0),
            ("device", 300.0, 600.0),
            ("family", 900.0, 300.0),
            ("syscall", 900.0, 300.0),
        ];
        let expected: Vec<(String, f64, f64)> = expected.map(|(class, x, width)| (class.to_owned(), x, width)).into();
        assert_eq!(drawn(&families), expected);
        let (svg, height) = boxes(&families);
        assert!(height == 5.0 * HEIGHT, "{height}");
        let hint = "device (wait) of read: 200 ns, 66.7 % of the family, 50.0 % of all";
        assert!(svg.contains(hint), "{svg}");
        assert!(
            svg.contains("syscall (layer) of read: 100 ns, 33.3 % of the family, 25.0 % of all, itself 50 ns"),
            "{svg}"
        );
        let sums = sums(&families);
        assert!(sums.contains(&("syscall", "syscall", 150)) && !sums.iter().any(|(name, ..)| *name == "lock"));
    }

    #[test]
    fn no_time_is_no_picture() {
        assert_eq!(boxes(&[]).0, "");
        assert_eq!(boxes(&[FamilyReport::new(Family::Read)]).0, "");
    }
}
