//! Each command of ours in the documentation is one that the tool takes. What they do is for the guests to see.

#[path = "vm/commands.rs"]
mod commands;
#[allow(dead_code, reason = "shared with the guests, who need more of it")]
#[path = "vm/guest/process.rs"]
mod process;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use commands::Place;
use iostackbreakdown::cli::{self, Stop};
use process::Running;

const LIMIT: Duration = Duration::from_secs(60);

/// Everything for people to read.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages = vec![root.join("README.md")];
    for folder in ["docs", "examples"] {
        let files = fs::read_dir(root.join(folder)).unwrap();
        let files = files.map(|entry| entry.unwrap().path());
        pages.extend(files.filter(|path| path.extension().is_some_and(|ending| ending == "md")));
    }
    pages
}

#[test]
fn every_command_of_the_documentation_is_understood() {
    let mut seen = 0;
    for page in pages() {
        for command in commands::of(&fs::read_to_string(&page).unwrap()) {
            let words = commands::words(&command).unwrap_or_else(|| panic!("{}: {command}", page.display()));
            match cli::parse(words.into_iter().map(OsString::from)) {
                Ok(_) | Err(Stop::Text(_) | Stop::Compare { .. }) => seen += 1,
                Err(Stop::Usage(line)) => panic!("{}: {command}: {line}", page.display()),
            }
        }
    }
    // As many as the README alone has, or they were not found.
    assert!(seen > 60, "{seen}");
}

/// Those that every machine can show, run as they are written. Run it as root.
#[test]
fn every_command_that_needs_no_probes_on_functions_runs() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("docs");
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("shop.db");
    fs::write(&file, [1; 4096]).unwrap();
    let file = file.to_str().unwrap();
    let process = Running::start(Command::new("sleep").arg("infinity")).unwrap();
    let place = Place {
        pid: &process.pid().to_string(),
        file,
        disk: "",
        command: &["cat", file],
    };
    let run_all = |all: &[String]| {
        let start = |command: &String| {
            let arguments = commands::arguments(command, &place).unwrap();
            let mut tool = Command::new(env!("CARGO_BIN_EXE_IOStackBreakdown"));
            Running::start(tool.args(arguments).current_dir(&folder)).unwrap()
        };
        // They mostly wait for the kernel.
        for together in all.chunks(6) {
            let started: Vec<Running> = together.iter().map(start).collect();
            for (command, running) in together.iter().zip(started) {
                let output = running.finish(LIMIT).unwrap();
                let said = format!("{}{}", output.stdout, output.stderr);
                commands::verdict(command, output.status, &said, &folder).unwrap();
            }
        }
    };
    let all: BTreeSet<String> = pages()
        .iter()
        .flat_map(|page| commands::of(&fs::read_to_string(page).unwrap()))
        .filter(|command| commands::needs_tracepoints_only(command))
        .collect();
    assert!(all.len() > 25, "{all:?}");
    // Reports that are compared have to be written first.
    let (compare, all): (Vec<String>, Vec<String>) = all.into_iter().partition(|command| command.contains(" compare "));
    run_all(&all);
    let compared = compare
        .iter()
        .flat_map(|command| commands::words(command).unwrap().into_iter().skip(2));
    let written: Vec<String> = compared
        .map(|name| format!("IOStackBreakdown --json -o {name} -- COMMAND"))
        .collect();
    run_all(&written);
    run_all(&compare);
    assert!(!compare.is_empty());
}

/// The table of costs is computed from the figures of the README as the page says.
#[test]
fn costs_follow_from_what_was_measured() {
    const OPERATIONS: f64 = 2e6;
    const INSTRUCTIONS_OF_A_CPU: f64 = 3e9;
    const CPUS: f64 = 128.0;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let (_, measured) = readme.split_once("\n## What it costs\n").unwrap();
    let (measured, _) = measured.split_once("\n## ").unwrap();
    let page = fs::read_to_string(root.join("docs/cost.md")).unwrap();
    let mut seen = 0;
    for row in page.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [_, kernel, each, cpus, share] = cells[..] else {
            panic!("{row}")
        };
        let Ok(instructions) = each.replace(',', "").parse::<f64>() else {
            continue;
        };
        assert!(measured.contains(each) && measured.contains(kernel), "{row}");
        let worth = OPERATIONS * instructions / INSTRUCTIONS_OF_A_CPU;
        let expected = (format!("{worth:.2}"), format!("{:.2} %", worth / CPUS * 100.0));
        assert_eq!((cpus.to_owned(), share.to_owned()), expected, "{row}");
        seen += 1;
    }
    assert_eq!(seen, 11);
}

/// A link to a page or a program of the tree leads somewhere.
#[test]
fn links_lead_to_files() {
    let mut seen = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap_or_default();
            if !file.is_empty() && !file.contains("://") {
                assert!(page.parent().unwrap().join(file).exists(), "{}: {link}", page.display());
                seen += 1;
            }
        }
    }
    assert!(seen > 4, "{seen}");
}

#[test]
fn commands_are_found_in_blocks_and_in_lines() {
    let text = "Use `IOStackBreakdown -p 4711` or `ls`.\n```\n# IOStackBreakdown -S 1\nIOStackBreakdown --comm x    threads; --cgroup\n\
                `IOStackBreakdown no`\n# TMPDIR=/x IOStackBreakdown --check\n```\n`IOStackBreakdown -- sh \"a b\"`\n";
    assert_eq!(
        commands::of(text),
        [
            "IOStackBreakdown -p 4711",
            "IOStackBreakdown -S 1",
            "IOStackBreakdown --comm x",
            "IOStackBreakdown --check",
            "IOStackBreakdown -- sh \"a b\""
        ]
    );
    assert_eq!(
        commands::words("a -- sh \"a b\""),
        Some(["a", "--", "sh", "a b"].map(String::from).to_vec())
    );
}
