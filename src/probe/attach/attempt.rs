//! Attempts to attach: if the kernel refuses some of the selected programs, another attempt loads others instead.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::stack::RowsAlone;
use super::{AttachError, Attached, AttachedGroups, AttachedOp, Attaching, Refusal, Refused};
use crate::catalog::Layer;
use crate::kernel::Facts;
use crate::kernel::interface::NEIGHBOURS;
use crate::leave;
use crate::probe::Hook;
use crate::probe::config::{CALLS_BY_FUNCTION, Setup, is_partial};
use crate::probe::load::{Loaded, fill_maps, gives_task_storage, load};
use crate::probe::plan::selection::{Finding, Findings, select};
use crate::probe::plan::{Plan, PlannedOp, PlannedPoint};
use crate::probe::records::RecordRings;
use crate::probe::request::{GroupWish, Request, Stage};
use crate::sys::counters::Counters;
use crate::turn;

/// Attaches a plan. A layer of which nothing can be attached is left out, with the refusals in its ops; the caller
/// decides whether that is an error. When it returns, runs that have ended are detached from the same functions
/// ([`turn`]). Call it while the process has one thread: it may fork (`kprobe_event`).
///
/// # Errors
/// If the kernel accepts none of the programs.
pub fn attach(plan: &Plan, facts: &Facts, request: &Request) -> Result<Attached, AttachError> {
    let turn = turn::Attaching::begin();
    let attached = attempts(plan, facts, request)?;
    let links = attached.on_trampolines();
    let functions: BTreeSet<u32> = links.iter().map(|link| link.function).collect();
    let functions: Vec<u32> = functions.into_iter().collect();
    leave::close_first(links);
    turn.end(&functions, |functions| {
        if let Some(progress) = request.progress {
            progress(Stage::Waiting { functions });
        }
    });
    Ok(attached)
}

/// Makes attempts until one succeeds; each uses the findings of the previous ones.
fn attempts(plan: &Plan, facts: &Facts, request: &Request) -> Result<Attached, AttachError> {
    let mut findings = Findings::default();
    loop {
        let setup = Setup {
            request,
            facts,
            plan,
            selection: &select(plan, facts, request.starts.is_some(), &findings),
        };
        if let Some(progress) = request.progress {
            progress(Stage::Loading);
        }
        match attempt(&setup, findings.of_ways())? {
            Attempt::Attached(attached) => return Ok(*attached),
            Attempt::Found(finding) => findings.add(finding),
        }
    }
}

/// The result of an attempt. As soon as another attempt is known to be needed, no more programs are loaded.
enum Attempt {
    Attached(Box<Attached>),
    Found(Finding),
}

/// Loads and attaches the selection. `of_ways`: refusals of better ways to measure the block layer.
fn attempt(setup: &Setup<'_>, of_ways: &[Refusal]) -> Result<Attempt, AttachError> {
    let loaded = load(setup).map_err(AttachError::Load)?;
    if !setup.selection.starts_in_table && !gives_task_storage(&loaded.skeleton) {
        return Ok(Attempt::Found(Finding::NoTaskStorage));
    }
    let start = Instant::now();
    let mut attaching = Attaching::begin(*setup, of_ways, loaded)?;
    if let Some(finding) = attaching.all(of_ways)? {
        return Ok(Attempt::Found(finding));
    }
    let attached = attaching.end(start);
    if let Some(refusals) = attached.block_refusals(setup.plan)
        && setup.selection.has_other_way
    {
        return Ok(Attempt::Found(Finding::NoBlockWay(refusals)));
    }
    Ok(match left_out(setup, &attached, of_ways, |_| true) {
        Some(hooks) => Attempt::Found(Finding::LeftOut(hooks)),
        None => Attempt::Attached(Box::new(attached)),
    })
}

/// The hooks to load in another attempt, for functions that could not be hooked, of the layers that were `tried`.
/// `None`: all hooks that fit were tried.
fn left_out(
    setup: &Setup<'_>,
    attached: &Attached,
    refused: &[Refusal],
    tried: impl Fn(Layer) -> bool,
) -> Option<Vec<Hook>> {
    let Setup { plan, selection, .. } = *setup;
    let hooks = &selection.hooks;
    let mut more = Vec::new();
    if let Some(stack) = &attached.stack {
        let is_refused = |hook: &Hook| refused.iter().any(|refusal| refusal.hook == *hook);
        more.extend(stack.untried(plan, hooks).into_iter().filter(|hook| !is_refused(hook)));
    }
    let ops = plan.ops.iter().zip(&attached.ops);
    for (op, how) in ops.filter(|(op, _)| tried(op.layer)) {
        let untried = |hook: &&Hook| !hooks.contains(hook) && !how.refused.iter().any(|refusal| refusal.hook == **hook);
        let by_tracepoint = how.points.iter().any(|(_, hook)| !hook.is_on_functions());
        let is_left_out =
            |planned: &&PlannedPoint| !how.points.iter().any(|(function, _)| *function == planned.function);
        for planned in op.points.iter().filter(is_left_out).filter(|_| !by_tracepoint) {
            let fitting = plan
                .hooks_for(op.layer)
                .iter()
                .filter(|hook| planned.fits(**hook) || !hook.is_on_functions());
            more.extend(fitting.filter(untried));
        }
    }
    (!more.is_empty()).then_some(more)
}

