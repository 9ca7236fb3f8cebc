//! Checks the documentation: the tool accepts its commands, links have targets, figures and reports agree with their
//! sources. Guests run the commands.

#[path = "vm/commands.rs"]
mod commands;
#[path = "../examples/assets/src/manual.rs"]
mod manual;
#[path = "../examples/picture.rs"]
mod picture;
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
use iostackbreakdown::args;
use iostackbreakdown::catalog::Layer;
use process::Running;

const LIMIT: Duration = Duration::from_secs(60);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(file: impl AsRef<Path>) -> String {
    let file = root().join(file);
    fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// The files of a directory with this extension.
fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let files = fs::read_dir(root().join(folder)).unwrap();
    let files = files.map(|entry| entry.unwrap().path());
    files
        .filter(|path| path.extension().is_some_and(|found| found == ending))
        .collect()
}

/// All pages of the documentation.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md")];
    pages.extend(["CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root().join(name)));
    let folders = ["docs", "docs/dev", "examples"];
    pages.extend(folders.iter().flat_map(|folder| files(folder, "md")));
    pages
}

#[test]
fn every_command_of_the_documentation_is_understood() {
    let mut seen = 0;
    for page in pages() {
        for command in commands::of(&fs::read_to_string(&page).unwrap()) {
            let words = commands::words(&command).unwrap_or_else(|| panic!("{}: {command}", page.display()));
            match args::parse(words.into_iter().map(OsString::from)) {
                Ok(_) => seen += 1,
                Err(line) => panic!("{}: {command}: {line}", page.display()),
            }
        }
    }
    // A minimum, to notice if commands were not found.
    assert!(seen > 60, "{seen}");
}

/// Runs the commands that work on every machine, as written. Run it as root.
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
        cgroup: "",
        command: &["cat", file],
    };
    let run_all = |all: &[String]| {
        let start = |command: &String| {
            let arguments = commands::arguments(command, &place).unwrap();
            let mut tool = Command::new(env!("CARGO_BIN_EXE_IOStackBreakdown"));
            Running::start(tool.args(arguments).current_dir(&folder)).unwrap()
        };
        let mut wrong = Vec::new();
        // They mostly wait for the kernel.
        for together in all.chunks(6) {
            let started: Vec<Running> = together.iter().map(start).collect();
            for (command, running) in together.iter().zip(started) {
                let output = running.finish(LIMIT).unwrap();
                let said = format!("{}{}", output.stdout, output.stderr);
                // What a page selects need not be in the recording of this machine.
                if !said.contains(" in the recording\n") {
                    wrong.extend(commands::verdict(command, output.status, &said, &folder).err());
                }
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    };
    let all: BTreeSet<String> = pages()
        .iter()
        .flat_map(|page| commands::of(&fs::read_to_string(page).unwrap()))
        .filter(|command| commands::needs_tracepoints_only(command))
        // They need a recording that has calls; tests/exports.rs exports some, tests/replay.rs replays some.
        .filter(|command| !command.contains(" export ") && !command.contains(" replay "))
        // On a terminal, as in tests/live.rs and tests/native_live.rs.
        .filter(|command| !command.contains(" --live"))
        .collect();
    assert!(all.len() > 25, "{all:?}");
    // A recording must be made before it is reported.
    let (records, all): (Vec<String>, Vec<String>) = all.into_iter().partition(|command| command.contains(" record "));
    for name in records
        .iter()
        .filter_map(|command| commands::words(command)?.into_iter().nth(3))
    {
        let _ = fs::remove_dir_all(folder.join(name));
    }
    run_all(&records);
    assert!(!records.is_empty());
    // The reports to compare must be written first.
    let (compare, all): (Vec<String>, Vec<String>) = all.into_iter().partition(|command| command.contains(" compare "));
    run_all(&all);
    let compared = compare
        .iter()
        .flat_map(|command| commands::words(command).unwrap().into_iter().skip(2).take(2));
    let written: Vec<String> = compared
        .map(|name| {
            let form = if name.ends_with(".html") { "--html" } else { "--json -o" };
            format!("IOStackBreakdown {form} {name} -- COMMAND")
        })
        .collect();
    run_all(&written);
    run_all(&compare);
    assert!(!compare.is_empty());
}

/// The table of costs follows from the figures printed by `benches/run`, and README has some of its lines.
#[test]
fn costs_follow_from_what_was_measured() {
    const OPERATIONS: f64 = 2e6;
    const INSTRUCTIONS_OF_A_CPU: f64 = 3e9;
    const CPUS: f64 = 128.0;
    let page = read("docs/cost.md");
    let (_, measured) = page.split_once("\n## Measured\n").unwrap();
    let (measured, computed) = measured.split_once("\n## ").unwrap();
    let mut costs = BTreeSet::new();
    for [_, kernel, each, cpus, share] in rows(computed) {
        let Ok(instructions) = each.replace(',', "").parse::<f64>() else {
            continue;
        };
        assert!(measured.contains(each) && measured.contains(kernel), "{kernel}: {each}");
        let worth = OPERATIONS * instructions / INSTRUCTIONS_OF_A_CPU;
        let expected = (format!("{worth:.2}"), format!("{:.2} %", worth / CPUS * 100.0));
        assert_eq!((cpus.to_owned(), share.to_owned()), expected, "{kernel}: {each}");
        costs.insert((each, cpus));
    }
    assert_eq!(costs.len(), 11);

    let readme = read("README.md");
    let (_, overhead) = readme.split_once("\n## Overhead\n").unwrap();
    let (overhead, _) = overhead.split_once("\n## ").unwrap();
    let lines = rows(overhead).skip(2);
    let lines: Vec<[&str; 3]> = lines.collect();
    for [what, each, cpus] in &lines {
        assert!(costs.contains(&(*each, *cpus)), "README: {what}: {each}, {cpus}");
    }
    assert_eq!(lines.len(), 5);
}

/// The table of levels follows from measured figures: shares of one CPU.
#[test]
fn levels_follow_from_what_was_measured() {
    const INSTRUCTIONS_OF_A_CPU: f64 = 3e9;
    const RATES: [f64; 3] = [1e4, 1e5, 1e6];
    let page = read("docs/cost.md");
    let (_, measured) = page.split_once("\n## Measured\n").unwrap();
    let (measured, _) = measured.split_once("\n## ").unwrap();
    let (_, levels) = page.split_once("\n## Levels for always on\n").unwrap();
    let (levels, _) = levels.split_once("\n## ").unwrap();
    let mut seen = 0;
    for [level, _, each, shares @ ..] in rows::<6>(levels) {
        let Some((number, unit)) = each.split_once(' ') else {
            continue;
        };
        let Ok(cost) = number.replace(',', "").parse::<f64>() else {
            continue;
        };
        let of_a_cpu = match unit {
            "ns" => cost / 1e9,
            _ => cost / INSTRUCTIONS_OF_A_CPU,
        };
        assert!(
            unit == "ns" || measured.contains(&format!(" {number} instr.")),
            "{level}: {each}"
        );
        let expected = RATES.map(|rate| format!("{:.2} %", rate * of_a_cpu * 100.0));
        assert_eq!(shares, expected, "{level}");
        seen += 1;
    }
    assert_eq!(seen, 22);
}

/// The rows of a page's tables with this many cells.
fn rows<const CELLS: usize>(page: &str) -> impl Iterator<Item = [&str; CELLS]> {
    page.lines().filter(|line| line.starts_with("| ")).filter_map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        cells.try_into().ok()
    })
}

