//! A run: from options to reports.

mod banner;
mod budget;
mod check;
mod disks;
mod how;
mod output;
mod progress;
mod sinks;
mod slow;
mod snapshots;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Child;
use std::time::Instant;

use libbpf_rs::{MapCore, MapFlags};
use nix::unistd::Pid;

use crate::analyse;
use crate::args::Options;
use crate::catalog::Layer;
use crate::catalog::Row;
use crate::command::{self, CommandError, Waiting};
use crate::event::{Event, Signals, pidfd_of, wait};
use crate::kernel::disk::Disk;
use crate::kernel::file::FileNumber;
use crate::kernel::file_operations::{self, Narrowing};
use crate::kernel::interface::{EPOCH_STEP, NOBODY, STOP_CALLS, STOP_REQUESTS};
use crate::kernel::preemption::Model;
use crate::kernel::privileges::{self, Denied};
use crate::kernel::{self, Facts, LazySymbols, cgroup};
use crate::leave;
use crate::limits;
use crate::model::ids::By;
use crate::model::report::{Filter, Report, nanoseconds};
use crate::model::run_info::RunInfo;
use crate::model::snapshot::{DiskCounters, Snapshot};
use crate::probe::attach::{self, AttachError, Attached, EVERY_FUNCTION, Refusal, Stage};
use crate::probe::load::{self, GroupWish, Settings};
use crate::probe::plan::{self, BlockWish, Plan};
use crate::probe::program;
use crate::probe::{Choice, Hook};
use crate::process::{self, Process};
use crate::say;
use crate::source::live::{self, OfRun, monotonic_ns};
use crate::view::text::Unit;
use crate::view::text::notes::notes;
use crate::view::text::oneline;

use self::banner::banner;
use self::budget::Keeping;
use self::disks::{Disks, check_paths};
use self::how::tell_how;
use self::sinks::Sinks;
use self::slow::Told;
use self::snapshots::Saved;

/// Why a run ended early: one line, and the exit status.
#[derive(Debug)]
pub struct Failure {
    pub line: String,
    pub status: u8,
}

impl Failure {
    fn new(status: u8, cause: impl std::fmt::Display) -> Self {
        let line = cause.to_string();
        Self {
            line: limits::advice(&line).unwrap_or(line),
            status,
        }
    }
}

/// Exit status of a run that could not measure.
const COULD_NOT_MEASURE: u8 = 1;
/// The same when there is a COMMAND, whose own statuses are below.
const COULD_NOT_MEASURE_COMMAND: u8 = 125;

