//! Paths that cannot leave the directories of a replay, whatever a recording says and whatever others do to these
//! directories meanwhile: the kernel resolves each one below its root, without links and other file systems.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::replay::path::Spot;

/// Of openat2(2): nothing above the root, no link of any kind, no other mount.
const RESOLVE: u64 =
    libc::RESOLVE_BENEATH | libc::RESOLVE_NO_MAGICLINKS | libc::RESOLVE_NO_SYMLINKS | libc::RESOLVE_NO_XDEV;

/// A name below a root, as the kernel takes it.
#[derive(Debug, Clone)]
pub struct Target {
    root: RawFd,
    /// From the root; `.` is the root itself.
    whole: CString,
    /// The directory from the root, and the name in it; `None`: it is the root itself.
    parts: Option<(CString, CString)>,
}

/// The directories of a replay, open.
#[derive(Debug)]
pub struct Roots {
    all: Vec<OwnedFd>,
}

impl Roots {
    /// Opens directories.
    ///
    /// # Errors
    /// If one is none, or cannot be opened, with its index.
    pub fn open(paths: &[&Path]) -> Result<Self, (usize, io::Error)> {
        let open = |(index, path): (usize, &&Path)| -> Result<OwnedFd, (usize, io::Error)> {
            let file = File::open(path).map_err(|error| (index, error))?;
            if file.metadata().map_err(|error| (index, error))?.is_dir() {
                Ok(file.into())
            } else {
                Err((index, io::Error::from(io::ErrorKind::NotADirectory)))
            }
        };
        let all = paths
            .iter()
            .enumerate()
            .map(open)
            .collect::<Result<Vec<OwnedFd>, _>>()?;
        Ok(Self { all })
    }

    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The descriptor of a root.
    #[must_use]
    pub fn fd(&self, root: usize) -> Option<RawFd> {
        self.all.get(root).map(AsRawFd::as_raw_fd)
    }

    /// The target of a spot; `None`: its root does not exist, or a name in it is none.
    #[must_use]
    pub fn target(&self, spot: &Spot) -> Option<Target> {
        let root = self.fd(spot.root as usize)?;
        let text = |text: &str| CString::new(text).ok();
        let is_name = |name: &str| !name.is_empty() && name != "." && name != "..";
        if spot.inside.is_empty() {
            let whole = text(".")?;
            return Some(Target {
                root,
                whole,
                parts: None,
            });
        }
        if !spot.inside.split('/').all(is_name) {
            return None;
        }
        let (folder, name) = spot.inside.rsplit_once('/').unwrap_or((".", &spot.inside));
        Some(Target {
            root,
            whole: text(&spot.inside)?,
            parts: Some((text(folder)?, text(name)?)),
        })
    }
}

impl Target {
    /// Opens it.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn open(&self, flags: i32, mode: u32) -> io::Result<OwnedFd> {
        open_below(self.root, &self.whole, flags, mode)
    }

    /// Opens it, without `O_DIRECT` if the file system refuses that; then the second value is true.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn open_maybe_direct(&self, flags: i32, mode: u32) -> io::Result<(OwnedFd, bool)> {
        match self.open(flags, mode) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && flags & libc::O_DIRECT != 0 => {
                Ok((self.open(flags & !libc::O_DIRECT, mode)?, true))
            }
            other => Ok((other?, false)),
        }
    }

    /// Opens the directory that it is in, for calls that take a directory and a name.
    ///
    /// # Errors
    /// The kernel's error; EBUSY for a root itself, which is in no directory of the replay.
    pub fn parent(&self) -> io::Result<Parent<'_>> {
        let Some((folder, name)) = &self.parts else {
            return Err(io::Error::from_raw_os_error(libc::EBUSY));
        };
        Ok(Parent {
            folder: open_below(self.root, folder, libc::O_PATH | libc::O_DIRECTORY, 0)?,
            name,
        })
    }

    /// Gives the user all permissions in each directory above it, but not in the root, which is no directory of the replay.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn permit(&self) -> io::Result<()> {
        let folder = self.parts.as_ref().map_or(&[][..], |(folder, _)| folder.as_bytes());
        let ends = (1..=folder.len()).filter(|end| matches!(folder.get(*end), None | Some(b'/')));
        for above in ends.map(|end| &folder[..end]).filter(|above| above != b".") {
            let folder = open_below(self.root, &CString::new(above)?, libc::O_PATH | libc::O_DIRECTORY, 0)?;
            change_mode(&folder, |mode| mode | 0o700)?;
        }
        Ok(())
    }

    /// For calls that only look: of a root, itself.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn looked_at(&self) -> io::Result<Parent<'_>> {
        match &self.parts {
            Some(_) => self.parent(),
            None => Ok(Parent {
                folder: self.open(libc::O_PATH | libc::O_DIRECTORY, 0)?,
                name: &self.whole,
            }),
        }
    }
}

