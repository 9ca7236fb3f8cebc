//! The parts of a page. All text from outside passes [`escaped`], or is JSON without `<`.

use std::fmt::Write as _;

use super::Compared;
use super::columns::Columns;
use crate::model::histogram::Histogram;
use crate::model::ids::{Layer, Origin};
use crate::model::report::Report;
use crate::model::report::group::{GroupsReport, Numbers};
use crate::model::report::slow::SlowCall;
use crate::model::report::stack::{FamilyReport, OriginReport};
use crate::view::errno::errno_name;
use crate::view::icicle;
use crate::view::markup::{COLOURS, class, escaped};
use crate::view::text::number::{decimal_bytes, length, percent, rounded, thousands, time_each, time_sum};
use crate::view::text::{conditions, opening, verdicts};

const CSS: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
/// The SHA-256 of [`SCRIPT`] in base64: browsers run no other script of the page.
const SCRIPT_HASH: &str = "vSFnu2U3wXx1G/zVPmpgR44MdY6Qvp5VvBj0v2rwi9E=";

/// The line before the data from which `compare` reads a page, and the line after it.
pub const DATA_BEGIN: &str = "<script type=\"application/json\" id=\"report\">";
pub const COLUMNS_BEGIN: &str = "<script type=\"application/json\" id=\"columns\">";
pub const DATA_END: &str = "</script>";
/// The class of tables that a click on a heading sorts.
const SORTABLE: &str = "sortable";
/// How a page begins.
pub const FIRST_LINE: &str = "<!doctype html>";

/// A page with this body, and the data of its pictures. `data`: lines of JSON, without `<`.
pub fn document(title: &str, body: &str, data: &str, runs: &[Columns]) -> String {
    let variables: String = COLOURS
        .iter()
        .map(|(name, colour)| format!("--{name}:{colour};"))
        .collect();
    let fills: String = COLOURS
        .iter()
        .map(|(name, _)| format!(".icicle .{name}{{fill:var(--{name})}}i.{name}{{background:var(--{name})}}"))
        .collect();
    // Numbers and strings alone can always be serialized.
    let columns = serde_json::to_string(runs).unwrap_or_else(|_| "[]".to_owned());
    format!(
        "{FIRST_LINE}\n<html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'sha256-{SCRIPT_HASH}'; base-uri 'none'; form-action 'none'\">\
         <meta name=\"viewport\" content=\"width=device-width\"><meta name=\"referrer\" content=\"no-referrer\">\
         <title>{}</title><style>:root{{{variables}}}{CSS}{fills}</style></head>\n<body>\n{body}\n\
         <div id=\"hint\" hidden></div>\n{DATA_BEGIN}\n{data}{DATA_END}\n{COLUMNS_BEGIN}\n{}\n{DATA_END}\n\
         <script>{SCRIPT}</script>\n</body></html>\n",
        escaped(title),
        inert(&columns)
    )
}

/// JSON that cannot end the script element that contains it.
pub fn inert(json: &str) -> String {
    json.replace('<', "\\u003c")
}

/// The body of a report's page. `slow`: the slow calls, and how many are not among them.
pub fn body(report: &Report, columns: &Columns, slow: (&[SlowCall], u64)) -> String {
    let mut body = String::new();
    heading(report, &mut body);
    if let Some(stack) = &report.stack {
        picture(&stack.families, &mut body);
        families(&stack.families, &mut body);
    } else {
        ops(report, &mut body);
    }
    charts(columns, &mut body);
    if let Some(stack) = &report.stack {
        not_waited(stack.not_waited.as_deref().unwrap_or_default(), &mut body);
    }
    if let Some(all) = &report.groups {
        groups(report, all, columns.extent().1, &mut body);
    }
    slow_calls(slow.0, slow.1, &mut body);
    body.push_str("<section><h2>How it was measured</h2><ul>");
    for line in conditions(report) {
        push(&mut body, format_args!("<li>{}</li>", escaped(&line)));
    }
    push(
        &mut body,
        format_args!(
            "</ul><p class=\"dim\">IOStackBreakdown {}. This file makes no requests; <code>IOStackBreakdown compare</code> \
             reads it.</p></section>",
            env!("CARGO_PKG_VERSION")
        ),
    );
    body
}

