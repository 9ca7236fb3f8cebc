//! Whether what is printed has colours.

use std::ffi::OsString;

use crate::args::When;

/// Whether text that goes to a terminal, or to something else, has colours.
pub fn is_colored(when: When, is_terminal: bool) -> bool {
    decide(when, is_terminal, |name| std::env::var_os(name))
}

/// `NO_COLOR` is that of <https://no-color.org>: any text that is not empty means no colour, unless an option demands it.
fn decide(when: When, is_terminal: bool, variable: impl Fn(&str) -> Option<OsString>) -> bool {
    match when {
        When::Always => true,
        When::Never => false,
        When::Auto => {
            let is_refused = variable("NO_COLOR").is_some_and(|value| !value.is_empty());
            let is_dumb = variable("TERM").is_none_or(|term| term.is_empty() || term == "dumb");
            is_terminal && !is_refused && !is_dumb
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(when: When, is_terminal: bool, variables: &[(&str, &str)]) -> bool {
        decide(when, is_terminal, |name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn only_terminals_that_show_colours_get_them() {
        let xterm = ("TERM", "xterm");
        assert!(decided(When::Auto, true, &[xterm]));
        assert!(decided(When::Auto, true, &[xterm, ("NO_COLOR", "")]));
        assert!(!decided(When::Auto, false, &[xterm]));
        assert!(!decided(When::Auto, true, &[xterm, ("NO_COLOR", "1")]));
        assert!(!decided(When::Auto, true, &[("TERM", "dumb")]));
        assert!(!decided(When::Auto, true, &[]));
    }

    #[test]
    fn an_option_decides_alone() {
        assert!(decided(When::Always, false, &[("NO_COLOR", "1"), ("TERM", "dumb")]));
        assert!(!decided(When::Never, true, &[("TERM", "xterm")]));
    }
}
