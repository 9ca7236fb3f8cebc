//! `/proc/diskstats`: the kernel's own counters of disks (Documentation/admin-guide/iostats.rst).

use std::cell::RefCell;
use std::fs::File;
use std::io;

use crate::model::report::moment::DiskUse;
use crate::model::snapshot::DiskCounters;
use crate::sys::text_again;

const PATH: &str = "/proc/diskstats";

/// The file, which is opened once and read again and again.
#[derive(Debug)]
pub struct Diskstats {
    file: File,
    /// What it said at the last reading.
    text: RefCell<String>,
}

impl Diskstats {
    /// Opens it.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            file: File::open(PATH)?,
            text: RefCell::default(),
        })
    }

    /// Reads it.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(&self) -> io::Result<()> {
        *self.text.borrow_mut() = text_again(&self.file)?;
        Ok(())
    }

    /// The number of disks and partitions, when it was read last.
    #[must_use]
    pub fn lines(&self) -> usize {
        self.text.borrow().lines().count()
    }

    /// The sums over these disks and partitions, when it was read last.
    #[must_use]
    pub fn counters(&self, names: &[String]) -> DiskCounters {
        parse(&self.text.borrow(), names)
    }

    /// The use of these disks, when it was read last.
    #[must_use]
    pub fn used(&self, names: &[String]) -> Vec<Use> {
        parse_use(&self.text.borrow(), names)
    }
}

/// How much a disk was used so far.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Use {
    pub name: String,
    requests: u64,
    read_sectors: u64,
    written_sectors: u64,
    /// With one or more requests under way.
    busy_ms: u64,
    /// Of all requests together.
    requests_ms: u64,
}

/// Sectors of disks have 512 bytes here, whatever the disk itself uses.
const SECTOR: u64 = 512;

impl Use {
    /// The increase since an earlier reading of the same disk. Counters wrap as the kernel's do, those of milliseconds
    /// at 32 bits.
    #[must_use]
    pub fn since(&self, earlier: &Self, span_ns: u64) -> DiskUse {
        let grown = |now: u64, before: u64| now.wrapping_sub(before);
        let milliseconds = |now: u64, before: u64| u64::from((now as u32).wrapping_sub(before as u32));
        DiskUse {
            name: self.name.clone(),
            requests: grown(self.requests, earlier.requests),
            read_bytes: Some(grown(self.read_sectors, earlier.read_sectors).saturating_mul(SECTOR)),
            written_bytes: Some(grown(self.written_sectors, earlier.written_sectors).saturating_mul(SECTOR)),
            busy_ns: milliseconds(self.busy_ms, earlier.busy_ms).saturating_mul(1_000_000),
            requests_ns: milliseconds(self.requests_ms, earlier.requests_ms).saturating_mul(1_000_000),
            max_depth: None,
            span_ns,
        }
    }
}

/// Of the fields that [`parse`] lists, the second number after reads and writes is that of sectors, and the last two of
/// the requests in flight are milliseconds.
#[must_use]
pub fn parse_use(text: &str, names: &[String]) -> Vec<Use> {
    let lines = text.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace().skip(2);
        let name = words.next().filter(|name| names.iter().any(|wanted| wanted == name))?;
        let numbers: Vec<u64> = words.map(|word| word.parse().unwrap_or(0)).collect();
        let number = |index: usize| numbers.get(index).copied().unwrap_or(0);
        Some(Use {
            name: name.to_owned(),
            requests: number(0).wrapping_add(number(4)),
            read_sectors: number(2),
            written_sectors: number(6),
            busy_ms: number(9),
            requests_ms: number(10),
        })
    });
    lines.collect()
}

/// A line has major and minor number and name, then reads and three related numbers, writes and three, three about
/// requests in flight, discards and three, flushes (since 5.5) and one.
#[must_use]
pub fn parse(text: &str, names: &[String]) -> DiskCounters {
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
            added: 0,
        }
    }

    #[test]
    fn the_use_of_a_disk_is_the_increase_of_its_counters() {
        let line = |reads: u64, sectors: u64, busy: u64, all: u64| {
            format!(
                " 259 0 nvme0n1 {reads} 1 {sectors} 9 5 0 40 3 0 {busy} {all} 0 0 0 0 0 0\n 259 1 nvme0n1p1 9 9 9\n"
            )
        };
        let names = ["nvme0n1".to_owned()];
        let before = parse_use(&line(10, 80, 4_294_967_290, 100), &names);
        let after = parse_use(&line(15, 180, 494, 1_600), &names);
        assert_eq!((before.len(), after.len()), (1, 1));
        let grown = after[0].since(&before[0], 1_000_000_000);
        assert_eq!(
            grown,
            DiskUse {
                name: "nvme0n1".to_owned(),
                requests: 5,
                read_bytes: Some(51_200),
                written_bytes: Some(0),
                busy_ns: 500_000_000,
                requests_ns: 1_500_000_000,
                max_depth: None,
                span_ns: 1_000_000_000,
            }
        );
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
