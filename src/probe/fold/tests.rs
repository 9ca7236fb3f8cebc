//! Compares original programs and folded ones.

use proptest::prelude::*;

use super::unused::arguments;
use super::*;
use crate::fuzz;

const MAP: i32 = 77;
const BYTES: [u8; 16] = [1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0x80];

fn instruction(code: u32, first: u8, second: u8, off: i16, imm: i32) -> bpf_insn {
    let mut instruction = bpf_insn {
        code: code as u8,
        off,
        imm,
        ..Default::default()
    };
    instruction.set_dst_reg(first);
    instruction.set_src_reg(second);
    instruction
}

fn number(register: u8, imm: i32) -> bpf_insn {
    instruction(sys::BPF_ALU64 | sys::BPF_MOV | sys::BPF_K, register, 0, 0, imm)
}

fn constant(register: u8, offset: i32) -> [bpf_insn; 2] {
    let low = instruction(
        sys::BPF_LD | sys::BPF_IMM | sys::BPF_DW,
        register,
        sys::BPF_PSEUDO_MAP_VALUE as u8,
        0,
        MAP,
    );
    [low, instruction(0, 0, 0, 0, offset)]
}

/// An address in a map other than the constants.
fn address(register: u8) -> [bpf_insn; 2] {
    let [mut low, high] = constant(register, 8);
    low.imm = MAP + 1;
    [low, high]
}

fn load(size: u32, register: u8, from: u8, off: i16) -> bpf_insn {
    instruction(sys::BPF_LDX | sys::BPF_MEM | size, register, from, off, 0)
}

fn jump_if_equal(register: u8, imm: i32, off: i16) -> bpf_insn {
    instruction(sys::BPF_JMP | sys::BPF_JEQ | sys::BPF_K, register, 0, off, imm)
}

fn call(helper: i32) -> bpf_insn {
    instruction(sys::BPF_JMP | sys::BPF_CALL, 0, 0, 0, helper)
}

fn exit() -> bpf_insn {
    instruction(sys::BPF_JMP | sys::BPF_EXIT, 0, 0, 0, 0)
}

fn folded(program: &[bpf_insn]) -> Option<Vec<bpf_insn>> {
    let constants = Constants {
        map: MAP,
        bytes: &BYTES,
    };
    finished(&fold(program, &constants)?.program, |_| true)
}

/// The program as it is given to the kernel.
fn finished(program: &[bpf_insn], is_changed: fn(&Range<usize>) -> bool) -> Option<Vec<bpf_insn>> {
    let constants = Constants {
        map: MAP,
        bytes: &BYTES,
    };
    Some(fold_again(program, &constants, is_changed)?.program)
}

fn shown(program: &[bpf_insn]) -> Vec<(u8, u8, u8, i16, i32)> {
    let fields = |i: &bpf_insn| (i.code, i.dst_reg(), i.src_reg(), i.off, i.imm);
    program.iter().map(fields).collect()
}

#[test]
fn what_a_constant_turns_off_is_gone() {
    let [low, high] = constant(7, 0);
    let program = [
        low,
        high,
        load(sys::BPF_W, 6, 7, 8),
        jump_if_equal(6, 0, 2),
        call(1),
        call(2),
        number(0, 0),
        exit(),
    ];
    assert_eq!(shown(&folded(&program).unwrap()), shown(&[number(0, 0), exit()]));
}

#[test]
fn what_it_turns_on_stays_without_the_question() {
    let [low, high] = constant(7, 0);
    let program = [
        low,
        high,
        load(sys::BPF_W, 6, 7, 0),
        jump_if_equal(6, 0, 1),
        call(1),
        number(0, 0),
        exit(),
    ];
    assert_eq!(
        shown(&folded(&program).unwrap()),
        shown(&[call(1), number(0, 0), exit()])
    );
}

#[test]
fn jumps_end_where_they_did() {
    let program = [
        jump_if_equal(1, 0, 4),
        number(6, 5),
        jump_if_equal(6, 5, 1),
        call(1),
        call(2),
        number(0, 0),
        exit(),
    ];
    let expected = [jump_if_equal(1, 0, 1), call(2), number(0, 0), exit()];
    assert_eq!(shown(&folded(&program).unwrap()), shown(&expected));
}

