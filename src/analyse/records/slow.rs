//! Slow calls, from records.

use super::names::Names;
use crate::analyse::Measured;
use crate::catalog::{Layer, SYSCALLS};
use crate::model::clock::Clock;
use crate::model::record::Call;
use crate::model::report::slow::{CallPath, PathKind, SlowCall, SlowRow};
use crate::model::run_info::RunInfo;

/// Largest errno that a system call returns.
pub const MAX_ERRNO: i64 = 4095;

/// The errno of a call that failed, by what it returned.
#[must_use]
pub fn errno_of(value: i64) -> Option<i32> {
    (-MAX_ERRNO..0).contains(&value).then(|| -value as i32)
}

/// A call of this run as it is reported when it was slow; `None`: it has not ended.
#[must_use]
pub fn slow_call(call: &Call, run: &RunInfo, names: &Names, clock: Clock) -> Option<SlowCall> {
    let end_ns = call.end_ns?;
    let key = names.key(call.files[0]);
    let given = call.paths.as_deref().and_then(|paths| paths.first.as_ref());
    let given = given.map(|path| CallPath {
        kind: PathKind::Given,
        text: path.text.clone(),
    });
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
        path: key.and_then(|key| names.path(key)).or(given),
        inode: key.and_then(|key| names.file(key).inode),
        offset: call.offset,
        size: call.size,
        bytes: (moves_bytes && errno.is_none()).then_some(call.value.unsigned_abs()),
        errno,
        total_ns: end_ns.saturating_sub(call.begin_ns),
        rows: rows.filter(|row| row.ns > 0).collect(),
        not_split: measured.is_none_or(|measured| !measured.is_split()),
    })
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
    use crate::model::record::{GivenPath, Paths};
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
        let text = "gone".to_owned();
        let first = Some(GivenPath { text, base: 0 });
        call.paths = Some(Box::new(Paths { first, second: None }));
        let failed = slow(&call, &RunInfo::default()).unwrap();
        assert_eq!((failed.errno, failed.bytes, failed.rows.len()), (Some(2), None, 0));
        assert_eq!(failed.path.unwrap().kind, PathKind::Given);
        call.end_ns = None;
        assert!(slow(&call, &run).is_none());
    }
}
