//! Finds the tool's commands in the pages of the documentation.

use std::path::Path;
use std::process::ExitStatus;

const PROGRAM: &str = "IOStackBreakdown";

/// The commands of a Markdown page, in order: in code blocks, lines that begin with the program, after an optional
/// prompt or variables, up to two blanks, which precede a description; elsewhere, inline code that begins with it.
pub fn of(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut in_block = false;
    for line in page.lines() {
        if line.starts_with("```") {
            in_block = !in_block;
        } else if in_block {
            found.extend(of_block(line));
        } else {
            // Every second piece is between backticks.
            let code = line.split('`').skip(1).step_by(2);
            found.extend(code.filter(|code| is_command(code)).map(str::to_owned));
        }
    }
    found
}

fn is_command(text: &str) -> bool {
    text == PROGRAM || text.starts_with(&format!("{PROGRAM} "))
}

fn of_block(line: &str) -> Option<String> {
    let line = line.trim_start_matches("# ").trim_start_matches("sudo ");
    let is_variable = |word: &str| {
        word.split_once('=')
            .is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_uppercase()))
    };
    let line = match line.split_once(' ') {
        Some((first, rest)) if is_variable(first) => rest,
        _ => line,
    };
    let command = line.split("  ").next()?;
    is_command(command).then(|| command.to_owned())
}

/// The words of a command line as a shell splits it. `None`: an unterminated quote.
pub fn words(command: &str) -> Option<Vec<String>> {
    shlex::split(command)
}

/// Replacements for the placeholders in pages.
pub struct Place<'a> {
    pub pid: &'a str,
    pub file: &'a str,
    pub disk: &'a str,
    pub cgroup: &'a str,
    /// Replaces the page's COMMAND.
    pub command: &'a [&'a str],
}

const COMMAND: &str = "COMMAND";
const DISKS: [&str; 2] = ["nvme0n1", "nullb0"];
/// A limit for commands that would run until Ctrl-C, and in place of longer ones.
const SPAN: [&str; 2] = ["--duration", "200ms"];
const HAVE_AN_END: [&str; 5] = ["--duration", "--check", "--help", "compare", "report"];
/// In place of the minute that a page records: the pages report the second one.
const RECORDED: &str = "2200ms";
/// Layers that need no probes on functions.
const BY_TRACEPOINTS: [&str; 2] = ["syscall", "blk"];

/// The arguments of a page's command, with placeholders replaced and a limited duration.
pub fn arguments(command: &str, place: &Place) -> Option<Vec<String>> {
    let words = words(command)?;
    let mut arguments: Vec<&str> = Vec::new();
    let is_recorded = words.iter().any(|word| word == "record");
    let is_endless = !words.iter().any(|word| HAVE_AN_END.contains(&word.as_str()));
    if is_endless && !is_recorded {
        arguments.extend(SPAN);
    }
    for word in words.iter().skip(1).map(String::as_str) {
        match word {
            "--" | COMMAND => {
                arguments.push("--");
                arguments.extend(place.command);
                break;
            }
            _ if is_recorded && arguments.last() == Some(&"--duration") => arguments.push(RECORDED),
            _ if arguments.last() == Some(&"--duration") => arguments.push(SPAN[1]),
            _ if arguments.last() == Some(&"-p") => arguments.push(place.pid),
            _ if arguments.last() == Some(&"--file") => arguments.push(place.file),
            // A page's unit, pod or container is not here: a control group stands for it.
            "--unit" | "--pod" | "--container" => arguments.push("--cgroup"),
            _ if arguments.last() == Some(&"--cgroup") => arguments.push(place.cgroup),
            word if DISKS.contains(&word) => arguments.push(place.disk),
            // Another run of the tool may have the usual port, such as that of the same test elsewhere.
            "--metrics" => arguments.push("--metrics=0"),
            // The verb precedes its options.
            "record" if is_endless => arguments.extend([&["record"][..], &SPAN].concat()),
            word => arguments.push(word),
        }
    }
    Some(arguments.into_iter().map(str::to_owned).collect())
}

/// Whether the command shows the same on machines where functions cannot be probed: it names no layer measured at
/// functions, no disk and no control group, and is not `--check`.
pub fn needs_tracepoints_only(command: &str) -> bool {
    let words = words(command).unwrap_or_default();
    let layers = words.iter().skip_while(|word| *word != "-T").nth(1);
    let layers = layers.is_none_or(|all| all.split(',').all(|layer| BY_TRACEPOINTS.contains(&layer)));
    const ELSEWHERE: [&str; 6] = ["-d", "--cgroup", "--unit", "--pod", "--container", "--check"];
    layers && !words.iter().any(|word| ELSEWHERE.contains(&word.as_str()))
}

/// Returns an error unless a command has done its work: it must succeed, and `said` or the file that it writes in this
/// directory must contain a report for people, for programs or for flame graphs, a comparison, a table of probes, or
/// help.
pub fn verdict(command: &str, status: ExitStatus, said: &str, folder: &Path) -> Result<(), String> {
    const ENDS: [&str; 17] = [
        "report it: IOStackBreakdown report",
        "\nlost ",
        // Intervals end with their last row, or with its legend.
        "no I/O calls\n",
        "no requests\n",
        "no I/O calls timed\n",
        "no requests timed\n",
        "\noperation  ",
        // A line for each call and request.
        "TIME               +DELTA LEVEL OP",
        ";VFS;",
        "{\"call\":",
        "(ms/s: time inside ",
        "{\"schema_version\":",
        ";syscall ",
        ";kernel (not split) ",
        " operations counted",
        "before  ",
        "Usage:",
    ];
    let written = written(command, folder);
    let has_end = |text: &str| ENDS.iter().any(|end| text.contains(end));
    // What a ring waits for does not happen in so short a time.
    let is_untriggered = command.contains("--ring") && status.code() == Some(4) && said.contains("nothing was written");
    if is_untriggered {
        return Ok(());
    }
    if status.success() && (has_end(said) || has_end(&written)) {
        Ok(())
    } else {
        Err(format!("{command}: {status}: {said}"))
    }
}

/// The contents of the file that a command writes, if any.
fn written(command: &str, folder: &Path) -> String {
    let words = words(command).unwrap_or_default();
    let file = words.iter().skip_while(|word| *word != "-o").nth(1);
    file.and_then(|file| std::fs::read_to_string(folder.join(file)).ok())
        .unwrap_or_default()
}
