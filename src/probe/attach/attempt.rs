//! What is tried: programs are loaded one by one, and where the kernel refuses what was to do, others are loaded in its place.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use super::stack::RowsAlone;
use super::{AttachError, Attached, AttachedGroups, AttachedOp, Attaching, Refusal, Refused, Stage};
use crate::catalog::Layer;
use crate::kernel::Facts;
use crate::kernel::interface::NEIGHBOURS;
use crate::leave;
use crate::probe::Hook;
use crate::probe::load::{CALLS_BY_FUNCTION, GroupWish, Loaded, Settings, fill_maps, gives_task_storage, load};
use crate::probe::plan::{BlockWay, Plan, PlannedOp, PlannedPoint, starts_need_table};
use crate::sys::counters::Counters;
use crate::turn;

/// Attaches what `plan` says. A layer of which nothing can be attached is left out and told in its ops; the caller
/// decides whether that is an error. Runs that have ended are gone from the same functions when it returns ([`turn`]). Call it while the
/// process has one thread: it may fork ([`KprobeEvents::new`]).
///
/// # Errors
/// When the kernel takes none of the programs.
pub fn attach(plan: &Plan, facts: &Facts, settings: &mut Settings) -> Result<Attached, AttachError> {
    let turn = turn::Attaching::begin();
    let attached = attempts(plan, facts, settings)?;
    let links = attached.on_trampolines();
    let functions: BTreeSet<u32> = links.iter().map(|link| link.function).collect();
    let functions: Vec<u32> = functions.into_iter().collect();
    leave::close_first(links);
    turn.end(&functions, |functions| {
        if let Some(progress) = settings.progress {
            progress(Stage::Waiting { functions });
        }
    });
    Ok(attached)
}

/// One attempt after the other.
fn attempts(plan: &Plan, facts: &Facts, settings: &mut Settings) -> Result<Attached, AttachError> {
    // Programs cost time to load, so at first only those are that should do.
    let mut hooks = plan.first_choice();
    let mut refused: Vec<Refusal> = Vec::new();
    let mut ways = plan.block_ways.iter().peekable();
    // The last choice is to do without asynchronous requests.
    let mut choices: Vec<Vec<Hook>> = vec![Vec::new()];
    if !plan.completions.is_empty() {
        choices.splice(..0, plan.completion_hooks.iter().cloned());
    }
    let mut choice = 0;
    loop {
        let way = ways.peek().copied();
        // Requests come in by functions: where none can be hooked, there are no completions to see.
        if !hooks.iter().any(|hook| hook.is_on_functions()) {
            choice = choices.len() - 1;
        }
        settings.completions.clone_from(&choices[choice]);
        settings.starts_in_table |= starts_need_table(&hooks, facts);
        if let Some(progress) = settings.progress {
            progress(Stage::Loading);
        }
        let loaded = load(plan, facts, settings, &hooks, way).map_err(AttachError::Load)?;
        if !settings.starts_in_table && !gives_task_storage(&loaded.skeleton) {
            settings.starts_in_table = true;
            continue;
        }
        let attached = match attach_loaded(plan, facts, settings, &hooks, way, &refused, loaded)? {
            Attempt::Attached(attached) => *attached,
            Attempt::WithoutCompletions => {
                choice += 1;
                continue;
            }
            Attempt::OtherHooks(more) => {
                hooks = more;
                continue;
            }
            Attempt::WithoutVfs => {
                settings.vfs_is_blind = true;
                continue;
            }
        };
        if let Some(refusals) = attached.block_refusals(plan)
            && ways.len() > 1
        {
            for refusal in refusals {
                if !refused.contains(&refusal) {
                    refused.push(refusal);
                }
            }
            ways.next();
            continue;
        }
        match second_choice(plan, &attached, &refused, &hooks, |_| true) {
            Some(more) => hooks = more,
            None => return Ok(attached),
        }
    }
}

/// Hooks to load in another attempt: those for functions that were left out, of these layers. `None`: all that fit were tried.
fn second_choice(
    plan: &Plan,
    attached: &Attached,
    refused: &[Refusal],
    hooks: &[Hook],
    tried: impl Fn(Layer) -> bool,
) -> Option<Vec<Hook>> {
    let mut more = hooks.to_vec();
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
    more.sort_unstable();
    more.dedup();
    (more.len() > hooks.len()).then_some(more)
}

/// What an attempt to attach came to. Programs are loaded one by one: where others will be needed, no more is loaded.
enum Attempt {
    Attached(Box<Attached>),
    /// One for completions was refused, of those that were to be.
    WithoutCompletions,
    /// Some functions take none of the hooks, but might take one of these.
    OtherHooks(Vec<Hook>),
    /// A function of vfs that was to judge the files of system calls takes no hook.
    WithoutVfs,
}

