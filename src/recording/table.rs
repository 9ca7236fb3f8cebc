//! The tables of a recording: their columns, and how a record becomes a row.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, TimeUnit};

use crate::model::abi::{ROW_FS, ROW_OTHER, ROW_QUEUE, ROW_SYSCALL, ROW_VFS, ROWS};
use crate::model::ids::{Layer, Op, Origin, ReadClass, Row};
use crate::model::record::{
    AsyncCall, Call, Fault, Folder, GivenPath, Kind, Lost, Mark, OpenFile, Request, Sleep, Thread,
};
use crate::model::recording::{Clocks, Meta};
use crate::model::report::slow::{CallPath, Inode, PathKind};

/// The longest text of a cell that a reader accepts, in bytes; counters are exempt.
pub const LONGEST_NAME: usize = 64 << 10;

/// A value of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cell<'a> {
    Null,
    /// Also a flag (0 or 1), and the index of a word.
    Number(u64),
    Signed(i64),
    Text(&'a str),
    /// What no reader accepts: a word or a text that no writer wrote.
    Refused,
}

impl<'a> Cell<'a> {
    fn number(self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(number),
            Self::Signed(number) => u64::try_from(number).ok(),
            Self::Null | Self::Text(_) | Self::Refused => None,
        }
    }

    fn small<T: TryFrom<u64>>(self) -> Option<T> {
        T::try_from(self.number()?).ok()
    }

    fn signed(self) -> Option<i64> {
        match self {
            Self::Signed(number) => Some(number),
            Self::Number(number) => i64::try_from(number).ok(),
            Self::Null | Self::Text(_) | Self::Refused => None,
        }
    }

    fn flag(self) -> Option<bool> {
        Some(self.number()? != 0)
    }

    fn text(self) -> Option<&'a str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// A value that may be missing: the outer `None` is a value of a wrong type.
    #[allow(clippy::option_option)]
    fn maybe<T>(self, read: impl FnOnce(Self) -> Option<T>) -> Option<Option<T>> {
        match self {
            Self::Null => Some(None),
            cell => read(cell).map(Some),
        }
    }
}

fn number(value: impl Into<u64>) -> Cell<'static> {
    Cell::Number(value.into())
}

fn maybe_number(value: Option<u64>) -> Cell<'static> {
    value.map_or(Cell::Null, Cell::Number)
}

fn maybe_text(value: Option<&str>) -> Cell<'_> {
    value.map_or(Cell::Null, Cell::Text)
}

