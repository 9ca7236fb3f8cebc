//! Builds [`Facts`]: for [`super::gather`] from the running kernel, for tests from excerpts of other kernels.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::btf::{BtfFunction, Scan};
use super::preemption::Preemption;
use super::{Facts, Function, SYSCALL_PREFIXES, other_name};
use crate::model::abi::KFUNC_RDONLY_CAST;

/// Facts so far. What is not given, the kernel does not offer.
pub struct FactsBuilder<'a> {
    /// The requested functions, and the module that each may be in.
    asked: &'a BTreeMap<String, Option<&'static str>>,
    without: &'a [String],
    facts: Facts,
    /// Static functions are listed in BTF.
    has_static: bool,
    /// Loaded modules without BTF of their own.
    unlisted: BTreeSet<&'static str>,
}

/// What is neither a type nor a symbol of the kernel.
#[derive(Debug, Clone, Default)]
pub struct MachineFacts {
    pub preemption: Preemption,
    /// The perf unit `kprobe`.
    pub kprobe: bool,
    /// Where tracefs is mounted, if it can be used.
    pub tracefs: Option<PathBuf>,
    /// The CPU cannot compare and exchange 16 bytes at once.
    pub lacks_wide_exchange: bool,
}

impl<'a> FactsBuilder<'a> {
    /// About these functions, by name and possible module. Those in `without` are treated as missing.
    #[must_use]
    pub fn new(asked: &'a BTreeMap<String, Option<&'static str>>, without: &'a [String]) -> Self {
        let functions = asked.keys().map(|name| (name.clone(), Function::default()));
        Self {
            asked,
            without,
            facts: Facts {
                functions: functions.collect(),
                ..Facts::default()
            },
            has_static: false,
            unlisted: BTreeSet::new(),
        }
    }

    /// The functions to look for.
    #[must_use]
    pub fn wanted(&self) -> BTreeSet<&'a str> {
        let names = self.asked.keys().filter(|name| !self.without.contains(name));
        names.map(String::as_str).collect()
    }

    /// The functions that have not been found in BTF so far, by the module that they may be in.
    #[must_use]
    pub fn missing(&self) -> BTreeMap<&'static str, BTreeSet<&'a str>> {
        let mut missing: BTreeMap<_, BTreeSet<&str>> = BTreeMap::new();
        for name in self.wanted() {
            if let Some(Some(module)) = self.asked.get(name)
                && self.facts.functions.get(name).is_some_and(|known| known.btf.is_none())
            {
                missing.entry(*module).or_default().insert(name);
            }
        }
        missing
    }

    /// What the kernel's own types say.
    #[must_use]
    pub fn types(mut self, mut scan: Scan) -> Self {
        scan.block.tracepoints.retain(|name, _| !self.without.contains(name));
        self.has_static = scan.has_static;
        self.facts = Facts {
            fentry: scan.fentry,
            fsession: scan.fsession,
            fentry_multi: scan.fentry_multi,
            fprobe: scan.fprobe,
            per_cpu_values: scan.per_cpu_values,
            session: scan.session,
            task_storage: scan.task_storage,
            storage_refused: scan.lockless_memory,
            answering_atomics: scan.answering_atomics,
            cast_types: if scan.kfuncs.contains_key(&KFUNC_RDONLY_CAST) {
                scan.cast_types
            } else {
                BTreeMap::new()
            },
            kfuncs: scan.kfuncs,
            events: scan.events,
            block: scan.block,
            ..self.facts
        };
        self.listed(scan.functions)
    }

    /// The functions that BTF lists.
    #[must_use]
    pub fn listed(mut self, functions: impl IntoIterator<Item = (String, BtfFunction)>) -> Self {
        for (name, function) in functions {
            self.facts.functions.entry(name).or_default().btf = Some(function);
        }
        self
    }

    /// A loaded module that has no BTF.
    #[must_use]
    pub fn unlisted(mut self, module: &'static str) -> Self {
        self.unlisted.insert(module);
        self
    }

    /// Of functions that BTF does not list: whether they exist, by the kernel's symbols, which are asked only where BTF leaves it open.
    ///
    /// BTF lists all that ftrace knows, except those whose arguments are not where their types say, and ambiguous names, which are
    /// better left alone. System calls without arguments have BTF under another name, if at all; if it is missing, attaching shows
    /// whether they can be hooked.
    ///
    /// # Errors
    /// When the symbols cannot be read.
    pub fn symbols<E>(mut self, is_text: impl Fn(&str, Option<&str>) -> Result<bool, E>) -> Result<Self, E> {
        let is_syscall = |name: &str| SYSCALL_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        for (name, function) in &mut self.facts.functions {
            let module = self.asked.get(name).copied().flatten();
            if self.without.contains(name) {
                function.symbol = Some(false);
            } else if function.btf.is_none() {
                let is_listed = self.has_static && module.is_none_or(|module| !self.unlisted.contains(module));
                let is_to_be_tried = other_name(name).is_some() || !is_listed && is_syscall(name);
                if !is_to_be_tried {
                    function.symbol = Some(!is_listed && is_text(name, module)?);
                }
            }
        }
        Ok(self)
    }

    /// What the rest of the machine says.
    #[must_use]
    pub fn machine(mut self, machine: MachineFacts) -> Self {
        self.facts.preemption = machine.preemption;
        self.facts.kprobe = machine.kprobe;
        self.facts.tracefs = machine.tracefs;
        self.facts.storage_refused &= machine.lacks_wide_exchange;
        self
    }

    /// BTF of the kernel's types that the programs read.
    #[must_use]
    pub fn excerpt(mut self, types: &[u8]) -> Self {
        self.facts.types = types.into();
        self
    }

    #[must_use]
    pub fn build(self) -> Facts {
        self.facts
    }
}
