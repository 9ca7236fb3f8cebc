//! Atomic instructions that answer what was there, for kernels that do not know them (before 5.12).
//!
//! The configuration keeps those kernels from running into one, but they refuse a program for what it could run into, too.

use libbpf_sys as sys;

const ATOMICS: [u8; 2] = [
    (sys::BPF_STX | sys::BPF_ATOMIC | sys::BPF_W) as u8,
    (sys::BPF_STX | sys::BPF_ATOMIC | sys::BPF_DW) as u8,
];
const MOV64_IMM: u8 = (sys::BPF_ALU64 | sys::BPF_MOV | sys::BPF_K) as u8;

/// Makes each of them an answer of 0. Says how many there were.
pub fn leave_out(instructions: &mut [sys::bpf_insn]) -> usize {
    let mut replaced = 0;
    for instruction in instructions {
        if ATOMICS.contains(&instruction.code) && instruction.imm & sys::BPF_FETCH as i32 != 0 {
            let answer = instruction.src_reg();
            *instruction = sys::bpf_insn {
                code: MOV64_IMM,
                ..Default::default()
            };
            instruction.set_dst_reg(answer);
            replaced += 1;
        }
    }
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_answer_are_replaced_and_no_others() {
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
