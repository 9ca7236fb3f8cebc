//! Writes the files that a package contains besides the binary, generated from the definition of the command line: the manual page
//! and the completions of bash, zsh and fish, under each name of the command. `cargo run -p iostackbreakdown-assets -- FOLDER`.

mod manual;

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::ExitCode;

use flate2::Compression;
use flate2::write::GzEncoder;
use iostackbreakdown::args::shell::Shell;

const NAME: &str = "IOStackBreakdown";
/// Links to the executable in the package.
const OTHER_NAMES: [&str; 2] = ["iostackbreakdown", "iosb"];

fn write_all(folder: &Path) -> io::Result<()> {
    // Debian's policy: manuals are compressed at the highest level, without a time stamp.
    let mut manual = GzEncoder::new(Vec::new(), Compression::best());
    manual.write_all(&manual::page()?)?;
    // Each shell's directory, and its naming scheme.
    for (kind, prefix, ending, content) in [
        ("man", "", ".8.gz", manual.finish()?),
        ("bash", "", "", Shell::Bash.script().into_bytes()),
        ("zsh", "_", "", Shell::Zsh.script().into_bytes()),
        ("fish", "", ".fish", Shell::Fish.script().into_bytes()),
    ] {
        let folder = folder.join(kind);
        fs::create_dir_all(&folder)?;
        let named = |name| format!("{prefix}{name}{ending}");
        fs::write(folder.join(named(NAME)), content)?;
        // zsh's file lists all names in its first line; further files would be redundant.
        for name in OTHER_NAMES.iter().filter(|_| kind != "zsh") {
            link(&folder.join(named(name)), &named(NAME))?;
        }
    }
    fs::create_dir_all(folder.join("bin"))?;
    for name in OTHER_NAMES {
        link(&folder.join("bin").join(name), NAME)?;
    }
    Ok(())
}

/// Creates a link, replacing that of an earlier run.
fn link(link: &Path, target: &str) -> io::Result<()> {
    match fs::remove_file(link) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => symlink(target, link),
    }
}

fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1) else {
        eprintln!("usage: assets FOLDER");
        return ExitCode::from(2);
    };
    match write_all(Path::new(&folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}: {error}", Path::new(&folder).display());
            ExitCode::FAILURE
        }
    }
}
