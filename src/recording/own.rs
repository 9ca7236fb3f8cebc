//! The requests that write the recording itself, which are not what was to be recorded.

use std::collections::HashSet;

use crate::model::record::Request;
use crate::model::recording::OwnWrites;
use crate::model::report::slow::Inode;

/// The files of a recording, and what was written of them. They are known by the device of their file system as `stat` has it: on
/// btrfs, where that is another one than the kernel's requests have, nothing is left out.
#[derive(Debug, Default)]
pub struct Own {
    files: HashSet<Inode>,
    pub writes: OwnWrites,
}

impl Own {
    /// Adds files of the recording.
    pub fn learn(&mut self, files: impl IntoIterator<Item = Inode>) {
        self.files.extend(files);
    }

    /// Removes the requests of its files, and counts them.
    pub fn leave_out(&mut self, requests: &mut Vec<Request>) {
        requests.retain(|request| {
            let is_own = request.inode.is_some_and(|inode| self.files.contains(&inode));
            if is_own {
                self.writes.requests += 1;
                self.writes.bytes += request.bytes;
            }
            !is_own
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_of_its_files_are_left_out_and_counted() {
        let inode = |number, minor| Inode::on([8, minor], number);
        let request = |inode| Request {
            bytes: 4096,
            inode,
            ..crate::recording::tests::request()
        };
        let mut own = Own::default();
        own.learn([inode(7, 1)]);
        let of_others = [Some(inode(7, 2)), Some(inode(8, 1)), None].map(request).to_vec();
        let mut requests = of_others.clone();
        requests.extend([Some(inode(7, 1)); 2].map(request));
        own.leave_out(&mut requests);
        assert_eq!(requests, of_others);
        assert_eq!((own.writes.requests, own.writes.bytes), (2, 8192));
    }
}
