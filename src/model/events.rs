//! Events that are reported as they happen.

use serde::{Deserialize, Serialize};

use super::record::Records;
use super::report::slow::{LeftOut, SlowCall};

/// The events since the last call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Events {
    /// Slow calls, by the time at which they ended.
    pub slow_calls: Vec<SlowCall>,
    /// The local time zone's offset, in seconds east of UTC, for printing times.
    pub utc_offset: i32,
    /// Slow calls that are counted but not in the list.
    pub left_out: LeftOut,
    /// Empty unless the run records.
    pub records: Box<Records>,
}

impl Events {
    /// Whether there were none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slow_calls.is_empty() && self.left_out.sum() == 0 && self.records.is_empty()
    }
}
