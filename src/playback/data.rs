//! What replayed writes write, and what prepared files have: recordings have no data.

use std::io;
use std::ptr;

/// Blocks that are unlike each other.
const BLOCK: usize = 4096;
/// The largest buffer of a thread, in bytes. Larger calls are rare, and made with as much.
pub const LARGEST: u64 = 1 << 30;

/// Kind of data.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Data {
    /// It can neither be compressed nor deduplicated.
    Random,
    Zero,
    /// Each block is compressible by this factor, more than 1.
    Ratio(f64),
}

impl std::str::FromStr for Data {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "random" => Ok(Self::Random),
            "zero" => Ok(Self::Zero),
            ratio => match ratio.parse::<f64>() {
                Ok(ratio) if ratio.is_finite() && ratio > 1.0 => Ok(Self::Ratio(ratio)),
                Ok(1.0) => Ok(Self::Random),
                _ => Err("not random, zero or a ratio of compression from 1 on, such as 2.5"),
            },
        }
    }
}

/// A fast generator of numbers that look random (xorshift).
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

/// Memory that is page-aligned, as direct I/O needs, and of which only what is used is allocated.
#[derive(Debug)]
pub struct Memory {
    at: *mut u8,
    length: usize,
}

// SAFETY: the memory belongs to one thread at a time.
unsafe impl Send for Memory {}

impl Memory {
    /// # Errors
    /// If there is no room for it.
    pub fn new(length: u64) -> io::Result<Self> {
        let length = length.clamp(BLOCK as u64, LARGEST) as usize;
        // SAFETY: a new mapping touches no other memory.
        let at = unsafe {
            libc::mmap(
                ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { at: at.cast(), length })
    }

    #[must_use]
    pub fn pointer(&self) -> *mut u8 {
        self.at
    }

    /// As much of these bytes as it has.
    #[must_use]
    pub fn fitting(&self, bytes: u64) -> usize {
        usize::try_from(bytes).unwrap_or(usize::MAX).min(self.length)
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping has this length, and is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.length) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping has this length, and no reference to it is left.
        unsafe {
            libc::munmap(self.at.cast(), self.length);
        }
    }
}

/// What a thread writes.
#[derive(Debug)]
pub struct Source {
    memory: Memory,
    kind: Data,
    random: Random,
    /// Bytes that have data.
    filled: usize,
}

impl Source {
    /// `seed`: sources of different seeds have different data.
    ///
    /// # Errors
    /// If there is no room for it.
    pub fn new(kind: Data, seed: u64, largest: u64) -> io::Result<Self> {
        Ok(Self {
            memory: Memory::new(largest)?,
            kind,
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            filled: 0,
        })
    }

    /// Makes these bytes unlike those of any other time, and returns where they are and how many there are.
    pub fn next(&mut self, bytes: u64) -> (*mut u8, usize) {
        let length = self.memory.fitting(bytes);
        let Self {
            memory,
            kind,
            random,
            filled,
        } = self;
        let part = match kind {
            Data::Zero => 0,
            Data::Random => BLOCK,
            Data::Ratio(ratio) => (BLOCK as f64 / *ratio) as usize,
        };
        if part > 0 && length > 0 {
            let all = memory.bytes();
            let end = length.next_multiple_of(BLOCK).min(all.len());
            for block in all[..end].chunks_mut(BLOCK).skip(*filled / BLOCK) {
                let part = part.min(block.len());
                for word in block[..part].chunks_mut(8) {
                    let bytes = random.next().to_ne_bytes();
                    word.copy_from_slice(&bytes[..word.len()]);
                }
            }
            *filled = (*filled).max(end);
            for block in all[..length].chunks_mut(BLOCK) {
                let stamp = random.next().to_ne_bytes();
                let stamped = block.len().min(stamp.len());
                block[..stamped].copy_from_slice(&stamp[..stamped]);
            }
        }
        (memory.pointer(), length)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::io::Write;

    use super::*;

    fn written(kind: Data) -> Vec<u8> {
        let mut source = Source::new(kind, 7, 1 << 20).unwrap();
        let mut all = Vec::new();
        for _ in 0..4 {
            let (at, length) = source.next(64 << 10);
            // SAFETY: the source returned this length.
            all.extend_from_slice(unsafe { std::slice::from_raw_parts(at, length) });
        }
        all
    }

    fn compressed(data: &[u8]) -> f64 {
        let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(data).unwrap();
        data.len() as f64 / encoder.finish().unwrap().len() as f64
    }

    #[test]
    fn random_data_is_neither_compressed_nor_deduplicated() {
        let data = written(Data::Random);
        assert!(compressed(&data) < 1.02);
        let blocks: HashSet<&[u8]> = data.chunks(BLOCK).collect();
        assert_eq!(blocks.len(), data.len() / BLOCK);
    }

    #[test]
    fn data_compresses_as_requested() {
        let ratio = compressed(&written(Data::Ratio(2.0)));
        assert!((1.8..2.2).contains(&ratio), "{ratio}");
        assert!(written(Data::Zero).iter().all(|byte| *byte == 0));
    }

    #[test]
    fn kinds_are_read_from_words() {
        assert_eq!("random".parse(), Ok(Data::Random));
        assert_eq!("2.5".parse(), Ok(Data::Ratio(2.5)));
        for wrong in ["", "0.5", "-1", "inf", "nan", "ones"] {
            assert!(wrong.parse::<Data>().is_err(), "{wrong}");
        }
    }
}
