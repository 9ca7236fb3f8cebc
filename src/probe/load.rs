//! Loads the BPF object of the view: selects its programs, sizes its maps, and sets its configuration.

use std::fs::File;
use std::io::Write;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, OpenMapMut, OpenObject};
use libbpf_sys as sys;
use nix::sys::memfd::{MFdFlags, memfd_create};

use super::Hook;
use super::attach::AttachError;
use super::binned::BinnedCounters;
use super::config::{self, Made, OneValue, Setup, gets_requests, sharing_file_systems, takes_requests};
use super::plan::{BlockWay, Plan, Start};
use super::program::{self, Programs};
use super::refusal::Why;
use super::request::{RecordWish, Request, RingSlots};
use crate::catalog::{Layer, Point};
use crate::kernel::interface::skeleton::{
    IostackbreakdownSkel, IostackbreakdownSkelBuilder, OpenIostackbreakdownMaps, OpenIostackbreakdownSkel,
};
use crate::kernel::interface::types;
use crate::kernel::interface::{
    DIRECTIONS, EPOCH_STEP, FAMILIES, GROUP_FIRST, NO_PROCESS, ORIGINS, RECORD_KINDS, STOP_CALLS, STOP_REQUESTS, View,
};
use crate::kernel::{Fprobe, possible_cpus};
use crate::model::ids::By;
use crate::sys::assembly::one_value;
use crate::sys::page_bytes;

/// The default number of groups. Their maps take up to 28 MB.
pub const GROUPS: u32 = 1024;
/// The average number of ops per group for which there is room: most groups have few ops.
const CELLS_OF_A_GROUP: u32 = 8;

/// Whether this kernel provides task storage: tries to create and delete that of this process. Not called if the kernel
/// is already known to refuse it ([`crate::kernel::Facts::storage_refused`]).
pub fn gives_task_storage(skeleton: &IostackbreakdownSkel<'_>) -> bool {
    let Ok(pidfd) = crate::process::open_pidfd(std::process::id()) else {
        return false;
    };
    let map = &skeleton.maps.threads_by_task;
    let key = pidfd.as_raw_fd().to_ne_bytes();
    let empty = vec![0; map.value_size() as usize];
    map.update(&key, &empty, MapFlags::ANY).is_ok() && map.delete(&key).is_ok()
}

/// The object with its maps, and the programs that can be loaded.
pub struct Loaded {
    pub skeleton: IostackbreakdownSkel<'static>,
    pub programs: Programs,
    pub binned: Option<BinnedCounters>,
}

pub fn load(setup: &Setup<'_>) -> Result<Loaded, Why> {
    let Setup { facts, plan, .. } = *setup;
    // libbpf's object must not move. A run leaks one object per attempt, and makes few attempts.
    let storage: &'static mut MaybeUninit<OpenObject> = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut builder = IostackbreakdownSkelBuilder {
        view: if setup.request.whole_stack {
            View::WholeStack
        } else {
            View::Layers
        },
        ..Default::default()
    };
    // libbpf opens the file by its path when it relocates the programs, so it must exist until then.
    let types = in_memory(&facts.types);
    if let Some((_, path)) = &types {
        builder.obj_builder.btf_custom_path(path)?;
    }
    let mut open = builder.open(storage)?;

    choose_programs(&mut open, setup);
    choose_block_programs(&mut open, setup);
    choose_completions(&mut open, setup);
    choose_stack_programs(&mut open, setup);
    size_maps(&mut open, setup)?;
    let one_value = make_stats(&mut open.maps, plan)?;
    // Bins need calls with their start in a cookie, and per-CPU values without a lookup.
    let has_bins = setup.has_cookies() && facts.per_cpu_values;
    let binned = make_binned(&mut open.maps, plan, has_bins)?;
    let ring_slots = make_slot_rings(&mut open.maps, setup)?;
    if let Some(rodata) = open.maps.rodata_data.as_deref_mut() {
        let made = Made {
            one_value,
            bins: binned.is_some(),
            ring_slots,
        };
        config::fill(rodata, setup, made);
    }
    if let Some(bss) = open.maps.bss_data.as_deref_mut() {
        // Nothing is measured before everything is attached.
        bss.control.stopped = STOP_CALLS | STOP_REQUESTS;
        bss.control.active_tgid = NO_PROCESS;
        bss.control.epoch = u64::from(EPOCH_STEP);
    }
    // The model of the rings must exist until the array of rings does.
    let _model = size_rings(&mut open.maps, setup, ring_slots)?;
    if setup.has_slots() {
        make_empty(&mut open.maps.bss_slots)?;
        for table in [&mut open.maps.bss_requests, &mut open.maps.bss_bios] {
            if table.autocreate() {
                make_empty(table)?;
            }
        }
        if setup.request.records.is_some() {
            make_empty(&mut open.maps.bss_recorders)?;
        }
    }
    let relocated = program::relocate(open.open_object_mut())?;
    let skeleton = open.load()?;
    Ok(Loaded {
        skeleton,
        programs: Programs::new(relocated, setup.request.as_compiled),
        binned,
    })
}

