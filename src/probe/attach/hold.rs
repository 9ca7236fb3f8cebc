//! Keeps functions hooked while links to them are attached and detached.
//!
//! On kernels where fprobe uses the function graph tracer, all links to a function share the patched call at its entry.
//! The kernel patches it when the first link is attached, and restores it when the last one is detached
//! (kernel/trace/fprobe.c); each time it walks all functions that could be patched, and waits for all CPUs. So one link
//! to all functions is attached first and detached last.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;

use libbpf_sys as sys;

use super::{Attached, Attaching, Function, Targets, attach_multi, ends_of_requests};
use crate::catalog::Layer;
use crate::kernel::Fprobe;
use crate::probe::Hook;
use crate::probe::config::Setup;

/// The size of `endbr64`, in bytes. Kernels that are compiled for indirect branch tracking have one at the beginning of a function,
/// in front of what they patch.
const ENDBR: u64 = 4;

/// Creates a link to all functions of a plan.
pub struct Hold {
    program: OwnedFd,
    addresses: Vec<NonZeroU64>,
    /// What would be patched if all functions began with `endbr64`. Given these addresses, the kernel need not find each function's
    /// symbol, for which it searches all symbols of a module (`ftrace_location()`, kernel/trace/ftrace.c).
    patched: Vec<NonZeroU64>,
}

impl Hold {
    /// Creates the link: all functions stay hooked until it is closed. It allocates no memory, so that a process that
    /// was just forked can call it.
    ///
    /// # Errors
    /// The error of the kernel.
    pub fn link(&self) -> io::Result<OwnedFd> {
        let to = |addresses| {
            let targets = Targets::Addresses(addresses);
            attach_multi(&self.program, targets, &[], sys::BPF_TRACE_KPROBE_SESSION, 0)
        };
        // The kernel refuses it if it patches one of the functions elsewhere.
        to(&self.patched).or_else(|_| to(&self.addresses))
    }
}

impl Attached {
    /// Keeps all functions hooked until [`Self::held`] is closed. If the kernel refuses the link, detaching takes
    /// longer.
    pub(super) fn hold_all(&mut self) {
        self.held = self.hold.as_ref().and_then(|hold| hold.link().ok());
    }
}

impl Drop for Attached {
    /// All other links are closed before the link that is created here.
    fn drop(&mut self) {
        if self.held.is_none() {
            self.hold_all();
        }
    }
}

impl Attaching<'_> {
    /// `None` if no link of the plan would profit.
    pub(super) fn hold(&self) -> Option<Hold> {
        let Setup { facts, plan, .. } = self.setup;
        let program = &self.attached.skeleton.progs.hold;
        if facts.fprobe != Fprobe::Graph || !self.attached.programs.has(program) {
            return None;
        }
        let of_op = |layer: Layer| plan.hooks_for(layer).iter().find(|hook| self.setup.loads(**hook));
        let ops = plan
            .ops
            .iter()
            .enumerate()
            .filter(|(_, op)| of_op(op.layer) == Some(&Hook::Session));
        let points =
            ops.flat_map(|(index, op)| op.points.iter().map(move |planned| Function::OfOp(index, op, planned)));
        let rows = plan.row_functions.iter().map(Function::OfRow);
        let by_link =
            |function: &Function<'_>| function.fits(Hook::Session) && !self.target_of(function).is_entered_alone;
        let functions = points.chain(rows).filter(by_link);
        let by_session = self.setup.selection.completions.contains(&Hook::Session);
        let ends = ends_of_requests(plan).map(|(function, _)| function);
        let names = functions.map(|function| function.name());
        let names = names.chain(ends.filter(|_| by_session));
        let addresses = names.filter_map(|name| facts.functions.get(name)?.address);
        let mut addresses: Vec<NonZeroU64> = addresses.collect();
        addresses.sort_unstable();
        addresses.dedup();
        let Attached { programs, skeleton, .. } = &self.attached;
        let program = programs.load_copy(program, None, None, facts, skeleton).ok()?;
        let patched = addresses.iter().map(|address| address.saturating_add(ENDBR)).collect();
        (!addresses.is_empty()).then_some(Hold {
            program,
            addresses,
            patched,
        })
    }
}
