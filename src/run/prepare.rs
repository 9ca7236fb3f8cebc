//! Looks at the kernel, decides what to attach to, and what the programs are told.

use std::collections::BTreeMap;
use std::fs::File;

use crate::args::Options;
use crate::catalog::Layer;
use crate::kernel::disk::Disk;
use crate::kernel::disks::Disks;
use crate::kernel::file_operations::{self, Narrowing};
use crate::kernel::preemption::Model;
use crate::kernel::{self, Facts, LazySymbols};
use crate::limits;
use crate::model::ids::By;
use crate::probe::Choice;
use crate::probe::load;
use crate::probe::plan::{self, BlockWish, Plan};
use crate::probe::request::{AskedDisk, GroupWish, Request};
use crate::process;
use crate::view::text::Unit;

use super::Targets;
use super::asked::is_filtered_by_process;

/// Where file systems were not named, they are those that somebody has mounted.
pub fn retain_mounted(options: &mut Options) {
    if !options.layers_named {
        let is_mounted = |layer: &Layer| layer.file_system().is_none_or(kernel::has_mounted);
        options.layers.retain(is_mounted);
    }
}

/// What is known before anything is attached.
pub struct Prepared {
    pub facts: Facts,
    pub plan: Plan,
    pub wish: BlockWish,
    pub disks: Option<Disks>,
    pub narrowing: BTreeMap<Layer, Narrowing>,
}

/// Looks at the kernel, and decides where to attach.
pub fn prepare(options: &Options, disk: Option<&Disk>) -> Result<Prepared, String> {
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

/// What the kernel side is asked for.
pub fn request(options: &Options, prepared: &Prepared, targets: &mut Targets) -> Request {
    let narrowed = prepared.narrowing.iter();
    Request {
        traced: targets.processes.iter().map(|process| process.global).collect(),
        follow: options.follow,
        own: process::global_number(std::process::id()).unwrap_or(0),
        disk: targets.disk.as_ref().map(|disk| AskedDisk {
            devices: disk.devices.clone(),
            is_partition: disk.is_partition,
        }),
        cgroup: targets.cgroup.take(),
        comm: options.comm.clone(),
        file: targets.file.clone(),
        all_files: options.all_files,
        slower: options.slower,
        unit_ns: match options.unit {
            Unit::Nanoseconds => 0,
            Unit::Microseconds => 1_000,
            Unit::Milliseconds => 1_000_000,
        },
        one_report: options.interval.is_none(),
        whole_stack: options.whole_stack,
        // The text has the rows alone; only JSON has the ops of each layer, too.
        rows_only: options.whole_stack && !options.has_json(),
        groups: options.by.map(|by| GroupWish {
            by,
            room: options.groups.unwrap_or(load::GROUPS),
        }),
        block: prepared.wish,
        guards: narrowed
            .map(|(layer, narrowing)| (*layer, (narrowing.guard, narrowing.value)))
            .collect(),
        starts: options.starts,
        each_alone: false,
        progress: None,
    }
}

/// Facts that this process is not let to see, and what that costs.
pub fn what_is_closed(facts: &Facts) -> Vec<String> {
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

/// Calls and requests that filters cannot tell.
pub fn what_filters_leave_out(options: &Options) -> Vec<String> {
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