/// Creates the rings of slots, for which programs need atomic instructions that return the old value. There are none if the
/// kernel refuses a map of that size: all records are in its own rings then.
fn make_slot_rings(maps: &mut OpenIostackbreakdownMaps<'_>, setup: &Setup<'_>) -> libbpf_rs::Result<RingSlots> {
    let wish = setup.request.records.as_ref();
    let wish = wish.filter(|_| setup.facts.answering_atomics);
    let slots = wish.map(RecordWish::ring_slots).filter(|slots| slots.each > 0);
    // As in make_stats().
    maps.bss_rings_data = None;
    let made = slots.filter(|slots| {
        let sized = maps.bss_rings.set_value_size(slots.bytes());
        sized.and_then(|()| make_empty(&mut maps.bss_rings)).is_ok()
    });
    if made.is_none() {
        maps.bss_rings.set_autocreate(false)?;
    }
    Ok(made.unwrap_or_default())
}

/// Sizes the maps of records, which exist only if the run records. Returns a ring like those of the array of rings.
fn size_rings(
    maps: &mut OpenIostackbreakdownMaps<'_>,
    setup: &Setup<'_>,
    slots: RingSlots,
) -> libbpf_rs::Result<Option<MapHandle>> {
    let wish = setup.request.records.as_ref();
    maps.rings.set_autocreate(wish.is_some())?;
    maps.record_losses.set_autocreate(wish.is_some())?;
    maps.known_files.set_autocreate(wish.is_some())?;
    maps.recorders.set_autocreate(wish.is_some())?;
    maps.bss_recorders.set_autocreate(wish.is_some() && setup.has_slots())?;
    let Some(wish) = wish else { return Ok(None) };
    let cpus = cpu_numbers()?;
    maps.rings.set_max_entries(entries(cpus))?;
    maps.record_losses
        .set_max_entries(entries(cpus * RECORD_KINDS as usize))?;
    let model = new_ring(wish.ring_of(0, page_bytes(), slots))?;
    maps.rings.set_inner_map_fd(model.as_fd())?;
    Ok(Some(model))
}

fn new_ring(bytes: u32) -> libbpf_rs::Result<MapHandle> {
    let options = sys::bpf_map_create_opts {
        sz: size_of::<sys::bpf_map_create_opts>() as sys::size_t,
        ..Default::default()
    };
    MapHandle::create(MapType::RingBuf, Some("iosb_records"), 0, 0, bytes, &options)
}

/// Creates the ring of each CPU. Returns them in the order of the CPUs' numbers.
///
/// # Errors
/// The error of the kernel: ENOMEM if there is no memory for them.
pub fn make_rings(
    skeleton: &IostackbreakdownSkel<'_>,
    wish: &RecordWish,
    slots: RingSlots,
) -> libbpf_rs::Result<Vec<MapHandle>> {
    let cpus = 0..entries(cpu_numbers()?);
    let page = page_bytes();
    let made = cpus.map(|cpu| {
        let ring = new_ring(wish.ring_of(cpu, page, slots))?;
        let descriptor = ring.as_fd().as_raw_fd().to_ne_bytes();
        skeleton
            .maps
            .rings
            .update(&cpu.to_ne_bytes(), &descriptor, MapFlags::ANY)?;
        Ok(ring)
    });
    made.collect()
}

