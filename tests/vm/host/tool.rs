//! The tool that guests test: by default the release build, as shipped.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The top of the tool's source.
const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// Cargo starts tests in the directory of their package; relative paths among the arguments are relative to where cargo
/// itself was started, which is the top of the source if the user follows the documentation.
pub fn go_to_source() -> Result<(), String> {
    match std::env::var_os("CARGO_MANIFEST_DIR") {
        Some(_) => std::env::set_current_dir(SOURCE).map_err(|e| format!("{SOURCE}: {e}")),
        None => Ok(()),
    }
}

/// The executable `given`, or the release build.
pub fn get(given: Option<&Path>) -> Result<PathBuf, String> {
    match given {
        Some(path) if path.is_file() => Ok(path.into()),
        Some(path) => Err(format!("--tool {}: no such file", path.display())),
        None => build(),
    }
}

/// Builds it, unless it is up to date.
fn build() -> Result<PathBuf, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "build",
            "--quiet",
            "--locked",
            "--release",
            "--bin",
            PROGRAM,
            "--message-format",
            "json-render-diagnostics",
        ])
        .current_dir(SOURCE)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|e| format!("cargo: {e}"))?;
    if !output.status.success() {
        return Err(format!("the tool cannot be built: cargo: {}", output.status));
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    executable(&messages).ok_or_else(|| "cargo did not say where the tool is that it built".into())
}

const PROGRAM: &str = "IOStackBreakdown";

/// The executable in cargo's messages, a line of JSON each.
fn executable(messages: &str) -> Option<PathBuf> {
    let messages = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut programs = messages.filter(|message| message["target"]["name"] == PROGRAM);
    programs.find_map(|message| Some(Path::new(message["executable"].as_str()?).into()))
}
