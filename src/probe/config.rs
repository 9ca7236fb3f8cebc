//! Fills in the constants of the BPF programs (`struct rodata` of bpf/abi.h) before they are loaded.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::ops::RangeInclusive;

use super::Hook;
use super::plan::selection::Selection;
use super::plan::{BlockWay, CALLS_BY_COOKIE, Plan, PlannedOp, Start};
use super::request::{GroupWish, Request, RingSlots};
use crate::catalog::{
    COMMANDS, COMPAT, Family, Files, Guard, Layer, Lives, Op, Point, RECORDED, REQUESTS, Returns, Row, SYSCALLS, Says,
    Shape, Syscall, syscall_of,
};
use crate::kernel::cgroup::Hierarchy;
use crate::kernel::interface::types;
use crate::kernel::interface::{
    BLOCK_OP_OTHER, BY_CGROUP, BY_DISK, BY_FILE, BY_NOTHING, BY_PROCESS, CALL_CHANGES_FOLDER, CALL_CLOSES,
    CALL_HAS_ARGUMENTS, CALL_HAS_OFFSET, CALL_HAS_SIZE, CALL_NEEDS_ALL, CALL_OPENS, CALL_POSITION, CALL_TAKES_POSITION,
    CALL_WRITES, CGROUPS_IO, CGROUPS_MEMORY, CGROUPS_UNIFIED, FILE_SYSTEMS, GUARD_F_OP, GUARD_MAGIC, GUARD_NONE,
    KFUNC_PREEMPT_DISABLE, KFUNC_SESSION_COOKIE, KFUNC_SESSION_COOKIE_CTX, KFUNC_SESSION_IS_RETURN_CTX, OP_ABOVE,
    OP_FILES_AND_DIRS, OP_RECORDED, POINT_NEEDS_ALL_SHIFT, POINT_TAKES_POSITION_SHIFT, ROW_QUEUE,
};
use crate::kernel::{Facts, Fprobe};
use crate::model::ids::By;
use crate::model::report::nanoseconds;
use crate::model::sample::Sample;

/// The inputs of an attempt to attach.
#[derive(Debug, Clone, Copy)]
pub struct Setup<'a> {
    pub request: &'a Request,
    pub facts: &'a Facts,
    pub plan: &'a Plan,
    pub selection: &'a Selection<'a>,
}

/// The maps of counters that were created for an attempt.
#[derive(Debug, Clone, Copy, Default)]
pub struct Made {
    /// A single value contains all counters. `None`: they are elements of an array.
    pub one_value: Option<OneValue>,
    /// Successful calls with a start in a cookie and a usual duration are counted in bins (`bpf/bins.bpf.h`).
    pub bins: bool,
    /// The rings of slots.
    pub ring_slots: RingSlots,
}

/// The layout of a value that contains the counters of all CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OneValue {
    /// The size of the counters of one CPU.
    pub cpu_bytes: u32,
    /// The bits of a CPU's number that are the index of its counters.
    pub cpu_mask: u32,
}

impl Setup<'_> {
    /// Whether threads, requests and bios have slots that are indexed by a hash of their number or address, which are
    /// faster than a hash table. Taking a slot needs an atomic instruction that returns the old value. With slots, hash
    /// tables of a requested length would hardly be used, so such a request disables them.
    #[must_use]
    pub fn has_slots(&self) -> bool {
        self.facts.answering_atomics && self.request.starts.is_none()
    }

    /// Whether a `kprobe.session` may store something in its cookies. Not on kernels where fprobe has a pool of returns: there, a
    /// cookie contains the value of an earlier call, which would be taken for this one's if the program at the entry was skipped.
    #[must_use]
    pub fn keeps_cookies(&self) -> bool {
        let has_cookies = [KFUNC_SESSION_COOKIE, KFUNC_SESSION_COOKIE_CTX]
            .iter()
            .any(|kfunc| self.facts.kfuncs.contains_key(kfunc));
        has_cookies && self.facts.fprobe == Fprobe::Graph
    }

    /// Whether `kprobe.session` stores the starts of some calls in its cookies.
    #[must_use]
    pub fn session_has_cookies(&self) -> bool {
        let mut points = self.plan.ops.iter().flat_map(|op| &op.points);
        let may_have = self.keeps_cookies() && points.any(|planned| planned.starts_in_cookie);
        may_have && self.loads(Hook::Session)
    }

    /// Whether some starts are in cookies.
    #[must_use]
    pub fn has_cookies(&self) -> bool {
        self.session_has_cookies() || self.loads(Hook::Fsession)
    }

    /// Whether the programs of a hook are loaded.
    #[must_use]
    pub fn loads(&self, hook: Hook) -> bool {
        self.selection.hooks.contains(&hook)
    }

    /// Whether the run reports whose requests a disk served while requests of the selected processes waited.
    #[must_use]
    pub fn reports_neighbours(&self) -> bool {
        let is_of_requests = self.selection.way.is_some_and(|way| !way.is_bio_based);
        self.request.block.by_owner && is_of_requests && self.facts.answering_atomics
    }
}

