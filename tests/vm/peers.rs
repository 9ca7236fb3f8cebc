//! Other tools in the guest, from a disk with Debian's packages that they see as their root.

use crate::disks::VirtioDisk;
use crate::guest::{Guest, wait_for};
use crate::protocol::PEERS;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

const ROOT: &str = "/peers";
/// Directories of the guest that they see under the same names. `/sys` includes debugfs and tracefs.
const SHARED: [&str; 5] = ["/dev", "/proc", "/sys", "/tmp", "/mnt"];
/// How long a file system may stay in use after its last user has ended.
const BOUND: Duration = Duration::from_secs(30);

/// The tools can be run while this exists.
pub struct Peers {
    mounted: Vec<String>,
    // Dropped after the mounts.
    _disk: VirtioDisk,
}

impl Peers {
    pub fn new(guest: &Guest) -> Result<Self, String> {
        let disk = VirtioDisk::new(guest, PEERS).map_err(|e| format!("{e}: the runner could not get the peers"))?;
        let device = format!("/dev/{}", disk.name);
        let mut peers = Self {
            mounted: Vec::new(),
            _disk: disk,
        };
        peers.mount(&device, ROOT, Some("ext4"), MsFlags::MS_RDONLY)?;
        for folder in SHARED {
            let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
            peers.mount(folder, &format!("{ROOT}{folder}"), None, flags)?;
        }
        Ok(peers)
    }

    fn mount(&mut self, source: &str, target: &str, kind: Option<&str>, flags: MsFlags) -> Result<(), String> {
        std::fs::create_dir_all(target).map_err(|e| format!("{target}: {e}"))?;
        mount(Some(source), target, kind, flags, None::<&str>).map_err(|e| format!("{source} on {target}: {e}"))?;
        self.mounted.push(target.into());
        Ok(())
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        for target in self.mounted.iter().rev() {
            // A recursive bind mount is unmounted recursively.
            let flags = if target == ROOT {
                MntFlags::empty()
            } else {
                MntFlags::MNT_DETACH
            };
            let ended = wait_for("the last user to end", BOUND, || {
                umount2(target.as_str(), flags).is_ok()
            });
            if let Err(error) = ended {
                eprintln!("{target}: {error}");
            }
        }
    }
}

/// The command line that runs one of them, for a check or for a tool that traces it.
pub fn words<'a>(command: &[&'a str]) -> Vec<&'a str> {
    [&["/init", "peer"], command].concat()
}

/// One of them as a command of a check.
pub fn command(words_of_it: &[&str]) -> Command {
    let words = words(words_of_it);
    let mut command = Command::new(words[0]);
    command.args(&words[1..]);
    command
}

/// `/init peer PROGRAM ARGUMENT...`: executes this program.
pub fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(2).collect();
    let Some((program, arguments)) = words.split_first() else {
        eprintln!("peer: no program");
        return ExitCode::FAILURE;
    };
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    become_one(program, &arguments)
}

/// Replaces this process by one of them, or fails.
pub fn become_one(program: &str, arguments: &[&str]) -> ExitCode {
    let error = std::os::unix::fs::chroot(ROOT)
        .and_then(|()| std::env::set_current_dir("/tmp"))
        .map_or_else(
            |error| error,
            |()| Command::new(Path::new(program)).args(arguments).exec(),
        );
    eprintln!("peer {program}: {error}");
    ExitCode::FAILURE
}
