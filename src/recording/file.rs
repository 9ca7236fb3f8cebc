//! Reads a table's file batch by batch, whether or not it was completed. Lengths in it are checked before anything is
//! allocated for them.
//!
//! An Arrow IPC file is a magic number, a stream of messages, and a footer. A file that was cut has no footer, and
//! everything in the footer is in the stream as well: so only the stream is read.

use std::collections::HashMap;
use std::fmt;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_buffer::Buffer;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::read_record_batch;
use arrow_ipc::{Message, MessageHeader, MetadataVersion, root_as_message};
use arrow_schema::{DataType, Field, Schema};

use crate::printable::printable;

/// The most that a batch may take, in a file or decompressed, in bytes.
const LARGEST_BATCH: u64 = 16 << 20;
/// The most rows of a batch.
const MOST_ROWS: i64 = 65_536;
/// The largest description of a message, in bytes.
const LARGEST_HEADER: u32 = 1 << 20;
/// The most columns of a table.
const MOST_COLUMNS: usize = 256;

const MAGIC: &[u8; 8] = b"ARROW1\0\0";
/// Precedes the length of each message.
const CONTINUATION: u32 = u32::MAX;

/// A table's file that is being read.
pub struct TableFile {
    from: BufReader<File>,
    schema: Arc<Schema>,
    /// The schema of a dictionary.
    words: Arc<Schema>,
    dictionaries: HashMap<i64, ArrayRef>,
}

/// Why a file cannot be read on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// There is no such file.
    Missing,
    /// It ends inside a message.
    Cut,
    /// It has something that no writer wrote.
    Damaged(String),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Cut,
            io::ErrorKind::NotFound => Self::Missing,
            _ => Self::Damaged(error.to_string()),
        }
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("it is missing"),
            Self::Cut => f.write_str("it is cut"),
            Self::Damaged(why) => f.write_str(&printable(why)),
        }
    }
}

fn damaged(why: impl std::fmt::Display) -> Stop {
    Stop::Damaged(why.to_string())
}

impl TableFile {
    /// Reads the beginning.
    pub fn open(file: File) -> Result<Self, Stop> {
        let mut from = BufReader::with_capacity(64 << 10, file);
        let mut magic = [0; MAGIC.len()];
        from.read_exact(&mut magic)?;
        if magic != *MAGIC {
            return Err(damaged("it is no Arrow IPC file"));
        }
        let header = read_header(&mut from)?.ok_or_else(|| damaged("it has no schema"))?;
        let message = message(&header)?;
        let schema = message
            .header_as_schema()
            .ok_or_else(|| damaged("it begins with no schema"))?;
        if message.bodyLength() != 0 {
            return Err(damaged("its schema has a body"));
        }
        let columns = schema.fields().map_or(0, |fields| fields.len());
        if columns > MOST_COLUMNS {
            return Err(damaged(format_args!("it has {columns} columns")));
        }
        check_schema(schema)?;
        let schema = try_fb_to_schema(schema).map_err(damaged)?;
        if let Some(field) = schema.fields().iter().find(|field| !is_simple(field.data_type())) {
            return Err(damaged(format_args!("column {} has an unknown type", field.name())));
        }
        Ok(Self {
            from,
            schema: Arc::new(schema),
            words: Arc::new(Schema::new(vec![Field::new("word", DataType::Utf8, true)])),
            dictionaries: HashMap::new(),
        })
    }

    /// The names of its columns.
    pub fn columns(&self) -> impl Iterator<Item = &str> {
        self.schema.fields().iter().map(|field| field.name().as_str())
    }

