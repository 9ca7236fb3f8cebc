//! What a call costs does not grow with the threads that make them.

use super::costs::{cached, end, tell, tool};
use crate::guest::{Check, Guest};
use std::sync::Barrier;
use std::time::{Duration, Instant};

pub const CHECKS: &[Check] = &[Check::counted("scaling: a pread of more and more threads", by_threads)
    .when(|guest| guest.table && guest.kernel == "6.1")];

const CROWDS: [usize; 4] = [1, 10, 100, 1_000];
/// By how much what is added may be more to each of many threads, in percent of what it is to one.
const MARGIN: f64 = 10.0;
/// Of each thread's batches the cheapest one counts. The first ones find what belongs to it for the first time.
const BATCHES: usize = 10;
const BATCH: usize = 50;

/// What belongs to a thread is found in one step, however many there are.
fn by_threads(guest: &Guest) -> Result<(), String> {
    let all = || -> Result<Vec<f64>, String> { CROWDS.into_iter().map(per_call).collect() };
    let without = all()?;
    let own = std::process::id().to_string();
    let running = tool(guest, &["-T", "vfs", "--probe", "fentry", "-p", &own])?;
    let with = all()?;
    end(running)?;
    let added: Vec<f64> = with
        .iter()
        .zip(&without)
        .map(|(with, without)| with - without)
        .collect();
    for (threads, added) in CROWDS.into_iter().zip(&added) {
        tell(guest, &format!("vfs {threads} threads"), *added)?;
    }
    match added.as_slice() {
        [first, others @ ..] if others.iter().all(|more| more * 100.0 <= first * (100.0 + MARGIN)) => Ok(()),
        all => Err(format!("it costs more and more: {all:.0?}")),
    }
}

/// What a call takes each of so many threads that make them by turns: the mean of what was the least for each.
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

/// The shortest of a thread's batches, which nothing has interrupted. All threads live until the last one has read.
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
