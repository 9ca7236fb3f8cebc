//! The block layer: requests, and the bios of disks whose drivers use no requests.
//!
//! Its ops have no functions: all of them pass the same few tracepoints, and the code of a request determines the op.

use super::{Op, OpSpec};

/// The properties of an op of the block layer that [`OpSpec`] lacks.
#[derive(Debug)]
pub struct Request {
    /// Enumerators of the kernel's `enum req_op` (`enum req_opf` before 6.0; `include/linux/blk_types.h`). Kernels
    /// differ in which they have and in their values. The op without codes is that of all other requests.
    pub codes: &'static [&'static str],
    /// Whether it waits in the queue. A flush does not: the kernel creates it when it is sent, for all callers that
    /// wait for one.
    pub queued: bool,
    /// The counter of `/proc/diskstats` that contains it (`op_stat_group` of `include/linux/blk_types.h`). `None`: it
    /// depends on the kernel. Zone commands are reads where their code is even, as that of a finish is in 5.10, and
    /// else writes. Commands for the driver (passthrough) are in none, but are reads or writes in older kernels (5.10),
    /// and where the queue counts them (`queue/iostats_passthrough`, 6.12).
    pub counted_as: Option<Counter>,
}

/// A counter of `/proc/diskstats` (Documentation/admin-guide/iostats.rst).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counter {
    Reads,
    Writes,
    Discards,
    Flushes,
}

macro_rules! requests {
    ($($op:ident $moves_bytes:literal $queued:literal $counted_as:expr, $($code:literal)*;)*) => {
        /// In the order of the block layer's ops ([`super::Layer::ops`]).
        pub static REQUESTS: &[Request] = &[
            $(Request { codes: &[$($code),*], queued: $queued, counted_as: $counted_as },)*
        ];
        pub static OPS: &[OpSpec] = &[
            $(OpSpec { op: Op::$op, moves_bytes: $moves_bytes, points: &[], around: None, instead: None },)*
        ];
    };
}

// Op, whether it moves bytes, whether it waits in the queue, its counter, its codes. BLOCK_OP_* of bpf/abi.h are
// indices of this table.
requests! {
    Read true true Some(Counter::Reads), "REQ_OP_READ";
    Write true true Some(Counter::Writes), "REQ_OP_WRITE";
    Flush false false Some(Counter::Flushes), "REQ_OP_FLUSH";
    Discard true true Some(Counter::Discards), "REQ_OP_DISCARD";
    SecureErase true true Some(Counter::Writes), "REQ_OP_SECURE_ERASE";
    WriteZeroes true true Some(Counter::Writes), "REQ_OP_WRITE_ZEROES";
    WriteSame true true Some(Counter::Writes), "REQ_OP_WRITE_SAME";
    ZoneAppend true true Some(Counter::Writes), "REQ_OP_ZONE_APPEND";
    ZoneMgmt false true None, "REQ_OP_ZONE_OPEN" "REQ_OP_ZONE_CLOSE" "REQ_OP_ZONE_FINISH" "REQ_OP_ZONE_RESET"
        "REQ_OP_ZONE_RESET_ALL";
    Driver true false None, "REQ_OP_DRV_IN" "REQ_OP_DRV_OUT" "REQ_OP_SCSI_IN" "REQ_OP_SCSI_OUT";
    Other true true None,;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::abi::{BLOCK_OP_FLUSH, BLOCK_OP_OTHER};

    #[test]
    fn ops_that_the_bpf_programs_name_have_their_indices() {
        assert_eq!(REQUESTS.len(), OPS.len());
        assert_eq!(OPS[BLOCK_OP_FLUSH as usize].op, Op::Flush);
        assert_eq!(OPS[BLOCK_OP_OTHER as usize].op, Op::Other);
        assert!(REQUESTS[BLOCK_OP_OTHER as usize].codes.is_empty());
    }

    #[test]
    fn no_code_belongs_to_two_ops() {
        let mut codes: Vec<_> = REQUESTS.iter().flat_map(|request| request.codes).collect();
        let all = codes.len();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), all);
    }
}