fn jump(off: i16) -> bpf_insn {
    instruction(sys::BPF_JMP | sys::BPF_JA, 0, 0, off, 0)
}

#[test]
fn a_branch_around_a_jump_goes_where_that_went() {
    let program = [jump_if_equal(1, 0, 1), jump(2), call(1), call(2), number(0, 0), exit()];
    let if_not_equal = instruction(sys::BPF_JMP | sys::BPF_JNE | sys::BPF_K, 1, 0, 2, 0);
    let expected = [if_not_equal, call(1), call(2), number(0, 0), exit()];
    assert_eq!(shown(&folded(&program).unwrap()), shown(&expected));
}

#[test]
fn a_jump_to_a_jump_goes_where_that_goes() {
    let program = [
        jump_if_equal(1, 0, 2),
        call(1),
        jump(1),
        jump(1),
        call(2),
        number(0, 0),
        exit(),
    ];
    let expected = [jump_if_equal(1, 0, 2), call(1), call(2), number(0, 0), exit()];
    assert_eq!(shown(&folded(&program).unwrap()), shown(&expected));
}

#[test]
fn a_number_is_compared_with_as_the_second_one() {
    let less = instruction(sys::BPF_JMP | sys::BPF_JLT | sys::BPF_X, 6, 1, 1, 0);
    let program = [number(6, 5), less, call(1), number(0, 0), exit()];
    let greater = instruction(sys::BPF_JMP | sys::BPF_JGT | sys::BPF_K, 1, 0, 1, 5);
    let expected = [greater, call(1), number(0, 0), exit()];
    assert_eq!(shown(&folded(&program).unwrap()), shown(&expected));
}

#[test]
fn what_changes_nothing_is_gone() {
    let add = |class, register, n| instruction(class | sys::BPF_ADD | sys::BPF_K, register, 0, 0, n);
    let short = add(sys::BPF_ALU, 0, 0);
    let program = [
        add(sys::BPF_ALU64, 0, 0),
        short,
        add(sys::BPF_ALU64, 0, 1),
        number(6, 0),
        instruction(sys::BPF_ALU64 | sys::BPF_ADD | sys::BPF_X, 0, 6, 0, 0),
        exit(),
    ];
    let expected = [short, add(sys::BPF_ALU64, 0, 1), exit()];
    assert_eq!(shown(&folded(&program).unwrap()), shown(&expected));
}

fn store(to: u8, from: u8, off: i16) -> bpf_insn {
    instruction(sys::BPF_STX | sys::BPF_MEM | sys::BPF_DW, to, from, off, 0)
}

#[test]
fn a_branch_that_leads_nowhere_else_is_gone_with_what_it_asked_for() {
    let mask = instruction(sys::BPF_ALU64 | sys::BPF_AND | sys::BPF_K, 2, 0, 0, 4);
    // After the second one, a jump leads to where both join.
    let program = [
        jump_if_equal(1, 0, 4),
        mask,
        jump_if_equal(2, 0, 2),
        jump(1),
        call(1),
        number(0, 0),
        exit(),
    ];
    assert_eq!(shown(&folded(&program).unwrap()), shown(&program[5..]));
}

#[test]
fn a_store_does_not_read_the_first_register_and_an_exchange_may() {
    let exchange = |code| instruction(sys::BPF_STX | code | sys::BPF_DW, 1, 2, 0, sys::BPF_CMPXCHG as i32);
    let rest = |code| [exchange(code), number(0, 0), exit()];
    let program = |code| [&[number(0, 1)], &rest(code)[..]].concat();
    let folded = |code| shown(&folded(&program(code)).unwrap());
    assert_eq!(folded(sys::BPF_MEM), shown(&rest(sys::BPF_MEM)));
    assert_eq!(folded(sys::BPF_ATOMIC), shown(&program(sys::BPF_ATOMIC)));
}

