//! Where an export goes: a stream, or a directory of files.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Receives bytes for named files. A format of one file uses the name `""`.
pub trait Output {
    /// Appends bytes to the file, which is made at the first ones.
    ///
    /// # Errors
    /// Any error from writing.
    fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<()>;

    /// Writes what is buffered.
    ///
    /// # Errors
    /// As above.
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One stream for a format of one file.
pub struct Stream<W: Write>(pub io::BufWriter<W>);

impl<W: Write> Stream<W> {
    pub fn new(to: W) -> Self {
        Self(io::BufWriter::with_capacity(BUFFER, to))
    }
}

impl<W: Write> Output for Stream<W> {
    fn write(&mut self, _: &str, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn finish(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

const BUFFER: usize = 1 << 16;
/// Bytes that are kept for each file of a directory, and files that are open at the same time. A process may have some
/// thousand threads, and each thread a file.
const EACH: usize = 1 << 13;
const OPEN: usize = 64;

/// A new directory of files.
pub struct Directory {
    path: PathBuf,
    files: HashMap<String, Buffered>,
    open: usize,
}

#[derive(Default)]
struct Buffered {
    file: Option<File>,
    bytes: Vec<u8>,
    exists: bool,
}

impl Directory {
    /// Makes the directory.
    ///
    /// # Errors
    /// If it exists or cannot be made.
    pub fn create(path: &Path) -> io::Result<Self> {
        // Names of files and processes are not for everyone.
        fs::DirBuilder::new().mode(0o700).create(path)?;
        Ok(Self {
            path: path.to_owned(),
            files: HashMap::new(),
            open: 0,
        })
    }

    fn flush(&mut self, name: &str) -> io::Result<()> {
        let is_open = self.files.get(name).is_some_and(|file| file.file.is_some());
        if !is_open && self.open >= OPEN {
            self.files.values_mut().for_each(|other| other.file = None);
            self.open = 0;
        }
        let Some(buffered) = self.files.get_mut(name) else {
            return Ok(());
        };
        let file = match &mut buffered.file {
            Some(file) => file,
            file => {
                let mut options = OpenOptions::new();
                options.mode(0o600).append(true).create_new(!buffered.exists);
                (buffered.exists, self.open) = (true, self.open + 1);
                file.insert(options.open(self.path.join(name))?)
            }
        };
        file.write_all(&buffered.bytes)?;
        buffered.bytes.clear();
        Ok(())
    }
}

impl Output for Directory {
    fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        if !self.files.contains_key(name) {
            self.files.insert(name.to_owned(), Buffered::default());
        }
        let Some(buffered) = self.files.get_mut(name) else {
            return Ok(());
        };
        buffered.bytes.extend_from_slice(bytes);
        if buffered.bytes.len() >= EACH {
            self.flush(name)?;
        }
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        let names: Vec<String> = self.files.keys().cloned().collect();
        names.iter().try_for_each(|name| self.flush(name))
    }
}

/// Files in memory, by name.
#[derive(Debug, Default)]
pub struct Memory(pub BTreeMap<String, Vec<u8>>);

impl Output for Memory {
    fn write(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        if !self.0.contains_key(name) {
            self.0.insert(name.to_owned(), Vec::new());
        }
        if let Some(file) = self.0.get_mut(name) {
            file.extend_from_slice(bytes);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_files_than_may_be_open_are_whole() {
        let path = std::env::temp_dir().join(format!("iosb-export-{}", std::process::id()));
        let mut directory = Directory::create(&path).unwrap();
        assert!(Directory::create(&path).is_err(), "never written over");
        let line = |file: usize, at: usize| format!("{file} {at} {}\n", "x".repeat(3000));
        for at in 0..7 {
            for file in 0..OPEN * 3 {
                directory.write(&file.to_string(), line(file, at).as_bytes()).unwrap();
            }
        }
        directory.finish().unwrap();
        for file in 0..OPEN * 3 {
            let text = fs::read_to_string(path.join(file.to_string())).unwrap();
            let expected: String = (0..7).map(|at| line(file, at)).collect();
            assert!(text == expected, "{file}");
        }
        fs::remove_dir_all(&path).unwrap();
    }
}