/// Creates the map of a section of global variables that are all zero. The kernel zeroes new maps; libbpf would in
/// addition map it and copy zeros to it.
fn make_empty(map: &mut OpenMapMut<'_>) -> libbpf_rs::Result<()> {
    let name = map.name().to_owned();
    let table = one_value(MapType::Array, Some(&name), map.value_size(), sys::BPF_F_MMAPABLE)?;
    map.reuse_fd(table.as_fd())
}

/// A file in memory (memfd) with these bytes, and its path. `None`: there are no bytes, or the file cannot be opened,
/// and libbpf reads all of the kernel's BTF instead.
fn in_memory(bytes: &[u8]) -> Option<(File, PathBuf)> {
    if bytes.is_empty() {
        return None;
    }
    let mut file = File::from(memfd_create(c"types", MFdFlags::MFD_CLOEXEC).ok()?);
    file.write_all(bytes).ok()?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    // If /proc belongs to another PID namespace, it may lack this process.
    File::open(&path).ok()?;
    Some((file, path))
}

fn choose_programs(open: &mut OpenIostackbreakdownSkel<'_>, setup: &Setup<'_>) {
    let facts = setup.facts;
    let follow = setup.request.follow;
    // Process events run in process context, so the kind of tracepoint is chosen as for system calls.
    let classic = facts.preemption.is_possible() && facts.tracefs.is_some();
    let wanted = |hook| setup.loads(hook);
    let kprobes = wanted(Hook::Kprobe) || wanted(Hook::KprobeEvent);
    let progs = &mut open.progs;
    progs.fentry_enter.set_autoload(wanted(Hook::Fentry));
    progs.fexit_leave.set_autoload(wanted(Hook::Fentry));
    progs.fsession_both.set_autoload(wanted(Hook::Fsession));
    progs.kprobe_enter.set_autoload(kprobes);
    progs.kretprobe_leave.set_autoload(kprobes);
    progs.multi_enter.set_autoload(wanted(Hook::Multi));
    progs.multi_leave.set_autoload(wanted(Hook::Multi));
    let session = wanted(Hook::Session);
    let rows_only = setup.request.rows_only;
    progs.kprobe_call.set_autoload(session && rows_only);
    progs.session.set_autoload(session && needs_general_session(setup));
    progs.session_calls.set_autoload(session);
    progs.session_bios.set_autoload(session && setup.request.whole_stack);
    progs
        .session_async
        .set_autoload(session && !setup.plan.completions.is_empty());
    progs
        .session_rows
        .set_autoload(session && setup.request.whole_stack && setup.keeps_cookies());
    progs.session_file_systems.set_autoload(session && rows_only);
    progs.session_by_cookie.set_autoload(setup.session_has_cookies());
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
    // An exec may change the number of a thread, by which records name it.
    let execs = setup.request.has_command || setup.request.records.is_some();
    progs.exec_btf.set_autoload(execs && !classic);
    progs.exec_classic.set_autoload(execs && classic);
    let names_processes = setup.request.groups.is_some_and(|groups| groups.by == By::Process);
    progs
        .rename_btf
        .set_autoload(names_processes || setup.request.records.is_some());
    progs.in_flight.set_autoload(!setup.selection.starts_in_table);
    progs.resolve_pids.set_autoload(false);
}

/// Whether some functions need `session`, the program of all shapes, which is large: those of system calls have another one, and
/// where only rows are reported nearly all do.
fn needs_general_session(setup: &Setup<'_>) -> bool {
    let Setup {
        request, facts, plan, ..
    } = *setup;
    let sharing = sharing_file_systems(plan, facts).unwrap_or_default();
    let shares = |layer| sharing.iter().any(|(of, _)| *of == layer);
    let has_others = request.rows_only && facts.kprobe && setup.keeps_cookies();
    let mut ops = plan.ops.iter().filter(|op| op.layer != Layer::Syscall);
    ops.any(|op| {
        let takes_requests = |point: &Point| takes_requests(point.shape, point.returns);
        let has_other = |point: &Point| !takes_requests(point) || gets_requests(point) && shares(op.layer);
        let is_general = |point: &Point| !has_others || !has_other(point);
        op.points.iter().any(|planned| is_general(planned.point))
    })
}

