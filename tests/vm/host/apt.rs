//! Where this machine gets its packages from.

use std::path::{Path, PathBuf};

/// Where apt keeps its sources.
const LIST: &str = "/etc/apt/sources.list";
const FOLDER: &str = "/etc/apt/sources.list.d";
/// Names a Debian mirror on machines whose apt has none, such as Ubuntu's.
const MIRROR: &str = "IOSB_DEBIAN_MIRROR";
/// Suites of Debian itself. Others publish for Debian too, under longer names or without a main section.
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

#[derive(Debug, Default)]
struct Source {
    binary: bool,
    uris: Vec<String>,
    suites: Vec<String>,
    components: Vec<String>,
    keyring: String,
}

/// Debian mirrors, the likeliest first.
pub fn mirrors() -> Result<Vec<String>, String> {
    if let Ok(mirror) = std::env::var(MIRROR) {
        return Ok(vec![mirror.trim_end_matches('/').into()]);
    }
    let mut sources: Vec<Source> = files()
        .into_iter()
        .flat_map(|(path, text)| parse(&path, &text))
        .collect();
    sources.retain(|source| {
        source.binary
            && source.components.iter().any(|component| component == "main")
            && source.suites.iter().any(|suite| SUITES.contains(&suite.as_str()))
    });
    // Third parties use Debian's suite names as well; few of them sign with Debian's keys or end in /debian.
    sources.sort_by_key(|source| !source.keyring.contains("debian-archive"));
    let mut mirrors: Vec<String> = Vec::new();
    for uri in sources.into_iter().flat_map(|source| source.uris) {
        let uri = uri.trim_end_matches('/').to_string();
        if uri.starts_with("http") && !mirrors.contains(&uri) {
            mirrors.push(uri);
        }
    }
    mirrors.sort_by_key(|uri| !uri.ends_with("/debian"));
    if mirrors.is_empty() {
        return Err(format!("apt's sources name no Debian mirror; set {MIRROR} to one"));
    }
    Ok(mirrors)
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
        Some(Source {
            binary: kind == "deb",
            uris: vec![words.next()?],
            suites: vec![words.next()?],
            components: words.collect(),
            keyring: options.into(),
        })
    };
    text.lines().filter_map(parse).collect()
}

/// Stanzas of `Field: values`, parted by empty lines; a line that starts with a space goes on with the field before.
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
                "signed-by" => source.keyring += values,
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
