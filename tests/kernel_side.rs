//! Tests of parts of the kernel side that are compiled for this machine (`tests/kernel_side/`).

#[path = "kernel_side/compile.rs"]
mod compile;

use std::collections::HashMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use iostackbreakdown::catalog::{Files, Returns, Shape};
use iostackbreakdown::kernel::interface::{
    OPEN_FUNCTIONS, POINT_FRAME_SHIFT, POINT_OUTERMOST_SHIFT, ROW_FS, ROW_VFS, SYSCALL_FRAME,
};
use iostackbreakdown::probe::PointWord;
use proptest::collection::vec;
use proptest::prelude::*;

/// `tests/kernel_side/table.c`, compiled once.
static TABLE: LazyLock<PathBuf> = LazyLock::new(|| compile::compile("table", env!("CARGO_TARGET_TMPDIR")));
/// `tests/kernel_side/breakdown.c`, compiled once.
static BREAKDOWN: LazyLock<PathBuf> = LazyLock::new(|| compile::compile("breakdown", env!("CARGO_TARGET_TMPDIR")));
/// `tests/kernel_side/frames.c`, compiled once.
static FRAMES: LazyLock<PathBuf> = LazyLock::new(|| compile::compile("frames", env!("CARGO_TARGET_TMPDIR")));
/// `tests/kernel_side/ends.c`, compiled once.
static ENDS: LazyLock<PathBuf> = LazyLock::new(|| compile::compile("ends", env!("CARGO_TARGET_TMPDIR")));

/// Runs a part of the kernel side with these words as its input, and returns its output.
fn words_of(command: &mut Command, input: &[u64]) -> Vec<u64> {
    let input: Vec<u8> = input.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let mut part = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stdin = part.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&input).unwrap());
    let output = part.wait_with_output().unwrap();
    writer.join().unwrap();
    assert!(output.status.success(), "{}", output.status);
    let words = output.stdout.chunks_exact(8);
    words.map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect()
}