/// The type of a column.
#[derive(Debug, Clone, Copy)]
pub enum Type {
    /// A moment. Cells have it by the programs' clock, files by the wall clock ([`Clocks`]).
    Time,
    U64,
    U32,
    U16,
    I64,
    I32,
    Flag,
    Text,
    /// One of a constant list of words, stored as a dictionary. Cells have its index in the list.
    Word(fn() -> Vec<&'static str>),
}

/// A column of a table with rows of `R`.
pub struct Column<R: 'static> {
    pub name: &'static str,
    pub kind: Type,
    pub get: for<'r> fn(&'r R, &Context) -> Cell<'r>,
    /// Sets a cell of each row ([`set_each`]), after those of the columns before it.
    pub set: fn(&mut [Option<R>], &[Cell<'_>], &Context),
}

/// Sets a cell of each row that is not left out. One is if its cell is not of the type that it should be, or has an unknown
/// word: `set` returns `None` then. Columns are set one after another, since a loop for each is several times as fast
/// as a call for each cell.
fn set_each<R>(
    rows: &mut [Option<R>],
    cells: &[Cell<'_>],
    context: &Context,
    set: impl Fn(&mut R, Cell<'_>, &Context) -> Option<()>,
) {
    for (row, cell) in rows.iter_mut().zip(cells) {
        if let Some(known) = row
            && set(known, *cell, context).is_none()
        {
            *row = None;
        }
    }
}

/// What the rows of one recording have in common.
#[derive(Debug, Clone, Default)]
pub struct Context {
    pub clocks: Clocks,
    /// For each slot of the rows of a call, its index in [`row_words`].
    words_of_slots: Vec<Option<u64>>,
}

impl Context {
    /// Of a recording.
    #[must_use]
    pub fn of(meta: &Meta) -> Self {
        let words = row_words();
        let known = meta.rows.iter().take(ROWS as usize);
        let known = known.map(|name| words.iter().position(|word| word == name).map(|index| index as u64));
        Self {
            clocks: meta.clocks,
            words_of_slots: known.collect(),
        }
    }

    fn word_of_slot(&self, slot: usize) -> Option<u64> {
        *self.words_of_slots.get(slot)?
    }

    fn slot_of_word(&self, word: u64) -> Option<usize> {
        self.words_of_slots.iter().position(|known| *known == Some(word))
    }
}

/// A table.
pub trait Table: Clone + Default + Send + 'static {
    /// Of its file, without `.arrow`.
    const NAME: &'static str;
    /// The kind of records; `None`: it has others.
    const KIND: Option<Kind>;
    const COLUMNS: &'static [Column<Self>];
    /// When it arrived, by the programs' clock: the time by which batches of different tables are ordered.
    fn at_ns(&self) -> u64;

    /// Whether it belongs to a part of the recording.
    fn is_in(&self, part: Bounds) -> bool {
        part.has(self.at_ns())
    }
}

/// A table whose rows have the time of their arrival in a field.
macro_rules! table {
    ($Row:ident, $name:literal, $kind:expr, $columns:ident, $at_ns:ident) => {
        impl Table for $Row {
            const NAME: &'static str = $name;
            const KIND: Option<Kind> = $kind;
            const COLUMNS: &'static [Column<Self>] = $columns;

            fn at_ns(&self) -> u64 {
                self.$at_ns
            }
        }
    };
}

/// A part of a recording, by the programs' clock.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    pub from_ns: u64,
    /// Not included.
    pub to_ns: u64,
    /// The last moment of the recording is in it.
    pub has_end: bool,
}

impl Bounds {
    /// `end_ns`: the end of the recording.
    pub fn new(from_ns: u64, to_ns: u64, end_ns: u64) -> Self {
        let last_ns = end_ns.saturating_sub(1);
        Self {
            from_ns,
            to_ns,
            has_end: (from_ns..to_ns).contains(&last_ns),
        }
    }

    fn has(self, at_ns: u64) -> bool {
        (self.from_ns..self.to_ns).contains(&at_ns)
    }
}

/// The Arrow schema of a table.
#[must_use]
pub fn schema<R: Table>() -> Arc<Schema> {
    let field = |column: &Column<R>| Field::new(column.name, data_type(column.kind), true);
    Arc::new(Schema::new(R::COLUMNS.iter().map(field).collect::<Vec<_>>()))
}

fn data_type(kind: Type) -> DataType {
    match kind {
        Type::Time => DataType::Timestamp(TimeUnit::Nanosecond, Some("UTC".into())),
        Type::U64 => DataType::UInt64,
        Type::U32 => DataType::UInt32,
        Type::U16 => DataType::UInt16,
        Type::I64 => DataType::Int64,
        Type::I32 => DataType::Int32,
        Type::Flag => DataType::Boolean,
        Type::Text => DataType::Utf8,
        Type::Word(_) => DataType::Dictionary(Box::new(DataType::UInt16), Box::new(DataType::Utf8)),
    }
}

/// The names of all rows of a call.
pub fn row_words() -> Vec<&'static str> {
    let layers = Layer::ALL.into_iter().filter(|layer| *layer != Layer::Blk);
    layers.map(Row::Layer).chain(Row::WAITS).map(Row::name).collect()
}

/// The type of a column with the names of a type.
macro_rules! words {
    ($Type:ident) => {
        Type::Word(|| $Type::ALL.map($Type::name).to_vec())
    };
}

/// The word of a value, by the order of `ALL`.
macro_rules! word_of {
    ($Type:ident, $value:expr) => {
        Cell::Number($Type::ALL.iter().position(|known| *known == $value).unwrap_or_default() as u64)
    };
}

