//! `--check`: attaches everything once, has a process do each operation, and reports which probes were hit.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use nix::sys::statfs::statfs;

use super::Targets;
use super::prepare::{Prepared, Wanted, prepare, request, retain_mounted};
use super::refusals::{attach_failure, check_layers, why_uncounted};
use crate::analyse;
use crate::args::{Detail, Measure};
use crate::catalog::{FileSystem, Layer, Lives, Op, Point, Returns, async_entries};
use crate::cause::Cause;
use crate::environment;
use crate::exercise::{Done, Exercise, TOO_MUCH, Tried};
use crate::kernel::{Facts, privileges};
use crate::limits;
use crate::model::report::{LayerReport, Probe, Report};
use crate::model::run_info::RunInfo;
use crate::probe::attach::{self, Attached, AttachedOp};
use crate::probe::plan::{Plan, PlannedOp, function_name};
use crate::probe::program;
use crate::probe::refusal::Refusal;
use crate::probe::request::Request;
use crate::process;
use crate::say;
use crate::source::live::{self, LastRead, OfRun};
use crate::sys::perf::{SwitchCounters, Switches};
use crate::view::check::{CheckReport, LayerVerdict, Row, Verdict};
use crate::view::text::number::thousands;

/// Directories to try for temporary files, in this order.
const DIRECTORIES: [&str; 4] = ["/var/tmp", "/tmp", ".", "/dev/shm"];
/// How long context switches are counted in both ways.
const SWITCHES_FOR: Duration = Duration::from_millis(200);
/// The op shown where all ops of a layer have the same probes.
const EVERY_REQUEST: &str = "requests";
const EVERY_CALL: &str = "calls";

/// Runs the check, and prints a table. The exit status is 0 if every selected layer counted something.
pub fn check(measure: &Measure) -> Result<u8, Cause> {
    if let Some(line) = privileges::missing() {
        return Err(line.into());
    }
    let mut measure = measure.clone();
    let scope = &mut measure.scope;
    if let Some(line) = retain_mounted(scope) {
        say!("{line}");
    }
    let file_systems: Vec<&FileSystem> = scope.upper.iter().filter_map(|layer| layer.file_system()).collect();
    let directory = directory_for_files(&file_systems);
    let lives_on = scope
        .upper
        .iter()
        .copied()
        .find(|layer| layer.file_system().is_some_and(|fs| is_on(&directory, fs)));
    if let Some(on) = lives_on
        && scope.detail == Detail::Each
    {
        // Probes of other file systems would not be hit.
        scope.upper.retain(|layer| may_be_reached(*layer, on));
    }
    let measure = &measure;
    let exercise = Exercise::fork(&directory).map_err(|error| Cause {
        line: format!(
            "cannot create a file in {}: {error}; choose another directory with TMPDIR=DIRECTORY",
            directory.display()
        ),
        errno: error.raw_os_error(),
    })?;
    let processes = process::find(&[exercise.pid])?;
    let prepared = prepare(measure, None, false)?;
    let mut targets = Targets {
        processes,
        ..Targets::default()
    };
    let wanted = Wanted {
        unit_ns: 0,
        one_report: true,
        records: None,
        operations: true,
    };
    let request = Request {
        each_alone: true,
        ..request(measure, &wanted, &prepared, &mut targets)
    };
    let Prepared { facts, plan, .. } = prepared;
    let switches = switches(&facts);
    let mut attached =
        attach::attach(&plan, &facts, &request).map_err(|error| attach_failure(measure.hooks.choice, &error))?;
    let refused = check_layers(measure, &plan, &attached)?;

    let counting: io::Result<OwnedFd> = program::count_runs();
    let (done, report) = run_operations(exercise, measure, &facts, &plan, &mut attached, counting.is_ok())?;
    let evidence = Evidence {
        attached: &attached,
        probes: report.probes,
        counting,
        done,
        lives_on,
    };
    let page = CheckReport {
        facts: machine_facts(&facts, &attached, &directory, &evidence, &switches),
        rows: evidence.rows(&plan),
        layers: plan
            .layers()
            .map(|layer| evidence.layer(layer, &plan, &report.layers))
            .collect(),
    };
    let complete = page.layers.iter().all(|layer| !layer.counted.is_empty()) && refused.is_empty();
    match io::stdout().write_all(page.text().as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Cause::of("cannot write the report to stdout", &error))
        }
        _ => Ok(u8::from(!complete)),
    }
}

