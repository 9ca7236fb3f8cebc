//! All formats on the same records.

use std::collections::BTreeMap;

use super::output::Memory;
use super::synthetic::{self, HOSTILE, LOST_FROM, LOST_TO, POSTGRES};
use super::*;
use crate::model::ids::Op;
use crate::model::record::Records;

fn exported(format: Format, batches: &[Records]) -> (BTreeMap<String, Vec<u8>>, Summary) {
    let mut output = Memory::default();
    let read = || batches.iter().cloned();
    let meta = synthetic::meta();
    let summary = export(format, &meta, &Selection::default(), read, &mut output, |_, _| ()).unwrap();
    (output.0, summary)
}

fn text(format: Format) -> String {
    let (mut files, _) = exported(format, &synthetic::batches());
    String::from_utf8(files.remove("").unwrap()).unwrap()
}

/// Calls, requests and other records that are not definitions or losses.
fn recorded() -> Records {
    let mut all = Records::default();
    synthetic::batches().into_iter().for_each(|batch| all.append(batch));
    all
}

#[test]
fn the_order_of_arrival_does_not_matter() {
    let batches = synthetic::batches();
    for format in Format::ALL {
        let (files, summary) = exported(format, &batches);
        let (again, _) = exported(format, &batches);
        assert!(files == again, "{format:?} is the same each time");
        let mut all = recorded();
        all.calls.reverse();
        all.requests.reverse();
        let (_, reversed) = exported(format, &[all]);
        assert_eq!(summary.records, reversed.records, "{format:?}");
        assert_eq!(summary.left_out, reversed.left_out, "{format:?}");
    }
}

#[test]
fn losses_are_summed_whatever_the_format() {
    for format in Format::ALL {
        let (_, summary) = exported(format, &synthetic::batches());
        assert_eq!(summary.lost, [(Kind::Call, 2113), (Kind::Request, 7)], "{format:?}");
    }
}

#[test]
fn nothing_at_all_is_valid_too() {
    for format in Format::ALL {
        let (_, summary) = exported(format, &[]);
        assert_eq!(summary, Summary::default());
    }
}

#[test]
fn a_line_of_json_for_every_record_in_the_order_of_begins() {
    let text = text(Format::Jsonl);
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), recorded().len() + 1);
    let calls: Vec<&serde_json::Value> = lines.iter().filter_map(|line| line.get("call")).collect();
    assert_eq!(calls.len(), recorded().calls.len());
    assert!(calls.is_sorted_by_key(|call| call["begin_ns"].as_u64()));
    let of_disk = calls.iter().find(|call| call["op"] == "pread64").unwrap();
    assert_eq!(of_disk["rows"]["device"], 790_000);
    assert_eq!(of_disk["comm"], "postgres");
    assert_eq!(of_disk["path"], synthetic::TABLE);
    assert!(calls.iter().any(|call| call["path"] == HOSTILE));
    let hung: Vec<_> = calls.iter().filter(|call| call["end_ns"].is_null()).collect();
    assert_eq!(hung.len(), 1);
    let lost = lines.iter().find_map(|line| line.get("lost")).unwrap();
    assert_eq!(
        (lost["from_ns"].as_u64(), lost["to_ns"].as_u64()),
        (Some(LOST_FROM), Some(LOST_TO))
    );
}

#[test]
fn iotracer_has_the_entry_the_partitions_sector_and_no_semicolon_in_a_name() {
    let text = text(Format::Iotracer);
    let fields: Vec<Vec<&str>> = text.lines().map(|line| line.split(';').collect()).collect();
    assert!(fields.iter().all(|line| line.len() == 7), "{text}");
    let time = |line: &Vec<&str>| line[0].parse::<f64>().unwrap();
    assert!(fields.is_sorted_by(|a, b| time(a) <= time(b)));
    // The read of round 6, and its request in the partition.
    assert!(text.contains("0.007000000;R;49152;8192;VFS;postgres;4711\n"), "{text}");
    assert!(text.contains("0.007006000;R;1096;8192;BLK;postgres;4711\n"));
    assert!(text.contains(";VFS;pg_work_\"er;4711\n"));
    let (_, summary) = exported(Format::Iotracer, &synthetic::batches());
    for what in [
        "requests that are neither",
        "whose offset or size is unknown",
        "page faults",
        "marks",
    ] {
        let is_left_out = summary.left_out.iter().any(|left| left.what.contains(what));
        assert!(is_left_out, "{what}: {:?}", summary.left_out);
    }
}