/// Runs, and says which exit status the process should have. Call it while the process has one thread, and end the process
/// afterwards ([`crate::leave::leave`]): what is attached stays so until then.
///
/// # Errors
/// What stopped it, in one line.
pub fn run(options: &Options) -> Result<u8, Failure> {
    if let Some(path) = &options.from_snapshots {
        return snapshots::print(path, options);
    }
    if options.check {
        return check::check(options).map_err(|line| Failure::new(COULD_NOT_MEASURE, line));
    }
    let failed = |status: u8| {
        if options.command.is_empty() {
            status
        } else {
            COULD_NOT_MEASURE_COMMAND
        }
    };
    let cannot = |cause: &dyn std::fmt::Display| Failure::new(failed(COULD_NOT_MEASURE), cause);

    let mut sinks = Sinks::open(options).map_err(|line| cannot(&line))?;
    let disk = options
        .disk
        .as_deref()
        .map(Disk::find)
        .transpose()
        .map_err(|error| cannot(&error))?;
    let mut options = options.clone();
    let mut notes = Vec::new();
    retain_mounted(&mut options);
    if options.layers.contains(&Layer::Blk)
        && let Err(line) = check_paths(disk.as_ref())
    {
        options.layers.retain(|&layer| layer != Layer::Blk);
        if options.layers_named || options.queued {
            return Err(cannot(&line));
        }
        notes.push(format!("blk is not measured: {line}"));
    }
    let options = &options;
    let file = options.file.as_deref().map(|path| {
        let found = FileNumber::find(path);
        found.map_err(|error| cannot(&format!("'{}' cannot be looked at: {error}", path.display())))
    });
    let file = file.transpose()?;
    notes.extend(file.as_ref().and_then(|file| file.note.clone()));
    let processes = process::find(&options.pids).map_err(|error| cannot(&error))?;
    let cgroup = options
        .cgroup
        .as_deref()
        .map(cgroup::open)
        .transpose()
        .map_err(|line| cannot(&line))?;
    if let Some(line) = privileges::missing() {
        return Err(cannot(&line));
    }

    if !options.quiet {
        progress::show(Stage::Looking);
    }
    let Prepared {
        facts,
        plan,
        wish,
        disks,
        narrowing,
    } = prepare(options, disk.as_ref()).map_err(|line| cannot(&line))?;
    notes.extend(what_is_closed(&facts));
    notes.extend(what_filters_leave_out(options));

    let mut settings = settings(options, &facts, &processes, disk.as_ref(), cgroup, &narrowing);
    settings.block = wish;
    settings.progress = (!options.quiet).then_some(progress::show);
    if let Some(file) = file {
        settings.of_file(&file);
    }
    let runs = (options.verbose || options.has_json() || options.budget.is_some()).then(program::count_runs);
    if let (Some(Err(error)), true) = (&runs, options.budget.is_some()) {
        return Err(cannot(&format!(
            "--budget needs what the probes cost, which the kernel does not count here: {error} (CAP_SYS_ADMIN opens it)"
        )));
    }
    let attached =
        attach::attach(&plan, &facts, &mut settings).map_err(|error| cannot(&attach_failure(options, &error)))?;
    // Detaching takes seconds: the end of the process does it, behind the prompt (`crate::leave`).
    let mut attached = ManuallyDrop::new(attached);
    if let Some(hold) = attached.hold.take() {
        leave::close_last(move || hold.link());
    }
    let refused = check_layers(options, &plan, &attached).map_err(|error| cannot(&error))?;
    if options.verbose {
        tell_how(&facts, &plan, &attached, &narrowing);
    }
    if options.follow {
        let roots: Vec<u32> = processes.iter().map(|process| process.pid).collect();
        follow_existing(&attached, &roots).map_err(|line| cannot(&line))?;
    }

    let signals = Signals::install().map_err(|error| cannot(&format!("signals cannot be handled: {error}")))?;
    let waiting = if options.command.is_empty() {
        None
    } else {
        let waiting = command::fork(&options.command, options.user.as_deref()).map_err(command_failure)?;
        let tgid = process::global_number(waiting.pid).map_err(|error| cannot(&error))?;
        control(&mut attached, |control| control.command_tgid = tgid);
        Some(waiting)
    };

    let of_run = OfRun {
        facts: &facts,
        plan: &plan,
        attached: &attached,
        refused: &refused,
        queued: options.queued,
    };
    let asked = RunInfo {
        kernel: crate::kernel::release(),
        subject: subject(options, &processes, disk.as_ref()),
        filter: filter(options, disk.as_ref()),
        notes,
        is_filtered: is_filtered(options),
        slower_ns: options.slower.map(nanoseconds),
        top: options.top,
        has_runs: matches!(runs, Some(Ok(_))),
        no_runs: runs.as_ref().and_then(|runs| Some(runs.as_ref().err()?.to_string())),
        budget: options.budget,
        disks: disks.as_ref().map(Disks::info),
        ..RunInfo::default()
    };
    let info = live::describe(&of_run, asked);
    let saved = options.save_snapshots.as_deref().map(Saved::create).transpose();
    let saved = saved.map_err(|line| cannot(&line))?;
    let mut run = Run {
        options,
        plan: &plan,
        refused,
        attached,
        info,
        disks,
        saved,
        epoch: u64::from(EPOCH_STEP),
        _runs: runs,
        told: Told::default(),
        began: Instant::now(),
        budget: None,
    };
    let before = run.begin();
    let first = analyse::report(&run.info, &before, &before);
    sinks.begin(&first).map_err(|line| cannot(&line))?;
    run.save(&before).map_err(|line| cannot(&line))?;
    // The banner comes when everything that follows it is measured.
    say!("{}", banner(&run.info.subject, options, &run.refused));
    run.say_notes(first);
    if options.slower.is_some() {
        or_leave(sinks.slow_heading()).map_err(|line| cannot(&line))?;
    }
    let child = waiting.map(|waiting| start(waiting, &options.command[0])).transpose()?;
    run.watch(before, processes, child, &signals, &mut sinks)
        .map_err(|line| cannot(&line))
}

