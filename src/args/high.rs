//! The validated options, in types that cannot hold contradictory combinations.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::budget::CpuShare;
use crate::catalog::Layer;
use crate::export::Format;
use crate::model::recording::Names;
use crate::model::report::group::By;
use crate::model::report::records::Limit;
use crate::model::sample::Sample;
use crate::model::trigger::Trigger;
use crate::playback::prepare::Cache;
use crate::playback::run::How;
use crate::probe::Choice;
use crate::replay::load::Selection;
use crate::replay::order::Order;
use crate::serve::Address;
use crate::view::json;
use crate::view::text::Unit;

use super::value::Moment;

/// A run that measures.
#[derive(Debug, Clone)]
pub struct Options {
    pub measure: Measure,
    pub span: Span,
    pub output: Output,
    /// Calls and requests are printed one by one, and no reports.
    pub events: Option<Events>,
}

/// How calls and requests are printed one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Events {
    pub form: EventForm,
    /// Only so many lines, the last ones; `None`: all.
    pub last: Option<usize>,
}

crate::model::ids::names! {
    /// The form of calls and requests.
    "form of calls and requests" EventForm {
        /// Lines of a table.
        Text = "text",
        /// The log of iotracer.
        Iotracer = "iotracer",
        /// JSON Lines.
        Json = "json",
    }
}

/// Where and how a recording is written.
#[derive(Debug, Clone, Default)]
pub struct Recording {
    /// A directory that does not exist; `None`: one is named by host and time.
    pub path: Option<PathBuf>,
    /// The recording ends when it has this many bytes.
    pub max_bytes: Option<u64>,
    /// It ends when its file system has less than this left, in bytes; `None`: the default.
    pub keep_free: Option<u64>,
    /// The size of all rings together, in bytes; `None`: the default.
    pub buffer: Option<u64>,
    pub sync: Option<Duration>,
    pub names: Names,
    /// Only the last part of the run is kept, in memory, until something happens.
    pub ring: Option<Ring>,
}

/// What is kept in memory, and when it is written.
#[derive(Debug, Clone, Default)]
pub struct Ring {
    pub span: Duration,
    /// `None`: the default.
    pub bytes: Option<u64>,
    /// Empty: only a signal.
    pub triggers: Vec<Trigger>,
    /// How long recording goes on before it is written.
    pub after: Duration,
    /// The run ends when so many recordings were written; more than 0.
    pub repeat: u32,
}

/// The part of a recording that is reported.
#[derive(Debug, Clone, Copy, Default)]
pub struct Part {
    /// `None`: the start.
    pub from: Option<Moment>,
    /// `None`: the end.
    pub to: Option<Moment>,
    /// Only what is missing.
    pub lost: bool,
}

/// What of a recording is exported, and how.
#[derive(Debug, Clone)]
pub struct Export {
    pub format: Format,
    /// `None`: standard output; never `None` or `-` for a format that is a directory.
    pub path: Option<PathBuf>,
    /// Empty: calls and requests.
    pub layers: Vec<Layer>,
    /// Empty: all.
    pub pids: Vec<u32>,
    pub disk: Option<String>,
    pub comm: Option<String>,
    pub file: Option<String>,
    pub part: Part,
    pub quiet: bool,
}

/// How a recording is replayed.
#[derive(Debug, Clone)]
pub struct Replay {
    pub into: PathBuf,
    /// Recorded directories that are made elsewhere: absolute paths of both.
    pub maps: Vec<(String, PathBuf)>,
    pub how: How,
    pub order: Order,
    pub cache: Cache,
    pub selection: Selection,
    pub only: Only,
    /// `None`: the user who runs the tool, who is not root.
    pub user: Option<String>,
    pub strict: bool,
    /// Compare what the replay takes with what was recorded.
    pub measure: bool,
    pub json: bool,
    pub quiet: bool,
}

/// How much of a replay is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Only {
    All,
    Prepare,
    Clean,
}

/// What to measure, for whom, and how.
#[derive(Debug, Clone)]
pub struct Measure {
    pub scope: Scope,
    pub target: Target,
    pub hooks: Hooks,
    pub talk: Talk,
}

