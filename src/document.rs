//! Files that are of no use unless they are complete: pages and pictures.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Writes a document. `options`: how the file is opened, with `write`.
///
/// # Errors
/// Those of the system. No part of the document is left then.
pub fn write(path: &Path, options: &OpenOptions, document: &[u8]) -> io::Result<()> {
    let mut file = options.open(path)?;
    let written = file.write_all(document);
    if written.is_err() {
        discard(path, &file);
    }
    written
}

/// Removes the part of a document that was written. A device or a pipe is left, as is the name of a file that is a link: the
/// file is empty then.
pub fn discard(path: &Path, file: &File) {
    let Ok(opened) = file.metadata() else { return };
    if !opened.is_file() {
        return;
    }
    // In case the directory may not be written to.
    let _ = file.set_len(0);
    let is_it = |named: fs::Metadata| (named.dev(), named.ino()) == (opened.dev(), opened.ino());
    if fs::symlink_metadata(path).is_ok_and(is_it) {
        let _ = fs::remove_file(path);
    }
}