/// Where file systems were not named, they are those that somebody has mounted.
fn retain_mounted(options: &mut Options) {
    if !options.layers_named {
        let is_mounted = |layer: &Layer| layer.file_system().is_none_or(kernel::has_mounted);
        options.layers.retain(is_mounted);
    }
}

/// What is known before anything is attached.
struct Prepared {
    facts: Facts,
    plan: Plan,
    wish: BlockWish,
    disks: Option<Disks>,
    narrowing: BTreeMap<Layer, Narrowing>,
}

/// Looks at the kernel, and decides where to attach.
fn prepare(options: &Options, disk: Option<&Disk>) -> Result<Prepared, String> {
    limits::raise();
    if let Some(path) = &options.vmlinux {
        // Whether it is needed turns out later; that it is there was said.
        File::open(path).map_err(|error| format!("cannot read '{}': {error}", path.display()))?;
    }
    let mut functions = plan::functions_of(&options.layers, options.probe);
    if options.whole_stack {
        functions.extend(functions_of_rows_in_use(options.probe));
    }
    let symbols = LazySymbols::new(symbols_of_interest(&functions, options), &options.without);
    let mut facts = kernel::gather(&functions, &options.without, &symbols).map_err(|error| error.to_string())?;
    plan::check_choice(options.probe, &options.layers, &facts)?;
    if options.layers_named {
        plan::check_file_systems(&options.layers, &facts)?;
    }
    let mut plan = plan::plan(&options.layers, &facts, options.probe);
    if options.whole_stack || options.by.is_some() {
        plan.keep_frames();
    }
    let mut disks = None;
    let mut wish = BlockWish::default();
    if options.layers.contains(&Layer::Blk) {
        let compared = Disks::of(disk);
        wish = block_wish(options, disk, &compared);
        plan.block_ways = plan::block_ways(wish, &facts, options.probe)?;
        disks = Some(compared).filter(|_| !wish.by_owner);
    }
    let narrow = |fs| file_operations::narrow(fs, options.vmlinux.as_deref(), &symbols, &options.without);
    let narrowing = plan.narrowed().map(|(layer, fs)| (layer, narrow(fs))).collect();
    let has_links = plan.function_hooks.first().is_some_and(|hook| hook.links_many());
    facts.locate(&symbols, has_links);
    Ok(Prepared {
        facts,
        plan,
        wish,
        disks,
        narrowing,
    })
}

fn start(waiting: Waiting, program: &OsString) -> Result<Child, Failure> {
    waiting.release(program).map_err(command_failure)
}

fn command_failure(error: CommandError) -> Failure {
    Failure::new(error.exit_status(), &error)
}

/// Names whose symbols somebody may ask for. `_stext` places the kernel; see [`crate::kernel::vmlinux`].
fn symbols_of_interest(functions: &BTreeMap<String, Option<&'static str>>, options: &Options) -> Vec<String> {
    let operations = options
        .layers
        .iter()
        .filter_map(|layer| layer.file_system()?.files.operations);
    let mut names: Vec<String> = functions.keys().cloned().collect();
    names.extend(operations.map(str::to_owned));
    names.push("_stext".to_owned());
    names
}

fn is_filtered(options: &Options) -> bool {
    is_filtered_by_process(options) || options.disk.is_some() || options.file.is_some()
}

fn is_filtered_by_process(options: &Options) -> bool {
    !options.pids.is_empty() || !options.command.is_empty() || options.cgroup.is_some() || options.comm.is_some()
}

/// The functions that have a row, but those of file systems that nobody has mounted.
fn functions_of_rows_in_use(probe: Choice) -> impl Iterator<Item = (String, Option<&'static str>)> {
    let mut in_use = BTreeMap::new();
    plan::functions_of_rows(probe).filter(move |(_, module)| {
        module.is_none_or(|module| *in_use.entry(module).or_insert_with(|| kernel::is_in_use(module)))
    })
}