#[test]
fn an_answer_that_waits_on_the_stack_is_told_at_once() {
    let answer = |n| [number(1, n), store(FRAME as u8, 1, -8)];
    let [one, other] = [answer(1), answer(2)];
    let program = [
        jump_if_equal(2, 0, 3),
        one[0],
        one[1],
        jump(2),
        other[0],
        other[1],
        load(sys::BPF_DW, 0, FRAME as u8, -8),
        exit(),
    ];
    let expected = [jump_if_equal(2, 0, 2), number(0, 1), exit(), number(0, 2), exit()];
    assert_eq!(shown(&folded(&program).unwrap()), shown(&expected));
}

#[test]
fn an_address_in_a_map_is_not_0() {
    let [low, high] = address(1);
    let program = [low, high, jump_if_equal(1, 0, 1), call(1), number(0, 0), exit()];
    assert_eq!(
        shown(&folded(&program).unwrap()),
        shown(&[low, high, call(1), number(0, 0), exit()])
    );
    // Nor is the sum of an address and a number; a distance may be.
    let added = |operation| instruction(sys::BPF_ALU64 | operation | sys::BPF_X, 1, 6, 0, 0);
    let program = |operation| {
        let added = added(operation);
        [low, high, added, jump_if_equal(1, 0, 1), call(1), number(0, 0), exit()]
    };
    assert_eq!(
        shown(&folded(&program(sys::BPF_ADD)).unwrap()),
        shown(&[low, high, added(sys::BPF_ADD), call(1), number(0, 0), exit()])
    );
    let turned = instruction(sys::BPF_ALU64 | sys::BPF_ADD | sys::BPF_X, 6, 1, 0, 0);
    let read = load(sys::BPF_DW, 0, 6, 0);
    let program_of_sum = [low, high, turned, jump_if_equal(6, 0, 1), read, exit()];
    assert_eq!(
        shown(&folded(&program_of_sum).unwrap()),
        shown(&[low, high, turned, read, exit()])
    );
    let distance = program(sys::BPF_SUB);
    assert_eq!(shown(&folded(&distance).unwrap()), shown(&distance));
}

#[test]
fn a_helper_without_arguments_needs_none() {
    let program = [
        number(1, 5),
        call(sys::BPF_FUNC_ktime_get_ns as i32),
        number(1, 6),
        call(1),
        exit(),
    ];
    let expected = [call(sys::BPF_FUNC_ktime_get_ns as i32), number(1, 6), call(1), exit()];
    assert_eq!(shown(&folded(&program).unwrap()), shown(&expected));
}

#[test]
fn a_large_constant_takes_two_instructions() {
    let [low, high] = constant(2, 8);
    let program = [low, high, load(sys::BPF_DW, 0, 2, 0), exit()];
    let expected = [
        instruction(sys::BPF_LD | sys::BPF_IMM | sys::BPF_DW, 0, 0, 0, 0),
        instruction(0, 0, 0, 0, i32::MIN),
        exit(),
    ];
    assert_eq!(shown(&folded(&program).unwrap()), shown(&expected));
}

#[test]
fn a_constant_is_known_on_the_stack_as_well() {
    let spill = |from| instruction(sys::BPF_STX | sys::BPF_MEM | sys::BPF_DW, FRAME as u8, from, -168, 0);
    let program = [
        number(6, 5),
        spill(6),
        call(1),
        load(sys::BPF_W, 6, FRAME as u8, -168),
        jump_if_equal(6, 5, 1),
        call(2),
        number(0, 0),
        exit(),
    ];
    assert_eq!(
        shown(&folded(&program).unwrap()),
        shown(&[call(1), number(0, 0), exit()])
    );
    // A callee may have written there.
    let program = [&program[..2], &stack_address(1, -176), &program[2..]].concat();
    assert_eq!(shown(&folded(&program).unwrap()), shown(&program));
}

/// `register` = an address of the stack.
fn stack_address(register: u8, offset: i32) -> [bpf_insn; 2] {
    [
        instruction(sys::BPF_ALU64 | sys::BPF_MOV | sys::BPF_X, register, FRAME as u8, 0, 0),
        instruction(sys::BPF_ALU64 | sys::BPF_ADD | sys::BPF_K, register, 0, 0, offset),
    ]
}