/// A link refers to a file of the tree, and to a heading in it.
#[test]
fn links_have_targets() {
    let mut seen = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for link in links(&text).filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() {
                page.clone()
            } else {
                page.parent().unwrap().join(file)
            };
            assert!(target.exists(), "{}: {link}", page.display());
            if !anchor.is_empty() {
                let headings = headings(&fs::read_to_string(&target).unwrap());
                assert!(headings.contains(anchor), "{}: {link}: {headings:?}", page.display());
            }
            seen += 1;
        }
    }
    assert!(seen > 60, "{seen}");
}

fn links(page: &str) -> impl Iterator<Item = &str> {
    page.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

/// The anchors of a page's headings: lower case, no punctuation, hyphens for blanks.
fn headings(page: &str) -> BTreeSet<String> {
    let anchor = |heading: &str| {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c));
        kept.collect::<String>().to_lowercase().replace(' ', "-")
    };
    let headings =
        outside_blocks(page).filter_map(|line| line.trim_start_matches('#').strip_prefix(' ').zip(Some(line)));
    headings
        .filter(|(_, line)| line.starts_with('#'))
        .map(|(heading, _)| anchor(heading))
        .collect()
}

/// The lines of a page outside blocks of code.
fn outside_blocks(page: &str) -> impl Iterator<Item = &str> {
    let mut in_block = false;
    page.lines().filter(move |line| {
        let is_fence = line.starts_with("```");
        in_block ^= is_fence;
        !in_block && !is_fence
    })
}

/// README is limited in size; the rest is in `docs`, and README links all of it.
#[test]
fn readme_is_short_and_leads_to_the_rest() {
    let readme = read("README.md");
    assert!(readme.lines().count() <= 200, "{}", readme.lines().count());
    assert!(readme.len() <= 12_000, "{}", readme.len());
    let linked: BTreeSet<PathBuf> = links(&readme).map(|link| root().join(link)).collect();
    for page in pages().iter().skip(1) {
        assert!(linked.contains(page), "README has no link to {}", page.display());
    }
}