fn block_wish(options: &Options, disk: Option<&Disk>, disks: &Disks) -> BlockWish {
    BlockWish {
        queued: options.queued,
        by_owner: is_filtered_by_process(options),
        by_submitter: matches!(options.by, Some(By::Process | By::Cgroup)),
        is_bio_based: disk.is_some_and(|disk| disk.is_bio_based),
        is_uncounted: disks.is_uncounted,
        whole_stack: options.whole_stack,
    }
}

fn settings(
    options: &Options,
    facts: &Facts,
    processes: &[Process],
    disk: Option<&Disk>,
    cgroup: Option<OwnedFd>,
    narrowing: &BTreeMap<Layer, Narrowing>,
) -> Settings {
    use std::mem::MaybeUninit;
    let mut settings = Settings {
        traced: processes.iter().map(|process| process.global).collect(),
        disks: disk.map(|disk| disk.devices.clone()).unwrap_or_default(),
        cgroup,
        guards: narrowing
            .iter()
            .map(|(layer, narrowing)| (*layer, (narrowing.guard, narrowing.value)))
            .collect(),
        block_device: disk.and_then(|disk| Some((*disk.devices.first()?, disk.is_partition))),
        starts_in_table: !facts.task_storage || options.starts.is_some(),
        starts: options.starts,
        whole_stack: options.whole_stack,
        groups: options.by.map(|by| GroupWish {
            by,
            room: options.groups.unwrap_or(load::GROUPS),
        }),
        ..Default::default()
    };
    let one = (settings.traced.len() == 1 && !options.follow).then(|| settings.traced[0]);
    let config = &mut settings.config;
    config.tgid = one.unwrap_or(0);
    // The text has the rows alone; only JSON has the ops of each layer, too.
    config.rows_only = MaybeUninit::new(options.whole_stack && !options.has_json());
    config.one_epoch = MaybeUninit::new(options.interval.is_none());
    config.self_tgid = process::global_number(std::process::id()).unwrap_or(0);
    config.traced_set = MaybeUninit::new(options.follow || (one.is_none() && !processes.is_empty()));
    config.follow = MaybeUninit::new(options.follow);
    config.by_disk = MaybeUninit::new(disk.is_some());
    config.by_cgroup = MaybeUninit::new(settings.cgroup.is_some());
    config.by_comm = MaybeUninit::new(options.comm.is_some());
    config.all_files = MaybeUninit::new(options.all_files);
    config.tells_slow = MaybeUninit::new(options.slower.is_some());
    config.slower_ns = options.slower.map_or(0, nanoseconds);
    config.unit_ns = match options.unit {
        Unit::Nanoseconds => 0,
        Unit::Microseconds => 1_000,
        Unit::Milliseconds => 1_000_000,
    };
    if let Some(comm) = &options.comm {
        let mut padded = [0u8; 16];
        padded
            .iter_mut()
            .zip(comm.bytes())
            .for_each(|(place, byte)| *place = byte);
        let (first, second) = padded.split_at(8);
        config.comm = [first, second].map(|half| half.try_into().map_or(0, u64::from_ne_bytes));
    }
    settings
}

/// Facts that this process is not let to see, and what that costs.
fn what_is_closed(facts: &Facts) -> Vec<String> {
    let mut notes = Vec::new();
    if facts.preemption.model == Model::Unknown {
        notes.push(format!(
            "whether tasks are preempted inside the kernel is not known ({}; CAP_DAC_READ_SEARCH opens it): hooks are those for the \
             case that they are",
            facts.preemption.source
        ));
    }
    if facts.preemption.is_possible() && facts.tracefs.is_none() {
        notes.push(
            "tracefs is not mounted, or closed to this process (CAP_DAC_OVERRIDE opens it): some hooks that lose nothing are made \
             there"
                .to_owned(),
        );
    }
    notes
}

