//! The packages that the tool is made of, held to deny.toml: their licences, the packages that are refused, and where they are from.
//!
//! `cargo deny` checks the same and advisories, too; but it takes longer to build than the tool and its tests together.

use std::collections::BTreeMap;
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

/// Whether an SPDX expression allows a use under the licences of a list alone. `A/B` is an old form of `A OR B`.
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

/// The packages that are built on this machine, as cargo describes them.
fn packages() -> Vec<Value> {
    let platform = format!(
        "{}-unknown-linux-{}",
        std::env::consts::ARCH,
        if cfg!(target_env = "musl") { "musl" } else { "gnu" }
    );
    let output = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--locked",
            "--all-features",
            "--format-version=1",
            "--filter-platform",
            &platform,
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
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
    let packages = packages();
    assert!(
        packages.len() > 50 && licences.len() > 2 && !refused.is_empty(),
        "{}",
        packages.len()
    );
    let mut wrong = Vec::new();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in &packages {
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

/// Whatever the machine: a package of another one is in the lock file, too.
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
