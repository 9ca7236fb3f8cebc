//! Maps with small keys that are looked up for each record: the hash of the standard library takes some 20 ns.

use std::collections::HashMap;

/// Makes the hashes of one map, with a seed of its own, so that no recording can be made whose keys collide.
pub type Quick = foldhash::fast::RandomState;

/// A map whose keys consist of few numbers.
pub type QuickMap<K, V> = HashMap<K, V, Quick>;
