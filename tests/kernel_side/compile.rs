//! Compiles a part of the kernel side for this machine.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// The program of `tests/kernel_side/NAME.c`, put into `folder`.
pub fn compile(name: &str, folder: &str) -> PathBuf {
    let sources = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernel_side"));
    let program = Path::new(folder).join(name);
    let clang = std::env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    let flags = ["-O1", "-Wall", "-Wextra", "-Wno-unused-function", "-Werror"];
    let built = Command::new(clang)
        .args(flags)
        .arg("-o")
        .arg(&program)
        .arg(sources.join(name).with_extension("c"))
        .status();
    assert!(built.as_ref().is_ok_and(ExitStatus::success), "{built:?}");
    program
}
