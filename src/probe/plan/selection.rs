//! What an attempt loads: the best of a plan that the kernel has not refused so far.

use super::{BlockWay, Plan, starts_need_table};
use crate::kernel::Facts;
use crate::probe::Hook;
use crate::probe::refusal::Refusal;

/// What an attempt has shown that the kernel does not do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// It gives out no task storage.
    NoTaskStorage,
    /// It takes no program for completions, of those that were to be.
    NoCompletions,
    /// It takes none of the hooks on some functions, which might take one of these.
    LeftOut(Vec<Hook>),
    /// A function of vfs that was to judge the files of system calls takes no hook.
    NoJudge,
    /// It refuses the way in which the block layer was to be measured.
    NoBlockWay(Vec<Refusal>),
}

/// All that attempts have shown so far.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    no_task_storage: bool,
    /// Sets of hooks for completions that were refused, the best first.
    completions: usize,
    left_out: Vec<Hook>,
    no_judge: bool,
    /// Ways to measure the block layer that were refused, the best first.
    ways: usize,
    of_ways: Vec<Refusal>,
}

impl Findings {
    pub fn add(&mut self, finding: Finding) {
        match finding {
            Finding::NoTaskStorage => self.no_task_storage = true,
            Finding::NoCompletions => self.completions += 1,
            Finding::LeftOut(hooks) => self.left_out.extend(hooks),
            Finding::NoJudge => self.no_judge = true,
            Finding::NoBlockWay(refusals) => {
                self.ways += 1;
                for refusal in refusals {
                    if !self.of_ways.contains(&refusal) {
                        self.of_ways.push(refusal);
                    }
                }
            }
        }
    }

    /// Why the block layer is not measured in a better way.
    #[must_use]
    pub fn of_ways(&self) -> &[Refusal] {
        &self.of_ways
    }
}

/// What an attempt loads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection<'a> {
    /// Hooks whose programs are loaded.
    pub hooks: Vec<Hook>,
    /// How completions are to be seen; empty: asynchronous requests are done without.
    pub completions: &'a [Hook],
    /// How the block layer is measured, if it is.
    pub way: Option<&'a BlockWay>,
    /// There is another way, if it is refused.
    pub has_other_way: bool,
    /// Starts are in a table by thread, not in task storage.
    pub starts_in_table: bool,
    /// vfs is not seen here, so that it can judge no call's file.
    pub vfs_is_blind: bool,
}

/// What the next attempt loads. Programs cost time to load, so at first only those are that should do. `has_table`: starts are in a table
/// in any case.
#[must_use]
pub fn select<'a>(plan: &'a Plan, facts: &Facts, has_table: bool, findings: &Findings) -> Selection<'a> {
    let mut hooks = plan.first_choice();
    hooks.extend(&findings.left_out);
    hooks.sort_unstable();
    hooks.dedup();
    // Requests come in by functions: where none can be hooked, there are no completions to see.
    let sees_requests = !plan.completions.is_empty() && hooks.iter().any(|hook| hook.is_on_functions());
    let completions = plan
        .completion_hooks
        .get(findings.completions)
        .filter(|_| sees_requests);
    let mut ways = plan.block_ways.iter().skip(findings.ways);
    let needs_table = has_table || !facts.task_storage || findings.no_task_storage;
    Selection {
        completions: completions.map_or(&[], Vec::as_slice),
        way: ways.next(),
        has_other_way: ways.next().is_some(),
        starts_in_table: needs_table || starts_need_table(&hooks, facts),
        vfs_is_blind: findings.no_judge,
        hooks,
    }
}
