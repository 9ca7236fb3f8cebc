//! Where counters come from.

pub mod live;
