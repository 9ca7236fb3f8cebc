//! Hand-written reports, printed and compared byte for byte with the files of `tests/golden`.
//!
//! `UPDATE_GOLDEN=1 cargo test --test golden` rewrites the files and fails if it changed one, so that no change goes
//! unnoticed: review the difference, then run the test again without the variable.

#[allow(dead_code, reason = "shared with the tests of JSON, and with the checks in guests")]
mod scenes;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use iostackbreakdown::model::histogram::{Histogram, STEPS, step_of};
use iostackbreakdown::model::ids::{Layer, Op};
use iostackbreakdown::model::report::{
    Agreement, Diskstats, Excluded, LayerReport, LossReason, OpReport, Report, SetAside,
};
use iostackbreakdown::view::json::{self, Form, form};
use iostackbreakdown::view::text::{self, TextOptions};
use scenes::kept::Kept;
use scenes::reader::{self, Way};
use scenes::{MICROSECONDS, MILLISECONDS, NANOSECONDS, SUMMARY, layer, loss, read, report, requests};

/// The histogram of DESIGN.md, section 3.
const DESIGN_ROWS: &str = "\
operation = read
     nsecs               : count     distribution
     65536 -> 131071     : 1532     |********************************        |
    131072 -> 262143     : 1901     |****************************************|
    262144 -> 524287     : 377      |*******                                 |
    524288 -> 1048575    : 41       |                                        |
   1048576 -> 2097151    : 9        |                                        |
";

/// The name of each golden file, and the current output for it.
fn cases() -> Vec<(&'static str, String)> {
    let text = |scene: &scenes::Scene| -> String {
        let parts = scene.parts.iter();
        parts.map(|part| printed(&part.report(), part.options)).collect()
    };
    scenes::all().iter().map(|scene| (scene.name, text(scene))).collect()
}

/// Scenes that are also kept with colours.
const COLORED: &[&str] = &[
    "by_file",
    "requests_and_trouble",
    "stack_by_cgroup_interval",
    "stack_interval",
    "stack_slow",
    "stack_trouble",
    "trouble",
];

/// The same with colours. The files have a visible character in place of ESC.
fn colored_cases() -> Vec<(String, String)> {
    let scenes = scenes::all();
    let scenes = scenes.iter().filter(|scene| COLORED.contains(&scene.name));
    let cases = scenes.map(|scene| {
        let parts = scene.parts.iter();
        let text: String = parts.map(|part| colored(&part.report(), part.options)).collect();
        (format!("{}_colored", scene.name), text.replace('\x1b', "␛"))
    });
    cases.collect()
}

fn colored(report: &Report, options: TextOptions) -> String {
    let options = TextOptions {
        is_colored: true,
        ..options
    };
    printed(report, options)
}

/// A text without the commands of colours.
fn without_colors(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default();
    let rest = parts.map(|part| part.split_once('m').map_or("", |(_, rest)| rest));
    std::iter::once(first).chain(rest).collect()
}

#[test]
fn colours_change_no_character() {
    let mut marked = BTreeSet::new();
    for scene in scenes::all() {
        for part in &scene.parts {
            let (with, without) = (
                colored(&part.report(), part.options),
                printed(&part.report(), part.options),
            );
            assert_eq!(without_colors(&with), without, "{}", scene.name);
            assert!(!without.contains('\x1b'), "{}", scene.name);
            // No colour goes over the end of a line, where a pager or a search would cut it.
            for line in with.lines() {
                assert_eq!(
                    line.matches("\x1b[").count(),
                    2 * line.matches("\x1b[0m").count(),
                    "{line:?}"
                );
            }
            marked.extend(
                ["1;35m", "1;31m", "2m", "33m"]
                    .into_iter()
                    .filter(|mark| with.contains(*mark)),
            );
        }
    }
    assert_eq!(marked.len(), 4, "{marked:?}");
}

