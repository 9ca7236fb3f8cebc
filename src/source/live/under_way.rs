//! Calls and requests under way, from the state that the programs keep until these end.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::fd::OwnedFd;

use libbpf_rs::MapCore;

use super::counters::{ReadError, usual_calls};
use crate::kernel::interface::types::{
    async_call, binned, bio_slot, bio_state, request_slot, request_state, thread_state,
};
use crate::model::abi::{ENTERED_LEFT_OUT, REQUEST_ISSUED};
use crate::model::ids::Layer;
use crate::model::snapshot::UnderWay;
use crate::probe::attach::Attached;
use crate::probe::plan::Plan;
use crate::probe::{PointWord, program};
use crate::sys::counters::Counters;
use crate::sys::table;

/// Reads the calls under way.
///
/// # Errors
/// If the kernel does not allow iterating over threads.
pub fn read(attached: &Attached, plan: &Plan) -> Result<UnderWay, ReadError> {
    let maps = &attached.skeleton.maps;
    let mut points = match &attached.in_flight {
        Some(walk) => points_in_task_storage(walk)?,
        None => points_in_table(&maps.threads_by_number)?,
    };
    if maps.bss_slots.autocreate() {
        for slots in Counters::pieces(&maps.bss_slots) {
            let slots = slots.map_err(|error| ReadError(error.to_string()))?;
            points.extend(points_of((0..slots.len()).filter_map(|slot| slots.element(slot))));
        }
    }
    if !plan.completions.is_empty() {
        points.extend(points_of_requests(attached)?);
    }
    let mut by_layer = BTreeMap::new();
    if attached.block_way.is_some() {
        by_layer.insert(Layer::Blk, requests_under_way(attached)?);
    }
    let (usual, unread) = usual_calls(attached);
    if let Some(error) = unread {
        return Err(error);
    }
    let in_cookies = (0..plan.ops.len()).map(|index| starts_in_cookies(attached, &usual, index));
    let in_cookies: Vec<u64> = in_cookies.collect();
    for (op, calls) in plan.ops.iter().zip(&in_cookies) {
        *by_layer.entry(op.layer).or_default() += calls;
    }
    for point in points {
        if let Some(op) = plan.ops.get(PointWord::op_of(point)) {
            *by_layer.entry(op.layer).or_default() += 1;
        }
    }
    Ok(UnderWay { by_layer, in_cookies })
}

/// Calls of an op under way whose start is in a cookie, including those whose return was skipped.
fn starts_in_cookies(attached: &Attached, usual: &[(usize, binned)], op: usize) -> u64 {
    let ended = |cpu: &binned| cpu.bins.iter().map(|bin| bin.calls).fold(0, u64::wrapping_add);
    let usual = usual.iter().filter(|(of, _)| *of == op);
    let usual = usual.map(|(_, cpu)| cpu.begun.wrapping_sub(ended(cpu)));
    let others = attached.counters.of_op(op).map(|cpu| cpu.under_way);
    // A call may end on another CPU than it began.
    let sum = others.chain(usual).fold(0, u64::wrapping_add);
    u64::try_from(sum.cast_signed()).unwrap_or(0)
}

fn points_in_task_storage(walk: &OwnedFd) -> Result<Vec<u32>, ReadError> {
    let mut bytes = Vec::new();
    program::walk(walk)
        .and_then(|mut walk| walk.read_to_end(&mut bytes))
        .map_err(|error| ReadError(error.to_string()))?;
    Ok(bytes
        .chunks_exact(4)
        .filter_map(|word| Some(u32::from_ne_bytes(word.try_into().ok()?)))
        .collect())
}

fn points_in_table(table: &impl MapCore) -> Result<Vec<u32>, ReadError> {
    let threads: Vec<thread_state> = entries(table)?;
    Ok(points_of(threads.into_iter()).collect())
}

fn points_of(threads: impl Iterator<Item = thread_state>) -> impl Iterator<Item = u32> {
    let frames = threads.flat_map(|thread| thread.calls.frames);
    // Asynchronous requests under way are counted by their own table; calls that are not measured are not counted.
    let under_way = frames.filter(|frame| frame.entered_ns > u64::from(ENTERED_LEFT_OUT) && frame.kiocb == 0);
    under_way.map(|frame| frame.point)
}

/// Requests, or bios of a disk without requests, that were issued and have not completed.
fn requests_under_way(attached: &Attached) -> Result<u64, ReadError> {
    let maps = &attached.skeleton.maps;
    if attached.block_way.as_ref().is_some_and(|way| way.is_bio_based) {
        let taken = taken(&maps.bss_bios, maps.bss_bios.autocreate(), |slot: &bio_slot| {
            slot.address
        })?;
        let others: Vec<bio_state> = entries(&maps.bios)?;
        return Ok((taken.len() + others.len()) as u64);
    }
    let mut states: Vec<request_state> = entries(&maps.requests)?;
    let exists = maps.bss_requests.autocreate();
    let taken = taken(&maps.bss_requests, exists, |slot: &request_slot| slot.address)?;
    states.extend(taken.into_iter().map(|slot| slot.state));
    let issued = states
        .iter()
        .filter(|state| u32::from(state.phase) == REQUEST_ISSUED && state.foreign == 0);
    Ok(issued.count() as u64)
}

/// Asynchronous requests under way, at each layer that counts them.
fn points_of_requests(attached: &Attached) -> Result<Vec<u32>, ReadError> {
    let calls: Vec<async_call> = entries(&attached.skeleton.maps.asynchronous)?;
    let points = calls.iter().flat_map(|call| call.starts).map(|start| start.point);
    Ok(points
        .filter(|&point| point != 0 && !PointWord::is_suppressed(point))
        .collect())
}

/// The slots of an array that have an address. `exists`: whether this run has the array.
fn taken<T: plain::Plain + Default>(
    array: &impl MapCore,
    exists: bool,
    address: impl Fn(&T) -> u64,
) -> Result<Vec<T>, ReadError> {
    let mut taken = Vec::new();
    for slots in exists.then(|| Counters::pieces(array)).into_iter().flatten() {
        let slots = slots.map_err(|error| ReadError(error.to_string()))?;
        let all = (0..slots.len()).filter_map(|at| slots.element(at));
        taken.extend(all.filter(|slot| address(slot) != 0));
    }
    Ok(taken)
}

fn entries<T: plain::Plain + Default>(table: &impl MapCore) -> Result<Vec<T>, ReadError> {
    table::entries(table).map_err(|error| ReadError(format!("{}: {error}", table.name().to_string_lossy())))
}
