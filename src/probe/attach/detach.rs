//! Taking one layer out again while the others go on.

use std::collections::BTreeSet;

use super::Attached;
use crate::layer::Layer;

impl Attached {
    /// Layers that have something attached.
    #[must_use]
    pub fn layers(&self) -> BTreeSet<Layer> {
        let all = self.entries.iter().chain(&self.returns);
        all.filter_map(|(layer, _)| *layer).collect()
    }

    /// No more calls of a layer are entered. Those under way still return. What one hook sees at both ends has no returns
    /// by themselves: its calls stay under way.
    pub fn detach_entries(&mut self, layer: Layer) {
        let probes = self.probes.iter_mut();
        probes
            .filter(|probe| probe.goes_with == Some(layer))
            .for_each(|probe| probe.keep_skips());
        self.entries.retain(|(of, _)| *of != Some(layer));
    }

    /// Nothing of a layer is seen any more.
    pub fn detach_returns(&mut self, layer: Layer) {
        self.returns.retain(|(of, _)| *of != Some(layer));
        let probes = self.probes.iter_mut();
        probes
            .filter(|probe| probe.goes_with == Some(layer))
            .for_each(|probe| probe.keep_counts());
    }
}