#[test]
fn a_stack_address_is_known_where_it_was_spilled() {
    let fill = |register| load(sys::BPF_DW, register, FRAME as u8, -16);
    let spilled = [&stack_address(6, -24)[..], &[store(FRAME as u8, 6, -16)]].concat();
    let written = [number(7, 5), store(FRAME as u8, 7, -24)];
    // What was written there is known by the address that is loaded again.
    let rest = [
        fill(8),
        load(sys::BPF_DW, 9, 8, 0),
        jump_if_equal(9, 5, 1),
        call(2),
        exit(),
    ];
    let program = [&[number(0, 0)], &spilled[..], &written, &rest].concat();
    let expected = [&[number(0, 0)], &spilled[..], &written, &[exit()]].concat();
    assert_eq!(shown(&folded(&program).unwrap()), shown(&expected));
    // A callee that is given an address below it may have overwritten both.
    let given = [&stack_address(1, -32)[..], &[call(1)]].concat();
    let program = [&spilled[..], &written, &given, &rest].concat();
    assert_eq!(shown(&folded(&program).unwrap()), shown(&program));
    // What is in that word then may still be an address of the stack, and a store by it may change all of that.
    let program = [&spilled[..], &given, &written, &[fill(2), store(2, 0, 0)], &rest].concat();
    assert_eq!(shown(&folded(&program).unwrap()), shown(&program));
    // Nowhere else.
    let [low, high] = address(2);
    assert!(folded(&[&stack_address(6, -24)[..], &[low, high, store(2, 6, 0), exit()]].concat()).is_none());
}

#[test]
fn what_is_not_known_here_stays_as_it_is() {
    assert!(folded(&[own(7), exit()]).is_none(), "nothing is there");
    let [low, high] = constant(2, 1);
    let address = bpf_insn { imm: 1, ..low };
    let mut address = [address, high];
    address[0].set_src_reg(sys::BPF_PSEUDO_FUNC as u8);
    assert!(
        folded(&[&address[..], &[exit()]].concat()).is_none(),
        "a function's address"
    );
    assert!(folded(&[number(0, 0)]).is_none(), "it has no end");
    assert!(folded(&[]).is_none());
}

/// A call of one of the program's own functions, this many instructions further.
fn own(distance: i32) -> bpf_insn {
    instruction(sys::BPF_JMP | sys::BPF_CALL, 0, sys::BPF_PSEUDO_CALL as u8, 0, distance)
}

#[test]
fn each_function_is_folded_and_those_that_are_called_stay() {
    let [low, high] = constant(7, 0);
    // A main function, a function that folding does not change, and one that becomes shorter.
    let program = [
        low,
        high,
        load(sys::BPF_W, 6, 7, 8),
        jump_if_equal(6, 0, 1),
        own(2),
        own(3),
        exit(),
        number(0, 1),
        exit(),
        low,
        high,
        load(sys::BPF_W, 0, 7, 0),
        exit(),
    ];
    let constants = Constants {
        map: MAP,
        bytes: &BYTES,
    };
    let folded = fold(&program, &constants).unwrap();
    assert_eq!(shown(&folded.program), shown(&[own(1), exit(), number(0, 1), exit()]));
    assert_eq!(folded.functions, [Moved { from: 0, to: 0 }, Moved { from: 9, to: 2 }]);
}

#[test]
fn a_call_to_before_the_program_is_left_as_it_is() {
    let constants = Constants {
        map: MAP,
        bytes: &BYTES,
    };
    assert!(fold(&[own(-2), exit()], &constants).is_none());
}