/// The parts of a blktrace file: sequence, time, action, bytes.
fn events(file: &[u8]) -> Vec<(u32, u64, u32, u32)> {
    let u32_at = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
    let mut events = Vec::new();
    let mut at = 0;
    while at < file.len() {
        assert_eq!(u32_at(at), 0x6561_7407);
        let time = u64::from(u32_at(at + 8)) | u64::from(u32_at(at + 12)) << 32;
        events.push((u32_at(at + 4), time, u32_at(at + 28), u32_at(at + 24)));
        at += 48 + usize::from(u16::from_le_bytes([file[at + 46], file[at + 47]]));
    }
    events
}

#[test]
fn blktrace_has_four_events_a_request_and_a_gap_where_some_were_lost() {
    let (files, _) = exported(Format::Blktrace, &synthetic::batches());
    assert_eq!(files.keys().collect::<Vec<_>>(), ["sda.blktrace.0", "sda.blktrace.1"]);
    assert!(files["sda.blktrace.0"].is_empty());
    let events = events(&files["sda.blktrace.1"]);
    let is_event = |action: u32| action >> 16 & 1 << 10 == 0;
    let requests: Vec<_> = events.iter().filter(|(_, _, action, _)| is_event(*action)).collect();
    let all = recorded().requests;
    let issued = all.iter().filter(|request| request.issued_ns.is_some()).count();
    assert_eq!(requests.len(), all.len() * 3 + issued);
    assert!(requests.is_sorted_by_key(|(_, time, ..)| *time));
    let steps: Vec<u32> = requests
        .windows(2)
        .map(|pair| pair[1].0 - pair[0].0)
        .filter(|step| *step != 1)
        .collect();
    assert_eq!(steps, [8], "seven are missing");
    let gap = requests.windows(2).position(|pair| pair[1].0 - pair[0].0 == 8).unwrap();
    assert!(requests[gap + 1].1 >= LOST_TO - synthetic::BEGAN_NS);
}

#[test]
fn ctf_streams_begin_and_end_with_the_recording() {
    let (files, _) = exported(Format::Ctf, &synthetic::batches());
    assert_eq!(files.keys().collect::<Vec<_>>(), ["channel_0", "channel_1", "metadata"]);
    for name in ["channel_0", "channel_1"] {
        let file = &files[name];
        let u64_at = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap());
        let (mut at, mut spans, mut discarded) = (0, Vec::new(), Vec::new());
        while at < file.len() {
            spans.push((u64_at(at + 24), u64_at(at + 32)));
            discarded.push((u64_at(at + 56), u64_at(at + 32)));
            at += usize::try_from(u64_at(at + 40) / 8).unwrap();
        }
        let first = recorded().files[0].at_ns.min(synthetic::BEGAN_NS + 500);
        assert!(spans[0].0 >= first && spans[0].0 <= synthetic::BEGAN_NS + 500);
        assert!(spans.windows(2).all(|pair| pair[0].1 == pair[1].0), "{spans:?}");
        let grew = discarded.windows(2).filter(|pair| pair[1].0 > pair[0].0);
        let grew: Vec<(u64, u64, u64)> = grew.map(|pair| (pair[1].0 - pair[0].0, pair[0].1, pair[1].1)).collect();
        let expected = if name == "channel_1" {
            vec![(2113, LOST_FROM, LOST_TO), (7, LOST_TO, LOST_TO)]
        } else {
            Vec::new()
        };
        assert_eq!(grew, expected);
    }
}

#[test]
fn ctf_counts_no_lost_definitions_as_events() {
    let discarded = |kind| {
        let mut batches = synthetic::batches();
        let lost = batches.iter_mut().flat_map(|batch| &mut batch.lost);
        lost.for_each(|lost| lost.kind = kind);
        let (files, _) = exported(Format::Ctf, &batches);
        let u64_at = |at: usize| u64::from_le_bytes(files["channel_1"][at..at + 8].try_into().unwrap());
        let (mut at, mut discarded) = (0, 0);
        while at < files["channel_1"].len() {
            discarded = u64_at(at + 56);
            at += usize::try_from(u64_at(at + 40) / 8).unwrap();
        }
        discarded
    };
    assert_eq!(Kind::ALL.map(discarded), [2120, 2120, 2120, 2120, 2120, 0, 0, 0, 0]);
}

