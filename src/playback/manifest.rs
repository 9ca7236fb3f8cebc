//! The list of what a replay made, in its directory: a second run restores what the first one changed, and `--clean`
//! removes all of it and nothing else.

use std::collections::{BTreeMap, HashSet};
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::os::fd::AsRawFd;

use serde::{Deserialize, Serialize};

use super::confined::{Roots, check};
use crate::cause::Cause;
use crate::replay::path::Spot;

/// Its name below the first root.
pub const NAME: &str = ".iosb-replay";
const NEW: &str = ".iosb-replay.new";
const FORMAT: u32 = 1;
/// The longest line that is read, in bytes: a path has up to 4,096.
const LONGEST: u64 = 64 << 10;

/// The first line.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    pub format: u32,
    /// Which recording was replayed.
    pub recording: String,
    /// The directories, as they were named.
    pub roots: Vec<String>,
}

/// A path that the replay made, or may make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Line {
    root: u32,
    path: String,
    state: Option<State>,
}

/// The state of a file when it had been prepared: one that differs was changed since.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    pub inode: u64,
    pub size: u64,
    pub blocks: u64,
    pub modified: (i64, i64),
    pub changed: (i64, i64),
}

impl State {
    #[must_use]
    pub fn of(state: &libc::stat) -> Self {
        Self {
            inode: state.st_ino,
            size: state.st_size.unsigned_abs(),
            blocks: state.st_blocks.unsigned_abs(),
            modified: (state.st_mtime, state.st_mtime_nsec),
            changed: (state.st_ctime, state.st_ctime_nsec),
        }
    }
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Manifest {
    pub head: Head,
    pub paths: BTreeMap<Spot, Option<State>>,
}

impl Manifest {
    #[must_use]
    pub fn new(recording: String, roots: Vec<String>) -> Self {
        Self {
            head: Head {
                format: FORMAT,
                recording,
                roots,
            },
            paths: BTreeMap::new(),
        }
    }

    /// The spot of the manifest itself.
    fn spot(name: &str) -> Spot {
        Spot {
            root: 0,
            inside: name.to_owned(),
        }
    }

    /// Whether a spot is that of a manifest.
    #[must_use]
    pub fn is_own(spot: &Spot) -> bool {
        spot.root == 0 && (spot.inside == NAME || spot.inside == NEW)
    }

    /// Bytes of the files that are there, by root: they are removed, or stay as they are prepared.
    #[must_use]
    pub fn there(&self, roots: &Roots) -> Vec<u64> {
        let mut there = vec![0_u64; roots.len()];
        let mut known = HashSet::new();
        for spot in self.paths.keys() {
            let target = roots.target(spot);
            let state = target.and_then(|target| target.parent().ok()?.stat().ok());
            let Some(state) = state.filter(|state| state.st_mode & libc::S_IFMT == libc::S_IFREG) else {
                continue;
            };
            // It may have several names.
            if known.insert((state.st_dev, state.st_ino))
                && let Some(sum) = there.get_mut(spot.root as usize)
            {
                *sum = sum.saturating_add(state.st_blocks.unsigned_abs().saturating_mul(512));
            }
        }
        there
    }

    /// Reads the manifest of a directory; `None`: it has none.
    ///
    /// # Errors
    /// If it cannot be read or is none, in one line.
    pub fn read(roots: &Roots) -> Result<Option<Self>, Cause> {
        let Some(target) = roots.target(&Self::spot(NAME)) else {
            return Ok(None);
        };
        let file = match target.open(libc::O_RDONLY | libc::O_NONBLOCK, 0) {
            Ok(file) => std::fs::File::from(file),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Cause::of(format_args!("cannot read {NAME}"), &error)),
        };
        Self::parse(BufReader::new(file)).map(Some).map_err(|what| {
            Cause::from(format!(
                "{NAME} is no list of what a replay made ({what}): choose an empty directory"
            ))
        })
    }

    fn parse(mut from: impl BufRead) -> Result<Self, String> {
        let mut next = || -> Result<Option<String>, String> {
            let mut line = String::new();
            let mut part = (&mut from).take(LONGEST);
            let read = part.read_line(&mut line).map_err(|error| error.to_string())?;
            if read > 0 && !line.ends_with('\n') {
                return Err("a line is cut".to_owned());
            }
            Ok((read > 0).then_some(line))
        };
        let head: Head = serde_json::from_str(&next()?.ok_or("it is empty")?).map_err(|error| error.to_string())?;
        if head.format != FORMAT {
            return Err(format!("it has format {}", head.format));
        }
        let mut paths = BTreeMap::new();
        while let Some(line) = next()? {
            let Line { root, path, state } = serde_json::from_str(&line).map_err(|error| error.to_string())?;
            paths.insert(Spot { root, inside: path }, state);
        }
        Ok(Self { head, paths })
    }

    /// Writes it in place of the one that there is.
    ///
    /// # Errors
    /// If it cannot be written, in one line.
    pub fn write(&self, roots: &Roots) -> Result<(), Cause> {
        let cannot = |error: std::io::Error| Cause::of(format_args!("cannot write {NAME}"), &error);
        let (Some(new), Some(name)) = (roots.target(&Self::spot(NEW)), roots.target(&Self::spot(NAME))) else {
            return Err(Cause::from(format!("cannot write {NAME}: it has no directory")));
        };
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC | libc::O_NONBLOCK;
        let file = std::fs::File::from(new.open(flags, 0o600).map_err(cannot)?);
        let mut out = BufWriter::new(file);
        let mut lines = || -> std::io::Result<()> {
            serde_json::to_writer(&mut out, &self.head)?;
            out.write_all(b"\n")?;
            for (spot, state) in &self.paths {
                let line = Line {
                    root: spot.root,
                    path: spot.inside.clone(),
                    state: *state,
                };
                serde_json::to_writer(&mut out, &line)?;
                out.write_all(b"\n")?;
            }
            out.flush()?;
            out.get_ref().sync_all()
        };
        lines().map_err(cannot)?;
        let (from, to) = (new.parent().map_err(cannot)?, name.parent().map_err(cannot)?);
        // SAFETY: the names are terminated.
        let renamed = unsafe {
            libc::renameat(
                from.folder.as_raw_fd(),
                from.name.as_ptr(),
                to.folder.as_raw_fd(),
                to.name.as_ptr(),
            )
        };
        check(renamed.into()).map(drop).map_err(cannot)
    }

    /// Removes the file itself, and one that was being written.
    ///
    /// # Errors
    /// If it cannot be removed, in one line.
    pub fn remove(roots: &Roots) -> Result<(), Cause> {
        for name in [NEW, NAME] {
            if let Some(target) = roots.target(&Self::spot(name)) {
                super::prepare::remove(&target)
                    .map_err(|error| Cause::of(format_args!("cannot remove {name}"), &error))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_is_cut_or_something_else_is_refused() {
        let parse = |text: &str| Manifest::parse(text.as_bytes());
        let head = "{\"format\":1,\"recording\":\"x\",\"roots\":[\"/mnt\"]}\n";
        let line = "{\"root\":0,\"path\":\"a/b\",\"state\":null}\n";
        assert_eq!(parse(&format!("{head}{line}")).unwrap().paths.len(), 1);
        for wrong in [
            "",
            "x\n",
            &head.replace('1', "2"),
            &format!("{head}{}", &line[..10]),
            &format!("{head}x\n"),
        ] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
