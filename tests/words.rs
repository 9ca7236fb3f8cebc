//! Comments, messages and documentation are in words that a reader from the field knows. Each word refused here once had a
//! meaning that only this project gave it.

use std::fs;
use std::path::{Path, PathBuf};

/// Words and phrases, each with what to write instead.
const REFUSED: &[(&str, &str)] = &[
    ("told", "reported, distinguished, known"),
    ("tells", "reports, shows, distinguishes"),
    ("untold", "not reported"),
    ("door", "asynchronous entry point"),
    ("doors", "asynchronous entry points"),
    ("apart", "separately"),
    ("place", "slot, offset, index, directory"),
    ("places", "slots, offsets, indices, directories"),
    ("late", "slow, delayed"),
    ("plain", "what it is: text, a number, a system call"),
    ("nobody", "no call, no process"),
    ("somebody", "a user, a process"),
    ("whoever", "the user, any process"),
    ("whosever", "of any process"),
    ("anyhow", "regardless"),
    ("made good", "recovered"),
    ("makes good", "recovers"),
    ("asked for", "requested, selected"),
    ("let go", "released"),
    ("comes by", "reaches, hits"),
    ("came by", "reached, hit"),
    ("all the same", "nevertheless"),
    ("as it was", "unchanged"),
    ("is there already", "exists"),
];

/// Phrases in which such a word has its usual meaning.
const USUAL: &[&str] = &[
    "in place",
    "takes place",
    "take place",
    "too late",
    "plain text",
    "text/plain",
    "--user nobody",
];

/// Paths that are not read: the list of refused words itself.
const NOT_READ: &[&str] = &["tests/words.rs"];

const FOLDERS: &[&str] = &[
    "bpf",
    "build",
    "src",
    "tests",
    "benches",
    "packaging",
    "examples",
    "docs",
    "fuzz/fuzz_targets",
];
const FILES: &[&str] = &[
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "fuzz/lib.rs",
    "fuzz/run",
    "fuzz/build.rs",
];

/// What a line may contain that a person reads: all of a page, and comments and strings of code.
#[derive(Clone, Copy)]
enum Kind {
    Page,
    /// Comments begin with `//`, or are between `/*` and `*/`.
    Braces,
    /// Comments begin with `#`.
    Shell,
}

fn kind(path: &Path) -> Option<Kind> {
    let extension = path.extension().and_then(|end| end.to_str());
    match extension {
        Some("md") => Some(Kind::Page),
        Some("rs" | "c" | "h") => Some(Kind::Braces),
        Some("sh") => Some(Kind::Shell),
        Some(_) => None,
        None => Some(Kind::Shell),
    }
}

/// The parts of a file that people read, with their line numbers.
fn prose(text: &str, kind: Kind) -> Vec<(usize, String)> {
    let mut parts = Vec::new();
    let mut in_block = false;
    for (number, line) in (1..).zip(text.lines()) {
        let part = match kind {
            Kind::Page => {
                let is_fence = line.starts_with("```");
                in_block ^= is_fence;
                if in_block || is_fence {
                    String::new()
                } else {
                    line.to_owned()
                }
            }
            Kind::Shell => line
                .split_once('#')
                .map(|(_, comment)| comment.to_owned())
                .unwrap_or_default(),
            Kind::Braces => {
                let trimmed = line.trim_start();
                if in_block || trimmed.starts_with("/*") {
                    in_block = !trimmed.contains("*/");
                    trimmed.to_owned()
                } else {
                    let begin = ["//", "/*"].iter().filter_map(|mark| line.find(mark)).min();
                    let (code, comment) = line.split_at(begin.unwrap_or(line.len()));
                    // A string without a blank is a key, and not read by people.
                    let strings = code.split('"').skip(1).step_by(2).filter(|text| text.contains(' '));
                    format!(
                        "{comment} {}",
                        strings.map(without_arguments).collect::<Vec<_>>().join(" ")
                    )
                }
            }
        };
        parts.push((number, part));
    }
    parts
}

/// A string without what is formatted into it.
fn without_arguments(text: &str) -> String {
    let pieces = text
        .split('{')
        .map(|piece| piece.split_once('}').map_or(piece, |(_, rest)| rest));
    pieces.collect::<Vec<_>>().join(" ")
}

/// The first refused word of a line.
fn refused(line: &str) -> Option<(&'static str, &'static str)> {
    let lower = line.to_lowercase();
    // Names of code are quoted, and not words.
    let spoken: String = lower.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    let spoken = USUAL.iter().fold(spoken, |line, usual| line.replace(usual, " "));
    let words: Vec<&str> = spoken.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let all = format!(" {} ", words.join(" "));
    REFUSED
        .iter()
        .find(|(word, _)| all.contains(&format!(" {word} ")))
        .copied()
}

fn list(path: PathBuf, files: &mut Vec<PathBuf>) {
    if path.is_dir() {
        for entry in fs::read_dir(&path).unwrap() {
            list(entry.unwrap().path(), files);
        }
    } else {
        files.push(path);
    }
}

#[test]
fn comments_and_messages_are_in_words_of_the_field() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    FOLDERS
        .iter()
        .chain(FILES)
        .for_each(|name| list(root.join(name), &mut files));
    let mut found = Vec::new();
    let mut read = 0;
    for path in files {
        let name = path.strip_prefix(root).unwrap().to_path_buf();
        let is_read = !NOT_READ.iter().any(|path| name.starts_with(path));
        let Some(kind) = kind(&name).filter(|_| is_read) else {
            continue;
        };
        let Ok(text) = fs::read_to_string(&path) else { continue };
        read += 1;
        for (number, part) in prose(&text, kind) {
            if let Some((word, instead)) = refused(&part) {
                found.push(format!("{}:{number}: '{word}' ({instead})", name.display()));
            }
        }
    }
    assert!(read > 100, "{read}");
    assert!(found.is_empty(), "{} lines:\n{}", found.len(), found.join("\n"));
}

#[test]
fn refused_words_are_found_where_people_read() {
    let found = |text: &str, kind| -> Vec<usize> {
        let parts = prose(text, kind);
        let refused = parts.iter().filter(|(_, part)| refused(part).is_some());
        refused.map(|(number, _)| *number).collect()
    };
    let code = "let told = 1; // told\n\"is told\"; told(\"told\", \"is {told}\");\n/* of\n a\n door */\nlet door = 2; /* a door */\n/// `told` in place\n";
    assert_eq!(found(code, Kind::Braces), [1, 2, 5, 6]);
    assert_eq!(
        found("Told.\n```\ntold\n```\nasked\nIt was asked for\n", Kind::Page),
        [1, 6]
    );
    assert_eq!(
        found("told=1\n: # a late one, too late\n# too late\n", Kind::Shell),
        [2]
    );
}
