//! Programs of others that read what was exported.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The Python that has the packages of requirements.txt.
pub fn python() -> String {
    if let Ok(python) = std::env::var("EXPORTS_PYTHON") {
        return python;
    }
    let cache = std::env::var("XDG_CACHE_HOME").map_or_else(
        |_| PathBuf::from(std::env::var("HOME").unwrap()).join(".cache"),
        PathBuf::from,
    );
    let python = cache.join("iostackbreakdown/python/bin/python");
    python.to_str().unwrap().to_owned()
}

/// Runs a command in a directory. Returns what it printed to both outputs.
pub fn run(folder: &Path, words: &[&str]) -> (String, String) {
    let done = Command::new(words[0])
        .args(&words[1..])
        .current_dir(folder)
        .env("LC_ALL", "C.UTF-8")
        .output();
    let done = done.unwrap_or_else(|error| panic!("{}: {error}; tests/run installs it", words[0]));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&done.stdout), text(&done.stderr));
    assert!(done.status.success(), "{words:?}: {}\n{out}\n{err}", done.status);
    (out, err)
}
