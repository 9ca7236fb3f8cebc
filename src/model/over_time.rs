//! Values that hold from a moment on.

/// The values of one thing over time, each with the moment from which it holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OverTime<T>(Vec<(u64, T)>);

impl<T> Default for OverTime<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> OverTime<T> {
    /// Adds a value, unless `is_same` as the one before it: every segment of a recording repeats definitions.
    pub fn learn(&mut self, at_ns: u64, value: T, is_same: impl Fn(&T, &T) -> bool) {
        let at = self.after(at_ns);
        if at == 0 || !is_same(&self.0[at - 1].1, &value) {
            self.0.insert(at, (at_ns, value));
        }
    }

    /// The value at that moment, or else the first one; `None`: there is none.
    #[must_use]
    pub fn at(&self, at_ns: u64) -> Option<&T> {
        self.0.get(self.after(at_ns).saturating_sub(1)).map(|(_, value)| value)
    }

    /// Removes those that others had replaced by then.
    pub fn forget_before(&mut self, at_ns: u64) {
        self.0.drain(..self.after(at_ns).saturating_sub(1));
    }

    /// All values in the order of time.
    pub fn values(&self) -> impl ExactSizeIterator<Item = &T> {
        self.0.iter().map(|(_, value)| value)
    }

    fn after(&self, at_ns: u64) -> usize {
        self.0.partition_point(|(known, _)| *known <= at_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_holds_until_the_next_one() {
        let mut names = OverTime::default();
        assert_eq!(names.at(5), None);
        for (at, name) in [(200, "new"), (100, "old"), (150, "old")] {
            names.learn(at, name, |a, b| a == b);
        }
        let at = [0, 100, 199, 200, 999].map(|at| names.at(at).copied().unwrap_or_default());
        assert_eq!(at, ["old", "old", "old", "new", "new"]);
        assert_eq!(names.values().len(), 2);
        names.forget_before(199);
        assert_eq!(names.values().len(), 2);
        names.forget_before(200);
        assert_eq!(names.values().copied().collect::<Vec<_>>(), ["new"]);
        names.forget_before(u64::MAX);
        assert_eq!(names.values().len(), 1);
    }
}
