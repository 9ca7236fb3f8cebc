//! Guest tests: boots real Debian kernels under QEMU and runs checks inside them.
//!
//! Run everything with `cargo test --test vm`, or a part of it:
//!
//! ```text
//! cargo test --test vm -- --list                             configurations and checks
//! cargo test --test vm -- --kernels "6.1 7" --filter counts  some kernels, some checks
//! cargo test --test vm -- --kernels 6.12 --exec ./probe.sh   one program of yours, its output on stdout
//! ```
//!
//! At its end a run prints how long each guest and the slowest checks took, how much of that they waited for a CPU of
//! this machine, and the CPU time they used. For the rest, the guest slept.
//!
//! The tested tool is the release build, which is brought up to date first; the runner itself need not be one.
//!
//! `IOSB_KERNELS="6.1 7"` selects kernels like `--kernels`. A configuration is a kernel, optionally with a word on its
//! command line (`preempt=full`). The exit status is 0 only if every check of every configuration passed; a guest that
//! panics, hangs or ends without a verdict is a failure of its own. Wrong arguments exit 2.
//!
//! Requirements: `qemu-system-x86_64`, `mkfs.ext4`, `mkfs.xfs`, `apt-get`, `dpkg-deb`, `depmod`, `xz`, `zstd`, and a
//! Debian mirror among apt's sources (or named by `IOSB_DEBIAN_MIRROR`). Kernels, the scratch disk and the tools for
//! comparison are cached in `$XDG_CACHE_HOME/iostackbreakdown`. For scripts, `--exec` also needs a static `busybox`.
//!
//! A single executable has all parts, so that host and guest always agree about the protocol:
//!
//! | part | when | where |
//! | --- | --- | --- |
//! | runner | by default | `host/`: kernels, disk image, initramfs, QEMU, the verdict |
//! | init | process 1 of a guest | `guest/`: mounts, modules, one check after the other |
//! | family | first argument `family` | `family.rs`: a process with descendants |
//! | peer | first argument `peer` | `peers.rs`: executes another tool for comparison |
//! | reads | first argument `reads` | `checks/costs.rs`: a command that reads, and measures what a read takes |
//! | requests | first argument `async` | `async_io.rs`: asynchronous requests of known counts |
//! | scene | first argument `scene` | `scene.rs`: processes whose time is spent in one known row |
//! | target | first argument `pause` | here: a process that does nothing, to be traced |
//! | target | first argument `target` | `target.rs`: reads that the process itself measures as well |
//! | trouble | first argument `trouble` | `trouble.rs`: processes that are interrupted, killed or refused |
//! | workload | first argument `workload` | `workload.rs`: file operations of known counts |
//!
//! **To add a check**, write a function `fn(&Guest) -> Result<(), String>` in a file of `checks/`, and a line in that
//! file's table. Each check runs in a process of its own inside the guest; everything that it leaves running is killed
//! afterwards.

#![cfg_attr(
    not(feature = "checks"),
    allow(dead_code, unused_imports, reason = "most of it is for checks")
)]

mod async_io;
#[cfg(feature = "checks")]
mod checks;
/// Checks need the tool's own library, which takes longer to build than everything else.
#[cfg(not(feature = "checks"))]
mod checks {
    pub use crate::guest::Check;

    pub fn all() -> impl Iterator<Item = &'static Check> {
        std::iter::empty()
    }

    pub fn that_use_peers() -> impl Iterator<Item = &'static Check> {
        all()
    }

    pub fn is_selected(_: &str, _: &str, _: bool) -> bool {
        false
    }

    pub fn is_long(_: &str) -> bool {
        false
    }

    pub fn mistakes(_: &[&str], _: &[String]) -> Vec<String> {
        Vec::new()
    }

    pub fn places_of(_: &str) -> &'static [&'static str] {
        &[]
    }
}
mod commands;
mod disks;
mod family;
#[path = "../../benches/figures.rs"]
mod figures;
mod ftrace;
mod guest;
mod host;
mod nfs;
mod peers;
mod protocol;
#[cfg(feature = "checks")]
#[path = "../records/mod.rs"]
mod records;
mod scene;
#[cfg(feature = "checks")]
#[allow(dead_code, reason = "shared with the tests of text")]
#[path = "../scenes/mod.rs"]
mod scenes;
#[allow(
    dead_code,
    reason = "shared with the tests of reports made by hand, who need more of it"
)]
#[path = "../schema/mod.rs"]
mod schema;
mod target;
mod trouble;
#[cfg(feature = "schema")]
#[allow(dead_code, reason = "shared with the tests of the schema")]
#[path = "../schema/validator.rs"]
mod validator;
/// Without the feature `schema`, reports are not validated.
#[cfg(not(feature = "schema"))]
mod validator {
    pub fn valid(_: &serde_json::Value) -> Result<(), String> {
        Ok(())
    }
}
mod workload;

use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("pause") => loop {
            nix::unistd::pause();
        },
        Some("peer") => peers::main(),
        #[cfg(feature = "checks")]
        Some("reads") => checks::reads(),
        Some("async") => async_io::main(),
        Some("scene") => scene::main(),
        Some("target") => target::main(),
        Some("family") => family::main(),
        Some("trouble") => trouble::main(),
        Some("workload") => workload::main(),
        _ if guest::is_init() => guest::init(),
        _ => host::main(),
    }
}
