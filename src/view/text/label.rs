//! Short names of rows, for headings of columns and lines of slow calls.

use crate::model::ids::NOT_SPLIT;

/// The name of all file systems if they share one column.
pub const FILE_SYSTEMS: &str = "fs";

/// A row's name in three columns, except for file systems, and for [`NOT_SPLIT`], which appears without columns of
/// layers. All waits and one file system fit on a terminal of 80 columns.
pub fn short(label: &'static str) -> &'static str {
    match label {
        "syscall" => "sys",
        NOT_SPLIT => "kernel",
        "overlay" => "ovl",
        "queue" => "que",
        "device" => "dev",
        "others' I/O" => "oIO",
        "journal" => "jou",
        "lock" => "lck",
        "other" => "oth",
        "run queue" => "run",
        label => label,
    }
}

/// `dev: device; run: run queue`: the legend of abbreviated names. `None`: no name is abbreviated.
pub fn explained(labels: impl Iterator<Item = &'static str>) -> Option<String> {
    let words = labels.filter_map(|label| match label {
        FILE_SYSTEMS => Some("fs: file systems".to_owned()),
        label if short(label) == label => None,
        label => Some(format!("{}: {label}", short(label))),
    });
    let words: Vec<String> = words.collect();
    (!words.is_empty()).then(|| words.join("; "))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::model::ids::{Layer, Row};

    #[test]
    fn no_two_rows_have_one_short_name() {
        let layers = Layer::ALL.into_iter().map(Layer::name);
        let rows = Row::WAITS.map(Row::name);
        let labels = layers.chain(rows).chain([NOT_SPLIT, FILE_SYSTEMS]);
        let mut names = HashSet::new();
        for label in labels {
            let name = short(label);
            assert!(names.insert(name), "{name}");
        }
    }

    #[test]
    fn only_what_is_shortened_is_explained() {
        assert_eq!(
            explained(["vfs", "fs", "device", "run queue"].into_iter()).as_deref(),
            Some("fs: file systems; dev: device; run: run queue")
        );
        assert_eq!(explained(["vfs", "ext4"].into_iter()), None);
    }
}
