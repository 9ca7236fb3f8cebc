//! Decides how each op is measured: a pure function from facts about the kernel to a plan.

pub mod selection;

use std::collections::{BTreeMap, BTreeSet};

use crate::catalog::family::{self, RowFunction};
use crate::catalog::{
    self, COMPAT, COMPLETIONS, Compat, FAILURE, FileSystem, Files, Layer, Lives, Op, OpSpec, Point, RECORDED_OPS,
    Returns, Shape,
};
use crate::kernel::{COMPAT_SYSCALL_PREFIX, Facts, Fprobe, Function, SYSCALL_PREFIX, other_name};
use crate::model::abi::MAX_OPS;
use crate::model::report::NotMeasured;

use super::{Choice, Hook, PointWord};

/// What to attach for the selected layers.
#[derive(Debug, Clone)]
pub struct Plan {
    /// In the order of layers and their tables; the position is the index of the op's counters.
    pub ops: Vec<PlannedOp>,
    /// Hooks for the functions of vfs and of the file systems, the best first.
    pub function_hooks: Vec<Hook>,
    /// Hooks for system calls, the best first.
    pub syscall_hooks: Vec<Hook>,
    /// Ways to measure the block layer, the best first; empty if it is not selected.
    pub block_ways: Vec<BlockWay>,
    /// Functions that complete asynchronous requests; empty if no entry point of such requests is measured.
    pub completions: Vec<PlannedCompletion>,
    /// The function that io_uring calls for requests that fail without a completion, [`FAILURE`], if the kernel has it.
    pub failure: Option<PlannedCompletion>,
    /// Hooks for completions: sets that are used together, the best first.
    pub completion_hooks: Vec<Vec<Hook>>,
    /// Functions that have a row and no op, which only the whole-stack view hooks.
    pub row_functions: Vec<PlannedRow>,
}

/// What a run needs from the block layer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BlockWish {
    /// The time in the queue (`-Q`).
    pub queued: bool,
    /// Only the requests of selected processes.
    pub by_owner: bool,
    /// The submitter of each request, to which it is assigned in groups.
    pub by_submitter: bool,
    /// The selected disk has bios only, no requests.
    pub is_bio_based: bool,
    /// The kernel keeps no I/O statistics of a disk (`queue/iostats`), so its requests have no start times.
    pub is_uncounted: bool,
    /// The whole-stack view, which needs the submitter of each request.
    pub whole_stack: bool,
    /// Each request is recorded, with its submitter.
    pub records: bool,
}

/// A way to measure the block layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockWay {
    /// How the issue and the completion of a request are traced, or both ends of a bio.
    pub hook: Hook,
    /// A second program traces completions as well, and bios if the hook is on functions: it sees what the first one
    /// skips.
    pub again: bool,
    /// The source of the start time and the submitter of a request.
    pub start: Start,
    /// Bios are stored in a map from their submission on.
    pub bio_stamps: bool,
    /// What is split off a bio, and never submitted itself, is stored then, and not with its request. This saves an event of
    /// each request; bios that an encryption in software (blk-crypto-fallback) makes have no submitter then.
    pub by_splits: bool,
    pub is_bio_based: bool,
    /// Functions that complete requests, if the hook is on functions.
    pub ends: Vec<&'static str>,
}

impl BlockWay {
    /// Whether requests are traced at functions, and completions and bios at tracepoints as well.
    #[must_use]
    pub fn is_by_both(&self) -> bool {
        self.again && self.hook.is_on_functions()
    }

    /// Whether only a kprobe sees that a bio is submitted. It is skipped in interrupts only, where bios of requests are hardly
    /// ever submitted, and one that it does not see lacks its submitter, and no count.
    #[must_use]
    pub fn submits_at_function(&self) -> bool {
        self.is_by_both() && self.by_splits && !self.is_bio_based
    }

    /// Whether some requests end in batches, at a function that is probed.
    #[must_use]
    pub fn ends_in_batches(&self) -> bool {
        self.ends.contains(&END_FUNCTIONS[1])
    }
}

/// The source of the start time of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// Start times are not needed.
    Unneeded,
    /// The tracepoint `block_io_start` (6.5).
    Event,
    /// The kernel function that accounts the start of a request.
    Function(&'static str),
    /// The request's `start_time_ns`, or the submission of its bio.
    Stamp,
}

impl Start {
    /// The start of queue times as the report names it.
    #[must_use]
    pub fn describe(self, bio_stamps: bool) -> Option<&'static str> {
        match (self, bio_stamps) {
            (Self::Unneeded, _) => None,
            (Self::Event, _) => Some("block_io_start"),
            (Self::Function(name), _) => Some(name),
            (Self::Stamp, false) => Some("the request's start_time_ns"),
            (Self::Stamp, true) => Some("the request's start_time_ns, else the bio's submission"),
        }
    }
}

