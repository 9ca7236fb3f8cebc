//! Metrics: the page that is made of a report.

#[allow(dead_code, reason = "shared with the tests of every other report")]
mod stacks;

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};

use iostackbreakdown::model::ids::By;
use iostackbreakdown::model::report::Report;
use iostackbreakdown::model::report::group::{GroupReport, GroupsReport, Numbers, OthersReport, Who};
use iostackbreakdown::view::metrics::{GROUPS, Metrics};

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

#[test]
fn rows_add_up_to_the_time_of_the_calls() {
    let page = Metrics::new("1.2.3").print(&database());
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
fn buckets_never_decrease() {
    let page = Metrics::new("1.2.3").print(&database());
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
    let first = series(&metrics.print(&processes(&names(30), 2)));
    // Others come first now, and there are far more of them.
    let mut many: Vec<_> = (0..900).map(|i| (format!("other{i}"), 2)).collect();
    many.extend(names(30));
    let second = series(&metrics.print(&processes(&many, 2)));
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
    let one = sum(
        &series(&Metrics::new("").print(&database())),
        "iostack_calls_total",
        "family=\"read\"",
    );
    assert_eq!(reads, one * (900.0 * 2.0 + 30.0 + 2.0));
}

#[test]
fn processes_of_one_name_share_a_series() {
    let twice = [("postgres".to_owned(), 1), ("postgres".to_owned(), 2)];
    let all = series(&Metrics::new("1.2.3").print(&processes(&twice, 1)));
    let of = |process: &str| all[&format!("iostack_calls_total{{family=\"write\",process=\"{process}\"}}")];
    assert_eq!(of("postgres"), 3.0 * of("others"));
}

/// What no client may take for something else.
const HOSTILE: &str = "a\"} 1\nb\\{\u{7}\u{9b}";

#[test]
fn hostile_names_stay_inside_their_quotes() {
    let names = [(HOSTILE.to_owned(), 1), ("x".repeat(5000), 1)];
    let page = Metrics::new("1.2.3").print(&processes(&names, 1));
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
    let page = Metrics::new("1.2.3").print(&processes(&names, 1));
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
