//! Loads the BPF object: which of its programs, how large its maps, and what it is told beforehand.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapType, OpenMapMut, OpenObject, ProgramAttachType};
use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::catalog::{COMPAT, Layer, REQUESTS, Returns, SYSCALLS, Says, Shape};
use crate::catalog::{Op, Row};
use crate::kernel::cgroup::Hierarchy;
use crate::kernel::file::FileNumber;
use crate::kernel::interface::skeleton::{
    IostackbreakdownSkel, IostackbreakdownSkelBuilder, OpenIostackbreakdownMaps, OpenIostackbreakdownSkel,
};
use crate::kernel::interface::types;
use crate::kernel::interface::{
    BLOCK_OP_OTHER, BY_CGROUP, BY_DISK, BY_FILE, BY_NOTHING, BY_PROCESS, CALL_CLOSES, CALL_OPENS, CALL_POSITION,
    CGROUPS_IO, CGROUPS_MEMORY, CGROUPS_UNIFIED, DIRECTIONS, EPOCH_STEP, FAMILIES, GROUP_FIRST, KFUNC_PREEMPT_DISABLE,
    KFUNC_SESSION_COOKIE, KFUNC_SESSION_COOKIE_OF, KFUNC_SESSION_IS_RETURN_OF, NOBODY, ORIGINS, ROW_QUEUE, STOP_CALLS,
    STOP_REQUESTS,
};
use crate::kernel::{Facts, Fprobe, possible_cpus};
use crate::model::report::group::By;

use super::attach::{AttachError, Stage, point_word};
use super::binned::BinnedCounters;
use super::plan::{BlockWay, BlockWish, CALLS_BY_COOKIE, END_FUNCTIONS, Plan, Start};
use super::program::{self, Programs};
use super::refusal::Why;
use super::{Hook, atomics};
use crate::catalog::Guard;
use crate::sys::assembly::one_value;

/// What the kernel side is told before it is loaded.
#[derive(Debug, Default)]
pub struct Settings {
    pub config: types::config,
    /// Processes traced from the start; looked at when `config.traced_set`.
    pub traced: Vec<u32>,
    /// Disks; looked at when `config.by_disk`.
    pub disks: Vec<u32>,
    /// Looked at when `config.by_cgroup`.
    pub cgroup: Option<OwnedFd>,
    /// How shared functions are narrowed to each file system: by what, and its value.
    pub guards: BTreeMap<Layer, (Guard, u64)>,
    /// Starts are in a table by thread, not in task storage.
    pub starts_in_table: bool,
    /// Places in that table, where there is another number than ours to be.
    pub starts: Option<u32>,
    /// The block device asked for (`dev_t`), and whether it is a partition. `None`: all disks.
    pub block_device: Option<(u32, bool)>,
    pub block: BlockWish,
    /// How completions are to be seen.
    pub completions: Vec<Hook>,
    /// Each function gets programs of its own, also where one could serve many, so that the kernel counts their runs apart.
    pub each_alone: bool,
    /// Every moment of a call is to be given to a row.
    pub whole_stack: bool,
    /// Calls are told apart by what they are of.
    pub groups: Option<GroupWish>,
    /// vfs is not seen here, so that it can judge no call's file.
    pub vfs_is_blind: bool,
    /// Called with each stage of attaching.
    pub progress: Option<fn(Stage)>,
}

/// What calls are told apart by.
#[derive(Debug, Clone, Copy)]
pub struct GroupWish {
    pub by: By,
    /// Groups that there is room for.
    pub room: u32,
}

/// Groups that there is room for, where nobody asks for another number. With [`CELLS_OF_A_GROUP`] it takes up to 28 MB.
pub const GROUPS: u32 = 1024;
/// Most groups have few ops.
const CELLS_OF_A_GROUP: u32 = 8;

impl Settings {
    /// Calls on this file alone.
    pub fn of_file(&mut self, file: &FileNumber) {
        self.config.by_file = MaybeUninit::new(true);
        (self.config.file_inode, self.config.file_device) = (file.inode, file.device);
    }
}

/// Whether this kernel gives out task storage: it is tried, on ourselves. Where it was seen beforehand that it does not
/// ([`Facts::storage_refused`]) nobody asks.
pub fn gives_task_storage(skeleton: &IostackbreakdownSkel<'_>) -> bool {
    let Ok(pidfd) = crate::process::open_pidfd(std::process::id()) else {
        return false;
    };
    let map = &skeleton.maps.threads_by_task;
    let key = pidfd.as_raw_fd().to_ne_bytes();
    let empty = vec![0; map.value_size() as usize];
    map.update(&key, &empty, MapFlags::ANY).is_ok() && map.delete(&key).is_ok()
}