#[test]
fn of_a_folded_program_the_functions_that_changed_are_folded_again() {
    // A main function that calls another one depending on a number that is written in later, and two functions that could be
    // shorter.
    let shorter = [number(0, 1), jump_if_equal(0, 0, 1), number(0, 2), exit()];
    let [first, second, third, last] = shorter;
    let program = [
        number(6, 5),
        jump_if_equal(6, 5, 1),
        own(2),
        own(5),
        exit(),
        first,
        second,
        third,
        last,
        first,
        second,
        third,
        last,
    ];
    let constants = Constants {
        map: MAP,
        bytes: &BYTES,
    };
    let again = |is_changed: fn(&Range<usize>) -> bool| fold_again(&program, &constants, is_changed).unwrap();
    let begin = again(|function| function.contains(&0));
    let expected = [own(1), exit(), first, second, third, last];
    assert_eq!(shown(&begin.program), shown(&expected));
    assert_eq!(begin.functions, [Moved { from: 0, to: 0 }, Moved { from: 9, to: 2 }]);
    let both = again(|function| !function.contains(&5));
    assert_eq!(shown(&both.program), shown(&[own(1), exit(), number(0, 2), exit()]));
    let none = again(|_| false);
    assert_eq!(shown(&none.program), shown(&program));
    // The functions of an unfolded program are known as well.
    let whole = unfolded(&program);
    assert_eq!(shown(&whole.program), shown(&program));
    assert_eq!(whole.functions, [0, 5, 9].map(|index| Moved { from: index, to: index }));
    assert!(!whole.is_folded && none.is_folded);
}

/// Addresses of the stack and of the constants in the interpreter: numbers that arithmetic on other numbers does not reach.
const FLOOR: u64 = 0x5bd1_e995_7a00_0000;
const ADDRESS: u64 = 0x3c6e_f372_6b00_0000;

/// The stack from an address on, if it is a stack address.
fn on_stack(stack: &mut [u8], address: u64) -> Option<&mut [u8]> {
    stack.get_mut(usize::try_from(address.checked_sub(FLOOR)?).ok()?..)
}

/// The address that an instruction loads from.
fn source(registers: &[u64; REGISTERS], i: &bpf_insn) -> u64 {
    registers[usize::from(i.src_reg())].wrapping_add_signed(i64::from(i.off))
}

/// The address that it stores to.
fn destination(registers: &[u64; REGISTERS], i: &bpf_insn) -> u64 {
    registers[usize::from(i.dst_reg())].wrapping_add_signed(i64::from(i.off))
}

/// The observable effects of a program: what it stores outside its stack, its calls with what they can read, and its result.
fn trace(program: &[bpf_insn], mut registers: [u64; REGISTERS]) -> Vec<[u64; 6]> {
    let mut trace = Vec::new();
    let mut stack = [0; STACK as usize];
    registers[FRAME] = FLOOR + STACK as u64;
    let mut index = 0;
    loop {
        let i = &program[index];
        let mut known = State::at_entry();
        known.registers = registers.map(Value::Number);
        let constants = Constants {
            map: MAP,
            bytes: &BYTES,
        };
        index += 1;
        match i.code {
            EXIT => {
                trace.push([registers[0]; 6]);
                return trace;
            }
            JUMP => index = index.strict_add_signed(isize::from(i.off)),
            CALL => trace_call(i, &mut registers, &mut stack, &mut trace),
            LOAD_CONSTANT => {
                registers[usize::from(i.dst_reg())] = match loaded(i, &program[index], &constants).unwrap() {
                    Value::Number(number) => number,
                    // A unique address.
                    Value::Constant(offset) => ADDRESS + offset,
                    _ => unreachable!("there are no others"),
                };
                index += 1;
            }
            _ if is_branch(i) => {
                if branch(i, &known).unwrap() {
                    index = index.strict_add_signed(isize::from(i.off));
                }
            }
            _ if is_arithmetic(i) => {
                let Value::Number(number) = arithmetic(i, &known) else {
                    unreachable!("all operands are numbers")
                };
                registers[usize::from(i.dst_reg())] = number;
            }
            _ if class(i) == sys::BPF_LDX && on_stack(&mut stack, source(&registers, i)).is_some() => {
                let mut word = [0; 8];
                let seen = on_stack(&mut stack, source(&registers, i)).unwrap();
                let size = usize::from(size_of_access(i)).min(seen.len());
                word[..size].copy_from_slice(&seen[..size]);
                registers[usize::from(i.dst_reg())] = u64::from_le_bytes(word);
            }
            _ if class(i) == sys::BPF_LDX => {
                let from = registers[usize::from(i.src_reg())];
                known.registers[usize::from(i.src_reg())] = Value::Constant(from & 0xff);
                registers[usize::from(i.dst_reg())] = match read(i, &known, &constants) {
                    Value::Number(number) if from & !0xff == ADDRESS => number,
                    _ => from ^ 0x5a5a,
                };
            }
            _ if on_stack(&mut stack, destination(&registers, i)).is_some() => {
                let word = registers[usize::from(i.src_reg())].to_le_bytes();
                let bytes = on_stack(&mut stack, destination(&registers, i)).unwrap();
                let size = usize::from(size_of_access(i)).min(bytes.len());
                bytes[..size].copy_from_slice(&word[..size]);
            }
            _ => trace.push([
                registers[usize::from(i.dst_reg())],
                registers[usize::from(i.src_reg())],
                0,
                0,
                0,
                0,
            ]),
        }
    }
}