fn choose_block_programs(open: &mut OpenIostackbreakdownSkel<'_>, setup: &Setup<'_>) {
    let way = setup.selection.way;
    let requests = way.filter(|way| !way.is_bio_based);
    let by_tracepoint = requests.is_some_and(|way| way.hook == Hook::RawTracepoint);
    let by_function = requests.is_some_and(|way| way.hook.is_on_functions());
    let start = requests.map_or(Start::Unneeded, |way| way.start);
    let has_bios = way.is_some_and(|way| way.is_bio_based || way.bio_stamps);
    let has_bios_only = way.is_some_and(|way| way.is_bio_based);
    let is_by_both = way.is_some_and(BlockWay::is_by_both);
    let by_tracepoints_twice = way.is_some_and(|way| way.again && !way.hook.is_on_functions());
    let announced = matches!(start, Start::Event | Start::Function(_));

    let progs = &mut open.progs;
    progs.block_issue_btf.set_autoload(by_tracepoint);
    progs.block_end_btf.set_autoload(by_tracepoint);
    progs
        .block_end_second_btf
        .set_autoload(requests.is_some_and(|way| way.again));
    progs.block_start_btf.set_autoload(start == Start::Event);
    let merges = announced && setup.facts.block.has("block_rq_merge");
    progs.block_merge_btf.set_autoload(merges);
    progs.block_merge_second_btf.set_autoload(merges && is_by_both);
    let at_event = !way.is_some_and(BlockWay::submits_at_function);
    progs.bio_queue_btf.set_autoload(has_bios && at_event);
    progs.bio_end_btf.set_autoload(has_bios);
    progs
        .bio_end_second_btf
        .set_autoload(has_bios_only && by_tracepoints_twice);
    let stamps = way.filter(|way| way.bio_stamps);
    let with_requests = stamps.is_some_and(|way| !way.by_splits);
    progs.bio_getrq_btf.set_autoload(with_requests);
    progs.bio_getrq_second_btf.set_autoload(with_requests && is_by_both);
    let by_splits = stamps.is_some_and(|way| way.by_splits);
    progs.bio_split_btf.set_autoload(by_splits);
    progs.bio_split_second_btf.set_autoload(by_splits && is_by_both);
    progs.bio_submit_function.set_autoload(has_bios && is_by_both);
    progs.bio_end_function.set_autoload(has_bios_only && is_by_both);
    progs
        .block_start_function
        .set_autoload(matches!(start, Start::Function(_)));
    progs.block_issue_function.set_autoload(by_function);
    progs.block_end_function.set_autoload(by_function);
    let batches = requests.is_some_and(BlockWay::ends_in_batches);
    // In the whole-stack view the other program sees them too.
    progs
        .block_end_batch_function
        .set_autoload(batches && !setup.request.whole_stack);
}

/// Selects the programs of the scheduler's tracepoints, and those of bios that only the whole-stack view needs.
fn choose_stack_programs(open: &mut OpenIostackbreakdownSkel<'_>, setup: &Setup<'_>) {
    let (in_stack, way) = (setup.request.whole_stack, setup.selection.way);
    let progs = &mut open.progs;
    progs.sched_switch_btf.set_autoload(in_stack);
    progs.sched_wakeup_btf.set_autoload(in_stack);
    let bios = in_stack && way.is_some_and(|way| way.bio_stamps);
    if bios && way.is_some_and(|way| way.again) {
        progs.bio_end_second_btf.set_autoload(true);
    }
    progs.bio_backmerge_btf.set_autoload(bios);
    progs.bio_frontmerge_btf.set_autoload(bios);
    // There tasks are preempted inside tracepoints, so a program may already be running for another task of the CPU.
    let twice = bios && way.is_some_and(BlockWay::is_by_both);
    progs.bio_backmerge_second_btf.set_autoload(twice);
    progs.bio_frontmerge_second_btf.set_autoload(twice);
}