    /// The next batch; `None` at the end.
    pub fn next(&mut self) -> Result<Option<RecordBatch>, Stop> {
        loop {
            let Some(header) = read_header(&mut self.from)? else {
                return Ok(None);
            };
            let message = message(&header)?;
            let length = u64::try_from(message.bodyLength())
                .ok()
                .filter(|length| *length <= LARGEST_BATCH);
            let length = length.ok_or_else(|| damaged("a batch is larger than 16 MiB"))?;
            let mut body = Vec::new();
            // Grows with what arrives, so that a wrong length costs nothing.
            (&mut self.from).take(length).read_to_end(&mut body)?;
            if body.len() as u64 != length {
                return Err(Stop::Cut);
            }
            let body = Buffer::from_vec(body);
            match message.header_type() {
                MessageHeader::RecordBatch => {
                    let batch = message
                        .header_as_record_batch()
                        .ok_or_else(|| damaged("a batch without contents"))?;
                    return self.decoded(batch, &body, &self.schema, message.version()).map(Some);
                }
                MessageHeader::DictionaryBatch => {
                    let batch = message.header_as_dictionary_batch();
                    let batch = batch.ok_or_else(|| damaged("a dictionary without contents"))?;
                    let data = batch.data().ok_or_else(|| damaged("a dictionary without words"))?;
                    if batch.isDelta() || self.dictionaries.contains_key(&batch.id()) {
                        return Err(damaged("a dictionary is replaced"));
                    }
                    // The library's own function for it would also append to dictionaries, which takes 270 KiB of code.
                    let words = self.decoded(data, &body, &self.words, message.version())?;
                    self.dictionaries.insert(batch.id(), Arc::clone(words.column(0)));
                }
                _ => return Err(damaged("an unknown message")),
            }
        }
    }

    /// Decodes a batch, after all lengths in it have been checked.
    fn decoded(
        &self,
        batch: arrow_ipc::RecordBatch<'_>,
        body: &Buffer,
        schema: &Arc<Schema>,
        version: MetadataVersion,
    ) -> Result<RecordBatch, Stop> {
        let kinds = schema.fields().iter().map(|field| field.data_type());
        check_batch(batch, body, &elements(kinds))?;
        read_record_batch(body, batch, Arc::clone(schema), &self.dictionaries, None, &version).map_err(damaged)
    }
}

/// The types that a column can have now or later: those without children.
fn is_simple(kind: &DataType) -> bool {
    match kind {
        DataType::Dictionary(key, value) => key.is_integer() && **value == DataType::Utf8,
        kind => kind.is_primitive() || matches!(kind, DataType::Boolean | DataType::Utf8 | DataType::Binary),
    }
}

/// The library converts a schema without errors, and panics at what it does not know.
fn check_schema(schema: arrow_ipc::Schema<'_>) -> Result<(), Stop> {
    use arrow_ipc::{Precision, TimeUnit, Type};
    for field in schema.fields().into_iter().flatten() {
        let is_known = match field.type_type() {
            Type::Int => field
                .type_as_int()
                .is_some_and(|int| matches!(int.bitWidth(), 8 | 16 | 32 | 64)),
            Type::FloatingPoint => {
                let number = field.type_as_floating_point();
                number.is_some_and(|number| number.precision().0 <= Precision::ENUM_MAX && number.precision().0 >= 0)
            }
            Type::Timestamp => {
                let time = field.type_as_timestamp();
                time.is_some_and(|time| time.unit().0 <= TimeUnit::ENUM_MAX && time.unit().0 >= 0)
            }
            Type::Bool | Type::Utf8 | Type::Binary => true,
            _ => false,
        };
        let has_children = field.children().is_some_and(|children| !children.is_empty());
        let has_words = field.dictionary().is_none_or(|words| {
            words
                .indexType()
                .is_none_or(|index| matches!(index.bitWidth(), 8 | 16 | 32 | 64))
                && field.type_type() == Type::Utf8
        });
        if !is_known || has_children || !has_words || field.name().is_none() {
            return Err(damaged("it has a column of an unknown type"));
        }
    }
    Ok(())
}

fn message(header: &[u8]) -> Result<Message<'_>, Stop> {
    root_as_message(header).map_err(|_| damaged("a message cannot be understood"))
}