/// Maps, and programs to be loaded.
pub struct Loaded {
    pub skeleton: IostackbreakdownSkel<'static>,
    pub programs: Programs,
    pub binned: Option<BinnedCounters>,
}

pub fn load(
    plan: &Plan,
    facts: &Facts,
    settings: &Settings,
    hooks: &[Hook],
    way: Option<&BlockWay>,
) -> Result<Loaded, Why> {
    // libbpf's object has to stay where it is; a run loads one, or a few when some are refused.
    let place: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut builder = IostackbreakdownSkelBuilder::default();
    // libbpf opens it by its path, as it relocates the programs.
    let types = in_memory(&facts.types);
    if let Some((_, path)) = &types {
        builder.obj_builder.btf_custom_path(path)?;
    }
    let mut open = builder.open(place)?;

    if !facts.answering_atomics {
        atomics::leave_out(open.open_object_mut())?;
    }
    choose_programs(&mut open, facts, settings, hooks);
    let by_cookie = hooks.contains(&Hook::Session) && session_has_cookies(plan, facts);
    open.progs.session_by_cookie.set_autoload(by_cookie);
    choose_block_programs(&mut open, facts, way);
    choose_completions(&mut open, plan, settings);
    choose_stack_programs(&mut open, settings, way);
    size_maps(&mut open, plan, facts, settings, way)?;
    let cpu_mask = make_stats(&mut open.maps, plan)?;
    let has_cookies = by_cookie || hooks.contains(&Hook::Fsession);
    // Where usual calls may have bins.
    let has_bins = has_cookies && facts.per_cpu_values;
    let binned = make_binned(&mut open.maps, plan, has_bins)?;
    if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
        rodata.config = settings.config;
        // Only these programs can be preempted by one that adds to the same counters.
        let preempted = hooks
            .iter()
            .any(|hook| hook.is_trampoline() || *hook == Hook::RawTracepoint);
        rodata.config.rows = plan.rows() as u32;
        rodata.config.cpu_bytes = cpu_mask.map_or(0, |_| bytes_of_a_cpu(plan));
        rodata.config.cpu_mask = match cpu_mask {
            // By then the verifier knows how large a CPU's number is.
            Some(_) if facts.kfuncs.contains_key(&KFUNC_SESSION_IS_RETURN_OF) => u64::MAX,
            mask => mask.unwrap_or(0).into(),
        };
        rodata.config.hash_starts = MaybeUninit::new(settings.starts_in_table);
        rodata.config.typed_task = MaybeUninit::new(facts.task_storage);
        rodata.config.places = MaybeUninit::new(has_places(facts, settings));
        rodata.config.cookies = MaybeUninit::new(has_cookies);
        rodata.config.bins = MaybeUninit::new(binned.is_some());
        for (place, op) in plan.binned_ops().enumerate().filter(|_| binned.is_some()) {
            rodata.binned_places[op] = place as u8;
        }
        rodata.config.atomic = MaybeUninit::new(preempted && facts.preemption.is_possible());
        rodata.config.whole_stack = MaybeUninit::new(settings.whole_stack);
        rodata.config.stack_rows = stack_rows(plan);
        rodata.config.counted_frames = counted_frames(plan, settings);
        let type_of = |name| facts.cast_types.get(name).copied().unwrap_or(0);
        rodata.cast_types = types::cast_types {
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
        };
        rodata.kfuncs = types::kfuncs {
            // Tracepoints can be preempted since 7.0, which brought `fsession`. 6.12 has the function, and refuses programs that call
            // one of their own after it that is verified by itself.
            preempt_disable: MaybeUninit::new(facts.fsession && facts.kfuncs.contains_key(&KFUNC_PREEMPT_DISABLE)),
            session_is_return_of: MaybeUninit::new(facts.kfuncs.contains_key(&KFUNC_SESSION_IS_RETURN_OF)),
            session_cookie_of: MaybeUninit::new(facts.kfuncs.contains_key(&KFUNC_SESSION_COOKIE_OF)),
        };
        group_config(&mut rodata.config, settings.groups);
        fill_syscall_points(&mut rodata.syscall_points, &mut rodata.compat_points, plan, settings);
        fill_cookie_calls(&mut rodata.cookie_calls, &mut rodata.compat_cookie_calls, plan);
        fill_rows(&mut rodata.op_rows, &mut rodata.op_families, plan);
        for (op, value) in plan.ops.iter().zip(&mut rodata.guard_values) {
            *value = settings.guards.get(&op.layer).map_or(0, |(_, value)| *value);
        }
        fill_call_shapes(&mut rodata.call_shapes, plan);
        if let Some(way) = way {
            rodata.block = block_config(plan, facts, settings, way);
            fill_block_ops(&mut rodata.block_ops, facts);
        }
        for (op, row) in plan.completion_rows() {
            rodata.completion_rows[op] = row as u8;
        }
    }
    if let Some(bss) = open.maps.bss_data.as_deref_mut() {
        // Nothing is measured before everything is attached.
        bss.control.stopped = STOP_CALLS | STOP_REQUESTS;
        bss.control.looked_at = NOBODY;
        bss.control.epoch = u64::from(EPOCH_STEP);
    }
    if has_places(facts, settings) {
        make_empty(&mut open.maps.bss_places)?;
    }
    let relocated = program::relocate(open.open_object_mut())?;
    let skeleton = open.load()?;
    Ok(Loaded {
        skeleton,
        programs: Programs::new(relocated),
        binned,
    })
}

