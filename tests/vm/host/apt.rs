//! Where this machine gets its packages from, and which keys it trusts for them.

use super::packages::command;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Apt's list of sources.
const LIST: &str = "/etc/apt/sources.list";
const FOLDER: &str = "/etc/apt/sources.list.d";
/// Names a Debian mirror on machines whose apt has none, such as Ubuntu's.
const MIRROR: &str = "IOSB_DEBIAN_MIRROR";
/// Suites of Debian itself. Third parties publish for Debian as well, under longer names or without a main section.
const SUITES: [&str; 10] = [
    "bullseye",
    "bookworm",
    "trixie",
    "forky",
    "duke",
    "sid",
    "stable",
    "testing",
    "unstable",
    "oldstable",
];

/// Debian's keyring, from a package that every Debian has and others can install.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

#[derive(Debug, Default)]
struct Source {
    binary: bool,
    uris: Vec<String>,
    suites: Vec<String>,
    components: Vec<String>,
    /// `Signed-By`: paths, fingerprints or keys, on any number of lines.
    keys: String,
}

#[derive(Clone, Debug)]
pub struct Mirror {
    pub uri: String,
    keys: String,
}

/// An apt configuration with one suite of one mirror, and no installed packages. It accepts nothing that is not signed
/// by a key that this machine's apt trusts for the mirror.
pub struct Apt {
    folder: PathBuf,
    options: Vec<String>,
}

impl Apt {
    /// For packages of an architecture, with its files in this directory.
    pub fn new(mirror: &Mirror, suite: &str, architecture: &str, folder: &Path) -> Result<Self, String> {
        let sources = folder.join("sources");
        for part in [
            sources.clone(),
            folder.join("cache/archives/partial"),
            folder.join("state/lists/partial"),
        ] {
            fs::create_dir_all(&part).map_err(|e| format!("{}: {e}", part.display()))?;
        }
        let status = folder.join("status");
        for (file, text) in [
            (&sources.join("debian.sources"), mirror.source(suite, architecture)),
            (&status, String::new()),
        ] {
            fs::write(file, text).map_err(|e| format!("{}: {e}", file.display()))?;
        }
        let options = vec![
            "Dir::Etc::sourcelist=-".into(),
            format!("Dir::Etc::sourceparts={}", sources.display()),
            format!("Dir::State={}", folder.join("state").display()),
            format!("Dir::State::status={}", status.display()),
            format!("Dir::Cache={}", folder.join("cache").display()),
            format!("APT::Architecture={architecture}"),
            format!("APT::Architectures::={architecture}"),
            "APT::Install-Recommends=false".into(),
            "APT::Sandbox::User=".into(),
            // Anything that cannot be fetched or verified is an error.
            "APT::Update::Error-Mode=any".into(),
            "Acquire::GzipIndexes=false".into(),
            "Acquire::Languages=none".into(),
            "Acquire::Retries=1".into(),
            "Acquire::http::Timeout=30".into(),
            // No other process uses these directories, and locking needs root.
            "Debug::NoLocking=1".into(),
        ];
        Ok(Self {
            folder: folder.into(),
            options,
        })
    }

    /// Fetches the suite's list of packages in `main`.
    pub fn list(&self) -> Result<String, String> {
        self.get(&["-q", "update"])?;
        let lists = self.folder.join("state/lists");
        let is_list = |path: &PathBuf| path.to_string_lossy().ends_with("_Packages");
        let list = files_in(&lists)?.into_iter().find(is_list);
        let list = list.ok_or_else(|| format!("{}: apt has put no list of packages there", lists.display()))?;
        fs::read_to_string(&list).map_err(|e| format!("{}: {e}", list.display()))
    }

    /// Fetches packages of the list with their dependencies.
    pub fn download(&self, packages: &[&str]) -> Result<Vec<PathBuf>, String> {
        self.get(&[&["install", "--download-only", "--yes"][..], packages].concat())?;
        let mut all = files_in(&self.folder.join("cache/archives"))?;
        all.retain(|path| path.extension().is_some_and(|end| end == "deb"));
        Ok(all)
    }

    fn get(&self, arguments: &[&str]) -> Result<(), String> {
        let options = self.options.iter().flat_map(|option| ["-o", option]);
        let done = command(Command::new("apt-get").args(options).args(arguments).env("LC_ALL", "C"));
        done.map(drop).map_err(|said| cause(&said))
    }
}

/// The line of apt's output that names the cause, and what to do about missing keys.
fn cause(said: &str) -> String {
    const UNSIGNED: [&str; 3] = ["NO_PUBKEY", "is not signed", "Missing key"];
    let line = ["NO_PUBKEY", "Failed to fetch", "E: "]
        .iter()
        .find_map(|mark| said.lines().find(|line| line.contains(mark)));
    let line = line.unwrap_or(said).trim_start_matches("E: ").trim_start_matches("W: ");
    if UNSIGNED.iter().any(|mark| said.contains(mark)) {
        format!("{line}; Debian's keys are in the package debian-archive-keyring")
    } else {
        line.into()
    }
}

fn files_in(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    Ok(entries.flatten().map(|entry| entry.path()).collect())
}

impl Mirror {
    pub fn new(uri: &str, keys: &str) -> Self {
        Self {
            uri: uri.trim_end_matches('/').into(),
            keys: trusted(keys, Path::new(KEYRING).exists()),
        }
    }