/// Has the process do each operation; returns the outcome and what was counted meanwhile.
fn run_operations(
    exercise: Exercise,
    measure: &Measure,
    facts: &Facts,
    plan: &Plan,
    attached: &mut Attached,
    has_runs: bool,
) -> Result<(Vec<Done>, Report), Cause> {
    let epoch = 1;
    let mut last = LastRead::default();
    let before = live::read(attached, plan, epoch, has_runs, &mut last);
    attached.control(|control| {
        control.began_ns = live::monotonic_ns();
        control.stopped = 0;
    });
    let done = exercise
        .run()
        .map_err(|error| Cause::of("cannot read from the process that tries each operation", &error))?;
    let after = live::read(attached, plan, epoch, has_runs, &mut last);
    let of_run = OfRun {
        facts,
        plan,
        attached,
        refused: &BTreeMap::new(),
        queued: false,
    };
    let info = RunInfo {
        is_filtered: measure.target.is_filtered(),
        has_runs,
        ..RunInfo::default()
    };
    let report = analyse::report(&live::describe(&of_run, info), &before, &after);
    Ok((done, report))
}

/// A directory for the files: `TMPDIR`, otherwise one on one of these file systems, otherwise any.
fn directory_for_files(file_systems: &[&FileSystem]) -> PathBuf {
    let chosen = environment::variable("TMPDIR").filter(|name| !name.is_empty());
    if let Some(chosen) = chosen {
        return PathBuf::from(chosen);
    }
    let usable = || DIRECTORIES.iter().map(Path::new).filter(|path| path.is_dir());
    let fitting = usable().find(|path| file_systems.iter().any(|fs| is_on(path, fs)));
    fitting.or_else(|| usable().next()).unwrap_or(Path::new(".")).to_owned()
}

/// Whether what is done on the file system `on` may come by a layer, which others than it are below.
fn may_be_reached(layer: Layer, on: Layer) -> bool {
    layer.lives().is_none() || layer == on || on.lives() == Some(Lives::Above)
}

fn is_on(path: &Path, file_system: &FileSystem) -> bool {
    statfs(path).is_ok_and(|stat| stat.filesystem_type().0 as u64 == file_system.files.magic)
}

/// Each CPU's context switches over some time, as counted by perf's software event and by the tracepoint.
fn switches(facts: &Facts) -> io::Result<Vec<Switches>> {
    let no_tracefs = || io::Error::other("tracefs is not mounted (mount -t tracefs tracefs /sys/kernel/tracing)");
    let counters = SwitchCounters::start(facts.tracefs.as_deref().ok_or_else(no_tracefs)?)?;
    thread::sleep(SWITCHES_FOR);
    counters.into_iter().map(SwitchCounters::stop).collect()
}

/// Whether the kernel calls its tracepoints whichever task is current. If it does not for some tasks, their events are
/// not seen, nor those of interrupts that arrive meanwhile.
fn where_tracepoints_fire(switches: &io::Result<Vec<Switches>>) -> String {
    let all = match switches {
        Ok(all) => all,
        Err(error) => return format!("unknown whether they fire for all tasks: {error}"),
    };
    let counted = all.iter().fold(0_u64, |sum, cpu| sum.saturating_add(cpu.counted));
    let missed = all.iter().filter(|cpu| cpu.traced < cpu.counted);
    let missed: Vec<String> = missed
        .map(|cpu| {
            format!(
                "CPU {}: {} of {}",
                cpu.cpu,
                thousands(cpu.counted - cpu.traced),
                thousands(cpu.counted)
            )
        })
        .collect();
    let span = SWITCHES_FOR.as_millis();
    if missed.is_empty() {
        return format!("fired at all of {} context switches in {span} ms", thousands(counted));
    }
    format!(
        "do not fire for some tasks; context switches missed in {span} ms: {}",
        missed.join(", ")
    )
}

