//! The guest's side: process 1 of a kernel with only this initramfs and the scratch disk.
//!
//! It prepares the machine, runs the checks one after another and sends each verdict at once. It never returns: the end
//! of process 1 is a kernel panic, so every path goes through `end`.

mod init;
mod modules;
mod process;
mod runner;
mod verdict;

pub use init::init;
pub use modules::Loaded;
pub use process::{Output, Running, all_detached, ours, ran_out, run, wait_for};
pub use verdict::{measured, note};

use crate::protocol::{COUNTED, ORDERS, Orders, TOOL, counted_cpus};
use modules::Modules;
use nix::sys::utsname::uname;
use std::path::Path;
use std::time::Duration;

/// Whether this is process 1 of one of these guests, rather than of a container or a PID namespace.
pub fn is_init() -> bool {
    std::process::id() == 1 && Path::new(ORDERS).exists()
}

/// The machine on which a check runs.
pub struct Guest {
    /// Its name in the matrix, such as `6.1-full`.
    pub kernel: String,
    /// The word on its command line that makes it a separate configuration, such as `preempt=full`; empty if none.
    pub variant: String,
    /// `uname -r` and `uname -v`.
    pub release: String,
    pub version: String,
    /// The current preemption model by the scheduler's name: `none`, `voluntary`, `full` or `lazy`.
    pub preemption: String,
    /// Every check runs here, and at full length.
    pub every: bool,
    /// Everything in the table of costs is measured.
    pub table: bool,
    modules: Modules,
}

impl Guest {
    /// An ext4 file system on the NVMe disk.
    pub const EXT4: &str = "/mnt/ext4";
    /// An XFS file system on the same disk.
    pub const XFS: &str = "/mnt/xfs";

    fn new(orders: &Orders, modules: Modules) -> Result<Self, String> {
        let names = uname().map_err(|e| format!("uname: {e}"))?;
        let version = names.version().to_string_lossy().into_owned();
        Ok(Self {
            kernel: orders.kernel.clone(),
            variant: orders.variant.clone(),
            every: orders.every,
            table: orders.table,
            release: names.release().to_string_lossy().into_owned(),
            preemption: preemption(&version),
            version,
            modules,
        })
    }

    /// Whether a task can be preempted inside the kernel.
    pub fn preemptible(&self) -> bool {
        matches!(self.preemption.as_str(), "full" | "lazy" | "rt")
    }

    /// Whether programs can be attached to functions by trampolines. For that, functions must call them directly, which
    /// those of Debian's 6.1 for arm64 cannot (CONFIG_DYNAMIC_FTRACE_WITH_DIRECT_CALLS).
    pub fn has_trampolines(&self) -> bool {
        cfg!(target_arch = "x86_64") || self.kernel != "6.1"
    }

    /// The tested tool, if this run has one: the runner itself can be developed without it.
    pub fn tool(&self) -> Option<&'static Path> {
        Some(Path::new(TOOL)).filter(|tool| tool.exists())
    }

    /// For checks that do not depend on preemption: the tool on a kernel without words on its command line.
    pub fn as_booted(&self) -> bool {
        self.tool().is_some() && self.variant.is_empty()
    }

    /// Whether the kernel comes with this module.
    pub fn has_module(&self, module: &str) -> bool {
        self.modules.has(module)
    }

    /// Loads a module with its dependencies and these parameters; it is unloaded when the result is dropped.
    pub fn load(&self, module: &str, parameters: &str) -> Result<Loaded, String> {
        self.modules.load(module, parameters)
    }
}

/// Before `sched/preempt` existed (5.12), and if the model is fixed, only `uname -v` says.
fn preemption(version: &str) -> String {
    let chosen = std::fs::read_to_string("/sys/kernel/debug/sched/preempt").ok();
    let chosen = chosen
        .as_deref()
        .and_then(|all| all.split_once('('))
        .and_then(|(_, rest)| rest.split_once(')'));
    if version.contains("PREEMPT_RT") {
        "rt".into()
    } else if let Some((model, _)) = chosen {
        model.into()
    } else if version.contains("PREEMPT") {
        "full".into()
    } else {
        "voluntary".into()
    }
}

/// A check: a property that must hold in a guest.
pub struct Check {
    pub name: &'static str,
    pub run: fn(&Guest) -> Result<(), String>,
    /// Whether it applies to this configuration. If not, it is neither passed nor failed.
    pub when: fn(&Guest) -> bool,
    /// After this time, the check has failed and everything that it started is killed.
    pub limit: Duration,
    /// Whether it compares times.
    pub is_timed: bool,
    /// The only variant it is for, if that one counts instructions.
    pub counted: Option<&'static str>,
}

/// A check for each kernel without words on its command line.
pub const fn as_booted(name: &'static str, run: fn(&Guest) -> Result<(), String>) -> Check {
    Check::new(name, run).when(Guest::as_booted)
}

impl Check {
    /// A check for every configuration, with a limit of eight minutes: most need seconds on a machine that is not slow.
    pub const fn new(name: &'static str, run: fn(&Guest) -> Result<(), String>) -> Self {
        Self {
            name,
            run,
            when: |_| true,
            limit: Duration::from_secs(480),
            is_timed: false,
            counted: None,
        }
    }

    /// A check that counts instructions.
    pub const fn counted(name: &'static str, run: fn(&Guest) -> Result<(), String>) -> Self {
        Self::counted_by(COUNTED, name, run)
    }

    /// A check that counts instructions in this variant.
    pub const fn counted_by(variant: &'static str, name: &'static str, run: fn(&Guest) -> Result<(), String>) -> Self {
        Self {
            counted: Some(variant),
            ..Self::new(name, run)
        }
    }

    /// Whether it is for this variant of a kernel.
    pub fn is_for(&self, variant: &str) -> bool {
        match self.counted {
            Some(only) => variant == only,
            None => counted_cpus(variant).is_none(),
        }
    }

    pub const fn when(self, when: fn(&Guest) -> bool) -> Self {
        Self { when, ..self }
    }

    pub const fn limit(self, seconds: u64) -> Self {
        Self {
            limit: Duration::from_secs(seconds),
            ..self
        }
    }

    /// For a check that compares times. The host may stop one of the guest's CPUs at any time while the others
    /// continue, so such a check may be tried again, and the reason is printed. A check that only counts has one
    /// attempt, unless something it waited for did not happen in time.
    pub const fn timed(self) -> Self {
        Self { is_timed: true, ..self }
    }
}
