//! The block layer: requests, and bios of disks that have no requests.
//!
//! No function is an op here: all of them come by the same few events, and a request's code says which op it is.

use super::{Op, OpSpec};

/// What an op of the block layer has beside its [`OpSpec`].
#[derive(Debug)]
pub struct Request {
    /// Enumerators of the kernel's `enum req_op` (`enum req_opf` before 6.0; `include/linux/blk_types.h`). A kernel has some of
    /// them, under numbers of its own. The op without any is for all others.
    pub codes: &'static [&'static str],
    /// It waits in the queue. A flush is made by the kernel when it is sent, for whoever has asked by then.
    pub queued: bool,
    /// Which of `/proc/diskstats`' counters it is in (`op_stat_group` of `include/linux/blk_types.h`).
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
        /// In the order of [`OPS`].
        pub static REQUESTS: &[Request] = &[
            $(Request { codes: &[$($code),*], queued: $queued, counted_as: $counted_as },)*
        ];
        pub static OPS: &[OpSpec] = &[
            $(OpSpec { op: Op::$op, moves_bytes: $moves_bytes, points: &[], around: None, instead: None },)*
        ];
    };
}

// Name, moves bytes, waits in the queue, its counter, its codes. BLOCK_OP_* of bpf/abi.h are places in it. What is
// for the driver is not in diskstats, unless the queue counts it (`queue/iostats_passthrough`, 6.12).
requests! {
    Read true true Some(Counter::Reads), "REQ_OP_READ";
    Write true true Some(Counter::Writes), "REQ_OP_WRITE";
    Flush false false Some(Counter::Flushes), "REQ_OP_FLUSH";
    Discard true true Some(Counter::Discards), "REQ_OP_DISCARD";
    SecureErase true true Some(Counter::Writes), "REQ_OP_SECURE_ERASE";
    WriteZeroes true true Some(Counter::Writes), "REQ_OP_WRITE_ZEROES";
    WriteSame true true Some(Counter::Writes), "REQ_OP_WRITE_SAME";
    ZoneAppend true true Some(Counter::Writes), "REQ_OP_ZONE_APPEND";
    ZoneMgmt false true Some(Counter::Writes), "REQ_OP_ZONE_OPEN" "REQ_OP_ZONE_CLOSE" "REQ_OP_ZONE_FINISH" "REQ_OP_ZONE_RESET"
        "REQ_OP_ZONE_RESET_ALL";
    Driver true false None, "REQ_OP_DRV_IN" "REQ_OP_DRV_OUT" "REQ_OP_SCSI_IN" "REQ_OP_SCSI_OUT";
    Other true true None,;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::abi::{BLOCK_OP_FLUSH, BLOCK_OP_OTHER};

    #[test]
    fn the_programs_know_the_places_of_the_ops_that_they_name() {
        assert_eq!(REQUESTS.len(), OPS.len());
        assert_eq!(OPS[BLOCK_OP_FLUSH as usize].op, Op::Flush);
        assert_eq!(OPS[BLOCK_OP_OTHER as usize].op, Op::Other);
        assert!(REQUESTS[BLOCK_OP_OTHER as usize].codes.is_empty());
    }

    #[test]
    fn no_code_is_of_two_ops() {
        let mut codes: Vec<_> = REQUESTS.iter().flat_map(|request| request.codes).collect();
        let all = codes.len();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), all);
    }
}
