//! Writes the seconds that the live view keeps as a page for browsers.

use std::fs::OpenOptions;
use std::io::{self, Write};

use crate::cause::Cause;
use crate::model::events::Events;
use crate::number::thousands;
use crate::run::record::host_in_names;
use crate::view::live::Model;
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
    let now = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S").to_string();
    let name = format!("io-{}-{now}.html", host_in_names());
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).open(&name);
    let written = file.and_then(|mut file| file.write_all(&page));
    written.map_err(|error| Cause::of(format_args!("cannot write '{name}'"), &error))?;
    Ok(format!(
        "{} seconds were written to {name}",
        thousands((last - first + 1) as u64)
    ))
}

fn render(model: &Model, first: usize, last: usize, page: &mut Vec<u8>) -> io::Result<()> {
    let mut html = Html::default();
    let screen = Screen::default();
    for number in first..=last {
        if let (Some(report), Some(digest)) = (model.history.report(number), model.history.digest(number)) {
            let events = Events {
                slow_calls: digest.slow_calls.clone(),
                ..Events::default()
            };
            html.events(&events, &mut Sheet { out: page, screen })?;
            html.report(&report, &mut Sheet { out: page, screen })?;
        }
    }
    html.end(&mut Sheet { out: page, screen })
}
