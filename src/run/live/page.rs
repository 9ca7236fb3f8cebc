//! Writes the seconds that the live view keeps as a page for browsers.

use std::fs::OpenOptions;
use std::io;

use crate::cause::Cause;
use crate::document;
use crate::model::events::Events;
use crate::model::report::Report;
use crate::model::report::slow::LeftOut;
use crate::number::thousands;
use crate::run::record::{PAGE, named_by_host, now_in_name, under_free_name};
use crate::view::live::{Digest, Model, Shows};
use crate::view::{Html, Screen, Sheet, View};

use super::keep::KeptSeconds;

/// Writes it to a new file in the current directory. Returns what was written.
///
/// # Errors
/// If it cannot be written, in one line.
pub fn write(model: &Model, kept: &KeptSeconds) -> Result<String, Cause> {
    let Some((first, last)) = model.history.range() else {
        return Err("there is no second yet".to_owned().into());
    };
    let mut page = Page::default();
    kept.reports(|number, report| {
        let digest = model.history.digest(number);
        digest
            .map_or(Ok(()), |digest| page.add(report, digest))
            .map_err(cannot_make)
    })?;
    let page = page.end().map_err(cannot_make)?;
    let path = named_by_host(&now_in_name(), PAGE);
    let path = under_free_name(&path, |path| {
        let written = document::write(path, OpenOptions::new().write(true).create_new(true), &page);
        written.map_err(|error| Cause::of(format_args!("cannot write '{}'", path.display()), &error))
    })?;
    let seconds = thousands((last - first + 1) as u64);
    // Those of a recording would have to be read again, of all seconds.
    let left_out = match &model.facts.shows {
        Shows::Recording(_) if model.facts.has_records => ", without slow calls",
        _ => "",
    };
    Ok(format!("written to {}: {seconds} seconds{left_out}", path.display()))
}

fn cannot_make(error: io::Error) -> Cause {
    Cause::of("cannot make the page", &error)
}

#[derive(Default)]
struct Page {
    html: Html,
    out: Vec<u8>,
}

impl Page {
    fn add(&mut self, report: &Report, digest: &Digest) -> io::Result<()> {
        let events = Events {
            slow_calls: digest.slow_calls.clone(),
            // Of all causes.
            left_out: LeftOut {
                limited: digest.left_out,
                no_room: 0,
            },
            ..Events::default()
        };
        self.html.events(&events, &mut sheet(&mut self.out))?;
        self.html.report(report, &mut sheet(&mut self.out))
    }

    fn end(mut self) -> io::Result<Vec<u8>> {
        self.html.end(&mut sheet(&mut self.out))?;
        Ok(self.out)
    }
}

fn sheet(out: &mut Vec<u8>) -> Sheet<'_> {
    Sheet {
        out,
        screen: Screen::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::live::example;

    #[test]
    fn a_page_counts_the_slow_calls_that_were_not_kept() {
        let model = example::model(20);
        let (mut page, mut left_out) = (Page::default(), 0);
        for second in 0..20 {
            let digest = model.history.digest(second).unwrap();
            left_out += digest.left_out;
            page.add(&example::report(second), digest).unwrap();
        }
        assert_eq!(left_out, 6);
        let page = String::from_utf8(page.end().unwrap()).unwrap();
        assert!(page.contains("6 more slow calls are not listed."));
    }
}