/// An open directory and a name in it.
#[derive(Debug)]
pub struct Parent<'a> {
    pub folder: OwnedFd,
    pub name: &'a CString,
}

impl Parent<'_> {
    #[must_use]
    pub fn fd(&self) -> RawFd {
        self.folder.as_raw_fd()
    }

    /// Its state, without following a link.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn stat(&self) -> io::Result<libc::stat> {
        stat(self.fd(), self.name)
    }
}

/// A path that leads to an open file itself, whatever its name is now.
pub fn process_path(fd: RawFd) -> Vec<u8> {
    format!("/proc/thread-self/fd/{fd}\0").into_bytes()
}

/// Changes the permissions of a directory that is open with `O_PATH` to what `wanted` makes of them.
///
/// # Errors
/// The kernel's error.
pub fn change_mode(folder: &OwnedFd, wanted: impl Fn(u32) -> u32) -> io::Result<()> {
    let mode = File::from(folder.try_clone()?).metadata()?.mode() & 0o7777;
    let wanted = wanted(mode);
    if wanted == mode {
        return Ok(());
    }
    let path = process_path(folder.as_raw_fd());
    // SAFETY: the path is terminated, and leads to the open directory.
    check(unsafe { libc::chmod(path.as_ptr().cast(), wanted) }.into()).map(drop)
}

/// The state of a name in an open directory.
fn stat(folder: RawFd, name: &CString) -> io::Result<libc::stat> {
    // SAFETY: a structure of zero bytes is valid; the name is terminated.
    unsafe {
        let mut state: libc::stat = std::mem::zeroed();
        check(libc::fstatat(folder, name.as_ptr(), &raw mut state, libc::AT_SYMLINK_NOFOLLOW).into())?;
        Ok(state)
    }
}

/// The result of a system call of the C library.
///
/// # Errors
/// The error that it left, if the result is negative.
pub fn check(result: i64) -> io::Result<i64> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

fn open_below(root: RawFd, path: &CString, flags: i32, mode: u32) -> io::Result<OwnedFd> {
    // SAFETY: a structure of zero bytes is valid.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = u64::from((flags | libc::O_CLOEXEC).cast_unsigned());
    how.mode = u64::from(mode);
    how.resolve = RESOLVE;
    // SAFETY: the path is terminated and the structure has this size; the descriptor that is returned is new.
    unsafe {
        let fd = check(libc::syscall(
            libc::SYS_openat2,
            root,
            path.as_ptr(),
            &raw const how,
            size_of::<libc::open_how>(),
        ))?;
        Ok(OwnedFd::from_raw_fd(fd as RawFd))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spot(inside: &str) -> Spot {
        Spot {
            root: 0,
            inside: inside.to_owned(),
        }
    }

    #[test]
    fn nothing_outside_the_root_is_reached() {
        let base = std::env::temp_dir().join(format!("iosb-confined-{}", std::process::id()));
        let root = base.join("root");
        std::fs::create_dir_all(root.join("in")).unwrap();
        std::fs::write(base.join("canary"), "canary").unwrap();
        std::os::unix::fs::symlink("..", root.join("up")).unwrap();
        std::os::unix::fs::symlink(base.join("canary"), root.join("file")).unwrap();
        let roots = Roots::open(&[&root]).unwrap();
        let target = |inside: &str| roots.target(&spot(inside)).unwrap();
        for inside in ["up/canary", "file", "up"] {
            let error = target(inside).open(libc::O_RDWR, 0).unwrap_err();
            assert!(matches!(error.raw_os_error(), Some(libc::ELOOP)), "{inside}: {error}");
        }
        assert!(target("up/x").parent().is_err());
        for inside in ["../canary", "in/../../canary", "in//x", "./x", "a\0b"] {
            assert!(roots.target(&spot(inside)).is_none(), "{inside:?}");
        }
        assert!(roots.target(&Spot { root: 1, ..spot("x") }).is_none());
        let made = target("in/made").open(libc::O_RDWR | libc::O_CREAT, 0o600);
        assert!(made.is_ok() && root.join("in/made").exists());
        assert_eq!(target("").parent().unwrap_err().raw_os_error(), Some(libc::EBUSY));
        assert!(target("").looked_at().unwrap().stat().is_ok());
        std::fs::remove_dir_all(base).unwrap();
    }
}
