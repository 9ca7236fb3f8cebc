//! BTF as it lies in memory (Documentation/bpf/btf.rst): a header, types one after the other, their names.

use std::io;
use std::ops::Range;

use libbpf_sys as sys;

use crate::kernel::beginnings::Beginnings;

/// Of `struct btf_header`.
pub(super) const MAGIC: u16 = 0xeb9f;
pub(super) const HEADER_SIZE: u32 = 24;
/// Of `struct btf_type`, before what only some kinds have.
const TYPE_SIZE: usize = 12;

/// All of it, and where each type begins.
pub(super) struct Image<'base> {
    bytes: Vec<u8>,
    /// By number, from `first_id` on.
    places: Vec<u32>,
    strings: Range<usize>,
    /// Lower numbers, and lower places of names, are those of the base.
    base: Option<&'base Image<'base>>,
    first_id: u32,
    first_name: u32,
}

/// A type.
#[derive(Clone, Copy)]
pub(super) struct Type<'a> {
    /// Place of its name.
    pub(super) name: u32,
    pub(super) info: u32,
    /// Bytes that it takes, or the number of the type that it refers to.
    pub(super) size_or_type: u32,
    /// What only some kinds have.
    more: &'a [u8],
}

impl Type<'_> {
    pub(super) fn kind(&self) -> u32 {
        self.info >> 24 & 0x1f
    }

    /// How many members, values or parameters it has.
    pub(super) fn entries(&self) -> u32 {
        self.info & 0xffff
    }

    /// What only some kinds have, by so many words.
    pub(super) fn rows<const WORDS: usize>(&self) -> impl Iterator<Item = [u32; WORDS]> {
        let words = |row: &[u8]| std::array::from_fn(|word| word_at(row, 4 * word).unwrap_or(0));
        self.more.chunks_exact(4 * WORDS).map(words)
    }
}

/// How many bytes of a type only its kind has. `None`: the kind is not known.
fn size_of_more(info: u32) -> Option<usize> {
    let entries = (info & 0xffff) as usize;
    Some(match info >> 24 & 0x1f {
        sys::BTF_KIND_INT | sys::BTF_KIND_VAR | sys::BTF_KIND_DECL_TAG => 4,
        sys::BTF_KIND_ARRAY => 12,
        sys::BTF_KIND_STRUCT | sys::BTF_KIND_UNION | sys::BTF_KIND_DATASEC | sys::BTF_KIND_ENUM64 => 12 * entries,
        sys::BTF_KIND_ENUM | sys::BTF_KIND_FUNC_PROTO => 8 * entries,
        sys::BTF_KIND_PTR..=sys::BTF_KIND_TYPE_TAG => 0,
        _ => return None,
    })
}

fn word_at(bytes: &[u8], place: usize) -> Option<u32> {
    let word = bytes.get(place..place + 4)?;
    word.try_into().ok().map(u32::from_ne_bytes)
}

impl<'base> Image<'base> {
    /// # Errors
    /// When these bytes are no BTF.
    pub(super) fn new(bytes: Vec<u8>, base: Option<&'base Image<'base>>) -> io::Result<Self> {
        let no_btf = || io::Error::new(io::ErrorKind::InvalidData, "it is not as it should be");
        let [types, strings] = sections(&bytes).ok_or_else(no_btf)?;
        let mut image = Self {
            places: Vec::new(),
            strings,
            base,
            first_id: base.map_or(1, |base| base.first_id + base.places.len() as u32),
            first_name: base.map_or(0, |base| base.first_name + base.strings.len() as u32),
            bytes,
        };
        let end = types.end;
        let mut next = types.start;
        while next < end {
            let more = word_at(&image.bytes[..end], next + 4).and_then(size_of_more);
            image.places.push(next as u32);
            next += TYPE_SIZE + more.ok_or_else(no_btf)?;
        }
        if next > end {
            return Err(no_btf());
        }
        Ok(image)
    }

    /// The type of this number; 0 is nothing at all. `None`: there is none.
    pub(super) fn type_at(&self, id: u32) -> Option<Type<'_>> {
        match id.checked_sub(self.first_id) {
            Some(own) => self.type_from(*self.places.get(own as usize)? as usize),
            None if id == 0 => Some(Type {
                name: 0,
                info: 0,
                size_or_type: 0,
                more: &[],
            }),
            None => self.base?.type_at(id),
        }
    }

    fn type_from(&self, place: usize) -> Option<Type<'_>> {
        let info = word_at(&self.bytes, place + 4)?;
        let more = place + TYPE_SIZE;
        Some(Type {
            name: word_at(&self.bytes, place)?,
            info,
            size_or_type: word_at(&self.bytes, place + 8)?,
            more: self.bytes.get(more..more + size_of_more(info)?)?,
        })
    }

    /// Its own types with their numbers, none of the base.
    pub(super) fn own_types(&self) -> impl Iterator<Item = (u32, Type<'_>)> {
        let types = self.places.iter().map(|&place| self.type_from(place as usize));
        (self.first_id..).zip(types).filter_map(|(id, kind)| Some((id, kind?)))
    }

    /// From a name on; nothing where there is none.
    fn name_from(&self, place: u32) -> &[u8] {
        match (place.checked_sub(self.first_name), self.base) {
            (Some(own), _) => self.bytes[self.strings.clone()].get(own as usize..).unwrap_or_default(),
            (None, Some(base)) => base.name_from(place),
            (None, None) => &[],
        }
    }

    /// The name at this place; empty where there is none.
    pub(super) fn string(&self, place: u32) -> &str {
        let rest = self.name_from(place);
        let end = rest.iter().position(|&byte| byte == 0).unwrap_or(0);
        str::from_utf8(&rest[..end]).unwrap_or_default()
    }

    /// The name of a type, if it may be one of these.
    pub(super) fn name_among(&self, of: &Type<'_>, names: &Beginnings) -> Option<&str> {
        names.may_have(self.name_from(of.name)).then(|| self.string(of.name))
    }
}

/// Where the types and the names are.
fn sections(bytes: &[u8]) -> Option<[Range<usize>; 2]> {
    let magic = u16::from_ne_bytes([*bytes.first()?, *bytes.get(1)?]);
    let header = word_at(bytes, 4)? as usize;
    let section = |place: usize| -> Option<Range<usize>> {
        let start = header.checked_add(word_at(bytes, place)? as usize)?;
        let end = start.checked_add(word_at(bytes, place + 4)? as usize)?;
        (end <= bytes.len()).then_some(start..end)
    };
    let is_btf = magic == MAGIC && header >= HEADER_SIZE as usize;
    is_btf.then_some([section(8)?, section(16)?])
}