#[test]
fn what_is_written_and_what_is_left_out_are_all_that_is_selected() {
    let written = |format| exported(format, &synthetic::batches()).1.written();
    let log = text(Format::Iotracer);
    // They are not read for these formats.
    let sleeps = recorded().sleeps.len() as u64;
    assert_eq!(written(Format::Iotracer) - sleeps, log.lines().count() as u64);
    assert_eq!(written(Format::Blktrace) - sleeps, recorded().requests.len() as u64);
    let (files, summary) = exported(Format::Fio, &synthetic::batches());
    let logs = files.iter().filter(|(name, _)| name.ends_with(".log"));
    let lines = logs.flat_map(|(_, log)| std::str::from_utf8(log).unwrap().lines());
    let is_action = |line: &&str| {
        ["read", "write", "sync", "datasync"]
            .iter()
            .any(|word| line.split(' ').nth(2) == Some(word))
    };
    let all = summary.records - (recorded().requests.len() + recorded().sleeps.len()) as u64;
    let left: u64 = summary.left_out.iter().map(|left| left.records).sum();
    assert_eq!(lines.filter(is_action).count() as u64, all - left);
}

#[test]
fn fio_replays_below_its_own_directory_and_only_what_was_moved() {
    let (files, summary) = exported(Format::Fio, &synthetic::batches());
    let text = |name: &str| String::from_utf8(files[name].clone()).unwrap();
    let log = text(&format!("thread-{POSTGRES}.log"));
    assert!(log.starts_with("fio version 3 iolog\n"));
    let mut bytes = 0;
    for line in log.lines().skip(1) {
        let words: Vec<&str> = line.split(' ').collect();
        assert!(words[1].starts_with("files/") && !words[1].contains(".."), "{line}");
        if words[2] == "read" {
            bytes += words[4].parse::<i64>().unwrap();
        }
    }
    let reads = recorded().calls;
    let reads = reads
        .iter()
        .filter(|call| call.tid == POSTGRES && call.op == Op::Pread64);
    assert_eq!(bytes, reads.map(|call| call.value).sum::<i64>());
    let job = text("thread.fio");
    assert!(job.contains("; INCOMPLETE: 2113 calls were lost"), "{job}");
    assert!(job.contains("; files/alias-1 is /srv/a;b \"c' ?[31m\\d"), "{job}");
    let hung = summary.left_out.iter().find(|left| left.what.contains("under way"));
    assert_eq!(hung.map(|left| left.records), Some(1));
}

#[test]
fn a_path_cannot_lead_a_replay_out_of_its_directory() {
    let mut batches = synthetic::batches();
    for (path, file) in ["/srv/../../etc/passwd", "../x"].iter().zip(&mut batches[0].files) {
        if let Some(known) = &mut file.path {
            (*path).clone_into(&mut known.text);
        }
    }
    let (files, _) = exported(Format::Fio, &batches);
    let script = String::from_utf8(files["prepare.sh"].clone()).unwrap();
    assert!(!script.contains("..") && !script.contains("passwd"), "{script}");
    assert!(script.contains("alias-1") && script.contains("alias-2"));
}

#[test]
fn a_disk_of_a_recording_cannot_name_a_file_elsewhere() {
    let mut meta = synthetic::meta();
    "../../x".clone_into(&mut meta.disks[0].name);
    let mut output = Memory::default();
    let read = || synthetic::batches().into_iter();
    export(
        Format::Blktrace,
        &meta,
        &Selection::default(),
        read,
        &mut output,
        |_, _| (),
    )
    .unwrap();
    assert!(output.0.keys().all(|name| !name.contains('/')), "{:?}", output.0.keys());
}

/// A reader that is gone after some bytes.
struct Closed(usize);

impl Output for Closed {
    fn write(&mut self, _: &str, bytes: &[u8]) -> io::Result<()> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(())
    }
}

#[test]
fn a_failed_write_ends_the_export() {
    for format in Format::ALL {
        let read = || synthetic::batches().into_iter();
        let meta = synthetic::meta();
        let failed = export(format, &meta, &Selection::default(), read, &mut Closed(500), |_, _| ());
        assert_eq!(failed.unwrap_err().kind(), io::ErrorKind::BrokenPipe, "{format:?}");
    }
}