fn choose_completions(open: &mut OpenIostackbreakdownSkel<'_>, setup: &Setup<'_>) {
    let (plan, completions) = (setup.plan, setup.selection.completions);
    let progs = &mut open.progs;
    let by_fentry = completions.contains(&Hook::Fentry) && plan.completions.iter().any(|end| end.in_btf);
    progs.complete_fentry.set_autoload(by_fentry);
    progs.complete_multi.set_autoload(by_fentry && setup.facts.fentry_multi);
    let by = |hook| completions.contains(&hook) && !plan.completions.is_empty();
    progs.complete_function.set_autoload(by(Hook::Kprobe));
    progs.complete_session.set_autoload(by(Hook::Session));
}

fn entries(n: usize) -> u32 {
    u32::try_from(n.max(1)).unwrap_or(u32::MAX)
}

/// The highest number of a possible CPU plus 1, which exceeds the number of possible CPUs if numbers are missing in
/// between.
fn cpu_numbers() -> libbpf_rs::Result<usize> {
    let highest = possible_cpus().and_then(|numbers| numbers.last().copied());
    highest.map_or_else(libbpf_rs::num_possible_cpus, |number| Ok(number as usize + 1))
}

/// Creates a map with a single value for all counters of all CPUs. `None`: the kernel refuses a value of that size
/// (5.10: more than 4 MB), and the counters are elements of an array.
fn make_stats(maps: &mut OpenIostackbreakdownMaps<'_>, plan: &Plan) -> libbpf_rs::Result<Option<OneValue>> {
    let cpus = cpu_numbers()?;
    let parts = entries(cpus.next_power_of_two());
    let cpu_bytes = entries(plan.counters() * size_of::<types::op_stats>());
    let size = parts.checked_mul(cpu_bytes);
    // Drop libbpf's copy of the section in memory: libbpf would move it when the size changes.
    maps.bss_stats_data = None;
    let is_made = size.is_some_and(|size| {
        let sized = maps.bss_stats.set_value_size(size);
        sized.and_then(|()| make_empty(&mut maps.bss_stats)).is_ok()
    });
    maps.stats.set_max_entries(entries(plan.counters() * cpus))?;
    maps.stats.set_autocreate(!is_made)?;
    if !is_made {
        maps.bss_stats.set_autocreate(false)?;
    }
    let cpu_mask = parts - 1;
    Ok(is_made.then_some(OneValue { cpu_bytes, cpu_mask }))
}

/// Creates the per-CPU map of bins, which libbpf treats as global variables, and its reader. `None`: it is not wanted,
/// or the kernel refuses it.
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

fn size_maps(open: &mut OpenIostackbreakdownSkel<'_>, setup: &Setup<'_>) -> libbpf_rs::Result<()> {
    /// The maximum number of processes that are followed at the same time.
    const FOLLOWED: u32 = 16_384;
    /// The maximum number of asynchronous requests that are active at the same time.
    const REQUESTS: u32 = 16_384;
    let Setup {
        request,
        plan,
        selection,
        ..
    } = *setup;
    let (in_stack, way) = (request.whole_stack, selection.way);
    let maps = &mut open.maps;
    let cpus = cpu_numbers()?;
    maps.traced.set_max_entries(if request.follow {
        FOLLOWED
    } else {
        entries(request.traced.len())
    })?;
    maps.disks
        .set_max_entries(entries(request.disk.as_ref().map_or(0, |disk| disk.devices.len())))?;
    maps.threads_by_task.set_autocreate(!selection.starts_in_table)?;
    maps.threads_by_number.set_autocreate(selection.starts_in_table)?;
    let slots = setup.has_slots();
    maps.bss_slots.set_autocreate(slots)?;
    maps.sleepers.set_autocreate(in_stack)?;
    maps.completing.set_autocreate(in_stack)?;
    maps.flushes.set_autocreate(in_stack)?;
    maps.families.set_autocreate(in_stack)?;
    maps.origins.set_autocreate(in_stack)?;
    maps.written.set_autocreate(in_stack)?;
    maps.slow_calls.set_autocreate(request.slower.is_some())?;
    maps.families.set_max_entries(entries(FAMILIES as usize * cpus))?;
    maps.origins
        .set_max_entries(entries((ORIGINS * DIRECTIONS) as usize * cpus))?;
    let requests = way.is_some_and(|way| !way.is_bio_based);
    let bios = way.is_some_and(|way| way.is_bio_based || way.bio_stamps);
    maps.requests.set_autocreate(requests)?;
    maps.bss_requests.set_autocreate(requests && slots)?;
    maps.bios.set_autocreate(bios)?;
    maps.bss_bios.set_autocreate(bios && slots)?;
    let neighbours = setup.reports_neighbours();
    maps.neighbours.set_autocreate(neighbours)?;
    maps.neighbour_slots.set_autocreate(neighbours)?;
    maps.disk_ends.set_autocreate(neighbours)?;
    maps.no_ends.set_autocreate(neighbours)?;
    let requests = if plan.completions.is_empty() {
        1
    } else {
        request.starts.unwrap_or(REQUESTS)
    };
    maps.asynchronous.set_max_entries(requests)?;
    maps.async_records.set_max_entries(requests)?;
    maps.async_records.set_autocreate(request.records.is_some())?;
    size_groups(maps, plan, request)?;
    if let Some(starts) = request.starts {
        maps.requests.set_max_entries(starts)?;
        maps.bios.set_max_entries(starts)?;
        maps.threads_by_number.set_max_entries(starts)?;
        maps.sleepers.set_max_entries(starts)?;
    }
    Ok(())
}

