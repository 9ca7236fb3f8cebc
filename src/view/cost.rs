//! The cost of measuring, as all forms report it.

use std::fmt;

use crate::model::cost::{CpuShare, SECOND};
use crate::number::share;

impl fmt::Display for CpuShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&share(self.ns_per_s, SECOND))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_in_percent_of_one_cpu() {
        let shares = [1_000_000, 10_000_000, 4 * SECOND].map(|ns_per_s| CpuShare { ns_per_s }.to_string());
        assert_eq!(shares, ["0.10 %", "1.00 %", "400.00 %"]);
    }
}
