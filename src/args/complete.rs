//! Completions: what a shell may insert at the cursor.
//!
//! The shell's part is a few lines that run this program at each Tab, because processes and disks change and cannot be
//! part of a generated script. Options and verbs come from the definition of the command line. The shell itself
//! completes files and whatever follows `--`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::str::FromStr;

use clap::{Arg, Command, ValueHint};

use crate::catalog::Layer;
use crate::kernel::owners::KnownOwners;
use crate::kernel::{self, disk, processes};
use crate::model::ids::By;
use crate::user;

/// What may be inserted at the cursor. When printed, the first line says which kind of answer follows.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    Values(Vec<Candidate>),
    Files,
    Directories,
    /// The command line of another program, which begins at this word. The tool's name is word 0.
    Command(usize),
}

/// A word and its description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    pub value: String,
    pub about: String,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Values(candidates) => {
                writeln!(f, "values")?;
                for Candidate { value, about } in candidates {
                    writeln!(f, "{value}\t{about}")?;
                }
                Ok(())
            }
            Self::Files => writeln!(f, "files"),
            Self::Directories => writeln!(f, "directories"),
            Self::Command(word) => writeln!(f, "command {word}"),
        }
    }
}

/// Completes a line: `words` follow the program's name, and the last one is at the cursor.
#[must_use]
pub fn answer(words: &[OsString]) -> Answer {
    let words: Vec<String> = words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    let (typed, before) = words
        .split_last()
        .map_or(("", &[][..]), |(last, rest)| (last.as_str(), rest));
    let root = super::command();
    let mut command = &root;
    // The option whose value comes next.
    let mut option: Option<&Arg> = None;
    let mut positionals = 0;
    for (at, word) in before.iter().enumerate() {
        match option {
            // Bash splits `--by=file` into three words.
            Some(_) if word == "=" => {}
            Some(_) => option = None,
            None if word == "--" && command.get_positionals().any(Arg::is_last_set) => return Answer::Command(at + 2),
            None if word.starts_with('-') && word.len() > 1 => {
                option = option_of(command, word)
                    .filter(|(_, value)| value.is_none())
                    .map(|(arg, _)| arg);
            }
            None => match command.find_subcommand(word).filter(|_| positionals == 0) {
                Some(verb) => command = verb,
                None => positionals += 1,
            },
        }
    }
    if let Some(option) = option {
        return value(option, "", if typed == "=" { "" } else { typed });
    }
    if let Some((option, Some(begun))) = option_of(command, typed) {
        return value(option, &typed[..typed.len() - begun.len()], begun);
    }
    if typed.starts_with('-') {
        return Answer::Values(matching(options(command), "", typed));
    }
    let verbs = command.get_subcommands().filter(|_| positionals == 0);
    let verbs = verbs.map(|verb| candidate(verb.get_name(), verb.get_about()));
    let mut known = matching(verbs, "", typed);
    let positional = command
        .get_positionals()
        .filter(|arg| !arg.is_last_set())
        .nth(positionals);
    match positional.map(|arg| value(arg, "", typed)) {
        Some(Answer::Values(more)) => known.extend(more),
        Some(other) if known.is_empty() => return other,
        _ => {}
    }
    Answer::Values(known)
}

/// The option with a value that a word names, and as much of the value as is in the same word: `-p`, `-p47`, `-Sp`,
/// `--pid=47`.
fn option_of<'a>(command: &'a Command, word: &'a str) -> Option<(&'a Arg, Option<&'a str>)> {
    let takes_value = |arg: &&Arg| arg.get_num_args().is_some_and(|range| range.takes_values());
    if let Some(long) = word.strip_prefix("--") {
        let (name, value) = long
            .split_once('=')
            .map_or((long, None), |(name, value)| (name, Some(value)));
        let named = command.get_opts().find(|arg| arg.get_long() == Some(name));
        return Some((named.filter(takes_value)?, value));
    }
    let letters = word.strip_prefix('-')?;
    letters.char_indices().find_map(|(at, letter)| {
        let named = command.get_opts().find(|arg| arg.get_short() == Some(letter));
        let rest = &letters[at + letter.len_utf8()..];
        Some((named.filter(takes_value)?, Some(rest).filter(|rest| !rest.is_empty())))
    })
}

