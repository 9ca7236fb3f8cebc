//! Finds a few names among a hundred thousand: nearly all others are ruled out by their first letters.

use std::collections::BTreeSet;

/// The beginnings of the wanted names.
pub struct Beginnings {
    all: BTreeSet<u32>,
    /// A bit for each of several beginnings.
    bits: [u64; 64],
}

impl Beginnings {
    pub fn new<'n>(names: impl IntoIterator<Item = &'n str>) -> Self {
        let all: BTreeSet<u32> = names.into_iter().map(|name| beginning(name.as_bytes())).collect();
        let mut bits = [0; 64];
        for &beginning in &all {
            let (word, bit) = bit_of(beginning);
            bits[word] |= bit;
        }
        Self { all, bits }
    }

    /// Whether these bytes may begin with one of the names.
    #[must_use]
    pub fn may_have(&self, bytes: &[u8]) -> bool {
        let beginning = beginning(bytes);
        let (word, bit) = bit_of(beginning);
        self.bits[word] & bit != 0 && self.all.contains(&beginning)
    }
}

/// The first four letters of a name, or fewer. A name ends at a zero, a tab, a space or the end of a line.
fn beginning(name: &[u8]) -> u32 {
    let letters = name.iter().take(4).take_while(|&&byte| byte > b' ');
    letters.fold(0, |before, &byte| before << 8 | u32::from(byte))
}

fn bit_of(beginning: u32) -> (usize, u64) {
    // Multiplying by the fraction of the golden ratio spreads similar names.
    let mixed = beginning.wrapping_mul(0x9e37_79b9) >> 20;
    ((mixed >> 6) as usize, 1 << (mixed & 63))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinguished_by_their_first_letters() {
        let beginnings = Beginnings::new(["vfs_read", "bio"]);
        let may = ["vfs_read\0next", "vfs_write", "bio\n", "bio\t[ext4]", "biox", "vfs", ""]
            .map(|name| beginnings.may_have(name.as_bytes()));
        assert_eq!(may, [true, true, true, true, false, false, false]);
    }
}
