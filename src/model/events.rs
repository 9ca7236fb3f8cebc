//! What happened at a moment of its own, and is reported while the run goes on.

use serde::{Deserialize, Serialize};

use super::report::slow::{LeftOut, SlowCall};

/// What has happened since the last time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Events {
    /// Slow calls, in the order of their ends.
    pub slow_calls: Vec<SlowCall>,
    /// The local time zone's seconds east of UTC, for those who print times.
    pub utc_offset: i32,
    /// Those that were counted and are not among them.
    pub left_out: LeftOut,
}

impl Events {
    /// There were none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slow_calls.is_empty() && self.left_out.sum() == 0
    }
}