fn of_word<T: Copy>(all: &[T], cell: Cell<'_>) -> Option<T> {
    all.get(usize::try_from(cell.number()?).ok()?).copied()
}

/// A column: name, type, how it is read from a row, and how it is set.
macro_rules! column {
    ($name:literal, $kind:expr, |$row:ident| $get:expr, |$to:ident, $cell:ident| $set:expr) => {
        Column {
            name: $name,
            kind: $kind,
            get: |$row, _| $get,
            set: |rows, cells, context| {
                set_each(rows, cells, context, |$to, $cell, _| {
                    $set;
                    Some(())
                });
            },
        }
    };
}

/// A column that is a field: a number, of which `$read` makes the field.
macro_rules! field {
    ($name:literal, $kind:expr, $read:expr, |$row:ident| $field:expr) => {
        column!($name, $kind, |$row| number($field), |$row, cell| $field = $read(cell)?)
    };
}

/// A column that is a field: a number that may be missing.
macro_rules! maybe {
    ($name:literal, $kind:expr, |$row:ident| $field:expr) => {
        column!($name, $kind, |$row| maybe_number($field), |$row, cell| $field =
            cell.maybe(Cell::number)?)
    };
}

/// A column that is a field: a text.
macro_rules! text {
    ($name:literal, |$row:ident| $field:expr) => {
        column!($name, Type::Text, |$row| Cell::Text(&$field), |$row, cell| $field =
            cell.text()?.to_owned())
    };
}

/// A column that is a field: a value that has a name.
macro_rules! word {
    ($name:literal, $Type:ident, |$row:ident| $field:expr) => {
        column!($name, words!($Type), |$row| word_of!($Type, $field), |$row, cell| {
            $field = of_word(&$Type::ALL, cell)?
        })
    };
}

/// A column that is the time from one field to another, which it sets.
macro_rules! duration {
    (|$row:ident| $begin:expr, $end:expr) => {
        column!(
            "duration_ns",
            Type::U64,
            |$row| number($end.saturating_sub($begin)),
            |$row, cell| $end = $begin.saturating_add(cell.number()?)
        )
    };
}

/// The columns of a field `inode`, its number first.
macro_rules! inode {
    ($name:literal) => {
        column!(
            $name,
            Type::U64,
            |r| maybe_number(r.inode.map(|inode| inode.number)),
            |r, c| {
                r.inode = c.maybe(Cell::number)?.map(|number| Inode {
                    number,
                    ..Inode::default()
                });
            }
        )
    };
    ($name:literal, $part:ident) => {
        column!(
            $name,
            Type::U32,
            |r| maybe_number(r.inode.map(|inode| inode.$part.into())),
            |r, c| {
                if let (Some(inode), Some(number)) = (&mut r.inode, c.maybe(Cell::small)?) {
                    inode.$part = number;
                }
            }
        )
    };
}

/// The text of a path that a call was given.
macro_rules! given_path {
    ($name:literal, $which:ident) => {
        column!(
            $name,
            Type::Text,
            |r| maybe_text(given!(r, $which).map(|path| &*path.text)),
            |r, c| {
                if let Some(text) = c.maybe(Cell::text)? {
                    let text = text.to_owned();
                    r.paths.get_or_insert_default().$which = Some(GivenPath { text, base: 0 });
                }
            }
        )
    };
}

/// The directory that such a path starts from; the column of its text precedes it.
macro_rules! given_base {
    ($name:literal, $which:ident) => {
        column!(
            $name,
            Type::U32,
            |r| maybe_number(given!(r, $which).map(|path| path.base.into())),
            |r, c| {
                let path = r.paths.as_deref_mut().and_then(|paths| paths.$which.as_mut());
                if let (Some(base), Some(path)) = (c.maybe(Cell::small)?, path) {
                    path.base = base;
                }
            }
        )
    };
}

macro_rules! given {
    ($call:ident, $which:ident) => {
        $call.paths.as_deref().and_then(|paths| paths.$which.as_ref())
    };
}

