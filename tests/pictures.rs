//! Pictures of hand-written reports: their structure, and names that must not become markup.

mod folder;
#[allow(dead_code, reason = "shared with the golden tests")]
mod scenes;

#[allow(dead_code, reason = "shared with the guests, who need more of it")]
#[path = "vm/guest/process.rs"]
mod process;

use std::fs;
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use folder::Folder;
use iostackbreakdown::compare::compare;
use iostackbreakdown::model::events::Events;
use iostackbreakdown::model::histogram::{Histogram, STEPS, step_of};
use iostackbreakdown::model::ids::{Layer, Op};
use iostackbreakdown::model::report::group::Who;
use iostackbreakdown::model::report::slow::SlowCall;
use iostackbreakdown::model::report::{LayerReport, Report};
use iostackbreakdown::view::svg::svg;
use iostackbreakdown::view::{Html, Screen, Sheet, Svg, View, json};
use process::{Output, run};
use roxmltree::Document;
use serde_json::Value;

/// Far more than a browser needs for a page.
const LIMIT: Duration = Duration::from_secs(120);

/// Markup, a change of direction, a terminal command, and what ends a script or a comment.
const HOSTILE: &str =
    "</title></script><script>alert(1)</script>]]>--><img src=x onerror=alert(1)>\u{202e}\u{1b}[31m&amp;\"'";

/// The reports of all scenes.
fn reports() -> Vec<(&'static str, Report)> {
    let scenes = scenes::all();
    let parts = scenes
        .iter()
        .flat_map(|scene| scene.parts.iter().map(|part| (scene.name, part.report())));
    parts.collect()
}

/// What a view writes for the reports of a run.
fn written(view: &mut dyn View, reports: &[Report]) -> String {
    let mut out = Vec::new();
    let mut sheet = Sheet {
        out: &mut out,
        screen: Screen::default(),
    };
    for report in reports {
        view.report(report, &mut sheet).unwrap();
    }
    view.end(&mut sheet).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn every_picture_is_xml_that_requests_nothing() {
    let mut seen = 0;
    for (name, report) in reports().into_iter().filter(|(_, report)| report.stack.is_some()) {
        let picture = svg(&report);
        let document = Document::parse(&picture).unwrap_or_else(|error| panic!("{name}: {error}"));
        for node in document.descendants().filter(roxmltree::Node::is_element) {
            assert!(
                ["svg", "title", "style", "g", "rect", "text"].contains(&node.tag_name().name()),
                "{name}: {node:?}"
            );
            let is_known = |name: &str| !name.starts_with("on") && !name.contains("href") && name != "src";
            assert!(
                node.attributes().all(|attribute| is_known(attribute.name())),
                "{name}: {node:?}"
            );
        }
        assert!(!picture.contains("url(") && !picture.contains("@import"), "{name}");
        let families = report.stack.iter().flat_map(|stack| &stack.families);
        for family in families.filter(|family| family.total_ns > 0) {
            assert!(
                picture.contains(&format!("{}, ", family.family)),
                "{name}: {}",
                family.family
            );
        }
        seen += 1;
    }
    assert!(seen >= 10, "{seen}");
}

#[test]
fn a_hostile_subject_is_text() {
    let (_, mut report) = reports().into_iter().find(|(name, _)| *name == "stack").unwrap();
    report.subject = HOSTILE.to_owned();
    report.warnings.push(HOSTILE.to_owned());
    let picture = svg(&report);
    let document = Document::parse(&picture).unwrap();
    let texts: Vec<&str> = document.descendants().filter_map(|node| node.text()).collect();
    let shown = HOSTILE.replace(['\u{202e}', '\u{1b}'], "?");
    assert!(texts.contains(&shown.as_str()), "{texts:?}");
    assert!(!picture.contains("<script") && !picture.contains("<img"));
}

#[test]
fn a_run_of_intervals_is_one_picture_of_their_sum() {
    let (_, report) = reports().into_iter().find(|(name, _)| *name == "stack").unwrap();
    let one = written(&mut Svg::default(), std::slice::from_ref(&report));
    let two = written(&mut Svg::default(), &[report.clone(), report.clone()]);
    assert_eq!(one, svg(&report));
    let widths = |picture: &str| -> Vec<String> {
        let document = Document::parse(picture).unwrap();
        let rects = document.descendants().filter(|node| node.has_tag_name("rect"));
        rects
            .filter_map(|rect| rect.attribute("width").map(str::to_owned))
            .collect()
    };
    assert_eq!(widths(&one), widths(&two));
    let sum = {
        let mut sum = report.clone();
        sum.add(&report);
        sum
    };
    assert_eq!(two, svg(&sum));
    assert_ne!(one, two);
    assert_eq!(written(&mut Svg::default(), &[]), "");
}

/// The page of a run.
fn page(reports: &[Report], slow_calls: &[SlowCall]) -> String {
    let mut view = Html::default();
    let events = Events {
        slow_calls: slow_calls.to_vec(),
        ..Events::default()
    };
    let mut sheet = Sheet {
        out: &mut Vec::new(),
        screen: Screen::default(),
    };
    view.events(&events, &mut sheet).unwrap();
    written(&mut view, reports)
}

/// A report of the whole stack, and one by file.
fn stack() -> Report {
    let is_whole = |report: &Report| report.stack.as_ref().is_some_and(|stack| stack.not_waited.is_some());
    let found = reports()
        .into_iter()
        .find(|(name, report)| *name == "stack_by_file" && is_whole(report));
    found.unwrap().1
}

/// Second `second` of a run, which has `share` percent of a report's calls.
fn second(report: &Report, second: usize, share: u64) -> Report {
    let mut report = report.clone();
    report.start += Duration::from_secs(second as u64);
    report.length = Duration::from_secs(1);
    for family in report.stack.iter_mut().flat_map(|stack| &mut stack.families) {
        let mut steps = vec![0; STEPS];
        for bucket in family.histogram.buckets() {
            steps[(step_of(bucket.ge) + second % 7).min(STEPS - 1)] = bucket.count * share / 100 + 1;
        }
        family.histogram = Histogram::from_steps(steps);
        for row in &mut family.rows {
            row.ns = row.ns.map(|ns| ns * share / 100);
        }
    }
    report
}

/// The lines of a page between two others.
fn between<'a>(page: &'a str, begin: &str) -> Vec<&'a str> {
    let lines = page.lines().skip_while(|line| *line != begin).skip(1);
    lines.take_while(|line| *line != "</script>").collect()
}