/// A bit for each frame that calls are counted by. Where the rows' time is all that is told, those are the ones of asynchronous requests.
pub(super) fn counted_frames(plan: &Plan, settings: &Settings) -> u16 {
    // SAFETY: a flag of a plain structure, initialised by `Default` or by a `bool`.
    if !unsafe { settings.config.rows_only.assume_init() } {
        return u16::MAX;
    }
    let ops = plan.ops.iter();
    let by_requests = ops.filter(|op| op.points.iter().any(|planned| planned.point.shape == Shape::Kiocb0));
    let frames = by_requests.flat_map(|op| op.points.iter().filter_map(|planned| planned.silent).chain([op.frame]));
    frames.fold(0, |bits, frame| bits | 1 << frame)
}

/// Makes a table of global variables that are all zero, as the kernel makes tables: libbpf would map it, and fill it with zeros.
fn make_empty(map: &mut OpenMapMut<'_>) -> libbpf_rs::Result<()> {
    let name = map.name().to_owned();
    let table = one_value(
        MapType::Array,
        Some(&name),
        map.value_size(),
        libbpf_sys::BPF_F_MMAPABLE,
    )?;
    map.reuse_fd(table.as_fd())
}

/// A file in memory with these bytes, and its path. `None`: there are none, or it cannot be had, and libbpf has to look at all of
/// the kernel's.
fn in_memory(bytes: &[u8]) -> Option<(File, PathBuf)> {
    if bytes.is_empty() {
        return None;
    }
    let mut file = File::from(memfd_create(c"types", MFdFlags::MFD_CLOEXEC).ok()?);
    file.write_all(bytes).ok()?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    // Another PID namespace's /proc has no such process.
    File::open(&path).ok()?;
    Some((file, path))
}

/// What the programs have to know of groups.
fn group_config(config: &mut types::config, groups: Option<GroupWish>) {
    let by = match groups.map(|wish| wish.by) {
        None => BY_NOTHING,
        Some(By::Process) => BY_PROCESS,
        Some(By::File) => BY_FILE,
        Some(By::Disk) => BY_DISK,
        Some(By::Cgroup) => BY_CGROUP,
    };
    config.group_by = by as u8;
    let cgroups = match (by == BY_CGROUP).then(Hierarchy::here) {
        None | Some(Hierarchy::Unified) => CGROUPS_UNIFIED,
        Some(Hierarchy::Io) => CGROUPS_IO,
        Some(Hierarchy::Memory) => CGROUPS_MEMORY,
    };
    config.cgroups_of = cgroups as u8;
}

/// Whether threads, requests and bios get places by their numbers and addresses. A place is taken by an atomic instruction that
/// answers; and with them, a table of the length asked for would hardly be used.
fn has_places(facts: &Facts, settings: &Settings) -> bool {
    facts.answering_atomics && settings.starts.is_none()
}

/// Whether `kprobe.session` keeps the starts of some calls in its cookies. Where returns are found by a pool, a cookie has what an
/// earlier call left in it, which would be taken for a start when the entry's program was skipped.
fn session_has_cookies(plan: &Plan, facts: &Facts) -> bool {
    let has_cookies = [KFUNC_SESSION_COOKIE, KFUNC_SESSION_COOKIE_OF]
        .iter()
        .any(|kfunc| facts.kfuncs.contains_key(kfunc));
    let mut points = plan.ops.iter().flat_map(|op| &op.points);
    has_cookies && facts.fprobe == Fprobe::Graph && points.any(|planned| planned.starts_in_cookie)
}

