//! `export`: writes a recording in the format of another tool.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, IsTerminal};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use crate::args::Export;
use crate::cause::Cause;
use crate::export::output::{Directory, Stream};
use crate::export::{self, Format, LeftOut, Output, Selection, Summary};
use crate::model::ids::{Layer, joined};
use crate::model::recording::Meta;
use crate::number::thousands;
use crate::recording::Unneeded;
use crate::say;
use crate::view::text::counted;
use crate::view::text::records::of_kind;

use super::progress::Paced;
use super::report::{bounds, open_records, say_damage};
use super::selected;

/// Exports what `export` selects of a recording. Returns the exit status.
pub fn export(from: &Path, export: &Export) -> Result<u8, Cause> {
    let recording = open_records(from, "export")?;
    let meta = recording.meta();
    let selection = selection(meta, export)?;
    check_layers(meta, export)?;
    let [after, before] = bounds(&export.part, &recording)?;
    let (mut output, made) = open(export)?;
    let mut shown = Paced::new(!export.quiet);
    let progress = |pass: usize, records: u64| shown.show(|| status(pass, records));
    let batches = || recording.batches(after, before).without(unneeded(export.format));
    let written = export::export(export.format, meta, &selection, batches, &mut *output, progress);
    say::erase();
    drop(output);
    match written {
        Ok(summary) if summary.written() == 0 => {
            say_left_out(&summary);
            say_damage(&recording);
            remove(made);
            Err(nothing(&summary, export.format).into())
        }
        Ok(summary) => {
            say_summary(&summary, export);
            say_damage(&recording);
            Ok(0)
        }
        // A closed pipe is not an error.
        Err(error) if error.kind() == ErrorKind::BrokenPipe && export.path.is_none() => Ok(0),
        Err(error) => {
            // A part of it would look like all of it, and a full disk has its room back.
            remove(made);
            Err(Cause::of(format_args!("cannot write {}", called(export)), &error))
        }
    }
}

/// What a format has nothing of.
pub const fn unneeded(format: Format) -> &'static [Unneeded] {
    match format {
        Format::Jsonl | Format::Ctf | Format::Perfetto => &[],
        Format::Iotracer | Format::Blktrace => &[Unneeded::Waits, Unneeded::Sleeps],
        Format::Fio => &[Unneeded::Waits, Unneeded::Sleeps, Unneeded::Requests],
    }
}

/// Checks that calls are among what was recorded and is selected, for fio, which has nothing else. None of an earlier version's
/// layers are known.
///
/// # Errors
/// If not, in one line: requests are not even read, so that nothing would seem to have been recorded.
fn check_layers(meta: &Meta, export: &Export) -> Result<(), Cause> {
    if export.format != Format::Fio {
        return Ok(());
    }
    let recorded: Vec<Layer> = meta.run.layers.iter().map(|info| info.layer).collect();
    let lacks = |layers: &[Layer]| !layers.is_empty() && !layers.contains(&Layer::Syscall);
    let why = if lacks(&recorded) {
        let recorded = joined(&recorded, Layer::name).replace(", ", ",");
        format!("recorded with -T {recorded}: calls are not in it")
    } else if lacks(&export.layers) {
        "-T blk selects no calls".to_owned()
    } else {
        return Ok(());
    };
    Err(format!("{why}, and fio has nothing else; for requests, export --to blktrace, then fio --read_iolog").into())
}

/// `naming: 1,204,331 records`, `exporting: 65,536 records`
fn status(pass: usize, records: u64) -> String {
    let what = if pass == 0 { "naming" } else { "exporting" };
    format!("{what}: {} records", thousands(records))
}

fn called(export: &Export) -> String {
    match &export.path {
        Some(path) => format!("'{}'", path.display()),
        None => "to standard output".to_owned(),
    }
}

