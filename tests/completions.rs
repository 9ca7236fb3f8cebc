//! Completions of each shell, tested at a terminal with its own Tab and the script that the tool prints for it.
//!
//! bash is on every machine that runs these tests. tests/run installs the others where it may; otherwise their tests are left
//! out.

mod folder;
mod left_out;

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use folder::Folder;
use left_out::left_out;

const TOOL: &str = env!("CARGO_BIN_EXE_IOStackBreakdown");
const TAB: &str = "\t";
/// A line for the shell whose output does not occur in the line itself.
const READY_KEYS: &str = "printf 'rea%s' dy\n";
const READY: &str = "ready";
/// The words at the prompt up to the Tab, and the completed line.
const LINES: [(&str, &str); 11] = [
    ("iosb -T vfs,bt", "iosb -T vfs,btrfs"),
    ("iosb --type=vfs,sy", "iosb --type=vfs,syscall"),
    ("iostackbreakdown --by pr", "iostackbreakdown --by process"),
    ("IOStackBreakdown comp", "IOStackBreakdown compare"),
    ("IOStackBreakdown help comp", "IOStackBreakdown help compare"),
    ("iosb --slo", "iosb --slower"),
    // A hidden option.
    ("iosb --star", "iosb --star"),
    ("iosb -o report.of", "iosb -o report.of.today"),
    ("iosb compare report.of", "iosb compare report.of.today"),
    ("iosb --user roo", "iosb --user root"),
    ("iosb -S -- cat report.of", "iosb -S -- cat report.of.today"),
];

/// A directory with the tool under each of its names, and a file.
struct Scene(Folder);

impl Scene {
    fn new(name: &str) -> Self {
        let scene = Self(Folder::new(name));
        for name in ["IOStackBreakdown", "iostackbreakdown", "iosb"] {
            symlink(TOOL, scene.0.join(name)).unwrap();
        }
        fs::write(scene.0.join("report.of.today"), "").unwrap();
        scene
    }

    /// The output of a shell at a terminal when this is typed.
    fn typed(&self, shell: &str, keys: &str) -> String {
        let path = format!("{}:{}", self.0.display(), std::env::var("PATH").unwrap_or_default());
        let mut terminal = Command::new("timeout")
            .args(["60", "script", "-qec", shell, "/dev/null"])
            .current_dir(&self.0)
            .env("PATH", path)
            .env("TERM", "dumb")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = terminal.stdin.take().unwrap();
        let mut stdout = terminal.stdout.take().unwrap();
        let mut screen = Vec::new();
        // Until a shell reads keys, the terminal itself handles Tab and the like. Once it has run a line, its next
        // output is the prompt.
        stdin.write_all(READY_KEYS.as_bytes()).unwrap();
        while !screen
            .windows(READY.len())
            .rposition(|window| window == READY.as_bytes())
            .is_some_and(|at| screen[at + READY.len()..].iter().any(u8::is_ascii_graphic))
        {
            let mut byte = [0];
            assert_eq!(
                stdout.read(&mut byte).unwrap(),
                1,
                "{}",
                String::from_utf8_lossy(&screen)
            );
            screen.push(byte[0]);
        }
        stdin.write_all(keys.as_bytes()).unwrap();
        drop(stdin);
        stdout.read_to_end(&mut screen).unwrap();
        terminal.wait().unwrap();
        String::from_utf8_lossy(&screen).into_owned()
    }
}

/// Completes each line, and prints it instead of running it.
fn completes_every_line(scene: &Scene, shell: &str, prepare: &str) {
    const TO_THE_BEGINNING: &str = "\u{1}";
    let lines = LINES
        .iter()
        .map(|(begun, _)| format!("{begun}{TAB}{TO_THE_BEGINNING}echo \n"));
    let keys = format!("{prepare}\n{}exit\n", lines.collect::<String>());
    let screen = scene.typed(shell, &keys);
    let printed: Vec<&str> = screen.lines().map(str::trim_end).collect();
    for (begun, expected) in LINES {
        let seen = printed
            .iter()
            .any(|line| line.ends_with(expected) && !line.contains("echo"));
        assert!(seen, "{shell}: {begun} does not become {expected}:\n{screen}");
    }
}