/// A call reads its arguments, and what they point to on the stack, and changes that.
fn trace_call(
    i: &bpf_insn,
    registers: &mut [u64; REGISTERS],
    stack: &mut [u8; STACK as usize],
    trace: &mut Vec<[u64; 6]>,
) {
    // Registers beyond the arguments are not observable.
    registers[usize::from(arguments(i)) + 1..=5].fill(0);
    trace.push(std::array::from_fn(
        |n| if n == 0 { i.imm as u64 } else { registers[n] },
    ));
    for (nth, argument) in registers[1..=5].iter().enumerate() {
        let Some(seen) = on_stack(stack, *argument) else {
            continue;
        };
        trace.extend(seen.iter().map(|byte| [u64::from(*byte); 6]));
        for byte in seen.iter_mut().take(9) {
            *byte ^= 0x11 << nth;
        }
    }
    for (number, register) in registers[..=5].iter_mut().enumerate() {
        *register = (trace.len() * 10 + number) as u64;
    }
}

#[derive(Debug, Clone)]
enum Step {
    Number(u8, i32),
    Arithmetic(u32, u8, u8, i32),
    Constant(u8, i32),
    Load(u8, u8),
    Branch(u32, u8, u8, i32, usize),
    Jump(usize),
    Store(u8, u8),
    Call(i32),
    Spill(u8, u32, i16),
    Fill(u8, u32, i16),
    Address(u8, i16),
}

fn step() -> impl Strategy<Value = Step> {
    let register = || 0..FRAME as u8;
    let small = || -3..4i32;
    let sizes = || prop::sample::select(vec![sys::BPF_B, sys::BPF_W, sys::BPF_DW]);
    let operations = prop::sample::select(vec![
        sys::BPF_ADD,
        sys::BPF_SUB,
        sys::BPF_MUL,
        sys::BPF_OR,
        sys::BPF_AND,
        sys::BPF_XOR,
        sys::BPF_LSH,
        sys::BPF_RSH,
        sys::BPF_ARSH,
        sys::BPF_MOV,
    ]);
    let classes = prop::sample::select(vec![sys::BPF_ALU, sys::BPF_ALU64]);
    let sources = || prop::sample::select(vec![sys::BPF_K, sys::BPF_X]);
    let conditions = prop::sample::select(vec![
        sys::BPF_JEQ,
        sys::BPF_JNE,
        sys::BPF_JSET,
        sys::BPF_JGT,
        sys::BPF_JGE,
        sys::BPF_JLT,
        sys::BPF_JLE,
        sys::BPF_JSGT,
        sys::BPF_JSGE,
        sys::BPF_JSLT,
        sys::BPF_JSLE,
    ]);
    let widths = prop::sample::select(vec![sys::BPF_JMP, sys::BPF_JMP32]);
    prop_oneof![
        (register(), small()).prop_map(|(a, n)| Step::Number(a, n)),
        (operations, classes, sources(), register(), register(), small())
            .prop_map(|(operation, class, source, a, b, n)| Step::Arithmetic(operation | class | source, a, b, n)),
        (register(), prop::sample::select(vec![0, 4, 8])).prop_map(|(a, n)| Step::Constant(a, n)),
        (register(), register()).prop_map(|(a, b)| Step::Load(a, b)),
        (
            conditions,
            widths,
            sources(),
            register(),
            register(),
            small(),
            0..6usize
        )
            .prop_map(|(condition, width, source, a, b, n, over)| Step::Branch(
                condition | width | source,
                a,
                b,
                n,
                over
            )),
        (0..4usize).prop_map(Step::Jump),
        (register(), register()).prop_map(|(a, b)| Step::Store(a, b)),
        (0..9i32).prop_map(Step::Call),
        (register(), sizes(), 1..5i16).prop_map(|(a, size, n)| Step::Spill(a, size, n)),
        (register(), sizes(), 1..5i16).prop_map(|(a, size, n)| Step::Fill(a, size, n)),
        (register(), 1..5i16).prop_map(|(a, n)| Step::Address(a, n)),
    ]
}

