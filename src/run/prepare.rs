//! Examines the kernel, decides what to attach to, and fills in the programs' configuration.

use std::collections::BTreeMap;
use std::fs::File;

use crate::args::{Hooks, Measure, Scope};
use crate::catalog::Layer;
use crate::catalog::family::{FILE_SYSTEM_ROWS, take_beyond_rows};
use crate::cause::Cause;
use crate::kernel::disk::Disk;
use crate::kernel::disks::Disks;
use crate::kernel::file_operations::{self, Narrowing};
use crate::kernel::preemption::Model;
use crate::kernel::{self, Facts, LazySymbols};
use crate::limits;
use crate::model::ids::{By, joined};
use crate::number::thousands;
use crate::probe::Choice;
use crate::probe::load;
use crate::probe::plan::{self, BlockWish, Plan};
use crate::probe::request::{GroupWish, RecordWish, Request, SelectedDisk};
use crate::process;

use super::Targets;

/// If no file systems were named, keeps the mounted ones. Returns the message about those for which there are no rows, if any.
pub fn retain_mounted(scope: &mut Scope) -> Option<String> {
    if scope.is_named() {
        return None;
    }
    let is_mounted = |layer: &Layer| layer.file_system().is_none_or(kernel::has_mounted);
    scope.upper.retain(is_mounted);
    let beyond = take_beyond_rows(&mut scope.upper, &scope.beside_all, FILE_SYSTEM_ROWS);
    (!beyond.is_empty()).then(|| no_rows(&beyond))
}

fn no_rows(layers: &[Layer]) -> String {
    format!(
        "not measured: {}, as a run has rows for {FILE_SYSTEM_ROWS} file systems and more are mounted; -T {} measures them alone",
        joined(layers, Layer::name),
        layers.iter().map(|layer| layer.name()).collect::<Vec<_>>().join(",")
    )
}

/// What is known before anything is attached.
pub struct Prepared {
    pub facts: Facts,
    pub plan: Plan,
    pub wish: BlockWish,
    pub disks: Option<Disks>,
    pub narrowing: BTreeMap<Layer, Narrowing>,
}

