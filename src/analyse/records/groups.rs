//! What calls and requests are grouped by, from records.

use std::rc::Rc;

use super::names::{FileKey, Names};
use crate::model::ids::{By, Origin};
use crate::model::owner::Owners;
use crate::model::record::{Call, FileNumber, Request};
use crate::model::report::group::Who;

/// A group, by what its records have.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum GroupKey {
    Process(u32),
    /// A kernel thread, which makes no calls, so that no record defines it.
    KernelThread(u32, &'static str),
    Thread {
        tid: u32,
        pid: u32,
    },
    Comm(Rc<str>),
    File(FileKey),
    /// A whole disk, or the device of a file system without one.
    Disk([u32; 2]),
    Cgroup(u64),
    Fd {
        pid: u32,
        fd: i32,
        file: FileNumber,
    },
    User(u32),
    /// Calls on no file, requests without a known owner.
    None,
    /// Of all groups for which there is no room.
    NoRoom,
}

impl GroupKey {
    /// The group of a call.
    #[must_use]
    pub fn of_call(by: By, call: &Call, names: &Names) -> Self {
        let file = || names.key(call.files[0]);
        let thread = || names.thread_at(call.tid, call.end_ns.unwrap_or(call.begin_ns));
        match by {
            By::Process => Self::Process(call.pid),
            By::Thread => Self::Thread {
                tid: call.tid,
                pid: call.pid,
            },
            By::Comm => thread().map_or(Self::None, |thread| Self::Comm(Rc::clone(&thread.comm))),
            By::File => file().map_or(Self::None, |key| Self::File(names.counted_as(key))),
            By::Disk => file()
                .and_then(FileKey::device)
                .map_or(Self::None, |device| Self::Disk(names.whole_disk(device))),
            By::Cgroup | By::Unit | By::Pod | By::Container => {
                thread().map_or(Self::None, |thread| Self::of_cgroup(thread.cgroup))
            }
            By::Fd => match call.fd {
                Some(fd) => Self::Fd {
                    pid: call.pid,
                    fd,
                    file: call.files[0],
                },
                None => Self::None,
            },
            By::User => thread().map_or(Self::None, |thread| Self::User(thread.uid)),
        }
    }

    /// 0 is no group's number: that of the thread is unknown.
    fn of_cgroup(number: u64) -> Self {
        if number == 0 { Self::None } else { Self::Cgroup(number) }
    }

    /// The group of a request: that of the thread that submitted it.
    #[must_use]
    pub fn of_request(by: By, request: &Request, names: &Names) -> Self {
        let thread = || names.thread_at(request.tid, request.begin_ns());
        match by {
            By::File => names.counted_file_of(request).map_or(Self::None, Self::File),
            By::Disk => Self::Disk(names.whole_disk(request.disk)),
            // It is submitted by a thread, whatever descriptor its file has.
            By::Fd => Self::None,
            _ if request.tid == 0 => Self::None,
            By::Process | By::Thread if is_of_kernel(request.origin) => {
                Self::KernelThread(request.tid, kernel_name(request.origin))
            }
            By::Comm if is_of_kernel(request.origin) => Self::Comm(kernel_name(request.origin).into()),
            By::Process => match names.process_of(request) {
                0 => Self::None,
                pid => Self::Process(pid),
            },
            By::Thread => Self::Thread {
                tid: request.tid,
                pid: names.process_of(request),
            },
            By::Comm => thread().map_or(Self::None, |thread| Self::Comm(Rc::clone(&thread.comm))),
            By::Cgroup | By::Unit | By::Pod | By::Container => {
                thread().map_or(Self::None, |thread| Self::of_cgroup(thread.cgroup))
            }
            By::User => thread().map_or(Self::None, |thread| Self::User(thread.uid)),
        }
    }

    /// Its name in reports.
    #[must_use]
    pub fn who(&self, by: By, names: &Names) -> Who {
        let comm = |pid: u32| names.process(pid).comm.unwrap_or_else(|| "…".to_owned());
        match self {
            Self::Process(pid) => Who::Process {
                pid: (*pid).into(),
                comm: comm(*pid),
            },
            Self::KernelThread(tid, name) => Who::Process {
                pid: (*tid).into(),
                comm: (*name).to_owned(),
            },
            Self::Thread { tid, pid } => Who::Thread {
                tid: (*tid).into(),
                pid: (*pid).into(),
                comm: names.last_comm(*tid).unwrap_or("…").to_owned(),
            },
            Self::Comm(comm) => Who::Comm { comm: comm.to_string() },
            Self::File(key) => Who::File {
                inode: names.file(*key).inode,
                path: names.path(*key),
            },
            Self::Disk(device) => Who::Disk {
                name: names.device(*device),
            },
            // Whose ID a container had is known on the machine that it ran on.
            Self::Cgroup(number) => Owners::default().who(by, names.cgroup(*number)),
            Self::Fd { pid, fd, file } => Who::Fd {
                pid: (*pid).into(),
                comm: comm(*pid),
                fd: *fd,
                path: names.key(*file).and_then(|key| names.path(key)),
            },
            Self::User(uid) => Who::User { uid: *uid },
            Self::None | Self::NoRoom => Who::Unknown(by),
        }
    }
}

/// Whether a kernel thread submitted a request.
#[must_use]
pub fn is_of_kernel(origin: Origin) -> bool {
    matches!(
        origin,
        Origin::Kworker | Origin::Writeback | Origin::Journal | Origin::Kernel
    )
}

/// What the names of such threads begin with, by which the programs distinguish them.
fn kernel_name(origin: Origin) -> &'static str {
    match origin {
        Origin::Journal => "jbd2",
        Origin::Kworker | Origin::Writeback => "kworker",
        _ => "kernel thread",
    }
}
