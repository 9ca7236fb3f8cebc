//! Serialises a timestamp as nanoseconds since 1970: the calendar's own form would need its parser.

use jiff::Timestamp;
use serde::{Deserialize, Deserializer, Serializer};

pub fn serialize<S: Serializer>(time: &Timestamp, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_i128(time.as_nanosecond())
}

pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
    Timestamp::from_nanosecond(i128::deserialize(from)?).map_err(serde::de::Error::custom)
}
