//! Reports built by hand, as JSON: they match the schema, which allows nothing else, and have the same numbers as the
//! text.

#[allow(dead_code, reason = "shared with the tests of text")]
mod groups;
#[allow(dead_code, reason = "shared with the tests of real reports, who need less of it")]
mod schema;
#[allow(dead_code, reason = "shared with the tests of text")]
mod stacks;
#[path = "schema/validator.rs"]
mod validator;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use iostackbreakdown::budget::{CpuShare, Detached};
use iostackbreakdown::model::histogram::Histogram;
use iostackbreakdown::model::ids::{Hook, Layer, Op, Row};
use iostackbreakdown::model::report::group::By;
use iostackbreakdown::model::report::neighbour::{Neighbour, Neighbours};
use iostackbreakdown::model::report::slow::{CallPath, Inode, LeftOut, SlowCall, SlowRow};
use iostackbreakdown::model::report::stack::StackReport;
use iostackbreakdown::model::report::{
    Agreement, AttachPoint, Budget, Cause, CauseKind, Cost, Diskstats, Excluded, Filter, LayerReport, Loss, LossReason,
    NotMeasured, OpReport, Probe, Refused, Report, Runs, SetAside,
};
use iostackbreakdown::model::sample::Sample;
use iostackbreakdown::view::json::{self, Form, form};
use iostackbreakdown::view::text::{self, TextOptions};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use schema::{QUANTILES, array, number, paths, paths_of_objects};
use serde_json::{Value, json};
use stacks::slots;
use validator::{SCHEMA, strict, valid};

/// Every kind of report, by name.
fn cases() -> Vec<(&'static str, Report)> {
    vec![
        ("several layers", several_layers()),
        ("everything requested", probed()),
        ("requests", report(vec![requests(Agreement::Agrees)])),
        (
            "requests that differ",
            report(vec![
                layer(Layer::Vfs, vec![read()]),
                requests(Agreement::Differs("reads 3,861, seen 3,860".into())),
            ]),
        ),
        (
            "requests that cannot be compared",
            report(vec![LayerReport {
                diskstats: Some(Diskstats {
                    flushes: None,
                    ..diskstats(Agreement::NotComparable("queue/iostats is 0".into()))
                }),
                ..requests(Agreement::Agrees)
            }]),
        ),
        ("trouble", trouble()),
        (
            "not measured",
            report(vec![layer(Layer::Syscall, vec![read()]), refused(Layer::Vfs)]),
        ),
        (
            "nothing measured",
            report(vec![refused(Layer::Vfs), refused(Layer::Ext4)]),
        ),
        ("no layers", report(vec![])),
        (
            "no calls",
            report(vec![layer(Layer::Vfs, vec![never(Op::Read), never(Op::Write)])]),
        ),
        ("first interval", interval(0, 900)),
        ("last interval", interval(1, 0)),
        ("the largest numbers", largest()),
        ("every filter", every_filter()),
        ("hostile names", hostile()),
        ("the whole stack", whole_stack(stacks::database())),
        ("the whole stack, barely", whole_stack(stacks::bare())),
        ("the whole stack, with trouble", whole_stack(stacks::troubled())),
        (
            "the whole stack, with slow calls",
            whole_stack(stacks::slow(1, LeftOut::default())),
        ),
        ("the whole stack, unused", whole_stack(stacks::idle())),
        ("by process", groups::by(several_layers(), By::Process, 2, 0)),
        (
            "by disk",
            groups::by(report(vec![requests(Agreement::Agrees)]), By::Disk, 3, 0),
        ),
        ("by file, too many", groups::by(several_layers(), By::File, 4, 2)),
        (
            "by cgroup, no calls",
            groups::by(report(vec![refused(Layer::Vfs)]), By::Cgroup, 4, 0),
        ),
        (
            "the whole stack by file",
            groups::by(whole_stack(stacks::database()), By::File, 2, 1),
        ),
    ]
}

#[test]
fn every_report_is_one_line_that_the_schema_allows() {
    for (name, report) in cases() {
        let line = printed(&report);
        assert_eq!(line.matches('\n').count(), 1, "{name}");
        let reports = schema::reports(&line).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(reports.len(), 1, "{name}");
    }
}

/// Reading a report with the types that wrote it returns all of it.
#[test]
fn every_report_is_read_back() {
    for (name, report) in cases() {
        for form in [Form::Full, Form::Compact] {
            let mut line = Vec::new();
            json::print(&report, form, &mut line).unwrap();
            let back: form::Report = serde_json::from_slice(&line).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(back == form::Report::from(&report) || form == Form::Compact, "{name}");
            let again = serde_json::to_value(&back).unwrap();
            assert_eq!(again, serde_json::from_slice::<Value>(&line).unwrap(), "{name}");
        }
    }
}

/// A missing field means not measured, as in reports of earlier versions; unknown fields are skipped.
#[test]
fn reports_of_other_versions_are_read() {
    let mut line: Value = serde_json::from_str(&printed(&trouble())).unwrap();
    let own: form::Report = serde_json::from_value(line.clone()).unwrap();
    line["layers"][0]["ops"][0].as_object_mut().unwrap().remove("refused");
    line["more"] = json!({"deep": [[{}]]});
    line["layers"][0]["layer"] = json!("zfs");
    let other: form::Report = serde_json::from_value(line.clone()).unwrap();
    assert_eq!(other.layers[0].layer, "zfs");
    assert_eq!(other.layers[1..], own.layers[1..]);
    for (name, says) in [
        ("start", "missing field `start`"),
        ("duration_ns", "missing field"),
        ("subject", "missing"),
    ] {
        let mut none = line.clone();
        none.as_object_mut().unwrap().remove(name);
        let error = serde_json::from_value::<form::Report>(none).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    }
    for (path, wrong, says) in [
        (
            "/duration_ns",
            json!(-1),
            "invalid type: integer `-1`, expected a whole number",
        ),
        (
            "/duration_ns",
            json!(0.5),
            "floating point `0.5`, expected a whole number",
        ),
        ("/filter/pids", json!([1_u64 << 32]), "expected 32 bits"),
        ("/subject", json!(null), "invalid type: null, expected a string"),
        ("/layers", json!({}), "invalid type: map, expected a list"),
        ("/layers/0", json!([]), "invalid type: sequence, expected an object"),
        (
            "/layers/0/measured",
            json!("yes"),
            "invalid type: string \"yes\", expected true or false",
        ),
        (
            "/kernel",
            json!(true),
            "invalid type: boolean `true`, expected a string",
        ),
    ] {
        let mut other = line.clone();
        *other.pointer_mut(path).unwrap() = wrong;
        let error = serde_json::from_value::<form::Report>(other).unwrap_err().to_string();
        assert!(error.contains(says), "{path}: {error}");
    }
}

