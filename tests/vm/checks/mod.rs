//! What has to be true in a guest. A file per subject, each with a table; this is the table of tables.

mod asynchronous;
mod block;
mod boot;
mod budget;
mod cleanup;
mod container;
mod costs;
mod counts;
mod delays;
mod dimensions;
mod docs;
mod errors;
mod events;
mod exact;
mod fallback;
mod filesystems;
mod filters;
mod floors;
mod folding;
mod hard;
mod json;
mod matrix;
mod neighbours;
mod peers;
mod privileges;
mod replay;
mod report;
mod ring;
mod sample;
mod scaling;
mod seeks;
mod selection;
mod selections;
mod slow;
mod snapshots;
mod stack;
mod times;
mod traps;
mod trust;

pub use crate::guest::Check;
pub use costs::reads;
pub use selection::{is_long, is_selected, mistakes, places_of};

const TABLES: &[&[Check]] = &[
    boot::CHECKS,
    counts::CHECKS,
    asynchronous::CHECKS,
    filesystems::CHECKS,
    filesystems::WITH_PEERS,
    filters::CHECKS,
    // Before any that gives the controller of I/O to control groups of version 2, which may keep it long after.
    dimensions::CHECKS,
    json::CHECKS,
    snapshots::CHECKS,
    traps::CHECKS,
    trust::CHECKS,
    times::CHECKS,
    block::CHECKS,
    neighbours::CHECKS,
    hard::CHECKS,
    delays::CHECKS,
    peers::CHECKS,
    stack::CHECKS,
    folding::CHECKS,
    slow::CHECKS,
    events::CHECKS,
    ring::CHECKS,
    sample::CHECKS,
    matrix::CHECKS,
    seeks::CHECKS,
    replay::CHECKS,
    slow::WITH_PEERS,
    costs::CHECKS,
    selections::CHECKS,
    floors::CHECKS,
    scaling::CHECKS,
    budget::CHECKS,
    fallback::CHECKS,
    cleanup::CHECKS,
    errors::CHECKS,
    privileges::CHECKS,
    container::CHECKS,
    docs::CHECKS,
    // Nothing can be traced after them.
    errors::LAST,
];

/// Every check, in the order in which they run.
pub fn all() -> impl Iterator<Item = &'static Check> {
    TABLES.iter().copied().flatten()
}

/// Those that need other people's tools.
pub fn that_use_peers() -> impl Iterator<Item = &'static Check> {
    let tables = [
        peers::CHECKS,
        stack::CHECKS,
        slow::WITH_PEERS,
        filesystems::WITH_PEERS,
        matrix::CHECKS,
        seeks::CHECKS,
    ];
    tables.into_iter().flatten()
}