/// The body of a comparison's page.
pub fn comparison(heading: &[String], sections: &[(String, Vec<Compared>)]) -> String {
    let mut body = String::from("<h1>What differs between two runs</h1><ul>");
    for line in heading {
        push(&mut body, format_args!("<li>{}</li>", escaped(line)));
    }
    body.push_str(
        "</ul><section><h2>Latency of both</h2><p class=\"dim\">Both runs have the same scales of latency and colour.</p>\
         <div id=\"charts\"></div><noscript>These pictures need JavaScript; everything else is here.</noscript></section>",
    );
    let heads = ["", "before", "after", "difference", "", ""];
    for (name, rows) in sections {
        let row = |row: &Compared| {
            let [name, before, after, difference, relative] = &row.cells;
            let class = if row.is_noise { "noise" } else { "more" };
            let note = if row.is_noise { "within noise" } else { "" };
            format!(
                "{}<td>{}</td><td>{}</td><td class=\"{class}\">{}</td><td class=\"{class}\">{}</td><td class=\"noise\">{note}</td>",
                name_cell(name),
                escaped(before),
                escaped(after),
                escaped(difference),
                escaped(relative)
            )
        };
        let rows: Vec<String> = rows.iter().map(row).collect();
        table(name, "", "", &heads, &heads[..1], &rows, &mut body);
    }
    body
}

/// Writing to a String cannot fail.
fn push(to: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = to.write_fmt(text);
}

/// The subject of a report, in words.
pub fn subject(report: &Report) -> &str {
    if report.subject.is_empty() {
        "all processes"
    } else {
        &report.subject
    }
}

fn heading(report: &Report, body: &mut String) {
    push(
        body,
        format_args!(
            "<h1>{}</h1><div class=\"dim\">{}, {}, Linux {}</div><p class=\"verdict\">{}</p><ul>",
            escaped(subject(report)),
            report.start.strftime("%Y-%m-%d %H:%M:%S UTC"),
            length(report.length),
            escaped(&report.kernel),
            escaped(&opening(report))
        ),
    );
    for (family, verdict) in verdicts(report) {
        let time = time_sum(family.total_ns);
        push(
            body,
            format_args!("<li>{}: {time}, {}</li>", family.family, escaped(&verdict)),
        );
    }
    body.push_str("</ul>");
}

fn picture(families: &[FamilyReport], body: &mut String) {
    let (boxes, height) = icicle::boxes(families);
    if boxes.is_empty() {
        return;
    }
    push(
        body,
        format_args!(
            "<section><h2>Layers and waits: width is time</h2><div class=\"wide\"><svg class=\"icicle\" role=\"img\" \
             viewBox=\"0 0 {} {height}\">{boxes}</svg></div><div class=\"legend\">",
            icicle::WIDTH
        ),
    );
    let sums = icicle::sums(families);
    let total = sums.iter().fold(0_u64, |sum, (.., ns)| sum.saturating_add(*ns));
    for (name, class, ns) in sums {
        push(
            body,
            format_args!(
                "<span><i class=\"{class}\"></i>{} {} {}</span>",
                escaped(name),
                time_sum(ns),
                percent(ns, total)
            ),
        );
    }
    body.push_str("</div></section>");
}

/// A cell of a table that is sorted by a number.
fn cell(value: u64, text: &str) -> String {
    format!("<td data-v=\"{value}\">{}</td>", escaped(text))
}

fn name_cell(name: &str) -> String {
    format!("<td class=\"name\">{}</td>", escaped(name))
}

