//! Extracts the part of the kernel's BTF against which programs are relocated.
//!
//! libbpf searches the kernel's types, a hundred thousand and more, for each type that a program reads, and those of
//! every module for types that this kernel does not have. With only the needed types it takes a tenth of the time.

use std::collections::{BTreeSet, HashMap};

use libbpf_sys as sys;

use super::image::{HEADER_SIZE, Image, MAGIC};
use super::{Btf, KIND_CONST, KIND_ENUM, KIND_PTR, KIND_STRUCT, KIND_TYPEDEF};

const VERSION: u8 = 1;

impl Btf<'_> {
    /// BTF of the types with these names and of all types that they contain, in the kernel's layout. Types behind
    /// pointers are left out, since they do not affect it.
    #[must_use]
    pub fn excerpt(&self, names: &BTreeSet<&str>) -> Vec<u8> {
        let image = &self.image;
        let mut excerpt = Excerpt {
            image,
            types: Vec::new(),
            names: Vec::new(),
            numbers: HashMap::new(),
            order: Vec::new(),
            pointer: None,
        };
        for (id, kind, name) in image.wanted_types() {
            let is_whole = matches!(
                kind.kind(),
                KIND_STRUCT | sys::BTF_KIND_UNION | KIND_ENUM | sys::BTF_KIND_ENUM64 | KIND_TYPEDEF
            );
            if is_whole && names.contains(essential(name)) {
                excerpt.number_of(id);
            }
        }
        let mut next = 0;
        while let Some(&id) = excerpt.order.get(next) {
            excerpt.write(id);
            next += 1;
        }
        excerpt.finish()
    }
}

/// A type's name without the flavour after three underscores, which libbpf ignores.
#[must_use]
pub fn essential(name: &str) -> &str {
    // Asked of thousands of names: preparing a search for text takes longer than this.
    match name.as_bytes().windows(3).rposition(|three| three == b"___") {
        Some(end) if end > 0 => &name[..end],
        _ => name,
    }
}

struct Excerpt<'a> {
    image: &'a Image<'a>,
    types: Vec<u8>,
    /// The positions to fill in with new offsets of names, by the kernel's offset of each name.
    names: Vec<(u32, usize)>,
    /// New type numbers by the kernel's.
    numbers: HashMap<u32, u32>,
    /// The kernel's type numbers, in the new order.
    order: Vec<u32>,
    /// The type that replaces all pointers.
    pointer: Option<u32>,
}

