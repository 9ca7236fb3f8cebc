//! BTF in the kernel's format (Documentation/bpf/btf.rst): a header, the types one after another, and their names.
//!
//! The types are kept in memory; the names, nearly half of it, are not: the wanted ones are found in one pass, and the
//! few others that are needed are read again.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use libbpf_sys as sys;

use crate::kernel::beginnings::Beginnings;
use crate::sys::mapped::FileBytes;

/// The magic number of `struct btf_header`.
pub(super) const MAGIC: u16 = 0xeb9f;
pub(super) const HEADER_SIZE: u32 = 24;
/// The size of `struct btf_type`, before the data of its kind.
const TYPE_SIZE: usize = 12;
/// The offset of every type with this stride is kept.
const STRIDE: usize = 16;
/// Bytes of names that are read at a time.
const CHUNK: usize = 1 << 16;
/// Longer names (KSYM_NAME_LEN, include/linux/kallsyms.h) are never looked for.
const NAME_SIZE: usize = 512;

/// The positions of types and names.
pub(super) struct Image<'base> {
    types: FileBytes,
    /// The offset of the first of each [`STRIDE`] types, beginning with number `first_id`.
    offsets: Vec<u32>,
    count: u32,
    /// The number and the offset of each type that has one of the wanted names.
    wanted: Vec<(u32, u32)>,
    known: Names,
    file: File,
    /// The range of names in the file.
    strings: Range<u64>,
    /// Lower type numbers, and lower offsets of names, belong to the base.
    base: Option<&'base Image<'base>>,
    first_id: u32,
    first_name: u32,
}

/// A type.
#[derive(Clone, Copy)]
pub(super) struct Type<'a> {
    /// The offset of its name.
    pub(super) name: u32,
    pub(super) info: u32,
    /// Its size in bytes, or the number of the type that it refers to.
    pub(super) size_or_type: u32,
    /// The data of its kind.
    more: &'a [u8],
}

impl Type<'_> {
    pub(super) fn kind(&self) -> u32 {
        self.info >> 24 & 0x1f
    }

    /// The number of its members, values or parameters.
    pub(super) fn entries(&self) -> u32 {
        self.info & 0xffff
    }

    /// The data of its kind, in rows of this many words.
    pub(super) fn rows<const WORDS: usize>(&self) -> impl Iterator<Item = [u32; WORDS]> {
        let words = |row: &[u8]| std::array::from_fn(|word| word_at(row, 4 * word).unwrap_or(0));
        self.more.chunks_exact(4 * WORDS).map(words)
    }
}

/// The size of the data of a type's kind. `None`: the kind is not known.
#[inline]
fn size_of_more(info: u32) -> Option<usize> {
    let (once, each) = (*MORE.get(info as usize >> 24 & 0x1f)?)?;
    Some(usize::from(once) + usize::from(each) * (info & 0xffff) as usize)
}

/// By kind: the bytes behind a type, and those of each of its entries. There is no kind 0.
const MORE: [Option<(u8, u8)>; sys::BTF_KIND_ENUM64 as usize + 1] = {
    let mut all = [Some((0, 0)); sys::BTF_KIND_ENUM64 as usize + 1];
    all[0] = None;
    all[sys::BTF_KIND_INT as usize] = Some((4, 0));
    all[sys::BTF_KIND_VAR as usize] = Some((4, 0));
    all[sys::BTF_KIND_DECL_TAG as usize] = Some((4, 0));
    all[sys::BTF_KIND_ARRAY as usize] = Some((12, 0));
    all[sys::BTF_KIND_STRUCT as usize] = Some((0, 12));
    all[sys::BTF_KIND_UNION as usize] = Some((0, 12));
    all[sys::BTF_KIND_DATASEC as usize] = Some((0, 12));
    all[sys::BTF_KIND_ENUM64 as usize] = Some((0, 12));
    all[sys::BTF_KIND_ENUM as usize] = Some((0, 8));
    all[sys::BTF_KIND_FUNC_PROTO as usize] = Some((0, 8));
    all
};

#[inline]
fn word_at(bytes: &[u8], offset: usize) -> Option<u32> {
    let word = bytes.get(offset..offset + 4)?;
    word.try_into().ok().map(u32::from_ne_bytes)
}