impl<'a> Attaching<'a> {
    /// The state before anything is attached.
    fn begin(setup: Setup<'a>, of_ways: &[Refusal], loaded: Loaded) -> Result<Self, AttachError> {
        let Setup { request, plan, .. } = setup;
        let Loaded {
            skeleton,
            programs,
            binned,
        } = loaded;
        fill_maps(&skeleton, plan, request)?;
        let maps = &skeleton.maps;
        let stats = if maps.stats.autocreate() {
            &maps.stats
        } else {
            &maps.bss_stats
        };
        let counters =
            Counters::map(stats, plan.counters()).map_err(|error| AttachError::Map("stats", error.into()))?;
        let map_groups = |wish: GroupWish| AttachedGroups::map(&skeleton, wish.by, request.whole_stack);
        let groups = request.groups.map(map_groups).transpose()?;
        let neighbours = maps.neighbours.autocreate();
        let neighbours = neighbours.then(|| Counters::map(&maps.neighbours, NEIGHBOURS as usize));
        let neighbours = neighbours
            .transpose()
            .map_err(|error| AttachError::Map("neighbours", error.into()))?;
        let records = request.records.as_ref();
        let records = records.map(|wish| RecordRings::open(&skeleton, wish));
        let records = records.transpose().map_err(|why| AttachError::Map("rings", why))?;
        Ok(Self {
            setup,
            rows_alone: RowsAlone::new(&setup),
            attached: Attached {
                entries: Vec::new(),
                returns: Vec::new(),
                _process_events: Vec::new(),
                held: None,
                ops: plan
                    .ops
                    .iter()
                    .map(|op| unattached(plan, op, request, of_ways))
                    .collect(),
                probes: Vec::new(),
                completions: BTreeMap::new(),
                counters,
                binned,
                neighbours,
                stack: None,
                block_way: None,
                records,
                groups,
                skeleton,
                in_flight: None,
                programs,
                attaching: Duration::ZERO,
                hold: None,
                _events: None,
            },
            events: None,
            done: 0,
            of: plan.ops.iter().map(|op| op.points.len()).sum::<usize>() + plan.row_functions.len(),
            loaded: RefCell::default(),
        })
    }

    /// Attaches everything, or returns why another attempt is needed.
    fn all(&mut self, of_ways: &[Refusal]) -> Result<Option<Finding>, AttachError> {
        let Setup {
            request,
            plan,
            selection,
            ..
        } = self.setup;
        self.attached.hold = self.hold();
        self.attached.hold_all();
        if !self.completions() {
            return Ok(Some(Finding::NoCompletions));
        }
        self.in_flight()?;
        self.failure();
        if request.whole_stack {
            self.stack(plan)?;
        }
        let ops_of = |layer: Layer| -> Vec<(usize, &PlannedOp)> {
            let ops = plan.ops.iter().enumerate();
            ops.filter(|(_, op)| op.layer == layer).collect()
        };
        let is_of_functions = |layer: Layer| !matches!(layer, Layer::Syscall | Layer::Blk);
        for layer in Layer::ALL.into_iter().filter(|&layer| is_of_functions(layer)) {
            let rows = plan
                .row_functions
                .iter()
                .filter(|row| self.goes_with(row) == Some(layer));
            let rows: Vec<_> = rows.collect();
            self.functions(layer.into(), &ops_of(layer), &rows, &plan.function_hooks);
        }
        if let Some(hooks) = left_out(&self.setup, &self.attached, of_ways, is_of_functions) {
            return Ok(Some(Finding::LeftOut(hooks)));
        }
        if request.whole_stack && !selection.vfs_checks_no_files && self.attached.lacks_a_file_check(plan) {
            return Ok(Some(Finding::NoFileCheck));
        }
        self.syscalls(&ops_of(Layer::Syscall), &plan.syscall_hooks);
        if let (ops, Some(way)) = (ops_of(Layer::Blk), selection.way)
            && !ops.is_empty()
        {
            self.block(&ops, way);
        }
        self.process_events()?;
        Ok(None)
    }

    /// Ends attaching.
    fn end(self, start: Instant) -> Attached {
        let mut attached = self.attached;
        attached._events = self.events;
        attached.held = None;
        attached.programs.forget_copies();
        attached.attaching = start.elapsed().saturating_sub(attached.loading().time);
        attached
    }
}

/// An op that is not attached yet, with its refusals from previous attempts.
fn unattached(plan: &Plan, op: &PlannedOp, request: &Request, of_ways: &[Refusal]) -> AttachedOp {
    let planned = plan.hooks_for(op.layer);
    let of_op = of_ways.iter().filter(|refusal| match refusal.of {
        Refused::BlockEvents => op.layer == Layer::Blk,
        _ => op.layer != Layer::Blk && planned.contains(&refusal.hook),
    });
    AttachedOp {
        points: Vec::new(),
        refused: of_op.cloned().collect(),
        is_partial: is_partial(op, request),
    }
}

impl Attached {
    /// Whether a function of vfs that checks the files of system calls was planned, but is not hooked.
    fn lacks_a_file_check(&self, plan: &Plan) -> bool {
        let checks_files = |function: &str| CALLS_BY_FUNCTION.iter().any(|(checking, _)| *checking == function);
        let mut ops = plan.ops.iter().zip(&self.ops).filter(|(op, _)| op.layer == Layer::Vfs);
        ops.any(|(op, how)| {
            let mut planned = op.points.iter().filter(|planned| checks_files(&planned.function));
            planned.any(|planned| !how.points.iter().any(|(function, _)| *function == planned.function))
        })
    }
}
