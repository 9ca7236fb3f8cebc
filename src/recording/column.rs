//! Rows as Arrow arrays, and back.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::builder::{StringBuilder, UInt16Builder};
use arrow_array::types::{
    ArrowPrimitiveType, Int32Type, Int64Type, TimestampNanosecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, BooleanArray, DictionaryArray, PrimitiveArray, RecordBatch, StringArray, UInt16Array,
};
use arrow_schema::{ArrowError, Schema};

use super::table::{Cell, Column, Context, LONGEST_NAME, Second, Table, Type};

/// The dictionaries of a table, made once for each file: a file may not replace one.
pub struct Dictionaries(Vec<Option<ArrayRef>>);

impl Dictionaries {
    pub fn of<R: Table>() -> Self {
        let words = R::COLUMNS.iter().map(|column| match column.kind {
            Type::Word(words) => Some(Arc::new(StringArray::from(words())) as ArrayRef),
            _ => None,
        });
        Self(words.collect())
    }
}

/// The rows as a batch.
///
/// # Errors
/// Only if a text is too large for a batch.
pub fn batch<R: Table>(
    rows: &[R],
    schema: &Arc<Schema>,
    dictionaries: &Dictionaries,
    context: &Context,
) -> Result<RecordBatch, ArrowError> {
    let columns = R::COLUMNS.iter().zip(&dictionaries.0);
    let arrays = columns.map(|(column, words)| array(rows, column, words.as_ref(), context));
    RecordBatch::try_new(Arc::clone(schema), arrays.collect::<Result<_, _>>()?)
}

fn array<R: Table>(
    rows: &[R],
    column: &Column<R>,
    words: Option<&ArrayRef>,
    context: &Context,
) -> Result<ArrayRef, ArrowError> {
    let cells = rows.iter().map(|row| (column.get)(row, context));
    Ok(match column.kind {
        Type::Time => {
            let clocks = context.clocks;
            let moments = cells.map(|cell| number(cell).map(|at| clocks.wall_ns(at)));
            let moments: PrimitiveArray<TimestampNanosecondType> = moments.collect();
            Arc::new(moments.with_timezone("UTC"))
        }
        Type::U64 => numbers::<UInt64Type, _>(cells.map(number)),
        Type::U32 => numbers::<UInt32Type, _>(cells.map(|cell| Some(number(cell)? as u32))),
        Type::U16 => numbers::<UInt16Type, _>(cells.map(|cell| Some(number(cell)? as u16))),
        Type::I64 => numbers::<Int64Type, _>(cells.map(signed)),
        Type::I32 => numbers::<Int32Type, _>(cells.map(|cell| Some(signed(cell)? as i32))),
        Type::Flag => Arc::new(
            cells
                .map(|cell| number(cell).map(|flag| flag != 0))
                .collect::<BooleanArray>(),
        ),
        Type::Text => {
            let mut texts = StringBuilder::with_capacity(rows.len(), 0);
            for cell in cells {
                texts.append_option(if let Cell::Text(text) = cell { Some(text) } else { None });
            }
            Arc::new(texts.finish())
        }
        Type::Word(_) => {
            let mut keys = UInt16Builder::with_capacity(rows.len());
            for cell in cells {
                keys.append_option(number(cell).map(|index| index as u16));
            }
            let words = words.ok_or_else(|| ArrowError::SchemaError(format!("no words of {}", column.name)))?;
            Arc::new(DictionaryArray::<UInt16Type>::try_new(
                keys.finish(),
                Arc::clone(words),
            )?)
        }
    })
}

fn number(cell: Cell<'_>) -> Option<u64> {
    match cell {
        Cell::Number(number) => Some(number),
        _ => None,
    }
}

fn signed(cell: Cell<'_>) -> Option<i64> {
    match cell {
        Cell::Signed(number) => Some(number),
        _ => None,
    }
}

fn numbers<T: ArrowPrimitiveType, I: Iterator<Item = Option<T::Native>>>(values: I) -> ArrayRef {
    Arc::new(values.collect::<PrimitiveArray<T>>())
}

/// Rows whose columns are set before those of others, so that they stay in the cache of the CPU meanwhile: a call has some
/// 300 bytes.
const ROWS_AT_ONCE: usize = 64;

