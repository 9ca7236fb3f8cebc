//! What a report of a sample (`--sample`) says of its numbers: that they are estimates, and their intervals.

use super::number::{ColumnUnit, TIME_COLUMNS, column_units, thousands};
use super::{Page, print_table};
use crate::model::report::Report;
use crate::model::report::estimate::{CONFIDENCE, Estimate, LEAST_FOR_MEAN};

/// Columns of names.
const NAMES: usize = 12;

/// What numbers are if one of so many calls was measured.
pub fn estimates(one_in: u64) -> String {
    format!("estimates from 1 in {} calls (--sample)", thousands(one_in))
}

/// One sentence; `None`: all calls were measured.
fn sentence(report: &Report) -> Option<String> {
    let estimates = estimates(report.sample?.one_in().into());
    Some(format!("{estimates}: counts, totals and bytes"))
}

/// Prints that the numbers above are estimates.
pub(super) fn print_sentence(report: &Report, page: &mut Page) {
    if let Some(sentence) = sentence(report) {
        page.line(&sentence);
        page.blank();
    }
}

/// Prints the intervals of the numbers above. Nothing if all calls were measured.
pub(super) fn print_intervals(report: &Report, of: &[(&str, Option<Estimate>)], page: &mut Page) {
    let known = of
        .iter()
        .filter_map(|(name, estimate)| Some((*name, estimate.as_ref()?)));
    let known: Vec<(&str, &Estimate)> = known.collect();
    let Some(sentence) = sentence(report).filter(|_| !known.is_empty()) else {
        return;
    };
    page.line(&format!(
        "{sentence}. The true numbers lie, with {CONFIDENCE} % confidence:"
    ));
    let means = |estimate: &Estimate| [estimate.avg_low_ns, estimate.avg_high_ns];
    let times = known.iter().flat_map(|(_, estimate)| means(estimate)).flatten();
    let unit = column_units(TIME_COLUMNS, times)[0];
    let time = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), |ns| rounded(unit, ns));
    let heading = [
        "count from".to_owned(),
        "to".to_owned(),
        format!("avg {} from", unit.name),
        "to".to_owned(),
    ];
    let rows = known.iter().map(|(name, estimate)| {
        let [low, high] = means(estimate).map(time);
        let [from, to] = [estimate.count_low, estimate.count_high].map(thousands);
        ((*name).to_owned(), [from, to, low, high])
    });
    let rows: Vec<_> = std::iter::once((String::new(), heading)).chain(rows).collect();
    print_table(&rows, [12, 12, 12, 12], NAMES, page);
    if known.iter().any(|(_, estimate)| estimate.avg_low_ns.is_none()) {
        page.line(&format!("(avg: from {LEAST_FOR_MEAN} measured calls on)"));
    }
    page.blank();
}

/// A time in the unit of its column, which may be too large for it.
fn rounded(unit: ColumnUnit, ns: u64) -> String {
    if ns > 0 && unit.steps(ns) == 0 {
        return super::time_each(ns);
    }
    unit.number(ns)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::sample::Sample;

    #[test]
    fn a_report_of_all_calls_has_no_intervals() {
        let mut page = Page::new(None);
        print_sentence(&Report::default(), &mut page);
        print_intervals(&Report::default(), &[("read", Some(Estimate::default()))], &mut page);
        let sampled = Report {
            sample: Sample::new(10),
            ..Report::default()
        };
        print_intervals(&sampled, &[("read", None)], &mut page);
        assert_eq!(page.text, "");
    }

    #[test]
    fn intervals_are_a_table() {
        let mut page = Page::new(None);
        let report = Report {
            sample: Sample::new(1000),
            ..Report::default()
        };
        let read = Estimate {
            count_low: 381_410,
            count_high: 394_120,
            avg_low_ns: Some(149_100),
            avg_high_ns: Some(1_156_800),
        };
        let open = Estimate {
            count_low: 0,
            count_high: 4_787,
            avg_low_ns: None,
            avg_high_ns: None,
        };
        print_intervals(&report, &[("read", Some(read)), ("open", Some(open))], &mut page);
        assert_eq!(
            page.text,
            "estimates from 1 in 1,000 calls (--sample): counts, totals and bytes. The true\n  \
             numbers lie, with 95 % confidence:\n\
             \x20               count from            to   avg us from            to\n\
             read               381,410       394,120           149         1,157\n\
             open                     0         4,787             -             -\n\
             (avg: from 100 measured calls on)\n\n"
        );
    }
}
