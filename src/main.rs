//! The command; all it does is in the library.

use std::io::Write;
use std::process::ExitCode;

use iostackbreakdown::cli::{self, Stop};
use iostackbreakdown::leave::leave;
use iostackbreakdown::run;

const WRONG_USAGE: u8 = 2;

fn main() -> ExitCode {
    let options = match cli::parse(std::env::args_os()) {
        Ok(options) => options,
        Err(Stop::Text(text)) => {
            // A closed pipe is not an error.
            let _ = std::io::stdout().write_all(text.as_bytes());
            return ExitCode::SUCCESS;
        }
        Err(Stop::Usage(line)) => {
            eprintln!("error: {line}");
            return ExitCode::from(WRONG_USAGE);
        }
    };
    if !options.verbose {
        // What it has to say is for developers; a user gets the one line that we make of it.
        libbpf_rs::set_print(None);
    }
    match run::run(&options) {
        Ok(status) => leave(status),
        Err(failure) => {
            eprintln!("error: {}", failure.line);
            leave(failure.status)
        }
    }
}