#[test]
fn a_page_is_inert_and_has_its_data() {
    for (name, mut report) in reports() {
        report.subject = HOSTILE.to_owned();
        report.warnings.push(HOSTILE.to_owned());
        if let Some(group) = report.groups.iter_mut().flat_map(|groups| &mut groups.groups).next() {
            group.who = Who::Cgroup {
                path: HOSTILE.to_owned(),
            };
        }
        let call = SlowCall {
            comm: HOSTILE.to_owned(),
            total_ns: 5_000_000,
            op: Op::Read,
            ended: report.start,
            ..SlowCall::default()
        };
        let page = page(std::slice::from_ref(&report), &[call]);
        // The data, the columns, and the program.
        assert_eq!(page.matches("<script").count(), 3, "{name}");
        assert_eq!(page.matches("</script").count(), 3, "{name}");
        assert!(
            !page.contains("<img") && !page.contains('\u{202e}') && !page.contains('\u{1b}'),
            "{name}"
        );
        for request in ["src=", "href=", "url(", "@import", "fetch(", "http://", "https://"] {
            assert!(!page.replace("img src=", "").contains(request), "{name}: {request}");
        }
        let data = between(&page, "<script type=\"application/json\" id=\"report\">");
        let [line, slow] = data[..] else {
            panic!("{name}: {} lines", data.len())
        };
        let parsed: Value = serde_json::from_str(line).unwrap();
        assert_eq!(parsed["subject"], HOSTILE, "{name}");
        let parsed: Value = serde_json::from_str(slow).unwrap();
        assert_eq!(parsed["slow_call"]["comm"], HOSTILE, "{name}");
    }
}

/// The classes of the cells of a row, without which a cell is at the right edge of its column.
fn are_left(row: &str, cell: &str) -> Vec<bool> {
    let cells = row.split(cell).skip(1);
    cells
        .map(|cell| cell.starts_with(" class=\"name\"") || cell.starts_with("><div class=\"stack\">"))
        .collect()
}