/// Functions that account the start of a request: `blk_account_io_start` until 5.15, and again since 6.5, where it is
/// inlined; `__blk_account_io_start` in between.
const START_FUNCTIONS: [&str; 2] = ["blk_account_io_start", "__blk_account_io_start"];
/// The function that issues a request. (`blk_start_request` was removed with the single-queue block layer in 5.0; older
/// kernels lack what this tool needs.)
pub const ISSUE_FUNCTION: &str = "blk_mq_start_request";
/// Functions that complete requests: most pass the first one; requests that succeed and are completed in a batch, such
/// as those of NVMe, pass the second one (since 5.16: f794f3351f26).
pub const END_FUNCTIONS: [&str; 2] = ["blk_update_request", "blk_mq_end_request_batch"];

/// Functions that the submission and the completion of every bio pass through.
pub const BIO_FUNCTIONS: [&str; 2] = ["submit_bio_noacct", "bio_endio"];

/// Why a way of measuring the block layer loses requests on this machine; `None` if it does not.
#[must_use]
pub fn loses_requests(way: &BlockWay, facts: &Facts) -> Option<&'static str> {
    match (way.hook, way.again) {
        (Hook::RawTracepoint, _) if facts.preemption.is_possible() => {
            Some("this kernel preempts tasks inside the kernel, and the hook may then skip requests")
        }
        (Hook::RawTracepoint, _) | (_, true) => None,
        (_, false) => Some("a request that ends in an interrupt is skipped when another probe runs on the CPU"),
    }
}

/// Ways to measure the block layer.
///
/// # Errors
/// If the hook that `--probe` names cannot measure it: one line that says what to do.
pub fn block_ways(wish: BlockWish, facts: &Facts, choice: Choice) -> Result<Vec<BlockWay>, String> {
    let needs_start =
        !wish.is_bio_based && (wish.queued || wish.by_owner || wish.by_submitter || wish.whole_stack || wish.records);
    let exists = |name: &str| facts.functions.get(name).is_some_and(Function::may_exist);
    let has_submitters = wish.by_owner || wish.by_submitter || wish.whole_stack;
    let by_splits = !has_submitters && facts.block.has("block_split");
    let way = |hook, again, start| BlockWay {
        hook,
        again,
        start,
        bio_stamps: start == Start::Stamp && (has_submitters || wish.is_uncounted || wish.records),
        by_splits,
        is_bio_based: wish.is_bio_based,
        ends: match hook.is_on_functions() {
            true => END_FUNCTIONS.into_iter().filter(|name| exists(name)).collect(),
            false => Vec::new(),
        },
    };
    let (event, stamp) = match (needs_start, facts.block.has("block_io_start")) {
        (false, _) => (Start::Unneeded, Start::Unneeded),
        // A bio is submitted before its request starts: the wait for a free request is between them.
        (true, _) if wish.whole_stack || wish.records => (Start::Stamp, Start::Stamp),
        (true, true) => (Start::Event, Start::Stamp),
        (true, false) => (Start::Stamp, Start::Stamp),
    };
    let by_tracepoint = way(Hook::RawTracepoint, true, event);
    let by_both = entry_hook(facts).into_iter().map(|hook| way(hook, true, stamp));
    let by_functions = || -> Vec<BlockWay> {
        let by_functions = needs_start && !wish.whole_stack && !wish.records;
        let starts = START_FUNCTIONS.into_iter().filter(|name| by_functions && exists(name));
        let starts = starts.map(Start::Function).chain([event]);
        starts.map(|start| way(Hook::Kprobe, false, start)).collect()
    };
    match choice {
        Choice::Kprobe | Choice::KprobeEvent if wish.is_bio_based => Err(format!(
            "--probe {} cannot measure a disk without requests (dm, md); leave out --probe",
            choice.option()
        )),
        Choice::Kprobe | Choice::KprobeEvent => Ok(by_functions()),
        Choice::RawTracepoint | Choice::Tracepoint => Ok(vec![by_tracepoint]),
        _ if facts.preemption.is_possible() => Ok(by_both.chain([by_tracepoint]).collect()),
        _ if wish.is_bio_based => Ok(vec![by_tracepoint]),
        _ => Ok(vec![by_tracepoint, way(Hook::Kprobe, false, event)]),
    }
}

/// A function of this kernel that completes asynchronous requests.
#[derive(Debug, Clone)]
pub struct PlannedCompletion {
    pub function: String,
    pub in_btf: bool,
}

/// A function of this kernel that has a row.
#[derive(Debug, Clone)]
pub struct PlannedRow {
    pub function: &'static RowFunction,
    pub in_btf: bool,
}

impl PlannedRow {
    /// Whether the hook can be attached to it. (An fsession program stores no row to return to.)
    #[must_use]
    pub fn fits(&self, hook: Hook) -> bool {
        fits(self.in_btf, hook) && hook != Hook::Fsession
    }
}

/// Whether a hook can be attached to a function: functions that are not in BTF are not known to ftrace, and only
/// kprobes can reach them, if anything can.
fn fits(in_btf: bool, hook: Hook) -> bool {
    in_btf || matches!(hook, Hook::KprobeEvent | Hook::Kprobe | Hook::KprobeEntry)
}

/// The functions that have a row in a run of these layers, with their modules. Empty if `choice` is a hook that is not
/// on functions.
pub fn functions_of_rows(layers: &[Layer], choice: Choice) -> impl Iterator<Item = (String, Option<&'static str>)> {
    let on_functions = choice.hook().is_none_or(Hook::is_on_functions);
    let all = family::row_functions().filter(move |row| on_functions && has_row(layers, row));
    all.map(|row| (row.function.to_owned(), row.module))
}

