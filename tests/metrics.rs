//! Metrics: the page that is made of a report, and what reads it: rules, alerts and the dashboard.

mod dashboard;
#[allow(dead_code, reason = "shared with the tests of every other report")]
mod scenes;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use iostackbreakdown::model::ids::{By, Layer};
use iostackbreakdown::model::report::group::{GroupReport, GroupsReport, Numbers, OthersReport, Who};
use iostackbreakdown::model::report::{LayerReport, LossReason, Report};
use iostackbreakdown::model::sample::Sample;
use iostackbreakdown::view::metrics::{GROUPS, Metrics};
use scenes::stacks;
use serde_json::json;

/// The value of each series, by its name with labels.
fn series(page: &str) -> BTreeMap<String, f64> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    let parsed = lines.map(|line| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap())
    });
    let all: Vec<(String, f64)> = parsed.collect();
    let count = all.len();
    let series: BTreeMap<_, _> = all.into_iter().collect();
    assert_eq!(series.len(), count, "a series appears twice");
    series
}

/// The sum of the series of a metric that have this label.
fn sum(series: &BTreeMap<String, f64>, metric: &str, label: &str) -> f64 {
    let start = format!("{metric}{{");
    let chosen = series
        .iter()
        .filter(|(name, _)| name.starts_with(&start) && name.contains(label));
    chosen.map(|(_, value)| value).sum()
}

fn database() -> Report {
    Report {
        kernel: "6.1.0-50-amd64".to_owned(),
        stack: Some(stacks::database()),
        ..Report::default()
    }
}

/// A report of these processes, each with the calls of [`database`] this many times.
fn processes(names: &[(String, u64)], others: u64) -> Report {
    let times = |times: u64| {
        let mut numbers = Numbers::default();
        let one = Numbers {
            families: stacks::database().families,
            ..Numbers::default()
        };
        (0..times).for_each(|_| numbers.add(&one));
        numbers
    };
    let group = |(comm, n): &(String, u64)| GroupReport {
        who: Who::Process {
            pid: 1,
            comm: comm.clone(),
        },
        numbers: times(*n),
    };
    Report {
        groups: Some(GroupsReport {
            by: By::Process,
            groups: names.iter().map(group).collect(),
            others: Some(OthersReport {
                numbers: times(others),
                ..OthersReport::default()
            }),
            total: Numbers::default(),
        }),
        ..database()
    }
}

/// The first page of a run.
fn page(report: &Report) -> String {
    Metrics::new("1.2.3").print(report, report.groups.as_ref())
}

#[test]
fn rows_add_up_to_the_time_of_the_calls() {
    let page = page(&database());
    let all = series(&page);
    for family in ["read", "write", "open", "fsync", "metadata"] {
        let label = format!("family=\"{family}\"");
        let rows = sum(&all, "iostack_call_row_seconds_total", &label);
        let total = sum(&all, "iostack_call_duration_seconds_sum", &label);
        assert!((rows - total).abs() < 1e-9, "{family}: {rows} and {total}");
        let count = sum(&all, "iostack_call_duration_seconds_count", &label);
        assert_eq!(sum(&all, "iostack_calls_total", &label), count);
        let infinite = format!("iostack_call_duration_seconds_bucket{{{label},le=\"+Inf\"}}");
        assert_eq!(all[&infinite], count);
    }
    assert!(sum(&all, "iostack_call_row_seconds_total", "row=\"device\"") > 1.0);
    assert_eq!(sum(&all, "iostack_reads_total", "source=\"cache\""), 11_840.0);
    let build = "iostack_build_info{version=\"1.2.3\",kernel=\"6.1.0-50-amd64\",hook=\"\"}";
    assert_eq!(all[build], 1.0);
}

#[test]
fn a_sample_says_which_part_of_the_calls_is_measured() {
    let sampled = Report {
        sample: Sample::new(1000),
        ..database()
    };
    let of_sample = page(&sampled);
    assert_eq!(series(&of_sample)["iostack_sample_ratio"], 0.001);
    assert_eq!(promtool(&["check", "metrics"], &of_sample), (true, String::new()));
    assert!(!page(&database()).contains("sample_ratio"));
}

