//! The Grafana dashboard of `packaging/grafana`: its queries as Prometheus gets them, and what they name.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;

/// What `$group` may be.
pub const GROUPS: [&str; 4] = ["cgroup", "process", "file", "disk"];

/// A query of a panel.
pub struct Query {
    pub panel: String,
    /// With values in place of the dashboard's variables.
    pub expression: String,
    /// The labels that its legend shows.
    pub legend: Vec<String>,
}

/// The dashboard.
pub fn read() -> Value {
    const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/packaging/grafana/iostack.json");
    serde_json::from_str(&fs::read_to_string(FILE).unwrap()).unwrap()
}

pub fn panels(dashboard: &Value) -> &[Value] {
    dashboard["panels"].as_array().unwrap()
}

/// All queries, of every machine and family, with the groups of this kind.
pub fn queries(dashboard: &Value, group: &str) -> Vec<Query> {
    let filled = |text: &str| {
        let values = [
            ("$__rate_interval", "10s"),
            ("$__range", "1m"),
            ("$instance", ".*"),
            ("$family", ".*"),
            ("$group", group),
        ];
        values
            .iter()
            .fold(text.to_owned(), |text, (variable, value)| text.replace(variable, value))
    };
    let mut queries = Vec::new();
    for panel in panels(dashboard) {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let legend = filled(target["legendFormat"].as_str().unwrap_or_default());
            let labels = legend.split("{{").skip(1).filter_map(|rest| rest.split("}}").next());
            queries.push(Query {
                panel: panel["title"].as_str().unwrap().to_owned(),
                expression: filled(target["expr"].as_str().unwrap()),
                legend: labels.map(str::to_owned).collect(),
            });
        }
    }
    queries
}

/// The metrics that a query names, each with the labels by which it selects. The parts of a histogram have its name.
pub fn metrics(expression: &str) -> Vec<(String, BTreeSet<String>)> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (at, _) in expression.match_indices("iostack_") {
        let rest = &expression[at..];
        let (name, rest) = rest.split_at(rest.find(|c| !is_name(c)).unwrap_or(rest.len()));
        let selector = rest.strip_prefix('{').and_then(|rest| rest.split('}').next());
        // No value in the dashboard has a comma.
        let selectors = selector.into_iter().flat_map(|all| all.split(','));
        let labels = selectors.map(|one| one.split(|c| !is_name(c)).next().unwrap().to_owned());
        let name = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|part| name.strip_suffix(part))
            .unwrap_or(name);
        found.push((name.to_owned(), labels.collect()));
    }
    found
}

/// The labels by which a query aggregates.
pub fn aggregates(expression: &str) -> BTreeSet<String> {
    let lists = expression
        .split("by (")
        .skip(1)
        .filter_map(|rest| rest.split(')').next());
    let labels = lists.flat_map(|list| list.split(','));
    labels.map(|label| label.trim().to_owned()).collect()
}