fn choose_programs(open: &mut OpenIostackbreakdownSkel<'_>, facts: &Facts, settings: &Settings, hooks: &[Hook]) {
    // SAFETY: a flag of a plain structure, initialised by `Default` or by a `bool`.
    let follow = unsafe { settings.config.follow.assume_init() };
    // Process events come from process context: the same rule as for system calls decides the tracepoints' kind.
    let classic = facts.preemption.is_possible() && facts.tracefs.is_some();
    let wanted = |hook| hooks.contains(&hook);
    let kprobes = wanted(Hook::Kprobe) || wanted(Hook::KprobeEvent);
    let progs = &mut open.progs;
    progs.fentry_enter.set_autoload(wanted(Hook::Fentry));
    progs.fexit_leave.set_autoload(wanted(Hook::Fentry));
    progs.fsession_both.set_autoload(wanted(Hook::Fsession));
    progs.kprobe_enter.set_autoload(kprobes);
    progs.kretprobe_leave.set_autoload(kprobes);
    progs.multi_enter.set_autoload(wanted(Hook::Multi));
    progs.multi_leave.set_autoload(wanted(Hook::Multi));
    progs.session.set_autoload(wanted(Hook::Session));
    progs
        .hold
        .set_autoload(wanted(Hook::Session) && facts.fprobe == Fprobe::Graph);
    progs.sys_enter_btf.set_autoload(wanted(Hook::RawTracepoint));
    progs.sys_exit_btf.set_autoload(wanted(Hook::RawTracepoint));
    progs.sys_enter_classic.set_autoload(wanted(Hook::Tracepoint));
    progs.sys_exit_classic.set_autoload(wanted(Hook::Tracepoint));
    progs.exit_btf.set_autoload(!classic);
    progs.exit_classic.set_autoload(classic);
    progs.fork_btf.set_autoload(follow && !classic);
    progs.fork_classic.set_autoload(follow && classic);
    progs.exec_btf.set_autoload(follow && !classic);
    progs.exec_classic.set_autoload(follow && classic);
    progs.in_flight.set_autoload(!settings.starts_in_table);
    progs.resolve_pids.set_autoload(false);
}

fn choose_block_programs(open: &mut OpenIostackbreakdownSkel<'_>, facts: &Facts, way: Option<&BlockWay>) {
    let requests = way.filter(|way| !way.is_bio_based);
    let by_tracepoint = requests.is_some_and(|way| way.hook == Hook::RawTracepoint);
    let by_function = requests.is_some_and(|way| way.hook.is_on_functions());
    let start = requests.map_or(Start::Unneeded, |way| way.start);
    let has_bios = way.is_some_and(|way| way.is_bio_based || way.bio_stamps);
    let has_bios_only = way.is_some_and(|way| way.is_bio_based);
    let is_by_both = way.is_some_and(BlockWay::is_by_both);
    let by_tracepoints_twice = way.is_some_and(|way| way.again && !way.hook.is_on_functions());
    let announced = matches!(start, Start::Event | Start::Function(_));
    let ends_in_batches = |way: &BlockWay| way.ends.contains(&END_FUNCTIONS[1]);

    let progs = &mut open.progs;
    progs.block_issue_btf.set_autoload(by_tracepoint);
    progs.block_end_btf.set_autoload(by_tracepoint);
    progs
        .block_end_again_btf
        .set_autoload(requests.is_some_and(|way| way.again));
    progs.block_start_btf.set_autoload(start == Start::Event);
    let merges = announced && facts.block.has("block_rq_merge");
    progs.block_merge_btf.set_autoload(merges);
    progs.block_merge_again_btf.set_autoload(merges && is_by_both);
    progs.bio_queue_btf.set_autoload(has_bios);
    progs.bio_end_btf.set_autoload(has_bios);
    progs
        .bio_end_again_btf
        .set_autoload(has_bios_only && by_tracepoints_twice);
    let has_stamps = way.is_some_and(|way| way.bio_stamps);
    progs.bio_getrq_btf.set_autoload(has_stamps);
    progs.bio_getrq_again_btf.set_autoload(has_stamps && is_by_both);
    progs.bio_submit_function.set_autoload(has_bios && is_by_both);
    progs.bio_end_function.set_autoload(has_bios_only && is_by_both);
    progs
        .block_start_function
        .set_autoload(matches!(start, Start::Function(_)));
    progs.block_issue_function.set_autoload(by_function);
    progs.block_end_function.set_autoload(by_function);
    progs
        .block_end_batch_function
        .set_autoload(by_function && requests.is_some_and(ends_in_batches));
    if way.is_some_and(|way| way.hook == Hook::Multi) {
        for program in [
            &mut progs.bio_submit_function,
            &mut progs.bio_end_function,
            &mut progs.block_start_function,
            &mut progs.block_issue_function,
            &mut progs.block_end_function,
            &mut progs.block_end_batch_function,
        ] {
            program.set_attach_type(ProgramAttachType::KprobeMulti);
        }
    }
}

