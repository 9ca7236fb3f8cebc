//! The cost of a call does not grow with the number of threads, CPUs, or measured ops.

use super::costs::{MINUTE, cached, end, tell, tool};
use crate::guest::{Check, Guest, ours, wait_for};
use crate::protocol::COUNTED_8;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use std::ops::Range;
use std::sync::Barrier;
use std::time::{Duration, Instant};

pub const CHECKS: &[Check] = &[
    Check::counted("scaling: a pread of more and more threads", by_threads)
        .when(|guest| guest.table && guest.kernel == "6.1"),
    Check::counted("scaling: a pread, and more and more ops", by_ops)
        .when(|guest| guest.table && guest.kernel == "6.1"),
    Check::counted_by(COUNTED_8, "scaling: a pread on more and more CPUs", by_cpus).when(|guest| guest.table),
];

const CROWDS: [usize; 4] = [1, 10, 100, 1_000];
const CPUS: [usize; 4] = [1, 2, 4, 8];
/// The maximum increase of the added cost, in percent, with many threads, with many CPUs, and with many ops.
const MARGIN: f64 = 10.0;
/// The cheapest of each thread's batches counts. The first ones look up the thread's data for the first time.
const BATCHES: usize = 10;
const BATCH: usize = 50;
/// Reads of each CPU in a round, enough to make the round's own cost negligible.
const AT_ONCE: usize = 2_000;
const ROUNDS: usize = 5;

/// A thread's data is found in one step, however many threads there are.
fn by_threads(guest: &Guest) -> Result<(), String> {
    each(guest, &CROWDS, "threads", per_call)
}

/// No CPU waits for another one. A guest's CPUs take turns, and all instructions are on its single clock: from the
/// start of the first one to the end of the last one, it has those of all.
fn by_cpus(guest: &Guest) -> Result<(), String> {
    each(guest, &CPUS, "CPUs", per_call_at_once)
}

/// The ops of another layer do not add to the cost.
fn by_ops(guest: &Guest) -> Result<(), String> {
    let without = per_call(1)?;
    let mut added = Vec::new();
    for layers in ["vfs", "vfs,blk"] {
        let what = measuring(guest, layers, || per_call(1))? - without;
        tell(guest, &format!("-T {layers}"), what)?;
        added.push(what);
    }
    grows_not(&added)
}

/// Measures while the tool runs and after it has ended.
fn measuring<T>(guest: &Guest, layers: &str, measure: impl Fn() -> Result<T, String>) -> Result<T, String> {
    let own = std::process::id().to_string();
    let running = tool(guest, &["-T", layers, "--probe", "fentry", "-p", &own])?;
    let measured = measure()?;
    end(running)?;
    wait_for("the kernel to take out its programs", MINUTE, || ours().is_empty())?;
    Ok(measured)
}

/// The instructions added to a call, for each number of threads or CPUs.
fn each(guest: &Guest, numbers: &[usize], of: &str, per_call: fn(usize) -> Result<f64, String>) -> Result<(), String> {
    let all = || -> Result<Vec<f64>, String> { numbers.iter().map(|&number| per_call(number)).collect() };
    let without = all()?;
    let with = measuring(guest, "vfs", all)?;
    let pairs = with.iter().zip(&without);
    let added: Vec<f64> = pairs.map(|(with, without)| with - without).collect();
    for (number, added) in numbers.iter().zip(&added) {
        tell(guest, &format!("vfs {number} {of}"), *added)?;
    }
    grows_not(&added)
}

fn grows_not(added: &[f64]) -> Result<(), String> {
    match added {
        [first, others @ ..] if others.iter().all(|more| more * 100.0 <= first * (100.0 + MARGIN)) => Ok(()),
        all => Err(format!("it costs more and more: {all:.0?}")),
    }
}

/// The cost of a call while each of this many CPUs makes them, in the cheapest of several rounds.
fn per_call_at_once(cpus: usize) -> Result<f64, String> {
    let all_are_there = Barrier::new(cpus);
    let rounds: Result<Vec<[Span; ROUNDS]>, String> = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..cpus)
            .map(|cpu| {
                let all_are_there = &all_are_there;
                scope.spawn(move || read_on(cpu, all_are_there))
            })
            .collect();
        let joined = readers.into_iter().map(|reader| reader.join());
        joined.map(|read| read.map_err(|_| "a reader has panicked")?).collect()
    });
    let rounds = rounds?;
    let took = |round: usize| {
        let first = rounds.iter().map(|of_cpu| of_cpu[round].start).min();
        let last = rounds.iter().map(|of_cpu| of_cpu[round].end).max();
        first.zip(last).map(|(first, last)| last - first)
    };
    let least = (0..ROUNDS).filter_map(took).min().ok_or("no thread has read")?;
    Ok(least.as_nanos() as f64 / (cpus * AT_ONCE) as f64)
}

/// From before a CPU's first read of a round to after its last one.
type Span = Range<Instant>;

/// Reads on this CPU, the same number in each round. Rounds are kept up even after a failure, so that no thread waits
/// for ever.
fn read_on(cpu: usize, all_are_there: &Barrier) -> Result<[Span; ROUNDS], String> {
    let mut done = cached();
    let mut on = CpuSet::new();
    let stays = on.set(cpu).and_then(|()| sched_setaffinity(Pid::from_raw(0), &on));
    let spans = [(); ROUNDS].map(|()| {
        all_are_there.wait();
        let start = Instant::now();
        if let Ok(read) = &mut done
            && let Err(error) = (0..AT_ONCE).try_for_each(|_| read())
        {
            done = Err(error);
        }
        start..Instant::now()
    });
    stays.map_err(|e| format!("CPU {cpu}: {e}"))?;
    done.map(|_| spans)
}

/// The cost of a call for each of this many threads that take turns: the mean of the minimum of each.
fn per_call(threads: usize) -> Result<f64, String> {
    let all_are_there = Barrier::new(threads);
    let least: Result<Vec<Duration>, String> = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..threads).map(|_| scope.spawn(|| read(&all_are_there))).collect();
        let joined = readers.into_iter().map(|reader| reader.join());
        joined
            .map(|least| least.map_err(|_| "a reader has panicked")?)
            .collect()
    });
    let sum: Duration = least?.iter().sum();
    Ok(sum.as_nanos() as f64 / (threads * BATCH) as f64)
}

/// The shortest of a thread's batches, which was not interrupted. All threads exist until the last one has read.
fn read(all_are_there: &Barrier) -> Result<Duration, String> {
    let mut least = cached().map(|read| (read, Duration::MAX));
    all_are_there.wait();
    if let Ok((mut read, mut shortest)) = least {
        least = (0..BATCHES)
            .try_for_each(|_| {
                let start = Instant::now();
                (0..BATCH).try_for_each(|_| read())?;
                shortest = shortest.min(start.elapsed());
                Ok(())
            })
            .map(|()| (read, shortest));
    }
    all_are_there.wait();
    least.map(|(_, shortest)| shortest)
}
