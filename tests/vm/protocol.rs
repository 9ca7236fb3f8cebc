//! The protocol between the runner and its guest.
//!
//! From the runner: a file in the initramfs. From the guest: lines on the second serial port. Both consist of lines
//! with fields separated by tabs, in which tabs, line feeds and backslashes are escaped.

use std::fmt::Write as _;

/// The guest's orders. If the file exists, init knows that it runs in one of these guests.
pub const ORDERS: &str = "/etc/iosb-vm";
/// The tool under test, in the guest.
pub const TOOL: &str = "/bin/IOStackBreakdown";
/// Module files and the list of them, in the guest.
pub const MODULES: &str = "/lib/modules";
/// The list: a module and those it depends on, in load order, a line each.
pub const MODULE_LIST: &str = "/lib/modules/list";

/// A disk in memory with a limited rate, by its serial number.
pub const THROTTLED: &str = "throttled";
pub const THROTTLED_IOPS: u32 = 400;
/// The disk with other tools, by its serial number.
pub const PEERS: &str = "peers";

/// The variant of a kernel on a machine with one CPU, whose clock counts instructions. Only the checks of costs run
/// there.
pub const COUNTED: &str = "counted";
/// The same on a machine with eight CPUs, whose concurrent work adds up on its clock.
pub const COUNTED_8: &str = "counted-8";

/// The variant of a kernel with more possible CPUs than fit into a single value of counters.
pub const LARGE: &str = "possible_cpus=64";

/// The number of CPUs of a variant whose clock counts instructions; `None` for others.
#[must_use]
pub fn counted_cpus(variant: &str) -> Option<u32> {
    match variant {
        COUNTED => Some(1),
        COUNTED_8 => Some(8),
        _ => None,
    }
}

/// The orders of a guest.
#[derive(Debug, Default, PartialEq)]
pub struct Orders {
    /// The kernel's name in the matrix, such as `6.1-full`.
    pub kernel: String,
    /// The word added to its command line, such as `preempt=full`; empty if none.
    pub variant: String,
    /// Run only checks whose name contains this.
    pub filter: Option<String>,
    /// Run every applicable check, not only those selected for this configuration.
    pub every: bool,
    /// Run a check in one of the configurations for which it is selected.
    pub once: bool,
    /// Measure everything in the table of costs, not only the limited figures.
    pub table: bool,
    /// Run this command instead of the checks.
    pub exec: Option<Vec<String>>,
}

impl Orders {
    /// The configuration's name: the kernel's, and the word added to its command line.
    pub fn configuration(&self) -> String {
        format!("{} {}", self.kernel, self.variant).trim_end().into()
    }

    pub fn to_text(&self) -> String {
        let mut text = line(&["kernel", &self.kernel]) + &line(&["variant", &self.variant]);
        if let Some(filter) = &self.filter {
            text += &line(&["filter", filter]);
        }
        if self.every {
            text += &line(&["every"]);
        }
        if self.once {
            text += &line(&["once"]);
        }
        if self.table {
            text += &line(&["table"]);
        }
        if let Some(command) = &self.exec {
            let mut all = vec!["exec"];
            all.extend(command.iter().map(String::as_str));
            text += &line(&all);
        }
        text
    }

    pub fn parse(text: &str) -> Result<Self, String> {
        let mut orders = Self::default();
        for entry in text.lines() {
            let all = fields(entry);
            match all.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
                ["kernel", name] => orders.kernel = (*name).into(),
                ["variant", word] => orders.variant = (*word).into(),
                ["filter", part] => orders.filter = Some((*part).into()),
                ["every"] => orders.every = true,
                ["once"] => orders.once = true,
                ["table"] => orders.table = true,
                ["exec", ..] => orders.exec = Some(all[1..].to_vec()),
                _ => return Err(format!("orders not understood: {entry:?}")),
            }
        }
        Ok(orders)
    }
}

/// Messages of a running guest.
#[derive(Debug, PartialEq)]
pub enum Event {
    /// The guest is up, with its kernel in one line.
    Booted(String),
    Started(String),
    Passed(String),
    Failed(String, String),
    /// A note of a check.
    Noted(String),
    /// A measured figure, by name.
    Measured(String, u64),
    /// A line of the `--exec` command's output.
    Output(String),
    /// How the `--exec` command ended.
    Exited(i32),
    /// The guest itself failed.
    Broken(String),
    /// The last message: how many checks passed and failed.
    Done(usize, usize),
}

impl Event {
    pub fn to_line(&self) -> String {
        match self {
            Self::Booted(kernel) => line(&["booted", kernel]),
            Self::Started(check) => line(&["started", check]),
            Self::Passed(check) => line(&["passed", check]),
            Self::Failed(check, reason) => line(&["failed", check, reason]),
            Self::Noted(text) => line(&["noted", text]),
            Self::Measured(figure, value) => line(&["measured", figure, &value.to_string()]),
            Self::Output(text) => line(&["output", text]),
            Self::Exited(status) => line(&["exited", &status.to_string()]),
            Self::Broken(reason) => line(&["broken", reason]),
            Self::Done(passed, failed) => line(&["done", &passed.to_string(), &failed.to_string()]),
        }
    }

    /// `None` if the line is malformed, for example because the guest died while writing it.
    pub fn parse(text: &str) -> Option<Self> {
        let all = fields(text);
        Some(match all.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["booted", kernel] => Self::Booted((*kernel).into()),
            ["started", check] => Self::Started((*check).into()),
            ["passed", check] => Self::Passed((*check).into()),
            ["failed", check, reason] => Self::Failed((*check).into(), (*reason).into()),
            ["noted", text] => Self::Noted((*text).into()),
            ["measured", figure, value] => Self::Measured((*figure).into(), value.parse().ok()?),
            ["output", text] => Self::Output((*text).into()),
            ["exited", status] => Self::Exited(status.parse().ok()?),
            ["broken", reason] => Self::Broken((*reason).into()),
            ["done", passed, failed] => Self::Done(passed.parse().ok()?, failed.parse().ok()?),
            _ => return None,
        })
    }
}

fn line(all: &[&str]) -> String {
    let mut text = String::new();
    for (i, field) in all.iter().enumerate() {
        if i > 0 {
            text.push('\t');
        }
        for c in field.chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '\t' => text.push_str("\\t"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                c if c.is_control() => {
                    let _ = write!(text, "<{:02x}>", u32::from(c));
                }
                c => text.push(c),
            }
        }
    }
    text.push('\n');
    text
}

fn fields(text: &str) -> Vec<String> {
    text.split('\t')
        .map(|field| {
            let mut plain = String::new();
            let mut chars = field.chars();
            while let Some(c) = chars.next() {
                match c {
                    '\\' => match chars.next() {
                        Some('t') => plain.push('\t'),
                        Some('n') => plain.push('\n'),
                        Some('r') => plain.push('\r'),
                        Some(other) => plain.push(other),
                        None => {}
                    },
                    c => plain.push(c),
                }
            }
            plain
        })
        .collect()
}
