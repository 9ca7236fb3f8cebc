//! Attaches the programs of a plan one by one, and falls back to the next hook if the kernel refuses one.

mod attempt;
mod block;
mod control;
mod detach;
mod groups;
mod hold;
mod probe;
mod stack;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::fmt;
use std::io;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use libbpf_rs::ProgramMut;
use libbpf_sys as sys;

use crate::catalog::{Files, Layer, Returns, Shape};
use crate::kernel;
use crate::kernel::btf::BtfFunction;
use crate::kernel::interface::skeleton::IostackbreakdownSkel;
use crate::kernel::interface::types::{neighbour, op_stats};
use crate::kernel::interface::{POINT_COMPLETED, POINT_FAILED};
use crate::sys::own;

use super::binned::BinnedCounters;
use super::config::Setup;
use super::kprobe_event::KprobeEvents;
use super::plan::{BlockWay, Plan, PlannedCompletion, PlannedOp, PlannedPoint, PlannedRow, does_call};
use super::program::{self, Loading, Programs};
use super::records::RecordRings;
use super::refusal::{CALL_EVENTS, Refusal, Refused, Why};
use super::request::Stage;
use super::{Hook, PointWord};
use crate::sys::counters::Counters;
use crate::sys::perf::{self, PerfLink};
pub use attempt::attach;
pub use groups::{AttachedGroups, GroupCounters};
pub use hold::Hold;
use probe::SkipSource;
pub use probe::{Probe, Skipped};
pub use stack::AttachedStack;
use stack::RowsAlone;

/// Attached programs. Dropping it detaches them: entries first, so that no call is entered whose return is not traced.
pub struct Attached {
    entries: Vec<OfLayer>,
    returns: Vec<OfLayer>,
    _process_events: Vec<Detachable>,
    /// A link to all functions, which is closed last ([`hold`]).
    held: Option<OwnedFd>,
    /// How each op is measured, in the order of the plan.
    pub ops: Vec<AttachedOp>,
    /// All attachments, in the order in which they were made.
    pub probes: Vec<Probe>,
    /// The hooks on each function that completes asynchronous requests.
    pub completions: BTreeMap<String, Vec<Hook>>,
    pub counters: Counters<op_stats>,
    /// Counters of successful calls with a start in a cookie and a usual duration; these are not in `counters`.
    pub binned: Option<BinnedCounters>,
    /// What the disk did for other processes, one element per process (`struct neighbour`), if requests of selected
    /// processes only are measured.
    pub neighbours: Option<Counters<neighbour>>,
    /// The whole-stack view, if it is selected.
    pub stack: Option<AttachedStack>,
    /// How the block layer is measured, if it is selected.
    pub block_way: Option<BlockWay>,
    /// The rings of records, if the run records.
    pub records: Option<RecordRings>,
    /// The counters of groups (`--by`).
    pub groups: Option<AttachedGroups>,
    pub skeleton: IostackbreakdownSkel<'static>,
    /// An iterator over the threads that have starts in task storage. `None`: starts are in a hash table.
    pub in_flight: Option<Rc<OwnedFd>>,
    programs: Programs,
    /// The time for attaching, without that for loading.
    pub attaching: Duration,
    /// Creates the link of `held`, if it makes attaching and detaching faster.
    pub hold: Option<Hold>,
    _events: Option<KprobeEvents>,
}

/// The layer with which it is detached; `None`: it stays until the end.
type OfLayer = (Option<Layer>, Detachable);

/// A handle that detaches a program when it is closed.
enum Detachable {
    Fd(#[expect(dead_code, reason = "held for its closing")] OwnedFd),
    /// A trampoline at a function.
    Trampoline {
        link: OwnedFd,
        /// The BTF type number of the function.
        function: u32,
    },
    Perf(#[expect(dead_code, reason = "held for its closing")] PerfHandle),
}

type PerfHandle = Rc<PerfLink>;

/// How an op is measured.
#[derive(Debug, Clone, Default)]
pub struct AttachedOp {
    /// The hooked functions with their hooks.
    pub points: Vec<(String, Hook)>,
    /// Attempts that the kernel refused.
    pub refused: Vec<Refusal>,
    /// Only some of its calls are counted.
    pub is_partial: bool,
}

/// Why nothing could be attached.
#[derive(Debug)]
pub enum AttachError {
    /// The kernel refused the BPF object.
    Load(Why),
    /// A map could not be filled.
    Map(&'static str, Why),
    /// Forks or execs cannot be traced, so descendants cannot be followed.
    Follow(Why),
    /// No program of this layer could be attached.
    Layer { layer: Layer, refused: Vec<Refusal> },
}

impl AttachError {
    /// All errors of the kernel.
    pub fn whys(&self) -> impl Iterator<Item = &Why> {
        let (one, refused) = match self {
            Self::Load(why) | Self::Map(_, why) | Self::Follow(why) => (Some(why), &[][..]),
            Self::Layer { refused, .. } => (None, refused.as_slice()),
        };
        one.into_iter().chain(refused.iter().map(|refusal| &refusal.why))
    }
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Load(why) => write!(
                f,
                "the kernel rejected the BPF programs: {why}; --verbose prints the verifier's log"
            ),
            Self::Map(name, why) => write!(f, "the kernel table '{name}' cannot be filled: {why}"),
            Self::Follow(why) => write!(
                f,
                "cannot follow descendants and commands here: {why}; use -p without -f"
            ),
            Self::Layer { layer, refused } => {
                let name = layer.name();
                match refused.last() {
                    Some(last) if *layer == Layer::Syscall => {
                        write!(
                            f,
                            "-T {name} cannot be measured here: {} refused ({})",
                            last.hook.name(),
                            last.why
                        )
                    }
                    Some(last) if *layer == Layer::Blk => write!(
                        f,
                        "-T {name} needs the block tracepoints (tp_btf) or kprobes, both refused here ({}); try -T syscall",
                        last.why
                    ),
                    Some(_) => write!(
                        f,
                        "-T {name} needs kprobes or fentry, both refused here; try -T syscall or -T blk"
                    ),
                    None => write!(
                        f,
                        "-T {name}: none of its functions exist in this kernel; try -T syscall or -T blk"
                    ),
                }
            }
        }
    }
}

/// The programs that a hook needs at entry and return.
fn templates<'a>(skeleton: &'a IostackbreakdownSkel<'static>, hook: Hook) -> (&'a ProgramMut<'a>, &'a ProgramMut<'a>) {
    let progs = &skeleton.progs;
    match hook {
        Hook::Fsession => (&progs.fsession_both, &progs.fsession_both),
        Hook::Fentry => (&progs.fentry_enter, &progs.fexit_leave),
        Hook::Session => (&progs.session, &progs.session),
        Hook::Multi => (&progs.multi_enter, &progs.multi_leave),
        Hook::KprobeEvent | Hook::Kprobe | Hook::KprobeEntry => (&progs.kprobe_enter, &progs.kretprobe_leave),
        Hook::RawTracepoint => (&progs.sys_enter_btf, &progs.sys_exit_btf),
        Hook::Tracepoint => (&progs.sys_enter_classic, &progs.sys_exit_classic),
    }
}

