use super::*;
use crate::model::report::records::{AccessReport, LimitsReport, SeeksReport};
use crate::printable::is_printable;

fn text(report: &RecordsReport, width: Option<usize>) -> String {
    let mut out = Vec::new();
    let screen = Screen {
        width,
        ..Screen::default()
    };
    print(report, Clock::default(), screen, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn every_width_holds_its_lines_and_names_command_no_terminal() {
    for width in [40, 60, 80, 109, 110, 132, 200] {
        let text = text(&example::full(), Some(width));
        for line in text.lines() {
            assert!(line.chars().count() <= width, "{width}: {line}");
            assert!(line.chars().all(is_printable), "{line:?}");
        }
        for word in ["61,302", "sda", "tar", "jbd2/sda1-8", "INCOMPLETE", "2,113 calls"] {
            assert!(text.contains(word), "{word} at {width}:\n{text}");
        }
    }
}

#[test]
fn accesses_beside_their_file_where_there_is_room() {
    let report = RecordsReport {
        access: Some(example::access()),
        ..RecordsReport::default()
    };
    let wide = text(&report, Some(130));
    let lines: Vec<&str> = wide.lines().collect();
    assert_eq!(
        lines[..3],
        [
            "file                                  level  R/W  accesses     bytes  sequential  random  in streams  common sizes",
            "/srv/db/base/16384/16602              VFS    R      61,302  502.2 MB      12.4 %  87.6 %      71.0 %  8 KiB 100 %",
            "                                      BLK    R       9,911   81.2 MB       3.1 %  96.9 %           -  8 KiB 97 %, 16 KiB 3 %",
        ],
        "{wide}"
    );
    let narrow = text(&report, Some(80));
    let lines: Vec<&str> = narrow.lines().collect();
    assert_eq!(
        lines[..5],
        [
            "  level  R/W  accesses     bytes     seq  random  streams",
            "/srv/db/base/16384/16602",
            "  VFS    R      61,302  502.2 MB  12.4 %  87.6 %   71.0 %",
            "    sizes: 8 KiB 100 %",
            "  BLK    R       9,911   81.2 MB   3.1 %  96.9 %        -",
        ],
        "{narrow}"
    );
    assert!(narrow.contains("not shown: 3 files"), "{narrow}");
    assert!(narrow.contains("they took very long: 1\n"), "{narrow}");
}

#[test]
fn seeks_have_rows_of_both_signs_and_who_sends_the_head_away() {
    let report = RecordsReport {
        seeks: Some(example::seeks()),
        ..RecordsReport::default()
    };
    let text = text(&report, Some(80));
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[..4],
        [
            "disk = sda: 48,210 requests, 31,004 seeks, mean 41.0 GB of 1.0 TB",
            "     sectors (512 B)     : count    distribution",
            "-268435455 -> -134217728 : 4,011    |*********                               |",
            "        -1               : 0        |                                        |",
        ],
        "{text}"
    );
    assert!(text.contains("  tar 812 after postgres 4711"), "{text}");
    assert!(text.contains("  postgres 4711 after itself"), "{text}");
    assert!(
        text.contains("at the device: 45.1 % of the time, 0.80 requests on average, 32 at most"),
        "{text}"
    );
}

#[test]
fn limits_are_on_one_line_each_where_there_is_room() {
    let report = RecordsReport {
        limits: Some(example::limits()),
        ..RecordsReport::default()
    };
    let wide = text(&report, Some(200));
    assert!(
        wide.contains("read        10 ms     483  61,302  71.2 ms   postgres 4711"),
        "{wide}"
    );
    assert!(wide.contains("tar? 812 88 %, own 12 %"), "{wide}");
    let narrow = text(&report, Some(60));
    assert!(
        narrow.contains("\n  served meanwhile: tar? 812 88 %, own 12 %\n"),
        "{narrow}"
    );
    assert!(narrow.contains("read: 1 call under way at the end"), "{narrow}");
    assert!(
        narrow.contains("fsync   50,500 us       0     801        -\n"),
        "{narrow}"
    );
}

#[test]
fn nothing_is_said_in_words() {
    let report = RecordsReport {
        access: Some(AccessReport::default()),
        seeks: Some(SeeksReport::default()),
        limits: Some(LimitsReport::default()),
        ..RecordsReport::default()
    };
    let text = text(&report, None);
    assert!(text.contains("no reads or writes of files"), "{text}");
    assert!(text.contains("no requests"), "{text}");
}

#[test]
fn both_names_of_a_pair_are_seen() {
    use crate::model::report::records::Owner;
    let mut seeks = example::seeks();
    let long = |end: &str| {
        Owner::File(FileName {
            path: Some(crate::model::report::slow::CallPath::whole(format!(
                "/srv/postgresql/17/main/base/16384/{end}"
            ))),
            ..FileName::default()
        })
    };
    let pair = &mut seeks.disks[0].pairs[0];
    (pair.mover, pair.after) = (long("2619"), long("16602"));
    let report = RecordsReport {
        seeks: Some(seeks),
        ..RecordsReport::default()
    };
    for (width, expected) in [
        (60, "2619 after "),
        (80, "/2619 after /srv/…/16384/16602 "),
        (200, "/16384/2619 after /srv/postgresql/17/main/base/16384/16602 "),
    ] {
        let text = text(&report, Some(width));
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn only_operations_are_in_totals() {
    for (records, kind, expected) in [
        (2113, Kind::Call, "2,113 calls have no record; they are in the totals"),
        (1, Kind::Call, "1 call has no record; it is in the totals"),
        (
            2552,
            Kind::File,
            "2,552 definitions of files have no record: names may be missing",
        ),
        (
            1,
            Kind::Thread,
            "1 definition of a thread has no record: names may be missing",
        ),
        (
            2,
            Kind::Folder,
            "2 definitions of directories have no record: names may be missing",
        ),
        (1, Kind::Path, "1 path has no record: the call with it has none"),
    ] {
        assert_eq!(without_record(records, kind, true), expected);
    }
    assert_eq!(without_record(1, Kind::Call, false), "1 call has no record");
}
