//! Pictures of hand-written reports: their structure, and names that must not become markup.

#[allow(dead_code, reason = "shared with the golden tests")]
mod scenes;

use iostackbreakdown::model::report::Report;
use iostackbreakdown::view::svg::svg;
use iostackbreakdown::view::{Screen, Sheet, Svg, View};
use roxmltree::Document;

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
