//! Makes what the calls of a replay find, restores what an earlier run changed, and removes what it made.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::confined::{Parent, Roots, Target, change_mode, check};
use super::data::{Data, Memory, Source};
use super::manifest::{Manifest, State};
use crate::cause::Cause;
use crate::replay::path::Spot;
use crate::replay::plan::{Plan, Prepared, What};
use crate::replay::ranges::Ranges;

/// Bytes that are written at once.
const PIECE: u64 = 1 << 20;
/// The longest component of a path.
const LONGEST: usize = 200;

/// What the page cache has of prepared files when the calls begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Cache {
    /// Nothing: pages of these files, and of no others, are dropped
    Cold,
    /// What was in it in the recording when it was first read, and no other part of these files
    AsRecorded,
    /// Whatever preparing left in it
    Leave,
}

/// How far preparing is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    pub paths: u64,
    pub of_paths: u64,
    pub bytes: u64,
}

/// What was prepared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Done {
    pub files: u64,
    pub folders: u64,
    pub links: u64,
    /// Files that an earlier run had prepared, and that were unchanged.
    pub kept: u64,
    /// What an earlier run had made, and was removed.
    pub removed: u64,
    pub bytes: u64,
}

/// Prepares for a plan.
pub struct Preparing<'a> {
    pub plan: &'a Plan,
    pub roots: &'a Roots,
    /// Of an earlier run; an empty one if there was none.
    pub manifest: Manifest,
    pub data: Data,
    pub cache: Cache,
}

/// Shows progress; returns whether to go on.
pub type Watch<'a> = dyn FnMut(Progress) -> bool + 'a;

impl Preparing<'_> {
    /// # Errors
    /// If something cannot be made, in one line, or if `watch` ended it.
    pub fn prepare(mut self, watch: &mut Watch<'_>) -> Result<Done, Cause> {
        let mut done = Done::default();
        let before = std::mem::take(&mut self.manifest.paths);
        let plan = self.plan;
        let spot_of = |spot: u32| &plan.spots[spot as usize];
        let wanted: BTreeSet<&Spot> = plan.prepared.iter().map(|one| spot_of(one.spot)).collect();
        let made = plan.made.iter().map(|spot| spot_of(*spot));
        let all = before.keys().chain(made).chain(wanted.iter().copied());
        self.manifest.paths = all
            .filter(|spot| !spot.inside.is_empty() && !Manifest::is_own(spot))
            .map(|spot| (spot.clone(), None))
            .collect();
        // Written first: whatever happens from here on, all that is made can be removed.
        self.manifest.write(self.roots)?;
        let left: Vec<&Spot> = self
            .manifest
            .paths
            .keys()
            .filter(|spot| !wanted.contains(spot))
            .collect();
        for spot in left.into_iter().rev() {
            if let Some(target) = self.roots.target(spot) {
                done.removed += u64::from(remove(&target).map_err(|error| cannot("remove", spot, &error))?);
            }
        }
        self.make(&before, &mut done, watch)?;
        self.settle(watch)?;
        let mut states = BTreeMap::new();
        for one in &plan.prepared {
            let spot = spot_of(one.spot);
            let is_file = matches!(one.what, What::File { .. });
            let state = self
                .roots
                .target(spot)
                .and_then(|target| target.parent().ok()?.stat().ok());
            if let Some(state) = state.filter(|_| is_file) {
                states.insert(spot.clone(), State::of(&state));
            }
        }
        for (spot, state) in states {
            self.manifest.paths.insert(spot, Some(state));
        }
        self.manifest.write(self.roots)?;
        Ok(done)
    }

    fn spot(&self, index: u32) -> &Spot {
        &self.plan.spots[index as usize]
    }

    fn make(
        &self,
        before: &BTreeMap<Spot, Option<State>>,
        done: &mut Done,
        watch: &mut Watch<'_>,
    ) -> Result<(), Cause> {
        let mut progress = Progress {
            of_paths: self.plan.prepared.len() as u64,
            ..Progress::default()
        };
        for one in &self.plan.prepared {
            let spot = self.spot(one.spot);
            if Manifest::is_own(spot) {
                continue;
            }
            let Some(target) = self.roots.target(spot) else {
                return Err(Cause::from(format!("cannot make '{}': it is no name", spot.inside)));
            };
            let fail = |error: io::Error| cannot("make", spot, &error);
            let parent = target.parent().map_err(fail)?;
            match &one.what {
                What::Folder { mode } => {
                    done.folders += 1;
                    folder(&target, &parent, *mode).map_err(fail)?;
                }
                What::Link { length } => {
                    done.links += 1;
                    remove_at(&parent).and_then(|_| link(&parent, *length)).map_err(fail)?;
                }
                What::Same { spot } => {
                    let first = self.roots.target(self.spot(*spot));
                    let first = first.as_ref().map(Target::parent).transpose().map_err(fail)?;
                    if let Some(first) = first {
                        remove_at(&parent).and_then(|_| same(&first, &parent)).map_err(fail)?;
                    }
                }
                What::File { .. } => {
                    let state = before.get(spot).copied().flatten();
                    if state.is_some() && parent.stat().ok().map(|now| State::of(&now)) == state {
                        done.kept += 1;
                    } else {
                        done.files += 1;
                        remove_at(&parent).map_err(fail)?;
                        let mut report = |bytes| {
                            progress.bytes += bytes;
                            watch(progress)
                        };
                        self.file(one, &target, &mut report).map_err(fail)?;
                    }
                }
            }
            progress.paths += 1;
            if !watch(progress) {
                return Err(interrupted());
            }
        }
        done.bytes = progress.bytes;
        Ok(())
    }

    fn file(&self, one: &Prepared, target: &Target, report: &mut dyn FnMut(u64) -> bool) -> io::Result<()> {
        let What::File {
            mode,
            size,
            allocated,
            data,
            ..
        } = &one.what
        else {
            return Ok(());
        };
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL | libc::O_LARGEFILE;
        let file = target.open(flags, 0o600)?;
        let fd = file.as_raw_fd();
        // SAFETY: the descriptor is open.
        check(unsafe { libc::ftruncate64(fd, offset(*size)?) }.into())?;
        if let Some(allocated) = *allocated {
            allocate(fd, *size, allocated, data)?;
        }
        if !data.is_empty() {
            let mut source = Source::new(self.data, u64::from(one.spot) + 1, PIECE)?;
            for (from, to) in data.iter() {
                write(fd, &mut source, from, to, report)?;
            }
        }
        let mode = if *mode == 0 { 0o644 } else { *mode | 0o600 };
        // SAFETY: the descriptor is open.
        check(unsafe { libc::fchmod(fd, mode & 0o1777) }.into()).map(drop)
    }

    /// Writes everything to the disks, and drops pages from the cache.
    fn settle(&self, watch: &mut Watch<'_>) -> Result<(), Cause> {
        for root in 0..self.roots.len() {
            if let Some(fd) = self.roots.fd(root) {
                // SAFETY: the descriptor is open.
                check(unsafe { libc::syncfs(fd) }.into())
                    .map_err(|error| Cause::of("cannot write what was prepared to the disk", &error))?;
            }
        }
        if self.cache == Cache::Leave {
            return Ok(());
        }
        for one in self
            .plan
            .prepared
            .iter()
            .filter(|one| matches!(one.what, What::File { .. }))
        {
            let target = self.roots.target(self.spot(one.spot));
            let file = target.and_then(|target| target.open(libc::O_RDONLY | libc::O_NONBLOCK, 0).ok());
            if let Some(file) = file {
                drop_pages(&file);
                if let (What::File { cached, .. }, Cache::AsRecorded) = (&one.what, self.cache) {
                    read_in(&file, cached).map_err(|error| cannot("read", self.spot(one.spot), &error))?;
                }
            }
            if !watch(Progress::default()) {
                return Err(interrupted());
            }
        }
        Ok(())
    }
}