    /// A stanza of apt's sources.
    pub fn source(&self, suite: &str, architecture: &str) -> String {
        let keys = match self.keys.as_str() {
            // Keys that apt trusts for every source.
            "" => String::new(),
            keys => format!("Signed-By:{keys}\n"),
        };
        format!(
            "Types: deb\nURIs: {}\nSuites: {suite}\nComponents: main\nArchitectures: {architecture}\n{keys}",
            self.uri
        )
    }
}

/// The trusted keys: those of this machine's source and, if these are files, Debian's keyring, since they may be for
/// its own release only.
pub fn trusted(named: &str, has_keyring: bool) -> String {
    let are_files = named.split_whitespace().all(|word| word.starts_with('/'));
    let own = if has_keyring { KEYRING } else { "" };
    match named.trim() {
        "" if own.is_empty() => String::new(),
        _ if are_files && !named.contains(own) => format!("{} {own}", named.trim_end()),
        _ => named.into(),
    }
}

/// Debian mirrors, the preferred one first.
pub fn mirrors() -> Result<Vec<Mirror>, String> {
    if let Ok(mirror) = std::env::var(MIRROR) {
        return Ok(vec![Mirror::new(&mirror, "")]);
    }
    let mirrors = named_in(&files());
    if mirrors.is_empty() {
        return Err(format!("apt's sources name no Debian mirror; set {MIRROR} to one"));
    }
    Ok(mirrors)
}

/// Mirrors in the files of apt's sources.
pub fn named_in(files: &[(PathBuf, String)]) -> Vec<Mirror> {
    let mut sources: Vec<Source> = files.iter().flat_map(|(path, text)| parse(path, text)).collect();
    sources.retain(|source| {
        source.binary
            && source.components.iter().any(|component| component == "main")
            && source.suites.iter().any(|suite| SUITES.contains(&suite.as_str()))
    });
    // Third parties use Debian's suite names as well, but few of them sign with Debian's keys or end in /debian.
    sources.sort_by_key(|source| !source.keys.contains("debian-archive"));
    let mut mirrors: Vec<Mirror> = Vec::new();
    for source in sources {
        for mirror in source.uris.iter().map(|uri| Mirror::new(uri, &source.keys)) {
            if mirror.uri.starts_with("http") && !mirrors.iter().any(|known| known.uri == mirror.uri) {
                mirrors.push(mirror);
            }
        }
    }
    mirrors.sort_by_key(|mirror| !mirror.uri.ends_with("/debian"));
    mirrors
}

fn files() -> Vec<(PathBuf, String)> {
    let mut paths = vec![PathBuf::from(LIST)];
    if let Ok(entries) = std::fs::read_dir(FOLDER) {
        paths.extend(entries.flatten().map(|entry| entry.path()));
    }
    paths.sort();
    let wanted = |path: &PathBuf| path.extension().is_some_and(|end| end == "list" || end == "sources");
    paths
        .into_iter()
        .filter(wanted)
        .filter_map(|path| Some((path.clone(), std::fs::read_to_string(path).ok()?)))
        .collect()
}

fn parse(path: &Path, text: &str) -> Vec<Source> {
    if path.extension().is_some_and(|end| end == "sources") {
        deb822(text)
    } else {
        one_line(text)
    }
}

/// `deb [option=value …] URI suite component…`
fn one_line(text: &str) -> Vec<Source> {
    let parse = |line: &str| {
        let line = line.split('#').next()?.trim();
        let (kind, rest) = line.split_once(char::is_whitespace)?;
        let (options, rest) = match rest.trim_start().strip_prefix('[') {
            Some(bracketed) => bracketed.split_once(']')?,
            None => ("", rest),
        };
        let mut words = rest.split_whitespace().map(String::from);
        let keys = options
            .split_whitespace()
            .find_map(|option| option.strip_prefix("signed-by="));
        Some(Source {
            binary: kind == "deb",
            uris: vec![words.next()?],
            suites: vec![words.next()?],
            components: words.collect(),
            keys: keys
                .map(|keys| format!(" {}", keys.replace(',', " ")))
                .unwrap_or_default(),
        })
    };
    text.lines().filter_map(parse).collect()
}

/// Parses stanzas of `Field: values`, separated by empty lines; a line that begins with a space continues the field.
fn deb822(text: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    for stanza in text.split("\n\n") {
        let mut source = Source::default();
        let mut enabled = true;
        let mut field = String::new();
        for line in stanza.lines().filter(|line| !line.starts_with('#')) {
            let values = match line.split_once(':') {
                Some((name, values)) if !line.starts_with([' ', '\t']) => {
                    field = name.to_ascii_lowercase();
                    values
                }
                _ => line,
            };
            let mut words = values.split_whitespace().map(String::from);
            match field.as_str() {
                "types" => source.binary |= words.any(|word| word == "deb"),
                "uris" => source.uris.extend(words),
                "suites" => source.suites.extend(words),
                "components" => source.components.extend(words),
                // An inline key begins on the line after the field's name.
                "signed-by" if line.starts_with([' ', '\t']) => source.keys = format!("{}\n{line}", source.keys),
                "signed-by" => source.keys = values.into(),
                "enabled" => enabled = !words.any(|word| word == "no"),
                _ => {}
            }
        }
        if enabled {
            sources.push(source);
        }
    }
    sources
}