/// The scheduler's events, and those of bios that only the whole stack's view looks at.
fn choose_stack_programs(open: &mut OpenIostackbreakdownSkel<'_>, settings: &Settings, way: Option<&BlockWay>) {
    let progs = &mut open.progs;
    progs.sched_switch_btf.set_autoload(settings.whole_stack);
    progs.sched_wakeup_btf.set_autoload(settings.whole_stack);
    let bios = settings.whole_stack && way.is_some_and(|way| way.bio_stamps);
    if bios && way.is_some_and(|way| way.again) {
        progs.bio_end_again_btf.set_autoload(true);
    }
    progs.bio_backmerge_btf.set_autoload(bios);
    progs.bio_frontmerge_btf.set_autoload(bios);
    // Tasks are preempted inside tracepoints there, so that an event may find its program at work for another task.
    let twice = bios && way.is_some_and(BlockWay::is_by_both);
    progs.bio_backmerge_again_btf.set_autoload(twice);
    progs.bio_frontmerge_again_btf.set_autoload(twice);
}

/// By op: the row that its functions run in, and the family that a system call is of.
fn fill_rows(rows: &mut [u8], families: &mut [u8], plan: &Plan) {
    for ((op, row), family) in plan.ops.iter().zip(rows).zip(families) {
        *row = Row::Layer(op.layer).place() as u8;
        let call = SYSCALLS
            .iter()
            .find(|call| op.layer == Layer::Syscall && call.op == op.spec.op);
        *family = call.map_or(0, |call| call.family as u8 + 1);
    }
}

/// A bit for each row that functions run in.
fn stack_rows(plan: &Plan) -> u16 {
    let ops = plan.ops.iter().map(|op| Row::Layer(op.layer));
    let functions = plan.row_functions.iter().map(|planned| planned.function.row);
    let rows = ops.chain(functions).map(Row::place);
    rows.filter(|place| *place < ROW_QUEUE as usize)
        .fold(0, |bits, place| bits | 1 << place)
}

/// By op: what the arguments of a system call say.
fn fill_call_shapes(shapes: &mut [types::call_shape], plan: &Plan) {
    for (op, shape) in plan.ops.iter().zip(shapes) {
        let mut calls = SYSCALLS.iter().filter(|_| op.layer == Layer::Syscall);
        if let Some(call) = calls.find(|call| call.op == op.spec.op) {
            *shape = call_shape(call.says, op.spec.points[0].returns);
        }
    }
}

/// Arguments counted from 1.
fn call_shape(says: Says, returns: Returns) -> types::call_shape {
    let does = match (says, returns) {
        (Says::Close, _) => CALL_CLOSES,
        (_, Returns::Fd) => CALL_OPENS,
        _ => 0,
    };
    let (path, offset, size) = match says {
        Says::Nothing | Says::Close => (0, 0, 0),
        Says::Size => (0, CALL_POSITION, 3),
        Says::Position => (0, CALL_POSITION, 0),
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
        does: does as u8,
    }
}

fn block_config(plan: &Plan, facts: &Facts, settings: &Settings, way: &BlockWay) -> types::block_config {
    let place = |tracepoint, kind| facts.block.argument(tracepoint, kind).unwrap_or(0);
    let (disk, is_partition) = settings.block_device.unwrap_or((0, false));
    let base = plan.ops.iter().position(|op| op.layer == Layer::Blk).unwrap_or(0);
    types::block_config {
        disk,
        op_base: base as u8,
        issue_arg: place("block_rq_issue", "request"),
        bio_queue_arg: place("block_bio_queue", "bio"),
        getrq_arg: place("block_getrq", "bio"),
        is_partition: MaybeUninit::new(is_partition),
        is_bio_based: MaybeUninit::new(way.is_bio_based),
        by_owner: MaybeUninit::new(settings.block.by_owner),
        queued: MaybeUninit::new(settings.block.queued),
        starts: MaybeUninit::new(matches!(way.start, Start::Event | Start::Function(_))),
        bio_stamps: MaybeUninit::new(way.bio_stamps),
        has_status: MaybeUninit::new(facts.block.argument("block_rq_complete", "blk_status_t").is_some()),
        ends_twice: MaybeUninit::new(way.again),
        twice: MaybeUninit::new(way.is_by_both()),
        neighbours: MaybeUninit::new(tells_neighbours(facts, settings, way)),
        pad: [0; 2],
    }
}

