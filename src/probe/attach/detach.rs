//! Taking one layer out again while the others go on.

use std::collections::BTreeSet;
use std::os::fd::AsRawFd;

use super::{Attached, Detachable};
use crate::catalog::Layer;
use crate::turn::Link;

impl Attached {
    /// Layers that have something attached.
    #[must_use]
    pub fn layers(&self) -> BTreeSet<Layer> {
        let all = self.entries.iter().chain(&self.returns);
        all.filter_map(|(layer, _)| *layer).collect()
    }

    /// What hangs on functions by trampolines. Entries come last.
    #[must_use]
    pub fn on_trampolines(&self) -> Vec<Link> {
        let all = self.returns.iter().chain(&self.entries);
        let links = all.filter_map(|(_, detachable)| match detachable {
            Detachable::Trampoline { link, function } => Some(Link {
                descriptor: link.as_raw_fd(),
                function: *function,
            }),
            Detachable::Fd(_) | Detachable::Perf(_) => None,
        });
        links.collect()
    }

    /// How often the second program on `block_getrq` did the work of the first one, which the kernel had skipped.
    #[must_use]
    pub fn recovered(&self) -> u64 {
        let bss = self.skeleton.maps.bss_data.as_deref();
        bss.map_or(0, |bss| {
            // SAFETY: a valid place in a shared mapping, which programs write to.
            unsafe { (&raw const bss.control.made_good).read_volatile() }
        })
    }

    /// No more calls of a layer are entered. Those under way still return. What one hook sees at both ends has no returns
    /// by themselves: its calls stay under way.
    pub fn detach_entries(&mut self, layer: Layer) {
        let recovered = self.recovered();
        let probes = self.probes.iter_mut();
        probes
            .filter(|probe| probe.goes_with == Some(layer))
            .for_each(|probe| probe.keep_skips(recovered));
        self.entries.retain(|(of, _)| *of != Some(layer));
    }

    /// Nothing of a layer is seen any more.
    pub fn detach_returns(&mut self, layer: Layer) {
        self.returns.retain(|(of, _)| *of != Some(layer));
        let recovered = self.recovered();
        let probes = self.probes.iter_mut();
        probes
            .filter(|probe| probe.goes_with == Some(layer))
            .for_each(|probe| probe.keep_counts(recovered));
    }
}