/// Whether a program or a file is there, as it is after tests/run has installed the shells.
fn is_installed(name: &str) -> bool {
    let found = Command::new("sh")
        .args(["-c", &format!("command -v {name} || test -e {name}")])
        .output();
    let is_there = found.is_ok_and(|found| found.status.success());
    if !is_there {
        assert!(std::env::var_os("IOSB_SHELLS").is_none(), "{name} is not installed");
        left_out(None, &format!("{name} is not installed"));
    }
    is_there
}

const BASH: &str = "bash --norc --noprofile -i";

#[test]
fn bash_completes_every_line() {
    let scene = Scene::new("bash");
    completes_every_line(&scene, BASH, "source <(iosb --completions bash)");
}

/// A second Tab lists the candidates with their descriptions.
#[test]
fn bash_lists_words_with_what_they_are() {
    let scene = Scene::new("bash-list");
    let mut sleep = Command::new("sleep").arg("1000").spawn().unwrap();
    // The number without its last digit: a list is shown unless only this process matches, which Tab then completes.
    let pid = sleep.id().to_string();
    let begun = &pid[..pid.len() - 1];
    let keys =
        format!("source <(iosb --completions bash)\niosb -T {TAB}{TAB}\u{15}iosb -p {begun}{TAB}{TAB}\u{15}exit\n");
    let screen = scene.typed(BASH, &keys);
    sleep.kill().unwrap();
    sleep.wait().unwrap();
    assert!(screen.contains("blk  requests to disks"), "{screen}");
    assert!(
        screen.contains(&format!("{pid}  sleep")) || screen.contains(&format!("-p {pid} ")),
        "{pid}: {screen}"
    );
}

/// With bash-completion, the command after `--` has its own completions.
#[test]
fn bash_completes_a_command_as_its_own() {
    const PACKAGE: &str = "/usr/share/bash-completion/bash_completion";
    if !is_installed(PACKAGE) {
        return;
    }
    let scene = Scene::new("bash-command");
    let keys =
        format!("source {PACKAGE}; source <(iosb --completions bash)\niosb -S -- iosb --by pr{TAB}\u{1}echo \nexit\n");
    let screen = scene.typed(BASH, &keys);
    assert!(screen.contains("\niosb -S -- iosb --by process"), "{screen}");
}

#[test]
fn zsh_completes_every_line() {
    if is_installed("zsh") {
        let scene = Scene::new("zsh");
        let prepare = "autoload -Uz compinit; compinit -u -D; bindkey -e; source <(iosb --completions zsh)";
        completes_every_line(&scene, "zsh -f -i", prepare);
    }
}

/// fish can complete without a terminal.
#[test]
fn fish_completes_every_line() {
    if !is_installed("fish") {
        return;
    }
    let scene = Scene::new("fish");
    for (begun, expected) in LINES {
        let script = format!("iosb --completions fish | source; complete -C '{begun}'");
        let path = format!("{}:{}", scene.0.display(), std::env::var("PATH").unwrap_or_default());
        let mut fish = Command::new("fish");
        let fish = fish
            .args(["--no-config", "-c", &script])
            .current_dir(&scene.0)
            .env("PATH", path);
        let output = fish.env("HOME", &*scene.0).output().unwrap();
        let offered = String::from_utf8_lossy(&output.stdout);
        let words: Vec<&str> = offered.lines().filter_map(|line| line.split('\t').next()).collect();
        let last = expected.rsplit(' ').next();
        let expected: Vec<&str> = last.into_iter().filter(|_| begun != expected).collect();
        assert_eq!(words, expected, "{begun}: {output:?}");
    }
}