/// Jumps skip a number of steps, each of one or two instructions.
fn program_of(steps: &[Step]) -> Vec<bpf_insn> {
    let mut starts = Vec::new();
    let mut size = 0;
    for step in steps {
        starts.push(size);
        size += if matches!(step, Step::Constant(..) | Step::Address(..)) {
            2
        } else {
            1
        };
    }
    let off = |index: usize, over: usize| {
        let target = starts.get(index + 1 + over).copied().unwrap_or(size);
        (target - starts[index] - 1) as i16
    };
    // So that accesses of different sizes overlap.
    let offset = |size: u32, n: i16| if size == sys::BPF_DW { -8 * n } else { -4 * n };
    let mut program = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        match *step {
            Step::Number(a, n) => program.push(number(a, n)),
            Step::Arithmetic(code, a, b, _) if code as u8 & SOURCE_IS_REGISTER != 0 => {
                program.push(instruction(code, a, b, 0, 0));
            }
            Step::Arithmetic(code, a, _, n) => program.push(instruction(code, a, 0, 0, n)),
            Step::Constant(a, n) => program.extend(constant(a, n)),
            Step::Load(a, b) => program.push(load(sys::BPF_W, a, b, 0)),
            Step::Branch(code, a, b, _, over) if code as u8 & SOURCE_IS_REGISTER != 0 => {
                program.push(instruction(code, a, b, off(index, over), 0));
            }
            Step::Branch(code, a, _, n, over) => program.push(instruction(code, a, 0, off(index, over), n)),
            Step::Jump(over) => program.push(instruction(u32::from(JUMP), 0, 0, off(index, over), 0)),
            Step::Store(a, b) => {
                program.push(instruction(sys::BPF_STX | sys::BPF_MEM | sys::BPF_DW, a, b, 0, 0));
            }
            Step::Call(helper) => program.push(call(helper)),
            Step::Spill(a, size, n) => {
                let code = sys::BPF_STX | sys::BPF_MEM | size;
                program.push(instruction(code, FRAME as u8, a, offset(size, n), 0));
            }
            Step::Fill(a, size, n) => program.push(load(size, a, FRAME as u8, offset(size, n))),
            Step::Address(a, n) => {
                let code = sys::BPF_ALU64 | sys::BPF_MOV | sys::BPF_X;
                program.push(instruction(code, a, FRAME as u8, 0, 0));
                let code = sys::BPF_ALU64 | sys::BPF_ADD | sys::BPF_K;
                program.push(instruction(code, a, 0, 0, i32::from(-8 * n)));
            }
        }
    }
    program.push(exit());
    program
}

proptest! {
    #![proptest_config(fuzz::config())]

    #[test]
    fn a_folded_program_does_what_the_whole_one_does(
        steps in prop::collection::vec(step(), 0..40),
        registers in prop::array::uniform11(0..5u64),
    ) {
        let whole = program_of(&steps);
        // A program that stores a stack address, except to the stack, is not folded.
        let constants = Constants { map: MAP, bytes: &BYTES };
        let Some(first) = fold(&whole, &constants) else { return Ok(()) };
        let whole_trace = trace(&whole, registers);
        let others = [Some(first.program.clone()), finished(&first.program, |_| true), finished(&first.program, |_| false)];
        for less in others.into_iter().flatten() {
            prop_assert!(less.len() <= whole.len() + steps.len());
            let (less_shown, less) = (shown(&less), trace(&less, registers));
            let first = whole_trace.iter().zip(&less).position(|(whole, less)| whole != less);
            prop_assert!(whole_trace.len() == less.len() && first.is_none(), "from {first:?} on: {less_shown:?}");
        }
    }
}
