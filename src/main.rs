//! The executable; everything else is in the library.

// `eprintln!` panics if standard error cannot be written; `say!` does not.
#![deny(clippy::print_stderr)]

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use iostackbreakdown::args::complete;
use iostackbreakdown::args::{self, Command, Talk};
use iostackbreakdown::leave::leave;
use iostackbreakdown::run;
use iostackbreakdown::say;
use iostackbreakdown::sys::memory;
use libbpf_rs::PrintLevel;

const WRONG_USAGE: u8 = 2;

fn main() -> ExitCode {
    memory::return_large_blocks();
    let command = match args::parse(std::env::args_os()) {
        Ok(command) => command,
        Err(line) => {
            say!("error: {line}");
            return ExitCode::from(WRONG_USAGE);
        }
    };
    if let Command::Report { .. } | Command::Export { .. } | Command::Replay { .. } = command {
        memory::keep_freed();
    }
    let ended = match &command {
        Command::Text(text) => return print(text),
        Command::Complete(words) => return print(&complete::answer(words).to_string()),
        Command::Compare { before, after, html } => {
            let width = terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| width.0.into());
            match run::compare(before, after, html.as_deref(), width) {
                Ok(text) => return print(&text),
                Err(failure) => Err(failure),
            }
        }
        Command::Trace(options) => {
            show_libbpf(options.measure.talk);
            run::trace(options)
        }
        Command::Record { recording, options } => {
            show_libbpf(options.measure.talk);
            run::record(recording, options)
        }
        Command::Report {
            from,
            part,
            questions,
            options,
        } if !questions.is_empty() => run::answers(from, part, questions, options),
        Command::Report {
            from, part, options, ..
        } => match options.events {
            Some(events) => run::events(from, part, events, options),
            None => run::report(from, part, options),
        },
        Command::Export { from, export } => run::export(from, export),
        Command::Replay { from, replay } => {
            show_libbpf(Talk::Usual);
            run::replay(from, replay)
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

/// The messages of libbpf and the verifier are for developers; users get a one-line error.
fn show_libbpf(talk: Talk) {
    libbpf_rs::set_print((talk == Talk::Verbose).then_some((PrintLevel::Info, tell)));
}

fn tell(_: PrintLevel, line: String) {
    // build/kernel_side.rs has stripped the line info from the object.
    if !line.contains("missing .BTF.ext line info") {
        // The verifier's log comes as one string.
        line.trim_end().lines().for_each(|line| say!("{line}"));
    }
}

fn print(text: &str) -> ExitCode {
    match std::io::stdout().write_all(text.as_bytes()) {
        // A closed pipe is not an error.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            fail(&format!("cannot write to standard output: {error}"))
        }
        _ => ExitCode::SUCCESS,
    }
}

fn fail(line: &str) -> ExitCode {
    say!("error: {line}");
    ExitCode::FAILURE
}
