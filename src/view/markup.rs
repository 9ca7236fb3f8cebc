//! Text in HTML and SVG, and the colours of rows.

use crate::model::ids::{Layer, Row};
use crate::printable::printable;

/// Text that is neither markup nor a control character, in an element or a quoted attribute. Unprintable characters
/// are replaced as in text reports, so that no name changes the direction of what follows it.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in printable(text).chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // Not a character in XML.
            '\u{fffe}' | '\u{ffff}' => safe.push('?'),
            c => safe.push(c),
        }
    }
    safe
}

/// The CSS class of a row.
pub fn class(row: Row) -> &'static str {
    match row {
        Row::Layer(Layer::Syscall) => "syscall",
        Row::Layer(Layer::Vfs) => "vfs",
        Row::Layer(_) => "fs",
        Row::Queue => "queue",
        Row::Device => "device",
        Row::Others => "others",
        Row::Journal => "journal",
        Row::Lock => "lock",
        Row::Other => "other",
        Row::RunQueue => "runq",
    }
}

/// The fill of each class: layers cold, waits warm. Black text is readable on all of them.
pub const COLOURS: [(&str, &str); 12] = [
    ("all", "#c8d0da"),
    ("family", "#dde3ea"),
    ("syscall", "#a6cee3"),
    ("vfs", "#6aaed6"),
    ("fs", "#74c476"),
    ("queue", "#fdd49e"),
    ("device", "#fc8d59"),
    ("others", "#d7a6dd"),
    ("journal", "#ecd13b"),
    ("lock", "#ef6f6c"),
    ("other", "#bdbdbd"),
    ("runq", "#b3a8e0"),
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;

    #[test]
    fn every_row_has_a_colour() {
        let layers = Layer::ALL.into_iter().map(Row::Layer);
        for row in layers.chain(Row::WAITS) {
            assert!(COLOURS.iter().any(|(name, _)| *name == class(row)), "{row}");
        }
    }

    #[test]
    fn markup_in_a_name_is_text() {
        let name = "</script><b a=\"'&\u{202e}\u{1b}\u{ffff}é";
        assert_eq!(escaped(name), "&lt;/script&gt;&lt;b a=&quot;&#39;&amp;???é");
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn any_text_is_the_text_of_an_element(text in any::<String>()) {
            let xml = format!("<a b=\"{0}\">{0}</a>", escaped(&text));
            let xml = roxmltree::Document::parse(&xml).map_err(|error| TestCaseError::fail(format!("{error}: {xml}")))?;
            let expected: String = printable(&text).replace(['\u{fffe}', '\u{ffff}'], "?");
            prop_assert_eq!(xml.root_element().text().unwrap_or_default(), expected.as_str());
        }
    }
}
