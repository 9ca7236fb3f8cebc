//! Attaching by perf events: kprobes, kretprobes, and events created in tracefs; and counting by perf itself.

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

use libbpf_sys as sys;

use crate::sys::text_of;

/// A program on a perf event. Closing it detaches.
#[derive(Debug)]
pub struct PerfLink {
    /// `None` on kernels without perf links (before 5.15): the program is attached to the event itself.
    link: Option<OwnedFd>,
    _event: OwnedFd,
}

// linux/perf_event.h
const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_TYPE_TRACEPOINT: u32 = 2;
const PERF_COUNT_SW_CONTEXT_SWITCHES: u64 = 3;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;

nix::ioctl_write_int!(perf_event_set_bpf, b'$', 8);
nix::ioctl_none!(perf_event_enable, b'$', 0);
nix::ioctl_write_int_bad!(perf_group_enable, nix::request_code_none!(b'$', 0));
nix::ioctl_write_int_bad!(perf_group_disable, nix::request_code_none!(b'$', 1));
const PERF_IOC_FLAG_GROUP: libc::c_int = 1;

/// Opens an event for all processes on this CPU, in a group if one is given.
fn open(attributes: &mut sys::perf_event_attr, cpu: libc::c_int, group: Option<&File>) -> io::Result<OwnedFd> {
    attributes.size = size_of::<sys::perf_event_attr>() as u32;
    let any_process: libc::pid_t = -1;
    let group: libc::c_int = group.map_or(-1, AsRawFd::as_raw_fd);
    // SAFETY: `attributes` is valid for the size it states.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_mut(attributes),
            any_process,
            cpu,
            group,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the system call returned this new descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// The CPU of an event whose program runs for hits on all CPUs: any that is online, which the first one need not be.
fn any_cpu() -> libc::c_int {
    let online = text_of("/sys/devices/system/cpu/online").unwrap_or_default();
    first_in(&online).unwrap_or(0)
}

/// The first number of a list in the kernel's format: `1,3-5`.
fn first_in(list: &str) -> Option<libc::c_int> {
    list.trim_end().split([',', '-']).next()?.parse().ok()
}

/// A number in a file of sysfs or tracefs, possibly after a prefix such as `config:`.
///
/// # Errors
/// When it cannot be read.
pub fn read_number(path: impl AsRef<Path>) -> io::Result<u32> {
    let path = path.as_ref();
    let no_number = || {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{} holds no number", path.display()),
        )
    };
    number_in(&text_of(path)?).ok_or_else(no_number)
}

fn number_in(text: &str) -> Option<u32> {
    text.trim().rsplit(':').next()?.parse().ok()
}

/// Attaches `program` to the entry or the return of `function` by perf's own kprobe.
///
/// # Errors
/// The kernel's error: ENOENT or EINVAL for a function that cannot be probed, EACCES and EPERM for missing privileges.
pub fn attach_kprobe(program: BorrowedFd<'_>, function: &str, at_return: bool, cookie: u64) -> io::Result<PerfLink> {
    const UNIT: &str = "/sys/bus/event_source/devices/kprobe";
    let name = CString::new(function)?;
    let mut attributes = sys::perf_event_attr {
        type_: read_number(format!("{UNIT}/type"))?,
        ..Default::default()
    };
    if at_return {
        attributes.config = 1 << read_number(format!("{UNIT}/format/retprobe"))?;
    }
    attributes.__bindgen_anon_3.config1 = name.as_ptr() as u64;
    attach(program, open(&mut attributes, any_cpu(), None)?, cookie)
}

/// Attaches `program` to the tracepoint or tracefs event of this number.
///
/// # Errors
/// The kernel's error.
pub fn attach_event(program: BorrowedFd<'_>, id: u64) -> io::Result<PerfLink> {
    let mut attributes = sys::perf_event_attr {
        type_: PERF_TYPE_TRACEPOINT,
        config: id,
        ..Default::default()
    };
    attributes.__bindgen_anon_1.sample_period = 1;
    attach(program, open(&mut attributes, any_cpu(), None)?, 0)
}

/// Context switches of one CPU, by two of the kernel's counters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Switches {
    pub cpu: usize,
    /// By perf's software event.
    pub counted: u64,
    /// By the tracepoint `sched_switch`, which some kernels do not call for some tasks.
    pub traced: u64,
}

/// Both counters of a CPU's context switches.
#[derive(Debug)]
pub struct SwitchCounters {
    cpu: usize,
    counted: File,
    traced: File,
}

