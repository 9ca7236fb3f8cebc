//! Shells that have completions, and their part of these.

use clap::ValueEnum;

/// The first argument of a shell's question; the words up to the cursor follow.
pub const QUESTION: &str = "--complete";

/// A shell that has completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Shell {
    /// What the shell is to read.
    #[must_use]
    pub fn script(self) -> String {
        let script = match self {
            Self::Bash => include_str!("shell/bash"),
            Self::Zsh => include_str!("shell/zsh"),
            Self::Fish => include_str!("shell/fish"),
        };
        script.replace("QUESTION", QUESTION)
    }
}
