//! Maps with small keys that are looked up for each record.
//!
//! Hashing takes a multiplication for each number of a key, where that of the standard library takes some 20 ns. Each map
//! has a seed of its own, so that no recording can be made whose keys collide.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

/// A map whose keys consist of few numbers.
pub type QuickMap<K, V> = HashMap<K, V, Quick>;

/// Makes the hashes of one map.
#[derive(Debug, Clone)]
pub struct Quick {
    seed: u64,
}

impl Default for Quick {
    fn default() -> Self {
        Self {
            seed: RandomState::new().hash_one(0),
        }
    }
}

impl BuildHasher for Quick {
    type Hasher = Folded;

    fn build_hasher(&self) -> Folded {
        Folded(self.seed)
    }
}

/// The hash of the numbers so far.
#[derive(Debug)]
pub struct Folded(u64);

/// 2^64 divided by the golden ratio.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

impl Folded {
    /// Both halves of the product, since a map uses the highest and the lowest bits.
    fn add(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number) * u128::from(FACTOR);
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}

impl Hasher for Folded {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(size_of::<u64>()) {
            let mut number = [0; size_of::<u64>()];
            number[..part.len()].copy_from_slice(part);
            self.add(u64::from_le_bytes(number));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.add(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        self.add(number);
    }

    fn write_usize(&mut self, number: usize) {
        self.add(number as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_that_are_close_to_each_other_are_spread() {
        let quick = Quick::default();
        let numbers = (0..1 << 16_u32).map(|n| (n & 0xff, n >> 8));
        let hashes: Vec<u64> = numbers.map(|key| quick.hash_one(key)).collect();
        // Of 65,536 random numbers, 63 % of all values of 16 bits are there.
        for bits in [0, 48] {
            let some: HashSet<u64> = hashes.iter().map(|hash| hash >> bits & 0xffff).collect();
            assert!((35_000..50_000).contains(&some.len()), "{}", some.len());
        }
    }

    #[test]
    fn each_map_has_other_hashes_and_a_map_always_the_same() {
        let [one, other] = [Quick::default(), Quick::default()];
        assert_ne!(one.hash_one("text of a name"), other.hash_one("text of a name"));
        assert_eq!(one.hash_one("text of a name"), one.hash_one("text of a name"));
        assert_ne!(one.hash_one("text of a name"), one.hash_one("text of a game"));
        let map: QuickMap<(u32, u64), u8> = [((1, 2), 3), ((2, 1), 4)].into_iter().collect();
        assert_eq!(
            (map.get(&(1, 2)), map.get(&(2, 1)), map.get(&(2, 2))),
            (Some(&3), Some(&4), None)
        );
    }
}