/// An argument of a call that has all of them.
macro_rules! argument {
    ($name:literal, $index:literal) => {
        column!(
            $name,
            Type::I64,
            |r| r
                .arguments
                .as_ref()
                .map_or(Cell::Null, |arguments| Cell::Signed(arguments[$index])),
            |r, c| {
                if let Some(argument) = c.maybe(Cell::signed)? {
                    r.arguments.get_or_insert_default()[$index] = argument;
                }
            }
        )
    };
}

impl Table for Call {
    const NAME: &'static str = "calls";
    const KIND: Option<Kind> = Some(Kind::Call);
    const COLUMNS: &'static [Column<Self>] = CALLS;

    fn at_ns(&self) -> u64 {
        self.end_ns.unwrap_or(self.begin_ns)
    }

    /// A call without an end lasted until the end of the recording, however early it began.
    fn is_in(&self, part: Bounds) -> bool {
        self.end_ns.map_or(part.has_end, |end_ns| part.has(end_ns))
    }
}

const CALLS: &[Column<Call>] = &[
    field!("begin", Type::Time, Cell::number, |r| r.begin_ns),
    column!("duration_ns", Type::U64, |r| maybe_number(r.duration_ns()), |r, c| {
        r.end_ns = c.maybe(Cell::number)?.map(|ns| r.begin_ns.saturating_add(ns));
    }),
    field!("pid", Type::U32, Cell::small, |r| r.pid),
    field!("tid", Type::U32, Cell::small, |r| r.tid),
    field!("cpu_begin", Type::U16, Cell::small, |r| r.cpus[0]),
    field!("cpu_end", Type::U16, Cell::small, |r| r.cpus[1]),
    word!("op", Op, |r| r.op),
    column!("value", Type::I64, |r| Cell::Signed(r.value), |r, c| r.value =
        c.signed()?),
    maybe!("offset", Type::U64, |r| r.offset),
    maybe!("size", Type::U64, |r| r.size),
    field!("file", Type::U32, Cell::small, |r| r.files[0]),
    field!("file2", Type::U32, Cell::small, |r| r.files[1]),
    column!(
        "fd",
        Type::I32,
        |r| r.fd.map_or(Cell::Null, |fd| Cell::Signed(fd.into())),
        |r, c| {
            r.fd = c.maybe(|c| i32::try_from(c.signed()?).ok())?;
        }
    ),
    field!("extra", Type::U64, Cell::number, |r| r.extra),
    argument!("arg0", 0),
    argument!("arg1", 1),
    argument!("arg2", 2),
    argument!("arg3", 3),
    argument!("arg4", 4),
    argument!("arg5", 5),
    column!(
        "class",
        words!(ReadClass),
        |r| r.class.map_or(Cell::Null, |class| word_of!(ReadClass, class)),
        |r, c| r.class = c.maybe(|c| of_word(&ReadClass::ALL, c))?
    ),
    field!("direct", Type::Flag, Cell::flag, |r| r.is_direct),
    field!("is_32bit", Type::Flag, Cell::flag, |r| r.is_32bit),
    field!("syscall_ns", Type::U64, Cell::number, |r| r.rows[ROW_SYSCALL as usize]),
    field!("vfs_ns", Type::U64, Cell::number, |r| r.rows[ROW_VFS as usize]),
    Column {
        name: "file_system",
        kind: Type::Word(row_words),
        get: |r, context| maybe_number(file_system(r).and_then(|slot| context.word_of_slot(slot))),
        set: |rows, cells, context| {
            set_each(rows, cells, context, |r, c, context| {
                if let Some(slot) = c.maybe(|c| context.slot_of_word(c.number()?))? {
                    // Marks the row whose time the next column has.
                    *r.rows.get_mut(slot)? = 1;
                }
                Some(())
            });
        },
    },
    column!(
        "file_system_ns",
        Type::U64,
        |r| maybe_number(file_system(r).map(|slot| r.rows[slot])),
        |r, c| {
            if let (Some(ns), Some(slot)) = (c.maybe(Cell::number)?, file_system(r)) {
                r.rows[slot] = ns;
            }
        }
    ),
    given_path!("path", first),
    given_base!("path_base", first),
    given_path!("path2", second),
    given_base!("path2_base", second),
];