/// Whether it is told whose requests a disk served while those that were asked for waited.
fn tells_neighbours(facts: &Facts, settings: &Settings, way: &BlockWay) -> bool {
    settings.block.by_owner && !way.is_bio_based && facts.answering_atomics
}

/// The op of each code, by the numbers of this kernel.
fn fill_block_ops(table: &mut [u8], facts: &Facts) {
    table.fill(BLOCK_OP_OTHER as u8);
    for (op, request) in REQUESTS.iter().enumerate() {
        let codes = request.codes.iter().filter_map(|name| facts.block.codes.get(*name));
        for &code in codes {
            if let Some(place) = table.get_mut(code as usize) {
                *place = op as u8;
            }
        }
    }
}

fn choose_completions(open: &mut OpenIostackbreakdownSkel<'_>, plan: &Plan, settings: &Settings) {
    let progs = &mut open.progs;
    let by_fentry = settings.completions.contains(&Hook::Fentry) && plan.completions.iter().any(|end| end.in_btf);
    progs.complete_fentry.set_autoload(by_fentry);
    let mut others = settings.completions.iter().filter(|hook| !hook.is_trampoline());
    let other = others.next().filter(|_| !plan.completions.is_empty());
    progs.complete_function.set_autoload(other.is_some());
    if other == Some(&Hook::Multi) {
        progs.complete_function.set_attach_type(ProgramAttachType::KprobeMulti);
    }
}

fn entries(n: usize) -> u32 {
    u32::try_from(n.max(1)).unwrap_or(u32::MAX)
}

/// Of the counters.
fn bytes_of_a_cpu(plan: &Plan) -> u32 {
    entries(plan.rows() * size_of::<types::op_stats>())
}

/// How many numbers CPUs may have: where some between are missing, more than there may be CPUs.
fn cpu_numbers() -> libbpf_rs::Result<usize> {
    let highest = possible_cpus().and_then(|numbers| numbers.last().copied());
    highest.map_or_else(libbpf_rs::num_possible_cpus, |number| Ok(number as usize + 1))
}

/// Makes one value of all counters, and says which bits of a CPU's number find its part. `None`: the kernel makes none of that size (in
/// 5.10 none of more than 4 MB), and they are elements of a table.
fn make_stats(maps: &mut OpenIostackbreakdownMaps<'_>, plan: &Plan) -> libbpf_rs::Result<Option<u32>> {
    let cpus = cpu_numbers()?;
    let parts = entries(cpus.next_power_of_two());
    let size = parts.checked_mul(bytes_of_a_cpu(plan));
    // libbpf moves what it has in memory of them, and later puts all of the table over it.
    maps.bss_stats_data = None;
    let is_made = size.is_some_and(|size| {
        let sized = maps.bss_stats.set_value_size(size);
        sized.and_then(|()| make_empty(&mut maps.bss_stats)).is_ok()
    });
    maps.stats.set_max_entries(entries(plan.rows() * cpus))?;
    maps.stats.set_autocreate(!is_made)?;
    if !is_made {
        maps.bss_stats.set_autocreate(false)?;
    }
    Ok(is_made.then_some(parts - 1))
}

/// Makes the map of per-CPU values that libbpf takes for global variables, and what reads it. `None`: nobody wants it, or the kernel
/// does not let us have it.
fn make_binned(
    maps: &mut OpenIostackbreakdownMaps<'_>,
    plan: &Plan,
    is_wanted: bool,
) -> libbpf_rs::Result<Option<BinnedCounters>> {
    let map = &mut maps.bss_binned;
    let made = is_wanted.then(|| {
        let name = map.name().to_owned();
        let made = one_value(MapType::PercpuArray, Some(&name), map.value_size(), 0).ok()?;
        let counters = BinnedCounters::new(made.as_fd().as_raw_fd(), plan.binned_ops().collect()).ok()?;
        Some((made, counters))
    });
    match made.flatten() {
        Some((made, counters)) => map.reuse_fd(made.as_fd()).map(|()| Some(counters)),
        None => map.set_autocreate(false).map(|()| None),
    }
}