/// A table. `left`: the headings of columns that begin at their left edge, names and bars; `rows`: the cells of each.
fn table(title: &str, note: &str, class: &str, heads: &[&str], left: &[&str], rows: &[String], body: &mut String) {
    if rows.is_empty() {
        return;
    }
    push(body, format_args!("<section><h2>{}</h2>", escaped(title)));
    if !note.is_empty() {
        push(body, format_args!("<p class=\"dim\">{}</p>", escaped(note)));
    }
    body.push_str("<div class=\"wide\"><table");
    if !class.is_empty() {
        push(body, format_args!(" class=\"{class}\""));
    }
    body.push_str("><thead><tr>");
    for head in heads {
        let class = if left.contains(head) { " class=\"name\"" } else { "" };
        push(body, format_args!("<th{class}>{}</th>", escaped(head)));
    }
    body.push_str("</tr></thead><tbody>");
    for row in rows {
        push(body, format_args!("<tr>{row}</tr>\n"));
    }
    body.push_str("</tbody></table></div></section>");
}

/// Count, time, share of all time, average, quantiles and longest call.
fn numbers(histogram: &Histogram, total_ns: u64, all_ns: u64, extremes: Option<(u64, u64)>) -> String {
    let count = histogram.count();
    let quantile = |q| match histogram.quantile(q, extremes) {
        Some(ns) => cell(ns, &time_each(ns)),
        None => cell(0, "-"),
    };
    let average = rounded(total_ns.into(), count.into()).unwrap_or(0);
    let longest = extremes.map_or(0, |(_, longest)| longest);
    [
        cell(count, &thousands(count)),
        cell(total_ns, &time_sum(total_ns)),
        cell(total_ns, &percent(total_ns, all_ns)),
        cell(average, &time_each(average)),
        quantile(0.50),
        quantile(0.99),
        cell(longest, &time_each(longest)),
    ]
    .concat()
}

/// The headings of [`numbers`]; at blk, requests are counted.
fn headings(layer: Option<Layer>) -> [&'static str; 7] {
    let counted = if layer == Some(Layer::Blk) { "requests" } else { "calls" };
    [counted, "time", "share", "avg", "p50", "p99", "longest"]
}

/// The heading of [`bar`].
const BAR: &str = "where the time was spent";

fn bytes_cell(bytes: Option<u64>) -> String {
    match bytes.filter(|bytes| *bytes > 0) {
        Some(bytes) => cell(bytes, &decimal_bytes(bytes)),
        None => cell(0, "-"),
    }
}