/// Whether a run of these layers has the row of `function`.
fn has_row(layers: &[Layer], function: &RowFunction) -> bool {
    function.row.slot(layers.iter().copied()).is_some()
}

/// The functions of rows that this kernel has.
fn row_functions(layers: &[Layer], facts: &Facts) -> Vec<PlannedRow> {
    let known = |row: &'static RowFunction| {
        let function = facts.functions.get(row.function).filter(|known| known.may_exist())?;
        Some(PlannedRow {
            function: row,
            in_btf: function.btf.is_some(),
        })
    };
    let all = family::row_functions().filter(|row| has_row(layers, row));
    all.filter_map(known).collect()
}

/// An op, and the functions where it will be timed.
#[derive(Debug, Clone)]
pub struct PlannedOp {
    pub layer: Layer,
    pub spec: &'static OpSpec,
    /// Index of the frame that holds the start of a call in each thread's state; all system calls share frame 0.
    pub frame: u8,
    /// Empty if this kernel has no function where the op can be timed.
    pub points: Vec<PlannedPoint>,
    /// The calls that its numbers lack, or why it has none.
    pub not_measured: Option<NotMeasured>,
}

impl PlannedOp {
    /// The configuration of the program on one of its functions. `index`: the op's index in [`Plan::ops`].
    #[must_use]
    pub fn word(&self, index: usize, point: &Point, files: Files) -> PointWord {
        // An overlayfs may be on another overlayfs, whose functions are then called inside each other.
        let is_nested = self.layer.lives() == Some(Lives::Above) && !point.returns.is_async_entry();
        PointWord {
            op: index as u8,
            frame: self.frame,
            shape: point.shape,
            args: 0,
            returns: point.returns,
            shared: point.shared,
            files,
            outermost: point.outermost && !is_nested,
            suppressed: false,
            checked_at_return: false,
        }
    }
}

/// One function of an op that this kernel has.
#[derive(Debug, Clone)]
pub struct PlannedPoint {
    pub point: &'static Point,
    /// The function's name in this kernel.
    pub function: String,
    /// Whether it is in BTF, and so known to ftrace. Only kprobes can reach other functions, if anything can.
    pub in_btf: bool,
    /// Whether the session cookie can hold the start of its calls, because they are never nested in calls of their op.
    pub starts_in_cookie: bool,
    /// Set for an entry point of a layer that is not selected, which the op needs to recognize its asynchronous calls,
    /// and which counts nothing: the index of its own frame.
    pub suppressed: Option<u8>,
}

impl PlannedPoint {
    /// Whether the hook can be attached to this function.
    #[must_use]
    pub fn fits(&self, hook: Hook) -> bool {
        fits(self.in_btf, hook) && (hook != Hook::Fsession || self.starts_in_cookie)
    }

    /// Whether it is called by 32-bit programs only. Their calls are rare, and their functions as many as the others,
    /// so they are hooked only where a single link attaches most of them at once.
    #[must_use]
    pub fn is_compat(&self) -> bool {
        self.point.shape == Shape::Syscall32
    }
}

/// Whether the function does all of a system call and nothing else calls it: those of vfs that move bytes. So a session
/// cookie can hold the start of its calls (bpf/session.bpf.h), and in the whole-stack view its row goes on behind its
/// return (`does_call()` of bpf/function.bpf.h). At a file system, reads and writes may be a retry by another thread, or
/// inside a splice, which only a frame can show.
pub fn does_call(layer: Layer, point: &Point) -> bool {
    layer == Layer::Vfs && point.outermost && point.shape == Shape::File0 && point.returns == Returns::Bytes
}

/// The ops of vfs with functions whose starts a session cookie can hold ([`PlannedPoint::starts_in_cookie`]), and the
/// system calls that call these.
pub const CALLS_BY_COOKIE: [(Op, [Op; 5]); 2] = [
    (Op::Read, [Op::Read, Op::Pread64, Op::Readv, Op::Preadv, Op::Preadv2]),
    (
        Op::Write,
        [Op::Write, Op::Pwrite64, Op::Writev, Op::Pwritev, Op::Pwritev2],
    ),
];

/// The name of a point's function in this kernel.
#[must_use]
pub fn function_name(point: &Point) -> String {
    let prefix = match point.shape {
        Shape::Syscall32 | Shape::Syscall32Fd0 => COMPAT_SYSCALL_PREFIX,
        shape if shape.is_syscall() => SYSCALL_PREFIX,
        _ => "",
    };
    format!("{prefix}{}", point.function)
}

/// The functions that 32-bit programs call for an op.
fn compat_points(layer: Layer, op: Op) -> impl Iterator<Item = &'static Point> {
    let is_its = move |call: &&Compat| layer == Layer::Syscall && call.op == op;
    COMPAT.iter().filter(is_its).map(|call| &call.point)
}