/// The facts at the head of the output.
fn machine_facts(
    facts: &Facts,
    attached: &Attached,
    directory: &Path,
    evidence: &Evidence<'_>,
    switches: &io::Result<Vec<Switches>>,
) -> Vec<(&'static str, String)> {
    let starts = if attached.in_flight.is_some() {
        "in task storage"
    } else {
        "in a table"
    };
    let runs = match &evidence.counting {
        Ok(_) => "counted by function".to_owned(),
        Err(error) => format!("not counted: {}", why_uncounted(error)),
    };
    let errors = evidence.counting.as_ref().err().map(io::Error::raw_os_error);
    let refused = attached.ops.iter().flat_map(|op| &op.refused);
    let errors: Vec<Option<i32>> = errors
        .into_iter()
        .chain(refused.map(|refusal| refusal.why.errno))
        .collect();
    let is_reached = errors.iter().any(|errno| limits::is_reached(*errno));
    let limit = Some(is_reached).filter(|_| !errors.is_empty()).and_then(limits::advice);
    let file_system = evidence
        .lives_on
        .map_or_else(String::new, |layer| format!(" ({layer})"));
    let mut facts = vec![
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        (
            "kernel",
            format!("{} {}", crate::kernel::release(), std::env::consts::ARCH),
        ),
        ("preemption", facts.preemption.to_string()),
        ("start times", starts.to_owned()),
        ("probe runs", runs),
        ("test files", format!("in {}{file_system}", directory.display())),
        ("tracepoints", where_tracepoints_fire(switches)),
    ];
    facts.extend(limit.map(|limit| ("open files", limit)));
    facts
}

/// The evidence collected while every operation was done.
struct Evidence<'a> {
    attached: &'a Attached,
    probes: Vec<Probe>,
    /// While it is open, the kernel counts the runs of programs.
    counting: io::Result<OwnedFd>,
    done: Vec<Done>,
    /// The measured file system on which the operations were done, if any.
    lives_on: Option<Layer>,
}

impl Evidence<'_> {
    fn rows(&self, plan: &Plan) -> Vec<Row> {
        let mut rows = Vec::new();
        for (op, how) in plan.ops.iter().zip(&self.attached.ops) {
            match op.layer {
                // All its ops have the same probes.
                Layer::Blk if rows.iter().any(|row: &Row| row.layer == op.layer) => {}
                Layer::Blk => rows.extend(self.probes_of(op, how, EVERY_REQUEST)),
                Layer::Syscall if how.points.iter().any(|(_, hook)| !hook.is_on_functions()) => {
                    if !rows.iter().any(|row| row.layer == op.layer) {
                        rows.extend(self.probes_of(op, how, EVERY_CALL));
                    }
                }
                _ => rows.extend(self.functions_of(op, how)),
            }
        }
        rows
    }

    /// Rows for probes that serve all ops of a layer.
    fn probes_of(&self, op: &PlannedOp, how: &AttachedOp, name: &'static str) -> Vec<Row> {
        let of_layer = self.probes.iter().filter(|probe| probe.layer == Some(op.layer));
        let mut rows: Vec<Row> = of_layer
            .map(|probe| Row {
                layer: op.layer,
                op: name,
                function: probe.functions.join(", "),
                hook: Some(probe.hook),
                verdict: self.verdict_of(probe),
            })
            .collect();
        if rows.is_empty() {
            rows.extend(how.refused.iter().map(|refusal| refused_row(op, name, refusal)));
        }
        rows.dedup();
        rows
    }

    fn verdict_of(&self, probe: &Probe) -> Verdict {
        let runs = [probe.entry, probe.leave].into_iter().flatten().map(|runs| runs.count);
        match runs.reduce(|a, b| a.saturating_add(b)) {
            Some(0) => Verdict::NotHit,
            Some(_) => Verdict::Fires,
            None => Verdict::Unknown,
        }
    }

    /// Rows for an op's own functions, including those that this kernel lacks.
    fn functions_of(&self, op: &PlannedOp, how: &AttachedOp) -> Vec<Row> {
        let mut rows = Vec::new();
        let planned = op.points.iter().filter(|planned| planned.suppressed.is_none());
        let functions: Vec<&str> = planned.map(|planned| planned.function.as_str()).collect();
        for &function in &functions {
            let probe = self
                .probes
                .iter()
                .find(|probe| probe.layer == Some(op.layer) && probe.functions.iter().any(|name| name == function));
            // A kind of hook may have been refused as a whole.
            let refusals = how.refused.iter().filter(|refusal| refusal.of.is_of(function));
            match probe {
                Some(probe) => rows.push(Row {
                    layer: op.layer,
                    op: op.spec.op.name(),
                    function: function.to_owned(),
                    hook: Some(probe.hook),
                    verdict: match self.verdict_of(probe) {
                        Verdict::NotHit => self.why_not_hit(op, function),
                        verdict => verdict,
                    },
                }),
                None => rows.extend(refusals.map(|refusal| Row {
                    function: function.to_owned(),
                    ..refused_row(op, op.spec.op.name(), refusal)
                })),
            }
        }
        let candidates = op
            .spec
            .points
            .iter()
            .chain(async_entries(op.spec.op).filter(|_| op.layer == Layer::Vfs));
        let is_planned = |point: &Point| op.points.iter().any(|planned| std::ptr::eq(planned.point, point));
        for point in candidates.filter(|point| point.unless.is_none()) {
            let name = function_name(point);
            if !is_planned(point) && !rows.iter().any(|row| row.function == name) {
                rows.push(Row {
                    layer: op.layer,
                    op: op.spec.op.name(),
                    function: name,
                    hook: None,
                    verdict: Verdict::Absent,
                });
            }
        }
        rows
    }

    /// Why a probe was not hit: its operation was not tried, or it took another path.
    fn why_not_hit(&self, op: &PlannedOp, function: &str) -> Verdict {
        let point = op.points.iter().find(|planned| planned.function == function);
        let step = match point.map(|planned| planned.point.returns) {
            _ if op.layer == Layer::Syscall => match op.spec.op {
                Op::IoGetevents => Some(Op::IoSubmit),
                op => Some(op),
            },
            Some(Returns::Issued) => Some(Op::IoUringEnter),
            Some(Returns::Submitted) => Some(Op::IoSubmit),
            _ => None,
        };
        if step.is_some_and(|step| TOO_MUCH.contains(&step)) {
            return Verdict::NotTried("it would write back other files".to_owned());
        }
        let of_step = |(tried, _): &&Done| step.is_some_and(|step| *tried == Tried::Call(step));
        if let Some((_, Err(error))) = self.done.iter().find(of_step) {
            return Verdict::NotTried(error.to_string());
        }
        if op.layer.lives().is_some() && self.lives_on != Some(op.layer) {
            return Verdict::NotTried(format!(
                "no {} there; choose another directory with TMPDIR=DIRECTORY",
                op.layer
            ));
        }
        Verdict::NotHit
    }

    fn layer(&self, layer: Layer, plan: &Plan, reports: &[LayerReport]) -> LayerVerdict {
        let report = reports.iter().find(|report| report.layer == layer);
        let counted: Vec<Op> = report
            .iter()
            .flat_map(|report| &report.ops)
            .filter(|op| op.count() > 0)
            .map(|op| op.op)
            .collect();
        let ops = plan.ops.iter().filter(|op| op.layer == layer).map(|op| op.spec.op);
        LayerVerdict {
            layer,
            not_counted: ops.filter(|name| !counted.contains(name)).collect(),
            counted,
        }
    }
}