impl Excerpt<'_> {
    /// The new number of a type, which is assigned if it has none.
    fn number_of(&mut self, id: u32) -> u32 {
        let Some(kind) = self.image.type_at(id).filter(|_| id != 0) else {
            return 0;
        };
        if let Some(&number) = self.numbers.get(&id) {
            return number;
        }
        let is_pointer = kind.kind() == KIND_PTR;
        if let Some(number) = self.pointer.filter(|_| is_pointer) {
            return number;
        }
        self.order.push(id);
        let number = self.order.len() as u32;
        self.numbers.insert(id, number);
        if is_pointer {
            self.pointer = Some(number);
        }
        number
    }

    /// Appends words without a name.
    fn words(&mut self, words: &[u32]) {
        if words[0] != 0 {
            self.names.push((words[0], self.types.len()));
        }
        self.numbers_only(words);
    }

    fn numbers_only(&mut self, words: &[u32]) {
        self.types.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    }

    fn write(&mut self, id: u32) {
        let Some(kind) = self.image.type_at(id) else { return };
        let (name, size_or_type) = (kind.name, kind.size_or_type);
        match kind.kind() {
            sys::BTF_KIND_INT => {
                self.words(&[name, kind.info, size_or_type]);
                kind.rows::<1>().for_each(|encoding| self.numbers_only(&encoding));
            }
            sys::BTF_KIND_ARRAY => {
                self.words(&[name, kind.info, size_or_type]);
                for [element, index, count] in kind.rows() {
                    let (element, index) = (self.number_of(element), self.number_of(index));
                    self.numbers_only(&[element, index, count]);
                }
            }
            KIND_STRUCT | sys::BTF_KIND_UNION => {
                self.words(&[name, kind.info, size_or_type]);
                for [name, of, offset] in kind.rows() {
                    let of = self.number_of(of);
                    self.words(&[name, of, offset]);
                }
            }
            KIND_ENUM => {
                self.words(&[name, kind.info, size_or_type]);
                kind.rows::<2>().for_each(|value| self.words(&value));
            }
            sys::BTF_KIND_ENUM64 => {
                self.words(&[name, kind.info, size_or_type]);
                kind.rows::<3>().for_each(|value| self.words(&value));
            }
            KIND_TYPEDEF | KIND_CONST | sys::BTF_KIND_VOLATILE | sys::BTF_KIND_RESTRICT | sys::BTF_KIND_TYPE_TAG => {
                let of = self.number_of(size_or_type);
                self.words(&[name, kind.info, of]);
            }
            sys::BTF_KIND_FWD | sys::BTF_KIND_FLOAT => self.words(&[name, kind.info, size_or_type]),
            // A pointer to void. Types that cannot be part of a structure are replaced by it as well.
            _ => self.words(&[0, KIND_PTR << 24, 0]),
        }
    }

    fn finish(mut self) -> Vec<u8> {
        self.names.sort_unstable();
        let mut offsets: Vec<u32> = self.names.iter().map(|(offset, _)| *offset).collect();
        offsets.dedup();
        let mut names = vec![0];
        let mut uses = self.names.iter().peekable();
        self.image.each_string(&offsets, &mut |offset, name| {
            let here = (names.len() as u32).to_le_bytes();
            while let Some((_, at)) = uses.next_if(|(of, _)| *of == offset) {
                self.types[*at..at + here.len()].copy_from_slice(&here);
            }
            names.extend(name.as_bytes());
            names.push(0);
        });
        let (types, strings) = (self.types.len() as u32, names.len() as u32);
        let mut bytes = Vec::with_capacity(HEADER_SIZE as usize + self.types.len() + names.len());
        bytes.extend(MAGIC.to_le_bytes());
        bytes.extend([VERSION, 0]);
        for word in [HEADER_SIZE, 0, types, types, strings] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.extend(self.types);
        bytes.extend(names);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::image::Type;
    use super::super::tests::{into_bytes, kernel_like, of_bytes};
    use super::*;
    use crate::fuzz;

    /// A structure with all kinds of members, and one that it points to.
    fn kernel() -> Vec<u8> {
        // SAFETY: all strings end with a zero, and all numbers of types are of types that were added before.
        unsafe {
            let btf = sys::btf__new_empty();
            let int = sys::btf__add_int(btf, c"int".as_ptr(), 4, sys::BTF_INT_SIGNED as i32);
            let far = sys::btf__add_struct(btf, c"far".as_ptr(), 4);
            sys::btf__add_field(btf, c"unseen".as_ptr(), int, 0, 0);
            let near = sys::btf__add_union(btf, c"near".as_ptr(), 4);
            sys::btf__add_field(btf, c"seen".as_ptr(), int, 0, 0);
            let array = sys::btf__add_array(btf, int, near, 3);
            let constant = sys::btf__add_const(btf, array);
            let pointer = sys::btf__add_ptr(btf, far);
            let other = sys::btf__add_ptr(btf, int);
            sys::btf__add_struct(btf, c"task_struct".as_ptr(), 32);
            sys::btf__add_field(btf, c"far".as_ptr(), pointer, 0, 0);
            sys::btf__add_field(btf, c"other".as_ptr(), other, 64, 0);
            sys::btf__add_field(btf, c"all".as_ptr(), constant, 128, 0);
            sys::btf__add_enum64(btf, c"flags".as_ptr(), 8, false);
            sys::btf__add_enum64_value(btf, c"LARGE".as_ptr(), 1 << 40);
            into_bytes(btf)
        }
    }

    fn named<'a>(btf: &'a Btf<'_>, name: &str) -> Option<Type<'a>> {
        let mut all = (1..).map_while(|id| btf.image.type_at(id));
        all.find(|kind| btf.image.string(kind.name) == name)
    }

    #[test]
    fn a_type_comes_with_all_that_is_inside_it() {
        let whole = of_bytes(&kernel(), &[], &["task_struct", "flags", "absent"]).unwrap();
        let bytes = whole.excerpt(&BTreeSet::from(["task_struct", "flags", "absent"]));
        let part = of_bytes(&bytes, &[], &[]).unwrap();
        let task = named(&part, "task_struct").unwrap();
        let members: Vec<[u32; 3]> = task.rows().collect();
        let reported: Vec<_> = members
            .iter()
            .map(|[name, _, at]| (part.image.string(*name), *at))
            .collect();
        assert_eq!(
            reported,
            [("far", 0), ("other", 64), ("all", 128)].map(|(name, at)| (name.to_owned(), at))
        );
        assert_eq!(members[0][1], members[1][1], "one pointer stands for all");
        assert!(named(&part, "near").is_some() && named(&part, "far").is_none());
        assert_eq!(task.size_or_type, 32);
        assert!(named(&part, "flags").is_some());
        // SAFETY: libbpf copies the bytes, and frees what it made of them.
        let size = unsafe {
            let btf = sys::btf__new(bytes.as_ptr().cast(), bytes.len() as u32);
            assert!(!btf.is_null(), "libbpf reads it, too");
            let size = sys::btf__resolve_size(btf, members[2][1]);
            sys::btf__free(btf);
            size
        };
        assert_eq!(size, 12);
    }

    #[test]
    fn flavours_are_the_type_itself() {
        let reported = ["file", "kiocb___deferred", "a___b___c", "___x", ""].map(essential);
        assert_eq!(reported, ["file", "kiocb", "a___b", "___x", ""]);
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn of_any_bytes_there_is_one_that_can_be_read(bytes in fuzz::bytes_like([kernel(), kernel_like()].concat())) {
            libbpf_rs::set_print(None);
            if let Some(btf) = of_bytes(&bytes, &[], &["task_struct", "flags", ""]) {
                let _ = btf.excerpt(&BTreeSet::from(["task_struct", "flags", ""]));
            }
        }
    }
}