/// The ops of a layer in a run. `is_recorded`: each call is recorded, also those that no other run measures.
fn specs(layer: Layer, is_recorded: bool) -> impl Iterator<Item = &'static OpSpec> {
    let recorded = RECORDED_OPS
        .iter()
        .filter(move |_| is_recorded && layer == Layer::Syscall);
    layer.ops().iter().chain(recorded)
}

/// The functions that a plan for these layers needs facts about, with their modules. Those of system calls are left out
/// if `choice` is a hook that is not on functions. `is_recorded`: see [`plan`].
#[must_use]
pub fn functions_of(layers: &[Layer], choice: Choice, is_recorded: bool) -> BTreeMap<String, Option<&'static str>> {
    let mut functions = BTreeMap::new();
    for &layer in layers {
        let tracepoints_only = choice.hook().is_some_and(|hook| !hook.is_on_functions());
        if layer == Layer::Syscall && tracepoints_only {
            continue;
        }
        if layer == Layer::Blk {
            functions.extend(block_functions(choice).map(|name| (name.to_owned(), None)));
            continue;
        }
        for spec in specs(layer, is_recorded) {
            let instead = spec.instead.iter().flat_map(|fallback| fallback.points);
            let async_entries = catalog::async_entries(spec.op).filter(|_| layer != Layer::Syscall);
            let points = spec
                .points
                .iter()
                .chain(compat_points(layer, spec.op))
                .chain(instead)
                .chain(async_entries);
            for point in points {
                let name = function_name(point);
                functions.extend(other_name(&name).map(|other| (other.to_owned(), point.module)));
                functions.insert(name, point.module);
            }
        }
        if layer != Layer::Syscall {
            let names = COMPLETIONS.iter().flat_map(|end| [Some(end.function), end.unless]);
            functions.extend(names.flatten().map(|name| (name.to_owned(), None)));
        }
    }
    functions
}

/// Functions of the block layer; those of the start only if `choice` needs them, since finding them takes time.
fn block_functions(choice: Choice) -> impl Iterator<Item = &'static str> {
    let needs_start = matches!(choice, Choice::Kprobe | Choice::KprobeEvent);
    let starts = START_FUNCTIONS.into_iter().filter(move |_| needs_start);
    starts.chain([ISSUE_FUNCTION]).chain(END_FUNCTIONS).chain(BIO_FUNCTIONS)
}

/// Functions that are hooked only at their entry, never at their return: those where requests begin and end and, if only
/// rows are reported (`rows_only`), those of vfs that do all of a system call.
pub fn functions_entered(rows_only: bool) -> impl Iterator<Item = &'static str> {
    let points = Layer::Vfs.ops().iter().flat_map(|spec| spec.points);
    let calls = points.filter(move |point| rows_only && does_call(Layer::Vfs, point));
    block_functions(Choice::Kprobe)
        .chain(COMPLETIONS.iter().map(|end| end.function))
        .chain(calls.map(|point| point.function))
}

/// Why a hook loses calls on this machine; `None` if it does not.
#[must_use]
pub fn loses(hook: Hook, facts: &Facts) -> Option<&'static str> {
    let preemptible = facts.preemption.is_possible();
    match hook {
        // kernel/bpf/trampoline.c: the program is skipped while another task of the CPU is preempted inside it.
        hook if hook.is_trampoline() && preemptible => {
            Some("this kernel preempts tasks inside the kernel, and the hook then skips calls")
        }
        Hook::RawTracepoint if preemptible => {
            Some("this kernel preempts tasks inside the kernel, and the hook may then skip calls")
        }
        Hook::Session | Hook::Multi if facts.fprobe == Fprobe::Rethook => {
            Some("in this kernel it can track only a few returns at once, so many sleeping calls exhaust it")
        }
        Hook::Kprobe => Some("it can track only a few returns per CPU at once, so many sleeping calls exhaust it"),
        _ => None,
    }
}

/// Whether calls of these hooks would be lost if their starts were in task storage, in which case a hash table replaces
/// it. While a task is preempted inside task storage, the kernel refuses access to it to other programs of that CPU,
/// before 6.2 even lookups (`kernel/bpf/bpf_task_storage.c`, `bpf_task_storage_trylock()`). Such losses could not even
/// be counted, since a thread's exit could not look up whether calls are still active. The kernel may also have no
/// memory for it.
#[must_use]
pub fn starts_need_table(hooks: &[Hook], facts: &Facts) -> bool {
    facts.storage_refused || facts.preemption.is_possible() && hooks.iter().any(|hook| hook.is_trampoline())
}

/// Whether this kernel supports the hook according to its BTF and configuration; attaching it may nevertheless be
/// refused.
///
/// kprobe.multi is not used with [`Fprobe::Graph`], because it can crash the kernel: a link at entries only has no
/// return handler. With the function graph tracer, returns are on each task's stack, and a task that sleeps in a
/// function keeps the address of a link that may be closed by then. If a new link has the same address when the task
/// returns, the kernel calls its return handler without a check for null (`fprobe_return()`, kernel/trace/fprobe.c;
/// seen in 7.3). A link of kprobe.session has both handlers.
fn is_offered(hook: Hook, facts: &Facts) -> bool {
    match hook {
        Hook::Fsession => facts.fentry && facts.fsession,
        Hook::Fentry => facts.fentry,
        Hook::Session => facts.session && facts.fprobe != Fprobe::Absent,
        Hook::Multi => facts.fprobe == Fprobe::Rethook,
        Hook::KprobeEvent => facts.kprobe && facts.tracefs.is_some(),
        Hook::Kprobe | Hook::KprobeEntry => facts.kprobe,
        Hook::RawTracepoint => true,
        Hook::Tracepoint => facts.tracefs.is_some(),
    }
}

