//! The kernel side's counters, mapped into this process.

use std::hint::black_box;
use std::io;
use std::marker::PhantomData;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::Duration;

use libbpf_rs::MapCore;

/// Bytes that a processor fetches at once, on all that the tool runs on.
pub const LINE: usize = 64;

/// The counters of every op (or other elements) for each CPU. Reading them needs no system call, which would keep
/// programs on this CPU from running.
#[derive(Debug)]
pub struct Counters<T> {
    mapping: *const u8,
    size: usize,
    ops: usize,
    cpus: usize,
    of: PhantomData<T>,
}

impl<T: plain::Plain + Default> Counters<T> {
    /// Maps a table with `ops` elements for each CPU.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn map(table: &impl MapCore, ops: usize) -> io::Result<Self> {
        Self::map_bytes(table, 0, size_of_table(table), ops)
    }

    /// Maps a table piece by piece, to limit the mapped memory that counts as this process's.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn pieces(table: &impl MapCore) -> impl Iterator<Item = io::Result<Self>> {
        let page = super::page_bytes().max(1) as usize;
        let mut piece = size_of::<T>();
        while !piece.is_multiple_of(page) {
            piece *= 2;
        }
        let whole = size_of_table(table);
        let firsts = (0..whole).step_by(piece);
        firsts.map(move |first| Self::map_bytes(table, first, piece.min(whole - first), 1))
    }

    fn map_bytes(table: &impl MapCore, first: usize, size: usize, ops: usize) -> io::Result<Self> {
        let elements = size / size_of::<T>();
        // SAFETY: a new read-only mapping of an open descriptor.
        let mapping = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size,
                libc::PROT_READ,
                libc::MAP_SHARED,
                table.as_fd().as_raw_fd(),
                first as libc::off_t,
            )
        };
        if mapping == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            mapping: mapping.cast(),
            size,
            ops,
            cpus: elements / ops.max(1),
            of: PhantomData,
        })
    }

    /// One op's counters, CPU by CPU, each as of one moment.
    pub fn of_op(&self, op: usize) -> impl Iterator<Item = T> + '_ {
        (0..self.cpus).map(move |cpu| self.read(cpu * self.ops + op))
    }

    /// The same for elements with a marker that programs write first and last, checked by `is_whole`: an element that a
    /// program is changing is read again, for as long as programs run if nothing keeps them from their CPU.
    pub fn of_op_whole(&self, op: usize, is_whole: fn(&T) -> bool) -> impl Iterator<Item = T> + '_ {
        /// Usually the program has finished before the element is read again.
        const AT_ONCE: usize = 16;
        const ATTEMPTS: usize = 64;
        const PAUSE: Duration = Duration::from_micros(100);
        let whole = move |element| {
            let mut stats = self.read(element);
            for attempt in 0..ATTEMPTS {
                if is_whole(&stats) {
                    break;
                }
                if attempt >= AT_ONCE {
                    thread::sleep(PAUSE);
                }
                stats = self.read(element);
            }
            stats
        };
        (0..self.cpus).map(move |cpu| whole(cpu * self.ops + op))
    }

    /// One op's counters without those of CPUs that have counted nothing: most ops are never called. `signs`: words of which
    /// one is not 0 if anything was counted. One look is enough to see that, since counters only grow.
    pub fn counted(&self, op: usize, signs: &[Range<usize>]) -> impl Iterator<Item = T> {
        let elements = (0..self.cpus).map(move |cpu| cpu * self.ops + op);
        let is_counted = |element: &usize| {
            let mut signs = signs.iter().cloned().flatten();
            signs.any(|word| self.word(*element, word).is_some_and(|word| word > 0))
        };
        elements.filter(is_counted).map(|element| self.read(element))
    }

    /// An element's words in ascending order. It must be in range.
    fn words(&self, element: usize) -> impl Iterator<Item = u64> + '_ {
        let words = size_of::<T>() / 8;
        (element * words..(element + 1) * words).map(|index| self.word_at(index))
    }

    /// The number of elements, for all CPUs together.
    #[must_use]
    pub fn len(&self) -> usize {
        self.size / size_of::<T>()
    }

    /// Whether there are no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// An element by its index among all of them; `None` if it is out of range.
    #[must_use]
    pub fn element(&self, element: usize) -> Option<T> {
        (element < self.len()).then(|| self.read(element))
    }

    /// An 8-byte word of an element; `None` if it is out of range.
    #[must_use]
    pub fn word(&self, element: usize, word: usize) -> Option<u64> {
        let is_inside = element < self.len() && word < size_of::<T>() / 8;
        is_inside.then(|| self.word_at(element * size_of::<T>() / 8 + word))
    }

    /// Whether an element begins with these words.
    #[must_use]
    pub fn begins_with(&self, element: usize, words: &[u64]) -> bool {
        let is_inside = element < self.len() && size_of_val(words) <= size_of::<T>();
        let words = self.words(element).zip(words);
        is_inside && words.fold(0, |differences, (now, word)| differences | (now ^ word)) == 0
    }

    /// Has the processor fetch these words of an element from memory.
    pub fn fetch(&self, element: usize, words: Range<usize>) {
        for word in words.step_by(LINE / size_of::<u64>()) {
            black_box(self.word(element, word));
        }
    }

    /// An element as of one moment, as [`at_one_moment`] has it: the second copy is compared where it is. It must be in
    /// range.
    fn read(&self, element: usize) -> T {
        let mut value = T::default();
        self.read_into(element, 0..size_of::<T>() / 8, &mut value);
        value
    }

    /// The same in place of another one, for what is large and read often. Returns false if it is out of range.
    #[must_use]
    pub fn element_into(&self, element: usize, value: &mut T) -> bool {
        self.words_into(element, 0..size_of::<T>() / 8, value)
    }

    /// Only these words of an element.
    #[must_use]
    pub fn words_into(&self, element: usize, words: Range<usize>, value: &mut T) -> bool {
        let is_inside = element < self.len() && words.end <= size_of::<T>() / 8;
        if is_inside {
            self.read_into(element, words, value);
        }
        is_inside
    }

    /// They must be in range.
    fn read_into(&self, element: usize, words: Range<usize>, value: &mut T) {
        self.update(element, words.clone(), value);
        for _ in 0..ATTEMPTS {
            if !self.update(element, words.clone(), value) {
                break;
            }
        }
    }

    /// Copies word by word in ascending order. Returns whether a word has changed. The words must be in range.
    fn update(&self, element: usize, words: Range<usize>, value: &mut T) -> bool {
        let to = (&raw mut *value).cast::<u64>();
        let first = element * (size_of::<T>() / 8);
        let mut has_changed = false;
        for index in words {
            let word = self.word_at(first + index);
            // SAFETY: the word is inside the value, of which all bits may have any value.
            unsafe {
                has_changed |= to.add(index).read_unaligned() != word;
                to.add(index).write_unaligned(word);
            }
        }
        has_changed
    }

    /// Copies word by word in ascending order.
    pub fn copy(&self, element: usize) -> Vec<u8> {
        let mut bytes = vec![0; size_of::<T>()];
        let first = element * bytes.len() / 8;
        for (index, word) in bytes.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&self.word_at(first + index).to_ne_bytes());
        }
        bytes
    }

    /// A word. It must be in range.
    fn word_at(&self, index: usize) -> u64 {
        // SAFETY: the caller has checked the range, and the words of the mapping are aligned and always readable.
        unsafe { self.mapping.cast::<u64>().add(index).read_volatile() }
    }
}