fn interrupted() -> Cause {
    Cause::from("ended while preparing; run it again, or remove what was made with --clean".to_owned())
}

fn cannot(what: &str, spot: &Spot, error: &io::Error) -> Cause {
    Cause::of(format_args!("cannot {what} '{}'", spot.inside), error)
}

fn drop_pages(file: &OwnedFd) {
    // SAFETY: the descriptor is open. It is advice: nothing is lost if the kernel does not take it.
    unsafe {
        libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED);
    }
}

/// Reads ranges, so that they are in the page cache, and no pages after them.
fn read_in(file: &OwnedFd, ranges: &Ranges) -> io::Result<()> {
    if ranges.is_empty() {
        return Ok(());
    }
    let memory = Memory::new(PIECE)?;
    // SAFETY: the descriptor is open. Without reading ahead, only these pages are read.
    unsafe {
        libc::posix_fadvise(file.as_raw_fd(), 0, 0, libc::POSIX_FADV_RANDOM);
    }
    for (mut from, to) in ranges.iter() {
        while from < to {
            let length = memory.fitting(to - from);
            // SAFETY: the memory has this length.
            let read = unsafe { libc::pread64(file.as_raw_fd(), memory.pointer().cast(), length, offset(from)?) };
            match check(read as i64)? {
                0 => break,
                read => from += read.unsigned_abs(),
            }
        }
    }
    Ok(())
}

/// Makes a directory, or gives the one of an earlier run its permissions again.
fn folder(target: &Target, parent: &Parent<'_>, mode: u32) -> io::Result<()> {
    let mode = if mode == 0 { 0o755 } else { mode | 0o700 };
    // SAFETY: the name is terminated.
    let make = || check(unsafe { libc::mkdirat(parent.fd(), parent.name.as_ptr(), mode & 0o1777) }.into());
    match make() {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            if parent.stat()?.st_mode & libc::S_IFMT != libc::S_IFDIR {
                remove_at(parent)?;
                make()?;
            }
        }
        Err(error) => return Err(error),
    }
    let folder = target.open(libc::O_PATH | libc::O_DIRECTORY, 0)?;
    change_mode(&folder, |now| now & libc::S_ISGID | mode & 0o1777)
}

