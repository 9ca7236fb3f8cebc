//! Reads JSON objects by the names of their fields: `objects!` maps the names of each type to its fields, and one
//! reader serves all types. serde would derive a reader for each, which multiplies its size in the executable.
//!
//! Fields missing from an object keep their defaults, and unknown names are skipped. So reports of earlier and later
//! versions can be read as far as they are understood.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor};
use serde::{Serialize, Serializer};

/// Limits the memory for elements of lists: their number is chosen by the input, and an element of a few characters may
/// take hundreds of bytes. The longest line that is a valid report takes less.
const ROOM: usize = 96 << 20;

/// The destination of a value.
pub enum Slot<'a> {
    Number(&'a mut u64),
    Short(&'a mut u32),
    Flag(&'a mut bool),
    Text(&'a mut String),
    /// Null leaves it empty.
    Maybe(&'a mut dyn Maybe),
    /// A list, and the size of an element in bytes.
    List(&'a mut dyn List, usize),
    /// Values by arbitrary names, and the size of an element.
    Names(&'a mut dyn Names, usize),
    Object(&'a mut dyn Object),
}

/// A type that can be read.
pub trait Value {
    fn slot(&mut self) -> Slot<'_>;
}

/// A type with named fields.
pub trait Object {
    fn field(&mut self, name: &str) -> Option<Slot<'_>>;
}

/// A value that may be null.
pub trait Maybe {
    /// The destination of a value that is not null.
    fn some(&mut self) -> Slot<'_>;
}

/// A list of values.
pub trait List {
    /// The destination of one more element.
    fn more(&mut self) -> Slot<'_>;
}

/// Values by name.
pub trait Names {
    /// The destination of one more value.
    fn named(&mut self, name: String) -> Slot<'_>;
}

/// Values by name, in their original order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Named<T>(pub Vec<(String, T)>);

impl<T> Named<T> {
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&T> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value)
    }
}

impl<T: Serialize> Serialize for Named<T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// Implements [`Object`], and what all of them need, for structs whose fields are [`Value`]s.
macro_rules! objects {
    ($(
        $(#[$on:meta])*
        pub struct $Type:ident {
            $($(#[$on_field:meta])* pub $field:ident: $Field:ty,)*
        }
    )*) => {$(
        #[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
        $(#[$on])*
        pub struct $Type {
            $($(#[$on_field])* pub $field: $Field,)*
        }

        impl $crate::model::object::Object for $Type {
            fn field(&mut self, name: &str) -> Option<$crate::model::object::Slot<'_>> {
                match name {
                    $(stringify!($field) => Some($crate::model::object::Value::slot(&mut self.$field)),)*
                    _ => None,
                }
            }
        }

        impl $crate::model::object::Value for $Type {
            fn slot(&mut self) -> $crate::model::object::Slot<'_> {
                $crate::model::object::Slot::Object(self)
            }
        }
    )*};
}

pub(crate) use objects;

/// Reads an object, which must have the required fields.
///
/// # Errors
/// If it is not of this type, or larger than a run can produce.
pub fn read<'de, T: Value + Default, D: Deserializer<'de>>(
    from: D,
    required: &'static [&'static str],
) -> Result<T, D::Error> {
    let mut value = T::default();
    let reader = Reader {
        slot: value.slot(),
        required,
        room: &Cell::new(ROOM),
    };
    reader.deserialize(from)?;
    Ok(value)
}

macro_rules! values {
    ($($Type:ty => $Slot:ident,)*) => {$(
        impl Value for $Type {
            fn slot(&mut self) -> Slot<'_> {
                Slot::$Slot(self)
            }
        }
    )*};
}

values! {
    u64 => Number,
    u32 => Short,
    bool => Flag,
    String => Text,
}

impl<T: Value + Default> Value for Option<T> {
    fn slot(&mut self) -> Slot<'_> {
        Slot::Maybe(self)
    }
}

impl<T: Value + Default> Maybe for Option<T> {
    fn some(&mut self) -> Slot<'_> {
        self.insert(T::default()).slot()
    }
}

impl<T: Value + Default> Value for Vec<T> {
    fn slot(&mut self) -> Slot<'_> {
        Slot::List(self, size_of::<T>())
    }
}

impl<T: Value + Default> List for Vec<T> {
    fn more(&mut self) -> Slot<'_> {
        self.push(T::default());
        let last = self.len() - 1;
        self[last].slot()
    }
}

impl<T: Value + Default> Value for Named<T> {
    fn slot(&mut self) -> Slot<'_> {
        Slot::Names(self, size_of::<(String, T)>())
    }
}

impl<T: Value + Default> Names for Named<T> {
    fn named(&mut self, name: String) -> Slot<'_> {
        self.0.push((name, T::default()));
        let last = self.0.len() - 1;
        self.0[last].1.slot()
    }
}

impl Slot<'_> {
    fn expected(&self) -> &'static str {
        match self {
            Self::Number(_) | Self::Short(_) => "a whole number",
            Self::Flag(_) => "true or false",
            Self::Text(_) => "a string",
            Self::Maybe(_) => "a value or null",
            Self::List(..) => "a list",
            Self::Names(..) | Self::Object(_) => "an object",
        }
    }
}

