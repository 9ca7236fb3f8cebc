//! Validates JSON reports against `schema/report.schema.json`.

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

/// Checks that the schema allows no variation of this valid report: no field can be removed, and none added. Returns
/// the number of objects.
pub fn strict(report: &Value) -> Result<usize, String> {
    let paths = paths_of_objects(report);
    for path in &paths {
        let is_valid_with = |change: &dyn Fn(&mut Map<String, Value>)| {
            let mut changed = report.clone();
            changed.pointer_mut(path).and_then(Value::as_object_mut).map(change);
            VALIDATOR.is_valid(&changed)
        };
        // The keys of errors are arbitrary names.
        let is_map = path.ends_with("/errors");
        let fields = report.pointer(path).and_then(Value::as_object).into_iter().flatten();
        for (field, _) in fields.filter(|_| !is_map) {
            if is_valid_with(&|object| drop(object.remove(field))) {
                return Err(format!("{path} can be without {field}"));
            }
        }
        if is_valid_with(&|object| drop(object.insert("another".into(), Value::from(1)))) {
            return Err(format!("{path} can have another field"));
        }
    }
    Ok(paths.len())
}