/// Fills in all constants.
pub fn fill(rodata: &mut types::rodata, setup: &Setup<'_>, made: Made) {
    let Setup {
        request, facts, plan, ..
    } = *setup;
    rodata.config = config(setup, made);
    for (index, op) in plan.binned_ops().enumerate().filter(|_| made.bins) {
        rodata.binned_indices[op] = index as u8;
    }
    rodata.cast_types = cast_types(facts);
    rodata.kfuncs = kfuncs(facts);
    fill_syscall_points(&mut rodata.syscall_points, &mut rodata.compat_points, setup);
    fill_cookie_calls(&mut rodata.cookie_calls, &mut rodata.compat_cookie_calls, plan);
    fill_rows(&mut rodata.op_rows, &mut rodata.op_families, plan);
    fill_file_systems(&mut rodata.file_systems, setup);
    for (op, value) in plan.ops.iter().zip(&mut rodata.guard_values) {
        *value = request.guards.get(&op.layer).map_or(0, |(_, value)| *value);
    }
    for (op, traits) in plan.ops.iter().zip(&mut rodata.op_traits) {
        let guard = request.guards.get(&op.layer).map(|(guard, _)| *guard);
        *traits = (op_traits(op.layer, guard) | recorded_trait(op, request)) as u8;
    }
    rodata.has_above = plan.layers().any(|layer| layer.lives() == Some(Lives::Above)).into();
    fill_call_shapes(&mut rodata.call_shapes, plan);
    fill_commands(&mut rodata.call_commands, plan);
    if let Some(way) = setup.selection.way {
        rodata.block = block_config(setup, way);
        fill_block_ops(&mut rodata.block_ops, facts);
    }
    for (op, row) in plan.completion_counters() {
        rodata.completion_counters[op] = row as u8;
    }
}

/// Page faults of file systems are recorded, too.
fn recorded_trait(op: &PlannedOp, request: &Request) -> u32 {
    if is_recorded_fault(op, request) { OP_RECORDED } else { 0 }
}

fn is_recorded_fault(op: &PlannedOp, request: &Request) -> bool {
    request.records.is_some() && op.spec.op == Op::Fault
}

/// The properties that all ops of a layer share.
fn op_traits(layer: Layer, guard: Option<Guard>) -> u32 {
    let guard = match guard {
        None => GUARD_NONE,
        Some(Guard::FileOperations) => GUARD_F_OP,
        Some(Guard::Magic) => GUARD_MAGIC,
    };
    match layer.lives() {
        None => guard,
        // The functions of a file system are called for its regular files and directories only; for other kinds of
        // files, the kernel has functions of its own.
        Some(Lives::Above) => guard | OP_FILES_AND_DIRS | OP_ABOVE,
        Some(_) => guard | OP_FILES_AND_DIRS,
    }
}

fn config(setup: &Setup<'_>, made: Made) -> types::config {
    let Setup {
        request,
        facts,
        plan,
        selection,
    } = *setup;
    let flag = u8::from;
    let only_process = request.only_process();
    // Only these programs can be preempted by a program that adds to the same counters.
    let can_be_preempted = |hook: &Hook| hook.is_trampoline() || *hook == Hook::RawTracepoint;
    types::config {
        comm: request.comm.as_deref().map_or([0; 2], padded),
        slower_ns: request.slower.map_or(0, nanoseconds),
        file_inode: request.file.as_ref().map_or(0, |file| file.inode),
        cpu_mask: match made.one_value {
            // Verifiers that have this kfunc know the range of a CPU number without a mask.
            Some(_) if facts.kfuncs.contains_key(&KFUNC_SESSION_IS_RETURN_CTX) => u64::MAX,
            one_value => one_value.map_or(0, |value| value.cpu_mask.into()),
        },
        file_device: request.file.as_ref().map_or(0, |file| file.device),
        tgid: only_process.unwrap_or(0),
        self_tgid: request.own,
        unit_ns: request.unit_ns,
        counters: plan.counters() as u32,
        cpu_bytes: made.one_value.map_or(0, |value| value.cpu_bytes),
        traced_set: flag(request.follow || only_process.is_none() && !request.traced.is_empty()),
        follow: flag(request.follow),
        by_cgroup: flag(request.cgroup.is_some()),
        by_comm: flag(request.comm.is_some()),
        by_disk: flag(request.disk.is_some()),
        all_files: flag(request.all_files),
        atomic: flag(selection.hooks.iter().any(can_be_preempted) && facts.preemption.is_possible()),
        hash_starts: flag(selection.starts_in_table),
        slots: flag(setup.has_slots()),
        typed_task: flag(facts.task_storage),
        reports_slow: flag(request.slower.is_some()),
        by_file: flag(request.file.is_some()),
        cookies: flag(setup.has_cookies()),
        group_by: group_by(request.groups) as u8,
        cgroups_of: cgroups_of(request.groups) as u8,
        stack_rows: stack_rows(plan),
        counted_frames: counted_frames(plan, request),
        rows_only: flag(request.rows_only),
        one_epoch: flag(request.one_report),
        bins: flag(made.bins),
        records: flag(request.records.is_some()),
        answering_atomics: flag(facts.answering_atomics),
        sample: request.sample.map_or(0, Sample::threshold),
        ring_slots: made.ring_slots.each,
        ring_cpus: made.ring_slots.cpus,
        pad: 0,
    }
}

/// The name of a thread as the kernel stores it: 16 bytes, padded with zeros.
fn padded(comm: &str) -> [u64; 2] {
    let mut padded = [0u8; 16];
    let bytes = padded.iter_mut().zip(comm.bytes());
    bytes.for_each(|(to, byte)| *to = byte);
    let (first, second) = padded.split_at(8);
    [first, second].map(|half| half.try_into().map_or(0, u64::from_ne_bytes))
}

