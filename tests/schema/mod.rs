//! Properties of every JSON report: `schema/report.schema.json`, for which the includer has a module `validator`, and
//! what a schema cannot express.

use std::collections::BTreeMap;

use serde_json::Value;

use super::validator::valid;

/// The quantiles of an op, and how many calls each needs.
pub const QUANTILES: [(&str, u128, u64); 3] = [("p50_ns", 50, 2), ("p90_ns", 90, 10), ("p99_ns", 99, 100)];

/// The reports of a run, which must be valid and consistent.
pub fn reports(lines: &str) -> Result<Vec<Value>, String> {
    if !lines.is_empty() && !lines.ends_with('\n') {
        return Err(format!("the last line has no end: {lines}"));
    }
    let report = |line: &str| {
        let report = serde_json::from_str(line).map_err(|error| error.to_string());
        report
            .and_then(|report| valid(&report).and_then(|()| consistent(&report)).map(|()| report))
            .map_err(|error| format!("{error}, in\n{line}"))
    };
    lines.lines().map(report).collect()
}

/// The measured layers.
pub fn layers(report: &Value) -> impl Iterator<Item = &Value> {
    array(&report["layers"])
        .iter()
        .filter(|layer| layer["measured"] == true)
}

/// The measured ops of a layer.
pub fn ops(layer: &Value) -> impl Iterator<Item = &Value> {
    array(&layer["ops"]).iter().filter(|op| op["measured"] == true)
}