/// The wanted names.
pub(super) struct Wanted<F> {
    pub(super) beginnings: Beginnings,
    /// Decides on names with one of these beginnings.
    pub(super) is_wanted: F,
}

/// The names found, by offset.
struct Names {
    sorted: Vec<(u32, Box<str>)>,
    /// A bit for each of several offsets, which rules out nearly all others.
    bits: Vec<u64>,
}

impl Names {
    const WORDS: usize = 1024;

    fn bit_of(offset: u32) -> (usize, u64) {
        let bit = offset as usize % (64 * Self::WORDS);
        (bit / 64, 1 << (bit % 64))
    }

    #[inline]
    fn get(&self, offset: u32) -> Option<&str> {
        let (word, bit) = Self::bit_of(offset);
        if self.bits[word] & bit == 0 {
            return None;
        }
        let found = self.sorted.binary_search_by_key(&offset, |(known, _)| *known).ok()?;
        Some(&self.sorted[found].1)
    }
}

impl<'base> Image<'base> {
    /// # Errors
    /// If it cannot be read, or is not BTF.
    pub(super) fn new(
        file: File,
        base: Option<&'base Image<'base>>,
        wanted: &Wanted<impl Fn(&str) -> bool>,
    ) -> io::Result<Self> {
        let mut header = [0; HEADER_SIZE as usize];
        file.read_exact_at(&mut header, 0)?;
        let size = file.metadata()?.len();
        let [at, strings] = sections(&header, size).ok_or_else(no_btf)?;
        // All offsets are 32-bit numbers.
        let types = FileBytes::of(&file, at)?;
        let mut image = Self {
            types,
            offsets: Vec::new(),
            count: 0,
            wanted: Vec::new(),
            known: find(&file, &strings, wanted)?,
            file,
            first_id: base.map_or(1, |base| base.first_id + base.count),
            first_name: base.map_or(0, |base| {
                base.first_name + (base.strings.end - base.strings.start) as u32
            }),
            strings,
            base,
        };
        // Its own offsets begin after the base's.
        for (offset, _) in &mut image.known.sorted {
            *offset += image.first_name;
            let (word, bit) = Names::bit_of(*offset);
            image.known.bits[word] |= bit;
        }
        let types: &[u8] = &image.types;
        let mut next = 0;
        while next < types.len() {
            if (image.count as usize).is_multiple_of(STRIDE) {
                image.offsets.push(next as u32);
            }
            let words: Option<&[u8; TYPE_SIZE]> = types[next..].first_chunk();
            let words = words.ok_or_else(no_btf)?;
            let head = word_at(words, 0).zip(word_at(words, 4));
            let (name, info) = head.ok_or_else(no_btf)?;
            if image.known(name).is_some() {
                image.wanted.push((image.first_id + image.count, next as u32));
            }
            next += TYPE_SIZE + size_of_more(info).ok_or_else(no_btf)?;
            image.count += 1;
        }
        if next > types.len() {
            return Err(no_btf());
        }
        Ok(image)
    }