/// The layers to measure, and what to report about them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scope {
    /// The layers above `blk`, in stack order, each once.
    pub upper: Vec<Layer>,
    /// `None`: requests are not measured.
    pub requests: Option<Requests>,
    /// `all` was named.
    pub is_all_named: bool,
    /// What was named beside `all`.
    pub beside_all: Vec<Layer>,
    /// Only some calls are measured. `None`: all are.
    pub sample: Option<Sample>,
    pub detail: Detail,
}

/// How requests are measured at `blk`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requests {
    /// Times include the queue.
    pub queued: bool,
}

/// How much is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// The whole stack: no layer was named.
    WholeStack(Option<Groups>),
    /// The whole stack of each call that takes this long or longer.
    SlowCalls(Duration),
    /// Both, for the live view.
    Live(Groups, Duration),
    /// Each named layer on its own. A named layer that cannot be measured is an error, not a note.
    Named(Option<Groups>),
    /// Each available layer on its own.
    Each,
}

/// What reports are split by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Groups {
    pub by: By,
    /// How many groups are reported individually, the largest first; more than 0.
    pub top: usize,
    /// The number of groups that can be counted; `None`: the default.
    pub room: Option<u32>,
}

impl Scope {
    /// The layers in stack order.
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

    /// Whether the times of requests include the queue.
    #[must_use]
    pub fn is_queued(&self) -> bool {
        self.requests.is_some_and(|requests| requests.queued)
    }

    /// Whether layers were named.
    #[must_use]
    pub fn is_named(&self) -> bool {
        matches!(self.detail, Detail::Named(_))
    }

    /// Whether each moment of a call is charged to a row.
    #[must_use]
    pub fn is_whole_stack(&self) -> bool {
        matches!(
            self.detail,
            Detail::WholeStack(_) | Detail::SlowCalls(_) | Detail::Live(..)
        )
    }

    #[must_use]
    pub fn groups(&self) -> Option<Groups> {
        match self.detail {
            Detail::WholeStack(groups) | Detail::Named(groups) => groups,
            Detail::Live(groups, _) => Some(groups),
            Detail::SlowCalls(_) | Detail::Each => None,
        }
    }

    /// Calls that take this long or longer are reported one by one.
    #[must_use]
    pub fn slower(&self) -> Option<Duration> {
        match self.detail {
            Detail::SlowCalls(slower) | Detail::Live(_, slower) => Some(slower),
            Detail::WholeStack(_) | Detail::Named(_) | Detail::Each => None,
        }
    }
}

/// Whose calls and requests are measured, and on which files. The default is all.
#[derive(Debug, Clone, Default)]
pub struct Target {
    pub whose: Whose,
    pub cgroup: Option<ControlGroup>,
    /// Threads of this name, of 1 to 15 bytes.
    pub comm: Option<String>,
    pub disk: Option<String>,
    /// Calls on this file only.
    pub file: Option<PathBuf>,
    /// Of records: those on these files only.
    pub paths: Paths,
    /// Include sockets, pipes, terminals and the like.
    pub all_files: bool,
}

/// A control group with those below it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ControlGroup {
    Path(PathBuf),
    /// That of a unit, a pod or a container.
    Owned {
        by: By,
        name: String,
    },
}

impl ControlGroup {
    /// The option that selects it.
    #[must_use]
    pub fn option(&self) -> &'static str {
        match self {
            Self::Owned { by: By::Unit, .. } => "--unit",
            Self::Owned { by: By::Pod, .. } => "--pod",
            Self::Owned { .. } => "--container",
            Self::Path(_) => "--cgroup",
        }
    }
}

impl fmt::Display for ControlGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path) => write!(f, "{}", path.display()),
            Self::Owned { by, name } => write!(f, "{by} {name}"),
        }
    }
}

/// Files by their paths; none: all files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Paths {
    pub files: Vec<PathBuf>,
    /// All files below these directories.
    pub folders: Vec<PathBuf>,
}

/// Whose calls are measured.
#[derive(Debug, Clone, Default)]
pub enum Whose {
    #[default]
    Everybody,
    /// These processes, sorted by number and without duplicates; at least one.
    Processes {
        pids: Vec<u32>,
        /// Include their descendants.
        follow: bool,
    },
    /// A command that the tool starts, and its descendants.
    Command(CommandLine),
}