/// A program changes a few words at a time, in less time than a copy takes: two equal copies were taken while none ran, or
/// while one was suspended with its CPU, as happens in a guest on a busy host. More attempts are only needed if a forced
/// hook is preempted in the middle, or several CPUs change the element.
const ATTEMPTS: usize = 16;

/// Data that programs change, as of one moment; `copy` returns its bytes.
///
/// # Errors
/// Those of `copy`.
pub fn at_one_moment<E>(mut copy: impl FnMut() -> Result<Vec<u8>, E>) -> Result<Vec<u8>, E> {
    let mut bytes = copy()?;
    for _ in 0..ATTEMPTS {
        let again = copy()?;
        if again == bytes {
            break;
        }
        bytes = again;
    }
    Ok(bytes)
}

/// The value with these bytes.
pub fn of_bytes<T: plain::Plain + Default>(bytes: &[u8]) -> T {
    let mut stats = T::default();
    // The sizes are equal by construction.
    let _ = plain::copy_from_bytes(&mut stats, bytes);
    stats
}

/// The table's size in bytes.
fn size_of_table(table: &impl MapCore) -> usize {
    table.max_entries() as usize * table.value_size() as usize
}

impl<T> Drop for Counters<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours, and nothing borrows from it.
        unsafe { libc::munmap(self.mapping.cast_mut().cast(), self.size) };
    }
}