/// Attaches, with the programs of `hooks` relocated.
fn attach_loaded(
    plan: &Plan,
    facts: &Facts,
    settings: &Settings,
    hooks: &[Hook],
    way: Option<&BlockWay>,
    refused: &[Refusal],
    loaded: Loaded,
) -> Result<Attempt, AttachError> {
    let start = Instant::now();
    let Loaded {
        skeleton,
        programs,
        binned,
    } = loaded;
    fill_maps(&skeleton, plan, settings)?;
    let maps = &skeleton.maps;
    let stats = if maps.stats.autocreate() {
        &maps.stats
    } else {
        &maps.bss_stats
    };
    let counters = Counters::map(stats, plan.rows()).map_err(|error| AttachError::Map("stats", error.into()))?;
    let map_groups = |wish: GroupWish| AttachedGroups::map(&skeleton, wish.by, settings.whole_stack);
    let groups = settings.groups.map(map_groups).transpose()?;
    let neighbours = skeleton.maps.neighbours.autocreate();
    let neighbours = neighbours.then(|| Counters::map(&skeleton.maps.neighbours, NEIGHBOURS as usize));
    let neighbours = neighbours
        .transpose()
        .map_err(|error| AttachError::Map("neighbours", error.into()))?;
    let of_op = |op: &PlannedOp| {
        let planned = plan.hooks_for(op.layer);
        let refused = refused
            .iter()
            .filter(|refusal| match refusal.of {
                Refused::BlockEvents => op.layer == Layer::Blk,
                _ => op.layer != Layer::Blk && planned.contains(&refusal.hook),
            })
            .cloned()
            .collect();
        AttachedOp {
            points: Vec::new(),
            refused,
        }
    };
    let mut attaching = Attaching {
        facts,
        guards: &settings.guards,
        hooks,
        each_alone: settings.each_alone,
        rows_alone: RowsAlone::new(plan, settings),
        attached: Attached {
            entries: Vec::new(),
            returns: Vec::new(),
            _process_events: Vec::new(),
            held: None,
            ops: plan.ops.iter().map(of_op).collect(),
            probes: Vec::new(),
            completions: BTreeMap::new(),
            counters,
            binned,
            neighbours,
            stack: None,
            block_way: None,
            groups,
            skeleton,
            in_flight: None,
            programs,
            attaching: Duration::ZERO,
            hold: None,
            _events: None,
        },
        events: None,
        progress: settings.progress,
        done: 0,
        of: plan.ops.iter().map(|op| op.points.len()).sum::<usize>() + plan.row_functions.len(),
        loaded: RefCell::default(),
    };
    if !attaching.completions(plan, settings) {
        return Ok(Attempt::WithoutCompletions);
    }
    attaching.in_flight()?;
    attaching.attached.hold = attaching.hold(plan);
    attaching.failure(plan, settings);
    attaching.attached.hold_all();
    if settings.whole_stack {
        attaching.stack(plan)?;
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
            .filter(|row| attaching.goes_with(row, plan) == Some(layer));
        let rows: Vec<_> = rows.collect();
        attaching.functions(layer.into(), &ops_of(layer), &rows, &plan.function_hooks);
    }
    if let Some(more) = second_choice(plan, &attaching.attached, refused, hooks, is_of_functions) {
        return Ok(Attempt::OtherHooks(more));
    }
    if settings.whole_stack && !settings.vfs_is_blind && attaching.attached.lacks_a_judge(plan) {
        return Ok(Attempt::WithoutVfs);
    }
    attaching.syscalls(&ops_of(Layer::Syscall), &plan.syscall_hooks);
    if let (ops, Some(way)) = (ops_of(Layer::Blk), way)
        && !ops.is_empty()
    {
        attaching.block(&ops, way);
    }
    attaching.process_events()?;
    let Attaching {
        mut attached, events, ..
    } = attaching;
    attached._events = events;
    attached.held = None;
    attached.attaching = start.elapsed().saturating_sub(attached.loading().time);
    Ok(Attempt::Attached(Box::new(attached)))
}

impl Attached {
    /// Whether a function of vfs that judges the files of system calls was planned, and is not seen.
    fn lacks_a_judge(&self, plan: &Plan) -> bool {
        let judges = |function: &str| CALLS_BY_FUNCTION.iter().any(|(judge, _)| *judge == function);
        let mut ops = plan.ops.iter().zip(&self.ops).filter(|(op, _)| op.layer == Layer::Vfs);
        ops.any(|(op, how)| {
            let mut planned = op.points.iter().filter(|planned| judges(&planned.function));
            planned.any(|planned| !how.points.iter().any(|(function, _)| *function == planned.function))
        })
    }
}