/// A function, and the configuration of the programs on it.
#[derive(Clone, Copy)]
struct Target<'a> {
    function: &'a str,
    word: PointWord,
    /// It may share a session with others by which file systems get reads or writes.
    shares_requests: bool,
    /// See [`PlannedPoint::starts_in_cookie`].
    starts_in_cookie: bool,
    /// Its return need not be seen.
    is_entered_alone: bool,
    /// It only has a row, and may share a session with others that do.
    is_row_only: bool,
}

/// Functions for which it is the same share a program, and its links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sharing {
    /// Programs that are specialised to this point.
    Point(u32),
    /// System calls: `session_calls` has their points from their numbers (bpf/function.bpf.h).
    Calls,
    /// Entry points of asynchronous requests: `session_async` has their points from cookies.
    Requests,
    /// Functions by which file systems get reads or writes: so does `session_file_systems`.
    FileSystems,
    /// Functions that only have a row: so does `session_rows`.
    Rows,
}

impl Sharing {
    fn point(self) -> Option<u32> {
        match self {
            Self::Point(point) => Some(point),
            Self::Calls | Self::Requests | Self::FileSystems | Self::Rows => None,
        }
    }
}

impl Target<'_> {
    /// With which others it shares programs.
    fn sharing(&self, hook: Hook) -> Sharing {
        match hook {
            Hook::Session if self.word.shape == Shape::Syscall => Sharing::Calls,
            Hook::Session if self.word.returns.is_async_entry() => Sharing::Requests,
            Hook::Session if self.is_row_only => Sharing::Rows,
            Hook::Session if self.shares_requests => Sharing::FileSystems,
            _ => Sharing::Point(self.word.pack()),
        }
    }
}

/// A function of a layer.
#[derive(Clone, Copy)]
enum Function<'a> {
    /// A function where an op is timed, and the index of the op.
    OfOp(usize, &'a PlannedOp, &'a PlannedPoint),
    /// A function whose time is in a row, without an op.
    OfRow(&'a PlannedRow),
}

impl<'a> Function<'a> {
    fn name(&self) -> &'a str {
        match self {
            Self::OfOp(_, _, planned) => &planned.function,
            Self::OfRow(planned) => planned.function.function,
        }
    }

    fn fits(&self, hook: Hook) -> bool {
        match self {
            Self::OfOp(_, _, planned) => planned.fits(hook),
            Self::OfRow(planned) => planned.fits(hook),
        }
    }

    fn is_compat(&self) -> bool {
        matches!(self, Self::OfOp(_, _, planned) if planned.is_compat())
    }
}

/// The layer that a function belongs to.
#[derive(Clone, Copy)]
struct Owner {
    /// The layer whose probe it is in reports, and whose calls are lost if it is skipped.
    layer: Layer,
    /// The layer with which it is detached. `None`: it stays until the end.
    goes_with: Option<Layer>,
}

impl From<Layer> for Owner {
    fn from(layer: Layer) -> Self {
        Self {
            layer,
            goes_with: Some(layer),
        }
    }
}

/// The state while programs are attached.
struct Attaching<'a> {
    setup: Setup<'a>,
    rows_alone: Option<RowsAlone>,
    attached: Attached,
    events: Option<KprobeEvents>,
    /// The number of functions that were begun with, and of all functions of the plan.
    done: usize,
    of: usize,
    /// Hooks for which a program could be loaded. For other hooks, the kernel refuses every function.
    loaded: RefCell<BTreeSet<Hook>>,
}

