//! The command; all it does is in the library.

// It panics where standard error cannot be written; `say!` does not.
#![deny(clippy::print_stderr)]

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use iostackbreakdown::args::complete;
use iostackbreakdown::args::{self, Command, Talk};
use iostackbreakdown::compare::compare;
use iostackbreakdown::leave::leave;
use iostackbreakdown::run;
use iostackbreakdown::say;
use libbpf_rs::PrintLevel;

const WRONG_USAGE: u8 = 2;

fn main() -> ExitCode {
    #[cfg(target_env = "gnu")]
    return_memory();
    let command = match args::parse(std::env::args_os()) {
        Ok(command) => command,
        Err(line) => {
            say!("error: {line}");
            return ExitCode::from(WRONG_USAGE);
        }
    };
    let ended = match &command {
        Command::Text(text) => return print(text),
        Command::Complete(words) => return print(&complete::answer(words).to_string()),
        Command::Compare { before, after } => {
            let width = terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| width.0.into());
            return match compare(before, after, width) {
                Ok(text) => print(&text),
                Err(line) => fail(&line),
            };
        }
        Command::Trace(options) => {
            show_libbpf(options.measure.talk);
            run::trace(options)
        }
        Command::Check(measure) => {
            show_libbpf(measure.talk);
            run::check(measure)
        }
        Command::Print { from, options } => run::print(from, options),
    };
    match ended {
        Ok(status) => leave(status),
        Err(failure) => {
            say!("error: {}", failure.line);
            leave(failure.status)
        }
    }
}

/// What libbpf and the kernel's verifier have to say is for developers; a user gets the one line that we make of it.
fn show_libbpf(talk: Talk) {
    libbpf_rs::set_print((talk == Talk::Verbose).then_some((PrintLevel::Info, tell)));
}

/// Large blocks, as the kernel's types while they are read, go back to the kernel when they are freed. By itself the library
/// takes larger and larger ones from its heap once it has seen one freed, and the heap keeps what lies below its end.
#[cfg(target_env = "gnu")]
fn return_memory() {
    /// What the library begins with; it stays as it is once it has been set.
    const LARGE: i32 = 128 << 10;
    // SAFETY: there is one thread. Where the library refuses, all works as well, in more memory.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
    }
}

fn tell(_: PrintLevel, line: String) {
    // The object has been stripped of them: build/kernel_side.rs.
    if !line.contains("missing .BTF.ext line info") {
        // The verifier's log comes in one piece.
        line.trim_end().lines().for_each(|line| say!("{line}"));
    }
}

fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        // A closed pipe is not an error.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => fail(&format!("the text cannot be written: {error}")),
        _ => ExitCode::SUCCESS,
    }
}

fn fail(line: &str) -> ExitCode {
    say!("error: {line}");
    ExitCode::FAILURE
}