impl SwitchCounters {
    /// Starts the counters of all CPUs. `tracefs`: where it is mounted.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn start(tracefs: &Path) -> io::Result<Vec<Self>> {
        let id = read_number(tracefs.join("events/sched/sched_switch/id"))?;
        let cpus = libbpf_rs::num_possible_cpus().map_err(io::Error::other)?;
        let mut all = Vec::new();
        for cpu in 0..cpus {
            match Self::of(cpu, id) {
                Ok(counters) => all.push(counters),
                Err(error) if error.raw_os_error() == Some(libc::ENODEV) => {} // The CPU is offline.
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    }

    fn of(cpu: usize, id: u32) -> io::Result<Self> {
        let number = libc::c_int::try_from(cpu).map_err(io::Error::other)?;
        let mut counted = sys::perf_event_attr {
            type_: PERF_TYPE_SOFTWARE,
            config: PERF_COUNT_SW_CONTEXT_SWITCHES,
            ..Default::default()
        };
        counted.set_disabled(1);
        let counted = File::from(open(&mut counted, number, None)?);
        let mut traced = sys::perf_event_attr {
            type_: PERF_TYPE_TRACEPOINT,
            config: id.into(),
            ..Default::default()
        };
        let traced = File::from(open(&mut traced, number, Some(&counted))?);
        // SAFETY: the event is open.
        unsafe { perf_group_enable(counted.as_raw_fd(), PERF_IOC_FLAG_GROUP) }?;
        Ok(Self { cpu, counted, traced })
    }

    /// Stops both counters at the same moment.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn stop(mut self) -> io::Result<Switches> {
        // SAFETY: the event is open.
        unsafe { perf_group_disable(self.counted.as_raw_fd(), PERF_IOC_FLAG_GROUP) }?;
        let read = |event: &mut File| -> io::Result<u64> {
            let mut number = [0; 8];
            event.read_exact(&mut number)?;
            Ok(u64::from_ne_bytes(number))
        };
        Ok(Switches {
            cpu: self.cpu,
            counted: read(&mut self.counted)?,
            traced: read(&mut self.traced)?,
        })
    }
}

/// `cookie`: not 0 only where links have cookies (5.15).
fn attach(program: BorrowedFd<'_>, event: OwnedFd, cookie: u64) -> io::Result<PerfLink> {
    let mut options = sys::bpf_link_create_opts {
        sz: size_of::<sys::bpf_link_create_opts>() as sys::size_t,
        ..Default::default()
    };
    options.__bindgen_anon_1.perf_event.bpf_cookie = cookie;
    // SAFETY: both descriptors are open, and the options are valid for the call.
    let link = unsafe {
        sys::bpf_link_create(
            program.as_raw_fd(),
            event.as_raw_fd(),
            sys::BPF_PERF_EVENT,
            &raw const options,
        )
    };
    let link = if link >= 0 {
        // SAFETY: the system call returned this new descriptor.
        Some(unsafe { OwnedFd::from_raw_fd(link) })
    } else if cookie != 0 {
        return Err(io::Error::from_raw_os_error(-link));
    } else {
        // SAFETY: both descriptors are open.
        unsafe { perf_event_set_bpf(event.as_raw_fd(), program.as_raw_fd() as u64) }.map_err(io::Error::from)?;
        None
    };
    // SAFETY: the event is open.
    unsafe { perf_event_enable(event.as_raw_fd()) }.map_err(io::Error::from)?;
    Ok(PerfLink { link, _event: event })
}

impl PerfLink {
    /// Hits that the kprobe missed (6.7: 3acf8ace6823). `None`: this kernel does not count them.
    #[must_use]
    pub fn missed(&self) -> Option<u64> {
        let info = link_info(self.link.as_ref()?)?;
        // SAFETY: the kernel filled in the member for this type of link.
        let perf = unsafe { info.__bindgen_anon_1.perf_event };
        let is_kprobe = matches!(perf.type_, sys::BPF_PERF_EVENT_KPROBE | sys::BPF_PERF_EVENT_KRETPROBE);
        // SAFETY: as above; `missed` is 0 on kernels that do not fill it.
        let missed = unsafe { perf.__bindgen_anon_1.kprobe.missed };
        is_kprobe.then_some(missed)
    }
}

/// The kernel's information about a link.
#[must_use]
pub fn link_info(link: &OwnedFd) -> Option<sys::bpf_link_info> {
    let mut info = sys::bpf_link_info::default();
    let mut size = size_of::<sys::bpf_link_info>() as u32;
    // SAFETY: `info` is valid for `size` bytes.
    let failed = unsafe { sys::bpf_obj_get_info_by_fd(link.as_raw_fd(), (&raw mut info).cast(), &raw mut size) };
    (failed == 0).then_some(info)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;

    #[test]
    fn numbers_stand_alone_or_behind_a_word() {
        assert_eq!(number_in("6\n"), Some(6));
        assert_eq!(number_in("config:0\n"), Some(0));
        assert_eq!(number_in("config:0-7\n"), None);
    }

    #[test]
    fn an_event_is_on_the_first_cpu_that_is_online() {
        for (list, first) in [
            ("0-3\n", Some(0)),
            ("1\n", Some(1)),
            ("2-5,7\n", Some(2)),
            ("3,5-6\n", Some(3)),
            ("\n", None),
            ("", None),
        ] {
            assert_eq!(first_in(list), first, "{list}");
        }
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn any_text_is_read(text in fuzz::text_like("config:0\n")) {
            let _ = number_in(&text);
        }
    }
}
