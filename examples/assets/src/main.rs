//! Writes what a package has beside the binary, out of the same definition as the command line: the manual page and the
//! completions of bash, zsh and fish, under each of the names of the command. `cargo run -p iostackbreakdown-assets -- FOLDER`.

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
/// What the package links to it.
const OTHER_NAMES: [&str; 2] = ["iostackbreakdown", "iosb"];

fn write_all(folder: &Path) -> io::Result<()> {
    // Debian's policy: manuals are compressed, the best way, and without the time of that.
    let mut manual = GzEncoder::new(Vec::new(), Compression::best());
    manual.write_all(&manual::page()?)?;
    // Where they are, and how they are named after the command.
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
        // The first line of zsh's file has all names, and another file would be read for nothing.
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

/// Makes a link, also where there is one of an earlier run.
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
