//! The types of the BPF objects, and constants shared with them.

#![allow(clippy::pedantic, clippy::all, missing_docs)]

pub use crate::model::abi::*;

/// The skeleton that libbpf-cargo generates from a BPF object, and that fits all of them.
pub mod skeleton {
    #![allow(dead_code, unsafe_op_in_unsafe_fn)]
    include!(concat!(env!("OUT_DIR"), "/iostackbreakdown.skel.rs"));
}

pub use skeleton::types;

include!(concat!(env!("OUT_DIR"), "/object_sizes.rs"));

/// What a run shows. There is a BPF object for each (`bpf/view.bpf.h`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum View {
    /// The calls of each layer, timed separately.
    #[default]
    Layers,
    /// The time of each call, broken down into rows.
    WholeStack,
}

/// The BPF object of a view, which is compressed in the executable, and in memory only while libbpf opens it.
pub(crate) fn object(view: View) -> Vec<u8> {
    const LAYERS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/layers/iostackbreakdown.o.zst"));
    const STACK: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/stack/iostackbreakdown.o.zst"));
    let (compressed, size) = match view {
        View::Layers => (LAYERS, LAYERS_SIZE),
        View::WholeStack => (STACK, STACK_SIZE),
    };
    // libbpf refuses an empty object, which is what is left if there was no memory for it.
    zstd::bulk::decompress(compressed, size).unwrap_or_default()
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
// SAFETY: as above.
unsafe impl plain::Plain for types::recorder {}
// SAFETY: as above.
unsafe impl plain::Plain for types::lost_records {}
// SAFETY: as above.
unsafe impl plain::Plain for types::path_record {}
// SAFETY: as above.
unsafe impl plain::Plain for types::thread_record {}
// SAFETY: as above.
unsafe impl plain::Plain for types::file_record {}
// SAFETY: as above.
unsafe impl plain::Plain for types::sleep_record {}
// SAFETY: as above.
unsafe impl plain::Plain for types::request_record {}
// SAFETY: as above.
unsafe impl plain::Plain for types::call_record_wide {}
// SAFETY: as above.
unsafe impl plain::Plain for types::call_record_all {}
// SAFETY: as above.
unsafe impl plain::Plain for types::call_record_few {}
// SAFETY: as above.
unsafe impl plain::Plain for types::call_record_arguments {}
// SAFETY: as above.
unsafe impl plain::Plain for types::async_record {}
// SAFETY: as above.
unsafe impl plain::Plain for types::fault_record {}
// SAFETY: as above.
unsafe impl plain::Plain for types::folder_record {}
// SAFETY: as above.
unsafe impl plain::Plain for types::call_record {}

#[cfg(test)]
mod tests {
    use object::{Object as _, ObjectSymbol as _, SymbolKind};

    use super::View;

    /// In a static function, the verifier of some kernels takes its registers for those of the caller (bpf/compat.bpf.h).
    #[test]
    fn functions_that_programs_call_are_global() {
        for view in [View::Layers, View::WholeStack] {
            let bytes = super::object(view);
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

    /// The code of the whole-stack view is in its own object only.
    #[test]
    fn a_view_has_only_its_own_code() {
        let size_of = |view, name: &str| {
            let bytes = super::object(view);
            let object = object::File::parse(&*bytes).unwrap();
            let symbol = object.symbols().find(|symbol| symbol.name() == Ok(name));
            symbol.unwrap().size()
        };
        for name in ["count_in_families", "close_function", "kprobe_enter", "enter_request"] {
            let [layers, stack] = [View::Layers, View::WholeStack].map(|view| size_of(view, name));
            assert!(layers * 5 < stack * 4, "{name}: {layers} and {stack} bytes");
        }
    }
}
