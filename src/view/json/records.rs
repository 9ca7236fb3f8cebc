//! Answers from records as one line of JSON, which `schema/answers.schema.json` describes.

use std::io;

use serde::Serialize;

use super::{SCHEMA_VERSION, print_line};
use crate::model::clock::Clock;
use crate::model::report::records::{AccessReport, LimitsReport, RecordsReport, SeeksReport};

#[derive(Serialize)]
struct Line<'a> {
    schema_version: u32,
    version: &'static str,
    access: Option<&'a AccessReport>,
    seeks: Option<&'a SeeksReport>,
    limits: Option<&'a LimitsReport>,
    incomplete: Vec<Incomplete>,
}

#[derive(Serialize)]
struct Incomplete {
    kind: &'static str,
    records: u64,
    /// RFC 3339, UTC, with nanoseconds.
    from: String,
    to: String,
}

/// Prints the answers.
///
/// # Errors
///
/// Any error from writing to `out`.
pub fn print(report: &RecordsReport, clock: Clock, out: &mut impl io::Write) -> io::Result<()> {
    let incomplete = report.incomplete.iter().map(|one| Incomplete {
        kind: one.kind.name(),
        records: one.records,
        from: clock.wall(one.from_ns).to_string(),
        to: clock.wall(one.to_ns).to_string(),
    });
    let line = Line {
        schema_version: SCHEMA_VERSION,
        version: env!("CARGO_PKG_VERSION"),
        access: report.access.as_ref(),
        seeks: report.seeks.as_ref(),
        limits: report.limits.as_ref(),
        incomplete: incomplete.collect(),
    };
    print_line(&line, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::text::records::example;

    #[test]
    fn the_line_is_as_the_schema_says() {
        let schema = include_str!("../../../schema/answers.schema.json");
        let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        for report in [example::full(), RecordsReport::default()] {
            let mut text = Vec::new();
            print(&report, Clock::default(), &mut text).unwrap();
            let text = String::from_utf8(text).unwrap();
            assert_eq!(text.lines().count(), 1);
            assert!(!text.contains('\u{1b}'), "{text}");
            let line: serde_json::Value = serde_json::from_str(&text).unwrap();
            let errors: Vec<String> = validator.iter_errors(&line).map(|error| error.to_string()).collect();
            assert!(errors.is_empty(), "{errors:#?}\n{text}");
            assert_eq!(line["access"].is_null(), report.access.is_none());
        }
        let mut line: serde_json::Value = serde_json::json!({"schema_version": 1});
        assert!(!validator.is_valid(&line));
        line["schema_version"] = 2.into();
        assert!(!validator.is_valid(&line));
    }
}