fn cast_types(facts: &Facts) -> types::cast_types {
    let type_of = |name| facts.cast_types.get(name).copied().unwrap_or(0);
    types::cast_types {
        file: type_of("file"),
        inode: type_of("inode"),
        kiocb: type_of("kiocb"),
        super_block: type_of("super_block"),
        request: type_of("request"),
        request_queue: type_of("request_queue"),
        bio: type_of("bio"),
        block_device: type_of("block_device"),
        gendisk: type_of("gendisk"),
        pt_regs: type_of("pt_regs"),
        page: type_of("page"),
    }
}

fn kfuncs(facts: &Facts) -> types::kfuncs {
    let has = |kfunc| facts.kfuncs.contains_key(&kfunc);
    types::kfuncs {
        // Tracepoints can be preempted since 7.0, which introduced `fsession`. 6.12 has the kfunc, but refuses programs
        // that then call a global function of their own.
        preempt_disable: u8::from(facts.fsession && has(KFUNC_PREEMPT_DISABLE)),
        session_is_return_ctx: u8::from(has(KFUNC_SESSION_IS_RETURN_CTX)),
        session_cookie_ctx: u8::from(has(KFUNC_SESSION_COOKIE_CTX)),
    }
}

/// What calls are grouped by.
fn group_by(groups: Option<GroupWish>) -> u32 {
    match groups.map(|wish| wish.by) {
        // By the latter only records are grouped.
        None | Some(By::Thread | By::Comm | By::Fd | By::User) => BY_NOTHING,
        Some(By::Process) => BY_PROCESS,
        Some(By::File) => BY_FILE,
        Some(By::Disk) => BY_DISK,
        Some(By::Cgroup | By::Unit | By::Pod | By::Container) => BY_CGROUP,
    }
}

fn cgroups_of(groups: Option<GroupWish>) -> u32 {
    let is_by_cgroup = groups.is_some_and(|wish| wish.by.is_of_cgroups());
    match is_by_cgroup.then(Hierarchy::here) {
        None | Some(Hierarchy::Unified) => CGROUPS_UNIFIED,
        Some(Hierarchy::Io) => CGROUPS_IO,
        Some(Hierarchy::Memory) => CGROUPS_MEMORY,
    }
}

/// A bit for each frame whose calls are counted. With [`Request::rows_only`], these are the frames of asynchronous
/// requests, and of page faults that are recorded.
pub(super) fn counted_frames(plan: &Plan, request: &Request) -> u16 {
    if !request.rows_only {
        return u16::MAX;
    }
    let ops = plan.ops.iter();
    let takes_requests = |op: &PlannedOp| op.points.iter().any(|planned| planned.point.shape == Shape::Kiocb0);
    let by_requests = ops.filter(|op| takes_requests(op) || is_recorded_fault(op, request));
    let frames = by_requests.flat_map(|op| {
        op.points
            .iter()
            .filter_map(|planned| planned.suppressed)
            .chain([op.frame])
    });
    frames.fold(0, |bits, frame| bits | 1 << frame)
}

/// Whether only some calls of an op are counted. With [`Request::rows_only`], those that succeed are in the families
/// alone, but for requests, page faults that are recorded, and system calls that are in no family.
pub(super) fn is_partial(op: &PlannedOp, request: &Request) -> bool {
    let is_counted = match op.layer {
        Layer::Blk => true,
        Layer::Syscall => syscall_of(op.spec.op).is_some_and(|call| call.family.is_none()),
        _ => is_recorded_fault(op, request),
    };
    request.rows_only && !is_counted
}

/// The index of a row in a run of this plan.
pub(super) fn slot_of(plan: &Plan, row: Row) -> u8 {
    row.slot(plan.layers()).map_or(0, |slot| slot as u8)
}

/// By op: the index of the row in which its functions run, and the family of a system call plus 1 (0: none).
fn fill_rows(rows: &mut [u8], families: &mut [u8], plan: &Plan) {
    for ((op, row), family) in plan.ops.iter().zip(rows).zip(families) {
        *row = slot_of(plan, Row::Layer(op.layer));
        let call = syscall_of(op.spec.op).filter(|_| op.layer == Layer::Syscall);
        *family = call.and_then(|call| call.family).map_or(0, |family| family as u8 + 1);
    }
}

/// The file systems whose functions that get reads or writes share a program, which distinguishes them by the address of the function
/// (`session_file_systems`, bpf/function.bpf.h), in the order of these. `None`: they cannot, as addresses are hidden, or functions of
/// one are between those of another.
pub(super) fn sharing_file_systems(plan: &Plan, facts: &Facts) -> Option<Vec<(Layer, RangeInclusive<NonZeroU64>)>> {
    let mut all: BTreeMap<Layer, Vec<NonZeroU64>> = BTreeMap::new();
    for op in plan.ops.iter().filter(|op| shares_requests(op.layer)) {
        for planned in op.points.iter().filter(|planned| gets_requests(planned.point)) {
            let address = facts.functions.get(&planned.function)?.address?;
            all.entry(op.layer).or_default().push(address);
        }
    }
    let range = |addresses: Vec<NonZeroU64>| Some(*addresses.iter().min()?..=*addresses.iter().max()?);
    let ranges = all
        .into_iter()
        .map(|(layer, addresses)| Some((layer, range(addresses)?)));
    let mut ranges: Vec<_> = ranges.collect::<Option<_>>()?;
    ranges.sort_unstable_by_key(|(_, range)| *range.start());
    let frame = |layer| frame_of_requests(plan, layer);
    let mut pairs = ranges.iter().zip(ranges.iter().skip(1));
    let fit = pairs.all(|((a, one), (b, next))| one.end() < next.start() && frame(*a) == frame(*b));
    (fit && ranges.len() <= FILE_SYSTEMS as usize).then_some(ranges)
}