#[test]
fn reports_are_as_recorded() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1");
    let mut complaints = String::new();
    let all = cases().into_iter().map(|(name, text)| (name.to_owned(), text));
    for (name, now) in all.chain(colored_cases()) {
        let path = golden(&name);
        let recorded = fs::read_to_string(&path).unwrap_or_default();
        if recorded == now {
            continue;
        }
        if update {
            fs::write(&path, &now).unwrap();
            writeln!(complaints, "{}: rewritten", path.display()).unwrap();
        } else {
            writeln!(complaints, "{}: {}", path.display(), first_difference(&recorded, &now)).unwrap();
        }
    }
    assert!(
        complaints.is_empty(),
        "UPDATE_GOLDEN=1 rewrites the files\n{complaints}"
    );
}

#[test]
fn every_golden_file_has_a_scene() {
    let files: BTreeSet<PathBuf> = fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    let used = cases().into_iter().map(|(name, _)| golden(name));
    let colored = colored_cases();
    assert_eq!(colored.len(), COLORED.len());
    let used: BTreeSet<PathBuf> = used.chain(colored.iter().map(|(name, _)| golden(name))).collect();
    assert_eq!(files, used);
}

/// The rows of DESIGN.md, section 3, that one histogram can produce.
#[test]
fn requests_have_a_queue_column_and_calls_have_none() {
    let text = printed(&report(vec![requests()]), SUMMARY);
    assert!(
        text.contains("operation     count   total ms  queued  avg us"),
        "{text}"
    );
    assert!(text.contains("read          3,860      667.0   8.0 %"), "{text}");
    assert!(
        text.contains("diskstats agrees: 3,867 reads, 412 writes, 24 flushes (7 unfinished at start)"),
        "{text}"
    );
    assert!(!printed(&report(vec![layer(Layer::Vfs, vec![read()])]), SUMMARY).contains("queued"));
}

#[test]
fn histogram_rows_are_those_of_the_design() {
    let text = printed(&report(vec![layer(Layer::Vfs, vec![read()])]), NANOSECONDS);
    assert!(text.contains(DESIGN_ROWS), "{text}");
}

#[test]
fn without_slots_in_the_unit_the_rows_are_in_nanoseconds() {
    let uncounted = OpReport {
        unit_slots: Vec::new(),
        ..read()
    };
    let text = printed(&report(vec![layer(Layer::Vfs, vec![uncounted])]), MICROSECONDS);
    assert!(text.contains(DESIGN_ROWS), "{text}");
}

#[test]
fn reports_fit_their_width_and_have_no_stray_blanks() {
    for (name, text) in cases() {
        assert_narrow(name, &text, width_of(name));
        assert!(
            text.lines().all(|line| !line.ends_with(' ')),
            "{name}: blanks at the end of a line"
        );
        assert!(
            text.ends_with("\n\n") && !text.contains("\n\n\n"),
            "{name}: paragraphs are separated by one blank line"
        );
    }
}

#[test]
fn large_numbers_do_not_exceed_the_width() {
    let numbers: Vec<u64> = (0..20)
        .map(|digits| 10_u64.pow(digits) - 1)
        .chain([u64::MAX / 1000, u64::MAX])
        .collect();
    for count in &numbers {
        for other in &numbers {
            for op in [Op::Read, Op::SyncFileRange] {
                let mut steps = vec![0; STEPS];
                steps[step_of(*other)] = *count;
                let op = OpReport {
                    total_ns: *other,
                    bytes: Some(*other),
                    extremes: Some((0, *other)),
                    histogram: Histogram::from_steps(steps),
                    errors: vec![(5, *other), (12345, *other)],
                    queued: *other,
                    queue_ns: Some(*other),
                    set_aside: SetAside {
                        at_start: *other,
                        never_issued: *other,
                        by_kernel: *other,
                        unowned: *other,
                        untimed: *other,
                    },
                    unit_slots: vec![0, *count, *other],
                    ..OpReport::new(op)
                };
                let report = report(vec![LayerReport {
                    excluded: Excluded {
                        socket: *other,
                        pipe: *count,
                        character_device: *other,
                        other: *count,
                    },
                    in_flight: Some(*other),
                    losses: vec![loss(LossReason::EntryMissed, *other, true)],
                    diskstats: Some(Diskstats {
                        reads: *other,
                        writes: *other,
                        discards: *other,
                        flushes: Some(*other),
                        agreement: Agreement::Agrees,
                    }),
                    ..layer(Layer::Syscall, vec![op])
                }]);
                for options in [NANOSECONDS, MICROSECONDS, MILLISECONDS] {
                    assert_narrow(
                        &format!("{count} calls, {other}, {options:?}"),
                        &printed(&report, options),
                        text::WIDTH,
                    );
                }
            }
        }
    }
}

