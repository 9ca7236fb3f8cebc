//! Debian packages: the contents of a suite, and downloading. Nothing here is about kernels.

use super::apt::{self, Apt};
use std::cmp::Ordering;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

/// Apt's own downloader: it uses apt's proxies and credentials, and checks what it downloads.
const APT_HELPER: &str = "/usr/lib/apt/apt-helper";
/// A younger list is not downloaded again.
const LIST_LIFE: Duration = Duration::from_secs(24 * 60 * 60);
/// Only these packages of a list are kept.
const WANTED: &str = "Package: linux-";

#[derive(Clone, Debug)]
pub struct Package {
    pub name: String,
    pub version: String,
    file: String,
    sha256: String,
}

/// Why something could not be downloaded.
#[derive(Debug)]
pub enum Failure {
    /// The mirror does not have the file: another file may be available.
    Missing(String),
    /// Any other error: trying another file is pointless.
    Other(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Missing(text) | Self::Other(text)) = self;
        f.write_str(text)
    }
}

/// The kernel packages of a suite, from a list that is at most a day old, or from an older one if no mirror responds.
pub fn list(suite: &str, architecture: &str, cache: &Path, note: &dyn Fn(&str)) -> Result<Vec<Package>, String> {
    // Those in `packages` were stored without checking their signatures.
    let path = of_architecture(&cache.join("lists"), architecture).join(suite);
    if !fresh(&path)
        && let Err(error) = fetch_list(suite, architecture, &path)
    {
        if !path.exists() {
            return Err(error);
        }
        note(&format!("{error}; using an old list of packages"));
    }
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(text.split("\n\n").filter_map(parse).collect())
}

/// A folder of the cache for what differs between architectures; that of amd64 is not below another one.
pub fn of_architecture(folder: &Path, architecture: &str) -> PathBuf {
    match architecture {
        "amd64" => folder.into(),
        other => folder.join(other),
    }
}

/// Downloads and unpacks a package.
pub fn unpack(package: &Package, folder: &Path) -> Result<(), Failure> {
    let deb = folder.join("package.deb");
    let mut first = None;
    for mirror in apt::mirrors().map_err(Failure::Other)? {
        let url = format!("{}/{}", mirror.uri, package.file);
        match download(&url, &deb, &package.sha256) {
            Ok(()) => {
                command(Command::new("dpkg-deb").arg("-x").arg(&deb).arg(folder)).map_err(Failure::Other)?;
                return std::fs::remove_file(&deb).map_err(|e| Failure::Other(format!("{}: {e}", deb.display())));
            }
            // The preferred mirror's error is the one to report.
            Err(failure) => first = first.or(Some(failure)),
        }
    }
    Err(first.unwrap_or_else(|| Failure::Other("there is no mirror".into())))
}

/// Debian's order of versions: digits by value, the rest by character, letters first, and `~` before everything, even
/// the end.
pub fn compare_versions(a: &str, b: &str) -> Ordering {
    let rank = |c: Option<u8>| match c {
        Some(b'~') => 0,
        None => 1,
        Some(c) if c.is_ascii_digit() => 1,
        Some(c) if c.is_ascii_alphabetic() => 2 + u32::from(c),
        Some(c) => 1000 + u32::from(c),
    };
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    let number = |bytes: &mut &[u8]| {
        let end = bytes.iter().position(|c| !c.is_ascii_digit()).unwrap_or(bytes.len());
        let (digits, rest) = bytes.split_at(end);
        *bytes = rest;
        digits.iter().fold(0_u64, |n, digit| {
            n.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
        })
    };
    loop {
        let letter = |bytes: &[u8]| bytes.first().copied();
        while [a, b]
            .iter()
            .any(|rest| letter(rest).is_some_and(|c| !c.is_ascii_digit()))
        {
            match rank(letter(a)).cmp(&rank(letter(b))) {
                Ordering::Equal => (a, b) = (&a[1..], &b[1..]),
                other => return other,
            }
        }
        match number(&mut a).cmp(&number(&mut b)) {
            Ordering::Equal if a.is_empty() && b.is_empty() => return Ordering::Equal,
            Ordering::Equal => {}
            other => return other,
        }
    }
}

/// Runs a command to its end; an error includes its output.
pub fn command(command: &mut Command) -> Result<Vec<u8>, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| format!("{name}: {e}"))?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(format!(
            "{name}: {}: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        ))
    }
}

/// Creates `target` as a whole or not at all: `make` works in a directory beside it and returns what to move to
/// `target`. If another process is faster, its result is kept.
pub fn atomically<E: From<String>>(target: &Path, make: impl FnOnce(&Path) -> Result<PathBuf, E>) -> Result<(), E> {
    let parent = target.parent().unwrap_or(Path::new("/"));
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let folder = parent.join(format!(".{name}.{}", std::process::id()));
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    std::fs::create_dir_all(&folder).map_err(failed)?;
    let made = make(&folder).and_then(|made| match std::fs::rename(made, target) {
        Err(error) if !target.exists() => Err(E::from(format!("{}: {error}", target.display()))),
        _ => Ok(()),
    });
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(failed)?;
    }
    made
}

impl From<String> for Failure {
    fn from(text: String) -> Self {
        Self::Other(text)
    }
}

fn fresh(path: &Path) -> bool {
    let age = |time: SystemTime| SystemTime::now().duration_since(time).ok();
    path.metadata()
        .and_then(|data| data.modified())
        .ok()
        .and_then(age)
        .is_some_and(|age| age < LIST_LIFE)
}

/// From the first mirror that has it, signed; the preferred mirror's error is the one to report.
fn fetch_list(suite: &str, architecture: &str, path: &Path) -> Result<(), String> {
    let mut first = None;
    for mirror in apt::mirrors()? {
        let fetched = atomically(path, |folder| -> Result<PathBuf, String> {
            let text = Apt::new(&mirror, suite, architecture, &folder.join("apt"))?.list()?;
            let kept: Vec<&str> = text.split("\n\n").filter(|stanza| stanza.starts_with(WANTED)).collect();
            if kept.is_empty() {
                return Err(format!("{} has no kernels of {suite}", mirror.uri));
            }
            let list = folder.join("list");
            std::fs::write(&list, kept.join("\n\n")).map_err(|e| format!("{}: {e}", list.display()))?;
            Ok(list)
        });
        match fetched {
            Ok(()) => return Ok(()),
            Err(error) => first = first.or(Some(error)),
        }
    }
    Err(first.unwrap_or_else(|| "there is no mirror".into()))
}

fn parse(stanza: &str) -> Option<Package> {
    let field = |name: &str| {
        let value = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(": ")?.to_string());
        stanza.lines().find_map(value)
    };
    Some(Package {
        name: field("Package")?,
        version: field("Version")?,
        file: field("Filename")?,
        sha256: field("SHA256")?,
    })
}

fn download(url: &str, to: &Path, sha256: &str) -> Result<(), Failure> {
    let mut helper = Command::new(APT_HELPER);
    helper
        .args([
            "-o",
            "Acquire::Retries=1",
            "-o",
            "Acquire::http::Timeout=30",
            "download-file",
            url,
        ])
        .arg(to)
        .arg(format!("SHA256:{sha256}"));
    command(&mut helper).map(drop).map_err(|text| {
        // Warnings precede it, and a summary without information follows.
        let cause = text
            .lines()
            .find(|line| line.contains("Failed to fetch"))
            .unwrap_or(&text);
        let short = cause.trim_start_matches("E: ").to_string();
        if text.contains("404 ") {
            Failure::Missing(short)
        } else {
            Failure::Other(short)
        }
    })
}