/// Checks that the hook that `--probe` names can measure these layers.
///
/// # Errors
/// One line that says what to do.
pub fn check_choice(choice: Choice, layers: &[Layer], facts: &Facts) -> Result<(), String> {
    let Some(hook) = choice.hook() else {
        return Ok(());
    };
    let is_function_layer = |layer: &Layer| !matches!(layer, Layer::Syscall | Layer::Blk);
    if !hook.is_on_functions() && layers.iter().any(is_function_layer) {
        return Err(format!(
            "--probe {} measures only syscall and blk; use -T syscall or -T blk with it",
            choice.option()
        ));
    }
    let only_requests = layers.iter().all(|&layer| layer == Layer::Blk);
    if only_requests && matches!(hook, Hook::Fsession | Hook::Fentry | Hook::Session | Hook::Multi) {
        return Err(format!(
            "--probe {} cannot measure requests; with -T blk use raw-tracepoint or kprobe",
            choice.option()
        ));
    }
    if hook == Hook::Fsession && !layers.contains(&Layer::Vfs) {
        return Err(format!(
            "--probe {} measures only reads and writes at vfs; use it with -T vfs, or use --probe fentry",
            choice.option()
        ));
    }
    // For requests, `tracepoint` means raw tracepoints as well.
    if is_offered(hook, facts) || (only_requests && hook == Hook::Tracepoint) {
        return Ok(());
    }
    if hook == Hook::Multi && facts.fprobe == Fprobe::Graph {
        return Err(format!(
            "--probe {} can crash this kernel, and is not used on it; use --probe {}",
            choice.option(),
            Choice::KprobeSession.option()
        ));
    }
    if facts.tracefs.is_none() && matches!(hook, Hook::KprobeEvent | Hook::Tracepoint) {
        return Err(format!(
            "--probe {} needs tracefs, which is not mounted or not accessible: mount -t tracefs tracefs \
             /sys/kernel/tracing, and run as root or with CAP_DAC_READ_SEARCH",
            choice.option()
        ));
    }
    let offered = FUNCTION_HOOKS
        .into_iter()
        .chain([Hook::RawTracepoint, Hook::Tracepoint]);
    let offered: Vec<Hook> = offered.filter(|&hook| is_offered(hook, facts)).collect();
    Err(format!(
        "this kernel has no {}; values of --probe that may work: {}",
        choice.option(),
        Choice::options_of(&offered)
    ))
}

/// Whether the kernel has a file system, judging by its own functions: shared functions exist in any case.
fn has_file_system(file_system: &FileSystem, facts: &Facts) -> bool {
    let known = |name| facts.functions.get(name).is_some_and(Function::may_exist);
    file_system.own_functions().any(known)
}

/// Checks that the selected file systems are in the kernel. Their modules are not loaded for that.
///
/// # Errors
/// One line that says what to do.
pub fn check_file_systems(layers: &[Layer], facts: &Facts) -> Result<(), String> {
    let named = layers.iter().filter_map(|layer| layer.file_system());
    match named
        .into_iter()
        .find(|file_system| !has_file_system(file_system, facts))
    {
        None => Ok(()),
        Some(FileSystem { name, module, .. }) => Err(match module {
            Some(module) => format!(
                "-T {name}: the module {module} is not loaded; mount such a file system first, or run: modprobe {module}"
            ),
            None => format!("-T {name}: this kernel has no {name}"),
        }),
    }
}

/// Checks that a run has counters for all ops of a plan.
///
/// # Errors
/// One line that says what to do.
pub fn check_room(plan: &Plan) -> Result<(), String> {
    match plan.counters() {
        rows if rows > MAX_OPS as usize => Err(format!(
            "these layers have {rows} operations, and a run counts {MAX_OPS} at most; name fewer of them by -T"
        )),
        _ => Ok(()),
    }
}

/// Hooks to try, the best first: those that lose nothing before those that do, cheaper ones before more expensive ones.
fn hooks(by_cost: &[Hook], facts: &Facts, choice: Choice) -> Vec<Hook> {
    if let Some(hook) = choice.hook() {
        // Functions that fsession does not fit get fentry, and the report says so.
        let other = (hook == Hook::Fsession).then_some(Hook::Fentry);
        let chosen = [Some(hook), other].into_iter().flatten();
        return chosen.filter(|hook| by_cost.contains(hook)).collect();
    }
    let (lossless, mut lossy): (Vec<_>, Vec<_>) = by_cost
        .iter()
        .copied()
        .filter(|&hook| is_offered(hook, facts))
        .partition(|&hook| loses(hook, facts).is_none());
    lossy.sort_by_key(|&hook| how_badly_it_loses(hook));
    [lossless, lossy].concat()
}

