//! Serialises a list that is mostly 0.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// More than any list has.
const LONGEST: usize = 1 << 16;

/// As its length, and the index and value of each number that is not 0.
///
/// # Errors
/// Those of `to`.
pub fn serialize<V: Serialize + Copy + Default + PartialEq, S: Serializer>(
    list: &[V],
    to: S,
) -> Result<S::Ok, S::Error> {
    let used = list
        .iter()
        .copied()
        .enumerate()
        .filter(|(_, value)| *value != V::default());
    (list.len(), used.collect::<Vec<_>>()).serialize(to)
}

/// The whole list.
///
/// # Errors
/// Those of `from`; and if it is longer than any list, or a number is outside of it.
pub fn deserialize<'de, V, D>(from: D) -> Result<Vec<V>, D::Error>
where
    V: Deserialize<'de> + Copy + Default,
    D: Deserializer<'de>,
{
    let (length, used) = <(usize, Vec<(usize, V)>)>::deserialize(from)?;
    if length > LONGEST {
        return Err(D::Error::custom("a list is too long"));
    }
    let mut list = vec![V::default(); length];
    for (index, value) in used {
        *list
            .get_mut(index)
            .ok_or_else(|| D::Error::custom("a number is outside its list"))? = value;
    }
    Ok(list)
}