/// [`series`] refuses two with the same labels.
#[test]
fn groups_whose_names_differ_in_what_is_not_printed_are_added() {
    let calls = |names: [String; 2]| {
        let page = page(&processes(&names.map(|name| (name, 10)), 5));
        assert_eq!(promtool(&["check", "metrics"], &page), (true, String::new()));
        sum(&series(&page), "iostack_calls_total", "process=")
    };
    let usual = calls(["sh", "tar"].map(str::to_owned));
    assert_eq!(calls(["bad\u{1}", "bad\u{2}"].map(str::to_owned)), usual);
    assert_eq!(calls(["a", "b"].map(|end| "dir/".repeat(80) + end)), usual);
}

#[test]
fn buckets_never_decrease() {
    let page = page(&database());
    let buckets = page
        .lines()
        .filter(|line| line.contains("duration_seconds_bucket{family=\"read\""));
    let counts: Vec<f64> = buckets
        .map(|line| line.rsplit_once(' ').unwrap().1.parse().unwrap())
        .collect();
    assert_eq!(counts.len(), 27);
    assert!(counts.is_sorted() && counts[0] < counts[26], "{counts:?}");
}

#[test]
fn groups_are_bounded_and_their_sums_are_exact() {
    let names = |n: usize| (0..n).map(|i| (format!("process{i}"), 1)).collect::<Vec<_>>();
    let mut metrics = Metrics::new("1.2.3");
    let mut print = |report: &Report| series(&metrics.print(report, report.groups.as_ref()));
    let first = print(&processes(&names(30), 2));
    // Others come first now, and there are far more of them.
    let mut many: Vec<_> = (0..900).map(|i| (format!("other{i}"), 2)).collect();
    many.extend(names(30));
    let second = print(&processes(&many, 2));
    let label = |name: &str| {
        let start = "iostack_calls_total{family=\"read\",process=\"";
        name.strip_prefix(start)
            .map(|rest| rest.trim_end_matches("\"}").to_owned())
    };
    let known: Vec<String> = second.keys().filter_map(|name| label(name)).collect();
    assert_eq!(known.len(), GROUPS + 1);
    for (name, value) in first.iter().filter(|(name, _)| name.starts_with("iostack_calls_total")) {
        assert!(
            second.get(name).is_some_and(|now| now >= value),
            "{name} went backwards"
        );
    }
    let reads = sum(&second, "iostack_calls_total", "family=\"read\"");
    let one = sum(&series(&page(&database())), "iostack_calls_total", "family=\"read\"");
    assert_eq!(reads, one * (30.0 + 2.0 + 900.0 * 2.0 + 30.0 + 2.0));
}

#[test]
fn a_renamed_process_counts_on_under_its_new_name() {
    let mut metrics = Metrics::new("1.2.3");
    // What it has counted so far, and since the page before.
    let mut print = |name: &str, all, latest| {
        let named = |n| processes(&[(name.to_owned(), n)], 0);
        series(&metrics.print(&named(all), named(latest).groups.as_ref()))
    };
    let (first, second) = (print("bash", 3, 3), print("sleep", 5, 2));
    let of =
        |all: &BTreeMap<String, f64>, process: &str| sum(all, "iostack_calls_total", &format!("process=\"{process}\""));
    assert_eq!(of(&second, "bash"), of(&first, "bash"));
    assert_eq!(of(&second, "sleep") * 3.0, of(&second, "bash") * 2.0);
}

#[test]
fn processes_of_one_name_share_a_series() {
    let twice = [("postgres".to_owned(), 1), ("postgres".to_owned(), 2)];
    let all = series(&page(&processes(&twice, 1)));
    let of = |process: &str| all[&format!("iostack_calls_total{{family=\"write\",process=\"{process}\"}}")];
    assert_eq!(of("postgres"), 3.0 * of("others"));
}