/// Slow calls and reports can be distinguished.
#[test]
fn lines_of_every_kind_are_read_back() {
    let mut out = Vec::new();
    json::print_slow(&slow_call(), &mut out).unwrap();
    let line: form::Line = serde_json::from_slice(&out).unwrap();
    assert_eq!(line.slow_call, Some((&slow_call()).into()));
    out.clear();
    let left_out = LeftOut { limited: 3, no_room: 1 };
    json::print_left_out(left_out, &mut out).unwrap();
    let line: form::Line = serde_json::from_slice(&out).unwrap();
    assert_eq!((line.slow_call, line.slow_calls_not_told), (None, Some(left_out)));
    let line: form::Line = serde_json::from_str(&printed(&trouble())).unwrap();
    assert_eq!((line.slow_call, line.slow_calls_not_told), (None, None));
}

/// With any numbers and texts, including nulls.
fn with_any_values(
    value: &mut Value,
    numbers: &mut impl Iterator<Item = (bool, u32)>,
    texts: &mut impl Iterator<Item = String>,
) {
    match value {
        Value::Number(old) => {
            if let Some((true, new)) = numbers.next() {
                *old = new.into();
            }
        }
        Value::String(old) => *old = texts.next().unwrap_or_default(),
        Value::Array(all) => all.iter_mut().for_each(|value| with_any_values(value, numbers, texts)),
        Value::Object(all) => all
            .values_mut()
            .for_each(|value| with_any_values(value, numbers, texts)),
        Value::Null | Value::Bool(_) => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    #[test]
    fn any_values_are_read_back(
        case in any::<Index>(),
        numbers in vec(any::<(bool, u32)>(), 1..100),
        texts in vec(any::<String>(), 1..20),
    ) {
        let (_, report) = case.get(&cases()).clone();
        let mut value = serde_json::to_value(form::Report::from(&report)).unwrap();
        with_any_values(&mut value, &mut numbers.into_iter().cycle(), &mut texts.into_iter().cycle());
        let back: form::Report = serde_json::from_str(&value.to_string()).unwrap();
        prop_assert_eq!(serde_json::to_value(&back).unwrap(), value);
        let line = serde_json::to_string(&back).unwrap();
        prop_assert_eq!(serde_json::from_str::<form::Report>(&line).unwrap(), back);
    }
}

/// For every object in every report: no field can be removed, and none added.
#[test]
fn the_schema_allows_nothing_else() {
    let reports = cases().into_iter().map(|(_, report)| printed(&report));
    let reports: Vec<Value> = reports.map(|line| serde_json::from_str(&line).unwrap()).collect();
    let kinds = strict(&reports).unwrap();
    assert!(kinds > 30, "{kinds}");
}

/// The compact form contains the objects of the full one, with the same schema, except those that were measured and
/// never called.
#[test]
fn a_compact_report_leaves_out_what_was_never_called() {
    let mut left_out = 0;
    for (name, report) in cases() {
        let mut line = Vec::new();
        json::print(&report, Form::Compact, &mut line).unwrap();
        let line = String::from_utf8(line).unwrap();
        let reports = schema::reports(&line).unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut full: Value = serde_json::from_str(&printed(&report)).unwrap();
        for layer in full["layers"].as_array_mut().unwrap() {
            let ops = layer["ops"].as_array().unwrap();
            let is_measured = ops.iter().any(|op| op["measured"] == true);
            assert_eq!(layer["measured"], is_measured, "{name}: {layer}");
            // Its own reason is enough.
            if !is_measured {
                layer["ops"] = Value::Array(Vec::new());
            }
        }
        left_out += left_out_of(&full, &reports[0]).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    assert!(left_out > 50, "{left_out}");
}

/// The number of list elements that only the full form has, all of which must be unused.
fn left_out_of(full: &Value, compact: &Value) -> Result<usize, String> {
    match (full, compact) {
        (Value::Object(full), Value::Object(compact)) if full.keys().eq(compact.keys()) => full
            .iter()
            .map(|(name, value)| left_out_of(value, &compact[name]))
            .sum(),
        (Value::Array(full), Value::Array(compact)) => {
            let mut rest = compact.iter().peekable();
            let mut sum = 0;
            for value in full {
                match rest.peek().map(|kept| left_out_of(value, kept)) {
                    Some(Ok(inner)) => {
                        sum += inner;
                        rest.next();
                    }
                    _ if is_unused(value) => sum += 1,
                    _ => return Err(format!("missing: {value}")),
                }
            }
            rest.next()
                .map_or(Ok(sum), |other| Err(format!("not in the full form: {other}")))
        }
        _ if full == compact => Ok(0),
        _ => Err(format!("{compact} for {full}")),
    }
}

/// For an op, a family, a class, a row or a probe: it was measured, and all of its counts are 0.
fn is_unused(element: &Value) -> bool {
    const COUNTS: [&str; 11] = [
        "count",
        "errors",
        "bytes",
        "total_ns",
        "async_not_timed",
        "apart",
        "lost",
        "ns",
        "calls",
        "entry",
        "leave",
    ];
    let is_measured = ["count", "ns", "entry"].iter().any(|name| !element[*name].is_null());
    let is_zero = |value: &Value| number(value) == 0 && schema::sum(value) == 0;
    is_measured && COUNTS.iter().all(|name| is_zero(&element[*name]))
}

/// What `--slower` prints between reports.
#[test]
fn a_slow_call_is_one_line_that_the_schema_allows() {
    let whole = slow_call();
    let bare = SlowCall {
        op: Op::Sync,
        ..SlowCall::default()
    };
    let failed = SlowCall {
        errno: Some(5),
        bytes: None,
        ..slow_call()
    };
    for call in [&whole, &bare, &failed] {
        let mut out = Vec::new();
        json::print_slow(call, &mut out).unwrap();
        let line = String::from_utf8(out).unwrap();
        let [line] = &schema::reports(&line).unwrap()[..] else {
            panic!("{line}")
        };
        strict(std::slice::from_ref(line)).unwrap();
    }
    let mut out = Vec::new();
    json::print_slow(&whole, &mut out).unwrap();
    json::print_left_out(LeftOut { limited: 3, no_room: 0 }, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    schema::reports(&text).unwrap();
    assert_eq!(
        text,
        r#"{"schema_version":1,"slow_call":{"end":"1970-01-01T00:16:40.000512Z","pid":4711,"tid":4712,"comm":"postgres","op":"pread64","#
            .to_owned()
            + r#""path":"/var/lib/db","path_is":"whole","inode":{"number":17,"major":259,"minor":2},"offset":8192,"size":4096,"bytes":100,"#
            + r#""error":null,"total_ns":21400,"rows":[{"row":"syscall","kind":"layer","ns":400},{"row":"device","kind":"wait","ns":21000}],"guilty":"device","kernel_time_split":true}}"#
            + "\n"
            + r#"{"schema_version":1,"slow_calls_not_told":{"limited":3,"no_room":0}}"#
            + "\n"
    );
}

fn slow_call() -> SlowCall {
    SlowCall {
        ended: jiff::Timestamp::from_microsecond(1_000_000_512).unwrap(),
        pid: 4711,
        tid: 4712,
        comm: "postgres".into(),
        op: Op::Pread64,
        path: Some(CallPath::whole("/var/lib/db")),
        inode: Some(Inode::on([259, 2], 17)),
        offset: Some(8192),
        size: Some(4096),
        bytes: Some(100),
        errno: None,
        total_ns: 21_400,
        rows: [(Row::Layer(Layer::Syscall), 400), (Row::Device, 21_000)]
            .map(|(row, ns)| SlowRow { row, ns })
            .to_vec(),
        not_split: false,
    }
}

/// Nor can a value have another type, or a number be negative, fractional, or wider than 64 bits.
#[test]
fn the_schema_allows_no_other_values() {
    let report: Value = serde_json::from_str(&printed(&several_layers())).unwrap();
    let mut values = 0;
    // The elements of a list have one schema, but for values that are null in some of them.
    let mut seen = BTreeSet::new();
    for path in paths(&report) {
        let value = report.pointer(&path).unwrap();
        if !seen.insert(validator::kind(&path, &[(&String::new(), value)])) {
            continue;
        }
        let wrong: &[Value] = match value {
            Value::Number(_) => &[json!(-1), json!(0.5), json!(1e20), json!("1"), json!([]), json!({})],
            Value::String(_) | Value::Null => &[json!(1.5), json!([1]), json!({"a": 1}), json!(true)],
            Value::Bool(_) => &[json!(0), json!("true"), Value::Null],
            Value::Array(_) | Value::Object(_) => &[json!(1), json!("text"), json!(true)],
        };
        for wrong in wrong {
            let mut other = report.clone();
            *other.pointer_mut(&path).unwrap() = wrong.clone();
            assert!(valid(&other).is_err(), "{path}: {wrong}");
            values += 1;
        }
    }
    assert!(values > 300, "{values}");
}

/// What is not measured has no numbers, and what has numbers has no reason.
#[test]
fn the_schema_ties_numbers_to_what_was_measured() {
    let report: Value = serde_json::from_str(&printed(&trouble())).unwrap();
    let broken = |path: &str, value: Value| {
        let mut other = report.clone();
        let field = other.pointer_mut(path).unwrap_or_else(|| panic!("{path}"));
        assert_ne!(*field, value, "{path}");
        *field = value;
        assert!(valid(&other).is_err(), "{path}");
    };
    valid(&report).unwrap();
    let absent = array(&report["layers"][0]["ops"]).len() - 1;
    let absent = format!("/layers/0/ops/{absent}");
    assert_eq!(report.pointer(&absent).unwrap()["measured"], false);
    broken(&format!("{absent}/measured"), json!(true));
    broken(&format!("{absent}/count"), json!(0));
    broken(&format!("{absent}/reason"), Value::Null);
    broken(&format!("{absent}/errors"), json!({}));
    broken("/layers/0/ops/0/measured", json!(false));
    broken("/layers/0/ops/0/reason", json!("because"));
    broken("/layers/0/ops/0/count", Value::Null);
    broken("/layers/0/ops/0/errors", json!({"no error": 1}));
    broken("/layers/0/ops/0/errors", json!({"EIO": 0}));
    broken("/layers/0/measured", json!(false));
    broken("/version", json!("first"));
    broken("/schema_version", json!(json::SCHEMA_VERSION + 1));
    broken("/start", json!("2026-11-20 11:02:33"));
    broken("/lost_up_to/0", json!("bad luck"));
    broken("/filter/command", json!([]));
    broken("/layers/1/measured", json!(true));
    broken("/layers/1/lost/table_full", json!(0));
    broken("/layers/1/reason", Value::Null);
}

/// Every object of the schema names and describes every field, and allows no others.
#[test]
fn the_schema_is_complete() {
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let mut objects = 0;
    for path in paths_of_objects(&schema) {
        let object = schema.pointer(&path).unwrap();
        let Some(properties) = object.get("properties").filter(|_| object.get("type").is_some()) else {
            continue;
        };
        objects += 1;
        assert_eq!(object["additionalProperties"], false, "{path}");
        let names: BTreeSet<&str> = properties.as_object().unwrap().keys().map(String::as_str).collect();
        let required: BTreeSet<&str> = array(&object["required"]).iter().filter_map(Value::as_str).collect();
        assert_eq!(names, required, "{path}");
        for name in names {
            let property = &properties[name];
            let shared = property["$ref"]
                .as_str()
                .and_then(|at| schema.pointer(at.strip_prefix('#')?));
            let described = [Some(property), shared].into_iter().flatten();
            let text: String = described.filter_map(|of| of["description"].as_str()).collect();
            assert!(!text.is_empty(), "{path}: {name} has no description");
            let is_time = name.ends_with("_ns");
            assert!(
                !is_time || text.to_lowercase().contains("nanoseconds"),
                "{path}: {name} has no unit"
            );
        }
    }
    assert_eq!(objects, 44);
    assert_eq!(
        schema.pointer("/$defs/report/properties/schema_version/const"),
        Some(&json!(json::SCHEMA_VERSION))
    );
}

/// Compared to the last byte, so that no change goes unnoticed.
#[test]
fn a_report_is_as_written_here() {
    let mut report = report(vec![LayerReport {
        excluded: Excluded {
            socket: 8_000,
            pipe: 13,
            character_device: 100,
            other: 0,
        },
        in_flight: Some(0),
        absent: vec![NotMeasured::new("fsync", "vfs_fsync_range: refused by this kernel")],
        not_measured: vec![NotMeasured::new("fsync", "vfs_fsync_range: refused by this kernel")],
        ..layer(
            Layer::Vfs,
            vec![OpReport {
                attach: [attach("vfs_read", Hook::Fentry)].into(),
                total_ns: 4_011,
                bytes: Some(8192),
                extremes: Some((811, 2_100)),
                errors: vec![(11, 2), (5, 1)],
                errors_unnamed: 4,
                histogram: slots(&[(9, 1), (10, 2)]),
                ..OpReport::new(Op::Read)
            }],
        )
    }]);
    report.filter.pids = vec![4711];
    report.probes = vec![Probe {
        layer: Some(Layer::Vfs),
        hook: Hook::Fentry,
        functions: vec!["vfs_read".into()],
        entry: Some(Runs { count: 7, ns: 301 }),
        leave: Some(Runs { count: 6, ns: 512 }),
        skipped: Some(1),
    }];
    report.cost = Cost {
        process: Duration::from_micros(6_204),
        has_runs: true,
        ..Cost::default()
    };
    report.layers[0].ops[0].refused = [Refused {
        function: "vfs_iter_read".into(),
        hook: Hook::Fentry,
        error: "not in BTF".into(),
    }]
    .into();
    report.layers[0].ops[0].losses = vec![loss(LossReason::ReturnMissed, 1, false)];
    let expected = concat!(
        r#"{"schema_version":1,"version":""#,
        env!("CARGO_PKG_VERSION"),
        r#"","kernel":"6.1.0-50-amd64","start":"2026-11-20T11:02:33.120Z","duration_ns":12412000007,"#,
        r#""subject":"PID 4711 (postgres)","filter":{"pids":[4711],"follow":false,"disk":null,"queued":false,"#,
        r#""cgroup":null,"comm":null,"command":null,"file":null,"all_files":false},"sample":null,"#,
        r#""layers":[{"layer":"vfs","measured":true,"reason":null,"hooks":["fentry/fexit"],"ops":["#,
        r#"{"op":"read","measured":true,"reason":null,"count":3,"errors":{"EAGAIN":2,"EIO":1,"other":4},"#,
        r#""bytes":8192,"total_ns":4011,"min_ns":811,"max_ns":2100,"p50_ns":1088,"p90_ns":null,"p99_ns":null,"#,
        r#""queue_ns":null,"async_not_timed":0,"apart":null,"buckets":[{"ge_ns":512,"lt_ns":576,"count":1},"#,
        r#"{"ge_ns":1024,"lt_ns":1152,"count":1},{"ge_ns":1152,"lt_ns":1280,"count":1}],"#,
        r#""attach":[{"function":"vfs_read","hook":"fentry/fexit"}],"#,
        r#""refused":[{"function":"vfs_iter_read","hook":"fentry/fexit","error":"not in BTF"}],"#,
        r#""lost":{"return_missed":1,"issue_missed":0,"no_storage":0,"table_full":0,"clock_backwards":0},"estimate":null},"#,
        r#"{"op":"fsync","measured":false,"reason":"vfs_fsync_range: refused by this kernel","count":null,"#,
        r#""errors":null,"bytes":null,"total_ns":null,"min_ns":null,"max_ns":null,"p50_ns":null,"p90_ns":null,"#,
        r#""p99_ns":null,"queue_ns":null,"async_not_timed":null,"apart":null,"buckets":null,"attach":[],"refused":[],"#,
        r#""lost":null,"estimate":null}],"#,
        r#""excluded":{"not_file":8113,"by_kind":{"socket":8000,"pipe":13,"character_device":100,"other":0}},"in_flight":{"start":null,"end":0},"#,
        r#""lost":{"return_missed":0,"issue_missed":0,"entry_missed":0,"no_storage":0,"table_full":0,"clock_backwards":0},"#,
        r#""lost_up_to":[],"lost_causes":[],"not_measured":[{"what":"fsync","reason":"vfs_fsync_range: refused by this kernel"}],"#,
        r#""warnings":[],"queue_from":null,"diskstats":null,"neighbours":null}],"stack":null,"groups":null,"excluded":{"not_file":8113,"by_kind":{"socket":8000,"pipe":13,"character_device":100,"other":0}},"in_flight":{"start":null,"end":0},"#,
        r#""lost":{"return_missed":0,"issue_missed":0,"entry_missed":0,"no_storage":0,"table_full":0,"clock_backwards":0},"#,
        r#""lost_up_to":[],"cost":{"process_ns":6204000,"probes_ns":813,"probe_runs":13,"reason":null,"budget":null},"#,
        r#""probes":[{"layer":"vfs","hook":"fentry/fexit","functions":["vfs_read"],"entry":{"count":7,"ns":301},"#,
        r#""leave":{"count":6,"ns":512},"skipped":1}],"warnings":[]}"#,
        "\n"
    );
    assert_eq!(printed(&report), expected);
}

#[test]
fn a_sample_has_estimates_with_their_intervals() {
    let sample = Sample::new(10);
    let mut report = report(vec![
        layer(
            Layer::Vfs,
            vec![read().estimated(sample), OpReport::new(Op::Open).estimated(sample)],
        ),
        layer(Layer::Blk, vec![read()]),
    ]);
    report.sample = sample;
    let printed = schema::reports(&printed(&report)).unwrap().remove(0);
    assert_eq!(printed["sample"], json!({ "one_in": 10, "confidence": 95 }));
    let [vfs, blk] = [0, 1].map(|layer| &printed["layers"][layer]["ops"]);
    // As many measured calls as there are requests, which are all counted.
    assert_eq!((&vfs[0]["count"], &blk[0]["count"]), (&json!(38_600), &json!(3_860)));
    assert_eq!(vfs[0]["p99_ns"], blk[0]["p99_ns"]);
    assert!(blk[0]["estimate"].is_null());
    let none = json!({ "count_low": 0, "count_high": 45, "avg_low_ns": null, "avg_high_ns": null });
    assert_eq!(vfs[1]["estimate"], none);
    let mut report = self::report(Vec::new());
    let mut stack = stacks::database();
    stack.families = stack
        .families
        .into_iter()
        .map(|family| family.estimated(sample))
        .collect();
    (report.sample, report.stack) = (sample, Some(stack));
    schema::reports(&self::printed(&report)).unwrap();
    // An estimate needs to say of what.
    report.sample = None;
    assert!(schema::reports(&self::printed(&report)).is_err());
}

#[test]
fn the_largest_numbers_are_exact() {
    let line = printed(&largest());
    let report: Value = serde_json::from_str(&line).unwrap();
    let op = &report["layers"][0]["ops"][0];
    for field in [
        "count",
        "bytes",
        "total_ns",
        "max_ns",
        "p50_ns",
        "p99_ns",
        "async_not_timed",
    ] {
        assert_eq!(op[field].as_u64(), Some(u64::MAX), "{field}");
    }
    assert_eq!(op["errors"]["EIO"].as_u64(), Some(u64::MAX));
    assert_eq!(
        op["buckets"],
        json!([{"ge_ns": 1_u64 << 40, "lt_ns": null, "count": u64::MAX}])
    );
    assert_eq!(report["lost"]["return_missed"].as_u64(), Some(u64::MAX));
    assert_eq!(
        report["excluded"]["not_file"].as_u64(),
        Some(u64::MAX),
        "a sum that no u64 holds is the largest one"
    );
    assert!(line.contains("18446744073709551615") && !line.contains("e19"), "{line}");
}

#[test]
fn a_detached_layer_is_reported_with_its_cost() {
    let report: Value = serde_json::from_str(&printed(&probed())).unwrap();
    assert_eq!(
        report["cost"]["budget"],
        json!({"limit_ns_per_s": 10_000_000, "detached": [{
            "layer": "blk", "after_ns": 3_001_000_000_u64, "until_ns": 3_002_000_000_u64,
            "layer_ns_per_s": 12_000_000, "all_ns_per_s": 13_400_000, "under_way": 2,
        }]})
    );
}

#[test]
fn a_loss_has_its_cause() {
    let caused = |reason, count, kind, event: &str| Loss {
        cause: Some(Cause {
            kind,
            event: event.into(),
            is_tracepoint: true,
            programs: 2,
        }),
        ..loss(reason, count, false)
    };
    let requests = OpReport {
        losses: vec![loss(LossReason::IssueMissed, 3, false)],
        ..read()
    };
    let requests = LayerReport {
        losses: vec![
            caused(
                LossReason::ReturnMissed,
                1_170,
                CauseKind::NotCalled,
                "block_rq_complete",
            ),
            caused(LossReason::ReturnMissed, 4, CauseKind::Skipped, "block_rq_complete"),
            caused(LossReason::IssueMissed, 3, CauseKind::NotCalled, "block_rq_issue"),
            loss(LossReason::TableFull, 1, false),
        ],
        ..layer(Layer::Blk, vec![requests])
    };
    let line = printed(&report(vec![requests]));
    schema::reports(&line).unwrap();
    let report: Value = serde_json::from_str(&line).unwrap();
    let blk = &report["layers"][0];
    assert_eq!(
        (&blk["lost"]["return_missed"], &blk["lost"]["issue_missed"]),
        (&json!(1_174), &json!(3))
    );
    assert_eq!(blk["ops"][0]["lost"]["issue_missed"], 3);
    let cause = |reason: &str, cause: &str, event: &str, count: u64| json!({"reason": reason, "cause": cause, "event": event, "count": count});
    assert_eq!(
        blk["lost_causes"],
        json!([
            cause("return_missed", "not_called", "block_rq_complete", 1_170),
            cause("return_missed", "skipped", "block_rq_complete", 4),
            cause("issue_missed", "not_called", "block_rq_issue", 3),
        ])
    );
}

#[test]
fn trouble_is_reported_by_layer_and_in_total() {
    let report: Value = serde_json::from_str(&printed(&trouble())).unwrap();
    let [vfs, ext4, syscall] = [0, 1, 2].map(|index| &report["layers"][index]);
    assert_eq!(vfs["lost"]["return_missed"], 12);
    assert_eq!(vfs["lost"]["entry_missed"], 9);
    assert_eq!(vfs["lost_up_to"], json!(["entry_missed"]));
    assert_eq!(
        syscall["lost"]["entry_missed"],
        Value::Null,
        "the kernel does not count it"
    );
    assert_eq!(syscall["lost"]["return_missed"], 30);
    assert_eq!(report["lost"]["return_missed"], 42);
    assert_eq!(report["lost"]["entry_missed"], Value::Null);
    assert_eq!(report["lost"]["clock_backwards"], 0);
    assert_eq!(report["lost_up_to"], json!(["entry_missed"]));
    assert_eq!(report["in_flight"], json!({"start": null, "end": 5}));
    assert_eq!(
        report["excluded"],
        json!({"not_file": 8114, "by_kind": {"socket": 8000, "pipe": 14, "character_device": 100, "other": 0}})
    );
    assert_eq!(report["warnings"], json!(["3 children were not followed"]));
    assert_eq!(vfs["warnings"], json!(["kretprobe at vfs can lose calls"]));
    assert_eq!(
        vfs["not_measured"],
        json!([
            {"what": "fsync", "reason": "vfs_fsync_range: refused by this kernel"},
            {"what": "direct reads", "reason": "generic_file_read_iter does not see them"}
        ])
    );
    assert_eq!(
        (&ext4["measured"], &ext4["reason"]),
        (&json!(false), &json!("both refused here"))
    );
    let named: Vec<&Value> = array(&ext4["ops"]).iter().map(|op| &op["op"]).collect();
    let table: Vec<&str> = Layer::Ext4.ops().iter().map(|spec| spec.op.name()).collect();
    assert_eq!(named, table, "what was requested and not measured is reported op by op");
    assert_eq!(
        vfs["ops"][0]["errors"],
        json!({"ENOSPC": 1204, "ERESTARTSYS": 7, "errno 4000": 2, "other": 3})
    );
    assert_eq!(vfs["ops"][0]["async_not_timed"], 12);
}

#[test]
fn requests_have_what_only_they_have() {
    let report: Value = serde_json::from_str(&printed(&report(vec![
        layer(Layer::Vfs, vec![read()]),
        requests(Agreement::Differs("reads 3,861, seen 3,860".into())),
    ])))
    .unwrap();
    let [vfs, blk] = [0, 1].map(|index| &report["layers"][index]);
    assert_eq!(
        (&vfs["ops"][0]["apart"], &vfs["diskstats"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(
        blk["ops"][0]["apart"],
        json!({"at_start": 7, "never_issued": 1, "by_kernel": 2, "unowned": 3, "untimed": 4})
    );
    assert_eq!(blk["ops"][0]["queue_ns"], 53_360_000);
    assert_eq!(blk["queue_from"], "block_io_start");
    assert_eq!(blk["in_flight"], json!({"start": 7, "end": 0}));
    assert_eq!(blk["excluded"], json!({"not_file": null, "by_kind": null}));
    assert_eq!(
        report["excluded"],
        json!({"not_file": 0, "by_kind": {"socket": 0, "pipe": 0, "character_device": 0, "other": 0}}),
        "of the layers that have files"
    );
    assert_eq!(report["in_flight"]["start"], Value::Null, "not known of vfs");
    assert_eq!(
        blk["diskstats"],
        json!({"reads": 3860, "writes": 412, "discards": 0, "flushes": 24, "agreement": "differs",
               "detail": "reads 3,861, seen 3,860"})
    );
}

/// Exactly as many calls as a quantile needs, and one fewer.
#[test]
fn quantiles_that_the_counts_do_not_support_are_null() {
    for (name, _, needed) in QUANTILES {
        for (calls, is_told) in [(needed - 1, false), (needed, true)] {
            let op = OpReport {
                total_ns: 9 * calls,
                extremes: (calls > 0).then_some((9, 9)),
                histogram: Histogram::from_steps([[0; 9].as_slice(), &[calls]].concat()),
                ..OpReport::new(Op::Read)
            };
            let report: Value = serde_json::from_str(&printed(&report(vec![layer(Layer::Vfs, vec![op])]))).unwrap();
            let reported = report["layers"][0]["ops"][0][name].as_u64();
            assert_eq!(reported, is_told.then_some(9), "{name} of {calls}");
        }
    }
}

#[test]
fn text_and_json_agree() {
    let mut ops = 0;
    // For the whole stack, the text has no single layers, and for groups no totals.
    let is_classic = |report: &Report| report.stack.is_none() && report.groups.is_none();
    for (name, report) in cases().into_iter().filter(|(_, report)| is_classic(report)) {
        let mut text = Vec::new();
        let options = TextOptions {
            verbose: true,
            ..TextOptions::default()
        };
        text::print(&report, &options, &mut text).unwrap();
        let text = unfold(&String::from_utf8(text).unwrap());
        let json: Value = serde_json::from_str(&printed(&report)).unwrap();
        let mut layer = report.layers.first().map_or("", |layer| layer.layer.name()).to_owned();
        let mut reported: BTreeMap<(String, String), Vec<u64>> = BTreeMap::new();
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("layer = ") {
                layer = name.into();
            }
            let Some(exact) = line.strip_prefix("exact: ") else {
                continue;
            };
            let mut words = exact.split(' ');
            let op = words.next().unwrap();
            let numbers = words.filter_map(|word| word.parse().ok()).collect();
            reported.insert((layer.clone(), op.into()), numbers);
        }
        for layer in array(&json["layers"]) {
            for op in array(&layer["ops"]) {
                let key = (text_of(&layer["layer"]), text_of(&op["op"]));
                let fields = ["count", "total_ns", "bytes", "min_ns", "max_ns"];
                let mut numbers: Vec<u64> = fields.map(|field| number(&op[field])).to_vec();
                numbers.extend(op["queue_ns"].as_u64());
                // The text leaves out what was never called.
                let in_text = reported.remove(&key).unwrap_or_else(|| vec![0; numbers.len()]);
                assert_eq!(in_text, numbers, "{name}: {key:?}");
                ops += 1;
                let line = format!("not measured: {} at {} ", key.1, key.0);
                let whole = format!("not measured: everything at {} ", key.0);
                let is_told = text.contains(&line) || text.contains(&whole);
                assert_eq!(op["measured"] == false, is_told, "{name}: {key:?}\n{text}");
            }
            for part in array(&layer["not_measured"]) {
                let line = format!(
                    "not measured: {} at {} ({})",
                    text_of(&part["what"]),
                    text_of(&layer["layer"]),
                    text_of(&part["reason"])
                );
                assert!(text.contains(&line), "{name}: {line}\n{text}");
            }
        }
        assert!(reported.is_empty(), "{name}: only the text has {reported:?}");
        assert!(text.starts_with(&report.time_of_day));
    }
    assert!(ops > 40, "{ops}");
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap().into()
}

/// Joins wrapped lines, which continue after two blanks.
fn unfold(text: &str) -> String {
    let mut joined = String::new();
    for line in text.lines() {
        match line.strip_prefix("  ").filter(|rest| !rest.starts_with(' ')) {
            Some(rest) => joined.push_str(&format!(" {rest}")),
            None => joined.push_str(&format!("\n{line}")),
        }
    }
    joined.trim_start().into()
}

fn several_layers() -> Report {
    report(vec![
        layer(Layer::Syscall, vec![read(), never(Op::Preadv2), fsync()]),
        LayerReport {
            in_flight: Some(2),
            excluded: Excluded {
                pipe: 1,
                ..Excluded::default()
            },
            ..layer(Layer::Vfs, vec![read(), never(Op::Open), fsync()])
        },
        layer(Layer::Ext4, vec![never(Op::Read)]),
        requests(Agreement::Agrees),
    ])
}

fn whole_stack(stack: StackReport) -> Report {
    Report {
        stack: Some(stack),
        ..several_layers()
    }
}

fn trouble() -> Report {
    let writes = OpReport {
        errors: vec![(28, 1_204), (512, 7), (4000, 2)],
        errors_unnamed: 3,
        queued: 12,
        ..read()
    };
    let mut report = report(vec![
        LayerReport {
            excluded: Excluded {
                socket: 8_000,
                pipe: 13,
                character_device: 100,
                other: 0,
            },
            losses: vec![
                loss(LossReason::ReturnMissed, 12, false),
                loss(LossReason::TableFull, 0, false),
                loss(LossReason::EntryMissed, 9, true),
            ],
            in_flight: Some(3),
            absent: vec![NotMeasured::new("fsync", "vfs_fsync_range: refused by this kernel")],
            not_measured: vec![
                NotMeasured::new("fsync", "vfs_fsync_range: refused by this kernel"),
                NotMeasured::new("direct reads", "generic_file_read_iter does not see them"),
            ],
            warnings: vec![String::from("kretprobe at vfs can lose calls")],
            ..layer(Layer::Vfs, vec![writes])
        },
        refused(Layer::Ext4),
        LayerReport {
            excluded: Excluded {
                pipe: 1,
                ..Excluded::default()
            },
            losses: vec![loss(LossReason::ReturnMissed, 30, false)],
            skips_unknown: true,
            in_flight: Some(2),
            ..layer(Layer::Syscall, vec![read()])
        },
    ]);
    report.warnings.push(String::from("3 children were not followed"));
    report
}

/// A layer that cannot be measured on this kernel.
fn refused(layer: Layer) -> LayerReport {
    let absent = layer
        .ops()
        .iter()
        .map(|spec| NotMeasured::new(spec.op.name(), "refused by this kernel"));
    LayerReport {
        absent: absent.collect(),
        not_measured: vec![NotMeasured::new("everything", "both refused here")],
        ..LayerReport::new(layer)
    }
}

fn requests(agreement: Agreement) -> LayerReport {
    let reads = OpReport {
        queue_ns: Some(53_360_000),
        set_aside: SetAside {
            at_start: 7,
            never_issued: 1,
            by_kernel: 2,
            unowned: 3,
            untimed: 4,
        },
        attach: [
            attach("block_rq_issue", Hook::Fentry),
            attach("block_rq_complete", Hook::Fentry),
        ]
        .into(),
        ..read()
    };
    LayerReport {
        in_flight: Some(0),
        queue_from: Some("block_io_start".to_owned()),
        diskstats: Some(diskstats(agreement)),
        neighbours: Some(neighbours()),
        ..layer(Layer::Blk, vec![reads, never(Op::Discard)])
    }
}

fn neighbours() -> Neighbours {
    let rsync = Neighbour {
        pid: Some(991),
        comm: Some("rsync".into()),
        is_kernel_thread: false,
        ns: 2_100_000,
        requests: 11,
        bytes: 720_896,
    };
    Neighbours {
        waited_ns: 3_400_000,
        own_ns: 1_100_000,
        own_requests: 12,
        others: vec![
            rsync,
            Neighbour {
                requests: 1,
                ..Neighbour::default()
            },
        ],
        idle_ns: 0,
        untold_ns: 50_000,
        unseen: 0,
    }
    .with_rest()
}

fn diskstats(agreement: Agreement) -> Diskstats {
    Diskstats {
        reads: 3_860,
        writes: 412,
        discards: 0,
        flushes: Some(24),
        agreement,
    }
}

/// Two consecutive intervals; the last one is shorter.
fn interval(number: u32, calls: u64) -> Report {
    let reads = OpReport {
        total_ns: calls * 1_510,
        bytes: Some(calls * 4096),
        extremes: (calls > 0).then_some((520, 2_040)),
        histogram: slots(&[(9, calls / 3), (10, calls - calls / 3)]),
        ..OpReport::new(Op::Read)
    };
    Report {
        start: report(vec![]).start + Duration::from_secs(number.into()),
        length: Duration::from_millis(1000 - u64::from(number) * 588),
        ..report(vec![layer(Layer::Vfs, vec![reads])])
    }
}

fn largest() -> Report {
    let reads = OpReport {
        total_ns: u64::MAX,
        bytes: Some(u64::MAX),
        extremes: Some((u64::MAX, u64::MAX)),
        histogram: slots(&[(40, u64::MAX)]),
        errors: vec![(5, u64::MAX)],
        errors_unnamed: u64::MAX,
        queued: u64::MAX,
        ..OpReport::new(Op::Read)
    };
    let all = LayerReport {
        losses: vec![
            loss(LossReason::ReturnMissed, u64::MAX, false),
            loss(LossReason::EntryMissed, u64::MAX, true),
        ],
        excluded: Excluded {
            socket: u64::MAX,
            pipe: u64::MAX,
            ..Excluded::default()
        },
        in_flight: Some(u64::MAX),
        ..layer(Layer::Syscall, vec![reads])
    };
    Report {
        length: Duration::MAX,
        ..report(vec![
            all.clone(),
            LayerReport {
                layer: Layer::Vfs,
                ..all
            },
        ])
    }
}

fn every_filter() -> Report {
    Report {
        filter: Filter {
            pids: vec![1, 4711, u32::MAX],
            follow: true,
            disk: Some("nvme0n1p2".into()),
            queued: true,
            cgroup: Some("/sys/fs/cgroup/a".into()),
            comm: Some("postgres".into()),
            command: Some(vec!["sh".into(), "-c".into(), String::new()]),
            file: Some("/var/lib/db".into()),
            all_files: true,
        },
        ..several_layers()
    }
}

/// Names can contain anything; none of them ends a line or a string.
fn hostile() -> Report {
    let name = "\n\r\"\\\u{1b}[2J\u{2028}\u{0}\u{1F4A5}";
    let mut report = several_layers();
    report.subject = name.into();
    report.kernel = name.into();
    report.filter.comm = Some(name.into());
    report.filter.command = Some(vec![name.into()]);
    report.warnings = vec![name.into()];
    report
}

fn read() -> OpReport {
    OpReport {
        attach: [attach("vfs_read", Hook::Fentry), attach("vfs_readv", Hook::Fentry)].into(),
        total_ns: 667_000_000,
        bytes: Some(15_810_560),
        extremes: Some((66_120, 2_001_113)),
        histogram: slots(&[(16, 1532), (17, 1901), (18, 377), (19, 41), (20, 9)]),
        ..OpReport::new(Op::Read)
    }
}

/// Too few calls for a p99, and an op that does not move bytes.
fn fsync() -> OpReport {
    OpReport {
        total_ns: 19_896_000,
        extremes: Some((560_000, 1_500_000)),
        histogram: slots(&[(19, 20), (20, 4)]),
        ..OpReport::new(Op::Fsync)
    }
}

fn never(op: Op) -> OpReport {
    OpReport {
        bytes: Some(0),
        ..OpReport::new(op)
    }
}

fn report(layers: Vec<LayerReport>) -> Report {
    Report {
        start: "2026-11-20T11:02:33.1209Z".parse().unwrap(),
        time_of_day: "11:05:10".into(),
        length: Duration::from_nanos(12_412_000_007),
        subject: "PID 4711 (postgres)".into(),
        kernel: "6.1.0-50-amd64".into(),
        layers,
        ..Report::default()
    }
}

/// With probes of every kind, and a cost that the kernel did not count.
fn probed() -> Report {
    let on = |layer, hook, function: &str| Probe::new(layer, hook, vec![function.into()]);
    Report {
        probes: vec![
            Probe {
                entry: Some(Runs { count: u64::MAX, ns: 1 }),
                ..on(Some(Layer::Vfs), Hook::Session, "vfs_read")
            },
            on(None, Hook::RawTracepoint, "sched_process_exit"),
        ],
        cost: Cost {
            no_runs: Some("Operation not permitted".into()),
            budget: Some(Budget {
                limit: CpuShare { ns_per_s: 10_000_000 },
                detached: vec![detached()],
            }),
            ..Cost::default()
        },
        ..report(vec![layer(Layer::Vfs, vec![read()])])
    }
}

fn detached() -> Detached {
    let share = |ns_per_s| CpuShare { ns_per_s };
    Detached {
        layer: Layer::Blk,
        after: Duration::from_millis(3_001),
        until: Some(Duration::from_millis(3_002)),
        of_layer: share(12_000_000),
        of_all: share(13_400_000),
        under_way: Some(2),
    }
}

fn layer(layer: Layer, ops: Vec<OpReport>) -> LayerReport {
    LayerReport {
        ops,
        hooks: vec![Hook::Fentry],
        ..LayerReport::new(layer)
    }
}

fn attach(function: &str, hook: Hook) -> AttachPoint {
    AttachPoint {
        function: function.into(),
        hook,
    }
}

fn loss(reason: LossReason, count: u64, up_to: bool) -> Loss {
    Loss {
        reason,
        count,
        up_to,
        cause: None,
    }
}

fn printed(report: &Report) -> String {
    let mut out = Vec::new();
    json::print(report, Form::Full, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}
