//! The segments of a recording in their order, and which of them are missing or do not belong to it.
//!
//! A segment begins where the one before ended, the first one at the start of the recording, and the last one ends at its end.

use std::fs;
use std::io;
use std::path::Path;

use super::{Damages, END, SEGMENT, SegmentFolder, read_json, sealed};
use crate::model::recording::{End, Meta, Segment};
use crate::number::thousands;

/// Reads the summaries of all segments.
pub fn segments(folder: &Path, meta: &Meta, end: Option<&End>, damage: &Damages) -> io::Result<Vec<SegmentFolder>> {
    let entries = fs::read_dir(folder)?.flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut numbered: Vec<(u32, String)> = names
        .filter(|name| name.len() == 6)
        .filter_map(|name| Some((name.parse().ok()?, name)))
        .collect();
    numbered.sort_unstable();
    let mut chain = Chain::new(meta, end, damage);
    let mut segments = Vec::new();
    for (number, name) in numbered {
        let summary = match read_json(&folder.join(&name).join(SEGMENT)).map(|text| summary_of(&text)) {
            Ok(Ok(summary)) => Some(summary),
            Ok(Err(error)) => {
                damage.add(format!("{name}/{SEGMENT}"), error, None);
                None
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                damage.add(format!("{name}/{SEGMENT}"), error.to_string(), None);
                None
            }
        };
        if chain.has(number, &name, summary.as_ref()) {
            segments.push(SegmentFolder { name, summary });
        }
    }
    chain.finish();
    if let Some(end) = end.filter(|_| damage.all().is_empty()) {
        check_rows(end, &segments, damage);
    }
    Ok(segments)
}

/// The summary of a segment.
fn summary_of(text: &[u8]) -> Result<Segment, String> {
    if sealed::is_intact(text) == Some(false) {
        return Err("its checksum is wrong".to_owned());
    }
    serde_json::from_slice(text).map_err(|error| format!("it cannot be understood: {error}"))
}

/// What the next segment follows.
struct Chain<'a> {
    /// The last segment that belongs to the recording; 0: there is none so far.
    number: u32,
    from_ns: u64,
    /// `None`: it is not known.
    to_ns: Option<u64>,
    /// The end of the recording, if it is known.
    end_ns: Option<u64>,
    /// Segments since then that do not belong to it, and why.
    refused: Vec<(String, String)>,
    damage: &'a Damages,
}

impl<'a> Chain<'a> {
    fn new(meta: &Meta, end: Option<&End>, damage: &'a Damages) -> Self {
        let start = meta.run.began_ns;
        Self {
            number: 0,
            from_ns: start,
            to_ns: Some(start),
            end_ns: end.map(|end| end.to_ns).filter(|end| *end > start),
            refused: Vec::new(),
            damage,
        }
    }

    /// Whether the next segment belongs to the recording. What is missing before it is damage.
    fn has(&mut self, number: u32, name: &str, summary: Option<&Segment>) -> bool {
        if let Some(why) = summary.and_then(|summary| self.refusal(number, summary)) {
            self.refused.push((name.to_owned(), format!("{why}: it is left out")));
            return false;
        }
        let from_ns = summary.map(|summary| summary.from_ns);
        // A recording may begin with a later number, but not with a later time.
        let is_first = self.number == 0 && from_ns.is_some_and(|from_ns| from_ns <= self.from_ns);
        self.say_gap(if is_first { number } else { self.number + 1 }, number, from_ns);
        self.number = number;
        self.from_ns = from_ns.unwrap_or(self.from_ns);
        self.to_ns = summary.map(|summary| summary.to_ns);
        true
    }

    /// Why a segment does not belong to the recording.
    fn refusal(&self, number: u32, summary: &Segment) -> Option<String> {
        if summary.number != number {
            return Some(format!("it is segment {}", summary.number));
        }
        let is_next = number == self.number + 1;
        let is_later = is_next && self.to_ns.is_some_and(|to_ns| summary.from_ns > to_ns);
        let is_after_end = self.end_ns.is_some_and(|end_ns| summary.from_ns > end_ns);
        (summary.from_ns < self.from_ns || is_later || is_after_end).then(|| "it is of another recording".to_owned())
    }

    /// Says what is missing: the segments from `first` up to `next`, which begins at `from_ns`.
    fn say_gap(&mut self, first: u32, next: u32, from_ns: Option<u64>) {
        let span = self.to_ns.zip(from_ns).map(|(from, to)| (from, to.max(from)));
        let refused = std::mem::take(&mut self.refused);
        let missing = next.saturating_sub(first).saturating_sub(refused.len() as u32);
        let last = next.saturating_sub(1);
        match missing {
            0 => {}
            1 if first == last => self.damage.add(format!("{first:06}"), "the segment is missing", span),
            1 => self
                .damage
                .add(format!("{first:06} to {last:06}"), "a segment is missing", span),
            missing => {
                let what = format!("{} segments are missing", thousands(missing.into()));
                self.damage.add(format!("{first:06} to {last:06}"), what, span);
            }
        }
        for (name, why) in refused {
            self.damage.add(name, why, span);
        }
    }

    /// Says what is missing at the end.
    fn finish(mut self) {
        let is_short = self.end_ns.zip(self.to_ns).is_some_and(|(end, to)| to < end);
        let first = self.number + 1;
        let next = first + u32::from(is_short && self.refused.is_empty());
        self.say_gap(first, next, self.end_ns);
    }
}

/// Compares the rows of the tables of all complete segments with those of the recording; definitions are repeated.
fn check_rows(end: &End, segments: &[SegmentFolder], damage: &Damages) {
    const REPEATED: [&str; 3] = ["files", "folders", "processes"];
    let summaries: Option<Vec<&Segment>> = segments.iter().map(|segment| segment.summary.as_ref()).collect();
    let Some(summaries) = summaries.filter(|_| end.not_written.is_empty()) else {
        return;
    };
    for (table, rows) in &end.rows {
        let name = format!("{table}.arrow");
        let files = summaries.iter().filter_map(|summary| summary.files.get(&name));
        let found = files.map(|file| file.rows).fold(0, u64::saturating_add);
        if found != *rows && !REPEATED.contains(&table.as_str()) {
            let [found, rows] = [found, *rows].map(thousands);
            let table = crate::printable::printable(table);
            damage.add(
                END.to_owned(),
                format!("the recording had {rows} {table}, and its segments have {found}"),
                None,
            );
        }
    }
}