fn size_maps(
    open: &mut OpenIostackbreakdownSkel<'_>,
    plan: &Plan,
    facts: &Facts,
    settings: &Settings,
    way: Option<&BlockWay>,
) -> libbpf_rs::Result<()> {
    /// Processes followed at once.
    const FOLLOWED: u32 = 16_384;
    /// Asynchronous requests under way at once.
    const REQUESTS: u32 = 16_384;
    // SAFETY: a flag of a plain structure, initialised by `Default` or by a `bool`.
    let follow = unsafe { settings.config.follow.assume_init() };
    let maps = &mut open.maps;
    let cpus = cpu_numbers()?;
    maps.traced.set_max_entries(if follow {
        FOLLOWED
    } else {
        entries(settings.traced.len())
    })?;
    maps.disks.set_max_entries(entries(settings.disks.len()))?;
    maps.threads_by_task.set_autocreate(!settings.starts_in_table)?;
    maps.threads_by_number.set_autocreate(settings.starts_in_table)?;
    let in_stack = settings.whole_stack;
    let places = has_places(facts, settings);
    maps.bss_places.set_autocreate(places)?;
    maps.sleepers.set_autocreate(in_stack)?;
    maps.completing.set_autocreate(in_stack)?;
    maps.flushes.set_autocreate(in_stack)?;
    maps.families.set_autocreate(in_stack)?;
    maps.origins.set_autocreate(in_stack)?;
    maps.written.set_autocreate(in_stack)?;
    // SAFETY: as above.
    maps.slow_calls
        .set_autocreate(unsafe { settings.config.tells_slow.assume_init() })?;
    maps.families.set_max_entries(entries(FAMILIES as usize * cpus))?;
    maps.origins
        .set_max_entries(entries((ORIGINS * DIRECTIONS) as usize * cpus))?;
    let requests = way.is_some_and(|way| !way.is_bio_based);
    let bios = way.is_some_and(|way| way.is_bio_based || way.bio_stamps);
    maps.requests.set_autocreate(requests)?;
    maps.requests_by_place.set_autocreate(requests && places)?;
    maps.bios.set_autocreate(bios)?;
    maps.bios_by_place.set_autocreate(bios && places)?;
    let neighbours = way.is_some_and(|way| tells_neighbours(facts, settings, way));
    maps.neighbours.set_autocreate(neighbours)?;
    maps.neighbour_places.set_autocreate(neighbours)?;
    maps.disk_ends.set_autocreate(neighbours)?;
    maps.no_ends.set_autocreate(neighbours)?;
    maps.asynchronous.set_max_entries(if plan.completions.is_empty() {
        1
    } else {
        settings.starts.unwrap_or(REQUESTS)
    })?;
    size_groups(maps, plan, settings)?;
    if let Some(starts) = settings.starts {
        maps.requests.set_max_entries(starts)?;
        maps.bios.set_max_entries(starts)?;
        maps.threads_by_number.set_max_entries(starts)?;
        maps.sleepers.set_max_entries(starts)?;
    }
    Ok(())
}

fn size_groups(maps: &mut OpenIostackbreakdownMaps<'_>, plan: &Plan, settings: &Settings) -> libbpf_rs::Result<()> {
    let (has_groups, in_stack) = (settings.groups.is_some(), settings.whole_stack);
    maps.group_numbers.set_autocreate(has_groups)?;
    maps.free_groups.set_autocreate(has_groups)?;
    maps.groups.set_autocreate(has_groups)?;
    maps.group_families.set_autocreate(has_groups && in_stack)?;
    maps.group_origins.set_autocreate(has_groups && in_stack)?;
    maps.cell_numbers.set_autocreate(has_groups && !in_stack)?;
    maps.free_cells.set_autocreate(has_groups && !in_stack)?;
    maps.group_cells.set_autocreate(has_groups && !in_stack)?;
    maps.cell_keys.set_autocreate(has_groups && !in_stack)?;
    let Some(wish) = settings.groups else {
        return Ok(());
    };
    let all = wish.room + GROUP_FIRST;
    maps.group_numbers.set_max_entries(wish.room)?;
    maps.free_groups.set_max_entries(wish.room)?;
    maps.groups.set_max_entries(all)?;
    if in_stack {
        maps.group_families.set_max_entries(all * FAMILIES)?;
        maps.group_origins.set_max_entries(all * ORIGINS * DIRECTIONS)?;
    } else {
        let cells = wish.room * CELLS_OF_A_GROUP;
        maps.cell_numbers.set_max_entries(cells)?;
        maps.free_cells.set_max_entries(cells)?;
        maps.group_cells.set_max_entries(plan.rows() as u32 + cells)?;
        maps.cell_keys.set_max_entries(plan.rows() as u32 + cells)?;
    }
    Ok(())
}

