//! By which call each recorded call is replayed.

use crate::model::ids::Op;

/// What a replayed call does. Calls that differ only in how they name their file are one: a replay names files below a
/// directory, by descriptors that are confined to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Does {
    Read,
    Readv,
    Pread,
    Preadv,
    Write,
    Writev,
    Pwrite,
    Pwritev,
    Sendfile,
    CopyFileRange,
    Open,
    Close,
    Fsync,
    Fdatasync,
    /// Of `sync`, too: other file systems of the machine are not the replay's.
    Syncfs,
    SyncFileRange,
    Fallocate,
    Ftruncate,
    /// Sets the position of an open file to where the recorded call moved it.
    Seek,
    /// Changes the flags of an open file: `F_SETFL`, the one command of fcntl that a replay needs.
    SetFlags,
    Fadvise,
    Readahead,
    Getdents,
    Fstat,
    Fstatx,
    Fstatfs,
    Fchmod,
    Fchown,
    Futimens,
    Flistxattr,
    Truncate,
    Stat,
    Statx,
    Statfs,
    Access,
    Readlink,
    Chmod,
    Chown,
    Utimens,
    Listxattr,
    Chdir,
    Rename,
    Link,
    /// A link to an open file.
    LinkOpen,
    Symlink,
    Unlink,
    Rmdir,
    Mkdir,
}

crate::model::ids::names! {
    /// Why a call is not replayed.
    "reason" Why {
        /// The recording lacks something that the call needs: a name, a mapping.
        NotRecorded = "not all arguments recorded",
        /// It changes the owner of a file, which needs privileges.
        Owners = "needs --owners",
        /// It changes descriptors or mappings: open files are known without descriptors, and no memory is mapped.
        NotNeeded = "nothing to do in a replay",
        /// Device nodes and the like are never made.
        NotMade = "never made by a replay",
        /// It submits or awaits asynchronous requests.
        Asynchronous = "asynchronous",
        /// Its file is no regular file or directory of a file system that keeps data.
        NotAFile = "not on a file or directory of a disk",
        /// Its open file was not defined, or has no whole path.
        UnknownFile = "unknown file",
        /// Its path or the directory that the path starts from is not known.
        UnknownPath = "unknown path",
        /// A name in it is none, as of a damaged recording.
        Damaged = "damaged name",
        /// It had not ended when the recording did.
        UnderWay = "not ended",
    }
}

/// How a call is replayed.
///
/// # Errors
/// Why it is not.
pub fn does(op: Op) -> Result<Does, Why> {
    Ok(match op {
        Op::Read => Does::Read,
        Op::Readv => Does::Readv,
        Op::Pread64 => Does::Pread,
        Op::Preadv | Op::Preadv2 => Does::Preadv,
        Op::Write => Does::Write,
        Op::Writev => Does::Writev,
        Op::Pwrite64 => Does::Pwrite,
        Op::Pwritev | Op::Pwritev2 => Does::Pwritev,
        Op::Sendfile64 => Does::Sendfile,
        Op::CopyFileRange => Does::CopyFileRange,
        Op::Open | Op::Openat | Op::Openat2 | Op::OpenByHandleAt | Op::Creat => Does::Open,
        Op::Close => Does::Close,
        Op::Fsync => Does::Fsync,
        Op::Fdatasync => Does::Fdatasync,
        Op::Sync | Op::Syncfs => Does::Syncfs,
        Op::SyncFileRange => Does::SyncFileRange,
        Op::Fallocate => Does::Fallocate,
        Op::Ftruncate => Does::Ftruncate,
        Op::Truncate => Does::Truncate,
        Op::Lseek => Does::Seek,
        Op::Fcntl => Does::SetFlags,
        Op::Fadvise64 => Does::Fadvise,
        Op::Readahead => Does::Readahead,
        Op::Getdents | Op::Getdents64 => Does::Getdents,
        Op::Fstat => Does::Fstat,
        Op::Stat | Op::Lstat | Op::Newfstatat => Does::Stat,
        Op::Statx => Does::Statx,
        Op::Fstatfs => Does::Fstatfs,
        Op::Statfs => Does::Statfs,
        Op::Access | Op::Faccessat | Op::Faccessat2 => Does::Access,
        Op::Rename | Op::Renameat | Op::Renameat2 => Does::Rename,
        Op::Unlink | Op::Unlinkat => Does::Unlink,
        Op::Rmdir => Does::Rmdir,
        Op::Link | Op::Linkat => Does::Link,
        Op::Symlink | Op::Symlinkat => Does::Symlink,
        Op::Mkdir | Op::Mkdirat => Does::Mkdir,
        Op::Readlink | Op::Readlinkat => Does::Readlink,
        Op::Chdir => Does::Chdir,
        Op::Fchmod => Does::Fchmod,
        Op::Chmod | Op::Fchmodat | Op::Fchmodat2 => Does::Chmod,
        Op::Fchown => Does::Fchown,
        Op::Chown | Op::Lchown | Op::Fchownat => Does::Chown,
        Op::Utime | Op::Utimes | Op::Futimesat | Op::Utimensat => Does::Utimens,
        Op::Flistxattr => Does::Flistxattr,
        Op::Listxattr | Op::Llistxattr => Does::Listxattr,
        Op::Mknod | Op::Mknodat => return Err(Why::NotMade),
        Op::Dup
        | Op::Dup2
        | Op::Dup3
        | Op::CloseRange
        | Op::Mmap
        | Op::Munmap
        | Op::Mremap
        | Op::Madvise
        | Op::ExitGroup => return Err(Why::NotNeeded),
        Op::IoSubmit | Op::IoGetevents | Op::IoPgetevents | Op::IoUringEnter => return Err(Why::Asynchronous),
        // Names and values of attributes, handles and mappings are not among the arguments.
        _ => return Err(Why::NotRecorded),
    })
}

