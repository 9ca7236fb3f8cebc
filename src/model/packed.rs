//! Values that are kept compressed.

use std::io::{self, Read, Write};
use std::marker::PhantomData;
use std::sync::Arc;

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A compressed value; clones share it.
#[derive(Debug)]
pub struct Packed<T> {
    bytes: Arc<[u8]>,
    of: PhantomData<fn() -> T>,
}

impl<T> Clone for Packed<T> {
    fn clone(&self) -> Self {
        Self {
            bytes: Arc::clone(&self.bytes),
            of: PhantomData,
        }
    }
}

impl<T: Serialize + DeserializeOwned> Packed<T> {
    /// Compresses a value.
    ///
    /// # Errors
    /// If it cannot be serialised, which is an error of the program.
    pub fn new(value: &T) -> io::Result<Self> {
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(&postcard::to_stdvec(value).map_err(io::Error::other)?)?;
        Ok(Self {
            bytes: encoder.finish()?.into(),
            of: PhantomData,
        })
    }

    /// The value.
    ///
    /// # Errors
    /// As above.
    pub fn get(&self) -> io::Result<T> {
        let mut bytes = Vec::new();
        DeflateDecoder::new(&*self.bytes).read_to_end(&mut bytes)?;
        postcard::from_bytes(&bytes).map_err(io::Error::other)
    }

    /// Its size while it is compressed.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_comes_back_and_is_smaller_meanwhile() {
        let value: Vec<u64> = (0..10_000).map(|n| n % 7).collect();
        let packed = Packed::new(&value).unwrap();
        assert_eq!(packed.clone().get().unwrap(), value);
        assert!((1..1_000).contains(&packed.bytes()), "{}", packed.bytes());
    }
}
