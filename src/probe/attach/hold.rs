//! Keeps functions hooked while links to them come and go.
//!
//! Where links go by the function graph tracer, all links share what calls it at a function's entry. The kernel writes that call when the
//! first link comes to a function, and takes it out when the last one leaves (kernel/trace/fprobe.c), and each time it looks at all
//! the functions that could have one, and waits for all CPUs. So one link to all functions comes first and leaves last.

use std::io;
use std::num::NonZeroU64;
use std::os::fd::OwnedFd;

use libbpf_sys as sys;

use super::{Attached, Attaching, Function, Targets, attach_multi};
use crate::catalog::Layer;
use crate::kernel::Fprobe;
use crate::probe::Hook;
use crate::probe::config::Setup;

/// A link to all functions of a plan, to be made.
pub struct Hold {
    program: OwnedFd,
    addresses: Vec<NonZeroU64>,
}

impl Hold {
    /// Makes it: each of the functions stays hooked until it is closed. Takes no memory, so that a process that was just forked can call
    /// it.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn link(&self) -> io::Result<OwnedFd> {
        let targets = Targets::Addresses(&self.addresses);
        attach_multi(&self.program, targets, sys::BPF_TRACE_KPROBE_SESSION, 0)
    }
}

impl Attached {
    /// Until [`Self::held`] is closed no function is let go. Without it, where the kernel refuses, all takes longer.
    pub(super) fn hold_all(&mut self) {
        self.held = self.hold.as_ref().and_then(|hold| hold.link().ok());
    }
}

impl Drop for Attached {
    /// All else is closed before the link that is made here.
    fn drop(&mut self) {
        if self.held.is_none() {
            self.hold_all();
        }
    }
}

impl Attaching<'_> {
    /// `None`: no link would go by it.
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
        let functions = points.chain(rows).filter(|function| function.fits(Hook::Session));
        let addresses = functions.filter_map(|function| facts.functions.get(function.name())?.address);
        let mut addresses: Vec<NonZeroU64> = addresses.collect();
        addresses.sort_unstable();
        addresses.dedup();
        let Attached { programs, skeleton, .. } = &self.attached;
        let program = programs.load_copy(program, None, None, facts, skeleton).ok()?;
        (!addresses.is_empty()).then_some(Hold { program, addresses })
    }
}