/// Candidates for the value of an option, of which `begun` has been typed; `prefix` precedes it in the same word.
fn value(arg: &Arg, prefix: &str, begun: &str) -> Answer {
    match arg.get_value_hint() {
        ValueHint::FilePath => return Answer::Files,
        ValueHint::DirPath => return Answer::Directories,
        _ => {}
    }
    let mut candidates = values(arg);
    // Only the last element of a list is completed, and no value is offered twice.
    let list = arg.get_value_delimiter().and_then(|delimiter| begun.rfind(delimiter));
    let (done, begun) = begun.split_at(list.map_or(0, |at| at + 1));
    candidates.retain(|candidate| !done.split(',').any(|one| one == candidate.value));
    Answer::Values(matching(candidates, &format!("{prefix}{done}"), begun))
}

/// The candidates that begin with the typed text, each as a whole word.
fn matching(candidates: impl IntoIterator<Item = Candidate>, prefix: &str, begun: &str) -> Vec<Candidate> {
    let fitting = candidates
        .into_iter()
        .filter(|candidate| candidate.value.starts_with(begun));
    fitting
        .map(|Candidate { value, about }| Candidate {
            value: format!("{prefix}{value}"),
            about,
        })
        .collect()
}

/// The options shown in the help: long names first, then short ones.
fn options(command: &Command) -> Vec<Candidate> {
    let shown = || command.get_arguments().filter(|arg| !arg.is_hide_set());
    let long = shown().filter_map(|arg| Some(candidate(&format!("--{}", arg.get_long()?), arg.get_help())));
    let short = shown().filter_map(|arg| Some(candidate(&format!("-{}", arg.get_short()?), arg.get_help())));
    long.chain(short).collect()
}

/// All values of an option, if they can be enumerated.
fn values(arg: &Arg) -> Vec<Candidate> {
    let described = |(value, about): (String, String)| Candidate { value, about };
    match arg.get_id().as_str() {
        "layers" => layers(),
        "pids" => others().map(|(pid, comm)| described((pid.to_string(), comm))).collect(),
        "comm" => {
            let names: BTreeSet<String> = others().map(|(_, comm)| comm).collect();
            names.into_iter().map(|name| described((name, String::new()))).collect()
        }
        id @ ("unit" | "pod" | "container") => {
            let names = By::from_str(id).map(|by| KnownOwners::default().names(by));
            let names = names.unwrap_or_default().into_iter();
            names.map(|name| described((name, String::new()))).collect()
        }
        "disk" => disk::names().into_iter().map(described).collect(),
        "user" => user::names()
            .into_iter()
            .map(|name| described((name, String::new())))
            .collect(),
        _ => {
            let shown = arg
                .get_possible_values()
                .into_iter()
                .filter(|value| !value.is_hide_set());
            shown
                .map(|value| candidate(value.get_name(), value.get_help()))
                .collect()
        }
    }
}

/// All processes except this one.
fn others() -> impl Iterator<Item = (u32, String)> {
    processes::names().filter(|(pid, _)| *pid != std::process::id())
}

fn layers() -> Vec<Candidate> {
    let about = |layer: Layer| match layer {
        Layer::Syscall => "system calls",
        Layer::Vfs => "calls to the VFS",
        Layer::Blk => "requests to disks",
        _ if layer.file_system().is_some_and(kernel::has_mounted) => "file system, mounted",
        _ => "file system, not mounted",
    };
    let layers = Layer::ALL.map(|layer| (layer.name(), about(layer)));
    let all = layers.into_iter().chain([("all", "the whole stack")]);
    all.map(|(value, about)| Candidate {
        value: value.to_owned(),
        about: about.to_owned(),
    })
    .collect()
}

/// Columns for the description of a candidate.
const ROOM: usize = 60;

