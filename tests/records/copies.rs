//! Calls that copy from one file to another, at offsets that an argument points to and at the positions of the files.

use std::path::Path;

use iostackbreakdown::model::record::Call;

use super::{Recorded, open};

/// Of a copy without an offset in its second file, the argument that is particular to it.
const NONE: u64 = u64::MAX;
const BYTES: usize = 100;

/// The name of a call, its offset in its first file, and the argument that is particular to it.
type Copy = (&'static str, Option<u64>, u64);

/// Makes the calls on a file of some KiB, and on new ones beside it. Returns what their records have, in this order.
pub fn make(data: &Path) -> Vec<Copy> {
    let from = open(data, libc::O_RDONLY);
    let to = open(
        &data.with_extension("copy"),
        libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC,
    );
    let none = std::ptr::null_mut();
    let (mut first, mut second) = (200_i64, 300_i64);
    let (first, second) = (&raw mut first, &raw mut second);
    let mut pipe = [0; 2];
    // SAFETY: the descriptors are open, and the offsets live until the last call.
    let copied = unsafe {
        assert_eq!(libc::pipe(pipe.as_mut_ptr()), 0);
        [
            libc::sendfile64(to, from, none, BYTES),
            libc::sendfile64(to, from, first, BYTES),
            libc::copy_file_range(from, none, to, none, BYTES, 0),
            libc::copy_file_range(from, first, to, second, BYTES, 0),
            libc::copy_file_range(from, first, to, none, BYTES, 0),
            libc::splice(from, first, pipe[1], none, BYTES, libc::SPLICE_F_MOVE),
            libc::splice(from, none, pipe[1], none, BYTES, 0),
        ]
    };
    assert_eq!(copied, [BYTES as isize; 7]);
    for fd in [from, to, pipe[0], pipe[1]] {
        // SAFETY: open, and not used again.
        unsafe { libc::close(fd) };
    }
    // The kernel has moved the offset by what was copied before.
    vec![
        ("sendfile64", None, 0),
        ("sendfile64", Some(200), 0),
        ("copy_file_range", None, NONE),
        ("copy_file_range", Some(300), 300),
        ("copy_file_range", Some(400), NONE),
        ("splice", Some(500), libc::SPLICE_F_MOVE.into()),
        ("splice", None, 0),
    ]
}

/// Whether the records of this process have them.
pub fn are_in(recorded: &Recorded, made: &[Copy]) -> Result<(), String> {
    let is_its = |call: &&Call| call.pid == std::process::id() && made.iter().any(|(op, ..)| *op == call.op.name());
    let mut calls: Vec<&Call> = recorded.records.calls.iter().filter(is_its).collect();
    calls.sort_by_key(|call| call.begin_ns);
    let calls: Vec<Copy> = calls
        .iter()
        .map(|call| (call.op.name(), call.offset, call.extra))
        .collect();
    if calls == made {
        Ok(())
    } else {
        Err(format!("{calls:?}, not {made:?}"))
    }
}
