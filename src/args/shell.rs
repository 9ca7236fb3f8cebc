//! Shells with completions, and their scripts.

use clap::ValueEnum;

/// The first argument when a shell asks for completions; the words up to the cursor follow.
pub const QUESTION: &str = "--complete";

/// A shell with completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Shell {
    /// The script that the shell sources.
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
