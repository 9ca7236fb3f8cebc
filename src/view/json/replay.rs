//! The result of a replay as one line of JSON, which `schema/replay.schema.json` describes.

use std::io;

use serde::Serialize;
use serde_json::Value;

use super::{SCHEMA_VERSION, print_line};
use crate::model::report::replay::{Compared, ReplayReport};

#[derive(Serialize)]
struct Line<'a> {
    schema_version: u32,
    version: &'static str,
    replay: &'a ReplayReport,
    measured: Option<&'a Measured>,
}

/// What the replay took, beside what the recording did.
#[derive(Debug, Serialize)]
pub struct Measured {
    recorded: Value,
    replayed: Option<Value>,
    compared: Vec<Compared>,
}

impl Measured {
    /// `reports`: of the recording and of the replay, as lines of `--json`.
    ///
    /// # Errors
    ///
    /// If a report is no JSON.
    pub fn new(reports: (&[u8], Option<&[u8]>), compared: Vec<Compared>) -> io::Result<Self> {
        Ok(Self {
            recorded: serde_json::from_slice(reports.0)?,
            replayed: reports.1.map(serde_json::from_slice).transpose()?,
            compared,
        })
    }
}

/// Prints the result. `measured`: with `--measure`.
///
/// # Errors
///
/// Any error from writing to `out`.
pub fn print(report: &ReplayReport, measured: Option<&Measured>, out: &mut impl io::Write) -> io::Result<()> {
    let line = Line {
        schema_version: SCHEMA_VERSION,
        version: env!("CARGO_PKG_VERSION"),
        replay: report,
        measured,
    };
    print_line(&line, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::report::replay::ComparedRow;
    use crate::view::text::replay::example;

    #[test]
    fn the_line_is_as_the_schema_says() {
        let schema = include_str!("../../../schema/replay.schema.json");
        let schema: serde_json::Value = serde_json::from_str(schema).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        for report in [example(), ReplayReport::default()] {
            let mut text = Vec::new();
            let compared = vec![Compared {
                rows: vec![ComparedRow::default()],
                ..Compared::default()
            }];
            let reports: (&[u8], _) = (b"{}", None);
            let measured = Measured::new(reports, compared).unwrap();
            let measured = Some(&measured).filter(|_| report.done > 0);
            print(&report, measured, &mut text).unwrap();
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
