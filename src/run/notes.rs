//! Notes that do not change during a run, printed once on standard error.

use std::io::{self, IsTerminal};

use crate::args::{Form, Options, Talk};
use crate::catalog::{Layer, Lives};
use crate::kernel;
use crate::model::report::Report;
use crate::say;
use crate::view::Screen;
use crate::view::text::notes::{Printed, changes, notes};
use crate::view::text::oneline;

use super::color;

/// File systems above others that are not seen mounted: the banner and the notes omit them. They may still be measured, since they
/// may be mounted in another namespace, which is unknown if they are no modules.
pub fn unused() -> Vec<Layer> {
    let is_unused = |layer: &Layer| layer.lives() == Some(Lives::Above) && !kernel::is_seen_mounted(layer.name());
    Layer::file_systems().filter(is_unused).collect()
}

/// Prints them for reports in text, which then do not repeat them. `first` is a report without numbers.
pub fn say_notes(mut first: Report, options: &Options) {
    if matches!(options.output.form, Form::Json(_)) || options.measure.talk != Talk::Usual {
        return;
    }
    if let Some(stack) = first.stack.as_mut() {
        let unused = unused();
        stack
            .not_measured
            .retain(|row| unused.iter().all(|layer| layer.name() != row.what));
    }
    if let Some(stack) = first.stack.as_ref().filter(|_| options.output.is_oneline()) {
        first.warnings.push(oneline::explained(stack));
    }
    let stderr = io::stderr();
    let width = terminal_size::terminal_size_of(&stderr).map(|(width, _)| width.0.into());
    let screen = Screen {
        width,
        height: None,
        is_colored: color::is_colored(options.output.color, stderr.is_terminal()),
    };
    if screen.is_colored {
        say::shown(&notes(&first, screen));
        return;
    }
    notes(&first, screen).trim_end().lines().for_each(|line| say!("{line}"));
}

/// Finds what deserves attention in a part of a run: notes that hold for the whole run are not repeated.
pub struct Attention(Printed);

impl Attention {
    /// `first` is a report without numbers.
    pub fn new(first: &Report) -> Self {
        Self(Printed::of(first))
    }

    /// Takes the notes from a report that hold for the whole run. Returns the others as one line; `None`: there are none.
    pub fn take_from(&mut self, report: &mut Report) -> Option<String> {
        self.0.take_from(report);
        changes(report, false).map(|line| line.text)
    }
}