#[cfg(test)]
pub mod tests {
    use libbpf_rs::{MapHandle, MapType};

    use super::*;

    #[derive(Debug, Default, Clone, Copy, PartialEq)]
    #[repr(C)]
    struct Words {
        first: u64,
        others: [u64; 2],
    }

    // SAFETY: numbers, without padding.
    unsafe impl plain::Plain for Words {}

    fn words(first: u64, others: [u64; 2]) -> Words {
        Words { first, others }
    }

    /// A table whose elements can be mapped.
    pub fn mappable<T>(elements: u32) -> MapHandle {
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            map_flags: libbpf_sys::BPF_F_MMAPABLE,
            ..Default::default()
        };
        let size = size_of::<T>() as u32;
        MapHandle::create(MapType::Array, Some("elements"), 4, size, elements, &options).unwrap()
    }

    /// Run as root.
    #[test]
    fn an_element_is_the_one_of_its_number_and_as_large() {
        let table = mappable::<Words>(3);
        for number in 0..3_u32 {
            let words: [u64; 3] = std::array::from_fn(|word| u64::from(number) * 10 + word as u64);
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            table
                .update(&number.to_ne_bytes(), &bytes, libbpf_rs::MapFlags::ANY)
                .unwrap();
        }
        let counters = Counters::<Words>::map(&table, 3).unwrap();
        assert_eq!(counters.element(1), Some(words(10, [11, 12])));
        assert_eq!(counters.element(2), Some(words(20, [21, 22])));
        assert_eq!(
            (counters.element(3), counters.word(2, 1), counters.word(2, 3)),
            (None, Some(21), None)
        );
        assert!(counters.begins_with(1, &[10, 11]) && counters.begins_with(2, &[20, 21, 22]));
        assert!(!counters.begins_with(1, &[10, 12]) && !counters.begins_with(2, &[20, 21, 22, 0]));
        assert!(!counters.begins_with(3, &[]));
        let mut value = words(9, [9, 9]);
        assert!(counters.element_into(1, &mut value) && !counters.element_into(3, &mut value));
        assert_eq!(value, words(10, [11, 12]));
        let mut value = words(9, [9, 9]);
        assert!(counters.words_into(1, 1..2, &mut value) && !counters.words_into(1, 1..4, &mut value));
        assert_eq!(value, words(9, [11, 9]));
        let mut value = words(20, [0, 22]);
        assert!(counters.update(2, 0..3, &mut value) && !counters.update(2, 0..3, &mut value));
        assert_eq!(value, words(20, [21, 22]));
        let Ok(copy) = at_one_moment(|| Ok::<_, std::convert::Infallible>(counters.copy(2)));
        assert_eq!(of_bytes::<Words>(&copy), value);
        table
            .update(&1_u32.to_ne_bytes(), &[0; 24], libbpf_rs::MapFlags::ANY)
            .unwrap();
        let of_cpus = Counters::<Words>::map(&table, 1).unwrap();
        let counted = |signs: &[Range<usize>]| of_cpus.counted(0, signs).collect::<Vec<_>>();
        assert_eq!(counted(&[0..1, 2..3]), [words(0, [1, 2]), words(20, [21, 22])]);
        assert_eq!(counted(std::slice::from_ref(&(0..1))), [words(20, [21, 22])]);
    }
}