/// The description of the next message; `None` at the end of the stream.
fn read_header(from: &mut impl Read) -> Result<Option<Vec<u8>>, Stop> {
    let mut word = [0; 4];
    from.read_exact(&mut word)?;
    if u32::from_le_bytes(word) != CONTINUATION {
        return Err(damaged("a message has no beginning"));
    }
    from.read_exact(&mut word)?;
    let length = u32::from_le_bytes(word);
    if length == 0 {
        return Ok(None);
    }
    if length > LARGEST_HEADER {
        return Err(damaged("a message is described in more than 1 MiB"));
    }
    let mut header = Vec::new();
    from.take(length.into()).read_to_end(&mut header)?;
    if header.len() as u64 != u64::from(length) {
        return Err(Stop::Cut);
    }
    Ok(Some(header))
}

/// The bytes of an element of each buffer that a batch has for columns of these types: first which rows are null, then the
/// values, or for text where each begins and the text (Columnar.rst of the format, "Buffer Listing for Each Layout").
fn elements<'a>(kinds: impl IntoIterator<Item = &'a DataType>) -> Vec<usize> {
    const BITS: usize = 1;
    const BEGINNINGS: usize = size_of::<i32>();
    let mut all = Vec::new();
    for kind in kinds {
        all.push(BITS);
        match kind {
            DataType::Utf8 | DataType::Binary => all.extend([BEGINNINGS, 1]),
            DataType::Dictionary(key, _) => all.push(key.primitive_width().unwrap_or(1)),
            kind => all.push(kind.primitive_width().unwrap_or(BITS)),
        }
    }
    all
}

/// Checks all lengths of a batch before it is decoded: the library panics where a buffer ends inside an element.
/// `elements`: see [`elements()`].
fn check_batch(batch: arrow_ipc::RecordBatch<'_>, body: &Buffer, elements: &[usize]) -> Result<(), Stop> {
    let is_length = |length: i64| (0..=MOST_ROWS).contains(&length);
    if !is_length(batch.length()) {
        return Err(damaged("a batch has more than 65,536 rows"));
    }
    if let Some(compression) = batch.compression()
        && (compression.codec() != arrow_ipc::CompressionType::ZSTD
            || compression.method() != arrow_ipc::BodyCompressionMethod::BUFFER)
    {
        return Err(damaged("a batch is compressed by an unknown method"));
    }
    let nodes = batch.nodes().ok_or_else(|| damaged("a batch without columns"))?;
    if nodes.len() > MOST_COLUMNS
        || nodes
            .iter()
            .any(|node| node.length() != batch.length() || !(0..=node.length()).contains(&node.null_count()))
    {
        return Err(damaged("a column has a wrong length"));
    }
    let buffers = batch.buffers().ok_or_else(|| damaged("a batch without buffers"))?;
    if buffers.len() != elements.len() {
        return Err(damaged("a batch has a wrong number of buffers"));
    }
    let mut whole = 0_u64;
    for (buffer, element) in buffers.iter().zip(elements) {
        let (Ok(from), Ok(length)) = (usize::try_from(buffer.offset()), usize::try_from(buffer.length())) else {
            return Err(damaged("a buffer has a negative length"));
        };
        let bytes = from.checked_add(length).and_then(|to| body.get(from..to));
        let bytes = bytes.ok_or_else(|| damaged("a buffer is outside its batch"))?;
        let mut decompressed = length as u64;
        if batch.compression().is_some() && length > 0 {
            let Some(prefix) = bytes.first_chunk::<8>() else {
                return Err(damaged("a compressed buffer has no length"));
            };
            decompressed = match i64::from_le_bytes(*prefix) {
                // It is not compressed.
                -1 => length as u64,
                length => u64::try_from(length).map_err(|_| damaged("a compressed buffer has a negative length"))?,
            };
        }
        if !decompressed.is_multiple_of(*element as u64) {
            return Err(damaged("a buffer ends inside an element"));
        }
        whole = whole.saturating_add(decompressed);
    }
    if whole > LARGEST_BATCH {
        return Err(damaged("a batch is larger than 16 MiB"));
    }
    Ok(())
}
