//! Keeps the counters of each second for a recording that is written if `w` is pressed.

use std::path::PathBuf;
use std::time::Duration;

use crate::cause::Cause;
use crate::model::recording::{Meta, Names};
use crate::model::run_info::RunInfo;
use crate::model::snapshot::Snapshot;
use crate::number::thousands;
use crate::printable::printable;
use crate::recording::{EXTENSION, Ring, RingLimits};
use crate::run::record::{host_in_names, meta, now_in_name};

/// The most that is kept: the shorter of both.
const LIMITS: RingLimits = RingLimits {
    span: Duration::from_secs(24 * 60 * 60),
    bytes: 8 << 20,
};

/// The last seconds of a run, encoded as a recording without single calls.
pub struct KeptSeconds(Ring);

impl KeptSeconds {
    /// Begins with the counters at the start of the run.
    ///
    /// # Errors
    /// If they cannot be encoded, in one line.
    pub fn begin(info: &RunInfo, start: &Snapshot) -> Result<Self, Cause> {
        let meta = Meta {
            has_records: false,
            ..meta(info, start)
        };
        Ring::new(meta, Names::Full, LIMITS, start).map(Self)
    }

    /// Adds the counters at the end of a second.
    ///
    /// # Errors
    /// As above.
    pub fn second(&mut self, after: &Snapshot) -> Result<(), Cause> {
        self.0.second(after)
    }

    /// Writes all that is kept to a new directory in the current one. Returns what was written.
    ///
    /// # Errors
    /// If it cannot be written, in one line.
    pub fn write(&mut self) -> Result<String, Cause> {
        let kept = self.0.copy("the key w of the live view")?;
        let path = PathBuf::from(format!("io-{}-{}.{EXTENSION}", host_in_names(), now_in_name()));
        kept.write(&path, |_| ())?;
        let seconds = Duration::from_nanos(kept.end.to_ns.saturating_sub(kept.end.from_ns)).as_secs_f64();
        Ok(format!(
            "{} seconds were written to {}; their calls are recorded only with --live -o FILE",
            thousands(seconds.round() as u64),
            printable(&path.display().to_string())
        ))
    }
}
