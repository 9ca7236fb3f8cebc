//! Prints what came between two moments of a run, in the form that was asked for.

use std::io::{self, Write};

use crate::analyse;
use crate::args::Options;
use crate::model::report::Report;
use crate::model::run_info::RunInfo;
use crate::model::snapshot::Snapshot;
use crate::view::View;
use crate::view::text::TextOptions;
use crate::view::text::notes::Said;
use crate::view::text::oneline::{OneLine, Screen};

/// What has been printed so far matters to what is printed next. It needs nothing of the kernel.
pub struct Reporter<'a> {
    options: &'a Options,
    /// Notes that are not repeated. `None`: each report has them all.
    said: Option<Said>,
    /// Where each report is one.
    lines: OneLine,
}

impl<'a> Reporter<'a> {
    /// Before the first report.
    pub fn new(options: &'a Options) -> Self {
        Self {
            options,
            said: None,
            lines: OneLine::default(),
        }
    }

    /// What will not change, where reports are for people, which do not repeat it then; `None` where each report has all that is known.
    pub fn begin(&mut self, run: &RunInfo, first: &Snapshot) -> Option<Report> {
        if self.options.json.is_some() || self.options.verbose {
            return None;
        }
        let report = analyse::report(run, first, first);
        self.said = Some(Said::of(&report));
        Some(report)
    }

    /// Prints what came between two moments. `screen`: where it is printed to.
    ///
    /// # Errors
    /// What writing to `out` fails with.
    pub fn print(
        &mut self,
        run: &RunInfo,
        before: &Snapshot,
        after: &Snapshot,
        screen: Screen,
        mut out: &mut dyn Write,
    ) -> io::Result<()> {
        let mut report = analyse::report(run, before, after);
        if let Some(said) = &mut self.said {
            said.take_from(&mut report);
        }
        if self.options.oneline {
            return out.write_all(self.lines.next(&report, screen).as_bytes());
        }
        let is_first = before.at_ns == run.began_ns;
        view(self.options, is_first, screen.width).print(&report, &mut out)
    }
}

/// The form that was asked for. `is_first`: what the columns are is said in this report; `width`: columns, if it is a terminal.
pub fn view(options: &Options, is_first: bool, width: Option<usize>) -> View {
    if let Some(form) = options.json {
        View::Json(form)
    } else if options.folded {
        View::Folded
    } else {
        View::Text(TextOptions {
            unit: options.unit,
            summary_only: options.summary,
            verbose: options.verbose,
            is_interval: options.interval.is_some(),
            is_first,
            width,
        })
    }
}
