//! Writes the seconds that the live view keeps as a page for browsers.

use std::fs::OpenOptions;
use std::io;

use crate::cause::Cause;
use crate::document;
use crate::model::events::Events;
use crate::model::report::slow::LeftOut;
use crate::number::thousands;
use crate::run::record::{PAGE, named_by_host, now_in_name, under_free_name};
use crate::view::live::{Model, Shows};
use crate::view::{Html, Screen, Sheet, View};

/// Writes it to a new file in the current directory. Returns what was written.
///
/// # Errors
/// If it cannot be written, in one line.
pub fn write(model: &Model) -> Result<String, Cause> {
    let Some((first, last)) = model.history.range() else {
        return Err("there is no second yet".to_owned().into());
    };
    let mut page = Vec::new();
    render(model, first, last, &mut page).map_err(|error| Cause::of("cannot make the page", &error))?;
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

fn render(model: &Model, first: usize, last: usize, page: &mut Vec<u8>) -> io::Result<()> {
    let mut html = Html::default();
    let screen = Screen::default();
    for number in first..=last {
        if let (Some((report, _)), Some(digest)) = (model.history.shown(number), model.history.digest(number)) {
            let events = Events {
                slow_calls: digest.slow_calls.clone(),
                // Of all causes.
                left_out: LeftOut {
                    limited: digest.left_out,
                    no_room: 0,
                },
                ..Events::default()
            };
            html.events(&events, &mut Sheet { out: page, screen })?;
            html.report(&report, &mut Sheet { out: page, screen })?;
        }
    }
    html.end(&mut Sheet { out: page, screen })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::live::example;

    #[test]
    fn a_page_counts_the_slow_calls_that_were_not_kept() {
        let model = example::model(20);
        let (first, last) = model.history.range().unwrap();
        let digests = (first..=last).filter_map(|number| model.history.digest(number));
        assert_eq!(digests.map(|digest| digest.left_out).sum::<u64>(), 6);
        let mut page = Vec::new();
        render(&model, first, last, &mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        assert!(page.contains("6 more slow calls are not listed."));
    }
}
