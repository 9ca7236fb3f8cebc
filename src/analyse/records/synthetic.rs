//! Records for tests.

use crate::model::ids::{Op, Origin};
use crate::model::record::{AsyncCall, Call, FileNumber, OpenFile, Records, Request, Thread};
use crate::model::report::slow::{CallPath, Inode};

/// A call on the open file 1 of the process 7, which takes 10 ns.
pub fn call(op: Op, begin_ns: u64, offset: u64, size: u64) -> Call {
    Call {
        tid: 7,
        pid: 7,
        begin_ns,
        end_ns: Some(begin_ns.saturating_add(10)),
        op,
        offset: Some(offset),
        size: Some(size),
        files: [1, 0],
        fd: Some(3),
        ..Call::default()
    }
}

pub fn asynchronous(op: Op, begin_ns: u64, offset: u64, size: u64) -> AsyncCall {
    AsyncCall {
        pid: 7,
        tid: 7,
        op,
        begin_ns,
        attempt_end_ns: begin_ns.saturating_add(5),
        end_ns: begin_ns.saturating_add(10),
        key: 1,
        file: 1,
        offset: Some(offset),
        size: Some(size),
        is_direct: true,
        ..AsyncCall::default()
    }
}

/// A request of the disk 8:0 and its partition 8:1 for the process 7 and the inode 100, at the device for 10 ns.
pub fn request(op: Op, issued_ns: u64, sector: u64, bytes: u64) -> Request {
    Request {
        disk: [8, 0],
        partition: [8, 1],
        sector,
        bytes,
        op,
        submitted_ns: Some(issued_ns.saturating_sub(4)),
        started_ns: Some(issued_ns.saturating_sub(2)),
        issued_ns: Some(issued_ns),
        ended_ns: issued_ns.saturating_add(10),
        tid: 7,
        pid: 7,
        origin: Origin::Own,
        inode: Some(inode(100)),
        ..Request::default()
    }
}

pub fn inode(number: u64) -> Inode {
    Inode::on([8, 1], number)
}

pub fn open_file(number: FileNumber, inode_number: u64, path: &str) -> OpenFile {
    OpenFile {
        number,
        inode: Some(inode(inode_number)),
        path: Some(CallPath::whole(path)),
        ..Default::default()
    }
}

pub fn process(pid: u32, comm: &str) -> Thread {
    Thread {
        tid: pid,
        pid,
        comm: comm.to_owned(),
        ..Default::default()
    }
}

/// The open file 1, which is `/data`, and the process 7, which is `app`.
pub fn definitions() -> Records {
    Records {
        files: vec![open_file(1, 100, "/data")],
        threads: vec![process(7, "app")],
        ..Records::default()
    }
}

/// Numbers that look random and are always the same.
pub fn random(seed: u64) -> impl Iterator<Item = u64> {
    let mut state = seed | 1;
    std::iter::repeat_with(move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    })
}
