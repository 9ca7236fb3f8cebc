//! Checks the tool's dependencies against deny.toml: licences, refused packages, and sources.
//!
//! `cargo deny` checks the same and security advisories as well, but takes longer to build than the tool and its tests
//! together.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

fn read(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// The first string of each line of a list in deny.toml: `section`, `key = [`, and a line for each entry.
fn listed(text: &str, section: &str, key: &str) -> Vec<String> {
    let (header, opening) = (format!("[{section}]"), format!("{key} = ["));
    let lines = text.lines().skip_while(|line| *line != header).skip(1);
    let lines = lines.take_while(|line| !line.starts_with('['));
    let entries = lines.skip_while(|line| *line != opening).skip(1);
    let entries = entries.take_while(|line| *line != "]");
    let entries = entries.filter(|line| !line.trim_start().starts_with('#'));
    entries.map(|line| line.split('"').nth(1).unwrap().to_owned()).collect()
}

/// Whether an SPDX expression can be satisfied by these licences. `A/B` is an old form of `A OR B`.
fn is_allowed(expression: &str, licences: &[String]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = spaced.split_whitespace().peekable();
    let allowed = any_of(&mut words, licences);
    assert!(words.next().is_none(), "{expression}");
    allowed
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any_of(words: &mut Words, licences: &[String]) -> bool {
    let mut allowed = all_of(words, licences);
    while words.next_if_eq(&"OR").is_some() {
        allowed |= all_of(words, licences);
    }
    allowed
}

fn all_of(words: &mut Words, licences: &[String]) -> bool {
    let mut allowed = one(words, licences);
    while words.next_if_eq(&"AND").is_some() {
        allowed &= one(words, licences);
    }
    allowed
}

fn one(words: &mut Words, licences: &[String]) -> bool {
    let word = words.next().expect("a licence");
    if word == "(" {
        let allowed = any_of(words, licences);
        assert_eq!(words.next(), Some(")"));
        return allowed;
    }
    let exception = words.next_if_eq(&"WITH").and_then(|_| words.next());
    let name = exception.map_or_else(|| word.to_owned(), |exception| format!("{word} WITH {exception}"));
    licences.contains(&name)
}

fn platform() -> String {
    let library = if cfg!(target_env = "musl") { "musl" } else { "gnu" };
    format!("{}-unknown-linux-{library}", std::env::consts::ARCH)
}

/// The packages that a folder's workspace has for this machine, as reported by cargo.
fn packages(folder: &str) -> Vec<Value> {
    let platform = platform();
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--locked",
            "--all-features",
            "--format-version=1",
            "--filter-platform",
            &platform,
        ])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// The names and versions of what is really built: the metadata also have packages that a feature for another platform
/// would need.
fn built() -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--workspace",
            "--all-features",
            "--locked",
            "--prefix=none",
            "--target",
        ])
        .arg(platform())
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let words = text.lines().map(|line| line.split(' ').take(2).collect::<Vec<_>>());
    words.map(|words| words.join(" ")).collect()
}

fn name_of(package: &Value) -> (&str, &str) {
    (package["name"].as_str().unwrap(), package["version"].as_str().unwrap())
}

#[test]
fn dependencies_are_those_that_deny_toml_allows() {
    let rules = read("deny.toml");
    let (licences, refused, skipped) = (
        listed(&rules, "licenses", "allow"),
        listed(&rules, "bans", "deny"),
        listed(&rules, "bans", "skip"),
    );
    let packages = packages(".");
    assert!(
        packages.len() > 50 && licences.len() > 2 && !refused.is_empty(),
        "{}",
        packages.len()
    );
    let mut wrong = Vec::new();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let built = built();
    let is_built = |package: &&Value| {
        let (name, version) = name_of(package);
        built.contains(&format!("{name} v{version}"))
    };
    assert!(packages.iter().filter(is_built).count() > 50);
    for package in packages.iter().filter(is_built) {
        let (name, version) = name_of(package);
        let licence = package["license"].as_str().unwrap_or_default();
        if licence.is_empty() || !is_allowed(licence, &licences) {
            wrong.push(format!("{name} {version} has the licence '{licence}'"));
        }
        if refused.iter().any(|refused| refused == name) {
            wrong.push(format!("{name} is refused"));
        }
        if !skipped.contains(&format!("{name}@{version}")) {
            versions.entry(name).or_default().push(version);
        }
        for dependency in package["dependencies"].as_array().unwrap() {
            let is_ours = package["source"].is_null();
            if is_ours && dependency["req"] == "*" && dependency["path"].is_null() {
                wrong.push(format!("{name} takes any version of {}", dependency["name"]));
            }
        }
    }
    let several = versions.iter().filter(|(_, versions)| versions.len() > 1);
    wrong.extend(several.map(|(name, versions)| format!("{name} in several versions: {versions:?}")));
    let unused = skipped.iter().filter(|skip| {
        !packages.iter().any(|package| {
            let (name, version) = name_of(package);
            **skip == format!("{name}@{version}")
        })
    });
    wrong.extend(unused.map(|skip| format!("deny.toml skips {skip}, which is not here")));
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// `fuzz/run` builds with `--locked`, from a lock file of its own, which cargo refuses if the library needs something else.
#[test]
fn the_fuzz_targets_lock_what_the_library_needs() {
    let packages = packages("fuzz");
    let has = |name: &str| packages.iter().any(|package| package["name"] == name);
    assert!(has("iostackbreakdown") && has("libfuzzer-sys"));
}

/// Independent of the machine: the lock file has packages of other platforms as well.
#[test]
fn all_sources_are_the_usual_registry() {
    let lock = read("Cargo.lock");
    let sources = lock.lines().filter_map(|line| line.strip_prefix("source = "));
    let others: Vec<&str> = sources
        .filter(|source| !source.ends_with("/crates.io-index\""))
        .collect();
    assert!(others.is_empty(), "{others:#?}");
}

#[test]
fn licences_are_read_as_spdx_has_them() {
    let allowed = ["MIT", "Zlib", "GPL-2.0-only WITH Linux-syscall-note"].map(str::to_owned);
    for expression in [
        "MIT",
        "Apache-2.0/MIT",
        "A OR B AND C OR MIT",
        "(A OR Zlib) AND MIT",
        "GPL-2.0-only WITH Linux-syscall-note",
    ] {
        assert!(is_allowed(expression, &allowed), "{expression}");
    }
    for expression in [
        "A",
        "MIT AND A",
        "(MIT OR A) AND B",
        "MIT WITH A",
        "GPL-2.0-only",
        "A OR MIT AND B",
    ] {
        assert!(!is_allowed(expression, &allowed), "{expression}");
    }
}
