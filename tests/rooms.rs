//! The rooms of the source: which others each may use, and which of them do no I/O (docs/dev/architecture.md).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Each room, with the rooms that it may use besides those of the lines above. A room that is not listed may use any,
/// and no listed room may use it.
const ROOMS: &[(&str, &[&str])] = &[
    // Rooms that use no others.
    ("sys", &[]),
    ("number", &[]),
    ("printable", &[]),
    ("cause", &[]),
    ("document", &[]),
    ("model", &[]),
    ("catalog", &["model"]),
    ("budget", &["model"]),
    ("analyse", &["model", "catalog", "number"]),
    ("replay", &["model", "catalog"]),
    ("playback", &["cause", "sys", "model", "replay"]),
    ("view", &["model", "number", "printable"]),
    ("kernel", &["cause", "sys", "model", "catalog", "printable"]),
    ("process", &["cause", "sys", "kernel"]),
    ("turn", &[]),
    ("leave", &["turn"]),
    ("signals", &["kernel", "leave"]),
    (
        "probe",
        &[
            "sys", "model", "catalog", "kernel", "process", "turn", "leave", "signals",
        ],
    ),
    (
        "source",
        &[
            "cause", "sys", "model", "catalog", "kernel", "process", "probe", "analyse", "budget",
        ],
    ),
    (
        "recording",
        &["cause", "model", "catalog", "number", "printable", "source"],
    ),
    ("filter", &["model", "number"]),
    ("user", &["sys"]),
    ("environment", &["sys"]),
    ("limits", &[]),
    ("serve", &["cause"]),
    ("event", &["process", "signals"]),
    ("say", &["signals", "printable"]),
    (
        "command",
        &["cause", "environment", "kernel", "limits", "signals", "user"],
    ),
    ("exercise", &["catalog", "signals"]),
    ("export", &["model", "printable", "view"]),
    // The validated options, and completions.
    (
        "args",
        &[
            "model", "catalog", "budget", "view", "probe", "kernel", "user", "export", "serve", "replay", "playback",
        ],
    ),
    (
        "compare",
        &[
            "document",
            "model",
            "view",
            "printable",
            "analyse",
            "recording",
            "source",
        ],
    ),
];

/// Pure rooms and files: their results depend only on their arguments.
const PURE: &[&str] = &[
    "model",
    "catalog",
    "analyse",
    "replay",
    "number",
    "printable",
    "budget",
    "filter",
    "probe/plan",
    "view/live",
];

/// What pure code must not contain.
const IMPURE: &[&str] = &[
    "libc::",
    "nix::",
    "libbpf_rs",
    "libbpf_sys",
    "std::fs",
    "std::net",
    "std::os",
    "std::process",
    "std::env::",
    "std::thread",
    "std::io::std",
    "File::",
    "now()",
    "unsafe",
];

/// Constants of that crate for numbers of system calls; none of its functions.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("catalog/syscall", "pub number: libc::c_long"),
    ("catalog/syscall", "pub use libc::*"),
];

/// The code by room and file below `src`, without extensions, tests and comments.
fn code() -> BTreeMap<String, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    list(&root, &mut files);
    let all = files
        .into_iter()
        .filter(|path| !path.ends_with("tests.rs"))
        .map(|path| {
            let name = path.strip_prefix(&root).unwrap().with_extension("");
            let text = fs::read_to_string(&path).unwrap();
            let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
            let code: String = lines.map(|line| format!("{line}\n")).collect();
            (name.to_str().unwrap().replace("/mod", ""), code)
        });
    all.collect()
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            list(&path, files);
        } else if path.extension().is_some_and(|end| end == "rs") {
            files.push(path);
        }
    }
}

fn room(file: &str) -> &str {
    file.split('/').next().unwrap_or(file)
}

/// The rooms that a file uses, without its own.
fn used(file: &str, code: &str) -> BTreeSet<String> {
    let ways = code.match_indices("crate::").map(|(at, way)| &code[at + way.len()..]);
    let names = ways.map(|rest| {
        rest.split(|c: char| !c.is_alphanumeric() && c != '_')
            .next()
            .unwrap_or_default()
    });
    let names = names.filter(|name| *name != room(file) && !name.is_empty());
    names.map(str::to_owned).collect()
}

#[test]
fn each_room_uses_those_below_it() {
    let rooms: BTreeMap<&str, &[&str]> = ROOMS.iter().copied().collect();
    let mut wrong = Vec::new();
    for (file, code) in code() {
        let Some(allowed) = rooms.get(room(&file)) else {
            continue;
        };
        for name in used(&file, &code) {
            // A macro such as `say!` belongs to no room.
            if !allowed.contains(&name.as_str()) && name != "fuzz" {
                wrong.push(format!("{file} uses {name}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The table has no circles: each room is listed below those that it uses.
#[test]
fn there_is_no_circle() {
    let mut below = BTreeSet::new();
    let mut left: Vec<_> = ROOMS.to_vec();
    while !left.is_empty() {
        let before = left.len();
        left.retain(|(room, uses)| {
            let stands = uses.iter().all(|used| below.contains(used));
            if stands {
                below.insert(*room);
            }
            !stands
        });
        assert!(left.len() < before, "a circle among {left:?}");
    }
}

#[test]
fn pure_rooms_do_no_input_or_output() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    for (file, code) in code() {
        if !PURE
            .iter()
            .any(|pure| file == *pure || file.starts_with(&format!("{pure}/")))
        {
            continue;
        }
        seen += 1;
        for line in code.lines() {
            let is_exception = |&(of, part): &(&str, &str)| of == file && line.contains(part);
            let found = IMPURE.iter().filter(|word| line.contains(**word));
            let found = found.filter(|_| !EXCEPTIONS.iter().any(is_exception));
            wrong.extend(found.map(|word| format!("{file} has {word}: {}", line.trim())));
        }
    }
    assert!(seen > 30, "{seen} files");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Code that is reserved to one room, and patterns for it.
const ALONE: &[(&str, &[&str])] = &[(
    "signals",
    &[
        "ctrlc::",
        "signal_hook",
        "sigaction",
        "libc::signal",
        "SigSet",
        "SigHandler",
        "sigmask",
        "signalfd",
    ],
)];

#[test]
fn code_reserved_to_one_room_is_in_no_other() {
    let mut wrong = Vec::new();
    for (file, code) in code() {
        for (owner, words) in ALONE.iter().filter(|(owner, _)| *owner != room(&file)) {
            let found = words.iter().filter(|word| code.contains(**word));
            wrong.extend(found.map(|word| format!("{file} has {word}, which is for {owner}")));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