/// Examines the kernel, and decides where to attach. `is_recorded`: each call and request is recorded.
pub fn prepare(measure: &Measure, disk: Option<&Disk>, is_recorded: bool) -> Result<Prepared, Cause> {
    let Measure { scope, hooks, .. } = measure;
    let layers = scope.layers();
    limits::raise();
    if let Some(path) = &hooks.vmlinux {
        // The file may turn out not to be needed, but since it was named it must be readable.
        File::open(path).map_err(|error| Cause::of(format_args!("cannot read '{}'", path.display()), &error))?;
    }
    let mut functions = plan::functions_of(&layers, hooks.choice, is_recorded);
    if scope.is_whole_stack() {
        functions.extend(functions_of_rows_in_use(&layers, hooks.choice));
    }
    let symbols = LazySymbols::new(symbols_of_interest(&functions, &layers), &hooks.without);
    let mut facts = kernel::gather(&functions, &hooks.without, &symbols)?;
    plan::check_choice(hooks.choice, &layers, &facts)?;
    if scope.is_named() {
        plan::check_file_systems(&layers, &facts)?;
    }
    let mut plan = plan::plan_of(&layers, &facts, hooks.choice, is_recorded);
    plan::check_room(&plan)?;
    if scope.is_whole_stack() || scope.groups().is_some() {
        plan.keep_frames();
    }
    let mut disks = None;
    let mut wish = BlockWish::default();
    if scope.has(Layer::Blk) {
        let compared = Disks::of(disk);
        wish = block_wish(measure, disk, &compared, is_recorded);
        plan.block_ways = plan::block_ways(wish, &facts, hooks.choice)?;
        disks = Some(compared).filter(|_| !wish.by_owner);
    }
    let Hooks { vmlinux, without, .. } = hooks;
    let narrow = |fs| file_operations::narrow(fs, vmlinux.as_deref(), &symbols, without);
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

/// Symbols that may be needed. `_stext` locates the kernel image; see [`crate::kernel::vmlinux`].
fn symbols_of_interest(functions: &BTreeMap<String, Option<&'static str>>, layers: &[Layer]) -> Vec<String> {
    let operations = layers.iter().filter_map(|layer| layer.file_system()?.files.operations);
    let mut names: Vec<String> = functions.keys().cloned().collect();
    names.extend(operations.map(str::to_owned));
    names.push("_stext".to_owned());
    names
}

/// The functions that have a row, without those of file systems that are not mounted.
fn functions_of_rows_in_use(layers: &[Layer], probe: Choice) -> impl Iterator<Item = (String, Option<&'static str>)> {
    let mut in_use = BTreeMap::new();
    plan::functions_of_rows(layers, probe).filter(move |(_, module)| {
        module.is_none_or(|module| *in_use.entry(module).or_insert_with(|| kernel::is_in_use(module)))
    })
}

fn block_wish(measure: &Measure, disk: Option<&Disk>, disks: &Disks, is_recorded: bool) -> BlockWish {
    let by = measure.scope.groups().map(|groups| groups.by);
    BlockWish {
        queued: measure.scope.is_queued(),
        by_owner: measure.target.is_of_processes(),
        by_submitter: by.is_some_and(|by| by == By::Process || by.is_of_cgroups()),
        is_bio_based: disk.is_some_and(|disk| disk.is_bio_based),
        is_uncounted: disks.is_uncounted,
        whole_stack: measure.scope.is_whole_stack(),
        records: is_recorded,
    }
}

/// What the reports of a run need in addition to what is measured.
pub struct Wanted {
    /// The unit of latency histograms in nanoseconds; 0: that of the clock.
    pub unit_ns: u32,
    /// There is a single report, at the end.
    pub one_report: bool,
    /// Each call and request is recorded.
    pub records: Option<RecordWish>,
    /// The whole stack's report has the operations of each layer in addition to the rows.
    pub operations: bool,
}

/// The request to the kernel side.
pub fn request(measure: &Measure, wanted: &Wanted, prepared: &Prepared, targets: &mut Targets) -> Request {
    let Measure {
        scope, target, hooks, ..
    } = measure;
    let narrowed = prepared.narrowing.iter();
    Request {
        traced: targets.processes.iter().map(|process| process.global).collect(),
        follow: target.follows(),
        has_command: target.command().is_some(),
        own: process::global_number(std::process::id()).unwrap_or(0),
        disk: targets.disk.as_ref().map(|disk| SelectedDisk {
            devices: disk.devices.clone(),
            is_partition: disk.is_partition,
        }),
        cgroup: targets.cgroup.take(),
        comm: target.comm.clone(),
        file: targets.file.clone(),
        all_files: target.all_files,
        slower: scope.slower(),
        records: wanted.records.clone(),
        sample: scope.sample,
        unit_ns: wanted.unit_ns,
        one_report: wanted.one_report,
        whole_stack: scope.is_whole_stack(),
        rows_only: scope.is_whole_stack() && !wanted.operations,
        groups: scope.groups().map(|groups| GroupWish {
            by: groups.by,
            room: groups.room.unwrap_or(load::GROUPS),
        }),
        block: prepared.wish,
        guards: narrowed
            .map(|(layer, narrowing)| (*layer, (narrowing.guard, narrowing.value)))
            .collect(),
        starts: hooks.starts,
        each_alone: false,
        as_compiled: hooks.as_compiled,
        progress: None,
    }
}

/// Facts that this process is not allowed to read, and the consequences.
pub fn inaccessible_facts(facts: &Facts) -> Vec<String> {
    let mut notes = Vec::new();
    if facts.preemption.model == Model::Unknown {
        notes.push(format!(
            "cannot tell whether this kernel is preemptible ({}; needs CAP_DAC_READ_SEARCH); assuming it is, which costs more",
            facts.preemption.source
        ));
    }
    if facts.preemption.is_possible() && facts.tracefs.is_none() {
        notes.push(
            "tracefs is not mounted or not accessible (needs CAP_DAC_OVERRIDE); some hooks that lose nothing cannot be created, so calls may be lost"
                .to_owned(),
        );
    }
    notes
}

/// What a sample does not show.
pub fn left_out_by_sample(scope: &Scope) -> Option<String> {
    let sample = scope.sample?;
    let of = format!(
        "--sample {sample}: numbers of calls are estimates from 1 in {} calls",
        thousands(sample.one_in().into())
    );
    let blk = if scope.has(Layer::Blk) {
        "; requests are all counted"
    } else {
        ""
    };
    let stack = if scope.is_whole_stack() {
        ". Not measured: requests of the traced threads that no call waited for; operations of layers that are asynchronous, or outside \
         I/O system calls"
    } else {
        ""
    };
    Some(format!("{of}{blk}{stack}"))
}

/// Calls and requests that the filters leave out.
pub fn calls_left_out_by_filters(measure: &Measure) -> Vec<String> {
    let Measure { scope, target, .. } = measure;
    let mut notes = Vec::new();
    let filters = [(target.disk.is_some(), "-d"), (target.file.is_some(), "--file")];
    for (_, filter) in filters.iter().filter(|(is_used, _)| *is_used) {
        if scope.has(Layer::Syscall) {
            notes.push(format!(
                "with {filter}, system calls that take a path are not counted, except successful opens"
            ));
        }
    }
    // Selected by their paths, too, are the records of requests.
    if target.file.is_some() && scope.is_whole_stack() && target.paths.files.is_empty() {
        notes.push("requests in the table \"Not waited for by any call\" are those of all files".to_owned());
    }
    notes
}