/// A command to start.
#[derive(Debug, Clone)]
pub struct CommandLine {
    /// Not empty.
    pub program: OsString,
    pub arguments: Vec<OsString>,
    /// `None`: the user who runs the tool.
    pub user: Option<String>,
}

impl CommandLine {
    /// The program and its arguments.
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

    /// Whether descendants are traced.
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

    /// Whether only the calls of some processes are measured.
    #[must_use]
    pub fn is_of_processes(&self) -> bool {
        !matches!(self.whose, Whose::Everybody) || self.cgroup.is_some() || self.comm.is_some()
    }

    /// Whether only some calls are measured.
    #[must_use]
    pub fn is_filtered(&self) -> bool {
        self.is_of_processes() || self.disk.is_some() || self.file.is_some()
    }
}

/// How long to measure, and how often to report.
#[derive(Debug, Clone, Default)]
pub struct Span {
    /// `None`: one report, at the end.
    pub intervals: Option<Intervals>,
    /// `None`: the run lasts until something else ends it.
    pub duration: Option<Duration>,
    /// Layers are detached when measuring costs more than this.
    pub budget: Option<CpuShare>,
}

/// Reports at regular intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Intervals {
    /// More than 0.
    pub length: Duration,
    /// The run ends after this many reports, more than 0.
    pub count: Option<u64>,
}

/// When something is done that depends on a terminal.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum When {
    /// On a terminal that can.
    #[default]
    Auto,
    Always,
    Never,
}

/// Where reports go, and in which form.
#[derive(Debug, Clone)]
pub struct Output {
    pub form: Form,
    /// When text has colours.
    pub color: When,
    /// `None`: standard output, or standard error if there is a command; `-`: standard output.
    pub path: Option<PathBuf>,
    /// Reports are also written to this file, as JSON Lines.
    pub export_json: Option<PathBuf>,
    /// Where metrics are served.
    pub metrics: Option<Address>,
    /// A page of the whole run is written to this file.
    pub html: Option<PathBuf>,
    /// The picture of the whole run is written to this file.
    pub svg: Option<PathBuf>,
    /// The snapshots from which reports are computed are saved in this file.
    pub save_snapshots: Option<PathBuf>,
    /// A screen shows each second.
    pub live: Option<LiveOptions>,
}

/// Options of the live view.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveOptions {
    /// The memory for earlier seconds, in bytes; of a recording, there is no limit.
    pub history_bytes: usize,
    /// What is marked if it takes longer.
    pub limits: Vec<Limit>,
}

/// The form of reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Text {
        unit: Unit,
        /// Tables only.
        summary: bool,
        /// One line for each report of several.
        oneline: bool,
    },
    Json(json::Form),
    /// Stacks for flame graphs.
    Folded,
}

impl Output {
    /// Whether some output has every number: JSON, a page (which contains JSON), metrics.
    #[must_use]
    pub fn has_json(&self) -> bool {
        matches!(self.form, Form::Json(_))
            || self.export_json.is_some()
            || self.html.is_some()
            || self.metrics.is_some()
    }

    /// The unit of times.
    #[must_use]
    pub fn unit(&self) -> Unit {
        match self.form {
            Form::Text { unit, .. } => unit,
            Form::Json(_) | Form::Folded => Unit::Nanoseconds,
        }
    }

    /// Whether each report is one line.
    #[must_use]
    pub fn is_oneline(&self) -> bool {
        matches!(self.form, Form::Text { oneline: true, .. })
    }
}

/// How much is printed besides the reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Talk {
    /// No notes, no progress.
    Quiet,
    Usual,
    /// Also how each operation is measured.
    Verbose,
}

/// How functions are hooked.
#[derive(Debug, Clone)]
pub struct Hooks {
    pub choice: Choice,
    /// Functions that are treated as missing.
    pub without: Vec<String>,
    /// The file from which symbols are read.
    pub vmlinux: Option<PathBuf>,
    /// Keep starts in a table of this size even if the kernel has task storage.
    pub starts: Option<u32>,
    /// Load the BPF programs as they were compiled.
    pub as_compiled: bool,
}
