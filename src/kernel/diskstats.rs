//! `/proc/diskstats`: the kernel's own counters of disks (Documentation/admin-guide/iostats.rst).

use std::io;

use crate::model::snapshot::DiskCounters;
use crate::sys::text_of;

const PATH: &str = "/proc/diskstats";

/// The sums over these disks and partitions.
///
/// # Errors
/// If the file cannot be read.
pub fn read(names: &[String]) -> io::Result<DiskCounters> {
    Ok(parse(&text_of(PATH)?, names))
}

/// A line has major and minor number and name, then reads and three related numbers, writes and three, three about
/// requests in flight, discards and three, flushes (since 5.5) and one.
fn parse(text: &str, names: &[String]) -> DiskCounters {
    let mut sum = DiskCounters::default();
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace().skip(2);
        if !words
            .next()
            .is_some_and(|name| names.iter().any(|wanted| wanted == name))
        {
            continue;
        }
        let numbers: Vec<u64> = words.map(|word| word.parse().unwrap_or(0)).collect();
        let number = |index: usize| numbers.get(index).copied().unwrap_or(0);
        sum.disks += 1;
        sum.reads = sum.reads.wrapping_add(number(0));
        sum.writes = sum.writes.wrapping_add(number(4));
        sum.discards = sum.discards.wrapping_add(number(11));
        sum.flushes = sum.flushes.wrapping_add(number(15));
    }
    sum
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;

    const TEXT: &str = " 259       0 nvme0n1 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17
 259       1 nvme0n1p1 100 0 0 0 200 0 0 0 0 0 0 300 0 0 0 0 0
   8       0 sda 1000 0 0 0 2000 0 0 0 0 0 0
 254       0 dm-0 x y
";

    fn counted(names: &[&str]) -> DiskCounters {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        parse(TEXT, &names)
    }

    fn stats(reads: u64, writes: u64, discards: u64, flushes: u64) -> DiskCounters {
        DiskCounters {
            reads,
            writes,
            discards,
            flushes,
            disks: 1,
        }
    }

    #[test]
    fn only_the_disks_that_are_named_count() {
        assert_eq!(counted(&["nvme0n1"]), stats(1, 5, 12, 16));
        let two = counted(&["nvme0n1p1", "sda"]);
        assert_eq!(
            two,
            DiskCounters {
                disks: 2,
                ..stats(1100, 2200, 300, 0)
            }
        );
        assert_eq!(counted(&["dm-0", "nvme"]), stats(0, 0, 0, 0));
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn any_text_is_read(text in fuzz::text_like(TEXT)) {
            let names = ["nvme0n1".to_owned(), "sda".to_owned()];
            let _ = parse(&text, &names);
            prop_assert_eq!(parse(&text, &[]), DiskCounters::default());
        }
    }
}