/// Why nothing of a layer is measured: what the best hook of those that were refused lacks, or what the kernel does not let anybody do.
fn why_refused(layer: Layer, refused: &[Refusal]) -> String {
    let hooks = if layer == Layer::Blk { "tp_btf" } else { "fentry" };
    let lacking = limits::advice(&errors_of(refused)).or_else(|| denied_of(refused).and_then(privileges::lacking));
    lacking.unwrap_or_else(|| match refused {
        [] => "this kernel has none of the functions".to_owned(),
        _ => format!("this kernel refuses kprobes and {hooks}"),
    })
}

fn errors_of(refused: &[Refusal]) -> String {
    refused.iter().map(|refusal| refusal.error.as_str()).collect()
}

fn is_denied(why: &str) -> bool {
    ["denied", "permitted", "not implemented"]
        .iter()
        .any(|word| why.contains(word))
}

/// What was denied, if anything was: of the best hook that was.
fn denied_of(refused: &[Refusal]) -> Option<Denied> {
    let denied = refused.iter().find(|refusal| is_denied(&refusal.error))?;
    Some(match denied.hook {
        _ if denied.function == EVERY_FUNCTION => Denied::Load,
        Hook::KprobeEvent => Denied::TracefsEvent,
        Hook::Kprobe | Hook::Tracepoint => Denied::PerfEvent,
        _ => Denied::Load,
    })
}

/// Calls and requests that filters cannot tell.
fn what_filters_leave_out(options: &Options) -> Vec<String> {
    let mut notes = Vec::new();
    let filters = [(options.disk.is_some(), "-d"), (options.file.is_some(), "--file")];
    for (_, filter) in filters.iter().filter(|(is_used, _)| *is_used) {
        if options.layers.contains(&Layer::Syscall) {
            notes.push(format!(
                "of system calls that take a path, only opens that succeed are counted with {filter}"
            ));
        }
    }
    if options.file.is_some() && options.whole_stack {
        notes.push("requests that nobody waited for are those of all files".to_owned());
    }
    notes
}

/// What stands in the way, as a privilege that this process lacks where it is one: that of the best hook which was refused.
fn attach_failure(options: &Options, error: &AttachError) -> String {
    let denied = match error {
        AttachError::Layer { refused, .. } => denied_of(refused),
        AttachError::Follow(why) if is_denied(why) => Some(Denied::PerfEvent),
        AttachError::Load(why) if is_denied(why) => Some(Denied::Load),
        _ => None,
    };
    let line = error.to_string();
    let lines = match error {
        AttachError::Layer { refused, .. } => errors_of(refused),
        _ => line.clone(),
    };
    if let Some(line) = limits::advice(&lines) {
        return line;
    }
    let line = denied
        .and_then(privileges::lacking)
        .unwrap_or_else(|| match options.probe {
            Choice::Auto => line,
            _ => format!("{line}; without --probe, what works here is chosen"),
        });
    match limits::doubt() {
        Some(doubt) => format!("{line} ({doubt})"),
        None => line,
    }
}

/// A layer that was named and cannot be measured is an error; one of "all" is told in the report.
fn check_layers(options: &Options, plan: &Plan, attached: &Attached) -> Result<BTreeMap<Layer, String>, String> {
    let mut refused = attached.layers_refused(plan);
    let all_refused = options.layers.iter().all(|layer| refused.contains_key(layer));
    let first = options.layers.iter().find(|layer| refused.contains_key(layer)).copied();
    match first {
        Some(layer) if options.layers_named || all_refused => {
            let reasons = refused.remove(&layer).unwrap_or_default();
            if options.verbose {
                for refusal in &reasons {
                    say!("{} by {}: {}", refusal.function, refusal.hook.name(), refusal.error);
                }
            }
            let error = AttachError::Layer {
                layer,
                refused: reasons,
            };
            Err(attach_failure(options, &error))
        }
        _ => {
            let reasons = refused.iter();
            Ok(reasons
                .map(|(layer, refused)| (*layer, why_refused(*layer, refused)))
                .collect())
        }
    }
}

