//! The output of `--check`: facts about the machine, each probe and whether it fires, and what each layer counted.

use std::fmt::Write as _;

use crate::model::ids::{Hook, Layer, Op, joined};
use crate::printable::printable;

/// The results of a check.
#[derive(Debug, Clone, Default)]
pub struct CheckReport {
    /// Names and values at the head of the output.
    pub facts: Vec<(&'static str, String)>,
    pub rows: Vec<Row>,
    pub layers: Vec<LayerVerdict>,
}

/// One probe, or one function without a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub layer: Layer,
    /// The op's name, or a word for all ops of a layer.
    pub op: &'static str,
    /// A function, or a tracepoint.
    pub function: String,
    /// As named in reports; `None`: nothing is attached.
    pub hook: Option<Hook>,
    pub verdict: Verdict,
}

/// Whether a probe fires, or why not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Fires,
    /// Attached, but never hit.
    NotHit,
    /// Attached, but this machine does not count its runs.
    Unknown,
    /// The kernel does not have it.
    Absent,
    Refused(String),
    /// Its operation was not tried.
    NotTried(String),
}

/// Which ops of a layer were counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerVerdict {
    pub layer: Layer,
    pub counted: Vec<Op>,
    pub not_counted: Vec<Op>,
}

impl Verdict {
    fn describe(&self) -> String {
        match self {
            Self::Fires => "yes".to_owned(),
            Self::NotHit => "no".to_owned(),
            Self::Unknown => "unknown: probe runs are not counted".to_owned(),
            Self::Absent => "not in this kernel".to_owned(),
            Self::Refused(error) => format!("refused: {error}"),
            Self::NotTried(why) => format!("not tried: {why}"),
        }
    }
}

impl CheckReport {
    /// The output as text. Only a reason can make a line long.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, value) in &self.facts {
            let _ = writeln!(text, "{name:<12}{}", printable(value));
        }
        text.push('\n');
        let heading = ["layer", "op", "function", "hook", "hit"].map(str::to_owned);
        let cells = self.rows.iter().map(|row| {
            let hook = row.hook.map_or("-", Hook::name);
            [row.layer.name(), row.op, &row.function, hook, &row.verdict.describe()].map(printable)
        });
        let table: Vec<[String; 5]> = std::iter::once(heading).chain(cells).collect();
        let mut widths = [0; 4];
        for row in &table {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = cell.chars().count().max(*width);
            }
        }
        for row in &table {
            for (cell, width) in row.iter().zip(widths) {
                let _ = write!(text, "{cell:<width$}  ");
            }
            let _ = writeln!(text, "{}", row[4]);
        }
        text.push('\n');
        for layer in &self.layers {
            let (counted, all) = (layer.counted.len(), layer.counted.len() + layer.not_counted.len());
            let _ = write!(text, "{}: {counted} of {all} operations counted", layer.layer);
            if !layer.not_counted.is_empty() {
                let _ = write!(text, "; not counted: {}", joined(&layer.not_counted, Op::name));
            }
            if counted == 0 {
                text.push_str("; it cannot be measured here");
            }
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_a_row_for_each_probe() {
        let row = |op, function: &str, hook, verdict| Row {
            layer: Layer::Vfs,
            op,
            function: function.to_owned(),
            hook,
            verdict,
        };
        let report = CheckReport {
            facts: vec![("kernel", "6.1.0\u{1b}\u{202e}".to_owned())],
            rows: vec![
                row("read", "vfs_read", Some(Hook::Fentry), Verdict::Fires),
                row(
                    "read",
                    "io_read",
                    Some(Hook::Fentry),
                    Verdict::NotTried("EPERM\u{2028}".to_owned()),
                ),
                row("fsync", "do_fsync", None, Verdict::Absent),
            ],
            layers: vec![LayerVerdict {
                layer: Layer::Vfs,
                counted: vec![Op::Read],
                not_counted: vec![Op::Fsync, Op::Open],
            }],
        };
        let expected = "\
kernel      6.1.0??

layer  op     function  hook          hit
vfs    read   vfs_read  fentry/fexit  yes
vfs    read   io_read   fentry/fexit  not tried: EPERM?
vfs    fsync  do_fsync  -             not in this kernel

vfs: 1 of 3 operations counted; not counted: fsync, open
";
        assert_eq!(report.text(), expected);
    }
}
