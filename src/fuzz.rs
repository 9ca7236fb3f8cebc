//! Random input for tests of parsers: none may panic, hang or read out of bounds.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

/// The number of cases, which takes a moment; `PROPTEST_CASES` does not change it.
pub const CASES: u32 = 512;

pub fn config() -> ProptestConfig {
    ProptestConfig {
        cases: CASES,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Random bytes, or valid input with some of it changed.
pub fn bytes_like(valid: impl Into<Vec<u8>>) -> BoxedStrategy<Vec<u8>> {
    let valid = valid.into();
    let changed = vec(change(), 0..8).prop_map(move |changes| {
        let mut bytes = valid.clone();
        changes.iter().for_each(|change| change.make(&mut bytes));
        bytes
    });
    prop_oneof![1 => vec(any::<u8>(), 0..200), 7 => changed].boxed()
}

/// The same as text. Invalid UTF-8 is replaced, as wherever the tool reads a text file.
pub fn text_like(valid: &str) -> BoxedStrategy<String> {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    bytes_like(valid).prop_map(text).boxed()
}

#[derive(Debug, Clone)]
enum Change {
    Bit(Index, u8),
    /// A number of this many bytes, from 0 to the maximum.
    Number(Index, u64, usize),
    Cut(Index),
    Remove(Index, Index),
    /// Copies a piece to another offset.
    Copy(Index, Index, Index),
    Insert(Index, Vec<u8>),
}

fn change() -> impl Strategy<Value = Change> {
    let offset = any::<Index>;
    let number = prop_oneof![0_u64..300, Just(u64::MAX), Just(1 << 31), Just(1 << 63), any::<u64>()];
    prop_oneof![
        4 => (offset(), 0_u8..8).prop_map(|(at, bit)| Change::Bit(at, bit)),
        4 => (offset(), number, prop::sample::select(vec![1, 2, 4, 8])).prop_map(|(at, n, size)| Change::Number(at, n, size)),
        1 => offset().prop_map(Change::Cut),
        1 => (offset(), offset()).prop_map(|(from, to)| Change::Remove(from, to)),
        1 => (offset(), offset(), offset()).prop_map(|(from, to, at)| Change::Copy(from, to, at)),
        1 => (offset(), vec(any::<u8>(), 0..20)).prop_map(|(at, more)| Change::Insert(at, more)),
    ]
}

impl Change {
    fn make(&self, bytes: &mut Vec<u8>) {
        let at = |index: &Index, bytes: &[u8]| index.index(bytes.len() + 1);
        let range = |a: &Index, b: &Index, bytes: &[u8]| {
            let (a, b) = (at(a, bytes), at(b, bytes));
            a.min(b)..a.max(b)
        };
        match self {
            Self::Bit(index, bit) => {
                let index = at(index, bytes);
                if let Some(byte) = bytes.get_mut(index) {
                    *byte ^= 1 << bit;
                }
            }
            Self::Number(index, number, size) => {
                let from = at(index, bytes) / size * size;
                let field = bytes.iter_mut().skip(from).take(*size);
                field.zip(number.to_le_bytes()).for_each(|(byte, new)| *byte = new);
            }
            Self::Cut(index) => bytes.truncate(at(index, bytes)),
            Self::Remove(from, to) => drop(bytes.drain(range(from, to, bytes))),
            Self::Copy(from, to, index) => {
                let piece = bytes[range(from, to, bytes)].to_vec();
                let index = at(index, bytes);
                bytes.splice(index..index, piece);
            }
            Self::Insert(index, more) => {
                let index = at(index, bytes);
                bytes.splice(index..index, more.iter().copied());
            }
        }
    }
}
