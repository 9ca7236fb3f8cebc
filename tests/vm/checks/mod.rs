//! What has to be true in a guest. A file per subject, each with a table; this is the table of tables.

mod asynchronous;
mod block;
mod boot;
mod cleanup;
mod counts;
mod errors;
mod exact;
mod fallback;
mod filters;
mod json;
mod report;
mod times;
mod traps;
mod trust;

use crate::guest::Check;

const TABLES: &[&[Check]] = &[
    boot::CHECKS,
    counts::CHECKS,
    asynchronous::CHECKS,
    filters::CHECKS,
    json::CHECKS,
    traps::CHECKS,
    trust::CHECKS,
    times::CHECKS,
    block::CHECKS,
    fallback::CHECKS,
    cleanup::CHECKS,
    errors::CHECKS,
    // Nothing can be traced after them.
    errors::LAST,
];

/// Every check, in the order in which they run.
pub fn all() -> impl Iterator<Item = &'static Check> {
    TABLES.iter().copied().flatten()
}
