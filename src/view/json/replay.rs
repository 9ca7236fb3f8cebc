//! The result of a replay as one line of JSON, which `schema/replay.schema.json` describes.

use std::io;

use serde::Serialize;

use super::{SCHEMA_VERSION, print_line};
use crate::model::report::replay::ReplayReport;

#[derive(Serialize)]
struct Line<'a> {
    schema_version: u32,
    version: &'static str,
    replay: &'a ReplayReport,
}

/// Prints the result.
///
/// # Errors
///
/// Any error from writing to `out`.
pub fn print(report: &ReplayReport, out: &mut impl io::Write) -> io::Result<()> {
    let line = Line {
        schema_version: SCHEMA_VERSION,
        version: env!("CARGO_PKG_VERSION"),
        replay: report,
    };
    print_line(&line, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::text::replay::example;

    #[test]
    fn the_line_is_as_the_schema_says() {
        let schema = include_str!("../../../schema/replay.schema.json");
        let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        for report in [example(), ReplayReport::default()] {
            let mut text = Vec::new();
            print(&report, &mut text).unwrap();
            let text = String::from_utf8(text).unwrap();
            assert_eq!(text.lines().count(), 1);
            let mut line: serde_json::Value = serde_json::from_str(&text).unwrap();
            let errors: Vec<String> = validator.iter_errors(&line).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{errors:#?}\n{text}");
            line["replay"]["more"] = 1.into();
            assert!(!validator.is_valid(&line), "no field is unknown");
        }
    }
}