/// The order of hooks that lose calls, the least loss first: those up to 2 lose only returns, and only if more tasks
/// sleep than their pool has entries; the others lose calls at random, fewer with two programs for all calls (3) than
/// with two for each function (4).
fn how_badly_it_loses(hook: Hook) -> u8 {
    match hook {
        Hook::KprobeEvent | Hook::KprobeEntry | Hook::Tracepoint => 0,
        Hook::Kprobe => 1,
        Hook::Multi | Hook::Session => 2,
        Hook::RawTracepoint => 3,
        Hook::Fsession | Hook::Fentry => 4,
    }
}

/// In the order of the instructions that they add per call: docs/hot-path.md.
const FUNCTION_HOOKS: [Hook; 6] = [
    Hook::Fsession,
    Hook::Fentry,
    Hook::Session,
    Hook::Multi,
    Hook::KprobeEvent,
    Hook::Kprobe,
];

/// System calls are many functions: attaching to and detaching from each of them takes seconds, while two tracepoints
/// trace all calls.
const SYSCALL_HOOKS: [Hook; 7] = [
    Hook::RawTracepoint,
    Hook::Session,
    Hook::Multi,
    Hook::Tracepoint,
    Hook::Fentry,
    Hook::KprobeEvent,
    Hook::Kprobe,
];

/// The hook, other than a trampoline, for the entry of a function that is called in interrupts as well. A link of
/// kprobe.multi would be cheaper, but can crash the kernel (see [`is_offered`]).
fn entry_hook(facts: &Facts) -> Option<Hook> {
    Some(Hook::Kprobe).filter(|_| facts.kprobe)
}

/// Hooks for completions, which run in interrupts as well as in tasks: sets that are used together, the best first.
///
/// A trampoline skips a program only while the same program is running on that CPU, which for an interrupt means that
/// it interrupted the program, or that a task was preempted inside it. Kprobes and kprobe.multi programs are skipped
/// while any program of these kinds is running (`bpf_prog_active`, `kprobe_running`): never in a task, but often in an
/// interrupt during entries and returns of other calls. So each completion has two programs, and a request is counted
/// by the first one that runs. Without preemption in the kernel, two trampolines miss only an interrupt within an
/// interrupt; with it, a trampoline and a program of these kinds together miss less: a session, which one link attaches to all of
/// them, or kprobes.
fn completion_hooks(facts: &Facts, completions: &[PlannedCompletion]) -> Vec<Vec<Hook>> {
    let fentry = Some(Hook::Fentry).filter(|&hook| is_offered(hook, facts));
    let on_all = |hook: &Hook| completions.iter().all(|end| fits(end.in_btf, *hook));
    let other = entry_hook(facts).filter(on_all);
    // Elsewhere a session takes an entry of a pool before it asks the program.
    let has_no_pool = facts.fprobe == Fprobe::Graph;
    let session = Some(Hook::Session).filter(|hook| has_no_pool && is_offered(*hook, facts) && on_all(hook));
    let mut sets: Vec<Vec<Hook>> = match fentry {
        Some(fentry) if !facts.preemption.is_possible() => vec![vec![fentry; 2]],
        _ => {
            let others = session.into_iter().chain(other);
            others
                .map(|other| fentry.into_iter().chain([other]).collect())
                .collect()
        }
    };
    sets.extend(other.or(fentry).map(|hook| vec![hook]));
    sets.dedup();
    sets
}

/// The functions of this kernel that complete asynchronous requests.
fn completions(facts: &Facts) -> Vec<PlannedCompletion> {
    let is_known = |name: &str| facts.functions.get(name).is_some_and(Function::may_exist);
    let useful = COMPLETIONS
        .iter()
        .filter(|end| end.unless.is_none_or(|name| !is_known(name)));
    useful.filter_map(|end| completion(facts, end.function)).collect()
}

fn completion(facts: &Facts, function: &str) -> Option<PlannedCompletion> {
    let known = facts.functions.get(function).filter(|known| known.may_exist())?;
    Some(PlannedCompletion {
        function: function.to_owned(),
        in_btf: known.btf.is_some(),
    })
}

/// Plans a run of `layers` that records nothing.
#[must_use]
pub fn plan(layers: &[Layer], facts: &Facts, choice: Choice) -> Plan {
    plan_of(layers, facts, choice, false)
}

/// Plans a run of `layers`. `is_recorded`: each call is recorded, also those that no other run measures.
#[must_use]
pub fn plan_of(layers: &[Layer], facts: &Facts, choice: Choice, is_recorded: bool) -> Plan {
    let mut planning = Planning {
        layers,
        facts,
        frames: 0,
        frame_of: BTreeMap::new(),
        with_async_entries: BTreeSet::new(),
        async_frame: None,
    };
    let specs = layers
        .iter()
        .flat_map(|layer| specs(*layer, is_recorded).map(move |spec| (*layer, spec)));
    let ops: Vec<PlannedOp> = specs.map(|(layer, spec)| planning.op(layer, spec)).collect();
    let is_async_entry = |planned: &PlannedPoint| planned.point.returns.is_async_entry();
    let any_async_entry = ops.iter().any(|op| op.points.iter().any(is_async_entry));
    let completions = if any_async_entry {
        completions(facts)
    } else {
        Vec::new()
    };
    Plan {
        ops,
        completion_hooks: completion_hooks(facts, &completions),
        failure: completion(facts, FAILURE).filter(|_| any_async_entry),
        completions,
        function_hooks: hooks(&FUNCTION_HOOKS, facts, choice),
        syscall_hooks: hooks(&SYSCALL_HOOKS, facts, choice),
        block_ways: Vec::new(),
        row_functions: row_functions(layers, facts),
    }
}