/// An alert on an increase sees the first loss only if the counter was there before.
#[test]
fn counters_of_losses_begin_at_0() {
    let lost = |layer: &LayerReport| {
        let page = page(&scenes::report(vec![layer.clone()]));
        let of_losses = series(&page).into_iter();
        let of_losses = of_losses
            .filter_map(|(name, value)| Some((name.strip_prefix("iostack_lost_events_total")?.to_owned(), value)));
        of_losses.collect::<BTreeMap<String, f64>>()
    };
    let mut layer = scenes::layer(Layer::Vfs, vec![scenes::read()]);
    let before = lost(&layer);
    assert_eq!(before.len(), LossReason::ALL.len());
    assert!(before.values().all(|count| *count == 0.0), "{before:?}");
    layer.losses.push(scenes::loss(LossReason::ReturnMissed, 3, false));
    assert_eq!(lost(&layer)["{layer=\"vfs\",reason=\"return_missed\"}"], 3.0);
    // What is not known is not 0.
    layer.skips_unknown = true;
    assert!(!lost(&layer).keys().any(|name| name.contains("entry_missed")));
    layer.ops.clear();
    assert_eq!(lost(&layer).len(), 1, "a layer that is not measured");
}

/// What no client may take for something else.
const HOSTILE: &str = "a\"} 1\nb\\{\u{7}\u{9b}";

#[test]
fn hostile_names_stay_inside_their_quotes() {
    let names = [(HOSTILE.to_owned(), 1), ("x".repeat(5000), 1)];
    let page = page(&processes(&names, 1));
    assert!(page.contains("process=\"a\\\"} 1\\nb\\\\{\u{fffd}\u{fffd}\""), "{page}");
    assert!(page.lines().all(|line| line.len() < 500));
    series(&page);
}

/// Runs Prometheus' own checker, of the package `prometheus`, with this input. Returns whether it is content, and what
/// it prints.
fn promtool(arguments: &[&str], input: &str) -> (bool, String) {
    let promtool = Command::new("promtool")
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut promtool = promtool.expect("promtool is there: tests/run installs it");
    promtool.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (output.status.success(), said)
}

#[test]
fn promtool_finds_nothing_wrong() {
    let names = [("postgres".to_owned(), 3), (HOSTILE.to_owned(), 1)];
    let page = page(&processes(&names, 1));
    assert_eq!(promtool(&["check", "metrics"], &page), (true, String::new()));
}

#[test]
fn alerts_fire_when_they_should() {
    let (is_right, said) = promtool(&["check", "rules", "packaging/prometheus/iostack.rules.yml"], "");
    assert!(is_right, "{said}");
    let (is_right, said) = promtool(&["test", "rules", "packaging/prometheus/iostack.rules.test.yml"], "");
    assert!(is_right, "{said}");
}

/// Alerts and rules use metrics that exist.
#[test]
fn rules_name_metrics_that_exist() {
    let rules = include_str!("../packaging/prometheus/iostack.rules.yml");
    let source = include_str!("../src/view/metrics.rs");
    let words = rules.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let metrics: Vec<&str> = words.filter_map(|word| word.strip_prefix("iostack_")).collect();
    assert!(metrics.len() > 5);
    for metric in metrics {
        let metric = metric.trim_end_matches("_bucket");
        assert!(source.contains(&format!("\"{metric}\"")), "no metric iostack_{metric}");
    }
}

/// All metrics that a page may have, each with its labels: those of every kind of report.
fn metrics() -> BTreeMap<String, BTreeSet<String>> {
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let scenes = scenes::all();
    let parts = scenes.iter().flat_map(|scene| &scene.parts);
    // A label of groups has the name of what they are.
    for (part, by) in parts.flat_map(|part| By::ALL.map(|by| (part, by))) {
        let mut report = part.report();
        report.sample = Sample::new(100);
        if let Some(groups) = &mut report.groups {
            groups.by = by;
        }
        let page = page(&report);
        let mut current = String::new();
        for line in page.lines() {
            if let Some(name) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split(' ').next()) {
                current = name.to_owned();
                all.entry(current.clone()).or_default();
            } else if !line.starts_with('#') {
                // A label precedes each `="`. Values of these reports have no such characters.
                let before = line.match_indices("=\"").map(|(at, _)| &line[..at]);
                let labels = before.filter_map(|text| text.rsplit(['{', ',']).next());
                all.entry(current.clone())
                    .or_default()
                    .extend(labels.map(str::to_owned));
            }
        }
    }
    all
}

#[test]
fn the_documentation_lists_every_metric() {
    let page = include_str!("../docs/metrics.md");
    let (_, table) = page.split_once("\n## What there is\n").unwrap();
    let (table, _) = table.split_once("\n## ").unwrap();
    let cells = table
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('|').next());
    let names = cells.flat_map(|cell| cell.split(|c: char| !c.is_ascii_lowercase() && c != '_'));
    let documented: BTreeSet<String> = names
        .filter(|word| word.starts_with("iostack_"))
        .map(str::to_owned)
        .collect();
    assert_eq!(documented, metrics().into_keys().collect());
}

