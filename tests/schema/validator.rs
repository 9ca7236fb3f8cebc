//! Validates JSON reports against `schema/report.schema.json`.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use jsonschema::Validator;
use serde_json::{Map, Value};

use super::schema::paths_of_objects;

pub const SCHEMA: &str = include_str!("../../schema/report.schema.json");

static VALIDATOR: LazyLock<Validator> = LazyLock::new(|| {
    let schema = serde_json::from_str(SCHEMA).expect("the schema is JSON");
    jsonschema::draft202012::new(&schema).expect("the schema is one")
});

pub fn valid(report: &Value) -> Result<(), String> {
    let wrong: Vec<String> = VALIDATOR
        .iter_errors(report)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(wrong.join("; "))
    }
}

/// Checks that the schema allows no variation of these valid reports: no field can be removed, and none added. Objects
/// at the same path with the same kinds of values count once. Returns the number of objects.
pub fn strict(reports: &[Value]) -> Result<usize, String> {
    let mut seen = BTreeSet::new();
    for report in reports {
        for path in paths_of_objects(report) {
            let object = report.pointer(&path).and_then(Value::as_object);
            let fields: Vec<(&String, &Value)> = object.into_iter().flatten().collect();
            if !seen.insert(kind(&path, &fields)) {
                continue;
            }
            let is_valid_with = |change: &dyn Fn(&mut Map<String, Value>)| {
                let mut changed = report.clone();
                changed.pointer_mut(&path).and_then(Value::as_object_mut).map(change);
                VALIDATOR.is_valid(&changed)
            };
            // The keys of errors are arbitrary names.
            let is_map = path.ends_with("/errors");
            for (field, _) in fields.iter().filter(|_| !is_map) {
                if is_valid_with(&|object| drop(object.remove(*field))) {
                    return Err(format!("{path} can be without {field}"));
                }
            }
            if is_valid_with(&|object| drop(object.insert("another".into(), Value::from(1)))) {
                return Err(format!("{path} can have another field"));
            }
        }
    }
    Ok(seen.len())
}

/// What the schema distinguishes an object by: its path without the positions in lists, and its fields with the kinds of
/// their values.
pub fn kind(path: &str, fields: &[(&String, &Value)]) -> String {
    let steps = path.split('/').filter(|step| step.parse::<usize>().is_err());
    let fields = fields.iter().map(|(name, value)| {
        let value = match value {
            Value::Null => "null",
            Value::Bool(true) => "true",
            Value::Bool(false) => "false",
            Value::Number(_) => "number",
            Value::String(_) => "text",
            Value::Array(_) => "list",
            Value::Object(_) => "object",
        };
        format!("{name}={value}")
    });
    steps.map(str::to_owned).chain(fields).collect::<Vec<_>>().join("/")
}