/// Functions of vfs, and the system calls whose descriptor is always that of the file which it is called with.
pub const CALLS_BY_FUNCTION: [(&str, [Op; 2]); 2] = [
    ("vfs_read", [Op::Read, Op::Pread64]),
    ("vfs_write", [Op::Write, Op::Pwrite64]),
];

/// Whether the file of a system call may be judged when it comes to vfs, where it is at hand. Those that do not get there are judged at
/// their end. Groups and slow calls want the file at the beginning.
fn is_judged_late(call: Op, plan: &Plan, settings: &Settings) -> bool {
    // SAFETY: a flag of a plain structure, initialised by `Default` or by a `bool`.
    let tells_slow = unsafe { settings.config.tells_slow.assume_init() };
    let vfs = plan.ops.iter().filter(|op| op.layer == Layer::Vfs);
    let has = |name: &str| {
        vfs.clone()
            .flat_map(|op| &op.points)
            .any(|point| point.function == name)
    };
    let mut functions = CALLS_BY_FUNCTION.iter();
    let comes_by = functions.any(|(function, calls)| calls.contains(&call) && has(function));
    settings.whole_stack && !settings.vfs_is_blind && settings.groups.is_none() && !tells_slow && comes_by
}

fn fill_syscall_points(table: &mut [u32], compat: &mut [u32], plan: &Plan, settings: &Settings) {
    for (index, op) in plan.ops.iter().enumerate().filter(|(_, op)| op.layer == Layer::Syscall) {
        let Some(call) = SYSCALLS.iter().find(|call| call.op == op.spec.op) else {
            continue;
        };
        let mut word = point_word(index, op, &op.spec.points[0], None, call.files);
        word.late = is_judged_late(call.op, plan, settings);
        let word = word.pack();
        if let Some(place) = usize::try_from(call.number)
            .ok()
            .and_then(|number| table.get_mut(number))
        {
            *place = word;
        }
        for other in COMPAT.iter().filter(|other| other.op == call.op) {
            if let Some(place) = compat.get_mut(other.number) {
                *place = word;
            }
        }
    }
}

/// By number of a system call: the op of vfs whose start is in a cookie, counted from 1.
fn fill_cookie_calls(table: &mut [u8], compat: &mut [u8], plan: &Plan) {
    for (index, op) in plan.ops.iter().enumerate().filter(|(_, op)| op.layer == Layer::Vfs) {
        let calls = CALLS_BY_COOKIE.iter().filter(|(known, _)| *known == op.spec.op);
        for name in calls.flat_map(|(_, calls)| calls) {
            let native = SYSCALLS.iter().filter(|call| call.op == *name);
            let native = native.filter_map(|call| usize::try_from(call.number).ok());
            let other = COMPAT.iter().filter(|call| call.op == *name).map(|call| call.number);
            let fill = |table: &mut [u8], number: usize| {
                if let Some(place) = table.get_mut(number) {
                    *place = index as u8 + 1;
                }
            };
            native.for_each(|number| fill(table, number));
            other.for_each(|number| fill(compat, number));
        }
    }
}

pub fn fill_maps(skeleton: &IostackbreakdownSkel<'_>, plan: &Plan, settings: &Settings) -> Result<(), AttachError> {
    let maps = &skeleton.maps;
    if let Some(wish) = settings.groups {
        for group in 0..wish.room {
            let number = (GROUP_FIRST + group).to_ne_bytes();
            let done = maps.free_groups.update(&[], &number, MapFlags::ANY);
            done.map_err(|error| AttachError::Map("free_groups", error.into()))?;
        }
        let cells = if settings.whole_stack {
            0
        } else {
            wish.room * CELLS_OF_A_GROUP
        };
        for cell in 0..cells {
            let number = (plan.rows() as u32 + cell).to_ne_bytes();
            let done = maps.free_cells.update(&[], &number, MapFlags::ANY);
            done.map_err(|error| AttachError::Map("free_cells", error.into()))?;
        }
    }
    for tgid in &settings.traced {
        let done = maps.traced.update(&tgid.to_ne_bytes(), &[1], MapFlags::ANY);
        done.map_err(|error| AttachError::Map("traced", error.into()))?;
    }
    for disk in &settings.disks {
        let done = maps.disks.update(&disk.to_ne_bytes(), &[1], MapFlags::ANY);
        done.map_err(|error| AttachError::Map("disks", error.into()))?;
    }
    if let Some(cgroup) = &settings.cgroup {
        let done = maps
            .cgroup
            .update(&0u32.to_ne_bytes(), &cgroup.as_raw_fd().to_ne_bytes(), MapFlags::ANY);
        done.map_err(|error| AttachError::Map("cgroup", error.into()))?;
    }
    Ok(())
}