fn refused_row(op: &PlannedOp, name: &'static str, refusal: &Refusal) -> Row {
    Row {
        layer: op.layer,
        op: name,
        function: refusal.of.to_string(),
        hook: Some(refusal.hook),
        verdict: Verdict::Refused(refusal.why.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_on_an_overlay_may_come_by_every_file_system() {
        let reached = |on: Layer| -> Vec<Layer> {
            Layer::ALL
                .into_iter()
                .filter(|layer| may_be_reached(*layer, on))
                .collect()
        };
        assert_eq!(reached(Layer::Overlay), Layer::ALL);
        assert_eq!(
            reached(Layer::Xfs),
            [Layer::Syscall, Layer::Vfs, Layer::Xfs, Layer::Blk]
        );
    }

    #[test]
    fn cpus_whose_tracepoints_do_not_fire_are_named() {
        let cpu = |cpu, counted, traced| Switches { cpu, counted, traced };
        let fire = |all: &[Switches]| where_tracepoints_fire(&Ok(all.to_vec()));
        assert_eq!(
            fire(&[cpu(0, 1_200, 1_200), cpu(1, 34, 34)]),
            "fired at all of 1,234 context switches in 200 ms"
        );
        assert_eq!(
            fire(&[cpu(0, 1_698, 598), cpu(1, 34, 34), cpu(3, 524, 482)]),
            "do not fire for some tasks; context switches missed in 200 ms: CPU 0: 1,100 of 1,698, CPU 3: 42 of 524"
        );
        assert_eq!(
            where_tracepoints_fire(&Err(io::Error::other("tracefs is not mounted"))),
            "unknown whether they fire for all tasks: tracefs is not mounted"
        );
    }
}
