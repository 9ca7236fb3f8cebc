//! Values that are kept compressed.

use std::cell::RefCell;
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;

use serde::Serialize;
use serde::de::DeserializeOwned;
use zstd::bulk::Compressor;

/// Faster than the usual ones: each second of the live view is compressed, and most of them are never looked at.
const LEVEL: i32 = -1;

thread_local! {
    /// Kept from value to value: each has tables that are larger than most values, and clears them when it is made.
    static COMPRESSOR: RefCell<Option<Compressor<'static>>> = const { RefCell::new(None) };
}

fn compressed(bytes: &[u8]) -> io::Result<Vec<u8>> {
    COMPRESSOR.with_borrow_mut(|kept| {
        let compressor = match kept {
            Some(compressor) => compressor,
            none => none.insert(Compressor::new(LEVEL)?),
        };
        compressor.compress(bytes)
    })
}

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
        let bytes = postcard::to_stdvec(value).map_err(io::Error::other)?;
        Ok(Self {
            bytes: compressed(&bytes)?.into(),
            of: PhantomData,
        })
    }

    /// The value.
    ///
    /// # Errors
    /// As above.
    pub fn get(&self) -> io::Result<T> {
        let bytes = zstd::decode_all(&*self.bytes)?;
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