/// The row of the first file system in which the call spent time.
fn file_system(call: &Call) -> Option<usize> {
    (ROW_FS as usize..ROW_QUEUE as usize).find(|slot| call.rows[*slot] > 0)
}

/// A row of a call that the table of calls has no column for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Wait {
    /// The call's row in the table of calls of the same segment, from 0.
    pub call: u64,
    /// Index in [`Call::rows`].
    pub slot: usize,
    pub ns: u64,
    /// When the call ended.
    pub at_ns: u64,
}

impl Wait {
    /// Those of a call.
    pub fn of(call: &Call, index: u64) -> impl Iterator<Item = Self> {
        let at_ns = call.at_ns();
        let file_system = file_system(call);
        let has_column =
            move |slot| slot == ROW_SYSCALL as usize || slot == ROW_VFS as usize || Some(slot) == file_system;
        let others = call.rows.iter().copied().enumerate();
        let others = others.filter(move |(slot, ns)| *ns > 0 && !has_column(*slot));
        others.map(move |(slot, ns)| Self {
            call: index,
            slot,
            ns,
            at_ns,
        })
    }
}

table!(Wait, "waits", None, WAITS, at_ns);

const WAITS: &[Column<Wait>] = &[
    field!("call", Type::U64, Cell::number, |r| r.call),
    Column {
        name: "row",
        kind: Type::Word(row_words),
        get: |r, context| maybe_number(context.word_of_slot(r.slot)),
        set: |rows, cells, context| {
            set_each(rows, cells, context, |r, c, context| {
                r.slot = context.slot_of_word(c.number()?)?;
                Some(())
            });
        },
    },
    field!("ns", Type::U64, Cell::number, |r| r.ns),
];

table!(Request, "requests", Some(Kind::Request), REQUESTS, ended_ns);

const REQUESTS: &[Column<Request>] = &[
    field!("ended", Type::Time, Cell::number, |r| r.ended_ns),
    maybe!("submitted", Type::Time, |r| r.submitted_ns),
    maybe!("started", Type::Time, |r| r.started_ns),
    maybe!("issued", Type::Time, |r| r.issued_ns),
    field!("disk_major", Type::U32, Cell::small, |r| r.disk[0]),
    field!("disk_minor", Type::U32, Cell::small, |r| r.disk[1]),
    field!("partition_major", Type::U32, Cell::small, |r| r.partition[0]),
    field!("partition_minor", Type::U32, Cell::small, |r| r.partition[1]),
    field!("sector", Type::U64, Cell::number, |r| r.sector),
    field!("bytes", Type::U64, Cell::number, |r| r.bytes),
    word!("op", Op, |r| r.op),
    field!("flags", Type::U32, Cell::small, |r| r.flags),
    field!("sync", Type::Flag, Cell::flag, |r| r.is_sync),
    field!("meta", Type::Flag, Cell::flag, |r| r.is_meta),
    field!("readahead", Type::Flag, Cell::flag, |r| r.is_readahead),
    field!("fua", Type::Flag, Cell::flag, |r| r.is_fua),
    field!("preflush", Type::Flag, Cell::flag, |r| r.is_preflush),
    field!("errno", Type::U32, Cell::small, |r| r.errno),
    field!("pid", Type::U32, Cell::small, |r| r.pid),
    field!("tid", Type::U32, Cell::small, |r| r.tid),
    word!("origin", Origin, |r| r.origin),
    inode!("inode"),
    inode!("inode_major", major),
    inode!("inode_minor", minor),
    field!("cpu", Type::U16, Cell::small, |r| r.cpu),
];

table!(Sleep, "sleeps", Some(Kind::Sleep), SLEEPS, in_ns);

