use super::super::example;
use super::super::key::Key;
use super::super::model::{Facts, GROUPS_IN_OVERVIEW};
use super::*;
use crate::printable::is_printable;

const BEST: Look = Look {
    is_utf8: true,
    is_colored: true,
};

fn drawn(model: &Model, look: Look, size: (u16, u16)) -> Buffer {
    let area = Rect::new(0, 0, size.0, size.1);
    let mut buffer = Buffer::empty(area);
    draw(model, look, area, &mut buffer);
    buffer
}

fn screen(model: &Model, look: Look, size: (u16, u16)) -> Vec<String> {
    let buffer = drawn(model, look, size);
    let cells: Vec<&str> = buffer.content().iter().map(|cell| cell.symbol()).collect();
    cells.chunks(size.0.into()).map(|line| line.concat()).collect()
}

#[test]
fn the_overview_has_no_lines_for_more_groups_than_are_made_for_it() {
    for all in 0..=1_000 {
        let [latency, groups, slow, disks] = heights(all);
        assert_eq!(latency + groups + slow + disks, all);
        assert!(usize::from(groups) <= GROUPS_IN_OVERVIEW, "{groups} of {all}");
    }
}

fn pressed(keys: &str) -> Model {
    let mut model = example::model(40);
    keys.chars().for_each(|key| {
        model.handle(Key::Char(key));
        example::settle(&mut model);
    });
    model
}

/// The views, by the keys that show them.
const VIEWS: [(&str, &str); 8] = [
    ("overview", ""),
    ("latency", "2"),
    ("groups", "3"),
    ("files", "3gggg"),
    ("slow_calls", "4"),
    ("disks", "5"),
    ("limits", "6"),
    ("help", "?"),
];
const SIZES: [(u16, u16); 4] = [(60, 14), (80, 24), (100, 30), (200, 60)];

