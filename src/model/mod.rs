//! What is known of a run, as owned data without any I/O: names of things, counters of a moment, what was attached, a report.
//!
//! All of it is serialised and read back as it is. Whatever makes a report needs nothing else.

pub mod abi;
pub mod cost;
pub mod events;
pub mod histogram;
pub mod ids;
pub mod object;
pub mod report;
pub mod run_info;
mod since_epoch;
pub mod snapshot;