/// The operation by which a replay makes this one; the same, if it makes that.
#[must_use]
pub fn made_as(op: Op) -> Op {
    match does(op) {
        Ok(Does::Open) => Op::Openat2,
        Ok(Does::Syncfs) => Op::Syncfs,
        Ok(Does::Getdents) => Op::Getdents64,
        Ok(Does::Stat) => Op::Newfstatat,
        Ok(Does::Access) => Op::Faccessat2,
        Ok(Does::Readlink) => Op::Readlinkat,
        Ok(Does::Chmod) => Op::Fchmodat,
        Ok(Does::Chown) => Op::Fchownat,
        Ok(Does::Utimens) => Op::Utimensat,
        Ok(Does::Listxattr) => Op::Listxattr,
        Ok(Does::Rename) => Op::Renameat2,
        Ok(Does::Link) => Op::Linkat,
        Ok(Does::Symlink) => Op::Symlinkat,
        Ok(Does::Unlink | Does::Rmdir) => Op::Unlinkat,
        Ok(Does::Mkdir) => Op::Mkdirat,
        Ok(Does::Chdir) => Op::Fchdir,
        _ => op,
    }
}

impl Does {
    /// On an open file in place of a path: calls with a descriptor and an empty path.
    #[must_use]
    pub fn on_open_file(self) -> Option<Self> {
        Some(match self {
            Self::Stat => Self::Fstat,
            Self::Statx => Self::Fstatx,
            Self::Chmod => Self::Fchmod,
            Self::Chown => Self::Fchown,
            Self::Utimens => Self::Futimens,
            Self::Link => Self::LinkOpen,
            _ => return None,
        })
    }

    /// Whether it works on an open file, which it does not open itself.
    #[must_use]
    pub fn has_file(self) -> bool {
        use Does as D;
        matches!(
            self,
            D::Read
                | D::Readv
                | D::Pread
                | D::Preadv
                | D::Write
                | D::Writev
                | D::Pwrite
                | D::Pwritev
                | D::Sendfile
                | D::CopyFileRange
                | D::Close
                | D::Fsync
                | D::Fdatasync
                | D::SyncFileRange
                | D::Fallocate
                | D::Ftruncate
                | D::Seek
                | D::SetFlags
                | D::Fadvise
                | D::Readahead
                | D::Getdents
                | D::Fstat
                | D::Fstatx
                | D::Fstatfs
                | D::Fchmod
                | D::Fchown
                | D::Futimens
                | D::Flistxattr
                | D::LinkOpen
        )
    }

    /// Whether it uses and moves the position of its open file.
    #[must_use]
    pub fn moves(self) -> bool {
        matches!(
            self,
            Self::Read
                | Self::Readv
                | Self::Write
                | Self::Writev
                | Self::Sendfile
                | Self::CopyFileRange
                | Self::Getdents
        )
    }

