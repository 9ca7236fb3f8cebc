//! Detaches one layer while the others stay attached.

use std::collections::BTreeSet;
use std::os::fd::AsRawFd;

use super::{Attached, Detachable};
use crate::catalog::Layer;
use crate::turn::Link;

impl Attached {
    /// Layers with attached programs.
    #[must_use]
    pub fn layers(&self) -> BTreeSet<Layer> {
        let all = self.entries.iter().chain(&self.returns);
        all.filter_map(|(layer, _)| *layer).collect()
    }

    /// The links of trampolines. Those at entries are last.
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

    /// The number of events on `block_getrq` that its second program recovered after the kernel had skipped the first
    /// one.
    #[must_use]
    pub fn recovered(&self) -> u64 {
        let bss = self.skeleton.maps.bss_data.as_deref();
        bss.map_or(0, |bss| {
            // SAFETY: a valid pointer into a shared mapping, which programs write to.
            unsafe { (&raw const bss.control.recovered).read_volatile() }
        })
    }

    /// Detaches the entries of a layer: no more of its calls begin, and active calls still return. With session hooks,
    /// which have a single link for both ends, active calls stay active.
    pub fn detach_entries(&mut self, layer: Layer) {
        let recovered = self.recovered();
        let probes = self.probes.iter_mut();
        probes
            .filter(|probe| probe.goes_with == Some(layer))
            .for_each(|probe| probe.keep_skips(recovered));
        self.entries.retain(|(of, _)| *of != Some(layer));
    }

    /// Detaches the returns of a layer, after which none of its events is traced.
    pub fn detach_returns(&mut self, layer: Layer) {
        self.returns.retain(|(of, _)| *of != Some(layer));
        let recovered = self.recovered();
        let probes = self.probes.iter_mut();
        probes
            .filter(|probe| probe.goes_with == Some(layer))
            .for_each(|probe| probe.keep_counts(recovered));
    }
}