/// Groups of layers that share frames, because their calls are not nested in each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Vfs,
    /// File systems that call other file systems.
    Above,
    /// All other file systems: none calls another one in the same thread, except for caches on a disk (such as
    /// FS-Cache).
    FileSystem,
}

/// The state while a plan is made.
struct Planning<'a> {
    layers: &'a [Layer],
    facts: &'a Facts,
    /// The number of frames in use, without frame 0, which system calls use.
    frames: u8,
    frame_of: BTreeMap<(Level, Op), u8>,
    /// Ops of file systems that already have suppressed entry points, in a run without vfs.
    with_async_entries: BTreeSet<Op>,
    async_frame: Option<u8>,
}

impl Planning<'_> {
    fn op(&mut self, layer: Layer, spec: &'static OpSpec) -> PlannedOp {
        let frame = self.frame(layer, spec);
        let (mut points, mut not_measured) = self.points(layer, spec);
        not_measured = inlined(spec, &points).or(not_measured);
        let is_alone = layer.lives().is_some() && !self.layers.contains(&Layer::Vfs);
        if is_alone && !points.is_empty() && self.with_async_entries.insert(spec.op) {
            points.extend(self.async_entries(layer, spec));
        }
        PlannedOp {
            layer,
            spec,
            frame,
            points,
            not_measured,
        }
    }

    fn next_frame(&mut self) -> u8 {
        self.frames += 1;
        self.frames
    }

    fn frame(&mut self, layer: Layer, spec: &OpSpec) -> u8 {
        if matches!(layer, Layer::Syscall | Layer::Blk) {
            return 0;
        }
        let key = match (layer.lives(), spec.around.unwrap_or(spec.op)) {
            (None, op) => (Level::Vfs, op),
            (Some(Lives::Above), op @ (Op::Read | Op::Write)) => (Level::Above, op),
            // Its other ops are never nested in each other.
            (Some(Lives::Above), _) => (Level::Above, Op::Open),
            (Some(_), op) => (Level::FileSystem, op),
        };
        let next = self.frames + 1;
        let frame = *self.frame_of.entry(key).or_insert(next);
        self.frames = self.frames.max(frame);
        frame
    }

    /// The functions where an op is timed, and what they miss.
    fn points(&self, layer: Layer, spec: &'static OpSpec) -> (Vec<PlannedPoint>, Option<NotMeasured>) {
        let file_system = layer.file_system();
        let is_absent = file_system.is_some_and(|file_system| !has_file_system(file_system, self.facts));
        let present = |points: &mut dyn Iterator<Item = &'static Point>| match is_absent {
            true => Vec::new(),
            false => present(layer, points, self.facts),
        };
        let points = present(&mut spec.points.iter().chain(compat_points(layer, spec.op)));
        if !points.is_empty() || spec.points.is_empty() || layer == Layer::Syscall {
            return (points, None);
        }
        let names = |points: &[Point]| points.iter().map(|point| point.function).collect::<Vec<_>>().join(", ");
        let missing = names(spec.points);
        let instead = spec.instead.as_ref();
        let points = instead.map(|fallback| present(&mut fallback.points.iter()));
        let points = points.unwrap_or_default();
        let not_measured = match instead {
            _ if is_absent => NotMeasured::new(spec.op.name(), format!("there is no {layer} in this kernel")),
            Some(fallback) if !points.is_empty() => {
                let passed = names(fallback.points);
                let reason = format!("{missing}: not in this kernel; they do not pass {passed}");
                NotMeasured::new(fallback.misses, reason)
            }
            _ => NotMeasured::new(spec.op.name(), format!("{missing}: not in this kernel")),
        };
        (points, Some(not_measured))
    }

    /// The entry points of vfs that an op of a file system needs for its asynchronous calls, which share a frame of
    /// their own.
    fn async_entries(&mut self, layer: Layer, spec: &OpSpec) -> Vec<PlannedPoint> {
        let mut async_entries = present(layer, &mut catalog::async_entries(spec.op), self.facts);
        if !async_entries.is_empty() {
            let frame = self.async_frame.unwrap_or_else(|| self.next_frame());
            self.async_frame = Some(frame);
            async_entries
                .iter_mut()
                .for_each(|entry| entry.suppressed = Some(frame));
        }
        async_entries
    }
}