impl Attaching<'_> {
    /// Reports that attaching to this number of further functions begins.
    fn begin_functions(&mut self, functions: usize) {
        self.done += functions;
        if let Some(progress) = self.setup.request.progress {
            progress(Stage::Attaching {
                done: self.done,
                of: self.of,
            });
        }
    }

    /// Loads the iterator over the threads that have starts in task storage.
    fn in_flight(&mut self) -> Result<(), AttachError> {
        let program = &self.attached.skeleton.progs.in_flight;
        if self.attached.programs.has(program) {
            let program = self.program(program);
            let program = program.map_err(|error| AttachError::Load(Why::from(error).at("the walk over threads")))?;
            self.attached.in_flight = Some(program);
        }
        Ok(())
    }

    /// Attaches to the exit of threads, with `follow` to forks and execs, to record to execs and changes of names, and for groups
    /// by process to these.
    fn process_events(&mut self) -> Result<(), AttachError> {
        const EXIT: &str = "sched_process_exit";
        const RENAME: &str = "task_rename";
        let progs = &self.attached.skeleton.progs;
        let all = [
            (EXIT, Hook::RawTracepoint, &progs.exit_btf),
            (EXIT, Hook::Tracepoint, &progs.exit_classic),
            ("sched_process_fork", Hook::RawTracepoint, &progs.fork_btf),
            ("sched_process_fork", Hook::Tracepoint, &progs.fork_classic),
            ("sched_process_exec", Hook::RawTracepoint, &progs.exec_btf),
            ("sched_process_exec", Hook::Tracepoint, &progs.exec_classic),
            (RENAME, Hook::RawTracepoint, &progs.rename_btf),
        ];
        let mut links = Vec::new();
        for (event, hook, program) in all {
            if !self.attached.programs.has(program) {
                continue;
            }
            let (program, link) = match self.event(program) {
                Ok(attached) => attached,
                // The report would lack selected processes.
                Err(error) if self.setup.request.follow && ![EXIT, RENAME].contains(&event) => {
                    return Err(AttachError::Follow(error.into()));
                }
                // Calls that are active when a thread exits then stay "under way" in the report, and a thread or a process
                // keeps the name of its first call.
                Err(_) => continue,
            };
            let probe = Probe::on_event(None, hook, &[event], Some(program));
            self.attached.probes.push(probe);
            links.push(link);
        }
        self.attached._process_events = links;
        Ok(())
    }

    /// A program that needs no specialised copies.
    fn program(&self, program: &ProgramMut<'_>) -> io::Result<Rc<OwnedFd>> {
        let attached = &self.attached;
        attached.programs.get(program, self.setup.facts, &attached.skeleton)
    }

    /// Attaches a program to the tracepoint in the name of its section.
    fn event(&self, program: &ProgramMut<'_>) -> io::Result<(Rc<OwnedFd>, Detachable)> {
        let loaded = self.program(program)?;
        let section = program.section().to_string_lossy();
        let Some(name) = section.strip_prefix("tracepoint/") else {
            let link = attach_tracing(&loaded)?;
            return Ok((loaded, Detachable::Fd(link)));
        };
        let tracefs = self.setup.facts.tracefs.as_deref().ok_or(io::ErrorKind::Unsupported)?;
        let id = tracefs.join("events").join(name).join("id");
        let link = perf::attach_event(loaded.as_fd(), perf::read_number(&id)?.into())?;
        Ok((loaded, Detachable::Perf(Rc::new(link))))
    }

    /// Attaches to system calls: one pair of programs on the tracepoints of all calls, or programs on each function.
    fn syscalls(&mut self, ops: &[(usize, &PlannedOp)], hooks: &[Hook]) {
        let setup = self.setup;
        for (index, &hook) in hooks.iter().enumerate().filter(|(_, hook)| setup.loads(**hook)) {
            if hook.is_on_functions() {
                self.functions(Layer::Syscall.into(), ops, &[], &hooks[index..]);
            } else {
                self.syscall_tracepoints(ops, hook);
            }
            if ops
                .iter()
                .any(|&(index, _)| !self.attached.ops[index].points.is_empty())
            {
                return;
            }
        }
    }

    fn syscall_tracepoints(&mut self, ops: &[(usize, &PlannedOp)], hook: Hook) {
        let (enter_program, exit_program) = templates(&self.attached.skeleton, hook);
        let links = self
            .event(exit_program)
            .and_then(|exit| Ok((exit, self.event(enter_program)?)));
        let name = CALL_EVENTS.join(", ");
        match links {
            Ok(((exit_fd, exit), (enter_fd, enter))) => {
                let of = Some(Layer::Syscall);
                self.attached.probes.push(Probe {
                    layer: of,
                    goes_with: of,
                    hook,
                    functions: CALL_EVENTS.map(str::to_owned).into(),
                    skips: vec![SkipSource::Program(enter_fd.clone())],
                    alone: Vec::new(),
                    entry: Some(enter_fd),
                    leave: Some(exit_fd),
                    last: None,
                });
                self.attached.returns.push((of, exit));
                self.attached.entries.push((of, enter));
                for &(index, _) in ops {
                    self.attached.ops[index].points.push((name.clone(), hook));
                }
            }
            Err(error) => {
                let why = Why::from(error);
                for &(index, _) in ops {
                    self.refuse(index, Refused::Calls, hook, why.clone());
                }
            }
        }
    }

    /// Whether one program serves all functions with the same configuration.
    fn joins(&self, hook: Hook) -> bool {
        hook.is_on_functions() && !hook.is_trampoline() && !self.setup.request.each_alone
    }

    /// Attaches to the functions of one layer, those of its ops and those that have only a row, each with the first
    /// hook that the kernel accepts. As many functions as possible share programs and links.
    fn functions(&mut self, owner: Owner, ops: &[(usize, &PlannedOp)], rows: &[&PlannedRow], hooks: &[Hook]) {
        let hooks: Vec<Hook> = hooks.iter().copied().filter(|hook| self.setup.loads(*hook)).collect();
        let all = ops
            .iter()
            .flat_map(|&(index, op)| op.points.iter().map(move |planned| Function::OfOp(index, op, planned)))
            .chain(rows.iter().copied().map(Function::OfRow))
            .filter(|function| self.is_of_use(function));
        let first = hooks.first().copied().filter(|hook| self.joins(*hook));
        // Calls of 32-bit programs are rare: their functions are hooked only if one link can cover all.
        let has_link = first.is_some_and(Hook::links_many);
        let all = all.filter(|function| has_link || !function.is_compat());
        // Half as dear as a session, which prepares for the return.
        let by_kprobe = |function: &Function<'_>| {
            first == Some(Hook::Session)
                && self.setup.facts.kprobe
                && function.fits(Hook::Session)
                && self.target_of(function).is_entered_alone
        };
        let (entered_alone, all): (Vec<_>, Vec<_>) = all.partition(by_kprobe);
        let all = all.into_iter();
        let all = all.chain(self.many(owner, entered_alone, Hook::KprobeEntry));
        let (many, mut single): (Vec<_>, Vec<_>) =
            all.partition(|function| first.is_some_and(|hook| function.fits(hook)));
        let mut together = false;
        if let Some(first) = first {
            let of = many.len();
            let left = self.many(owner, many, first);
            together = left.len() < of;
            single.extend(left);
        }
        if !together {
            single.retain(|function| !function.is_compat());
        }
        for function in single {
            for &hook in hooks.iter().filter(|&&hook| function.fits(hook)) {
                match self.one(owner, &self.target_of(&function), hook) {
                    Ok(()) => {
                        self.attached.note(&function, hook);
                        break;
                    }
                    Err(error) => {
                        if let Function::OfOp(index, _, planned) = function {
                            self.refuse(index, Refused::Function(planned.function.clone()), hook, error.into());
                        }
                    }
                }
            }
        }
    }

    /// Attaches to functions by one hook, which share programs and links. Returns those that the kernel refused.
    fn many<'p>(&mut self, owner: Owner, functions: Vec<Function<'p>>, hook: Hook) -> Vec<Function<'p>> {
        let targets = functions
            .into_iter()
            .map(|function| (self.target_of(&function), function));
        let (taken, left) = self.each_kind_together(owner, targets.collect(), hook);
        for function in taken {
            self.attached.note(&function, hook);
        }
        left
    }

    fn target_of<'p>(&self, function: &Function<'p>) -> Target<'p> {
        match *function {
            Function::OfOp(index, op, planned) => self.target(index, op, planned),
            Function::OfRow(planned) => self.target_of_row(planned.function),
        }
    }

    /// Loads a specialised copy of a program.
    fn load_copy(
        &self,
        template: &ProgramMut<'_>,
        hook: Hook,
        point: Option<u32>,
        target: Option<&BtfFunction>,
    ) -> io::Result<OwnedFd> {
        let attached = &self.attached;
        let copy = attached
            .programs
            .load_copy(template, point, target, self.setup.facts, &attached.skeleton)?;
        self.loaded.borrow_mut().insert(hook);
        Ok(copy)
    }

    fn refuse(&mut self, index: usize, of: Refused, hook: Hook, why: Why) {
        let of = match of {
            Refused::Function(_) if hook.is_on_functions() && !self.loaded.borrow().contains(&hook) => {
                Refused::EveryFunction
            }
            of => of,
        };
        let refused = &mut self.attached.ops[index].refused;
        if !refused.iter().any(|known| (&known.of, known.hook) == (&of, hook)) {
            refused.push(Refusal { of, hook, why });
        }
    }

    fn target<'p>(&self, index: usize, op: &PlannedOp, planned: &'p PlannedPoint) -> Target<'p> {
        let mut word = op.word(index, planned.point, Files::None);
        if let Some(frame) = planned.suppressed {
            word.frame = frame;
            word.suppressed = true;
        }
        // The thread and the number of the call determine the table and the op: one program serves all calls.
        if matches!(planned.point.shape, Shape::Syscall | Shape::Syscall32) {
            (word.op, word.returns, word.shape) = (0, Returns::Status, Shape::Syscall);
        }
        let rows = self.rows_alone.as_ref();
        if let Some(rows) = rows {
            word = rows.word(op.layer, word);
        }
        let is_entered_alone = rows.is_some() && does_call(op.layer, planned.point);
        Target {
            function: &planned.function,
            word,
            shares_requests: rows.is_some_and(|rows| rows.shares_requests(op.layer, word)),
            starts_in_cookie: planned.starts_in_cookie,
            is_entered_alone,
            is_row_only: !is_entered_alone && self.shares_rows(word),
        }
    }

    /// Attaches to completions, which must precede the entry points of requests. Returns false if these hooks
    /// cannot be used here, and others may.
    fn completions(&mut self) -> bool {
        let Setup { plan, selection, .. } = self.setup;
        for &hook in selection.completions {
            if hook == Hook::Session {
                if self.completions_by_session(plan).is_err() {
                    return false;
                }
                continue;
            }
            if hook == Hook::Fentry && self.completions_by_one_link(plan).is_ok() {
                continue;
            }
            let mut shared = None;
            for end in &plan.completions {
                match self.completion(&end.function, hook, POINT_COMPLETED, &mut shared) {
                    Ok((program, link)) => {
                        self.attached.note_completion(&end.function, hook, program);
                        self.attached.returns.push((None, link));
                        let hooks = self.attached.completions.entry(end.function.clone()).or_default();
                        hooks.push(hook);
                    }
                    // The program was loaded, and only this function refuses it.
                    Err(_) if self.loaded.borrow().contains(&hook) => {}
                    Err(_) => return false,
                }
            }
        }
        // A kernel may load a program with a hook that it refuses at every function.
        selection.completions.is_empty() || plan.completions.is_empty() || !self.attached.completions.is_empty()
    }

    /// Attaches one link of trampolines to all completions, if the kernel has such links.
    fn completions_by_one_link(&mut self, plan: &Plan) -> io::Result<()> {
        let template = &self.attached.skeleton.progs.complete_multi;
        if !self.attached.programs.has(template) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let facts = self.setup.facts;
        let number = |end: &PlannedCompletion| {
            let function = facts.functions.get(&end.function)?.btf.as_ref()?;
            function.module.is_none().then_some(function.id)
        };
        let numbers: Option<Vec<u32>> = plan.completions.iter().map(number).collect();
        let numbers = numbers.ok_or(io::ErrorKind::NotFound)?;
        let functions: Vec<&str> = plan.completions.iter().map(|end| end.function.as_str()).collect();
        // Not shared: a program that is attached twice is skipped where it is running.
        let program = Rc::new(self.load_copy(template, Hook::Fentry, None, None)?);
        let link = program::attach_to_entries(&program, &numbers)?;
        self.completed_by(Hook::Fentry, &functions, plan, program, link);
        Ok(())
    }

    /// Attaches one link to all completions, and to the end of requests without one ([`Self::failure`]).
    fn completions_by_session(&mut self, plan: &Plan) -> io::Result<()> {
        let program = self.program(&self.attached.skeleton.progs.complete_session)?;
        let (functions, points): (Vec<&str>, Vec<u64>) = ends_of_requests(plan).unzip();
        let known = &self.setup.facts.functions;
        let link = attach_multi_to(&program, &functions, &points, known, sys::BPF_TRACE_KPROBE_SESSION, 0)?;
        self.loaded.borrow_mut().insert(Hook::Session);
        self.completed_by(Hook::Session, &functions, plan, program, link);
        Ok(())
    }

    /// All completions are seen by this link.
    fn completed_by(&mut self, hook: Hook, functions: &[&str], plan: &Plan, program: Rc<OwnedFd>, link: OwnedFd) {
        for end in &plan.completions {
            let hooks = self.attached.completions.entry(end.function.clone()).or_default();
            hooks.push(hook);
        }
        let probe = Probe::on_event(None, hook, functions, Some(program));
        self.attached.probes.push(probe);
        self.attached.returns.push((None, Detachable::Fd(link)));
    }

    /// Attaches to the end of requests without a completion. Without it, they count as active until their memory is
    /// reused.
    fn failure(&mut self) {
        let Setup { plan, selection, .. } = self.setup;
        // The function is never called in an interrupt: one hook is enough. A session has it already.
        let last = selection.completions.last().filter(|hook| **hook != Hook::Session);
        let (Some(failure), Some(&hook)) = (&plan.failure, last) else {
            return;
        };
        if let Ok((program, link)) = self.completion(&failure.function, hook, POINT_FAILED, &mut None) {
            self.attached.note_completion(&failure.function, hook, program);
            self.attached.returns.push((None, link));
        }
    }

    /// `point`: which argument of the function has the result of the request (`POINT_COMPLETED`, `POINT_FAILED`).
    /// `shared`: the program that serves all functions with this point, if the hook allows it and once it is loaded.
    fn completion(
        &self,
        function: &str,
        hook: Hook,
        point: u32,
        shared: &mut Option<Rc<OwnedFd>>,
    ) -> io::Result<(Rc<OwnedFd>, Detachable)> {
        let progs = &self.attached.skeleton.progs;
        match hook {
            Hook::Fentry if self.attached.programs.has(&progs.complete_fentry) => {
                let known = self.setup.facts.functions.get(function);
                let target = known.and_then(|function| function.btf.as_ref());
                let target = target.ok_or(io::ErrorKind::NotFound)?;
                let program = self.load_copy(&progs.complete_fentry, hook, Some(point), Some(target))?;
                let link = attach_tracing(&program)?;
                Ok((Rc::new(program), Detachable::Fd(link)))
            }
            Hook::Kprobe => {
                let load = || self.load_copy(&progs.complete_function, hook, Some(point), None);
                let program = match shared {
                    Some(loaded) => loaded.clone(),
                    None => shared.insert(Rc::new(load()?)).clone(),
                };
                let (link, _) = self.on_entry(&program, function, 0)?;
                Ok((program, link))
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Attaches a program to the entry of a function by a kprobe. Returns also the source of its count of skipped runs.
    fn on_entry(&self, program: &OwnedFd, function: &str, cookie: u64) -> io::Result<(Detachable, SkipSource)> {
        let link = Rc::new(perf::attach_kprobe(program.as_fd(), function, false, cookie)?);
        Ok((Detachable::Perf(link.clone()), SkipSource::Perf(link)))
    }

    /// Attaches a program to functions by one link, where the cookie of each is its point.
    fn attach_multi(&self, program: &OwnedFd, targets: &[Target<'_>], kind: u32, flags: u32) -> io::Result<OwnedFd> {
        let functions: Vec<&str> = targets.iter().map(|target| target.function).collect();
        let cookies: Vec<u64> = targets.iter().map(|target| target.word.pack().into()).collect();
        attach_multi_to(program, &functions, &cookies, &self.setup.facts.functions, kind, flags)
    }

    /// Whether a function is worth hooking: an entry point of asynchronous requests is only if their completions are
    /// traced.
    fn is_of_use(&self, function: &Function<'_>) -> bool {
        let seen = |function: &str| self.attached.completions.contains_key(function);
        let Function::OfOp(_, _, planned) = function else {
            return true;
        };
        match planned.point.returns {
            Returns::Issued => seen("io_complete_rw"),
            Returns::Submitted => seen("aio_complete_rw"),
            _ => true,
        }
    }

    fn one(&mut self, owner: Owner, target: &Target<'_>, hook: Hook) -> io::Result<()> {
        if hook.is_trampoline() {
            self.begin_functions(1);
        }
        match hook {
            Hook::Fsession => self.fsession(owner, target),
            Hook::Fentry => self.fentry(owner, target),
            Hook::Session | Hook::Multi => self.together(owner, &[*target], hook),
            Hook::KprobeEvent | Hook::Kprobe => self.kprobes(owner, &[*target], hook).map(drop),
            Hook::KprobeEntry | Hook::RawTracepoint | Hook::Tracepoint => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// The BTF type of the function, and the configuration of a program that needs the number of its arguments to find
    /// the return value.
    fn typed(&self, target: &Target<'_>) -> io::Result<(&BtfFunction, u32)> {
        let function: &BtfFunction = self
            .setup
            .facts
            .functions
            .get(target.function)
            .and_then(|function| function.btf.as_ref())
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "not in BTF"))?;
        // The return value of a function that has a row is not used: without the number of arguments, functions with
        // different numbers share a program.
        let args = if target.word.shape.is_row() {
            0
        } else {
            function.args as u8
        };
        Ok((function, PointWord { args, ..target.word }.pack()))
    }

    fn fsession(&mut self, owner: Owner, target: &Target<'_>) -> io::Result<()> {
        let (function, word) = self.typed(target)?;
        let progs = &self.attached.skeleton.progs;
        let program = Rc::new(self.load_copy(&progs.fsession_both, Hook::Fsession, Some(word), Some(function))?);
        let link = on_trampoline(&program, function)?;
        let skips = vec![SkipSource::Program(program.clone())];
        self.attached_to(owner, Hook::Fsession, &[target.function], None, program, skips);
        self.attached.entries.push((owner.goes_with, link));
        Ok(())
    }

    fn fentry(&mut self, owner: Owner, target: &Target<'_>) -> io::Result<()> {
        let (function, word) = self.typed(target)?;
        let progs = &self.attached.skeleton.progs;
        let load = |template| self.load_copy(template, Hook::Fentry, Some(word), Some(function));
        let exit = (!target.is_entered_alone)
            .then(|| load(&progs.fexit_leave))
            .transpose()?;
        let enter = load(&progs.fentry_enter)?;
        let exit_link = exit.as_ref().map(|exit| on_trampoline(exit, function)).transpose()?;
        let enter_link = on_trampoline(&enter, function)?;
        let enter = Rc::new(enter);
        let skips = vec![SkipSource::Program(enter.clone())];
        self.attached_to(owner, Hook::Fentry, &[target.function], exit.map(Rc::new), enter, skips);
        self.attached
            .returns
            .extend(exit_link.map(|link| (owner.goes_with, link)));
        self.attached.entries.push((owner.goes_with, enter_link));
        Ok(())
    }

    /// Attaches one program to the entries of functions that all have the configuration of the first, and one to their
    /// returns. Returns for each function whether the kernel accepted it; an error if it accepted none.
    fn kprobes(&mut self, owner: Owner, targets: &[Target<'_>], hook: Hook) -> io::Result<Vec<bool>> {
        let first = targets.first().ok_or(io::ErrorKind::InvalidInput)?;
        let progs = &self.attached.skeleton.progs;
        let point = first.sharing(hook).point();
        let load = |template| Ok::<_, io::Error>(Rc::new(self.load_copy(template, hook, point, None)?));
        let leave = (!first.is_entered_alone)
            .then(|| load(&progs.kretprobe_leave))
            .transpose()?;
        let enter = match hook {
            Hook::KprobeEntry => self.program(&progs.kprobe_call)?,
            _ => load(&progs.kprobe_enter)?,
        };
        self.loaded.borrow_mut().insert(hook);
        let mut skips = vec![SkipSource::Program(enter.clone())];
        let mut taken = Vec::new();
        let mut last = None;
        for target in targets {
            self.begin_functions(1);
            let at_return = leave
                .as_ref()
                .map(|leave| self.kprobe_return(leave, target.function, hook));
            let links = at_return
                .transpose()
                .and_then(|leave| Ok((leave, perf::attach_kprobe(enter.as_fd(), target.function, false, 0)?)));
            taken.push(links.is_ok());
            match links {
                Ok((leave_link, enter_link)) => {
                    let enter_link = Rc::new(enter_link);
                    skips.push(SkipSource::Perf(enter_link.clone()));
                    let leave_link = leave_link.map(|link| Detachable::Perf(Rc::new(link)));
                    self.attached
                        .returns
                        .extend(leave_link.map(|link| (owner.goes_with, link)));
                    let enter_link = Detachable::Perf(enter_link);
                    self.attached.entries.push((owner.goes_with, enter_link));
                }
                Err(error) => last = Some(error),
            }
        }
        let seen = targets.iter().zip(&taken).filter(|(_, taken)| **taken);
        let seen: Vec<&str> = seen.map(|(target, _)| target.function).collect();
        if let Some(error) = last.filter(|_| seen.is_empty()) {
            return Err(error);
        }
        self.attached_to(owner, hook, &seen, leave, enter, skips);
        Ok(taken)
    }

    fn kprobe_return(&mut self, leave: &OwnedFd, function: &str, hook: Hook) -> io::Result<PerfLink> {
        if hook == Hook::Kprobe {
            return perf::attach_kprobe(leave.as_fd(), function, true, 0);
        }
        if self.events.is_none() {
            let tracefs = self.setup.facts.tracefs.as_deref().ok_or(io::ErrorKind::Unsupported)?;
            self.events = Some(KprobeEvents::new(tracefs)?);
        }
        let events = self.events.as_mut().ok_or(io::ErrorKind::Unsupported)?;
        let id = events.make_return(function)?;
        perf::attach_event(leave.as_fd(), id)
    }

    /// Attaches one program to all functions with the same configuration. Returns the functions that the kernel
    /// accepted, and those that it refused.
    fn each_kind_together<T>(&mut self, owner: Owner, mut all: Vec<(Target<'_>, T)>, hook: Hook) -> (Vec<T>, Vec<T>) {
        let (mut taken, mut left) = (Vec::new(), Vec::new());
        all.sort_unstable_by_key(|(target, _)| target.sharing(hook));
        let mut all = all.into_iter().peekable();
        while let Some((first, it)) = all.next() {
            let (mut targets, mut kind) = (vec![first], vec![it]);
            while let Some((target, it)) = all.next_if(|(target, _)| target.sharing(hook) == first.sharing(hook)) {
                targets.push(target);
                kind.push(it);
            }
            let are_taken = if hook.links_many() {
                let all = vec![true; targets.len()];
                self.together(owner, &targets, hook).map(|()| all)
            } else {
                self.kprobes(owner, &targets, hook)
            };
            let are_taken = are_taken.unwrap_or_else(|_| vec![false; kind.len()]);
            for (it, is_taken) in kind.into_iter().zip(are_taken) {
                if is_taken { taken.push(it) } else { left.push(it) }
            }
        }
        (taken, left)
    }

    /// Attaches one link, or an entry and a return link, to functions that all have the [`Target::sharing`] of the first.
    fn together(&mut self, owner: Owner, targets: &[Target<'_>], hook: Hook) -> io::Result<()> {
        let first = targets.first().ok_or(io::ErrorKind::InvalidInput)?;
        self.begin_functions(targets.len());
        let sharing = first.sharing(hook);
        if matches!(sharing, Sharing::FileSystems | Sharing::Rows) {
            return self.of_all_layers(owner, targets, sharing);
        }
        let point = sharing.point();
        let progs = &self.attached.skeleton.progs;
        let (enter, leave, entry_link) = if hook == Hook::Session {
            let by_cookie = first.starts_in_cookie && self.attached.programs.has(&progs.session_by_cookie);
            let template = match sharing {
                Sharing::Calls => &progs.session_calls,
                Sharing::Requests => &progs.session_async,
                _ if by_cookie => &progs.session_by_cookie,
                _ if first.word.shape == Shape::RowBio0 => &progs.session_bios,
                _ => &progs.session,
            };
            if !self.attached.programs.has(template) {
                return Err(io::ErrorKind::Unsupported.into());
            }
            let program = self.load_copy(template, hook, point, None)?;
            let link = self.attach_multi(&program, targets, sys::BPF_TRACE_KPROBE_SESSION, 0)?;
            (program, None, link)
        } else {
            let (kind, at_return) = (sys::BPF_TRACE_KPROBE_MULTI, sys::BPF_F_KPROBE_MULTI_RETURN);
            let load = |template| self.load_copy(template, hook, point, None);
            let leave = (!first.is_entered_alone)
                .then(|| load(&progs.multi_leave))
                .transpose()?;
            let leave_link = leave
                .as_ref()
                .map(|leave| self.attach_multi(leave, targets, kind, at_return));
            let leave_link = leave_link
                .transpose()?
                .map(|link| (owner.goes_with, Detachable::Fd(link)));
            let enter = load(&progs.multi_enter)?;
            let link = self.attach_multi(&enter, targets, kind, 0)?;
            self.attached.returns.extend(leave_link);
            (enter, leave.map(Rc::new), link)
        };
        let enter = Rc::new(enter);
        let counted = Rc::new(entry_link.try_clone()?);
        let skips = vec![SkipSource::Program(enter.clone()), SkipSource::Multi(counted)];
        let functions: Vec<&str> = targets.iter().map(|target| target.function).collect();
        self.attached_to(owner, hook, &functions, leave, enter, skips);
        self.attached
            .entries
            .push((owner.goes_with, Detachable::Fd(entry_link)));
        Ok(())
    }

    /// Attaches a link of a session that is one program for the links of all layers, so that its runs are those of none. The cookie of
    /// each function is its point.
    fn of_all_layers(&mut self, owner: Owner, targets: &[Target<'_>], sharing: Sharing) -> io::Result<()> {
        const HOOK: Hook = Hook::Session;
        let progs = &self.attached.skeleton.progs;
        let template = match sharing {
            Sharing::FileSystems => &progs.session_file_systems,
            _ => &progs.session_rows,
        };
        let program = self.program(template)?;
        self.loaded.borrow_mut().insert(HOOK);
        let link = self.attach_multi(&program, targets, sys::BPF_TRACE_KPROBE_SESSION, 0)?;
        let functions = targets.iter().map(|target| target.function.to_owned());
        // The kernel counts skipped runs of the program as well as those of each link.
        let is_first = self.attached.note_shared(HOOK, &program, functions.clone());
        let of_program = is_first.then(|| SkipSource::Program(program.clone()));
        let of_link = SkipSource::Multi(Rc::new(link.try_clone()?));
        self.attached.probes.push(Probe {
            layer: Some(owner.layer),
            goes_with: owner.goes_with,
            hook: HOOK,
            functions: functions.collect(),
            entry: None,
            leave: None,
            skips: of_program.into_iter().chain([of_link]).collect(),
            alone: Vec::new(),
            last: None,
        });
        self.attached.entries.push((owner.goes_with, Detachable::Fd(link)));
        Ok(())
    }

    fn attached_to(
        &mut self,
        owner: Owner,
        hook: Hook,
        functions: &[&str],
        leave: Option<Rc<OwnedFd>>,
        enter: Rc<OwnedFd>,
        skips: Vec<SkipSource>,
    ) {
        self.attached.probes.push(Probe {
            layer: Some(owner.layer),
            goes_with: owner.goes_with,
            hook,
            functions: functions.iter().map(|&name| name.to_owned()).collect(),
            entry: Some(enter),
            leave,
            skips,
            alone: Vec::new(),
            last: None,
        });
    }
}

/// The functions at which a session sees the end of asynchronous requests, with their points.
fn ends_of_requests(plan: &Plan) -> impl Iterator<Item = (&str, u64)> {
    let completed = plan.completions.iter().map(|end| (end, POINT_COMPLETED));
    let failed = plan.failure.iter().map(|end| (end, POINT_FAILED));
    let all = completed.chain(failed.filter(|(end, _)| end.in_btf));
    all.map(|(end, point)| (end.function.as_str(), point.into()))
}

fn on_trampoline(program: &OwnedFd, function: &BtfFunction) -> io::Result<Detachable> {
    Ok(Detachable::Trampoline {
        link: attach_tracing(program)?,
        function: function.id,
    })
}

/// Attaches a tracing program to the target that it was loaded for, until the descriptor is closed.
///
/// # Errors
/// The error of the kernel.
pub fn attach_tracing(program: &OwnedFd) -> io::Result<OwnedFd> {
    // The target of a tracing program is set when it is loaded. Every supported kernel has this call, unlike newer
    // ones.
    // SAFETY: the descriptor is open, no name is passed.
    own(unsafe { sys::bpf_raw_tracepoint_open(std::ptr::null(), program.as_raw_fd()) })
}

/// The functions of a link.
#[derive(Debug, Clone, Copy)]
pub enum Targets<'a> {
    Names(&'a [&'a str]),
    Addresses(&'a [NonZeroU64]),
}

/// Attaches a program to functions by one link, until the descriptor is closed: `BPF_TRACE_KPROBE_MULTI` or
/// `BPF_TRACE_KPROBE_SESSION`, with the flags of `bpf_link_create_opts.kprobe_multi`. `cookies`: what
/// `bpf_get_attach_cookie()` returns at each function; empty if the program does not ask.
///
/// # Errors
/// The error of the kernel; `InvalidInput` if a name contains a zero byte.
pub fn attach_multi(
    program: &OwnedFd,
    targets: Targets<'_>,
    cookies: &[u64],
    kind: u32,
    flags: u32,
) -> io::Result<OwnedFd> {
    let (names, addresses): (&[&str], &[NonZeroU64]) = match targets {
        Targets::Names(names) => (names, &[]),
        Targets::Addresses(addresses) => (&[], addresses),
    };
    let names = names.iter().map(|name| CString::new(*name));
    let names = names.collect::<Result<Vec<_>, _>>()?;
    let mut pointers: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
    let mut options = sys::bpf_link_create_opts {
        sz: size_of::<sys::bpf_link_create_opts>() as sys::size_t,
        ..Default::default()
    };
    options.__bindgen_anon_1.kprobe_multi = sys::bpf_link_create_opts__bindgen_ty_1__bindgen_ty_2 {
        flags,
        cnt: (pointers.len() + addresses.len()) as u32,
        // The kernel accepts either names or addresses (bpf_kprobe_multi_link_attach, kernel/trace/bpf_trace.c).
        syms: if pointers.is_empty() {
            std::ptr::null_mut()
        } else {
            pointers.as_mut_ptr()
        },
        addrs: if addresses.is_empty() {
            std::ptr::null()
        } else {
            addresses.as_ptr().cast()
        },
        cookies: if cookies.is_empty() {
            std::ptr::null()
        } else {
            cookies.as_ptr()
        },
    };
    // SAFETY: the names, their pointers, the addresses and the cookies live until the call returns.
    own(unsafe { sys::bpf_link_create(program.as_raw_fd(), 0, kind, &raw const options) })
}

/// As [`attach_multi`], by addresses if those of all functions are in `known`: the kernel then need not look up the
/// names.
///
/// # Errors
/// As [`attach_multi`].
pub fn attach_multi_to(
    program: &OwnedFd,
    functions: &[&str],
    cookies: &[u64],
    known: &BTreeMap<String, kernel::Function>,
    kind: u32,
    flags: u32,
) -> io::Result<OwnedFd> {
    let addresses = functions.iter().map(|&name| known.get(name)?.address);
    let addresses: Option<Vec<NonZeroU64>> = addresses.collect();
    let targets = addresses
        .as_deref()
        .map_or(Targets::Names(functions), Targets::Addresses);
    attach_multi(program, targets, cookies, kind, flags)
}

impl Attached {
    /// Whether programs look up their counters in a map of many elements, because the kernel allows no value large
    /// enough for all counters.
    #[must_use]
    pub fn looks_counters_up(&self) -> bool {
        self.skeleton.maps.stats.autocreate()
    }

    /// The time and the number of programs that were loaded.
    #[must_use]
    pub fn loading(&self) -> Loading {
        self.programs.loading()
    }

    /// Records that functions are hooked by a program that serves several layers, and stays until the end. Returns whether it had none
    /// before.
    fn note_shared(&mut self, hook: Hook, program: &Rc<OwnedFd>, functions: impl Iterator<Item = String>) -> bool {
        let is_its = |probe: &&mut Probe| probe.entry.as_ref().is_some_and(|entry| Rc::ptr_eq(entry, program));
        if let Some(known) = self.probes.iter_mut().find(is_its) {
            known.functions.extend(functions);
            return false;
        }
        self.probes.push(Probe {
            functions: functions.collect(),
            ..Probe::on_event(None, hook, &[], Some(program.clone()))
        });
        true
    }

    /// Records that a function that completes requests, or fails them, is hooked.
    fn note_completion(&mut self, function: &str, hook: Hook, program: Rc<OwnedFd>) {
        if let Some(last) = self.probes.last_mut()
            && last.entry.as_ref().is_some_and(|entry| Rc::ptr_eq(entry, &program))
        {
            last.functions.push(function.to_owned());
        } else {
            self.probes
                .push(Probe::on_event(None, hook, &[function], Some(program)));
        }
    }

    /// Records that a function is hooked.
    fn note(&mut self, function: &Function<'_>, hook: Hook) {
        match function {
            Function::OfOp(index, _, planned) => self.ops[*index].points.push((planned.function.clone(), hook)),
            Function::OfRow(planned) => {
                if let Some(stack) = &mut self.stack {
                    stack.functions.push(planned.function);
                }
            }
        }
    }

    /// Layers of which no function could be hooked, with the refusals.
    #[must_use]
    pub fn layers_refused(&self, plan: &Plan) -> BTreeMap<Layer, Vec<Refusal>> {
        let mut refused = BTreeMap::new();
        for layer in plan.layers() {
            let ops = plan.ops.iter().zip(&self.ops).filter(|(op, _)| op.layer == layer);
            if ops.clone().all(|(_, attached)| attached.points.is_empty()) {
                refused.insert(layer, ops.flat_map(|(_, attached)| attached.refused.clone()).collect());
            }
        }
        refused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(op: u8, returns: Returns) -> PointWord {
        PointWord {
            op,
            frame: 0,
            shape: Shape::Kiocb0,
            args: 0,
            returns,
            shared: false,
            files: Files::None,
            outermost: false,
            suppressed: false,
            checked_at_return: false,
        }
    }

    fn target(word: PointWord, shares_requests: bool) -> Target<'static> {
        Target {
            function: "io_read",
            word,
            shares_requests,
            starts_in_cookie: false,
            is_entered_alone: false,
            is_row_only: false,
        }
    }

    #[test]
    fn functions_share_a_session_where_their_own_points_are_in_cookies() {
        let write = word(2, Returns::Bytes);
        let sharing = target(write, true);
        assert_eq!(sharing.sharing(Hook::Session), Sharing::FileSystems);
        for hook in [Hook::Multi, Hook::Kprobe, Hook::Fentry] {
            assert_eq!(sharing.sharing(hook), Sharing::Point(write.pack()));
        }
    }

    #[test]
    fn entry_points_of_requests_share_a_session_whatever_their_points() {
        let point = |op, returns, hook| target(word(op, returns), false).sharing(hook);
        assert_eq!(point(1, Returns::Issued, Hook::Session), Sharing::Requests);
        assert_eq!(point(2, Returns::Submitted, Hook::Session), Sharing::Requests);
        for (returns, hook) in [(Returns::Bytes, Hook::Session), (Returns::Issued, Hook::Multi)] {
            assert_ne!(point(1, returns, hook), point(2, returns, hook));
        }
    }
}