/// The report as text. Asserts that the report survives serialization (for `--from-snapshots`) with the same text and
/// JSON, and that JSON is read back.
fn printed(report: &Report, options: TextOptions) -> String {
    let text = |report: &Report| {
        let mut out = Vec::new();
        text::print(report, &options, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let json = |report: &Report| {
        let mut out = Vec::new();
        json::print(report, Form::Full, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let bytes = postcard::to_allocvec(report).unwrap();
    let back: Report = postcard::from_bytes(&bytes).unwrap();
    assert_eq!((text(&back), json(&back)), (text(report), json(report)));
    let back: form::Report = serde_json::from_str(&json(report)).unwrap();
    assert_eq!(back, form::Report::from(report));
    text(report)
}

/// The width of the terminal of a golden file, in columns.
fn width_of(name: &str) -> usize {
    match name {
        "narrow" => 60,
        "less_narrow" => 120,
        "wide" => 200,
        _ => text::WIDTH,
    }
}

/// Asserts the maximum width, except for lines with the name of a file, which is not shortened.
fn assert_narrow(name: &str, text: &str, width: usize) {
    for line in text.lines().filter(|line| !line.starts_with("file = …/a/long/way/")) {
        assert!(
            line.chars().count() <= width,
            "{name}: {} columns: {line}",
            line.chars().count()
        );
    }
}

fn first_difference(recorded: &str, now: &str) -> String {
    let (mut was, mut is) = (recorded.lines(), now.lines());
    for number in 1.. {
        match (was.next(), is.next()) {
            (None, None) => break,
            (a, b) if a == b => {}
            (a, b) => return format!("line {number}\n  recorded: {a:?}\n  now:      {b:?}"),
        }
    }
    String::from("differs in line ends only")
}

fn golden(name: &str) -> PathBuf {
    folder().join(name).with_extension("txt")
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// The counters that a run would have had give the same report. Probes and hooks are not compared, because most scenes
/// do not specify them.
#[test]
fn counters_of_every_scene_give_its_report() {
    for scene in scenes::all() {
        for part in &scene.parts {
            let by_hand = part.report();
            let mut made = Kept::of(part).report();
            made.probes.clone_from(&by_hand.probes);
            for (layer, by_hand) in made.layers.iter_mut().zip(&by_hand.layers) {
                layer.hooks.clone_from(&by_hand.hooks);
            }
            let [made, by_hand] = [made, by_hand].map(|report| printed(&report, part.options));
            assert!(made == by_hand, "{}: {}", scene.name, first_difference(&by_hand, &made));
        }
    }
}

/// The tool, as a process without privileges, prints the same report from saved counters, in every format.
#[test]
fn every_scene_is_printed_from_saved_counters() {
    let folder = std::env::temp_dir().join(format!("iosb-scenes-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let [tool, saved] = ["tool", "saved"].map(|name| folder.join(name));
    fs::copy(env!("CARGO_BIN_EXE_IOStackBreakdown"), &tool).unwrap();
    for scene in scenes::all() {
        for part in &scene.parts {
            let kept = Kept::of(part);
            kept.save(&saved).unwrap();
            for way in Way::ALL {
                let (expected, printed) = (
                    reader::expected(part, &kept, way),
                    reader::printed(&tool, &saved, part, way),
                );
                let printed = printed.unwrap_or_else(|error| panic!("{} as {way:?}: {error}", scene.name));
                let difference = first_difference(&expected, &printed);
                assert!(printed == expected, "{} as {way:?}: {difference}", scene.name);
            }
        }
    }
    fs::remove_dir_all(&folder).unwrap();
}
