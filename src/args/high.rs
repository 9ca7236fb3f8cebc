//! What is asked for, as types in which a contradiction cannot be written.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::budget::CpuShare;
use crate::catalog::Layer;
use crate::model::report::group::By;
use crate::probe::Choice;
use crate::view::json;
use crate::view::text::Unit;

/// A run that measures.
#[derive(Debug, Clone)]
pub struct Options {
    pub measure: Measure,
    pub span: Span,
    pub output: Output,
}

/// What is measured, whose calls, and how.
#[derive(Debug, Clone)]
pub struct Measure {
    pub scope: Scope,
    pub target: Target,
    pub hooks: Hooks,
    pub talk: Talk,
}

/// Layers, and what is reported of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// Those above `blk`, in the order of the stack, each once.
    pub upper: Vec<Layer>,
    /// `None`: no requests.
    pub requests: Option<Requests>,
    pub detail: Detail,
}

/// Of the layer `blk`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requests {
    /// Times include the queue.
    pub queued: bool,
}

/// How much is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// The whole stack, in which no layer was named.
    WholeStack(Option<Groups>),
    /// The whole stack of each call of this length and more.
    SlowCalls(Duration),
    /// Each of the layers by itself. They were named: that one of them cannot be measured is an error, not a remark.
    Named(Option<Groups>),
    /// Each layer that there is by itself.
    Each,
}

/// What reports are split by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Groups {
    pub by: By,
    /// How many have numbers of their own, the largest first; more than 0.
    pub top: usize,
    /// How many there is room for; `None`: as many as usual.
    pub room: Option<u32>,
}

impl Scope {
    /// In the order of the stack.
    #[must_use]
    pub fn layers(&self) -> Vec<Layer> {
        let blk = self.requests.map(|_| Layer::Blk);
        self.upper.iter().copied().chain(blk).collect()
    }

    #[must_use]
    pub fn has(&self, layer: Layer) -> bool {
        match layer {
            Layer::Blk => self.requests.is_some(),
            upper => self.upper.contains(&upper),
        }
    }

    /// The times of requests include the queue.
    #[must_use]
    pub fn is_queued(&self) -> bool {
        self.requests.is_some_and(|requests| requests.queued)
    }

    /// Layers were named.
    #[must_use]
    pub fn is_named(&self) -> bool {
        matches!(self.detail, Detail::Named(_))
    }

    /// Every moment of a call is given to a row.
    #[must_use]
    pub fn is_whole_stack(&self) -> bool {
        matches!(self.detail, Detail::WholeStack(_) | Detail::SlowCalls(_))
    }

    #[must_use]
    pub fn groups(&self) -> Option<Groups> {
        match self.detail {
            Detail::WholeStack(groups) | Detail::Named(groups) => groups,
            Detail::SlowCalls(_) | Detail::Each => None,
        }
    }

    /// Calls of this length and more are reported one by one.
    #[must_use]
    pub fn slower(&self) -> Option<Duration> {
        match self.detail {
            Detail::SlowCalls(slower) => Some(slower),
            _ => None,
        }
    }
}

/// Whose calls and requests, and on what. By default all.
#[derive(Debug, Clone, Default)]
pub struct Target {
    pub whose: Whose,
    /// This control group, and those below it.
    pub cgroup: Option<PathBuf>,
    /// Threads of this name: 1 to 15 bytes.
    pub comm: Option<String>,
    pub disk: Option<String>,
    /// Calls on this file only.
    pub file: Option<PathBuf>,
    /// Sockets, pipes, terminals and the like, too.
    pub all_files: bool,
}

/// Whose.
#[derive(Debug, Clone, Default)]
pub enum Whose {
    #[default]
    Everybody,
    /// Of these processes, in the order of their numbers, each once, at least one.
    Processes {
        pids: Vec<u32>,
        /// And their descendants.
        follow: bool,
    },
    /// Of a command that is started, and its descendants.
    Command(CommandLine),
}

