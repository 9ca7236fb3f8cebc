//! The data of a run, owned and without I/O: names, counters, what was attached, reports.
//!
//! All of it can be serialised and read back. Nothing else is needed to compute a report.

pub mod abi;
pub mod clock;
pub mod cost;
pub mod direct;
pub mod events;
pub mod histogram;
pub mod ids;
pub mod object;
pub mod over_time;
pub mod owner;
pub mod packed;
pub mod record;
pub mod recording;
pub mod report;
pub mod run_info;
pub mod sample;
pub mod selection;
mod since_epoch;
pub mod snapshot;
mod sparse;
pub mod steps;
pub mod trigger;