/// A link that leads nowhere, with a text of this length.
fn link(parent: &Parent<'_>, length: u64) -> io::Result<()> {
    let length = usize::try_from(length)
        .unwrap_or(usize::MAX)
        .clamp(1, libc::PATH_MAX as usize - 1);
    let mut text: Vec<u8> = (1..=length)
        .map(|at| if at % LONGEST == 0 && at < length { b'/' } else { b'x' })
        .collect();
    text.push(0);
    // SAFETY: both texts are terminated.
    check(unsafe { libc::symlinkat(text.as_ptr().cast(), parent.fd(), parent.name.as_ptr()) }.into()).map(drop)
}

fn same(first: &Parent<'_>, parent: &Parent<'_>) -> io::Result<()> {
    // SAFETY: both names are terminated.
    let linked = unsafe { libc::linkat(first.fd(), first.name.as_ptr(), parent.fd(), parent.name.as_ptr(), 0) };
    check(linked.into()).map(drop)
}

fn offset(bytes: u64) -> io::Result<i64> {
    i64::try_from(bytes).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))
}

/// Allocates what is not written, as far as the recorded file was allocated.
fn allocate(fd: i32, size: u64, allocated: u64, data: &Ranges) -> io::Result<()> {
    let fallocate = |from: u64, to: u64| -> io::Result<()> {
        // SAFETY: the descriptor is open.
        let done = unsafe { libc::fallocate64(fd, libc::FALLOC_FL_KEEP_SIZE, offset(from)?, offset(to - from)?) };
        match check(done.into()) {
            // Not every file system can; the file is the same without.
            Err(error) if error.raw_os_error() != Some(libc::EOPNOTSUPP) => Err(error),
            _ => Ok(()),
        }
    };
    if allocated >= size {
        return if size > 0 { fallocate(0, size) } else { Ok(()) };
    }
    let written = data.bytes();
    let mut left = allocated.saturating_sub(written);
    let ends = data.iter().map(|(_, to)| to);
    let begins = data.iter().map(|(from, _)| from).chain([size]);
    for (from, to) in std::iter::once(0).chain(ends).zip(begins) {
        // Whole blocks: parts of those that are written are allocated anyway.
        let (from, to) = (from.next_multiple_of(4096), to / 4096 * 4096);
        let length = to.saturating_sub(from).min(left);
        if length > 0 {
            fallocate(from, from + length)?;
            left -= length;
        }
    }
    Ok(())
}

fn write(fd: i32, source: &mut Source, mut from: u64, to: u64, report: &mut dyn FnMut(u64) -> bool) -> io::Result<()> {
    while from < to {
        let (at, length) = source.next((to - from).min(PIECE));
        // SAFETY: the source has this many bytes there.
        let written = check(unsafe { libc::pwrite64(fd, at.cast(), length, offset(from)?) } as i64)?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        from += written.unsigned_abs();
        if !report(written.unsigned_abs()) {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "ended while preparing"));
        }
    }
    Ok(())
}

/// Removes a file, or a directory without entries. Returns whether there was one and is none now.
///
/// # Errors
/// The kernel's error.
pub fn remove(target: &Target) -> io::Result<bool> {
    let removed = || target.parent().and_then(|parent| remove_at(&parent));
    let removed = match removed() {
        // A replayed call has taken the permission away from a directory above it.
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => target.permit().and_then(|()| removed()),
        other => other,
    };
    match removed {
        Err(error) if is_absent(&error) => Ok(false),
        other => other,
    }
}

/// A directory above it does not exist, or is something else now.
fn is_absent(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENOENT | libc::ENOTDIR | libc::ELOOP | libc::EBUSY | libc::ENAMETOOLONG)
    )
}

fn remove_at(parent: &Parent<'_>) -> io::Result<bool> {
    // SAFETY: the name is terminated.
    let unlink = |flags| check(unsafe { libc::unlinkat(parent.fd(), parent.name.as_ptr(), flags) }.into());
    let removed = match unlink(0) {
        Err(error) if error.raw_os_error() == Some(libc::EISDIR) => unlink(libc::AT_REMOVEDIR),
        other => other,
    };
    match removed {
        Ok(_) => Ok(true),
        Err(error) if is_absent(&error) || error.raw_os_error() == Some(libc::ENOTEMPTY) => Ok(false),
        Err(error) => Err(error),
    }
}

/// What `--clean` did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cleaned {
    pub removed: u64,
    /// Directories that have something else in them.
    pub left: u64,
}

/// Removes what a replay made, as its manifest says, and the manifest.
///
/// # Errors
/// If something cannot be removed, in one line.
pub fn clean(roots: &Roots, manifest: &Manifest) -> Result<Cleaned, Cause> {
    let mut cleaned = Cleaned::default();
    for spot in manifest.paths.keys().rev().filter(|spot| !Manifest::is_own(spot)) {
        let Some(target) = roots.target(spot) else { continue };
        if remove(&target).map_err(|error| cannot("remove", spot, &error))? {
            cleaned.removed += 1;
        } else if target.parent().is_ok_and(|parent| parent.stat().is_ok()) {
            cleaned.left += 1;
        }
    }
    Manifest::remove(roots)?;
    Ok(cleaned)
}