pub fn array(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// A number of a valid report, 0 if it is null.
pub fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// The sum of the numbers of an object such as `lost`.
pub fn sum(object: &Value) -> u64 {
    let fields = object.as_object().into_iter().flatten();
    fields.map(|(_, value)| number(value)).sum()
}

/// The number of calls in the whole stack's part of a report.
pub fn calls(report: &Value) -> u64 {
    let families = array(&report["stack"]["families"]).iter();
    families.map(|family| number(&family["count"])).sum()
}

/// Checks that the numbers of a valid report are consistent.
fn consistent(report: &Value) -> Result<(), String> {
    if let Some(call) = report.get("slow_call") {
        let rows = array(&call["rows"]).iter().map(|row| number(&row["ns"]));
        let (sum, total) = (rows.fold(0, u64::saturating_add), number(&call["total_ns"]));
        return match sum == total {
            true => Ok(()),
            false => Err(format!("the rows are {sum} ns of {total}")),
        };
    }
    if report.get("slow_calls_not_told").is_some() {
        return Ok(());
    }
    for layer in layers(report) {
        for op in ops(layer) {
            op_is_consistent(report, op).map_err(|error| format!("{} {}: {error}", layer["layer"], op["op"]))?;
            let hooks = array(&layer["hooks"]);
            if let Some(other) = array(&op["attach"]).iter().find(|at| !hooks.contains(&at["hook"])) {
                return Err(format!("{other} is not among the hooks of {}", layer["layer"]));
            }
        }
    }
    for neighbours in layers(report)
        .map(|layer| &layer["neighbours"])
        .filter(|reported| reported.is_object())
    {
        let others = array(&neighbours["others"]).iter().map(|other| number(&other["ns"]));
        let parts = ["own_ns", "untold_ns", "idle_ns"].map(|part| number(&neighbours[part]));
        let sum = others.chain(parts).fold(0, u64::saturating_add);
        if sum != number(&neighbours["waited_ns"]) {
            return Err(format!("the parts are {sum} ns: {neighbours}"));
        }
    }
    for family in array(&report["stack"]["families"]) {
        family_is_consistent(report, family).map_err(|error| format!("{}: {error}", family["family"]))?;
    }
    groups_are_consistent(report)?;
    sums_are_those_of_layers(report)?;
    excluded_is_consistent(report)
}

/// Totals of a report are sums over its layers.
fn sums_are_those_of_layers(report: &Value) -> Result<(), String> {
    const SUMS: [(&str, &str); 8] = [
        ("in_flight", "start"),
        ("in_flight", "end"),
        ("lost", "return_missed"),
        ("lost", "issue_missed"),
        ("lost", "entry_missed"),
        ("lost", "no_storage"),
        ("lost", "table_full"),
        ("lost", "clock_backwards"),
    ];
    for (object, field) in SUMS {
        // In the whole stack a call is under way at several layers at once.
        let is_whole = object == "in_flight" && !report["stack"].is_null();
        let parts = layers(report).filter(|layer| !is_whole || layer["layer"] == "syscall");
        let parts: Option<Vec<u64>> = parts.map(|layer| layer[object][field].as_u64()).collect();
        let sum = parts
            .filter(|parts| !parts.is_empty())
            .map(|parts| parts.into_iter().fold(0, u64::saturating_add));
        if report[object][field].as_u64() != sum {
            return Err(format!("{object}.{field} is not {sum:?}"));
        }
    }
    Ok(())
}

/// Excluded calls are the sum over their kinds, and over all layers.
fn excluded_is_consistent(report: &Value) -> Result<(), String> {
    let of_layers: Vec<&Value> = layers(report).map(|layer| &layer["excluded"]).collect();
    for excluded in of_layers.iter().chain([&&report["excluded"]]) {
        let kinds = excluded["by_kind"].as_object().into_iter().flatten();
        let sum = kinds.fold(0, |sum, (_, calls)| u64::saturating_add(sum, number(calls)));
        if excluded["by_kind"].is_null() != excluded["not_file"].is_null() || sum != number(&excluded["not_file"]) {
            return Err(format!("the kinds are {sum}: {excluded}"));
        }
    }
    for kind in [
        "/not_file",
        "/by_kind/socket",
        "/by_kind/pipe",
        "/by_kind/character_device",
        "/by_kind/other",
    ] {
        let calls = |excluded: &Value| excluded.pointer(kind).map_or(0, number);
        if calls(&report["excluded"])
            != of_layers
                .iter()
                .map(|excluded| calls(excluded))
                .fold(0, u64::saturating_add)
        {
            return Err(format!("excluded{kind} is not the sum of those of the layers"));
        }
    }
    Ok(())
}

/// The numbers of a report's groups, including the others.
pub fn parts(report: &Value) -> impl Iterator<Item = &Value> {
    let groups = &report["groups"];
    let others = Some(&groups["others"]).filter(|others| !others.is_null());
    array(&groups["groups"])
        .iter()
        .chain(others)
        .map(|part| &part["numbers"])
}

/// Groups and others add up exactly: calls, nanoseconds and histogram steps.
fn groups_are_consistent(report: &Value) -> Result<(), String> {
    if report["groups"].is_null() {
        return Ok(());
    }
    let mut sums: BTreeMap<String, i128> = BTreeMap::new();
    for part in parts(report) {
        for layer in array(&part["layers"]) {
            for op in array(&layer["ops"]) {
                op_is_consistent(report, op)?;
                add(&mut sums, &format!("{} {}", layer["layer"], op["op"]), op, 1);
            }
        }
        for family in array(&part["families"]) {
            family_is_consistent(report, family)?;
            add(&mut sums, &format!("family {}", family["family"]), family, 1);
        }
        for origin in array(&part["not_waited"]) {
            add(
                &mut sums,
                &format!("origin {}{}", origin["origin"], origin["direction"]),
                origin,
                1,
            );
        }
    }
    if report["stack"].is_null() {
        for layer in layers(report) {
            for op in ops(layer) {
                add(&mut sums, &format!("{} {}", layer["layer"], op["op"]), op, -1);
            }
        }
    }
    for family in array(&report["stack"]["families"]) {
        add(&mut sums, &format!("family {}", family["family"]), family, -1);
    }
    for origin in array(&report["stack"]["not_waited"]) {
        add(
            &mut sums,
            &format!("origin {}{}", origin["origin"], origin["direction"]),
            origin,
            -1,
        );
    }
    match sums.iter().find(|(_, n)| **n != 0) {
        Some((what, n)) => Err(format!("the groups do not add up: {what} by {n}")),
        None => Ok(()),
    }
}

/// Adds a multiple of the numbers of an op, a family, or an origin of requests.
fn add(sums: &mut BTreeMap<String, i128>, name: &str, of: &Value, times: i8) {
    let mut add = |field: &str, n: &Value| {
        *sums.entry(format!("{name} {field}")).or_default() += i128::from(number(n)) * i128::from(times);
    };
    for field in ["count", "total_ns", "bytes", "queue_ns", "device_ns"] {
        add(field, &of[field]);
    }
    for bucket in array(&of["buckets"]) {
        add(&format!("from {}", bucket["ge_ns"]), &bucket["count"]);
    }
    for row in array(&of["rows"]) {
        add(&format!("row {}", row["row"]), &row["ns"]);
        add(&format!("calls by {}", row["row"]), &row["calls"]);
    }
    for class in array(&of["classes"]) {
        add(&format!("class {}", class["class"]), &class["count"]);
    }
}

/// Each family's numbers are consistent like an op's, and its rows add up to its time.
fn family_is_consistent(report: &Value, family: &Value) -> Result<(), String> {
    op_is_consistent(report, family)?;
    let (count, total) = (number(&family["count"]), number(&family["total_ns"]));
    let rows = array(&family["rows"]);
    let sum: u128 = rows.iter().map(|row| u128::from(number(&row["ns"]))).sum();
    if sum != total.into() {
        return Err(format!("the rows are {sum} ns of {total}"));
    }
    if let Some(row) = rows.iter().find(|row| number(&row["calls"]) > count) {
        return Err(format!("more calls than there are: {row}"));
    }
    let classes = array(&family["classes"]);
    let in_classes: u64 = classes.iter().map(|class| number(&class["count"])).sum();
    if !classes.is_empty() && in_classes != count {
        return Err(format!("{in_classes} of {count} calls in classes"));
    }
    Ok(())
}

fn op_is_consistent(report: &Value, op: &Value) -> Result<(), String> {
    let count = number(&op["count"]);
    let buckets: Vec<(u64, Option<u64>, u64)> = array(&op["buckets"])
        .iter()
        .map(|bucket| {
            (
                number(&bucket["ge_ns"]),
                bucket["lt_ns"].as_u64(),
                number(&bucket["count"]),
            )
        })
        .collect();
    let in_buckets = buckets.iter().fold(0, |sum: u64, bucket| sum.saturating_add(bucket.2));
    if in_buckets != count {
        return Err(format!("{in_buckets} in the buckets of {count}"));
    }
    let rising = buckets
        .windows(2)
        .all(|pair| pair[0].1.is_some_and(|lt| lt <= pair[1].0));
    if !rising || buckets.iter().any(|&(ge, lt, _)| lt.is_some_and(|lt| lt <= ge)) {
        return Err("the buckets are not in order".into());
    }
    let extremes = op["min_ns"].as_u64().zip(op["max_ns"].as_u64());
    match (extremes, count) {
        (None, 0) => {}
        (Some((min, max)), 1..) => {
            let [least, most] = [min, max].map(|time| u128::from(time) * u128::from(count));
            // A sum that does not fit into a u64 is reported as the maximum.
            let total = u128::from(number(&op["total_ns"]));
            if min > max || total > most || total < least.min(u64::MAX.into()) {
                return Err(format!("{total} ns is no sum of {count} from {min} to {max}"));
            }
            if let (Some(first), Some(last)) = (buckets.first(), buckets.last())
                && (first.1.is_some_and(|lt| min >= lt) || max < last.0)
            {
                return Err(format!("{min} and {max} are not in the outermost buckets"));
            }
        }
        _ => return Err(format!("{count} calls with extremes {extremes:?}")),
    }
    let calls: u128 = buckets.iter().map(|bucket| u128::from(bucket.2)).sum();
    let measured = measured(report, op)?;
    for (name, percent, needed) in QUANTILES {
        let reported = op[name].as_u64();
        if reported.is_some() != (measured >= needed) {
            return Err(format!("{name} of {count} is {reported:?}"));
        }
        let Some(reported) = reported else { continue };
        let rank = (calls * percent).div_ceil(100).max(1);
        let mut seen = 0;
        let bucket = buckets.iter().find(|bucket| {
            seen += u128::from(bucket.2);
            seen >= rank
        });
        if !bucket.is_some_and(|&(ge, lt, _)| ge <= reported && lt.is_none_or(|lt| reported < lt)) {
            return Err(format!("{name} is {reported}, not in {bucket:?}"));
        }
    }
    Ok(())
}

/// The number of calls that were measured, of a sample (`--sample`) fewer than there were, and then inside the intervals.
fn measured(report: &Value, op: &Value) -> Result<u64, String> {
    let (count, estimate) = (number(&op["count"]), &op["estimate"]);
    if estimate.is_null() {
        return Ok(count);
    }
    let one_in = report["sample"]["one_in"].as_u64();
    let one_in = one_in.ok_or_else(|| format!("an estimate without a sample: {estimate}"))?;
    let is_inside = |n: u64, low: &str, high: &str| (number(&estimate[low])..=number(&estimate[high])).contains(&n);
    let average = number(&op["total_ns"]) / count.max(1);
    let has_average = estimate["avg_low_ns"].is_u64();
    // A number that does not fit is reported as the maximum.
    let is_whole = count.is_multiple_of(one_in) || count == u64::MAX;
    if !is_whole
        || !is_inside(count, "count_low", "count_high")
        || has_average != (count / one_in >= 100)
        || (has_average && !is_inside(average, "avg_low_ns", "avg_high_ns"))
    {
        return Err(format!("{count} calls of {average} ns from 1 in {one_in}: {estimate}"));
    }
    Ok(count / one_in)
}

/// JSON pointers of all values in a document, without the document itself.
pub fn paths(document: &Value) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![(String::new(), document)];
    while let Some((path, value)) = open.pop() {
        let inner: Vec<(String, &Value)> = match value {
            Value::Object(fields) => (fields.iter())
                .map(|(name, value)| (format!("{path}/{}", name.replace('~', "~0").replace('/', "~1")), value))
                .collect(),
            Value::Array(items) => (items.iter().enumerate())
                .map(|(index, value)| (format!("{path}/{index}"), value))
                .collect(),
            _ => Vec::new(),
        };
        found.extend(inner.iter().map(|(path, _)| path.clone()));
        open.extend(inner);
    }
    found
}

/// JSON pointers of all objects in a document, including the document itself.
pub fn paths_of_objects(document: &Value) -> Vec<String> {
    let mut all = paths(document);
    all.push(String::new());
    all.retain(|path| document.pointer(path).is_some_and(Value::is_object));
    all
}
