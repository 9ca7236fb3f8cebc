//! Slow calls, from records.

use super::names::Names;
use crate::analyse::Measured;
use crate::catalog::{Layer, SYSCALLS};
use crate::model::clock::Clock;
use crate::model::record::{Call, errno_of};
use crate::model::report::slow::{CallPath, PathKind, SlowCall, SlowRow};
use crate::model::run_info::RunInfo;

/// A call of this run as it is reported when it was slow; `None`: it has not ended.
#[must_use]
pub fn slow_call(call: &Call, run: &RunInfo, names: &Names, clock: Clock) -> Option<SlowCall> {
    let end_ns = call.end_ns?;
    let key = names.key(call.files[0]);
    let measured = run.stack.as_ref().map(Measured::of);
    let rows = measured.iter().flat_map(|measured| {
        measured.rows().filter_map(|row| {
            Some(SlowRow {
                row,
                ns: call.rows[measured.slot(row)?],
            })
        })
    });
    let errno = errno_of(call.value);
    let moves_bytes = moves_bytes(call);
    Some(SlowCall {
        ended: clock.wall(end_ns),
        pid: call.pid,
        tid: call.tid,
        comm: names
            .thread_at(call.tid, end_ns)
            .map_or_else(String::new, |thread| thread.comm.to_string()),
        op: call.op,
        path: key.and_then(|key| names.path(key)).or_else(|| given_path(call)),
        inode: key.and_then(|key| names.file(key).inode),
        offset: call.offset,
        size: call.size,
        bytes: (moves_bytes && errno.is_none()).then_some(call.value.unsigned_abs()),
        errno,
        total_ns: end_ns.saturating_sub(call.begin_ns),
        rows: rows.filter(|row| row.ns > 0).collect(),
        not_split: is_not_split(run),
    })
}

/// The path that the call was given.
pub fn given_path(call: &Call) -> Option<CallPath> {
    let given = call.paths.as_ref()?.first.as_ref()?;
    Some(CallPath::new(PathKind::Given, given.text.clone()))
}

/// Whether no layer below the system calls was measured.
pub fn is_not_split(run: &RunInfo) -> bool {
    let measured = run.stack.as_ref().map(Measured::of);
    measured.is_none_or(|measured| !measured.is_split())
}

fn moves_bytes(call: &Call) -> bool {
    let index = SYSCALLS.iter().position(|known| known.op == call.op);
    index.is_some_and(|index| Layer::Syscall.ops()[index].moves_bytes)
}

#[cfg(test)]
mod tests {
    use super::super::synthetic;
    use super::*;
    use crate::model::ids::{Op, Row};
    use crate::model::record::GivenPath;
    use crate::model::run_info::StackInfo;

    #[test]
    fn a_slow_call_has_its_file_its_thread_and_its_rows() {
        let mut names = Names::default();
        names.learn(&synthetic::definitions());
        let run = RunInfo {
            stack: Some(StackInfo {
                layers: vec![(Layer::Syscall, true), (Layer::Vfs, true)],
                ..StackInfo::default()
            }),
            ..RunInfo::default()
        };
        let mut call = synthetic::call(Op::Pread64, 100, 4096, 512);
        call.value = 500;
        (call.rows[0], call.rows[1]) = (3, 7);
        let slow = |call: &Call, run: &RunInfo| slow_call(call, run, &names, Clock::default());
        let shown = slow(&call, &run).unwrap();
        assert_eq!(shown.path.as_ref().map(|path| &*path.text), Some("/data"));
        assert_eq!((&*shown.comm, shown.bytes), ("app", Some(500)));
        assert_eq!((shown.total_ns, shown.offset, shown.errno), (10, Some(4096), None));
        let rows: Vec<(Row, u64)> = shown.rows.iter().map(|row| (row.row, row.ns)).collect();
        assert_eq!(rows, [(Row::Layer(Layer::Syscall), 3), (Row::Layer(Layer::Vfs), 7)]);
        call.value = -2;
        call.files = [0, 0];
        call.paths.get_or_insert_default().first = Some(GivenPath::new("gone", 0));
        let failed = slow(&call, &RunInfo::default()).unwrap();
        assert_eq!((failed.errno, failed.bytes, failed.rows.len()), (Some(2), None, 0));
        assert_eq!(failed.path.unwrap().kind, PathKind::Given);
        call.end_ns = None;
        assert!(slow(&call, &run).is_none());
    }
}
