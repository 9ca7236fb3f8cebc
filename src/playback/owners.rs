//! Owners that a replay changes, and sets back at its end.
//!
//! A file below the directories of a replay may have another name elsewhere. So only the owners of files that belong to the
//! user of the replay are changed, who may do with them as he likes, and of those whose owner it has changed itself. These
//! stay open, so that no other file gets their numbers meanwhile.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, PoisonError};

use super::confined::check;
use crate::sys::capabilities::{self, Sets};

/// include/uapi/linux/capability.h
pub const CAP_CHOWN: u32 = 0;
const CHOWN: u64 = 1 << CAP_CHOWN;

/// A file whose owner was changed.
struct Changed {
    file: OwnedFd,
    user: u32,
    group: u32,
}

/// The files whose owners a replay has changed, by device and inode.
#[derive(Default)]
pub struct Owners {
    changed: Mutex<HashMap<(u64, u64), Changed>>,
}

impl Owners {
    /// Checks that the owner of an open file may be changed, and notes who owns it.
    ///
    /// # Errors
    /// EPERM if it belongs to another user; those of the kernel.
    pub fn admit(&self, file: RawFd) -> io::Result<()> {
        // SAFETY: a structure of zero bytes is valid, and the call only fills it in.
        let state = unsafe {
            let mut state: libc::stat = std::mem::zeroed();
            check(libc::fstat(file, &raw mut state).into())?;
            state
        };
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        if changed.contains_key(&(state.st_dev, state.st_ino)) {
            return Ok(());
        }
        // SAFETY: it takes nothing.
        if state.st_uid != unsafe { libc::geteuid() } {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        // SAFETY: the descriptor is open, and the new one is this list's alone.
        let file = unsafe { OwnedFd::from_raw_fd(check(libc::fcntl(file, libc::F_DUPFD_CLOEXEC, 3).into())? as RawFd) };
        changed.insert(
            (state.st_dev, state.st_ino),
            Changed {
                file,
                user: state.st_uid,
                group: state.st_gid,
            },
        );
        Ok(())
    }

    /// Gives all files back to the user of the replay.
    ///
    /// # Errors
    /// The kernel's last error.
    pub fn set_back(&self) -> io::Result<()> {
        let changed = std::mem::take(&mut *self.changed.lock().unwrap_or_else(PoisonError::into_inner));
        if changed.is_empty() {
            return Ok(());
        }
        let _privileged = Privileged::begin()?;
        let set_back = |one: Changed| set(one.file.as_raw_fd(), one.user, one.group);
        changed.into_values().map(set_back).fold(Ok(()), Result::and)
    }
}

/// Sets user and group of an open file; it may be open as a name only.
///
/// # Errors
/// The kernel's.
pub fn set(file: RawFd, user: u32, group: u32) -> io::Result<()> {
    // SAFETY: the descriptor is open, and the name is terminated.
    let result = unsafe { libc::fchownat(file, c"".as_ptr(), user, group, libc::AT_EMPTY_PATH) };
    check(result.into()).map(drop)
}

/// While it exists, this thread may change the owners of files.
#[derive(Debug)]
pub struct Privileged(());

impl Privileged {
    /// # Errors
    /// The kernel's, if this process may not.
    pub fn begin() -> io::Result<Self> {
        capabilities::set(Sets {
            effective: CHOWN,
            permitted: CHOWN,
        })?;
        Ok(Self(()))
    }
}

impl Drop for Privileged {
    fn drop(&mut self) {
        // It cannot be refused: nothing is added.
        let _ = keep();
    }
}

/// Gives up all privileges of this process but the right to use that one.
///
/// # Errors
/// The kernel's, if it does not have that one.
pub fn keep() -> io::Result<()> {
    capabilities::set(Sets {
        effective: 0,
        permitted: CHOWN,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_the_user_are_admitted() {
        let path = std::env::temp_dir().join(format!("iosb-owners-{}", std::process::id()));
        let own = std::fs::File::create(&path).unwrap();
        let owners = Owners::default();
        owners.admit(own.as_raw_fd()).unwrap();
        // SAFETY: it takes nothing.
        if unsafe { libc::geteuid() } == 0 {
            set(own.as_raw_fd(), 4242, 4243).unwrap();
            owners.admit(own.as_raw_fd()).unwrap();
            let error = Owners::default().admit(own.as_raw_fd()).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EPERM));
        }
        std::fs::remove_file(path).unwrap();
    }
}
