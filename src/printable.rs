//! Text chosen by others, such as names of threads, files and control groups, arguments, and files to compare: which
//! characters of it may reach a terminal or a log.

use unicode_general_category::{GeneralCategory, get_general_category};

/// Whether `c` can be shown as part of a line: it is not a control character, does not end a line or change the
/// direction of text, and is not invisible.
#[must_use]
pub fn is_printable(c: char) -> bool {
    use GeneralCategory::{Control, Format, LineSeparator, ParagraphSeparator, PrivateUse, Surrogate};
    // The common case.
    c.is_ascii_graphic()
        || c == ' '
        || !matches!(
            get_general_category(c),
            Control | Format | LineSeparator | ParagraphSeparator | PrivateUse | Surrogate
        )
}

/// Replaces unprintable characters, one for one, so that columns stay aligned.
#[must_use]
pub fn printable(line: &str) -> String {
    let shown = |c: char| match c {
        '\n' | '\t' => ' ',
        c if is_printable(c) => c,
        _ => '?',
    };
    line.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;

    #[test]
    fn only_what_is_shown_is_printable() {
        let shown = "PID 1 (sh) äß‰ 日本語 … \u{fffd} e\u{301} 💥";
        assert_eq!(printable(shown), shown);
        assert_eq!(printable("a\tb\nc"), "a b c");
        // ESC, DEL, CSI, soft hyphen, right-to-left override, isolate, line and paragraph separators, BOM, tag, private use.
        let hidden = "\u{1b}\u{7f}\u{9b}\u{ad}\u{202e}\u{2066}\u{2028}\u{2029}\u{feff}\u{e0041}\u{e000}";
        assert_eq!(printable(hidden), "?".repeat(hidden.chars().count()));
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn any_text_becomes_one_printable_line(text in any::<String>()) {
            let line = printable(&text);
            prop_assert!(line.chars().all(is_printable), "{:?}", line);
            prop_assert_eq!(line.chars().count(), text.chars().count());
            prop_assert_eq!(printable(&line), line);
        }
    }
}
