//! Selects what an attempt loads: the best alternative of a plan that the kernel has not refused so far.

use super::{BlockWay, Plan, starts_need_table};
use crate::kernel::Facts;
use crate::probe::Hook;
use crate::probe::refusal::Refusal;

/// What an attempt to attach found the kernel not to support.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// It does not provide task storage.
    NoTaskStorage,
    /// It refuses the selected programs for completions.
    NoCompletions,
    /// It refuses all loaded hooks on some functions, which may accept one of these.
    LeftOut(Vec<Hook>),
    /// It refuses all hooks on a function of vfs that was to check the files of system calls.
    NoFileCheck,
    /// It refuses the selected way to measure the block layer.
    NoBlockWay(Vec<Refusal>),
}

/// All findings so far.
#[derive(Debug, Clone, Default)]
pub struct Findings {
    no_task_storage: bool,
    /// The number of sets of hooks for completions that were refused, beginning with the best.
    completions: usize,
    left_out: Vec<Hook>,
    no_file_check: bool,
    /// The number of ways to measure the block layer that were refused, beginning with the best.
    ways: usize,
    of_ways: Vec<Refusal>,
}

impl Findings {
    pub fn add(&mut self, finding: Finding) {
        match finding {
            Finding::NoTaskStorage => self.no_task_storage = true,
            Finding::NoCompletions => self.completions += 1,
            Finding::LeftOut(hooks) => self.left_out.extend(hooks),
            Finding::NoFileCheck => self.no_file_check = true,
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

    /// Why better ways to measure the block layer were refused.
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
    /// Hooks for completions; empty: asynchronous requests are not measured.
    pub completions: &'a [Hook],
    /// How the block layer is measured, if it is selected.
    pub way: Option<&'a BlockWay>,
    /// Whether there is an alternative to `way`.
    pub has_other_way: bool,
    /// Whether starts are in a hash table by thread number instead of task storage.
    pub starts_in_table: bool,
    /// Whether the functions of vfs cannot be hooked, so that they cannot check the files of system calls.
    pub vfs_checks_no_files: bool,
}

/// What the next attempt loads. Loading programs takes time, so at first only those are loaded that should suffice.
/// `has_table`: starts are in a hash table in any case.
#[must_use]
pub fn select<'a>(plan: &'a Plan, facts: &Facts, has_table: bool, findings: &Findings) -> Selection<'a> {
    let mut hooks = plan.first_choice();
    hooks.extend(&findings.left_out);
    hooks.sort_unstable();
    hooks.dedup();
    // Asynchronous requests enter through functions: if none can be hooked, completions are of no use.
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
        vfs_checks_no_files: findings.no_file_check,
        hooks,
    }
}