fn size_groups(maps: &mut OpenIostackbreakdownMaps<'_>, plan: &Plan, request: &Request) -> libbpf_rs::Result<()> {
    let (has_groups, in_stack) = (request.groups.is_some(), request.whole_stack);
    maps.group_numbers.set_autocreate(has_groups)?;
    maps.free_groups.set_autocreate(has_groups)?;
    maps.groups.set_autocreate(has_groups)?;
    maps.group_families.set_autocreate(has_groups && in_stack)?;
    maps.group_origins.set_autocreate(has_groups && in_stack)?;
    maps.cell_numbers.set_autocreate(has_groups && !in_stack)?;
    maps.free_cells.set_autocreate(has_groups && !in_stack)?;
    maps.group_cells.set_autocreate(has_groups && !in_stack)?;
    maps.cell_keys.set_autocreate(has_groups && !in_stack)?;
    let Some(wish) = request.groups else {
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
        maps.group_cells.set_max_entries(plan.counters() as u32 + cells)?;
        maps.cell_keys.set_max_entries(plan.counters() as u32 + cells)?;
    }
    Ok(())
}

pub fn fill_maps(skeleton: &IostackbreakdownSkel<'_>, plan: &Plan, request: &Request) -> Result<(), AttachError> {
    let maps = &skeleton.maps;
    if let Some(wish) = request.groups {
        for group in 0..wish.room {
            let number = (GROUP_FIRST + group).to_ne_bytes();
            let done = maps.free_groups.update(&[], &number, MapFlags::ANY);
            done.map_err(|error| AttachError::Map("free_groups", error.into()))?;
        }
        let cells = if request.whole_stack {
            0
        } else {
            wish.room * CELLS_OF_A_GROUP
        };
        for cell in 0..cells {
            let number = (plan.counters() as u32 + cell).to_ne_bytes();
            let done = maps.free_cells.update(&[], &number, MapFlags::ANY);
            done.map_err(|error| AttachError::Map("free_cells", error.into()))?;
        }
    }
    for tgid in &request.traced {
        let done = maps.traced.update(&tgid.to_ne_bytes(), &[1], MapFlags::ANY);
        done.map_err(|error| AttachError::Map("traced", error.into()))?;
    }
    for disk in request.disk.iter().flat_map(|disk| &disk.devices) {
        let done = maps.disks.update(&disk.to_ne_bytes(), &[1], MapFlags::ANY);
        done.map_err(|error| AttachError::Map("disks", error.into()))?;
    }
    if let Some(cgroup) = &request.cgroup {
        let done = maps
            .cgroup
            .update(&0u32.to_ne_bytes(), &cgroup.as_raw_fd().to_ne_bytes(), MapFlags::ANY);
        done.map_err(|error| AttachError::Map("cgroup", error.into()))?;
    }
    Ok(())
}