    /// Whether it takes data from one file to another; its offsets are [`super::plan::AT_POSITION`] where it moves positions.
    #[must_use]
    pub fn copies(self) -> bool {
        matches!(self, Self::Sendfile | Self::CopyFileRange)
    }

    #[must_use]
    pub fn reads(self) -> bool {
        matches!(
            self,
            Self::Read | Self::Readv | Self::Pread | Self::Preadv | Self::Sendfile | Self::CopyFileRange
        )
    }

    /// Whether it does more with its open file than to look at its state, or to close it.
    #[must_use]
    pub fn uses_file(self) -> bool {
        self.has_file() && !matches!(self, Self::Fstat | Self::Fstatx | Self::Fstatfs | Self::Close)
    }

    #[must_use]
    pub fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Writev | Self::Pwrite | Self::Pwritev)
    }

    /// Whether the last component of its path, if that is a link, is followed.
    #[must_use]
    pub fn follows(self, op: Op, extra: u64) -> bool {
        /// `AT_SYMLINK_NOFOLLOW`, `AT_SYMLINK_FOLLOW` (include/uapi/linux/fcntl.h).
        const NO_FOLLOW: u64 = 0x100;
        const FOLLOW: u64 = 0x400;
        match self {
            Self::Rename | Self::Unlink | Self::Rmdir | Self::Symlink | Self::Mkdir | Self::Readlink => false,
            Self::Link => extra & FOLLOW != 0,
            Self::Statx => extra & NO_FOLLOW == 0,
            Self::Stat if op == Op::Lstat => false,
            Self::Stat | Self::Utimens if matches!(op, Op::Newfstatat | Op::Utimensat) => extra & NO_FOLLOW == 0,
            // The flags of fchownat are not recorded. Programs that copy links change their own owners.
            Self::Chown => op == Op::Chown,
            Self::Listxattr => op == Op::Listxattr,
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::RECORDED_OPS;
    use crate::model::ids::Layer;

    #[test]
    fn each_system_call_is_replayed_or_has_a_reason() {
        let all = Layer::Syscall.ops().iter().chain(RECORDED_OPS);
        let ops = all.map(|spec| spec.op).filter(|op| does(*op) != Err(Why::NotNeeded));
        let left: Vec<&str> = ops.filter(|op| does(*op).is_err()).map(Op::name).collect();
        let known = [
            "msync",
            "splice",
            "io_submit",
            "io_getevents",
            "io_pgetevents",
            "io_uring_enter",
            "name_to_handle_at",
            "mknod",
            "mknodat",
            "getxattr",
            "lgetxattr",
            "fgetxattr",
            "getxattrat",
            "setxattr",
            "lsetxattr",
            "fsetxattr",
            "setxattrat",
            "listxattrat",
            "removexattr",
            "lremovexattr",
            "fremovexattr",
            "removexattrat",
            "fchdir",
            "chroot",
            "ioctl",
        ];
        assert!(left.iter().all(|name| known.contains(name)), "{left:?}");
    }

    #[test]
    fn what_is_made_in_place_of_a_call_does_the_same() {
        for spec in Layer::Syscall.ops() {
            let made = made_as(spec.op);
            let is_removal = |op| matches!(does(op), Ok(Does::Unlink | Does::Rmdir));
            if spec.op == Op::Chdir {
                continue;
            }
            let is_same = does(made) == does(spec.op) || (is_removal(made) && is_removal(spec.op));
            assert!(is_same && made_as(made) == made, "{}", spec.op);
        }
        assert_eq!([Op::Creat, Op::Read].map(made_as), [Op::Openat2, Op::Read]);
    }

    #[test]
    fn links_are_followed_as_the_call_does() {
        assert!(Does::Stat.follows(Op::Stat, 0));
        assert!(!Does::Stat.follows(Op::Lstat, 0));
        assert!(!Does::Stat.follows(Op::Newfstatat, 0x100));
        assert!(!Does::Statx.follows(Op::Statx, 0x900));
        assert!(Does::Statx.follows(Op::Statx, 0x800));
        assert!(!Does::Unlink.follows(Op::Unlink, 0));
        assert!(Does::Open.follows(Op::Openat, 0));
    }
}