const SLEEPS: &[Column<Sleep>] = &[
    field!("begin", Type::Time, Cell::number, |r| r.out_ns),
    duration!(|r| r.out_ns, r.in_ns),
    column!(
        "woken_after_ns",
        Type::U64,
        |r| maybe_number(r.woken_ns.map(|ns| ns.saturating_sub(r.out_ns))),
        |r, c| {
            r.woken_ns = c.maybe(Cell::number)?.map(|ns| r.out_ns.saturating_add(ns));
        }
    ),
    field!("tid", Type::U32, Cell::small, |r| r.tid),
    Column {
        name: "row",
        kind: Type::Word(row_words),
        get: |r, context| maybe_number(context.word_of_slot(r.row.into())),
        set: |rows, cells, context| {
            set_each(rows, cells, context, |r, c, context| {
                // A sleep without a row, which only a run with other rows has, is one for something else.
                r.row = match c {
                    Cell::Null => ROW_OTHER as u8,
                    c => u8::try_from(context.slot_of_word(c.number()?)?).ok()?,
                };
                Some(())
            });
        },
    },
    field!("waker_pid", Type::U32, Cell::small, |r| r.waker_pid),
    field!("waker_tid", Type::U32, Cell::small, |r| r.waker_tid),
    field!("cpu_begin", Type::U16, Cell::small, |r| r.cpus[0]),
    field!("cpu_end", Type::U16, Cell::small, |r| r.cpus[1]),
];

table!(AsyncCall, "async", Some(Kind::Async), ASYNC, end_ns);

const ASYNC: &[Column<AsyncCall>] = &[
    field!("begin", Type::Time, Cell::number, |r| r.begin_ns),
    duration!(|r| r.begin_ns, r.end_ns),
    field!("attempts_ended", Type::Time, Cell::number, |r| r.attempt_end_ns),
    field!("pid", Type::U32, Cell::small, |r| r.pid),
    field!("tid", Type::U32, Cell::small, |r| r.tid),
    word!("op", Op, |r| r.op),
    field!("key", Type::U64, Cell::number, |r| r.key),
    field!("file", Type::U32, Cell::small, |r| r.file),
    maybe!("offset", Type::U64, |r| r.offset),
    maybe!("size", Type::U64, |r| r.size),
    column!("value", Type::I64, |r| Cell::Signed(r.value), |r, c| r.value =
        c.signed()?),
    field!("context", Type::U64, Cell::number, |r| r.context),
    field!("flags", Type::U32, Cell::small, |r| r.flags),
    field!("attempts", Type::U32, Cell::small, |r| r.attempts),
    field!("aio", Type::Flag, Cell::flag, |r| r.is_aio),
    field!("direct", Type::Flag, Cell::flag, |r| r.is_direct),
];

table!(Fault, "faults", Some(Kind::Fault), FAULTS, end_ns);

const FAULTS: &[Column<Fault>] = &[
    field!("begin", Type::Time, Cell::number, |r| r.begin_ns),
    duration!(|r| r.begin_ns, r.end_ns),
    field!("pid", Type::U32, Cell::small, |r| r.pid),
    field!("tid", Type::U32, Cell::small, |r| r.tid),
    word!("layer", Layer, |r| r.layer),
    field!("file", Type::U32, Cell::small, |r| r.file),
    field!("offset", Type::U64, Cell::number, |r| r.offset),
    field!("write", Type::Flag, Cell::flag, |r| r.is_write),
    field!("errno", Type::U32, Cell::small, |r| r.errno),
];

table!(OpenFile, "files", Some(Kind::File), FILES, at_ns);