/// README's picture is valid XML, and shows the report that it claims to show.
#[test]
fn the_picture_shows_a_report_of_the_documentation() {
    let page = read("docs/investigations.md");
    let screen = picture::run(&page).and_then(picture::screen).unwrap();
    let svg = read(picture::PICTURE);
    let document = roxmltree::Document::parse(&svg).unwrap();
    let texts = document.descendants().filter(|node| node.has_tag_name("text"));
    let shown: Vec<&str> = texts.map(|node| node.text().unwrap_or_default()).collect();
    let lines: Vec<&str> = screen.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(shown, lines, "draw it anew: cargo run --example picture");
    assert_eq!(svg, picture::svg(screen), "draw it anew: cargo run --example picture");
    assert!(read("README.md").contains(&format!("]({})", picture::PICTURE)));
}

/// The shape of a line: without numbers, units, bars, and names of layers and families.
fn shape(line: &str) -> String {
    const UNITS: [&str; 9] = ["ns", "us", "ms", "s", "B", "kB", "MB", "GB", "%"];
    const FAMILIES: [&str; 6] = ["read", "write", "open", "fsync", "async", "metadata"];
    let mut words = Vec::new();
    let (line, bar) = line.split_once('|').map_or((line, ""), |(before, _)| (before, " BAR"));
    for word in line.split_whitespace() {
        let bare = word.trim_matches(|c: char| ",;:()".contains(c));
        // Units follow numbers, and are in headings.
        if UNITS.contains(&bare) {
            continue;
        }
        let is_number = bare == "-" || bare.starts_with(|c: char| c.is_ascii_digit());
        words.push(match bare {
            _ if is_number => "N".to_owned(),
            _ if bare.parse::<Layer>().is_ok() => word.replace(bare, "LAYER"),
            _ if FAMILIES.contains(&bare) => word.replace(bare, "FAMILY"),
            _ => word.to_owned(),
        });
    }
    words.join(" ").replace("N call ", "N calls ") + bar
}

/// Whole-stack reports in the documentation match the current output: their headlines, families, rows, headings and
/// last lines have shapes that occur in the golden files.
#[test]
fn reports_of_the_documentation_look_as_the_tool_prints_them() {
    const RUNS_OWN: [&str; 5] = ["...", "hooks: ", "errors: ", "excluded: ", "warning: "];
    let golden: BTreeSet<String> = files("tests/golden", "txt")
        .iter()
        .flat_map(|file| read(file).lines().map(shape).collect::<Vec<_>>())
        .collect();
    let mut seen = 0;
    let mut others = BTreeSet::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        let blocks = text.split("\n```\n").skip(1).step_by(2);
        for block in blocks.filter(|block| block.contains("threads were in a call")) {
            // Lines before the first blank one depend on the run, and so do those about other events.
            let lines = block.lines().skip_while(|line| !line.is_empty());
            let lines = lines.filter(|line| line.contains('|') || !line.starts_with(' '));
            let lines = lines.filter(|line| !RUNS_OWN.iter().any(|own| line.starts_with(own)));
            others.extend(lines.map(shape).filter(|line| !golden.contains(line)));
            seen += 1;
        }
    }
    assert!(others.is_empty(), "{others:#?}");
    assert!(seen > 8, "{seen}");
}

/// `compare` calls a difference of a quantile noise if both runs have fewer calls than docs/reports.md says.
#[test]
fn differences_of_quantiles_in_the_documentation_have_enough_calls() {
    const LEAST: [(&str, f64); 3] = [("p50", 13.0), ("p90", 81.0), ("p99", 891.0)];
    let mut seen = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for block in text.split("\n```\n").skip(1).step_by(2) {
            let [Some(before), Some(after)] = ["before ", "after "].map(|run| seconds(block, run)) else {
                continue;
            };
            let mut calls = [0.0; 2];
            for line in block.lines() {
                let words: Vec<&str> = line.split_whitespace().collect();
                let name = words.first().copied().unwrap_or_default();
                if name == "calls/s" {
                    calls = [words[1], words[2]].map(|rate| rate.replace(',', "").parse().unwrap());
                    calls = [calls[0] * before, calls[1] * after];
                } else if let Some((_, least)) = LEAST.iter().find(|(quantile, _)| *quantile == name) {
                    let is_noise = line.ends_with("within noise");
                    let enough = calls.iter().any(|calls| calls >= least);
                    assert!(is_noise || enough, "{}: {calls:?} calls: {line}", page.display());
                    seen += 1;
                }
            }
        }
    }
    assert!(seen > 10, "{seen}");
}

