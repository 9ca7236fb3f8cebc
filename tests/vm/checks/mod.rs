//! What has to be true in a guest. A file per subject, each with a table; this is the table of tables.

mod boot;

use crate::guest::Check;

const TABLES: &[&[Check]] = &[boot::CHECKS];

/// Every check, in the order in which they run.
pub fn all() -> impl Iterator<Item = &'static Check> {
    TABLES.iter().copied().flatten()
}