/// Those of a layer's points that this kernel has. Empty if only points of 32-bit programs are left.
fn present(layer: Layer, points: &mut dyn Iterator<Item = &'static Point>, facts: &Facts) -> Vec<PlannedPoint> {
    let may_exist = |name: &str| facts.functions.get(name).is_some_and(Function::may_exist);
    let is_listed = |name: &&str| facts.functions.get(*name).is_some_and(|known| known.btf.is_some());
    let useful = |point: &&Point| !point.unless.is_some_and(may_exist);
    let present = points.filter(useful).filter_map(|point| {
        let name = function_name(point);
        let function = facts.functions.get(&name).filter(|function| function.may_exist())?;
        let other = other_name(&name).filter(|other| function.btf.is_none() && is_listed(other));
        Some(PlannedPoint {
            point,
            in_btf: function.btf.is_some() || other.is_some(),
            function: other.map_or(name, str::to_owned),
            starts_in_cookie: does_call(layer, point),
            suppressed: None,
        })
    });
    let present: Vec<PlannedPoint> = present.collect();
    let is_enough = present.iter().any(|planned| !planned.point.shape.is_32_bit());
    if is_enough { present } else { Vec::new() }
}

/// What is missing if the only functions left are inlined into their callers.
fn inlined(spec: &OpSpec, points: &[PlannedPoint]) -> Option<NotMeasured> {
    let of_all_programs = || points.iter().filter(|planned| !planned.point.shape.is_32_bit());
    if points.is_empty() || !of_all_programs().all(|planned| planned.point.inlined) {
        return None;
    }
    let left: Vec<&str> = of_all_programs().map(|planned| planned.point.function).collect();
    let left = left.join(", ");
    let reason = format!("{left} is inlined into its callers in this kernel, and there is no other function");
    Some(NotMeasured::new(format!("most {} calls", spec.op), reason))
}

impl Plan {
    /// The file systems with shared functions, whose calls must be filtered by file system, and their layers.
    pub fn narrowed(&self) -> impl Iterator<Item = (Layer, &'static FileSystem)> {
        let shares = |layer: Layer| {
            let mut ops = self.ops.iter().filter(move |op| op.layer == layer);
            ops.any(|op| op.points.iter().any(|planned| planned.point.shared))
        };
        let narrowed = Layer::ALL.into_iter().filter(move |layer| shares(*layer));
        narrowed.filter_map(|layer| Some((layer, layer.file_system()?)))
    }

    /// Hooks for this layer, the best first.
    #[must_use]
    pub fn hooks_for(&self, layer: Layer) -> &[Hook] {
        if layer == Layer::Syscall {
            &self.syscall_hooks
        } else {
            &self.function_hooks
        }
    }

    /// Removes hooks that store only the start of a call: a group, and the row to return to, need a frame.
    pub fn keep_frames(&mut self) {
        self.function_hooks.retain(|&hook| hook != Hook::Fsession);
        let points = self.ops.iter_mut().flat_map(|op| &mut op.points);
        points.for_each(|planned| planned.starts_in_cookie = false);
    }

    /// The hooks that should suffice: for each function, the best one that fits it.
    #[must_use]
    pub fn first_choice(&self) -> Vec<Hook> {
        let mut chosen = Vec::new();
        for op in &self.ops {
            let hooks = self.hooks_for(op.layer);
            if op.layer == Layer::Blk {
                continue;
            }
            match hooks.first() {
                // Tracepoints need no function.
                Some(first) if !first.is_on_functions() => chosen.push(*first),
                // The functions of 32-bit programs use the hooks of the others.
                _ => chosen.extend(
                    op.points
                        .iter()
                        .filter(|planned| !planned.is_compat())
                        .filter_map(|planned| hooks.iter().find(|hook| planned.fits(**hook))),
                ),
            }
        }
        let hooks = &self.function_hooks;
        let of_rows = self.row_functions.iter();
        chosen.extend(of_rows.filter_map(|planned| hooks.iter().find(|hook| planned.fits(**hook))));
        chosen.sort_unstable();
        chosen.dedup();
        chosen
    }

    /// The rows of counters for completions, after those of all ops: pairs of the index of an op and its row.
    pub fn completion_counters(&self) -> impl Iterator<Item = (usize, usize)> {
        let takes_requests = |op: &PlannedOp| op.points.iter().any(|planned| planned.point.shape == Shape::Kiocb0);
        let ops = self.ops.iter().enumerate().filter(move |(_, op)| takes_requests(op));
        let ops = ops.filter(|_| !self.completions.is_empty());
        ops.zip(self.ops.len()..).map(|((op, _), row)| (op, row))
    }

    /// Indices of the ops that have calls with their start in a cookie, in the order of their bins.
    pub fn binned_ops(&self) -> impl Iterator<Item = usize> {
        let has_cookies = |op: &PlannedOp| op.points.iter().any(|planned| planned.starts_in_cookie);
        let ops = self.ops.iter().enumerate().filter(move |(_, op)| has_cookies(op));
        ops.map(|(op, _)| op)
    }

    /// The number of `op_stats` per CPU.
    #[must_use]
    pub fn counters(&self) -> usize {
        self.ops.len() + self.completion_counters().count()
    }

    /// The layers with planned ops, in the order of the stack.
    pub fn layers(&self) -> impl Iterator<Item = Layer> {
        Layer::ALL.into_iter().filter(|&layer| self.has(layer))
    }

    /// Whether any op of this layer was planned.
    #[must_use]
    pub fn has(&self, layer: Layer) -> bool {
        self.ops.iter().any(|op| op.layer == layer)
    }
}