const FILES: &[Column<OpenFile>] = &[
    field!("file", Type::U32, Cell::small, |r| r.number),
    field!("at", Type::Time, Cell::number, |r| r.at_ns),
    column!(
        "path",
        Type::Text,
        |r| maybe_text(r.path.as_ref().map(|path| &*path.text)),
        |r, c| {
            r.path = c.maybe(Cell::text)?.map(CallPath::whole);
        }
    ),
    column!(
        "path_kind",
        words!(PathKind),
        |r| r.path.as_ref().map_or(Cell::Null, |path| word_of!(PathKind, path.kind)),
        |r, c| if let (Some(kind), Some(path)) = (c.maybe(|c| of_word(&PathKind::ALL, c))?, &mut r.path) {
            path.kind = kind;
        }
    ),
    inode!("inode"),
    inode!("inode_major", major),
    inode!("inode_minor", minor),
    field!("generation", Type::U32, Cell::small, |r| r.generation),
    field!("mode", Type::U32, Cell::small, |r| r.mode),
    field!("links", Type::U32, Cell::small, |r| r.links),
    field!("size", Type::U64, Cell::number, |r| r.size),
    field!("blocks", Type::U64, Cell::number, |r| r.blocks),
    field!("flags", Type::U32, Cell::small, |r| r.flags),
    field!("position", Type::U64, Cell::number, |r| r.position),
    field!("mount", Type::U32, Cell::small, |r| r.mount),
    text!("file_system", |r| r.file_system),
    column!(
        "found_pid",
        Type::U32,
        |r| maybe_number(r.found_at.map(|(pid, _)| pid.into())),
        |r, c| {
            r.found_at = c.maybe(Cell::small)?.map(|pid| (pid, -1));
        }
    ),
    column!(
        "found_fd",
        Type::I32,
        |r| r.found_at.map_or(Cell::Null, |(_, fd)| Cell::Signed(fd.into())),
        |r, c| {
            if let (Some(fd), Some(found)) = (c.maybe(Cell::signed)?, &mut r.found_at) {
                found.1 = i32::try_from(fd).ok()?;
            }
        }
    ),
];

table!(Folder, "folders", Some(Kind::Folder), FOLDERS, at_ns);

const FOLDERS: &[Column<Folder>] = &[
    field!("pid", Type::U32, Cell::small, |r| r.pid),
    field!("at", Type::Time, Cell::number, |r| r.at_ns),
    field!("root", Type::Flag, Cell::flag, |r| r.is_root),
    text!("path", |r| r.path),
];

table!(Thread, "processes", Some(Kind::Thread), PROCESSES, at_ns);

const PROCESSES: &[Column<Thread>] = &[
    field!("pid", Type::U32, Cell::small, |r| r.pid),
    field!("tid", Type::U32, Cell::small, |r| r.tid),
    field!("at", Type::Time, Cell::number, |r| r.at_ns),
    field!("parent", Type::U32, Cell::small, |r| r.parent),
    field!("started_ns", Type::U64, Cell::number, |r| r.started_ns),
    text!("comm", |r| r.comm),
    field!("uid", Type::U32, Cell::small, |r| r.uid),
    field!("cgroup", Type::U64, Cell::number, |r| r.cgroup),
    text!("exe", |r| r.exe),
    text!("command", |r| r.command),
    field!("ended", Type::Flag, Cell::flag, |r| r.has_ended),
];

table!(Lost, "lost", None, LOST, to_ns);

const LOST: &[Column<Lost>] = &[
    field!("cpu", Type::U16, Cell::small, |r| r.cpu),
    word!("kind", Kind, |r| r.kind),
    field!("records", Type::U64, Cell::number, |r| r.records),
    field!("first", Type::Time, Cell::number, |r| r.from_ns),
    field!("last", Type::Time, Cell::number, |r| r.to_ns),
];

table!(Mark, "marks", None, MARKS, at_ns);

const MARKS: &[Column<Mark>] = &[
    field!("at", Type::Time, Cell::number, |r| r.at_ns),
    text!("text", |r| r.text),
];

/// The counters at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Second {
    pub at_ns: u64,
    /// The length of the interval that ends here; 0: the counters at the start of a segment.
    pub span_ns: u64,
    /// Calls and requests counted in it.
    pub calls: u64,
    pub requests: u64,
    /// A [`Snapshot`](crate::model::snapshot::Snapshot) as JSON.
    pub counters: String,
}

table!(Second, "seconds", None, SECONDS, at_ns);

const SECONDS: &[Column<Second>] = &[
    field!("end", Type::Time, Cell::number, |r| r.at_ns),
    field!("duration_ns", Type::U64, Cell::number, |r| r.span_ns),
    field!("calls", Type::U64, Cell::number, |r| r.calls),
    field!("requests", Type::U64, Cell::number, |r| r.requests),
    text!("counters", |r| r.counters),
];