/// Whether this is a file system whose requests have a frame in common with others: a stacked one has its own.
fn shares_requests(layer: Layer) -> bool {
    layer.lives().is_some_and(|lives| lives != Lives::Above)
}

/// Whether a file system gets reads or writes by such a function.
pub(super) fn takes_requests(shape: Shape, returns: Returns) -> bool {
    shape == Shape::Kiocb0 && !returns.is_async_entry()
}

/// Whether this one, and no other one, does by this function.
pub(super) fn gets_requests(point: &Point) -> bool {
    takes_requests(point.shape, point.returns) && !point.shared
}

fn fill_file_systems(file_systems: &mut types::file_systems, setup: &Setup<'_>) {
    let ranges = sharing_file_systems(setup.plan, setup.facts).unwrap_or_default();
    for ((layer, _), row) in ranges.iter().zip(&mut file_systems.rows) {
        *row = slot_of(setup.plan, Row::Layer(*layer));
    }
    for ((_, range), later) in ranges.iter().skip(1).zip(&mut file_systems.later) {
        *later = range.start().get();
    }
    let first = ranges
        .first()
        .and_then(|(layer, _)| frame_of_requests(setup.plan, *layer));
    file_systems.frame = first.unwrap_or_default();
}

/// The frame of the requests of a file system: that of its first op that has any.
pub(super) fn frame_of_requests(plan: &Plan, layer: Layer) -> Option<u8> {
    let mut ops = plan.ops.iter().filter(|op| op.layer == layer);
    let has_any = |op: &&PlannedOp| op.points.iter().any(|planned| gets_requests(planned.point));
    ops.find(has_any).map(|op| op.frame)
}

/// A bit for each row in which functions run.
fn stack_rows(plan: &Plan) -> u16 {
    let ops = plan.ops.iter().map(|op| Row::Layer(op.layer));
    let functions = plan.row_functions.iter().map(|planned| planned.function.row);
    let rows = ops.chain(functions).map(|row| u32::from(slot_of(plan, row)));
    rows.filter(|slot| *slot < ROW_QUEUE)
        .fold(0, |bits, slot| bits | 1 << slot)
}

/// By op: which arguments of a system call have the path, the offset and the size.
fn fill_call_shapes(shapes: &mut [types::call_shape], plan: &Plan) {
    for (op, shape) in plan.ops.iter().zip(shapes) {
        if let Some(call) = syscall_of(op.spec.op).filter(|_| op.layer == Layer::Syscall) {
            *shape = call_shape(call.says, op.spec.points[0].returns);
            add_for_records(shape, call);
        }
    }
}

/// What the arguments of an op are in its record: of a system call; for other ops there are none.
#[must_use]
pub fn recorded_shape(layer: Layer, op: Op) -> types::call_shape {
    let mut shape = types::call_shape::default();
    if let Some(call) = syscall_of(op).filter(|_| layer == Layer::Syscall) {
        // What it returns makes no difference to that.
        shape = call_shape(call.says, Returns::Status);
        add_for_records(&mut shape, call);
    }
    shape
}

/// The commands of calls that are recorded with these commands only.
fn fill_commands(commands: &mut [types::call_command], plan: &Plan) {
    let planned = COMMANDS.iter().filter_map(|command| {
        let is_its = |op: &PlannedOp| op.layer == Layer::Syscall && op.spec.op == command.op;
        Some((plan.ops.iter().position(is_its)?, command))
    });
    for ((index, command), to) in planned.zip(commands) {
        *to = types::call_command {
            op: index as u32,
            mask: command.mask,
            value: command.value,
        };
    }
}

/// Arguments are counted from 1; 0: there is none.
fn call_shape(says: Says, returns: Returns) -> types::call_shape {
    let effect = match (says, returns) {
        (Says::Close, _) => CALL_CLOSES,
        (_, Returns::Fd) => CALL_OPENS,
        _ => 0,
    };
    let (path, offset, size) = match says {
        Says::Nothing | Says::Close => (0, 0, 0),
        Says::Size => (0, CALL_POSITION, 3),
        Says::Position => (0, CALL_POSITION, 0),
        Says::Size1 => (0, 0, 2),
        Says::Size1AndOffset5 => (0, 6, 2),
        Says::SizeAndOffset => (0, 4, 3),
        Says::Offset => (0, 4, 0),
        Says::RangeFrom1 => (0, 2, 3),
        Says::RangeFrom2 => (0, 3, 4),
        Says::Path0 => (1, 0, 0),
        Says::Path1 => (2, 0, 0),
        Says::Path2 => (3, 0, 0),
    };
    types::call_shape {
        path,
        offset: offset as u8,
        size,
        effect: effect as u8,
        ..types::call_shape::default()
    }
}