#[test]
fn headings_are_above_what_is_in_their_columns() {
    let slow = SlowCall::default();
    for (name, report) in reports() {
        let page = page(&[report], std::slice::from_ref(&slow));
        let (page, slow_calls) = page.split_once("<h2>Slow calls").unwrap();
        assert!(
            !page.contains("<div class=\"stack\"></div>"),
            "{name}: a bar without parts"
        );
        let page = format!("{page}{slow_calls}");
        for table in page.split("<table").skip(1) {
            let mut rows = table.split("<tr>").skip(1);
            let (head, row) = (rows.next().unwrap(), rows.next().unwrap());
            let row = row.split("</tr>").next().unwrap();
            assert_eq!(are_left(head, "<th"), are_left(row, "<td"), "{name}: {head}\n{row}");
        }
    }
}

#[test]
fn operations_of_blk_are_requests() {
    let found = reports().into_iter().find_map(|(_, report)| {
        let is_blk = |layer: &&LayerReport| layer.layer == Layer::Blk;
        let is_called = report.layers.iter().find(is_blk)?.ops.iter().any(|op| op.count() > 0);
        (report.stack.is_none() && is_called).then_some(report)
    });
    let page = page(&[found.unwrap()], &[]);
    let (_, table) = page.split_once("<h2>Operations of blk</h2>").unwrap();
    let head = table.split("</thead>").next().unwrap();
    assert!(head.contains("<th>requests</th>") && !head.contains("calls"), "{head}");
    let folder = Folder::new("pictures");
    let (dom, _) = browse(&folder.file("blk.html", page), &["--dump-dom"]);
    assert!(dom.contains(">latency: how many requests took how long<"));
}

#[test]
fn compare_reads_pages_as_it_reads_json() {
    let folder = Folder::new("pictures");
    let report = stack();
    let seconds: Vec<Report> = (0..5).map(|k| second(&report, k, 100)).collect();
    let slower: Vec<Report> = (0..5).map(|k| second(&report, k + 20, 150)).collect();
    let mut files: Vec<PathBuf> = Vec::new();
    for (name, reports) in [("a", &seconds), ("b", &slower)] {
        files.push(folder.file(&format!("{name}.html"), page(reports, &[])).into());
        let mut lines = Vec::new();
        for report in reports {
            json::print(report, json::Form::Compact, &mut lines).unwrap();
        }
        files.push(folder.file(&format!("{name}.json"), lines).into());
    }
    let [page_a, json_a, page_b, json_b] = &files[..] else {
        panic!("{files:?}")
    };
    let (from_pages, from_json) = (folder.join("pages.html"), folder.join("json.html"));
    let text = compare(page_a, page_b, Some(&from_pages), None, &mut |_| ()).unwrap();
    assert_eq!(
        text,
        compare(json_a, json_b, Some(&from_json), None, &mut |_| ()).unwrap()
    );
    assert!(text.contains("fsync") && text.contains("journal"), "{text}");
    let [pages, json] = [&from_pages, &from_json].map(|path| fs::read_to_string(path).unwrap());
    assert!(pages == json, "the columns of a page are those of its intervals");
    let columns = between(&pages, "<script type=\"application/json\" id=\"columns\">").concat();
    let columns: Value = serde_json::from_str(&columns).unwrap();
    let names: Vec<&str> = columns
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|run| run["name"].as_str())
        .collect();
    assert_eq!(names, ["before", "after"]);
    assert_eq!(columns[1]["columns"].as_array().unwrap().len(), 5);
    let error = compare(&from_pages, json_a, None, None, &mut |_| ()).unwrap_err();
    assert!(error.contains("no report"), "{error}");
}

