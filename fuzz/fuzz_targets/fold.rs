//! The folding of BPF programs: any sequence of instructions is folded, and then folded again, or left as it is.
//! `src/probe/fold/tests.rs` holds that what is folded does the same as before.

#![no_main]

use iostackbreakdown::probe::fold::{Constants, fold, fold_again, unfolded};
use libbpf_sys::bpf_insn;
use libfuzzer_sys::fuzz_target;

/// No compiler writes others, and the kernel refuses them.
const REGISTERS: u8 = 11;
/// A program of the tool's has some thousands.
const MOST: usize = 4096;

fuzz_target!(|bytes: &[u8]| {
    let instruction = |bytes: &[u8; 8]| {
        let [code, registers, off @ .., a, b, c, d] = *bytes;
        let mut instruction = bpf_insn {
            code,
            off: i16::from_le_bytes(off),
            imm: i32::from_le_bytes([a, b, c, d]),
            ..Default::default()
        };
        instruction.set_dst_reg((registers & 0xf) % REGISTERS);
        instruction.set_src_reg((registers >> 4) % REGISTERS);
        instruction
    };
    let (all, _) = bytes.as_chunks::<8>();
    let program: Vec<bpf_insn> = all.iter().take(MOST).map(instruction).collect();
    let constants = Constants {
        map: 3,
        bytes: &[1, 0, 7, 0, 0, 0, 0, 0x80],
    };
    let _ = unfolded(&program);
    let Some(folded) = fold(&program, &constants) else {
        return;
    };
    for is_changed in [true, false] {
        let _ = fold_again(&folded.program, &constants, |_| is_changed);
    }
});
