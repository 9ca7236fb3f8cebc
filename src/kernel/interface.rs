//! The types of the BPF object, and constants shared with it.

#![allow(clippy::pedantic, clippy::all, missing_docs)]

pub use crate::model::abi::*;

/// The skeleton that libbpf-cargo generates from the BPF object.
pub mod skeleton {
    #![allow(dead_code, unsafe_op_in_unsafe_fn)]
    include!(concat!(env!("OUT_DIR"), "/iostackbreakdown.skel.rs"));
}

pub use skeleton::types;

include!(concat!(env!("OUT_DIR"), "/object_size.rs"));

/// The BPF object, which is compressed in the executable, and in memory only while libbpf opens it.
pub(crate) fn object() -> Vec<u8> {
    const DEFLATED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/iostackbreakdown.o.deflate"));
    let mut object = Vec::with_capacity(OBJECT_SIZE);
    let mut inflate = flate2::Decompress::new(false);
    // libbpf refuses an incomplete object, such as one for which there was no memory.
    let _ = inflate.decompress_vec(DEFLATED, &mut object, flate2::FlushDecompress::Finish);
    object
}

// SAFETY: C structures of integers, without padding (asserted in abi.h) and valid for every bit pattern.
unsafe impl plain::Plain for types::op_stats {}
// SAFETY: as above.
unsafe impl plain::Plain for types::binned {}
// SAFETY: as above.
unsafe impl plain::Plain for types::thread_state {}
// SAFETY: as above.
unsafe impl plain::Plain for types::request_state {}
// SAFETY: as above.
unsafe impl plain::Plain for types::bio_state {}
// SAFETY: as above.
unsafe impl plain::Plain for types::request_slot {}
// SAFETY: as above.
unsafe impl plain::Plain for types::bio_slot {}
// SAFETY: as above.
unsafe impl plain::Plain for types::async_call {}
// SAFETY: as above.
unsafe impl plain::Plain for types::family_stats {}
// SAFETY: as above.
unsafe impl plain::Plain for types::origin_stats {}
// SAFETY: as above.
unsafe impl plain::Plain for types::slow_call {}
// SAFETY: as above.
unsafe impl plain::Plain for types::group {}
// SAFETY: as above.
unsafe impl plain::Plain for types::cell_key {}
// SAFETY: as above.
unsafe impl plain::Plain for types::neighbour {}

#[cfg(test)]
mod tests {
    use object::{Object as _, ObjectSymbol as _, SymbolKind};

    /// In a static function, the verifier of some kernels takes its registers for those of the caller (bpf/compat.bpf.h).
    #[test]
    fn functions_that_programs_call_are_global() {
        let bytes = super::object();
        let object = object::File::parse(&*bytes).unwrap();
        let functions = object.symbols().filter(|symbol| symbol.kind() == SymbolKind::Text);
        let (global, local): (Vec<_>, Vec<_>) = functions.partition(|symbol| symbol.is_global());
        let names = |symbols: &[object::Symbol<'_, '_>]| -> Vec<String> {
            symbols.iter().map(|symbol| symbol.name().unwrap().to_owned()).collect()
        };
        assert_eq!(names(&local), [""; 0]);
        assert!(names(&global).iter().any(|name| name == "count_lost"));
    }
}