/// Adds the descendants that were there before the forks were watched. One that is forked meanwhile by a descendant
/// that is not yet in the set is found by the next round.
fn follow_existing(attached: &Attached, roots: &[u32]) -> Result<(), String> {
    let mut known = BTreeSet::new();
    loop {
        let found = process::descendants(roots);
        let new: Vec<u32> = found.difference(&known).copied().collect();
        if new.is_empty() {
            return Ok(());
        }
        for pid in new {
            known.insert(pid);
            // One that has ended meanwhile has no number.
            let Ok(global) = process::global_number(pid) else {
                continue;
            };
            let added = attached
                .skeleton
                .maps
                .traced
                .update(&global.to_ne_bytes(), &[1], MapFlags::ANY);
            added.map_err(|error| format!("too many descendants to follow: {error}"))?;
        }
    }
}

/// Changes what the programs look at while they run.
fn control(attached: &mut Attached, change: impl FnOnce(&mut crate::kernel::interface::types::control)) {
    let maps = &mut attached.skeleton.maps;
    let tgid = maps.rodata_data.map_or(0, |rodata| rodata.config.tgid);
    if let Some(bss) = maps.bss_data.as_deref_mut() {
        let place = &raw mut bss.control;
        // SAFETY: a valid place in a shared mapping. The programs only add to a counter among them, which is not touched.
        unsafe {
            let mut copy = place.read_volatile();
            change(&mut copy);
            copy.looked_at = if copy.stopped & STOP_CALLS == 0 { tgid } else { NOBODY };
            (&raw mut (*place).epoch).write_volatile(copy.epoch);
            (&raw mut (*place).began_ns).write_volatile(copy.began_ns);
            (&raw mut (*place).command_tgid).write_volatile(copy.command_tgid);
            (&raw mut (*place).stopped).write_volatile(copy.stopped);
            (&raw mut (*place).looked_at).write_volatile(copy.looked_at);
        }
    }
}

fn subject(options: &Options, processes: &[Process], disk: Option<&Disk>) -> String {
    let mut parts = Vec::new();
    match processes {
        [] => {}
        [one] => parts.push(format!("PID {} ({})", one.pid, one.comm)),
        many => {
            let pids: Vec<String> = many.iter().map(|process| process.pid.to_string()).collect();
            parts.push(format!("PIDs {}", pids.join(", ")));
        }
    }
    if options.follow && !processes.is_empty() {
        parts.push("descendants".to_owned());
    }
    if !options.command.is_empty() {
        let words: Vec<_> = options.command.iter().map(|word| word.to_string_lossy()).collect();
        parts.push(format!("'{}'", words.join(" ")));
    }
    if let Some(comm) = &options.comm {
        parts.push(format!("threads named {comm}"));
    }
    if let Some(cgroup) = &options.cgroup {
        parts.push(format!("cgroup {}", cgroup.display()));
    }
    if let Some(disk) = disk {
        parts.push(disk.name.clone());
    }
    if let Some(file) = &options.file {
        parts.push(file.display().to_string());
    }
    parts.join(", ")
}

/// What [`subject`] says in words. Paths and words that are not UTF-8 are as readable as they can be.
fn filter(options: &Options, disk: Option<&Disk>) -> Filter {
    let words = options.command.iter().map(|word| word.to_string_lossy().into_owned());
    Filter {
        pids: options.pids.clone(),
        follow: options.follow,
        disk: disk.map(|disk| disk.name.clone()),
        queued: options.queued,
        cgroup: options.cgroup.as_ref().map(|path| path.display().to_string()),
        comm: options.comm.clone(),
        command: (!options.command.is_empty()).then(|| words.collect()),
        file: options.file.as_ref().map(|path| path.display().to_string()),
        all_files: options.all_files,
    }
}

struct Run<'a> {
    options: &'a Options,
    plan: &'a Plan,
    /// Layers of which nothing is measured, and why not.
    refused: BTreeMap<Layer, String>,
    attached: ManuallyDrop<Attached>,
    /// What reports have to know beside the counters.
    info: RunInfo,
    /// Where the moments are kept, if they are.
    saved: Option<Saved>,
    /// Disks whose counters are compared with ours.
    disks: Option<Disks>,
    epoch: u64,
    /// The kernel counts the runs of programs while this is held, or why it does not. `None`: nobody asked.
    _runs: Option<io::Result<OwnedFd>>,
    /// Of slow calls.
    told: Told,
    began: Instant,
    /// What measuring may take, where somebody has said.
    budget: Option<Keeping>,
}

