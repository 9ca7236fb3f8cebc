//! Removes atomic instructions that return the old value, for kernels that lack them (before 5.12).
//!
//! The configuration ensures that such kernels never execute one, but the verifier refuses a program that contains any.

use libbpf_sys as sys;

const ATOMICS: [u8; 2] = [
    (sys::BPF_STX | sys::BPF_ATOMIC | sys::BPF_W) as u8,
    (sys::BPF_STX | sys::BPF_ATOMIC | sys::BPF_DW) as u8,
];
const MOV64_IMM: u8 = (sys::BPF_ALU64 | sys::BPF_MOV | sys::BPF_K) as u8;

/// Replaces each of them by a move of 0 to the register of its result. Returns the number of replacements.
pub fn leave_out(instructions: &mut [sys::bpf_insn]) -> usize {
    let mut replaced = 0;
    for instruction in instructions {
        if ATOMICS.contains(&instruction.code) && instruction.imm & sys::BPF_FETCH as i32 != 0 {
            let result = instruction.src_reg();
            *instruction = sys::bpf_insn {
                code: MOV64_IMM,
                ..Default::default()
            };
            instruction.set_dst_reg(result);
            replaced += 1;
        }
    }
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_atomics_that_return_a_value_are_replaced() {
        let atomic = |imm: u32| {
            let mut instruction = sys::bpf_insn {
                code: ATOMICS[1],
                imm: imm as i32,
                off: 8,
                ..Default::default()
            };
            instruction.set_dst_reg(1);
            instruction.set_src_reg(7);
            instruction
        };
        let mut program = [
            atomic(sys::BPF_ADD),
            atomic(sys::BPF_ADD | sys::BPF_FETCH),
            atomic(sys::BPF_XCHG),
        ];
        assert_eq!(leave_out(&mut program), 2);
        assert_eq!(program.map(|i| i.code), [ATOMICS[1], MOV64_IMM, MOV64_IMM]);
        assert_eq!(
            program.map(|i| (i.dst_reg(), i.src_reg(), i.off)),
            [(1, 7, 8), (7, 0, 0), (7, 0, 0)]
        );
    }
}