#[test]
fn many_intervals_become_few_columns_without_losing_a_call() {
    let report = stack();
    let seconds: Vec<Report> = (0..3600).map(|k| second(&report, k, 50 + k as u64 % 50)).collect();
    let calls: u64 = seconds
        .iter()
        .map(|report| report.stack.as_ref().unwrap().families[0].count())
        .sum();
    let page = page(&seconds, &[]);
    assert!(page.len() <= 3_000_000, "{} bytes", page.len());
    assert!(page.contains("Each column is 4 intervals."), "of 3,600 intervals");
    let columns = between(&page, "<script type=\"application/json\" id=\"columns\">").concat();
    let columns: Value = serde_json::from_str(&columns).unwrap();
    let columns = columns[0]["columns"].as_array().unwrap();
    assert_eq!(columns.len(), 900);
    // After the number of the first step come the counts.
    let counts = columns
        .iter()
        .flat_map(|column| column[2][0][1].as_array().unwrap()[1..].iter());
    assert_eq!(counts.filter_map(Value::as_u64).sum::<u64>(), calls);
    let ends = columns
        .iter()
        .map(|column| (column[0].as_u64().unwrap(), column[1].as_u64().unwrap()));
    let expected = (0..900).map(|k| (k * 4_000, 4_000_000_000));
    assert!(ends.eq(expected));

    let folder = Folder::new("pictures");
    let (dom, _) = browse(&folder.file("long.html", page), &["--dump-dom"]);
    let drawn = dom
        .split("data-drawn=\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next());
    let ms = drawn
        .and_then(|drawn| drawn.split(' ').nth(2))
        .and_then(|ms| ms.parse::<u64>().ok());
    assert!(ms.is_some_and(|ms| ms <= 2000), "{drawn:?}");
}

#[test]
fn a_browser_draws_a_page_without_complaint() {
    let report = stack();
    let seconds: Vec<Report> = (0..60).map(|k| second(&report, k, 50 + k as u64 % 50)).collect();
    let folder = Folder::new("pictures");
    let path = folder.file("page.html", page(&seconds, &[]));
    let picture = folder.join("page.png");
    let shot = format!("--screenshot={}", picture.display());
    for (scheme, back) in [("1", [255, 255, 255]), ("0", [0x14, 0x18, 0x1d])] {
        let scheme = format!("--blink-settings=preferredColorScheme={scheme}");
        let (_, said) = browse(&path, &["--window-size=1200,2000", &scheme, &shot]);
        assert!(!said.contains("CONSOLE"), "{said}");
        let pixels = pixels(&fs::read(&picture).unwrap());
        assert_eq!(pixels[0], back);
        let count = |is: &dyn Fn(&[u8; 3]) -> bool| pixels.iter().filter(|pixel| is(pixel)).count();
        let device = count(&|pixel| *pixel == [0xfc, 0x8d, 0x59]);
        assert!(device > 5_000, "{device} pixels of the row device");
        // The middle of the scale of colours has more blue than red, as no row has.
        let heat = count(&|[r, g, b]| *r < 90 && *b > 120 && *b > *g);
        assert!(heat > 5_000, "{heat} pixels of heat maps");
    }
    let pdf = folder.join("page.pdf");
    browse(&path, &[&format!("--print-to-pdf={}", pdf.display())]);
    let pdf = fs::read(pdf).unwrap();
    assert!(pdf.starts_with(b"%PDF") && pdf.len() > 20_000, "{} bytes", pdf.len());
}

#[test]
fn a_pointer_on_a_picture_shows_its_numbers() {
    let report = stack();
    let seconds: Vec<Report> = (0..2).map(|k| second(&report, k, 100)).collect();
    let page = page(&seconds, &[]);
    // The policy would forbid the test's own script.
    let policy = page.find("<meta http-equiv").unwrap();
    let end = policy + page[policy..].find('>').unwrap() + 1;
    let script = "<script>const texts=[];for(const canvas of document.querySelectorAll('canvas')){const box=canvas.getBoundingClientRect();\
        for(let y=7;y<172;y+=.5){canvas.dispatchEvent(new MouseEvent('mousemove',{clientX:box.left+box.width*.4,clientY:box.top+y}));\
        texts.push(document.getElementById('hint').textContent)}}document.body.append(texts.join('\\n'))</script>";
    let changed = [
        &page[..policy],
        &page[end..].replace("</body>", &format!("{script}</body>")),
    ]
    .concat();
    let folder = Folder::new("pictures");
    let (dom, said) = browse(&folder.file("hover.html", changed), &["--dump-dom"]);
    assert!(!said.contains("CONSOLE"), "{said}");
    let first = &seconds[0].stack.as_ref().unwrap().families[0].histogram;
    let bucket = first.buckets().next().unwrap();
    let [bucket, all] = [
        format!(": {} calls", bucket.count),
        format!("% of {} took at most that long", first.count()),
    ];
    let dom = dom.replace(',', "");
    for expected in [&bucket, &all, "from +0.0 s", "threads inside", "device "] {
        assert!(dom.contains(expected), "{expected}");
    }
}

#[test]
fn hostile_names_run_nothing_in_a_browser() {
    let mut report = stack();
    report.subject = HOSTILE.to_owned();
    let call = SlowCall {
        comm: HOSTILE.to_owned(),
        op: Op::Read,
        ended: report.start,
        ..SlowCall::default()
    };
    let folder = Folder::new("pictures");
    let (dom, said) = browse(&folder.file("page.html", page(&[report], &[call])), &["--dump-dom"]);
    assert!(!said.contains("CONSOLE"), "{said}");
    assert_eq!(dom.matches("<script").count(), 3);
    assert!(!dom.contains("<img") && dom.contains("data-drawn="));
}

/// What a browser prints about a page, and on standard error with the messages of its console.
///
/// The browser itself crashes at times: that is repeated, so that only a page that crashes it each time fails.
fn browse(page: &str, options: &[&str]) -> (String, String) {
    const ATTEMPTS: usize = 3;
    let output = (0..ATTEMPTS)
        .map(|attempt| run_browser(page, options, attempt))
        .find(|output| output.status.signal().is_none())
        .unwrap_or_else(|| panic!("chromium has crashed {ATTEMPTS} times"));
    assert_eq!(output.status.code(), Some(0), "{}", output.stderr);
    (output.stdout, output.stderr)
}

fn run_browser(page: &str, options: &[&str], attempt: usize) -> Output {
    let profile = Path::new(page).with_extension(format!("profile{attempt}"));
    let mut browser = Command::new("chromium");
    browser
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--enable-logging=stderr",
        ])
        .args([
            "--virtual-time-budget=10000",
            &format!("--user-data-dir={}", profile.display()),
        ])
        .args(options)
        .arg(format!("file://{}", page));
    run(&mut browser, LIMIT).unwrap_or_else(|error| panic!("chromium, which tests/run installs: {error}"))
}