/// Adds the arguments that only records have.
fn add_for_records(shape: &mut types::call_shape, call: &Syscall) {
    let more = call.more_arguments();
    shape.second_path = more.second_path;
    shape.second_base = more.second_folder;
    shape.second_fd = match call.files {
        Files::Arg0Or1 => 2,
        Files::Arg0Or2 => 3,
        _ => 0,
    };
    // The descriptor of the folder precedes a relative path, where there is one.
    shape.base = if more.is_in_working_directory {
        0
    } else {
        shape.path.saturating_sub(1)
    };
    shape.extra = more.extra;
    shape.recorded_size = if shape.size == 0 { more.size } else { shape.size };
    if shape.recorded_size != 0 {
        shape.has |= CALL_HAS_SIZE as u8;
    }
    shape.offset_pointer = more.offset_pointer;
    shape.second_offset_pointer = more.second_offset_pointer;
    if shape.offset_pointer != 0 || shape.offset != 0 && u32::from(shape.offset) != CALL_POSITION {
        shape.has |= CALL_HAS_OFFSET as u8;
    }
    if u32::from(shape.offset) == CALL_POSITION {
        shape.has |= CALL_TAKES_POSITION as u8;
    }
    if call.family == Some(Family::Write) && shape.offset != 0 {
        shape.effect |= CALL_WRITES as u8;
    }
    if matches!(call.op, Op::Chdir | Op::Fchdir | Op::Chroot) {
        shape.effect |= CALL_CHANGES_FOLDER as u8;
    }
    if RECORDED.iter().any(|recorded| recorded.op == call.op) {
        shape.effect |= CALL_HAS_ARGUMENTS as u8;
    }
    if needs_all(shape) {
        shape.effect |= CALL_NEEDS_ALL as u8;
    }
}

/// Whether a record takes something from other arguments than the third and the fourth, or more than numbers.
fn needs_all(shape: &types::call_shape) -> bool {
    let is_other = |argument: u8| !matches!(argument, 0 | 3 | 4);
    u32::from(shape.effect) & (CALL_HAS_ARGUMENTS | CALL_CHANGES_FOLDER) != 0
        || shape.path != 0
        || shape.second_fd != 0
        || is_other(shape.extra)
        || is_other(shape.recorded_size)
        || is_other(shape.offset) && u32::from(shape.offset) != CALL_POSITION
}

fn block_config(setup: &Setup<'_>, way: &BlockWay) -> types::block_config {
    let Setup {
        request, facts, plan, ..
    } = *setup;
    let argument = |tracepoint, kind| facts.block.argument(tracepoint, kind).unwrap_or(0);
    let disk = request.disk.as_ref().filter(|disk| !disk.devices.is_empty());
    let base = plan.ops.iter().position(|op| op.layer == Layer::Blk).unwrap_or(0);
    types::block_config {
        disk: disk.map_or(0, |disk| disk.devices[0]),
        op_base: base as u8,
        issue_arg: argument("block_rq_issue", "request"),
        bio_queue_arg: argument("block_bio_queue", "bio"),
        getrq_arg: argument("block_getrq", "bio"),
        split_arg: argument("block_split", "bio"),
        is_partition: u8::from(disk.is_some_and(|disk| disk.is_partition)),
        is_bio_based: u8::from(way.is_bio_based),
        by_owner: u8::from(request.block.by_owner),
        queued: u8::from(request.block.queued),
        has_starts: u8::from(matches!(way.start, Start::Event | Start::Function(_))),
        bio_stamps: u8::from(way.bio_stamps),
        has_status: u8::from(facts.block.argument("block_rq_complete", "blk_status_t").is_some()),
        ends_have_second: u8::from(way.again),
        by_both: u8::from(way.is_by_both()),
        neighbours: u8::from(setup.reports_neighbours()),
        has_batches: u8::from(way.ends_in_batches()),
    }
}

/// The op of each request code, by the value of the code in this kernel.
fn fill_block_ops(table: &mut [u8], facts: &Facts) {
    table.fill(BLOCK_OP_OTHER as u8);
    for (op, request) in REQUESTS.iter().enumerate() {
        let codes = request.codes.iter().filter_map(|name| facts.block.codes.get(*name));
        for &code in codes {
            if let Some(entry) = table.get_mut(code as usize) {
                *entry = op as u8;
            }
        }
    }
}

/// Functions of vfs that are always called with the file of the system call's descriptor, and those system calls.
pub const CALLS_BY_FUNCTION: [(&str, [Op; 2]); 2] = [
    ("vfs_read", [Op::Read, Op::Pread64]),
    ("vfs_write", [Op::Write, Op::Pwrite64]),
];

/// Whether the file of a system call is checked when the call reaches vfs, where the file is an argument, instead of at
/// its entry. Calls that do not reach vfs are checked at their return.
fn is_checked_at_return(call: Op, setup: &Setup<'_>) -> bool {
    let Setup {
        request,
        plan,
        selection,
        ..
    } = *setup;
    let vfs = plan.ops.iter().filter(|op| op.layer == Layer::Vfs);
    let has = |name: &str| {
        vfs.clone()
            .flat_map(|op| &op.points)
            .any(|point| point.function == name)
    };
    let mut functions = CALLS_BY_FUNCTION.iter();
    let reaches_vfs = functions.any(|(function, calls)| calls.contains(&call) && has(function));
    request.whole_stack && !selection.vfs_checks_no_files && reaches_vfs
}