/// What a batch of a file has for a column that is known.
enum Source<'a> {
    Time(&'a PrimitiveArray<TimestampNanosecondType>),
    U64(&'a PrimitiveArray<UInt64Type>),
    U32(&'a PrimitiveArray<UInt32Type>),
    U16(&'a PrimitiveArray<UInt16Type>),
    I64(&'a PrimitiveArray<Int64Type>),
    I32(&'a PrimitiveArray<Int32Type>),
    Flag(&'a BooleanArray),
    Text(&'a StringArray),
    /// For each of the file's words its index among the known ones.
    Word(&'a UInt16Array, Vec<Option<u64>>),
    SmallWord(&'a PrimitiveArray<UInt8Type>, Vec<Option<u64>>),
}

impl Source<'_> {
    /// Appends the cell of each of these rows. A text that is longer than `longest` bytes is refused.
    fn cells<'a>(&'a self, rows: Range<usize>, longest: usize, context: &Context, cells: &mut Vec<Cell<'a>>) {
        let number = Cell::Number;
        let signed = Cell::Signed;
        match self {
            Self::Time(array) => each(*array, rows, cells, |row| {
                number(context.clocks.monotonic_ns(array.value(row)))
            }),
            Self::U64(array) => each(*array, rows, cells, |row| number(array.value(row))),
            Self::U32(array) => each(*array, rows, cells, |row| number(array.value(row).into())),
            Self::U16(array) => each(*array, rows, cells, |row| number(array.value(row).into())),
            Self::I64(array) => each(*array, rows, cells, |row| signed(array.value(row))),
            Self::I32(array) => each(*array, rows, cells, |row| signed(array.value(row).into())),
            Self::Flag(array) => each(*array, rows, cells, |row| number(array.value(row).into())),
            Self::Text(array) => each(*array, rows, cells, |row| match array.value(row) {
                text if text.len() > longest => Cell::Refused,
                text => Cell::Text(text),
            }),
            Self::Word(keys, words) => each(*keys, rows, cells, |row| word(keys.value(row).into(), words)),
            Self::SmallWord(keys, words) => each(*keys, rows, cells, |row| word(keys.value(row).into(), words)),
        }
    }
}

fn each<'a>(array: &'a dyn Array, rows: Range<usize>, cells: &mut Vec<Cell<'a>>, cell: impl Fn(usize) -> Cell<'a>) {
    match array.nulls() {
        None => cells.extend(rows.map(cell)),
        Some(_) if array.null_count() == array.len() => cells.extend(rows.map(|_| Cell::Null)),
        Some(nulls) => cells.extend(rows.map(|row| if nulls.is_null(row) { Cell::Null } else { cell(row) })),
    }
}

fn word(key: usize, words: &[Option<u64>]) -> Cell<'static> {
    words.get(key).copied().flatten().map_or(Cell::Refused, Cell::Number)
}

fn source<'a>(array: &'a dyn Array, kind: Type) -> Option<Source<'a>> {
    let any = array.as_any();
    match kind {
        Type::Time => any.downcast_ref().map(Source::Time),
        Type::Flag => any.downcast_ref().map(Source::Flag),
        Type::Text => any.downcast_ref().map(Source::Text),
        // Any width: a later version may need a wider one.
        Type::U64 | Type::U32 | Type::U16 => {
            let wide = any.downcast_ref().map(Source::U64);
            let wide = wide.or_else(|| any.downcast_ref().map(Source::U32));
            wide.or_else(|| any.downcast_ref().map(Source::U16))
        }
        Type::I64 | Type::I32 => any
            .downcast_ref()
            .map(Source::I64)
            .or_else(|| any.downcast_ref().map(Source::I32)),
        Type::Word(words) => {
            let known = words();
            let indices = |values: &ArrayRef| {
                let values = values.as_any().downcast_ref::<StringArray>()?;
                let index = |word: Option<&str>| known.iter().position(|known| Some(*known) == word);
                Some(
                    values
                        .iter()
                        .map(|word| index(word).map(|index| index as u64))
                        .collect(),
                )
            };
            if let Some(array) = any.downcast_ref::<DictionaryArray<UInt16Type>>() {
                return Some(Source::Word(array.keys(), indices(array.values())?));
            }
            let array = any.downcast_ref::<DictionaryArray<UInt8Type>>()?;
            Some(Source::SmallWord(array.keys(), indices(array.values())?))
        }
    }
}

/// The rows of a batch. `None`: the row has a value that this version does not know, or one that no writer wrote.
///
/// # Errors
/// If a column has another type than it should.
pub fn rows<R: Table>(batch: &RecordBatch, context: &Context) -> Result<Vec<Option<R>>, String> {
    let longest = if R::NAME == Second::NAME {
        usize::MAX
    } else {
        LONGEST_NAME
    };
    let mut columns = Vec::new();
    for column in R::COLUMNS {
        let Some(array) = batch.column_by_name(column.name) else {
            continue;
        };
        let source = source(array.as_ref(), column.kind);
        columns.push((
            column.set,
            source.ok_or_else(|| format!("column {} has another type", column.name))?,
        ));
    }
    let mut rows: Vec<Option<R>> = Vec::with_capacity(batch.num_rows());
    let mut cells = Vec::with_capacity(ROWS_AT_ONCE);
    while rows.len() < batch.num_rows() {
        let from = rows.len();
        let to = batch.num_rows().min(from + ROWS_AT_ONCE);
        rows.resize_with(to, || Some(R::default()));
        for (set, source) in &columns {
            cells.clear();
            source.cells(from..to, longest, context, &mut cells);
            set(&mut rows[from..], &cells, context);
        }
    }
    Ok(rows)
}