/// A command to be started.
#[derive(Debug, Clone)]
pub struct CommandLine {
    /// Not empty.
    pub program: OsString,
    pub arguments: Vec<OsString>,
    /// `None`: as who runs the tool.
    pub user: Option<String>,
}

impl CommandLine {
    /// The program first.
    pub fn words(&self) -> impl Iterator<Item = &OsString> {
        std::iter::once(&self.program).chain(&self.arguments)
    }
}

impl Target {
    #[must_use]
    pub fn pids(&self) -> &[u32] {
        match &self.whose {
            Whose::Processes { pids, .. } => pids,
            Whose::Everybody | Whose::Command(_) => &[],
        }
    }

    /// Descendants are traced, too.
    #[must_use]
    pub fn follows(&self) -> bool {
        match self.whose {
            Whose::Everybody => false,
            Whose::Processes { follow, .. } => follow,
            Whose::Command(_) => true,
        }
    }

    #[must_use]
    pub fn command(&self) -> Option<&CommandLine> {
        match &self.whose {
            Whose::Command(command) => Some(command),
            Whose::Everybody | Whose::Processes { .. } => None,
        }
    }

    /// Only some processes' calls are measured.
    #[must_use]
    pub fn is_of_processes(&self) -> bool {
        !matches!(self.whose, Whose::Everybody) || self.cgroup.is_some() || self.comm.is_some()
    }

    /// Only some calls are measured.
    #[must_use]
    pub fn is_filtered(&self) -> bool {
        self.is_of_processes() || self.disk.is_some() || self.file.is_some()
    }
}

/// How long it is measured, and how often reported.
#[derive(Debug, Clone, Default)]
pub struct Span {
    /// `None`: there is one report, at the end.
    pub intervals: Option<Intervals>,
    /// `None`: until something else ends the run.
    pub duration: Option<Duration>,
    /// Layers are detached when measuring takes more than that.
    pub budget: Option<CpuShare>,
}

/// Reports one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Intervals {
    /// More than 0.
    pub length: Duration,
    /// The run ends after so many, more than 0.
    pub count: Option<u64>,
}

/// Where reports go, and in what form.
#[derive(Debug, Clone)]
pub struct Output {
    pub form: Form,
    /// `None`: standard output, or standard error where there is a command; `-`: standard output.
    pub path: Option<PathBuf>,
    /// Reports go to this file as JSON Lines, too.
    pub export_json: Option<PathBuf>,
    /// What reports are made of is kept in this file.
    pub save_snapshots: Option<PathBuf>,
}

/// The form of reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Text {
        unit: Unit,
        /// Tables only.
        summary: bool,
        /// A line for each report, of which there are several.
        oneline: bool,
    },
    Json(json::Form),
    /// Stacks for flame graphs.
    Folded,
}

impl Output {
    /// Some of the reports are for programs, which want all that is known.
    #[must_use]
    pub fn has_json(&self) -> bool {
        matches!(self.form, Form::Json(_)) || self.export_json.is_some()
    }

    /// What times are counted in.
    #[must_use]
    pub fn unit(&self) -> Unit {
        match self.form {
            Form::Text { unit, .. } => unit,
            Form::Json(_) | Form::Folded => Unit::Nanoseconds,
        }
    }

    /// A line for each report.
    #[must_use]
    pub fn is_oneline(&self) -> bool {
        matches!(self.form, Form::Text { oneline: true, .. })
    }
}

/// How much is said beside the reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Talk {
    /// No notes, no progress.
    Quiet,
    Usual,
    /// How each operation is measured, too.
    Verbose,
}

/// How functions are hooked.
#[derive(Debug, Clone)]
pub struct Hooks {
    pub choice: Choice,
    /// Functions that are taken for missing.
    pub without: Vec<String>,
    /// Where symbols are taken from.
    pub vmlinux: Option<PathBuf>,
    /// Starts are kept in a table of this size even where the kernel has something better.
    pub starts: Option<u32>,
}
