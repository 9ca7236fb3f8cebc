//! Says that a test was left out, which tests/run names and counts: for cargo, a test that returns has passed.

use std::io::Write;

/// Says it of the test that calls this; `part`: of this part of it alone.
pub fn left_out(part: Option<&str>, why: &str) {
    let thread = std::thread::current();
    let name = thread.name().unwrap_or_default();
    let line = match part {
        None => format!("\ntest left out: {name}: {why}\n"),
        Some(part) => format!("\ntest left out in part: {name}, {part}: {why}\n"),
    };
    // By no macro: what these print is hidden if the test passes.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
