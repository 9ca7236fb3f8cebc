//! The files that the options of a run name: two that are one file would write over each other, or over what is read.

use std::ffi::OsString;
use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::args::{Options, Recording};

use super::record::parent_of;

/// What a path names, whichever of its names that is.
#[derive(Debug, PartialEq, Eq)]
enum Named {
    /// A regular file, by its number.
    File(Number),
    /// What is to be made: the number of its directory, and its name there.
    New(Number, OsString),
}

/// The numbers of a file system, and of a file on it.
type Number = (u64, u64);

/// What is read: the word of the usage for it, and its path.
pub type Input<'a> = (&'static str, &'a Path);

/// Checks that no two options name one file, or one of `inputs`, or a file in a recording that is one of them. `recording`:
/// of a run that is recorded, whose `-o` is that of the recording.
///
/// # Errors
/// Wrong usage, in one line.
pub fn check(options: &Options, recording: Option<&Recording>, inputs: &[Input<'_>]) -> Result<(), String> {
    let output = &options.output;
    let is_printed = match &output.path {
        _ if recording.is_some() => false,
        Some(path) => path.as_os_str() == "-",
        None => options.measure.target.command().is_none(),
    };
    let documents = [("--html", output.html.as_deref()), ("--svg", output.svg.as_deref())];
    check_documents(is_printed, &documents)?;
    let all = [
        ("-o", recording.map_or(&output.path, |recording| &recording.path)),
        ("--export-json", &output.export_json),
        ("--html", &output.html),
        ("--svg", &output.svg),
        ("--save-snapshots", &output.save_snapshots),
    ];
    check_all(inputs, &all.map(|(option, path)| (option, path.as_deref())))
}

/// Checks that a page or picture is alone on standard output. `is_printed`: a report is there.
///
/// # Errors
/// Wrong usage, in one line.
pub fn check_documents(is_printed: bool, documents: &[(&str, Option<&Path>)]) -> Result<(), String> {
    let mut first = is_printed.then_some("the report");
    for (option, _) in documents
        .iter()
        .filter(|(_, path)| path.is_some_and(|path| path.as_os_str() == "-"))
    {
        if let Some(other) = first {
            return Err(format!(
                "{option} - and {other} would both be on standard output; write {option} FILE"
            ));
        }
        first = Some(option);
    }
    Ok(())
}

/// Two inputs may be one file.
///
/// # Errors
/// Wrong usage, in one line.
pub fn check_all(inputs: &[Input<'_>], options: &[(&str, Option<&Path>)]) -> Result<(), String> {
    let mut known: Vec<(&str, &Path, Named)> = Vec::new();
    known.extend(
        inputs
            .iter()
            .filter_map(|(word, path)| Some((*word, *path, named(path)?))),
    );
    for (option, path) in options {
        let Some((path, new)) = path.and_then(|path| Some((path, named(path)?))) else {
            continue;
        };
        if let Some((_, recording)) = inputs.iter().find(|(_, input)| is_below(path, input)) {
            return Err(format!(
                "{option} '{}' is in the recording '{}', which is never written over; name a file elsewhere",
                path.display(),
                recording.display()
            ));
        }
        if let Some((other, its, _)) = known.iter().find(|(.., named)| *named == new) {
            return Err(format!(
                "{other} '{}' and {option} '{}' name one file; give one of them another name",
                its.display(),
                path.display()
            ));
        }
        known.push((option, path, new));
    }
    Ok(())
}

/// Whether a file is below a directory, or is to be made there.
fn is_below(path: &Path, folder: &Path) -> bool {
    let whole = |path: &Path| fs::canonicalize(path).ok();
    let parent = whole(path).map_or_else(|| whole(parent_of(path)), |path| Some(parent_of(&path).to_owned()));
    let folder = whole(folder).filter(|folder| folder.is_dir());
    parent
        .zip(folder)
        .is_some_and(|(parent, folder)| parent.starts_with(folder))
}

/// `None`: standard output, a device, a pipe or the like, which several can write to; or what cannot be opened.
fn named(path: &Path) -> Option<Named> {
    let number = |file: &Metadata| (file.dev(), file.ino());
    if path.as_os_str() == "-" {
        return None;
    }
    match fs::metadata(path) {
        Ok(file) => file.is_file().then(|| Named::File(number(&file))),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let folder = parent_of(path);
            // A link to what is to be made. Not one to itself, which is another error.
            if let Ok(target) = fs::read_link(path) {
                return named(&folder.join(target));
            }
            let folder = fs::metadata(folder).ok()?;
            Some(Named::New(number(&folder), path.file_name()?.to_owned()))
        }
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_document_is_alone_on_standard_output() {
        let of = |is_printed, html: Option<&'static str>, svg: Option<&'static str>| {
            let documents = [("--html", html.map(Path::new)), ("--svg", svg.map(Path::new))];
            check_documents(is_printed, &documents)
        };
        let refused = |option: &str, other: &str| {
            Err(format!(
                "{option} - and {other} would both be on standard output; write {option} FILE"
            ))
        };
        assert_eq!(of(true, Some("-"), None), refused("--html", "the report"));
        assert_eq!(of(true, None, Some("-")), refused("--svg", "the report"));
        assert_eq!(of(false, Some("-"), Some("-")), refused("--svg", "--html"));
        for (html, svg) in [(Some("-"), None), (None, Some("-")), (Some("a"), Some("b"))] {
            assert_eq!(of(false, html, svg), Ok(()));
        }
        assert_eq!(of(true, Some("a"), None), Ok(()));
    }

    #[test]
    fn two_names_of_one_file_are_refused() {
        let folder = std::env::temp_dir().join(format!("iosb-named-{}", std::process::id()));
        fs::create_dir_all(folder.join("below")).unwrap();
        fs::write(folder.join("file"), "").unwrap();
        fs::write(folder.join("other"), "").unwrap();
        fs::hard_link(folder.join("file"), folder.join("hard")).unwrap();
        symlink("file", folder.join("link")).unwrap();
        symlink("new", folder.join("dangling")).unwrap();
        symlink("loop", folder.join("loop")).unwrap();
        let check = |html: &str, svg: &str| {
            let [html, svg] = [html, svg].map(|name| folder.join(name));
            check_all(&[], &[("-o", None), ("--html", Some(&html)), ("--svg", Some(&svg))])
        };
        for (html, svg) in [
            ("file", "file"),
            ("file", "./below/../file"),
            ("file", "hard"),
            ("hard", "link"),
            ("new", "new"),
            ("new", "below/../new"),
            ("dangling", "new"),
        ] {
            let line = check(html, svg).unwrap_err();
            let [html, svg] = [html, svg].map(|name| folder.join(name).display().to_string());
            assert_eq!(
                line,
                format!("--html '{html}' and --svg '{svg}' name one file; give one of them another name")
            );
        }
        for (html, svg) in [
            ("file", "other"),
            ("new", "newer"),
            ("new", "below/new"),
            // What cannot be opened is refused when it is.
            ("loop", "loop"),
            ("none/x", "none/x"),
            // Several can write to these.
            ("/dev/null", "/dev/null"),
            ("below", "below"),
        ] {
            assert_eq!(check(html, svg), Ok(()), "{html} {svg}");
        }
        let both = |name| check_all(&[], &[("-o", Some(Path::new(name))), ("--html", Some(Path::new(name)))]);
        assert_eq!(both("-"), Ok(()));
        assert!(both("iosb-none").is_err());
        let compared = |after: &str, html: &str| {
            let [before, after, html] = ["file", after, html].map(|name| folder.join(name));
            let inputs = [("BEFORE", before.as_path()), ("AFTER", after.as_path())];
            check_all(&inputs, &[("--html", Some(&html))])
        };
        assert_eq!(compared("hard", "new"), Ok(()), "a run may be compared with itself");
        assert!(compared("other", "link").unwrap_err().starts_with("BEFORE '"));
        assert!(compared("other", "other").unwrap_err().starts_with("AFTER '"));
        fs::create_dir(folder.join("below/deep")).unwrap();
        fs::write(folder.join("below/table"), "").unwrap();
        symlink("below/table", folder.join("table")).unwrap();
        for html in ["below/table", "below/new", "below/deep/new", "table"] {
            let [recording, path] = ["below", html].map(|name| folder.join(name).display().to_string());
            assert_eq!(
                compared("below", html).unwrap_err(),
                format!(
                    "--html '{path}' is in the recording '{recording}', which is never written over; name a file elsewhere"
                )
            );
        }
        assert_eq!(compared("below", "file2"), Ok(()));
        fs::remove_dir_all(&folder).unwrap();
    }
}