impl Run<'_> {
    /// Starts measuring.
    fn begin(&mut self) -> Snapshot {
        let disks = self.read_disks();
        let mut snapshot = live::read(&self.attached, self.plan, self.epoch, self.info.has_runs);
        // Until the programs look, all requests under way are from before; then those are that were started before this.
        control(&mut self.attached, |control| {
            control.began_ns = u64::MAX;
            control.stopped = 0;
        });
        control(&mut self.attached, |control| control.began_ns = monotonic_ns());
        self.began = Instant::now();
        snapshot.at_ns = monotonic_ns();
        snapshot.wall = jiff::Timestamp::now();
        self.info.began_ns = snapshot.at_ns;
        let limit = self.options.budget;
        self.budget = limit.map(|limit| Keeping::new(limit, &self.attached));
        snapshot.disks = disks.zip(self.read_disks()).map(<[DiskCounters; 2]>::from);
        snapshot
    }

    /// What the kernel has counted of the disks so far; `None` when it is not to be compared, or does not tell.
    fn read_disks(&self) -> Option<DiskCounters> {
        self.disks.as_ref()?.read()
    }

    /// Waits for the end and prints what is to be printed on the way.
    fn watch(
        &mut self,
        mut before: Snapshot,
        mut processes: Vec<Process>,
        mut child: Option<Child>,
        signals: &Signals,
        sinks: &mut Sinks,
    ) -> Result<u8, String> {
        let began = self.began;
        let child_fd = match &child {
            Some(child) => Some(pidfd_of(child).map_err(|error| format!("the command cannot be watched: {error}"))?),
            None => None,
        };
        // A time beyond what the clock can count never comes.
        let deadline = self.options.duration.and_then(|duration| began.checked_add(duration));
        let mut reports = 0;
        let mut next = self.options.interval.and_then(|interval| began.checked_add(interval));
        // The terminal of a command is its own.
        let end_shown = deadline.filter(|_| !self.options.quiet && child.is_none());
        let status = loop {
            or_leave(sinks.settle())?;
            if !sinks.is_busy() {
                self.tell_slow(false, sinks)?;
            }
            // A command is not left by itself: its end is waited for.
            if self.keep_to_budget(child.is_some()) {
                break 0;
            }
            // A reader who has not taken the last report yet gets the next one later, of a longer interval.
            let is_free = !sinks.is_busy();
            let due = next.filter(|_| is_free);
            let look = self.options.slower.filter(|_| is_free).map(|_| self.told.next());
            let budget = self.budget.as_ref().and_then(Keeping::next);
            // What is written may come to the same terminal.
            let left = end_shown.filter(|_| is_free).and_then(progress::show_left);
            let wake = [deadline, due, look, budget, left].into_iter().flatten().min();
            let ring = self.attached.stack.as_ref().and_then(|stack| stack.slow.as_ref());
            let ring = ring.filter(|_| is_free).map(AsFd::as_fd);
            let event = wait(signals, &processes, child_fd.as_ref(), &sinks.progress(), ring, wake)
                .map_err(|error| error.to_string())?;
            let is_over = |moment: Option<Instant>| moment.is_some_and(|moment| Instant::now() >= moment);
            match event {
                Event::Time if is_over(deadline) => break 0,
                Event::Written | Event::SlowCalls => {}
                Event::Time => {
                    let Some(interval) = self.options.interval.filter(|_| is_over(due)) else {
                        continue;
                    };
                    reports += 1;
                    let last = self.options.count.is_some_and(|count| reports >= count);
                    if last {
                        break 0;
                    }
                    before = self.report(&before, false, sinks)?;
                    // A machine that was asleep owes no reports.
                    next = next
                        .and_then(|at| at.checked_add(interval))
                        .map(|at| at.max(Instant::now()));
                }
                // The command gets a terminal's Ctrl-C too, and the report waits for it.
                Event::Interrupt if child.is_some() => {}
                Event::Interrupt => {
                    // The terminal shows the ^C where the report would begin.
                    if io::stderr().is_terminal() {
                        say!("");
                    }
                    break 0;
                }
                Event::Signal(signal) => match &child {
                    Some(child) => {
                        let pid = Pid::from_raw(child.id() as i32);
                        // It may have ended already, which the next wait tells.
                        let _ = nix::sys::signal::kill(pid, signal);
                    }
                    None => break 0,
                },
                Event::ProcessEnded(index) => {
                    // The kernel side has taken its number out of the set: a system call that changes a map keeps other
                    // programs of its CPU from running (bpf_disable_instrumentation).
                    processes.swap_remove(index);
                    if processes.is_empty() {
                        break 0;
                    }
                }
                Event::ChildEnded => {
                    let Some(child) = child.as_mut() else { continue };
                    break child.wait().map_or(COULD_NOT_MEASURE_COMMAND, command::exit_status);
                }
            }
        };
        self.report(&before, true, sinks)?;
        or_leave(sinks.finish(signals))?;
        sinks.not_written().for_each(|line| say!("{line}"));
        Ok(status)
    }

    /// Ends an interval, or with `last` the run: what came since `before`.
    fn end(&mut self, before: &Snapshot, last: bool) -> Snapshot {
        let disks = self.read_disks();
        let epoch = self.epoch;
        self.epoch += u64::from(EPOCH_STEP);
        let next = self.epoch;
        control(&mut self.attached, |control| {
            control.epoch = next;
            // Nothing new is begun; what is under way is reported as such.
            if last {
                control.stopped = STOP_CALLS | STOP_REQUESTS;
            }
        });
        let mut after = live::read(&self.attached, self.plan, epoch, self.info.has_runs);
        after.disks = disks.zip(self.read_disks()).map(<[DiskCounters; 2]>::from);
        after.detached = self
            .budget
            .as_ref()
            .map_or_else(Vec::new, |keeping| keeping.detached().to_vec());
        after.utc_offset = live::utc_offset(after.wall);
        after.hold_back(before);
        after
    }

    /// Prints what came since `before`, and reads on from there.
    fn report(&mut self, before: &Snapshot, last: bool, sinks: &mut Sinks) -> Result<Snapshot, String> {
        let mut after = self.end(before, last);
        // Calls that are in the report are reported before it.
        self.tell_slow(last, sinks)?;
        if last {
            match live::under_way(&self.attached, self.plan) {
                Ok(under_way) => after.under_way = Some(under_way),
                Err(error) => after
                    .warnings
                    .push(format!("calls under way at the end are not known: {error}")),
            }
        }
        self.save(&after)?;
        or_leave(sinks.report(&analyse::report(&self.info, before, &after)))?;
        Ok(after)
    }

    /// Keeps a moment for later, where that was asked for.
    fn save(&mut self, moment: &Snapshot) -> Result<(), String> {
        let Some(saved) = &mut self.saved else { return Ok(()) };
        if moment.at_ns == self.info.began_ns {
            saved.run(&self.info)?;
        }
        saved.moment(moment)
    }

    /// Says what will not change, where reports are for people, which do not repeat it then. `first` is a report without numbers.
    fn say_notes(&self, mut first: Report) {
        let options = self.options;
        if options.json.is_some() || options.verbose || options.quiet {
            return;
        }
        if let Some(stack) = first.stack.as_mut().filter(|_| !kernel::is_seen_mounted("overlay")) {
            stack.not_measured.retain(|row| row.what != Row::Overlay.name());
        }
        if let Some(stack) = first.stack.as_ref().filter(|_| options.oneline) {
            first.warnings.push(oneline::explained(stack));
        }
        let width = terminal_size::terminal_size_of(io::stderr()).map(|(width, _)| width.0.into());
        notes(&first, width).trim_end().lines().for_each(|line| say!("{line}"));
    }
}

/// A reader that has seen enough, as `head` has, is no error.
fn or_leave(result: io::Result<()>) -> Result<(), String> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => leave::leave(0),
        Err(error) => Err(format!("the report cannot be written: {error}")),
        Ok(()) => Ok(()),
    }
}