/// A bar of rows: class, label, nanoseconds.
fn bar(rows: impl Iterator<Item = (&'static str, String, u64)> + Clone) -> String {
    let total = rows.clone().fold(0_u64, |sum, (.., ns)| sum.saturating_add(ns));
    let mut cell = String::from("<td><div class=\"stack\">");
    for (class, label, ns) in rows.filter(|(.., ns)| *ns > 0) {
        let hint = escaped(&format!("{label}: {}, {}", time_sum(ns), percent(ns, total)));
        let width = ns as f64 / total as f64 * 100.0;
        push(
            &mut cell,
            format_args!("<i class=\"{class}\" style=\"width:{width:.2}%\" title=\"{hint}\"></i>"),
        );
    }
    cell.push_str("</div></td>");
    cell
}

fn families(families: &[FamilyReport], body: &mut String) {
    let mut called: Vec<&FamilyReport> = families.iter().filter(|family| family.count() > 0).collect();
    called.sort_by_key(|family| std::cmp::Reverse(family.total_ns));
    let all_ns = called
        .iter()
        .fold(0_u64, |sum, family| sum.saturating_add(family.total_ns));
    let row = |family: &&FamilyReport| {
        let rows = family.rows.iter().filter_map(|row| Some((row, row.ns?)));
        let rows = rows.map(|(row, ns)| (class(row.row), family.label(row).to_owned(), ns));
        [
            name_cell(family.family.name()),
            numbers(&family.histogram, family.total_ns, all_ns, family.extremes),
            bytes_cell(Some(family.bytes)),
            cell(family.errors, &thousands(family.errors)),
            bar(rows),
        ]
        .concat()
    };
    let rows: Vec<String> = called.iter().map(row).collect();
    let heads = [&["family"][..], &headings(None), &["bytes", "errors", BAR]].concat();
    table("Families of calls", "", SORTABLE, &heads, &["family", BAR], &rows, body);
}

fn ops(report: &Report, body: &mut String) {
    for layer in &report.layers {
        let all_ns = layer.ops.iter().fold(0_u64, |sum, op| sum.saturating_add(op.total_ns));
        let called = layer.ops.iter().filter(|op| op.count() > 0);
        let rows: Vec<String> = called
            .map(|op| {
                [
                    name_cell(op.op.name()),
                    numbers(&op.histogram, op.total_ns, all_ns, op.extremes),
                    bytes_cell(op.bytes),
                    cell(op.error_count(), &thousands(op.error_count())),
                ]
                .concat()
            })
            .collect();
        let heads = [&["operation"][..], &headings(Some(layer.layer)), &["bytes", "errors"]].concat();
        table(
            &format!("Operations of {}", layer.layer),
            "",
            SORTABLE,
            &heads,
            &["operation"],
            &rows,
            body,
        );
    }
}

fn charts(columns: &Columns, body: &mut String) {
    let (per, is_many) = columns.extent();
    let note = match (is_many, per) {
        (false, _) => {
            "The run is one interval; with INTERVAL on the command line, time goes from left to right.".to_owned()
        }
        (true, 1) => "Each column is one interval.".to_owned(),
        (true, per) => format!("Each column is {} intervals.", thousands(per)),
    };
    let title = if is_many { "Over time" } else { "Latency" };
    push(
        body,
        format_args!(
            "<section><h2>{title}</h2><p class=\"dim\">{note}</p><div id=\"charts\"></div>\
             <noscript>These pictures need JavaScript; everything else is here.</noscript></section>"
        ),
    );
}

fn not_waited(origins: &[OriginReport], body: &mut String) {
    let each = |ns: u64, origin: &OriginReport| {
        let ns = rounded(ns.into(), origin.requests.into()).unwrap_or(0);
        cell(ns, &time_each(ns))
    };
    let row = |origin: &OriginReport| {
        let direction = if origin.is_write { "write" } else { "read" };
        let name = match origin.origin {
            Origin::Own => "traced threads",
            other => other.name(),
        };
        [
            name_cell(name),
            name_cell(direction),
            cell(origin.requests, &thousands(origin.requests)),
            bytes_cell(Some(origin.bytes)),
            each(origin.queue_ns, origin),
            each(origin.device_ns, origin),
        ]
        .concat()
    };
    let rows: Vec<String> = origins.iter().map(row).collect();
    let heads = [
        "submitted by",
        "direction",
        "requests",
        "bytes",
        "queue avg",
        "device avg",
    ];
    table(
        "Requests that no call waited for",
        "",
        SORTABLE,
        &heads,
        &heads[..2],
        &rows,
        body,
    );
}

fn groups(report: &Report, groups: &GroupsReport, is_sum: bool, body: &mut String) {
    let layers: Vec<Option<Layer>> = match &report.stack {
        Some(_) => vec![None],
        None => report.layers.iter().map(|layer| Some(layer.layer)).collect(),
    };
    for layer in layers {
        let all_ns = groups.total.sums(layer).ns;
        let named = groups.groups.iter().map(|group| (group.who.name(), &group.numbers));
        let others = groups
            .others
            .iter()
            .map(|others| ("others".to_owned(), &others.numbers));
        let rows = named.chain(others).filter(|(_, numbers)| numbers.sums(layer).count > 0);
        let rows: Vec<String> = rows
            .map(|(name, numbers)| group(&name, numbers, layer, all_ns))
            .collect();
        let title = match layer {
            Some(layer) => format!("By {} at {layer}", groups.by.name()),
            None => format!("By {}", groups.by.name()),
        };
        let note = if is_sum {
            "The sum of all intervals. In an interval in which a group was not among the largest, its calls are among the others."
        } else {
            ""
        };
        let by = groups.by.name();
        // A single layer's time has no parts.
        let bars = if layer.is_none() { &[BAR][..] } else { &[] };
        let heads = [&[by][..], &headings(layer), &["bytes"], bars].concat();
        table(&title, note, SORTABLE, &heads, &[by, BAR], &rows, body);
    }
}

fn group(name: &str, of: &Numbers, layer: Option<Layer>, all_ns: u64) -> String {
    let mut histogram = Histogram::default();
    let mut longest = None;
    let families = of.families.iter().filter(|_| layer.is_none());
    let ops = layer.map_or(&[][..], |layer| of.ops(layer)).iter();
    let families = families.map(|family| (&family.histogram, family.extremes));
    for (more, extremes) in families.chain(ops.map(|op| (&op.histogram, op.extremes))) {
        histogram.add(more);
        longest = crate::model::histogram::wider(longest, extremes);
    }
    let sums = of.sums(layer);
    let mut cells = [
        name_cell(name),
        numbers(&histogram, sums.ns, all_ns, longest),
        bytes_cell(Some(sums.bytes)),
    ]
    .concat();
    if layer.is_none() {
        let rows = icicle::sums(&of.families);
        let rows = rows.iter().map(|(name, class, ns)| (*class, (*name).to_owned(), *ns));
        cells.push_str(&bar(rows));
    }
    cells
}

fn slow_calls(calls: &[SlowCall], left_out: u64, body: &mut String) {
    let row = |call: &SlowCall| {
        let bytes = match (call.errno, call.bytes) {
            (Some(errno), _) => cell(0, &errno_name(errno)),
            (None, bytes) => bytes_cell(bytes),
        };
        let rows = call.rows.iter();
        let rows = rows.map(|row| (class(row.row), call.label(row).to_owned(), row.ns));
        let largest = call.largest_row().map_or("-", |row| call.label(row));
        [
            name_cell(&call.ended.strftime("%H:%M:%S%.3f").to_string()),
            cell(call.total_ns, &time_each(call.total_ns)),
            name_cell(call.op.name()),
            name_cell(&format!("{} {}", call.comm, call.pid)),
            bytes,
            name_cell(largest),
            bar(rows),
            name_cell(call.path.as_ref().map_or("…", |path| &path.text)),
        ]
        .concat()
    };
    let rows: Vec<String> = calls.iter().map(row).collect();
    let heads = ["end (UTC)", "time", "call", "process", "bytes", "mostly", BAR, "file"];
    let left = ["end (UTC)", "call", "process", "mostly", BAR, "file"];
    let note = if left_out > 0 {
        format!("{} more slow calls are not listed.", thousands(left_out))
    } else {
        String::new()
    };
    table("Slow calls", &note, SORTABLE, &heads, &left, &rows, body);
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command, Stdio};

    use super::*;

    /// Base64 of bytes whose number is 2 more than a multiple of 3.
    fn base64(bytes: &[u8]) -> String {
        const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let digits = bytes.chunks(3).flat_map(|three| {
            let bits = three.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
            (0..=three.len()).map(move |k| char::from(DIGITS[(bits >> (18 - 6 * k)) as usize & 63]))
        });
        digits.collect::<String>() + "="
    }

    #[test]
    fn the_policy_allows_the_script() {
        let mut sum = Command::new("sha256sum")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        sum.stdin.take().unwrap().write_all(SCRIPT.as_bytes()).unwrap();
        let output = sum.wait_with_output().unwrap();
        let hex = String::from_utf8(output.stdout).unwrap();
        let bytes = (0..32).map(|k| u8::from_str_radix(&hex[2 * k..2 * k + 2], 16).unwrap());
        assert_eq!(
            SCRIPT_HASH,
            base64(&bytes.collect::<Vec<u8>>()),
            "SCRIPT_HASH is of another page.js"
        );
    }
}
