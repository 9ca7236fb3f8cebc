//! Parts of the kernel side that are compiled for this machine (`tests/kernel_side/`), held against what they are to do.

#[path = "kernel_side/compile.rs"]
mod compile;

use std::collections::HashMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use proptest::collection::vec;
use proptest::prelude::*;

/// `tests/kernel_side/table.c`, compiled once.
static TABLE: LazyLock<PathBuf> = LazyLock::new(|| compile::compile("table", env!("CARGO_TARGET_TMPDIR")));

/// As in `tests/kernel_side/table.c`.
#[derive(Debug, Clone, Copy)]
enum Turn {
    Find,
    Keep(u64),
    Forget,
}

#[derive(Debug)]
struct Answer {
    found: u64,
    failed: i64,
    elsewhere: u64,
    entries: u64,
}

/// What the table answers, turn by turn.
fn ask(entries: u64, has_places: bool, turns: &[(u64, Turn)]) -> Vec<Answer> {
    let mut input = Vec::new();
    for &(address, turn) in turns {
        let (what, value) = match turn {
            Turn::Find => (0, 0),
            Turn::Keep(value) => (1, value),
            Turn::Forget => (2, 0),
        };
        input.extend([what, address, value].into_iter().flat_map(u64::to_ne_bytes));
    }
    let mut command = Command::new(&*TABLE);
    command.args([entries.to_string(), u8::from(has_places).to_string()]);
    let mut table = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = table.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&input).unwrap());
    let output = table.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success(), "{}", output.status);
    let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap());
    let answers = output.stdout.chunks_exact(32).map(|answer| Answer {
        found: word(&answer[..8]),
        failed: word(&answer[8..16]).cast_signed(),
        elsewhere: word(&answer[16..24]),
        entries: word(&answer[24..]),
    });
    answers.collect()
}

/// Of a few addresses, as far apart as requests are, so that some want the same place.
fn turns() -> BoxedStrategy<Vec<(u64, Turn)>> {
    let address = (1_u64..12).prop_map(|nth| 0xffff_8880_0420_0000 + nth * 448);
    let turn = prop_oneof![
        2 => Just(Turn::Find),
        4 => (1..u64::MAX).prop_map(Turn::Keep),
        3 => Just(Turn::Forget),
    ];
    vec((address, turn), 1..200).boxed()
}

proptest! {
    // A failing case is told, and not kept.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_table_has_what_was_kept_and_nothing_else(turns in turns(), entries in 1_u64..12, has_places: bool) {
        let answers = ask(entries, has_places, &turns);
        prop_assert_eq!(answers.len(), turns.len());
        let mut kept = HashMap::new();
        for (&(address, turn), answer) in turns.iter().zip(&answers) {
            prop_assert_eq!(answer.found, kept.get(&address).copied().unwrap_or(0));
            match turn {
                Turn::Find => {}
                Turn::Keep(value) if answer.failed == 0 => {
                    kept.insert(address, value);
                }
                // Nothing is refused while there is room.
                Turn::Keep(_) => prop_assert_eq!((answer.failed, answer.entries), (-7, entries)),
                Turn::Forget => {
                    kept.remove(&address);
                }
            }
            // What is looked for in the hash map only while something is there is there.
            prop_assert_eq!(answer.elsewhere, if has_places { answer.entries } else { 0 });
        }
    }
}

/// Four places, and more addresses than that: some are in the hash map, and one leaves it for its place when that is free.
#[test]
fn those_whose_place_is_taken_are_in_the_hash_map() {
    let addresses: Vec<u64> = (1..12).map(|nth| 0xffff_8880_0420_0000 + nth * 448).collect();
    let keep = addresses.iter().map(|&address| (address, Turn::Keep(address)));
    let forget = addresses.iter().map(|&address| (address, Turn::Forget));
    let answers = ask(12, true, &keep.chain(forget).collect::<Vec<_>>());
    let most = answers.iter().map(|answer| answer.entries).max();
    assert_eq!(most, Some(addresses.len() as u64 - 4));
    assert_eq!(answers.last().map(|answer| answer.entries), Some(0));
}