/// How long a run took that `compare` names in a line with this beginning.
fn seconds(block: &str, beginning: &str) -> Option<f64> {
    let line = block.lines().find(|line| line.starts_with(beginning))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let number: f64 = words.get(2)?.parse().ok()?;
    match *words.get(3)? {
        "s" => Some(number),
        "ms" => Some(number / 1000.0),
        _ => None,
    }
}

/// README's report is an excerpt of the example's.
#[test]
fn the_report_of_the_readme_is_that_of_the_example() {
    let readme = read("README.md");
    let shortened = picture::run(&readme).unwrap();
    let example = read("examples/sqlite-commits.md");
    let mut lines = picture::run(&example).unwrap().lines();
    for line in shortened.lines().filter(|line| *line != "...") {
        assert!(
            lines.any(|other| other == line),
            "not in the example, or not in its order: {line}"
        );
    }
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

/// The manual as plain text, without roff escapes.
fn manual() -> String {
    let page = String::from_utf8(manual::page().unwrap()).unwrap();
    let page = ["\\fB", "\\fI", "\\fR", "\\&"]
        .iter()
        .fold(page, |page, escape| page.replace(escape, ""));
    page.replace("\\-", "-").replace("\\*(Aq", "'").replace("\\(aq", "'")
}

#[test]
fn the_manual_has_every_option_verb_and_section() {
    let manual = manual();
    let command = args::command();
    for option in command
        .get_arguments()
        .filter_map(|arg| Some((arg.get_long()?, arg.is_hide_set())))
    {
        let (name, is_hidden) = option;
        let entry = manual.lines().any(|line| line.contains(&format!("--{name}")));
        assert_eq!(entry, !is_hidden, "--{name}");
    }
    for arg in command
        .get_arguments()
        .filter(|arg| !arg.is_hide_set() && arg.get_id() != "help")
    {
        let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
        assert!(help.len() > 5 && manual.contains(&help), "{}: {help}", arg.get_id());
    }
    for line in args::USAGE.lines() {
        assert!(manual.contains(line.trim()), "{line}:\n{manual}");
    }
    for verb in command.get_subcommands() {
        assert!(
            manual.contains(&format!("\n{}\n", verb.get_name())),
            "{}",
            verb.get_name()
        );
    }
    for section in [
        "NAME",
        "SYNOPSIS",
        "OPTIONS",
        "EXAMPLES",
        "FILES",
        "ENVIRONMENT",
        "\"EXIT STATUS\"",
        "\"SEE ALSO\"",
    ] {
        assert!(manual.contains(&format!(".SH {section}\n")), "{section}");
    }
}

/// The tool accepts the examples of the manual.
#[test]
fn examples_of_the_manual_are_understood() {
    let manual = manual();
    let examples: Vec<&str> = manual
        .lines()
        .filter(|line| line.starts_with("IOStackBreakdown -") && !line.contains(" - "))
        .collect();
    assert!(examples.len() > 8, "{manual}");
    for example in examples {
        let words = commands::words(example).unwrap().into_iter().map(OsString::from);
        assert!(args::parse(words).is_ok(), "{example}");
    }
}

/// The manual explains the beginnings of lines and the columns of all reports in the golden files.
#[test]
fn the_manual_explains_what_reports_say() {
    use iostackbreakdown::catalog::Row;
    let manual = manual();
    let rows = Row::WAITS.map(Row::name).into_iter().chain(Layer::ALL.map(Layer::name));
    let mut unexplained: BTreeSet<String> = rows.filter(|row| !manual.contains(row)).map(str::to_owned).collect();
    let mut seen = 0;
    for report in files("tests/golden", "txt") {
        for line in read(&report).lines() {
            let words: Vec<String> = match line.split_once(": ") {
                Some((head, _)) if is_a_message(head) => vec![head.to_owned()],
                _ if line.contains("calls/s") || (line.starts_with("operation ") && !line.contains('=')) => line
                    .split_whitespace()
                    .filter(|word| !word.contains(':'))
                    .map(str::to_owned)
                    .collect(),
                _ => continue,
            };
            seen += words.len();
            unexplained.extend(words.into_iter().filter(|word| !manual.contains(word.as_str())));
        }
    }
    assert!(seen > 200, "{seen}");
    assert!(
        unexplained.is_empty(),
        "not in examples/assets/src/manual.rs: {unexplained:?}"
    );
}

/// Whether it begins a message, rather than being a layer's name or about a single operation.
fn is_a_message(head: &str) -> bool {
    let is_words = !head.is_empty() && head.chars().all(|c| c.is_ascii_alphabetic() || c == ' ');
    is_words
        && !head.starts_with([' '])
        && !head.starts_with("lost at")
        && Layer::ALL.iter().all(|layer| layer.name() != head)
}