fn fill_syscall_points(table: &mut [u32], compat: &mut [u32], setup: &Setup<'_>) {
    let plan = setup.plan;
    for (index, op) in plan.ops.iter().enumerate().filter(|(_, op)| op.layer == Layer::Syscall) {
        let Some(call) = syscall_of(op.spec.op) else {
            continue;
        };
        let mut word = op.word(index, &op.spec.points[0], call.files);
        word.checked_at_return = is_checked_at_return(call.op, setup);
        let shape = recorded_shape(op.layer, op.spec.op);
        let needs_all = u32::from(shape.effect) & CALL_NEEDS_ALL != 0;
        let takes_position = u32::from(shape.has) & CALL_TAKES_POSITION != 0;
        let word = word.pack()
            | u32::from(needs_all) << POINT_NEEDS_ALL_SHIFT
            | u32::from(takes_position) << POINT_TAKES_POSITION_SHIFT;
        if let Some(entry) = usize::try_from(call.number)
            .ok()
            .and_then(|number| table.get_mut(number))
        {
            *entry = word;
        }
        for other in COMPAT.iter().filter(|other| other.op == call.op) {
            if let Some(entry) = compat.get_mut(other.number) {
                *entry = word;
            }
        }
    }
}

/// By number of a system call: the index plus 1 of the op of vfs whose start is in a cookie (0: none).
fn fill_cookie_calls(table: &mut [u8], compat: &mut [u8], plan: &Plan) {
    for (index, op) in plan.ops.iter().enumerate().filter(|(_, op)| op.layer == Layer::Vfs) {
        let calls = CALLS_BY_COOKIE.iter().filter(|(known, _)| *known == op.spec.op);
        for name in calls.flat_map(|(_, calls)| calls) {
            let native = SYSCALLS.iter().filter(|call| call.op == *name);
            let native = native.filter_map(|call| usize::try_from(call.number).ok());
            let other = COMPAT.iter().filter(|call| call.op == *name).map(|call| call.number);
            let fill = |table: &mut [u8], number: usize| {
                if let Some(entry) = table.get_mut(number) {
                    *entry = index as u8 + 1;
                }
            };
            native.for_each(|number| fill(table, number));
            other.for_each(|number| fill(compat, number));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::kernel::Function;
    use crate::kernel::btf::Scan;
    use crate::kernel::builder::FactsBuilder;
    use crate::kernel::file::FileNumber;
    use crate::kernel::interface::OP_GUARD;
    use crate::probe::Choice;
    use crate::probe::plan::selection::{Findings, select};
    use crate::probe::plan::{self, BlockWish};
    use crate::probe::request::SelectedDisk;

    const LAYERS: [Layer; 2] = [Layer::Syscall, Layer::Blk];

    /// The facts about a kernel with these types.
    fn facts_of(types: Scan) -> Facts {
        FactsBuilder::new(&BTreeMap::new(), &[]).types(types).build()
    }

    /// The configuration for a request and a kernel.
    fn configured(request: &Request, facts: &Facts, findings: &Findings, made: Made) -> types::config {
        let plan = plan::plan(&LAYERS, facts, Choice::Auto);
        let selection = select(&plan, facts, request.starts.is_some(), findings);
        let setup = Setup {
            request,
            facts,
            plan: &plan,
            selection: &selection,
        };
        config(&setup, made)
    }

    /// Names of the flags that are set.
    fn flags(config: &types::config) -> Vec<&'static str> {
        macro_rules! named {
            ($($flag:ident),*) => {
                [$((stringify!($flag), config.$flag != 0)),*]
            };
        }
        let all = named!(
            traced_set,
            follow,
            by_cgroup,
            by_comm,
            by_disk,
            all_files,
            atomic,
            hash_starts,
            slots,
            typed_task,
            reports_slow,
            by_file,
            cookies,
            rows_only,
            one_epoch,
            bins
        );
        all.into_iter()
            .filter(|(_, is_set)| *is_set)
            .map(|(name, _)| name)
            .collect()
    }

    fn of(request: &Request) -> types::config {
        configured(request, &Facts::default(), &Findings::default(), Made::default())
    }

    #[test]
    fn file_systems_share_a_program_if_addresses_distinguish_them() {
        let sharing = |addresses: [u64; 4]| {
            let names = [
                "ext4_file_read_iter",
                "ext4_file_write_iter",
                "xfs_file_read_iter",
                "xfs_file_write_iter",
            ];
            let functions = names.into_iter().zip(addresses).map(|(name, address)| {
                let function = Function {
                    btf: None,
                    symbol: Some(true),
                    address: NonZeroU64::new(address),
                };
                (name.to_owned(), function)
            });
            let facts = Facts {
                functions: functions.collect(),
                ..Facts::default()
            };
            let plan = plan::plan(&[Layer::Vfs, Layer::Ext4, Layer::Xfs], &facts, Choice::Auto);
            let ranges = sharing_file_systems(&plan, &facts)?;
            let first = |(layer, range): (Layer, RangeInclusive<NonZeroU64>)| (layer, range.start().get());
            Some(ranges.into_iter().map(first).collect::<Vec<_>>())
        };
        assert_eq!(
            sharing([20, 30, 50, 40]),
            Some(vec![(Layer::Ext4, 20), (Layer::Xfs, 40)])
        );
        assert_eq!(
            sharing([50, 60, 20, 40]),
            Some(vec![(Layer::Xfs, 20), (Layer::Ext4, 50)])
        );
        assert_eq!(
            sharing([20, 40, 30, 50]),
            None,
            "a function of one is between those of the other"
        );
        assert_eq!(sharing([20, 30, 0, 40]), None, "an address is hidden");
    }

    #[test]
    fn a_single_process_is_compared_and_several_are_looked_up() {
        let traced = |traced: &[u32], follow| {
            let config = of(&Request {
                traced: traced.to_vec(),
                follow,
                own: 7,
                ..Request::default()
            });
            assert_eq!(config.self_tgid, 7);
            let flags = flags(&config);
            (config.tgid, flags.contains(&"traced_set"), flags.contains(&"follow"))
        };
        assert_eq!(traced(&[], false), (0, false, false));
        assert_eq!(traced(&[12], false), (12, false, false));
        assert_eq!(traced(&[12, 13], false), (0, true, false));
        assert_eq!(traced(&[12], true), (0, true, true));
        assert_eq!(traced(&[], true), (0, true, true));
    }

    #[test]
    fn calls_of_families_are_counted_by_operation_only_if_wanted() {
        let layers = [Layer::Syscall, Layer::Vfs, Layer::Ext4, Layer::Blk];
        let plan = plan::plan(&layers, &Facts::default(), Choice::Auto);
        let is_partial = |layer, op, request: &Request| {
            let mut ops = plan.ops.iter();
            is_partial(ops.find(|it| it.layer == layer && it.spec.op == op).unwrap(), request)
        };
        let ops = [
            (Layer::Syscall, Op::Pread64),
            (Layer::Vfs, Op::Read),
            (Layer::Ext4, Op::Fault),
            (Layer::Blk, Op::Read),
        ];
        let all = Request::default();
        assert!(!ops.iter().any(|(layer, op)| is_partial(*layer, *op, &all)));
        let rows = Request {
            rows_only: true,
            ..Request::default()
        };
        assert_eq!(
            ops.map(|(layer, op)| is_partial(layer, op, &rows)),
            [true, true, true, false]
        );
    }

    /// Only layers of the plan have rows: one that is not measured needs none.
    #[test]
    fn rows_are_assigned_to_the_file_systems_of_the_run() {
        let layers = [Layer::Vfs, Layer::Nfs, Layer::Overlay, Layer::Tmpfs];
        let plan = plan::plan(&layers, &Facts::default(), Choice::Auto);
        let (mut rows, mut families) = ([0; 64], [0; 64]);
        fill_rows(&mut rows, &mut families, &plan);
        let row = |layer| rows[plan.ops.iter().position(|op| op.layer == layer).unwrap()];
        assert_eq!(layers.map(row), [1, 2, 3, 4]);
        assert_eq!(stack_rows(&plan), 0b1_1110);
    }

    #[test]
    fn calls_for_records_have_no_family_and_their_arguments() {
        let plan = plan::plan_of(&[Layer::Syscall], &Facts::default(), Choice::Auto, true);
        let index = |op| plan.ops.iter().position(|planned| planned.spec.op == op).unwrap();
        let (mut rows, mut families) = ([0; 256], [7; 256]);
        fill_rows(&mut rows, &mut families, &plan);
        let mut shapes = [types::call_shape::default(); 256];
        fill_call_shapes(&mut shapes, &plan);
        let all = u32::from(shapes[index(Op::Lseek)].effect);
        assert_eq!(
            (families[index(Op::Lseek)], all & CALL_HAS_ARGUMENTS),
            (0, CALL_HAS_ARGUMENTS)
        );
        let of_all = u32::from(shapes[index(Op::Read)].effect);
        assert_eq!((families[index(Op::Read)], of_all & CALL_HAS_ARGUMENTS), (1, 0));
        let map = shapes[index(Op::Mmap)];
        assert_eq!((map.offset, map.size, map.extra), (6, 2, 3));
        let has = |op, flag| u32::from(shapes[index(op)].has) & flag == flag;
        assert!(has(Op::Pread64, CALL_HAS_OFFSET | CALL_HAS_SIZE) && has(Op::Read, CALL_HAS_SIZE));
        assert!(!has(Op::Read, CALL_HAS_OFFSET), "that is the position of its file");
        assert!(has(Op::Fchown, CALL_HAS_SIZE) && shapes[index(Op::Fchown)].size == 0);
        let needs_all = |op| u32::from(shapes[index(op)].effect) & CALL_NEEDS_ALL != 0;
        assert!([Op::Read, Op::Pread64, Op::Preadv].iter().all(|&op| !needs_all(op)));
        assert!(
            [Op::Mmap, Op::Lseek, Op::Openat, Op::SyncFileRange]
                .iter()
                .all(|&op| needs_all(op))
        );
        let mut commands = [types::call_command::default(); 8];
        fill_commands(&mut commands, &plan);
        let of_fcntl: Vec<u32> = commands
            .iter()
            .filter(|command| command.mask != 0 && command.op == index(Op::Fcntl) as u32)
            .map(|command| command.value)
            .collect();
        let known = [libc::F_DUPFD, libc::F_DUPFD_CLOEXEC, libc::F_SETFL];
        assert_eq!(of_fcntl, known.map(i32::cast_unsigned));
        let mut none = [types::call_command::default(); 8];
        fill_commands(
            &mut none,
            &plan::plan(&[Layer::Syscall], &Facts::default(), Choice::Auto),
        );
        assert!(none.iter().all(|command| command.mask == 0));
    }

    #[test]
    fn the_traits_of_an_op_follow_from_its_layer() {
        assert_eq!(op_traits(Layer::Vfs, None), 0);
        assert_eq!(
            op_traits(Layer::Ext4, Some(Guard::FileOperations)),
            OP_FILES_AND_DIRS | GUARD_F_OP
        );
        assert_eq!(
            op_traits(Layer::Tmpfs, Some(Guard::Magic)),
            OP_FILES_AND_DIRS | GUARD_MAGIC
        );
        assert_eq!(op_traits(Layer::Overlay, None), OP_FILES_AND_DIRS | OP_ABOVE);
        assert_eq!(GUARD_MAGIC & OP_GUARD, GUARD_MAGIC, "it fits");
    }

    #[test]
    fn each_filter_has_its_flag_and_its_value() {
        let always = ["atomic", "hash_starts"];
        let with = |flag: &'static str| {
            let mut all = [&always[..], &[flag]].concat();
            all.sort_unstable();
            all
        };
        let set = |config: &types::config| {
            let mut set = flags(config);
            set.sort_unstable();
            set
        };
        assert_eq!(set(&of(&Request::default())), always);
        let comm = of(&Request {
            comm: Some("sixteen bytes and more".to_owned()),
            ..Request::default()
        });
        assert_eq!(set(&comm), with("by_comm"));
        assert_eq!(comm.comm.map(u64::to_ne_bytes).concat(), b"sixteen bytes an");
        let short = of(&Request {
            comm: Some("fio".to_owned()),
            ..Request::default()
        });
        assert_eq!(
            short.comm.map(u64::to_ne_bytes).concat(),
            b"fio\0\0\0\0\0\0\0\0\0\0\0\0\0"
        );
        let file = of(&Request {
            file: Some(FileNumber {
                inode: 3,
                device: 4,
                note: None,
            }),
            ..Request::default()
        });
        assert_eq!((set(&file), file.file_inode, file.file_device), (with("by_file"), 3, 4));
        let slow = of(&Request {
            slower: Some(Duration::from_millis(3)),
            ..Request::default()
        });
        assert_eq!((set(&slow), slow.slower_ns), (with("reports_slow"), 3_000_000));
        let disk = of(&Request {
            disk: Some(SelectedDisk::default()),
            ..Request::default()
        });
        assert_eq!(set(&disk), with("by_disk"));
        for (request, flag) in [
            (
                Request {
                    all_files: true,
                    ..Request::default()
                },
                "all_files",
            ),
            (
                Request {
                    one_report: true,
                    ..Request::default()
                },
                "one_epoch",
            ),
            (
                Request {
                    rows_only: true,
                    ..Request::default()
                },
                "rows_only",
            ),
        ] {
            assert_eq!(set(&of(&request)), with(flag));
        }
    }

    #[test]
    fn facts_about_the_kernel_and_findings_are_in_the_configuration() {
        let modern = Scan {
            task_storage: true,
            answering_atomics: true,
            kfuncs: [(KFUNC_SESSION_IS_RETURN_CTX, 1)].into(),
            ..Scan::default()
        };
        let modern = facts_of(modern);
        let none = Findings::default();
        let one_value = Some(OneValue {
            cpu_bytes: 512,
            cpu_mask: 3,
        });
        let made = Made {
            one_value,
            bins: true,
            ring_slots: RingSlots::default(),
        };
        let request = Request::default();
        let config = configured(&request, &modern, &none, made);
        assert_eq!(flags(&config), ["atomic", "slots", "typed_task", "bins"]);
        assert_eq!((config.cpu_bytes, config.cpu_mask), (512, u64::MAX));
        let older = Facts {
            kfuncs: [].into(),
            ..modern.clone()
        };
        assert_eq!(configured(&request, &older, &none, made).cpu_mask, 3);
        assert_eq!(configured(&request, &older, &none, Made::default()).cpu_mask, 0);
        // If a length of the table of starts is requested, no start is in a slot or in task storage.
        let many = Request {
            starts: Some(1 << 20),
            ..Request::default()
        };
        assert_eq!(
            flags(&configured(&many, &modern, &none, Made::default())),
            ["atomic", "hash_starts", "typed_task"]
        );
    }

    #[test]
    fn neighbours_are_reported_if_requests_of_some_processes_are_selected() {
        let facts = facts_of(Scan {
            answering_atomics: true,
            ..Scan::default()
        });
        let wish = BlockWish {
            by_owner: true,
            ..BlockWish::default()
        };
        let mut plan = plan::plan(&LAYERS, &facts, Choice::Auto);
        for (wish, facts, is_bio_based, reports) in [
            (wish, &facts, false, true),
            (wish, &facts, true, false),
            (wish, &Facts::default(), false, false),
            (BlockWish::default(), &facts, false, false),
        ] {
            let wish = BlockWish { is_bio_based, ..wish };
            plan.block_ways = plan::block_ways(wish, facts, Choice::Auto).unwrap();
            let request = Request {
                block: wish,
                ..Request::default()
            };
            let setup = Setup {
                request: &request,
                facts,
                plan: &plan,
                selection: &select(&plan, facts, false, &Findings::default()),
            };
            assert_eq!(setup.reports_neighbours(), reports, "{wish:?}");
        }
    }
}