/// Reads one value.
struct Reader<'a> {
    slot: Slot<'a>,
    /// Fields that an object must have.
    required: &'static [&'static str],
    /// Bytes left for elements of lists.
    room: &'a Cell<usize>,
}

impl<'a> Reader<'a> {
    /// A reader for a nested value.
    fn inside(slot: Slot<'a>, room: &'a Cell<usize>) -> Self {
        Self {
            slot,
            required: &[],
            room,
        }
    }

    /// The destination of a value that is not null.
    fn some(self) -> Slot<'a> {
        match self.slot {
            Slot::Maybe(value) => value.some(),
            slot => slot,
        }
    }
}

fn take<E: Error>(room: &Cell<usize>, size: usize) -> Result<(), E> {
    let left = room.get().checked_sub(size);
    room.set(left.ok_or_else(|| E::custom("too many groups, rows or histogram steps"))?);
    Ok(())
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.slot.expected())
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        match self.slot {
            Slot::Maybe(_) => Ok(()),
            slot => Err(E::invalid_type(Unexpected::Unit, &slot.expected())),
        }
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        match self.some() {
            Slot::Flag(to) => *to = value,
            slot => return Err(E::invalid_type(Unexpected::Bool(value), &slot.expected())),
        }
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        let unexpected = Unexpected::Unsigned(value);
        match self.some() {
            Slot::Number(to) => *to = value,
            Slot::Short(to) => *to = u32::try_from(value).map_err(|_| E::invalid_value(unexpected, &"32 bits"))?,
            slot => return Err(E::invalid_type(unexpected, &slot.expected())),
        }
        Ok(())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        match self.some() {
            Slot::Text(to) => value.clone_into(to),
            slot => return Err(E::invalid_type(Unexpected::Str(value), &slot.expected())),
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<(), A::Error> {
        let room = self.room;
        let (list, size) = match self.some() {
            Slot::List(list, size) => (list, size),
            slot => return Err(A::Error::invalid_type(Unexpected::Seq, &slot.expected())),
        };
        while from
            .next_element_seed(More {
                list: &mut *list,
                size,
                room,
            })?
            .is_some()
        {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<(), A::Error> {
        let (room, mut missing) = (self.room, self.required.to_vec());
        let mut slot = self.some();
        if !matches!(slot, Slot::Object(_) | Slot::Names(..)) {
            return Err(A::Error::invalid_type(Unexpected::Map, &slot.expected()));
        }
        while let Some(name) = from.next_key::<String>()? {
            missing.retain(|required| *required != name);
            let field = match &mut slot {
                Slot::Object(object) => object.field(&name),
                Slot::Names(names, size) => {
                    take(room, *size)?;
                    Some(names.named(name))
                }
                _ => None,
            };
            match field {
                Some(field) => from.next_value_seed(Reader::inside(field, room))?,
                None => drop(from.next_value::<IgnoredAny>()?),
            }
        }
        match missing.first() {
            Some(name) => Err(A::Error::missing_field(name)),
            None => Ok(()),
        }
    }
}

/// Reads one more element, if there is one.
struct More<'a> {
    list: &'a mut dyn List,
    size: usize,
    room: &'a Cell<usize>,
}

impl<'de> DeserializeSeed<'de> for More<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        take(self.room, self.size)?;
        Reader::inside(self.list.more(), self.room).deserialize(from)
    }
}