/// The colours of a PNG of 8 bits per channel without interlacing, row by row.
fn pixels(png: &[u8]) -> Vec<[u8; 3]> {
    let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap()) as usize;
    let (width, channels) = (number(16), if png[25] == 6 { 4 } else { 3 });
    let (mut at, mut data) = (8, Vec::new());
    while at < png.len() {
        let length = number(at);
        if &png[at + 4..at + 8] == b"IDAT" {
            data.extend_from_slice(&png[at + 8..at + 8 + length]);
        }
        at += length + 12;
    }
    let mut bytes = Vec::new();
    flate2::read::ZlibDecoder::new(&data[..])
        .read_to_end(&mut bytes)
        .unwrap();
    let mut above = vec![0_u8; width * channels];
    let mut colours = Vec::new();
    for line in bytes.chunks(width * channels + 1) {
        let mut row = line[1..].to_vec();
        for k in 0..row.len() {
            let left = if k < channels { 0 } else { row[k - channels] };
            let corner = if k < channels { 0 } else { above[k - channels] };
            let (a, b, c) = (i32::from(left), i32::from(above[k]), i32::from(corner));
            let predicted = match line[0] {
                0 => 0,
                1 => a,
                2 => b,
                3 => (a + b) / 2,
                _ => {
                    let p = a + b - c;
                    let of = |x: i32| (p - x).abs();
                    if of(a) <= of(b) && of(a) <= of(c) {
                        a
                    } else if of(b) <= of(c) {
                        b
                    } else {
                        c
                    }
                }
            };
            row[k] = row[k].wrapping_add(predicted as u8);
        }
        colours.extend(row.chunks(channels).map(|pixel| [pixel[0], pixel[1], pixel[2]]));
        above = row;
    }
    colours
}