/// What an export has made.
enum Made<'a> {
    Directory(&'a Path),
    File(&'a Path),
}

/// Removes what an export has made. What cannot be removed stays.
fn remove(made: Option<Made<'_>>) {
    let _ = match made {
        Some(Made::Directory(path)) => fs::remove_dir_all(path),
        Some(Made::File(path)) => fs::remove_file(path),
        None => Ok(()),
    };
}

/// Opens the output, and returns what is made for it.
fn open(export: &Export) -> Result<(Box<dyn Output>, Option<Made<'_>>), Cause> {
    let failed = |error: io::Error| {
        let what = if export.format.is_directory() {
            "directory"
        } else {
            "file"
        };
        if error.kind() == ErrorKind::AlreadyExists {
            format!("{} exists; name a new {what} with -o", called(export)).into()
        } else {
            Cause::of(format_args!("cannot write {}", called(export)), &error)
        }
    };
    let output: Box<dyn Output> = match &export.path {
        Some(path) if export.format.is_directory() => {
            let directory = Directory::create(path).map_err(failed)?;
            return Ok((Box::new(directory), Some(Made::Directory(path))));
        }
        Some(path) if is_stream(path) => Box::new(Stream::new(File::create(path).map_err(failed)?)),
        Some(path) => {
            // Names of files and processes are not for everyone.
            let mut options = OpenOptions::new();
            let file = options.write(true).create_new(true).mode(0o600).open(path);
            return Ok((Box::new(Stream::new(file.map_err(failed)?)), Some(Made::File(path))));
        }
        None if export.format.is_binary() && io::stdout().is_terminal() => {
            return Err("the format is not text; name a file with -o".to_owned().into());
        }
        None => Box::new(Stream::new(io::stdout().lock())),
    };
    Ok((output, None))
}

/// Whether a path is that of a pipe or a device, or of an open file (`/dev/stdout`), so that nothing is written over.
fn is_stream(path: &Path) -> bool {
    let is_open = path.starts_with("/dev") || path.starts_with("/proc");
    is_open || fs::metadata(path).is_ok_and(|file| !file.is_file() && !file.is_dir())
}

/// What is selected, if the recording has it.
fn selection(meta: &Meta, export: &Export) -> Result<Selection, Cause> {
    let recorded = &meta.run.filter;
    let pids = selected::pids(meta, &export.pids)?;
    selected::check("--comm", export.comm.as_deref(), recorded.comm.as_deref())?;
    let files = || export.file.iter().map(Path::new);
    let files = match selected::check_files(meta, files())? {
        true => files().map(selected::whole_path).collect(),
        false => Vec::new(),
    };
    let devices = export.disk.as_deref();
    let devices = devices.map(|disk| selected::part_of_disk(meta, disk)).transpose()?;
    Ok(Selection {
        pids,
        comm: export.comm.clone(),
        devices: devices.unwrap_or_default(),
        files,
        layers: export.layers.iter().copied().collect(),
        ..Selection::default()
    })
}

fn say_summary(summary: &Summary, export: &Export) {
    if !export.quiet {
        say!(
            "{} in {}",
            counted(summary.written(), "record"),
            match &export.path {
                Some(path) => path.display().to_string(),
                None => "standard output".to_owned(),
            }
        );
    }
    say_left_out(summary);
}

/// Why nothing was written.
fn nothing(summary: &Summary, format: Format) -> String {
    match (summary.records, summary.lost.is_empty()) {
        (0, true) => "nothing that is selected was recorded".to_owned(),
        (0, false) => {
            "nothing that is selected was recorded, unless it was lost (report --lost has the intervals)".to_owned()
        }
        _ => format!("{} can hold nothing of what is selected", format.name()),
    }
}

/// What was not written, and why.
pub fn say_left_out(summary: &Summary) {
    say_left_out_of_format(&summary.left_out);
    for (kind, records) in &summary.lost {
        let was = if *records == 1 { "was" } else { "were" };
        say!("INCOMPLETE: {} {was} lost while recording", of_kind(*records, *kind));
    }
}

/// What a format could not hold.
pub fn say_left_out_of_format(left_out: &[LeftOut]) {
    for left in left_out {
        say!("left out: {} {}", thousands(left.records), left.what);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::args::Part;
    use crate::model::record::Kind;
    use crate::model::report::Filter;
    use crate::model::run_info::LayerInfo;

    fn wanted() -> Export {
        Export {
            format: Format::Jsonl,
            path: None,
            layers: Vec::new(),
            pids: Vec::new(),
            disk: None,
            comm: None,
            file: None,
            part: Part::default(),
            quiet: true,
        }
    }

    fn recorded() -> Meta {
        selected::tests::recorded(Filter {
            pids: vec![4711],
            comm: Some("postgres".to_owned()),
            ..Filter::default()
        })
    }

    #[test]
    fn a_filter_that_the_recording_cannot_answer_is_refused() {
        let line = |export: &Export| selection(&recorded(), export).map_err(|cause| cause.line).unwrap_err();
        let pids = vec![4711, 5];
        assert_eq!(
            line(&Export { pids, ..wanted() }),
            "recorded with -p 4711: others are not in it"
        );
        let comm = Some("tar".to_owned());
        assert_eq!(
            line(&Export { comm, ..wanted() }),
            "recorded with --comm postgres: others are not in it"
        );
        let disk = Some("sdb".to_owned());
        assert_eq!(
            line(&Export { disk, ..wanted() }),
            "no such disk in the recording: 'sdb'; it has sda"
        );
        let of_partition = selected::tests::recorded(Filter {
            disk: Some("sda1".to_owned()),
            ..Filter::default()
        });
        let of = |disk: &str| {
            let disk = Some(disk.to_owned());
            selection(&of_partition, &Export { disk, ..wanted() }).map_err(|cause| cause.line)
        };
        assert_eq!(of("sda").unwrap_err(), "recorded with -d sda1: others are not in it");
        assert_eq!(of("sda1").unwrap().devices, BTreeSet::new());
    }

    #[test]
    fn fio_needs_calls() {
        let check = |recorded: &[Layer], format, selected: &[Layer]| {
            let info = |layer: &Layer| LayerInfo {
                layer: *layer,
                refused: None,
                not_measured: Vec::new(),
                completions_skip_interrupts: false,
            };
            let mut meta = Meta::default();
            meta.run.layers = recorded.iter().map(info).collect();
            let export = Export {
                format,
                layers: selected.to_vec(),
                ..wanted()
            };
            check_layers(&meta, &export).map_err(|cause| cause.line)
        };
        let (both, requests) = ([Layer::Syscall, Layer::Blk], [Layer::Blk]);
        let rest = "and fio has nothing else; for requests, export --to blktrace, then fio --read_iolog";
        let line = check(&requests, Format::Fio, &[]).unwrap_err();
        assert_eq!(line, format!("recorded with -T blk: calls are not in it, {rest}"));
        let line = check(&both, Format::Fio, &requests).unwrap_err();
        assert_eq!(line, format!("-T blk selects no calls, {rest}"));
        for (recorded, format, selected) in [
            (&both[..], Format::Fio, &[][..]),
            (&both, Format::Fio, &both),
            (&[], Format::Fio, &[]),
            (&requests, Format::Jsonl, &[]),
            (&requests, Format::Blktrace, &[]),
        ] {
            assert_eq!(check(recorded, format, selected), Ok(()), "{format:?}");
        }
    }

    #[test]
    fn an_export_of_nothing_says_why() {
        let why = |records, lost| {
            let lost = if lost > 0 { vec![(Kind::Call, lost)] } else { Vec::new() };
            let summary = Summary {
                records,
                lost,
                ..Summary::default()
            };
            nothing(&summary, Format::Fio)
        };
        assert_eq!(why(0, 0), "nothing that is selected was recorded");
        assert_eq!(
            why(0, 7),
            "nothing that is selected was recorded, unless it was lost (report --lost has the intervals)"
        );
        assert_eq!([why(1, 0), why(1, 7)], ["fio can hold nothing of what is selected"; 2]);
    }

    #[test]
    fn a_file_is_looked_for_by_its_whole_path_unless_nothing_else_was_recorded() {
        let here = selected::whole_path(Path::new("db"));
        let export = |file: &str| Export {
            file: Some(file.to_owned()),
            ..wanted()
        };
        assert_eq!(
            selection(&recorded(), &export("db")).unwrap().files,
            std::slice::from_ref(&here)
        );
        let of_file = |file: &str| {
            selected::tests::recorded(Filter {
                file: Some(file.to_owned()),
                ..Filter::default()
            })
        };
        for (file, typed) in [("db", "db"), (&here, "db"), (&here, &here)] {
            assert_eq!(selection(&of_file(file), &export(typed)).unwrap().files, [""; 0]);
        }
        let refused = selection(&of_file("/a"), &export("a")).map_err(|cause| cause.line);
        assert_eq!(refused.unwrap_err(), "recorded with --file /a: others are not in it");
    }

    #[test]
    fn a_disk_includes_its_partitions() {
        let devices = |name: &str| {
            let disk = Some(name.to_owned());
            selection(&recorded(), &Export { disk, ..wanted() }).unwrap().devices
        };
        assert_eq!(devices("sda"), BTreeSet::from([[8, 0], [8, 1]]));
        assert_eq!(devices("/dev/sda1"), BTreeSet::from([[8, 1]]));
    }
}
