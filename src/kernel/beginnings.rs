//! Finds a few names among a hundred thousand: nearly all others are ruled out by their first letters.

use std::collections::BTreeSet;

/// How many letters are looked at. A prefix that is shorter rules out what it should find.
pub const LETTERS: usize = 6;

/// The beginnings of the wanted names.
pub struct Beginnings {
    all: BTreeSet<u64>,
    /// A bit for each of several beginnings.
    bits: [u64; 64],
}

impl Beginnings {
    pub fn new<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        let all: BTreeSet<u64> = names.into_iter().map(|name| beginning(name.as_bytes())).collect();
        let mut bits = [0; 64];
        for &beginning in &all {
            let (word, bit) = bit_of(beginning);
            bits[word] |= bit;
        }
        Self { all, bits }
    }

    /// Whether this may be one of the names, or begin with one.
    #[must_use]
    pub fn may_have(&self, name: &[u8]) -> bool {
        let beginning = beginning(name);
        let (word, bit) = bit_of(beginning);
        self.bits[word] & bit != 0 && self.all.contains(&beginning)
    }
}

/// The first letters of a name.
fn beginning(name: &[u8]) -> u64 {
    const UNUSED: u32 = 8 * (size_of::<u64>() - LETTERS) as u32;
    let word = name.first_chunk().copied().unwrap_or_else(|| {
        let mut short = [0; size_of::<u64>()];
        short[..name.len()].copy_from_slice(name);
        short
    });
    u64::from_be_bytes(word) >> UNUSED
}

fn bit_of(beginning: u64) -> (usize, u64) {
    // Multiplying by the fraction of the golden ratio spreads similar names.
    let mixed = beginning.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
    ((mixed >> 6) as usize, 1 << (mixed & 63))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinguished_by_their_first_letters() {
        let beginnings = Beginnings::new(["vfs_read", "bio"]);
        let may = [
            "vfs_read",
            "vfs_re",
            "vfs_readv",
            "vfs_write",
            "bio",
            "bio_add",
            "vfs",
            "",
        ]
        .map(|name| beginnings.may_have(name.as_bytes()));
        assert_eq!(may, [true, true, true, false, true, false, false, false]);
    }
}
