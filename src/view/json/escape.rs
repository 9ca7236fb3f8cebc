//! Escapes characters that a terminal would not show.

use std::io;

use serde_json::ser::Formatter;

use crate::printable::is_printable;

/// JSON requires escapes only for the first 32 characters; other unprintable ones are escaped here, and are unchanged
/// when parsed.
pub struct Escaping;

impl Formatter for Escaping {
    fn write_string_fragment<W: ?Sized + io::Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| !is_printable(*c)) {
            writer.write_all(&rest.as_bytes()[..at])?;
            for unit in c.encode_utf16(&mut [0; 2]) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = &rest[at + c.len_utf8()..];
        }
        writer.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;
    use crate::model::ids::Op;
    use crate::model::report::slow::{CallPath, PathKind, SlowCall};
    use crate::view::json::print_slow;

    fn line_of(comm: &str, path: &str) -> String {
        let call = SlowCall {
            comm: comm.to_owned(),
            path: Some(CallPath::new(PathKind::Given, path)),
            op: Op::Read,
            ..SlowCall::default()
        };
        let mut line = Vec::new();
        print_slow(&call, &mut line).unwrap();
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn what_is_not_printable_is_escaped() {
        let line = line_of("a\u{9b}31m\u{7f}ß", "/\u{202e}txt\u{2028}\u{e0041}\u{1b}\"日本");
        assert!(line.contains(r#""comm":"a\u009b31m\u007fß""#), "{line}");
        assert!(
            line.contains(r#""path":"/\u202etxt\u2028\udb40\udc41\u001b\"日本""#),
            "{line}"
        );
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn any_text_is_printable_and_the_same_when_parsed(comm in any::<String>(), path in fuzz::text_like("/var/\u{1b}]0;x\nb\u{202e}\u{9b}")) {
            let line = line_of(&comm, &path);
            let line = line.strip_suffix('\n').unwrap();
            prop_assert!(line.chars().all(is_printable), "{:?}", line);
            let parsed: serde_json::Value = serde_json::from_str(line).unwrap();
            prop_assert_eq!(parsed["slow_call"]["comm"].as_str(), Some(&comm[..]));
            prop_assert_eq!(parsed["slow_call"]["path"].as_str(), Some(&path[..]));
        }
    }
}
