//! A process with descendants from before and after tracing begins: `/init family SET THREADS ROUNDS FILE NAME`.
//!
//! It starts a workload that waits, prints `family` and its number, and waits itself. Once signalled, it signals the
//! first workload, starts a second one, and ends after both.

use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use std::process::{Child, Command, ExitCode};

/// Signals the family to start.
pub const GO: Signal = Signal::SIGUSR1;

pub fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(2).collect();
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("family {arguments:?}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &[String]) -> Result<(), String> {
    let start = |gated: &[&str]| -> Result<Child, String> {
        let mut workload = Command::new("/init");
        workload.arg("workload").args(arguments).args(gated);
        workload.spawn().map_err(|e| e.to_string())
    };
    let go = SigSet::from_iter([GO]);
    let first = start(&["gated"])?;
    go.thread_block().map_err(|e| e.to_string())?;
    eprintln!("family {}", std::process::id());
    go.wait().map_err(|e| e.to_string())?;
    // The second one must not inherit a blocked signal.
    go.thread_unblock().map_err(|e| e.to_string())?;
    kill(Pid::from_raw(first.id() as i32), GO).map_err(|e| e.to_string())?;
    let second = start(&[])?;
    for mut child in [first, second] {
        let status = child.wait().map_err(|e| e.to_string())?;
        if !status.success() {
            return Err(format!("a workload: {status}"));
        }
    }
    Ok(())
}