    /// The type with this number; 0 is void. `None`: there is none.
    pub(super) fn type_at(&self, id: u32) -> Option<Type<'_>> {
        let Some(own) = id.checked_sub(self.first_id) else {
            return match self.base {
                Some(base) => base.type_at(id),
                None => Some(Type {
                    name: 0,
                    info: 0,
                    size_or_type: 0,
                    more: &[],
                }),
            };
        };
        if own >= self.count {
            return None;
        }
        let types: &[u8] = &self.types;
        let mut offset = *self.offsets.get(own as usize / STRIDE)? as usize;
        for _ in 0..own as usize % STRIDE {
            offset += TYPE_SIZE + size_of_more(word_at(types, offset + 4)?)?;
        }
        self.type_from(offset)
    }

    fn type_from(&self, offset: usize) -> Option<Type<'_>> {
        let types: &[u8] = &self.types;
        let info = word_at(types, offset + 4)?;
        let more = offset + TYPE_SIZE;
        Some(Type {
            name: word_at(types, offset)?,
            info,
            size_or_type: word_at(types, offset + 8)?,
            more: types.get(more..more + size_of_more(info)?)?,
        })
    }

    /// Its own types that have one of the wanted names, without the base's: each with its number and name.
    pub(super) fn wanted_types(&self) -> impl Iterator<Item = (u32, Type<'_>, &str)> {
        self.wanted.iter().filter_map(|&(id, offset)| {
            let kind = self.type_from(offset as usize)?;
            Some((id, kind, self.known(kind.name)?))
        })
    }

    /// The name at this offset, if it is one of the wanted ones.
    pub(super) fn known(&self, offset: u32) -> Option<&str> {
        match self.base.filter(|_| offset < self.first_name) {
            Some(base) => base.known(offset),
            None => self.known.get(offset),
        }
    }

    /// Reads the name at this offset; empty if there is none.
    pub(super) fn string(&self, offset: u32) -> String {
        let mut found = String::new();
        self.each_string(&[offset], &mut |_, name| name.clone_into(&mut found));
        found
    }

    /// Calls `visit` with the names at these offsets, which must be sorted. A missing name is empty.
    pub(super) fn each_string(&self, offsets: &[u32], visit: &mut dyn FnMut(u32, &str)) {
        let own = offsets.partition_point(|&offset| offset < self.first_name);
        let (of_base, own) = offsets.split_at(own);
        if let Some(base) = self.base {
            base.each_string(of_base, visit);
        }
        let mut bytes = Vec::new();
        let mut first = 0;
        for &offset in own {
            let at = self.strings.start + u64::from(offset - self.first_name);
            let rest = |bytes: &[u8], first: u64| usize::try_from(at - first).ok().filter(|&skip| skip < bytes.len());
            let is_here = |bytes: &[u8], first| rest(bytes, first).is_some_and(|skip| bytes[skip..].contains(&0));
            if !is_here(&bytes, first) {
                first = at;
                let left = self.strings.end.saturating_sub(at);
                bytes.resize(left.min(8 * NAME_SIZE as u64) as usize, 0);
                if self.file.read_exact_at(&mut bytes, at).is_err() {
                    bytes.clear();
                }
            }
            let name = rest(&bytes, first).and_then(|skip| CStr::from_bytes_until_nul(&bytes[skip..]).ok());
            visit(offset, name.and_then(|name| name.to_str().ok()).unwrap_or_default());
        }
    }
}

fn no_btf() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it is malformed")
}

/// The wanted names of a file, by offset.
fn find(file: &File, strings: &Range<u64>, wanted: &Wanted<impl Fn(&str) -> bool>) -> io::Result<Names> {
    let mut names = Names {
        sorted: Vec::new(),
        bits: vec![0; Names::WORDS],
    };
    let mut bytes = vec![0; CHUNK];
    // The bytes of an incomplete name at the end of the previous chunk.
    let mut left = 0;
    let mut next = strings.start;
    while next < strings.end {
        let size = (strings.end - next).min((bytes.len() - left) as u64) as usize;
        file.read_exact_at(&mut bytes[left..left + size], next)?;
        let offset = next - left as u64 - strings.start;
        let chunk = &bytes[..left + size];
        let mut start = 0;
        for end in memchr::memchr_iter(0, chunk) {
            let name = &chunk[start..end];
            if wanted.beginnings.may_have(name)
                && let Ok(name) = str::from_utf8(name)
                && (wanted.is_wanted)(name)
            {
                names.sorted.push(((offset + start as u64) as u32, name.into()));
            }
            start = end + 1;
        }
        next += size as u64;
        let end = chunk.len();
        left = end - start;
        if left == bytes.len() {
            // No name is that long.
            left = 0;
        }
        bytes.copy_within(end - left..end, 0);
    }
    Ok(names)
}

/// The ranges of the types and the names.
fn sections(header: &[u8], size: u64) -> Option<[Range<u64>; 2]> {
    let magic = u16::from_ne_bytes([*header.first()?, *header.get(1)?]);
    let behind = u64::from(word_at(header, 4)?);
    let section = |offset: usize| -> Option<Range<u64>> {
        let start = behind + u64::from(word_at(header, offset)?);
        let end = start + u64::from(word_at(header, offset + 4)?);
        (end <= size).then_some(start..end)
    };
    let is_btf = magic == MAGIC && behind >= u64::from(HEADER_SIZE);
    is_btf.then_some([section(8)?, section(16)?])
}