fn candidate(value: &str, help: Option<&clap::builder::StyledStr>) -> Candidate {
    let help = help.map(ToString::to_string).unwrap_or_default();
    let about = match help.char_indices().nth(ROOM) {
        Some((end, _)) => format!("{}…", help[..end].trim_end()),
        None => help,
    };
    Candidate {
        value: value.to_owned(),
        about: about.replace(['\n', '\t'], " "),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::args;
    use crate::fuzz;

    /// Completes `line`; a blank at its end begins a new word.
    fn at(line: &str) -> Answer {
        answer(&line.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    fn offered(line: &str) -> Vec<String> {
        match at(line) {
            Answer::Values(candidates) => candidates.into_iter().map(|candidate| candidate.value).collect(),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn verbs_come_first_and_once() {
        assert_eq!(offered(""), ["record", "report", "export", "replay", "compare", "help"]);
        assert_eq!(offered("co"), ["compare"]);
        assert_eq!(offered("help c"), ["compare"]);
        assert!(offered("-S 1 ").is_empty());
    }

    #[test]
    fn layers_are_a_list() {
        assert_eq!(
            offered("-T "),
            Layer::ALL
                .map(Layer::name)
                .into_iter()
                .chain(["all"])
                .collect::<Vec<_>>()
        );
        assert_eq!(offered("-T vfs,ex"), ["vfs,ext4"]);
        assert_eq!(offered("--type=vfs,blk,b"), ["--type=vfs,blk,btrfs"]);
        assert_eq!(offered("--type = vfs,x"), ["vfs,xfs"]);
        assert_eq!(offered("-Tsy"), ["-Tsyscall"]);
        assert_eq!(offered("-S -fT nf"), ["nfs"]);
    }

    #[test]
    fn processes_have_their_names() {
        let Answer::Values(all) = at("-p ") else { panic!() };
        let parent = std::os::unix::process::parent_id().to_string();
        let comm = crate::sys::text_of(format!("/proc/{parent}/comm")).unwrap();
        let expected = Candidate {
            value: parent.clone(),
            about: comm.trim_end().to_owned(),
        };
        assert!(all.contains(&expected), "{all:?}");
        assert!(!offered(&format!("-p {parent},")).contains(&format!("{parent},{parent}")));
        assert!(offered("--comm ").contains(&expected.about));
    }

    #[test]
    fn disks_and_users_are_those_of_the_machine() {
        let disks = offered("-d ");
        assert_eq!(disks.is_empty(), disk::names().is_empty());
        assert!(offered("--user ro").contains(&"root".to_owned()));
    }

    #[test]
    fn files_are_for_the_shell() {
        for line in [
            "-o ",
            "--file x",
            "--file=x",
            "--vmlinux ",
            "compare ",
            "compare a.json ",
            "-Qo",
        ] {
            let expected = if line == "-Qo" {
                Answer::Values(Vec::new())
            } else {
                Answer::Files
            };
            assert_eq!(at(line), expected, "{line}");
        }
        assert_eq!(at("--cgroup "), Answer::Directories);
        assert!(offered("compare a b ").is_empty());
    }

    #[test]
    fn another_commands_line_is_its_own() {
        assert_eq!(at("-T vfs -- "), Answer::Command(4));
        assert_eq!(at("-- compare --b"), Answer::Command(2));
        // Here `--` is the value of an option.
        assert_ne!(at("-o -- "), Answer::Command(3));
    }

    #[test]
    fn options_are_those_that_help_shows() {
        let all = offered("-");
        for known in ["--type", "-T", "--slower", "--probe", "--completions", "--help"] {
            assert!(all.contains(&known.to_owned()), "{known}: {all:?}");
        }
        let hidden: Vec<String> = args::command()
            .get_arguments()
            .filter(|arg| arg.is_hide_set())
            .filter_map(|arg| Some(format!("--{}", arg.get_long()?)))
            .collect();
        assert!(!hidden.is_empty());
        for hidden in hidden.iter().map(String::as_str).chain([args::shell::QUESTION]) {
            assert!(!offered(hidden).contains(&hidden.to_owned()), "{hidden}");
        }
        assert_eq!(offered("--by fi"), ["file"]);
        assert_eq!(offered("--by=fi"), ["--by=file"]);
        assert_eq!(offered("compare --"), ["--html", "--help"]);
    }

    /// Every new option must have a completion, or be listed as one whose value a shell cannot know.
    #[test]
    fn every_option_with_a_value_has_candidates() {
        /// Options with values that cannot be enumerated.
        const FREE: [&str; 13] = [
            "metrics", "sample", "slower", "interval", "count", "duration", "budget", "top", "without", "command",
            "history", "limits", "last",
        ];
        let command = args::command();
        for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
            let takes_value = arg.get_num_args().is_some_and(|range| range.takes_values());
            let is_free = FREE.contains(&arg.get_id().as_str());
            // The machine may have none.
            let may_lack = ["disk", "unit", "pod", "container"].contains(&arg.get_id().as_str());
            let is_known = may_lack || value(arg, "", "") != Answer::Values(Vec::new());
            assert!(!takes_value || is_free != is_known, "{}", arg.get_id());
        }
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn any_line_is_answered(line in fuzz::text_like("-fT vfs,ex --by=file -p 4711 compare a -- ls = ")) {
            prop_assert!(!at(&line).to_string().is_empty());
        }
    }
}
