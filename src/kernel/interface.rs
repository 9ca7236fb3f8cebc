//! The numbers of `bpf/interface.h`, generated from it, and the types of the BPF object.

#![allow(clippy::pedantic, clippy::all, missing_docs)]

include!(concat!(env!("OUT_DIR"), "/interface.rs"));

/// The skeleton that libbpf-cargo generates from the BPF object.
pub mod skeleton {
    #![allow(dead_code, unsafe_op_in_unsafe_fn)]
    include!(concat!(env!("OUT_DIR"), "/iostackbreakdown.skel.rs"));
}

pub use skeleton::types;

// SAFETY: plain C structures of integers, without padding (asserted in interface.h) and valid for every bit pattern.
unsafe impl plain::Plain for types::op_stats {}
// SAFETY: as above.
unsafe impl plain::Plain for types::thread_state {}
// SAFETY: as above.
unsafe impl plain::Plain for types::request_state {}
// SAFETY: as above.
unsafe impl plain::Plain for types::request_place {}
// SAFETY: as above.
unsafe impl plain::Plain for types::bio_place {}
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
unsafe impl plain::Plain for types::neighbour {}
