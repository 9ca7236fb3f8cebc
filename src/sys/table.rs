//! Reads all entries of one of the kernel side's tables, while it is being changed.

use std::io;
use std::os::fd::AsRawFd;
use std::ptr;

use libbpf_rs::MapCore;
use libbpf_sys as sys;

use super::counters::of_bytes;

/// Entries that are read at once, unless a bucket has more.
const AT_ONCE: usize = 32;

/// The entries of a table, each once: bucket by bucket (`BPF_MAP_LOOKUP_BATCH`, 5.6). Entries that are added or deleted
/// meanwhile may be included or not. A walk by keys would restart whenever the current key is deleted
/// (`htab_map_get_next_key()`, kernel/bpf/hashtab.c), and might never end.
///
/// # Errors
/// The kernel's error.
pub fn entries<T: plain::Plain + Default>(table: &impl MapCore) -> io::Result<Vec<T>> {
    let (key_size, value_size) = (table.key_size() as usize, table.value_size() as usize);
    let options = sys::bpf_map_batch_opts {
        sz: size_of::<sys::bpf_map_batch_opts>() as sys::size_t,
        ..Default::default()
    };
    // Where the next batch begins: the number of a bucket, or an index in an array.
    let (mut from, mut to): (Option<u32>, u32) = (None, 0);
    let mut at_once = AT_ONCE;
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    let mut entries = Vec::new();
    loop {
        let mut count = at_once as u32;
        keys.resize(at_once * key_size, 0_u8);
        values.resize(at_once * value_size, 0_u8);
        // SAFETY: the buffers have room for this many keys and values, and for the numbers where a batch begins and
        // ends.
        let status = unsafe {
            sys::bpf_map_lookup_batch(
                table.as_fd().as_raw_fd(),
                from.as_mut().map_or(ptr::null_mut(), |from| ptr::from_mut(from).cast()),
                ptr::from_mut(&mut to).cast(),
                keys.as_mut_ptr().cast(),
                values.as_mut_ptr().cast(),
                &raw mut count,
                &raw const options,
            )
        };
        match -status {
            0 | libc::ENOENT => {}
            libc::EINTR => continue,
            // The next bucket has more entries, at most as many as the table.
            libc::ENOSPC if at_once < table.max_entries() as usize => {
                at_once *= 2;
                continue;
            }
            number => return Err(io::Error::from_raw_os_error(number)),
        }
        entries.extend(values.chunks_exact(value_size).take(count as usize).map(of_bytes::<T>));
        if status != 0 {
            return Ok(entries);
        }
        from = Some(to);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use libbpf_rs::{MapFlags, MapHandle, MapType};

    use super::*;

    const SIZE: u32 = 4096;

    fn table(kind: MapType) -> MapHandle {
        let options = sys::bpf_map_create_opts {
            sz: size_of::<sys::bpf_map_create_opts>() as sys::size_t,
            ..Default::default()
        };
        MapHandle::create(kind, Some("entries"), 4, 4, SIZE, &options).unwrap()
    }

    fn put(table: &MapHandle, number: u32) {
        let number = number.to_ne_bytes();
        table.update(&number, &number, MapFlags::ANY).unwrap();
    }

    /// Stops the writer, even if the reader has failed.
    struct Over<'a>(&'a AtomicBool);

    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Run as root.
    #[test]
    fn each_entry_is_read_once_whatever_comes_and_goes() {
        const STAY: u32 = 300;
        let table = table(MapType::Hash);
        assert!(entries::<u32>(&table).unwrap().is_empty());
        for number in 0..STAY {
            put(&table, number);
        }
        let (over, rounds) = (AtomicBool::new(false), AtomicU32::new(0));
        std::thread::scope(|scope| {
            // As many more, each of which exists only briefly.
            let writer = scope.spawn(|| {
                for number in (STAY..2 * STAY).cycle() {
                    put(&table, number);
                    table.delete(&number.to_ne_bytes()).unwrap();
                    rounds.fetch_add(1, Ordering::Relaxed);
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
            let _over = Over(&over);
            let mut read = 0;
            while read < 200 || rounds.load(Ordering::Relaxed) < 10_000 {
                let all: Vec<u32> = entries(&table).unwrap();
                let staying: Vec<u32> = all.iter().copied().filter(|&number| number < STAY).collect();
                let others: BTreeSet<u32> = all.iter().copied().filter(|&number| number >= STAY).collect();
                assert_eq!(staying.len(), STAY as usize);
                assert_eq!(staying.iter().copied().collect::<BTreeSet<u32>>().len(), STAY as usize);
                assert_eq!(staying.len() + others.len(), all.len());
                assert!(!writer.is_finished());
                read += 1;
            }
        });
    }

    /// Run as root.
    #[test]
    fn an_array_is_read_completely() {
        let table = table(MapType::Array);
        for number in 0..SIZE {
            put(&table, number);
        }
        assert_eq!(entries::<u32>(&table).unwrap(), (0..SIZE).collect::<Vec<u32>>());
    }
}