/// The dashboard names metrics and labels that exist, and shows every metric.
#[test]
fn the_dashboard_shows_every_metric_by_labels_that_exist() {
    let metrics = metrics();
    let dashboard = dashboard::read();
    let mut shown = BTreeSet::new();
    for group in dashboard::GROUPS {
        for query in dashboard::queries(&dashboard, group) {
            let (panel, expression) = (&query.panel, &query.expression);
            assert!(
                !expression.contains('$'),
                "{panel}: a variable is unknown: {expression}"
            );
            // Prometheus adds the label of the machine.
            let mut known = BTreeSet::from(["instance", "le"].map(str::to_owned));
            for (metric, selected) in dashboard::metrics(expression) {
                let labels = metrics
                    .get(&metric)
                    .unwrap_or_else(|| panic!("{panel}: there is no metric {metric}"));
                known.extend(labels.iter().cloned());
                assert!(selected.is_subset(&known), "{panel}: {metric} has no {selected:?}");
                shown.insert(metric);
            }
            let by = dashboard::aggregates(expression);
            assert!(by.is_subset(&known), "{panel}: {expression} has no {by:?}");
            let legend: BTreeSet<String> = query.legend.into_iter().collect();
            assert!(
                by.is_empty() && legend.is_subset(&known) || legend.is_subset(&by),
                "{panel}: {legend:?}"
            );
        }
    }
    assert_eq!(shown, metrics.into_keys().collect());
}

#[test]
fn the_dashboard_is_one_that_grafana_accepts() {
    let dashboard = dashboard::read();
    let panels = dashboard::panels(&dashboard);
    let ids: BTreeSet<u64> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "panels have numbers of their own");
    let mut taken: BTreeSet<(u64, u64)> = BTreeSet::new();
    for panel in panels {
        let at = |side: &str| panel["gridPos"][side].as_u64().unwrap();
        let title = panel["title"].as_str().unwrap();
        assert!(!title.is_empty() && at("x") + at("w") <= 24, "{title}");
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(taken.insert((x, y)), "{title} is over another panel");
            }
        }
        if panel["type"] == "row" {
            continue;
        }
        assert!(!panel["description"].as_str().unwrap().is_empty(), "{title}");
        let targets = panel["targets"].as_array().unwrap();
        assert!(!targets.is_empty(), "{title}");
        for with_source in targets.iter().chain([panel]) {
            assert_eq!(with_source["datasource"]["uid"], "${datasource}", "{title}");
        }
        let letters: BTreeSet<&str> = targets.iter().map(|one| one["refId"].as_str().unwrap()).collect();
        assert_eq!(letters.len(), targets.len(), "{title}");
    }
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let names: Vec<&str> = variables.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["datasource", "instance", "family", "group"]);
    assert_eq!(variables[3]["query"], dashboard::GROUPS.join(","));
    let metrics = metrics();
    for variable in &variables[1..3] {
        let query = variable["definition"].as_str().unwrap();
        let (metric, label) = query.trim_start_matches("label_values(").split_once(", ").unwrap();
        let label = label.trim_end_matches(')');
        assert!(label == "instance" || metrics[metric].contains(label), "{query}");
    }
}

/// Prometheus parses every query: promtool checks them as rules.
#[test]
fn prometheus_understands_the_dashboard() {
    let queries = dashboard::queries(&dashboard::read(), "cgroup");
    assert!(queries.len() > 30, "{}", queries.len());
    let rules: Vec<_> = (0..)
        .zip(&queries)
        .map(|(number, query): (u32, _)| json!({"record": format!("query:{number}"), "expr": query.expression}))
        .collect();
    // JSON is YAML.
    let rules = json!({"groups": [{"name": "dashboard", "rules": rules}]});
    let file = format!("{}/dashboard-{}.yml", env!("CARGO_TARGET_TMPDIR"), std::process::id());
    fs::write(&file, rules.to_string()).unwrap();
    let (is_right, said) = promtool(&["check", "rules", &file], "");
    fs::remove_file(&file).unwrap();
    assert!(is_right, "{said}");
}