/// Each view as it is drawn, in `tests/screens`; `UPDATE_GOLDEN=1` rewrites the files: review the difference.
#[test]
fn every_view_is_as_recorded() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/screens");
    let mut wrong = Vec::new();
    for (name, keys) in VIEWS {
        for (width, height) in SIZES {
            let screen = screen(&pressed(keys), BEST, (width, height));
            let text: String = screen.iter().map(|line| format!("{}\n", line.trim_end())).collect();
            let path = folder.join(format!("{name}_{width}x{height}.txt"));
            if std::fs::read_to_string(&path).unwrap_or_default() != text {
                if std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1") {
                    std::fs::create_dir_all(&folder).unwrap();
                    std::fs::write(&path, &text).unwrap();
                }
                wrong.push(format!("{}:\n{text}", path.display()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "UPDATE_GOLDEN=1 rewrites the files\n{}",
        wrong.join("\n")
    );
}

/// The numbers on the screen are those of the report of the second.
#[test]
fn the_numbers_are_those_of_the_report() {
    let mut model = example::model(12);
    for _ in 0..12 {
        let shown = model.shown.as_ref().unwrap();
        let lines = screen(&model, BEST, (120, 40));
        for family in &shown.report.stack.as_ref().unwrap().families {
            let Some(line) = lines.iter().find(|line| line[1..].starts_with(family.family.name())) else {
                assert_eq!(family.count(), 0);
                continue;
            };
            // A broken limit is marked after the numbers.
            let cells: Vec<&str> = line[10..39].split_whitespace().collect();
            let threads = format!("{:.2}", family.total_ns as f64 / 1e9);
            let average = canvas::tiny(family.total_ns / family.count());
            let p99 = family.histogram.quantile(0.99, family.extremes);
            let p99 = p99.map_or_else(|| "-".to_owned(), canvas::tiny);
            assert_eq!(cells, [thousands(family.count()), threads, average, p99], "{line}");
        }
        model.handle(Key::Left);
        example::settle(&mut model);
    }
}

/// Recordings of single layers have calls, but none in a family.
#[test]
fn without_the_whole_stack_no_rate_of_calls_is_shown() {
    let mut model = Model::new(example::facts());
    let mut report = example::report(3);
    report.stack = None;
    model.second(report, example::slow(3), example::beside(3));
    let text = screen(&model, BEST, (200, 40)).join("\n");
    assert!(!text.contains(" calls/s") && !text.contains("no I/O calls"), "{text}");
    let whole = screen(&example::model(4), BEST, (200, 40)).join("\n");
    assert!(whole.contains(" calls/s"), "{whole}");
}

#[test]
fn any_size_is_drawn_and_small_ones_say_so() {
    for (_, keys) in VIEWS {
        let model = pressed(keys);
        for width in [1, 5, 20, 59, 60, 61, 77, 78, 79, 99, 120, 300] {
            for height in [1, 2, 5, 13, 14, 15, 24, 100] {
                let lines = screen(&model, BEST, (width, height));
                let is_small = width < SMALLEST.0 || height < SMALLEST.1;
                if is_small && width >= 50 {
                    assert!(lines[0].contains("too small"), "{lines:?}");
                } else if !is_small {
                    assert!(lines[0].starts_with(" IOStackBreakdown"), "{lines:?}");
                }
            }
        }
    }
    let empty = Model::new(example::facts());
    for size in SIZES {
        assert!(screen(&empty, BEST, size)[1].contains("first second"));
    }
}

#[test]
fn names_command_no_terminal_and_need_no_utf8() {
    for (name, keys) in VIEWS {
        for is_utf8 in [true, false] {
            let look = Look {
                is_utf8,
                is_colored: false,
            };
            for size in SIZES {
                for line in screen(&pressed(keys), look, size) {
                    assert!(line.chars().all(is_printable), "{name}: {line:?}");
                    assert!(is_utf8 || line.is_ascii(), "{name}: {line:?}");
                }
            }
        }
    }
}

/// Without colours there are none; the text is the same.
#[test]
fn colours_add_nothing_to_read() {
    let look = Look {
        is_utf8: true,
        is_colored: false,
    };
    for (name, keys) in VIEWS {
        let model = pressed(keys);
        assert_eq!(
            screen(&model, look, (100, 30)),
            screen(&model, BEST, (100, 30)),
            "{name}"
        );
        let reset = ratatui_core::style::Color::Reset;
        let buffer = drawn(&model, look, (100, 30));
        assert!(
            buffer.content().iter().all(|cell| cell.fg == reset && cell.bg == reset),
            "{name}"
        );
    }
}

#[test]
fn the_column_by_which_a_list_is_sorted_is_marked_without_colours() {
    let look = Look {
        is_colored: false,
        ..BEST
    };
    let marked = |keys: &str| -> String {
        let buffer = drawn(&pressed(keys), look, (80, 24));
        let reversed = |cell: &&ratatui_core::buffer::Cell| {
            let modifier = cell.modifier;
            modifier.contains(ratatui_core::style::Modifier::REVERSED)
        };
        let below = buffer.content().iter().skip(80);
        below.filter(reversed).map(|cell| cell.symbol()).collect()
    };
    assert!(marked("").contains(" threads"), "{}", marked(""));
    assert!(marked("s").contains("call/s") && !marked("s").contains("threads"));
}

#[test]
fn the_state_is_in_the_first_line() {
    let mut model = example::model(5);
    let first = |model: &Model| screen(model, BEST, (100, 30)).remove(0);
    assert!(first(&model).contains("03:00:04 LIVE  lost 0"), "{}", first(&model));
    model.handle(Key::Left);
    example::settle(&mut model);
    assert!(first(&model).contains("03:00:03 PAUSED -1 s"), "{}", first(&model));
    model.facts.recording = Some("x.iosb".to_owned());
    assert!(first(&model).contains("REC  lost 0"));
    let facts = Facts {
        shows: Shows::Recording("x.iosb".to_owned()),
        missing: Some("not measured: vfs, ext4 (refused)".to_owned()),
        ..example::facts()
    };
    let mut model = example::with(facts, 5);
    assert!(
        first(&model).contains("x.iosb") && first(&model).contains("PAUSED 1/5"),
        "{}",
        first(&model)
    );
    model.handle(Key::Char(' '));
    assert!(first(&model).contains("PLAY 1/5"));
    let lines = screen(&model, BEST, (80, 24));
    assert!(
        lines
            .iter()
            .any(|line| line.contains("not measured: vfs, ext4 (refused)"))
    );
}

#[test]
fn lost_records_are_said() {
    let mut model = example::model(2);
    let is_said = |model: &Model| {
        let lines = screen(model, BEST, (80, 24));
        lines
            .iter()
            .any(|line| line.contains("INCOMPLETE: 886 records of this second were lost"))
    };
    assert!(!is_said(&model));
    let moment = model.shown.as_mut().and_then(|shown| shown.beside.moment.as_mut());
    moment.unwrap().lost = 886;
    assert!(is_said(&model));
    model.shown.as_mut().unwrap().beside.trouble = Some("blk: LOST 3 of 9 requests".to_owned());
    let lines = screen(&model, BEST, (80, 24));
    assert!(
        lines.iter().any(|line| line.contains("blk: LOST 3 of 9 requests")),
        "{lines:?}"
    );
}

#[test]
fn the_last_line_has_keys_a_filter_or_a_message() {
    let last = |keys: &str| screen(&pressed(keys), BEST, (80, 24)).pop().unwrap();
    assert!(last("").starts_with(" q quit  ? help"), "{}", last(""));
    assert!(last("/post").contains("filter: post_"));
    let mut model = pressed("/tar");
    model.handle(Key::Enter);
    let line = screen(&model, BEST, (80, 24)).pop().unwrap();
    assert!(line.trim_end().ends_with("Enter in        filter: tar"), "{line:?}");
    model.message = Some("written to a file: 6 seconds".to_owned());
    let line = screen(&model, BEST, (60, 14)).pop().unwrap();
    assert_eq!(line.trim_end(), " written to a file: 6 seconds");
    model.message = Some("written to io-db7-20261125-021451.iosb: 6 seconds, without single calls".to_owned());
    for (is_utf8, ellipsis) in [(true, "…"), (false, "...")] {
        let look = Look { is_utf8, ..BEST };
        let line = screen(&model, look, (60, 14)).pop().unwrap();
        assert_eq!(
            line.trim_end(),
            format!(" written to io-db7-20261125-021451.iosb: 6 seconds,{ellipsis}")
        );
    }
}

#[test]
fn the_smallest_terminal_shows_whole_words() {
    let line = |keys: &str, start: &str| {
        let lines = screen(&pressed(keys), BEST, SMALLEST);
        let line = lines.iter().find(|line| line[1..].starts_with(start));
        line.unwrap_or_else(|| panic!("{start}: {lines:?}"))
            .trim_end()
            .to_owned()
    };
    assert_eq!(
        line("", "s sys"),
        " s sys v vfs f fs q que D dev o oIO J jou L lck . oth r run"
    );
    assert!(line("", "[process]").starts_with(" [process] ─"));
    assert!(
        line("4", "14:00:38").ends_with(" *journal 75 %"),
        "{}",
        line("4", "14:00:38")
    );
    let mut model = pressed("6");
    model.facts.limits.clear();
    let lines = screen(&model, BEST, SMALLEST);
    assert!(
        lines.iter().any(|line| line.trim_end().ends_with(" marks…")),
        "{lines:?}"
    );
    let facts = Facts {
        subject: "PID 4711 (postgres)".to_owned(),
        ..example::facts()
    };
    let first = screen(&example::with(facts, 5), BEST, SMALLEST).remove(0);
    assert!(first.starts_with(" db7  PID 4711 (postgres) "), "{first}");
    assert!(screen(&model, BEST, (40, 10))[0].starts_with("60 x 14 is needed; q quits  "));
}

/// With all that may be above them, lists have few lines in the smallest terminal.
#[test]
fn lists_leave_the_last_line_to_the_keys() {
    for (name, keys) in &VIEWS[..VIEWS.len() - 1] {
        let mut model = pressed(keys);
        model.facts.missing = Some("not measured: vfs, ext4".to_owned());
        let beside = &mut model.shown.as_mut().unwrap().beside;
        beside.trouble = Some("blk: LOST 3 of 9 requests".to_owned());
        beside.moment.as_mut().unwrap().lost = 886;
        let line = screen(&model, BEST, SMALLEST).pop().unwrap();
        assert_eq!(
            line.trim_end(),
            " q quit  ? help  space pause  <- -> step  Tab view  Enter in",
            "{name}"
        );
    }
}

#[test]
fn the_parts_of_the_overview_fill_it() {
    for all in 0..200 {
        let parts = heights(all);
        assert_eq!(parts.iter().sum::<u16>(), all);
        assert!(parts[1] >= all.min(2), "{parts:?}");
    }
    assert_eq!(heights(3), [0, 3, 0, 0]);
    assert_eq!(heights(6), [0, 4, 2, 0]);
}

/// A single character in place of what is left out could be part of the name.
#[test]
fn names_are_shortened_with_three_points_without_utf8() {
    let area = Rect::new(0, 0, 80, 24);
    let mut buffer = Buffer::empty(area);
    let look = Look { is_utf8: false, ..BEST };
    let canvas = Canvas::new(&mut buffer, area, look);
    assert_eq!(canvas.name("/srv/a/b/base/16384/2619", 22), "/srv/.../16384/2619");
    assert_eq!(canvas.name("…/base/2619", 13), ".../base/2619");
    assert_eq!(canvas.name("…/base/2619", 12), ".../2619");
    assert_eq!(canvas.name("/srv/2619", 9), "/srv/2619");
}

#[test]
fn a_limit_that_is_broken_is_marked() {
    let mut model = example::model(4);
    let fsync = |model: &Model| {
        let lines = screen(model, BEST, (80, 24));
        lines.into_iter().find(|line| line[1..].starts_with("fsync")).unwrap()
    };
    assert!(fsync(&model).contains('!'), "{}", fsync(&model));
    model.handle(Key::Left);
    example::settle(&mut model);
    assert!(!fsync(&model).contains('!'));
}