/// Where failing cases are stored.
fn told_and_not_kept() -> ProptestConfig {
    ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// As in `tests/kernel_side/table.c`.
#[derive(Debug, Clone, Copy)]
enum Turn {
    Find,
    Keep(u64),
    Forget,
    /// Deletes an address without a previous lookup.
    Drop,
}

#[derive(Debug)]
struct Answer {
    found: u64,
    failed: i64,
    overflow: u64,
    entries: u64,
}

/// The table's answer to each turn.
fn ask(entries: u64, has_slots: bool, turns: &[(u64, Turn)]) -> Vec<Answer> {
    let mut input = Vec::new();
    for &(address, turn) in turns {
        let (what, value) = match turn {
            Turn::Find => (0, 0),
            Turn::Keep(value) => (1, value),
            Turn::Forget => (2, 0),
            Turn::Drop => (3, 0),
        };
        input.extend([what, address, value]);
    }
    let mut command = Command::new(&*TABLE);
    command.args([entries.to_string(), u8::from(has_slots).to_string()]);
    let answers = words_of(&mut command, &input);
    let answers = answers.chunks_exact(4).map(|answer| Answer {
        found: answer[0],
        failed: answer[1].cast_signed(),
        overflow: answer[2],
        entries: answer[3],
    });
    answers.collect()
}

/// Addresses at the distances of requests, some with the same slot.
fn turns() -> BoxedStrategy<Vec<(u64, Turn)>> {
    let address = (1_u64..12).prop_map(|nth| 0xffff_8880_0420_0000 + nth * 448);
    let turn = prop_oneof![
        2 => Just(Turn::Find),
        4 => (1..u64::MAX).prop_map(Turn::Keep),
        2 => Just(Turn::Forget),
        1 => Just(Turn::Drop),
    ];
    vec((address, turn), 1..200).boxed()
}

proptest! {
    #![proptest_config(told_and_not_kept())]
    #[test]
    fn a_table_has_what_was_stored_and_nothing_else(turns in turns(), entries in 1_u64..12, has_slots: bool) {
        let answers = ask(entries, has_slots, &turns);
        prop_assert_eq!(answers.len(), turns.len());
        let mut kept = HashMap::new();
        for (&(address, turn), answer) in turns.iter().zip(&answers) {
            prop_assert_eq!(answer.found, kept.get(&address).copied().unwrap_or(0));
            match turn {
                Turn::Find => {}
                Turn::Keep(value) if answer.failed == 0 => {
                    kept.insert(address, value);
                }
                // Nothing is refused while there is room.
                Turn::Keep(_) => prop_assert_eq!((answer.failed, answer.entries), (-7, entries)),
                Turn::Forget | Turn::Drop => {
                    kept.remove(&address);
                }
            }
            // The hash map is only searched while it has entries.
            prop_assert_eq!(answer.overflow, if has_slots { answer.entries } else { 0 });
        }
    }
}

/// Four slots and more addresses: some are in the hash map, and one moves to its slot when that becomes free.
#[test]
fn entries_whose_slot_is_taken_are_in_the_hash_map() {
    let addresses: Vec<u64> = (1..12).map(|nth| 0xffff_8880_0420_0000 + nth * 448).collect();
    let keep = addresses.iter().map(|&address| (address, Turn::Keep(address)));
    let forget = addresses.iter().map(|&address| (address, Turn::Forget));
    let answers = ask(12, true, &keep.chain(forget).collect::<Vec<_>>());
    let most = answers.iter().map(|answer| answer.entries).max();
    assert_eq!(most, Some(addresses.len() as u64 - 4));
    assert_eq!(answers.last().map(|answer| answer.entries), Some(0));
}

/// Writeback may begin inside a large folio: its tail pages have no owner. The pages of direct I/O are those of the program.
#[test]
fn the_owner_of_a_tail_page_is_that_of_its_head() {
    let page = compile::compile("page", env!("CARGO_TARGET_TMPDIR"));
    let output = Command::new(page).output().unwrap();
    let owners = String::from_utf8(output.stdout).unwrap();
    let (owners, files): (Vec<&str>, Vec<&str>) = owners.lines().partition(|line| !line.starts_with("of "));
    assert_eq!(owners, ["head"; 6]);
    assert_eq!(files, ["of a file", "of no file", "of no file", "of no file"]);
}

/// A function of an op with a frame of its own.
fn function(op: u8, outermost: bool, shape: Shape) -> u32 {
    let word = PointWord {
        op,
        frame: op,
        shape,
        args: 1,
        returns: Returns::Status,
        shared: false,
        files: Files::None,
        outermost,
        suppressed: false,
        checked_at_return: false,
    };
    word.pack()
}

/// An event in a thread: it enters a function with this stack address, returns from one, or exits.
#[derive(Debug, Clone, Copy)]
enum Step {
    In(u32, u64),
    /// Another function of the same point, with this address.
    InOther(u64, u32, u64),
    /// It enters a function, and the sample leaves the call out, unless it is inside another one.
    InLeftOut(u32, u64),
    Out(u32),
    Exit,
}
use Step::{Exit, In, InLeftOut, InOther, Out};

/// For each turn, when the call that begins or ends was entered (0: none does), and the calls lost so far. The first
/// turn is at 1.
fn calls(steps: &[Step]) -> Vec<(u64, u64)> {
    calls_of(&mut Command::new(&*FRAMES), steps)
}

/// The same of a run with `--sample`.
fn sampled_calls(steps: &[Step]) -> Vec<(u64, u64)> {
    calls_of(Command::new(&*FRAMES).arg("sample"), steps)
}

fn calls_of(frames: &mut Command, steps: &[Step]) -> Vec<(u64, u64)> {
    let input = steps.iter().flat_map(|step| match *step {
        In(point, stack) => [0, point.into(), stack, point.into()],
        InOther(function, point, stack) => [0, point.into(), stack, function],
        InLeftOut(point, stack) => [3, point.into(), stack, point.into()],
        Out(point) => [1, point.into(), 0, 0],
        Exit => [2, 0, 0, 0],
    });
    let answers = words_of(frames, &input.collect::<Vec<_>>());
    assert_eq!(answers.len(), 3 * steps.len());
    assert_eq!(answers.last(), Some(&0), "nothing holds the thread's state any more");
    answers.chunks_exact(3).map(|answer| (answer[0], answer[1])).collect()
}

#[test]
fn a_system_call_returns_whichever_was_entered() {
    let call = function(SYSCALL_FRAME as u8, true, Shape::Syscall);
    let any = SYSCALL_FRAME << POINT_FRAME_SHIFT | 1 << POINT_OUTERMOST_SHIFT;
    assert_ne!(call, any);
    assert_eq!(calls(&[In(call, 900), Out(any), Out(any)]), [(1, 0), (1, 0), (0, 0)]);
    // The previous one has not returned.
    let again = [In(call, 900), In(call, 900), Out(any)];
    assert_eq!(calls(&again), [(1, 0), (2, 1), (2, 1)]);
}

/// Its frame has 1 in place of the time of its entry: the first turn, at 1, enters nothing.
#[test]
fn what_is_inside_a_call_that_is_left_out_is_no_call() {
    let (outer, inner) = (function(3, true, Shape::Fd0), function(3, false, Shape::File0));
    let nested = |first| [Out(outer), first, In(inner, 800), Out(inner), Out(outer), Out(outer)];
    let counted = [(0, 0), (2, 0), (0, 0), (0, 0), (2, 0), (0, 0)];
    assert_eq!(sampled_calls(&nested(In(outer, 900))), counted);
    let left_out = [(0, 0), (1, 0), (0, 0), (0, 0), (0, 0), (0, 0)];
    assert_eq!(sampled_calls(&nested(InLeftOut(outer, 900))), left_out);
    // Without a sample, what is drawn means nothing.
    assert_eq!(calls(&nested(InLeftOut(outer, 900))), counted);
}

#[test]
fn a_call_that_is_left_out_is_never_lost() {
    let [read, write] = [3, 4].map(|op| function(op, true, Shape::File0));
    // Its return was missed, and the next one proves it. A call that is measured is lost then.
    let missed = |first| [Out(read), first, In(read, 900), Out(read)];
    let after = |first| [(0, 0), first, (3, 0), (3, 0)];
    assert_eq!(sampled_calls(&missed(InLeftOut(read, 900))), after((1, 0)));
    assert_eq!(sampled_calls(&missed(In(read, 900))), [(0, 0), (2, 0), (3, 1), (3, 1)]);
    let exits = [Out(read), InLeftOut(read, 900), In(write, 900), Exit];
    assert_eq!(sampled_calls(&exits), [(0, 0), (1, 0), (3, 0), (0, 1)]);
    // System calls are chosen before they have a frame.
    let call = function(SYSCALL_FRAME as u8, true, Shape::Syscall);
    assert_eq!(
        sampled_calls(&[Out(call), InLeftOut(call, 900), Out(call)]),
        [(0, 0), (2, 0), (2, 0)]
    );
}

#[test]
fn a_call_is_that_of_its_outermost_function() {
    let (outer, inner) = (function(3, true, Shape::Fd0), function(3, false, Shape::File0));
    let nested = [In(outer, 900), In(inner, 800), Out(inner), Out(outer)];
    assert_eq!(calls(&nested), [(1, 0), (0, 0), (0, 0), (1, 0)]);
    // Nested in itself twice, as with overlayfs.
    let overlaid = [In(inner, 900), In(inner, 800), Out(inner), Out(inner)];
    assert_eq!(calls(&overlaid), [(1, 0), (0, 0), (0, 0), (1, 0)]);
    // The inner call was on another file, and was left out at its entry.
    let left_out = [In(outer, 900), Out(inner), Out(outer)];
    assert_eq!(calls(&left_out), [(1, 0), (0, 0), (1, 0)]);
}

/// Like `io_write_fixed`: it has left the stack when the other function is entered, and both return at the same time.
#[test]
fn a_function_reached_by_a_jump_is_inside_the_same_call() {
    const OTHER: u64 = 0xffff_0000;
    let write = function(3, false, Shape::Kiocb0);
    let jumps = [In(write, 900), InOther(OTHER, write, 900), Out(write), Out(write)];
    assert_eq!(calls(&jumps), [(1, 0), (0, 0), (0, 0), (1, 0)]);
    assert_eq!(calls(&[jumps, jumps].concat())[4..], [(5, 0), (0, 0), (0, 0), (5, 0)]);
    // A missing return is detected at the next call of the same function; the call that was taken for nested is lost as
    // well.
    let dead = [
        In(write, 900),
        InOther(OTHER, write, 900),
        Out(write),
        In(write, 900),
        Out(write),
    ];
    assert_eq!(calls(&dead), [(1, 0), (0, 0), (0, 0), (4, 2), (4, 2)]);
    let between = [In(write, 900), InOther(OTHER, write, 901), Out(write)];
    assert_eq!(calls(&between), [(1, 0), (2, 1), (2, 1)]);
}

#[test]
fn a_thread_that_exits_loses_all_calls_that_are_under_way() {
    let last = function(15, true, Shape::File0);
    let calls_of = |steps: &[Step]| calls(steps).last().map(|&(_, lost)| lost);
    let first = In(function(0, true, Shape::File0), 900);
    let middle = In(function(7, true, Shape::File0), 800);
    assert_eq!(calls_of(&[Exit]), Some(0));
    assert_eq!(calls_of(&[first, middle, In(last, 700), Exit, Exit]), Some(3));
    assert_eq!(calls_of(&[first, In(last, 700), Out(last), Exit]), Some(1));
}

#[test]
fn a_partly_seen_call_is_lost() {
    let (outer, inner) = (function(3, true, Shape::Fd0), function(3, false, Shape::File0));
    let other = function(3, false, Shape::Kiocb0);
    // The entry of the enclosing function, its return, and the return of another one inside it.
    assert_eq!(calls(&[In(inner, 800), Out(outer)]), [(1, 0), (0, 1)]);
    let no_return = [In(outer, 900), In(outer, 900), Out(outer)];
    assert_eq!(calls(&no_return), [(1, 0), (2, 1), (2, 1)]);
    assert_eq!(calls(&[In(inner, 800), Out(other)]), [(1, 0), (0, 1)]);
    // A function that is not untracked on the stack is not nested.
    let dead = [In(inner, 800), In(inner, 800), Out(inner)];
    assert_eq!(calls(&dead), [(1, 0), (2, 1), (2, 1)]);
}

/// A model of the kernel side's breakdown: the open functions of a call, as many as there is room for, and the row of
/// each.
#[derive(Debug)]
struct Open {
    keys: Vec<u64>,
    rows: Vec<u64>,
    untracked: u64,
    entries: u64,
    returns: u64,
}

impl Open {
    /// The first frame is the system call, whose key no function has; as in `tests/kernel_side/breakdown.c`.
    const SYSTEM_CALL: u64 = 64;
    const ROOM: usize = OPEN_FUNCTIONS as usize;

    fn enter(&mut self, key: u64) {
        if self.keys.len() < Self::ROOM {
            self.keys.push(key);
            self.rows.push(ROW_FS.into());
        } else {
            self.untracked += 1;
        }
    }

    fn leave(&mut self, key: u64, maybe_not_open: bool) {
        if self.untracked > 0 && !maybe_not_open {
            self.untracked -= 1;
            return;
        }
        match self.keys.iter().rposition(|open| *open == key) {
            Some(index) => {
                self.entries += (self.keys.len() - 1 - index) as u64;
                self.keys.truncate(index);
                self.rows.truncate(index);
            }
            None => self.returns += u64::from(!maybe_not_open),
        }
    }

    /// What is open is as before, and runs in the row of vfs from now on.
    fn do_the_rest(&mut self) {
        if let Some(last) = self.rows.last_mut() {
            *last = ROW_VFS.into();
        }
    }
}

proptest! {
    #![proptest_config(told_and_not_kept())]
    #[test]
    fn a_function_that_returns_closes_itself_and_those_above_it(
        // The events of `tests/kernel_side/breakdown.c`.
        turns in vec((prop_oneof![10 => Just(0_u64), 9 => Just(1), 1 => Just(2)], 0_u64..6, prop::bool::weighted(0.3)), 1..120)
    ) {
        let input: Vec<u64> = turns.iter().flat_map(|&(event, key, others)| [event, key, others.into()]).collect();
        let answers = words_of(&mut Command::new(&*BREAKDOWN), &input);
        prop_assert_eq!(answers.len(), 6 * turns.len());
        let mut open = Open { keys: vec![Open::SYSTEM_CALL], rows: vec![0], untracked: 0, entries: 0, returns: 0 };
        for (nth, (&(event, key, others), answer)) in turns.iter().zip(answers.chunks_exact(6)).enumerate() {
            match event {
                0 => open.enter(key),
                1 => open.leave(key, others),
                _ => open.do_the_rest(),
            }
            let (last, row) = (open.keys[open.keys.len() - 1], open.rows[open.rows.len() - 1]);
            // Every moment is in exactly one row.
            let reported = [open.keys.len() as u64, last, row, open.entries, open.returns, nth as u64 + 1];
            prop_assert_eq!(answer, reported);
        }
    }
}

/// Words of `struct sums` of `tests/kernel_side/ends.c`.
const SUMS: usize = 6;

/// A request at an address that earlier ones had; of one that only carries a flush there is no issue.
#[derive(Debug, Clone, Copy)]
struct Passing {
    has_data: bool,
    /// Whether a program ran at its issue, and at its end.
    issue_is_seen: bool,
    end_is_seen: bool,
}

proptest! {
    #![proptest_config(told_and_not_kept())]
    /// The kernel may run no program at an end. What then ends at the same address is not that request.
    #[test]
    fn a_request_whose_end_is_missed_is_lost_and_no_other_ends_for_it(
        passing in vec((prop::bool::weighted(0.7), prop::bool::weighted(0.8), prop::bool::weighted(0.7)), 0..40)
    ) {
        let passing = passing.into_iter().map(|(has_data, issue_is_seen, end_is_seen)| Passing {
            has_data,
            issue_is_seen: issue_is_seen && has_data,
            end_is_seen,
        });
        let whole = Passing { has_data: true, issue_is_seen: true, end_is_seen: true };
        let passing: Vec<Passing> = passing.chain([whole]).collect();
        let events = passing.iter().enumerate().flat_map(|(nth, request)| {
            let event = |what| [what, nth as u64 + 1, if request.has_data { 4096 } else { 0 }];
            let issue = request.issue_is_seen.then(|| event(0));
            issue.into_iter().chain(request.end_is_seen.then(|| event(1)))
        });
        let answers = words_of(&mut Command::new(&*ENDS), &events.flatten().collect::<Vec<_>>());
        let requests = |is_meant: fn(&Passing) -> bool| passing.iter().filter(|request| is_meant(request)).count() as u64;
        let ended = requests(|request| request.issue_is_seen && request.end_is_seen);
        let lost = requests(|request| request.issue_is_seen && !request.end_is_seen);
        let unmatched = requests(|request| request.has_data && !request.issue_is_seen && request.end_is_seen);
        prop_assert_eq!(answers.chunks_exact(SUMS).last(), Some(&[ended, lost, unmatched, 0, 0, 0][..]));
    }
}

/// Of a bio, the function that submits it, and the tracepoint that this reaches.
const SUBMIT: u64 = 2;
const QUEUE: u64 = 3;

/// A disk without a volatile cache gets no flush: the function that submits it ends it, and no program sees that.
#[test]
fn a_flush_is_kept_only_once_it_has_passed_the_function_that_submits_it() {
    let kept = |events: &[[u64; 3]]| {
        let answers = words_of(&mut Command::new(&*ENDS), events.as_flattened());
        answers.chunks_exact(SUMS).last().map(|sums| sums[4])
    };
    assert_eq!(kept(&[[SUBMIT, 0, 0]]), Some(0));
    assert_eq!(kept(&[[SUBMIT, 0, 0], [QUEUE, 0, 0]]), Some(1));
    assert_eq!(kept(&[[SUBMIT, 0, 4096]]), Some(1));
}

#[test]
fn a_record_gets_the_next_slot_of_its_cpu_unless_all_are_taken_or_another_one_was_faster() {
    let (take, preempted, read) = (0, 1, 2);
    let steps = [
        ((take, 0), 1),
        ((take, 1), 1),
        // The other one has the second slot.
        ((preempted, 0), 0),
        ((take, 0), 3),
        ((take, 0), 4),
        ((take, 0), 0),
        ((read, 0), 0),
        ((take, 0), 5),
        ((take, 0), 0),
        ((take, 1), 2),
        // A CPU that came after the start.
        ((take, 2), 0),
    ];
    let input: Vec<u64> = steps.iter().flat_map(|((what, cpu), _)| [*what, *cpu]).collect();
    let program = compile::compile("slot_ring", env!("CARGO_TARGET_TMPDIR"));
    let got = words_of(&mut Command::new(program), &input);
    assert_eq!(got, steps.map(|(_, position)| position));
}

/// Records of one length or of several, in any order: of a reader that comes when it is woken, no ring fills up.
#[test]
fn a_ring_wakes_its_reader_before_it_is_full() {
    const RING: u64 = 16 << 10;
    const LONGEST: u64 = 256;
    let program = compile::compile("kernel_ring", env!("CARGO_TARGET_TMPDIR"));
    let mixed = (0..4000_u64).map(|n| n * n / 7 % 4).collect();
    for records in [0, 1, 2, 3].map(|which| vec![which; 4000]).into_iter().chain([mixed]) {
        let unread = words_of(&mut Command::new(&program), &records);
        let most = unread.into_iter().max();
        assert!(
            most.is_some_and(|most| most < RING - LONGEST),
            "{most:?}: {:?}",
            &records[..4]
        );
    }
}

/// The function also ends bios beyond the end of a disk, and no program sees that. What a driver has split off passes it
/// again, inside the submission.
#[test]
fn a_bio_that_has_ended_without_an_event_gives_the_next_one_nothing() {
    const SUBMIT_AGAIN: u64 = 4;
    let mut command = Command::new(&*ENDS);
    command.arg("both");
    let events = [SUBMIT, SUBMIT, QUEUE, SUBMIT_AGAIN, QUEUE, SUBMIT, QUEUE].map(|what| [what, 0, 4096]);
    let answers = words_of(&mut command, events.as_flattened());
    let submitted: Vec<u64> = answers.chunks_exact(SUMS).map(|sums| sums[5]).collect();
    assert_eq!(submitted, [1, 2, 2, 2, 2, 3, 3]);
}

/// One of 4 MiB may have a bio for each page.
#[test]
fn no_bio_of_a_request_that_was_issued_is_kept() {
    const ISSUE_MANY: u64 = 5;
    for pages in [1, 2, 17, 129, 1024] {
        let mut command = Command::new(&*ENDS);
        command.arg("both");
        let events = [[SUBMIT, 0, 4096], [ISSUE_MANY, 1, pages * 4096]];
        let answers = words_of(&mut command, events.as_flattened());
        let kept: Vec<u64> = answers.chunks_exact(SUMS).map(|sums| sums[4]).collect();
        assert_eq!(kept, [1, 0], "{pages}");
    }
}

/// The end of the first request was missed. At its address, another process has one.
#[test]
fn a_request_is_lost_once() {
    let [issue, end] = [0, 1].map(|what| move |nth: u64| [what, nth, 4096]);
    let events = [[QUEUE, 0, 4096], issue(1), issue(2), end(2)];
    let answers = words_of(Command::new(&*ENDS).arg("owner"), events.as_flattened());
    let lost: Vec<u64> = answers.chunks_exact(SUMS).map(|sums| sums[1]).collect();
    assert_eq!(lost, [0, 0, 1, 1]);
}
