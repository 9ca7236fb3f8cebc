//! What a selection from the records of a recording means, and whether the recording has it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::analyse::records::names::Names;
use crate::args::{ControlGroup, Options, Target};
use crate::cause::Cause;
use crate::kernel::owners::KnownOwners;
use crate::kernel::{cgroup, description, disk};
use crate::model::ids::{By, Layer, joined};
use crate::model::record::Kind;
use crate::model::recording::{Disk, End, Meta, Names as How};
use crate::model::report::Filter;
use crate::model::selection::Selection;
use crate::recording::Recording;
use crate::say;

use super::subject::words;

/// The cause why a selection cannot be answered: the recording was made with another one.
fn others(option: &str, recorded: &str) -> Cause {
    format!("recorded with {option} {recorded}: others are not in it").into()
}

/// These processes.
///
/// # Errors
/// If the recording has only others, in one line.
pub fn pids(meta: &Meta, wanted: &[u32]) -> Result<BTreeSet<u32>, Cause> {
    let recorded = &meta.run.filter;
    let is_recorded = |pid: &u32| recorded.follow || recorded.pids.is_empty() || recorded.pids.contains(pid);
    if !wanted.iter().all(is_recorded) {
        let all: Vec<String> = recorded.pids.iter().map(u32::to_string).collect();
        return Err(others("-p", &all.join(",")));
    }
    Ok(wanted.iter().copied().collect())
}

/// Checks an option with which the recording may have been made, too. Returns whether it has to be selected: not if the
/// recording has nothing else.
///
/// # Errors
/// If it was made with another value of it, in one line.
pub fn check(option: &str, wanted: Option<&str>, recorded: Option<&str>) -> Result<bool, Cause> {
    match (wanted, recorded) {
        (Some(wanted), Some(recorded)) if wanted != recorded => Err(others(option, recorded)),
        (Some(_), None) => Ok(true),
        _ => Ok(false),
    }
}

/// The path of a file from the root on, as text.
pub fn whole_path(path: &Path) -> String {
    std::path::absolute(path).map_or_else(|_| path.display().to_string(), |path| path.display().to_string())
}

/// Checks selected files. Returns whether they have to be selected: not if the recording has nothing else.
///
/// # Errors
/// If it was made with another file, in one line.
pub fn check_files<'a>(meta: &Meta, mut wanted: impl Iterator<Item = &'a Path>) -> Result<bool, Cause> {
    let Some(recorded) = &meta.run.filter.file else {
        return Ok(true);
    };
    // Earlier versions recorded the path as typed.
    let is_recorded = |path: &Path| whole_path(path) == whole_path(recorded.as_ref());
    match wanted.all(is_recorded) {
        true => Ok(false),
        false => Err(others("--file", recorded)),
    }
}

/// The kernel's name of a disk or partition that is given by it, by its name of the device mapper, or by a path. Other links
/// than those of the device mapper are known on the recorded machine until it boots.
fn kernel_name(meta: &Meta, wanted: &str) -> String {
    let name = wanted.strip_prefix("/dev/").unwrap_or(wanted);
    let is_mapped = |disk: &&Disk| !disk.mapped.is_empty() && disk.mapped == name.trim_start_matches("mapper/");
    if let Some(disk) = meta.disks.iter().find(is_mapped) {
        return disk.name.clone();
    }
    let is_link = wanted.starts_with('/') && meta.boot_id == description::boot_id();
    let found = is_link.then(|| disk::Disk::find(wanted).ok()).flatten();
    found.map_or_else(|| name.to_owned(), |found| found.name)
}

/// The numbers of a disk with its partitions, or of a partition, by its kernel's name when it was recorded.
///
/// # Errors
/// If there is no such disk, in one line with those that there are.
fn devices(meta: &Meta, name: &str) -> Result<BTreeSet<[u32; 2]>, Cause> {
    let mut devices = BTreeSet::new();
    for disk in &meta.disks {
        if disk.name == name {
            devices.insert(disk.number);
            devices.extend(disk.partitions.iter().map(|partition| partition.number));
        }
        let partitions = disk.partitions.iter().filter(|partition| partition.name == name);
        devices.extend(partitions.map(|partition| partition.number));
    }
    if devices.is_empty() {
        let known: Vec<&str> = meta.disks.iter().map(|disk| disk.name.as_str()).collect();
        let known = known.join(", ");
        return Err(format!("no such disk in the recording: '{name}'; it has {known}").into());
    }
    Ok(devices)
}

/// The path of a control group.
///
/// # Errors
/// If there is no such unit, pod or container, in one line.
pub fn path_of(group: &ControlGroup) -> Result<PathBuf, Cause> {
    match group {
        ControlGroup::Path(path) => Ok(path.clone()),
        ControlGroup::Owned { by, name } => KnownOwners::default().find(*by, name),
    }
}

/// Of what is selected, what has to be: nothing if it is all that was recorded. `None`: it has what was not recorded.
fn part_of<T: Ord>(wanted: BTreeSet<T>, recorded: &BTreeSet<T>) -> Option<BTreeSet<T>> {
    if wanted == *recorded {
        return Some(BTreeSet::new());
    }
    wanted.is_subset(recorded).then_some(wanted)
}

/// What has to be selected of a disk or partition, by its name; nothing if nothing else was recorded.
///
/// # Errors
/// If the recording does not have it, in one line.
pub fn part_of_disk(meta: &Meta, wanted: &str) -> Result<BTreeSet<[u32; 2]>, Cause> {
    let wanted = kernel_name(meta, wanted);
    let wanted_devices = devices(meta, &wanted);
    let Some(recorded) = meta.run.filter.disk.as_deref() else {
        return wanted_devices;
    };
    if wanted == recorded {
        return Ok(BTreeSet::new());
    }
    let both = wanted_devices.ok().zip(devices(meta, recorded).ok());
    let part = both.and_then(|(wanted, recorded)| part_of(wanted, &recorded));
    part.ok_or_else(|| others("-d", recorded))
}

/// The control group that a run was restricted to, from its description.
fn recorded_cgroup(text: &str) -> ControlGroup {
    let owned = text.split_once(' ').and_then(|(by, name)| {
        let by = by.parse().ok()?;
        matches!(by, By::Unit | By::Pod | By::Container).then(|| ControlGroup::Owned {
            by,
            name: name.to_owned(),
        })
    });
    owned.unwrap_or_else(|| ControlGroup::Path(text.into()))
}

/// What the names of two control groups, without their numbers, say of the first.
#[derive(Debug, PartialEq, Eq)]
enum ByName {
    Same,
    /// It is neither the second nor below it.
    Other,
    Unknown,
}

fn by_name(wanted: &ControlGroup, recorded: &ControlGroup) -> ByName {
    match (wanted, recorded) {
        (ControlGroup::Path(wanted), ControlGroup::Path(recorded)) => {
            let [wanted, recorded] = [wanted, recorded].map(|path| cgroup::from_root(path));
            match (wanted == recorded, wanted.starts_with(recorded)) {
                (true, _) => ByName::Same,
                (false, true) => ByName::Unknown,
                (false, false) => ByName::Other,
            }
        }
        (wanted, recorded) if wanted == recorded => ByName::Same,
        (ControlGroup::Owned { by: wanted, .. }, ControlGroup::Owned { by: recorded, .. }) if wanted == recorded => {
            ByName::Other
        }
        _ => ByName::Unknown,
    }
}

/// What has to be selected of a control group. `recorded`: the one that the run was restricted to. `numbers`: those of a group
/// and of those below it.
///
/// # Errors
/// If the recording does not have it, or that is not known, in one line.
fn part_of_cgroup(
    wanted: &ControlGroup,
    recorded: Option<&str>,
    numbers: impl Fn(&ControlGroup) -> Result<BTreeSet<u64>, Cause>,
) -> Result<BTreeSet<u64>, Cause> {
    let Some(text) = recorded else {
        return numbers(wanted);
    };
    let recorded = recorded_cgroup(text);
    let name = by_name(wanted, &recorded);
    if name == ByName::Same {
        return Ok(BTreeSet::new());
    }
    let part = match (numbers(wanted), numbers(&recorded)) {
        (Err(cause), _) if name == ByName::Unknown => return Err(cause),
        (Ok(wanted), Ok(recorded)) => part_of(wanted, &recorded),
        _ => None,
    };
    let value = match &recorded {
        ControlGroup::Owned { name, .. } => name,
        ControlGroup::Path(_) => text,
    };
    part.ok_or_else(|| others(recorded.option(), value))
}

/// The numbers of a control group and those below it.
fn cgroups(meta: &Meta, selected: &ControlGroup) -> Result<BTreeSet<u64>, Cause> {
    if meta.boot_id != description::boot_id() {
        return Err(
            format!(
                "records have numbers of cgroups, whose names are known on the recorded machine until it boots; record with {}",
                selected.option()
            )
            .into(),
        );
    }
    let path = match selected {
        ControlGroup::Path(path) => path.clone(),
        ControlGroup::Owned { by, name } => {
            let found = KnownOwners::default().find(*by, name);
            found.map_err(|_| {
                format!("no {by} '{name}' in the recording, as far as its cgroups are still on this machine")
            })?
        }
    };
    let below = cgroup::below(&path)?;
    Ok(below.into_keys().collect())
}

/// The paths of control groups by the kernel's numbers, of which records only have the numbers; none of a recording that was
/// made on another machine, or before it booted.
pub fn cgroups_now(meta: &Meta) -> BTreeMap<u64, String> {
    match meta.boot_id == description::boot_id() {
        true => cgroup::below(Path::new("/")).unwrap_or_default(),
        false => BTreeMap::new(),
    }
}

/// What a target means in a recording. Nothing is selected of which the recording has nothing else.
///
/// # Errors
/// If the recording does not have it, in one line.
pub fn selection(meta: &Meta, target: &Target) -> Result<Selection, Cause> {
    let recorded = &meta.run.filter;
    let mut selection = Selection {
        pids: pids(meta, target.pids())?,
        follow: target.follows(),
        ..Selection::default()
    };
    if target.pids() == recorded.pids && target.follows() == recorded.follow {
        selection.pids.clear();
    }
    selection.follow &= !selection.pids.is_empty();
    if check("--comm", target.comm.as_deref(), recorded.comm.as_deref())? {
        selection.comm.clone_from(&target.comm);
    }
    if let Some(cgroup) = &target.cgroup {
        selection.cgroups = part_of_cgroup(cgroup, recorded.cgroup.as_deref(), |group| cgroups(meta, group))?;
    }
    if let Some(disk) = &target.disk {
        selection.devices = part_of_disk(meta, disk)?;
    }
    let paths = &target.paths;
    let files = || paths.files.iter().map(PathBuf::as_path);
    if check_files(meta, files())? || !paths.folders.is_empty() {
        selection.files = files().map(whole_path).collect();
        selection.folders = paths.folders.iter().map(|path| whole_path(path)).collect();
    }
    Ok(selection)
}

/// Why nothing can be found by its name, if names were written in one of these ways.
fn hidden(meta: &Meta, ways: &[How]) -> String {
    match ways.contains(&meta.names) {
        true => format!(", which was made with --names {}", meta.names.name()),
        false => String::new(),
    }
}

/// Checks that what is selected is in the recording. `names` has its definitions.
///
/// # Errors
/// If it is not, in one line. What is lost or damaged may have been it: then nothing is known.
pub fn check_found(names: &Names, recording: &Recording) -> Result<(), Cause> {
    let Selection {
        pids, comm, folders, ..
    } = names.selection();
    let is_of = |pid: u32| pids.contains(&pid);
    // Kernel threads have no definitions.
    let has_records = || {
        recording.batches(None, None).any(|records| {
            let mut requests = records.requests.iter();
            records.calls.iter().any(|call| is_of(call.pid))
                || requests.any(|request| is_of(request.pid) || is_of(request.tid))
        })
    };
    let is_complete = |kind: Kind| {
        let has_all = |end: &End| !end.lost.contains_key(&kind) && !end.not_written.contains_key(&kind);
        recording.damage().is_empty() && recording.end().is_some_and(has_all)
    };
    if !pids.is_empty() && !names.has_selected_process() && !has_records() {
        let pids: Vec<String> = pids.iter().map(u32::to_string).collect();
        let line = match pids.as_slice() {
            [one] => format!("PID {one} is not in the recording"),
            many => format!("PIDs {} are not in the recording", many.join(", ")),
        };
        if [Kind::Thread, Kind::Call, Kind::Request].into_iter().all(is_complete) {
            return Err(line.into());
        }
        say!("note: {line}, which is incomplete");
    }
    if let Some(comm) = comm.as_ref().filter(|_| !names.has_selected_comm()) {
        let hidden = hidden(recording.meta(), &[How::None]);
        let line = format!("no thread named '{comm}' is in the recording{hidden}");
        if is_complete(Kind::Thread) {
            return Err(line.into());
        }
        say!("note: {line}");
    }
    if let Some(folder) = names.selected_directory() {
        say!("note: '{folder}' is a directory: --dir selects the files in it, --file only the directory itself");
    }
    if names.selection().is_by_file() && !names.has_selected_file() {
        let what = if folders.is_empty() {
            "no file of that path"
        } else {
            "no file of that path or below that directory"
        };
        let hidden = hidden(recording.meta(), &[How::None, How::Hash]);
        let line = format!("{what} is in the recording{hidden}");
        if is_complete(Kind::File) {
            return Err(line.into());
        }
        say!("note: {line}");
    }
    Ok(())
}

/// The layers that are selected; empty: all that were recorded.
///
/// # Errors
/// If one was not recorded, in one line.
pub fn layers(meta: &Meta, options: &Options) -> Result<Vec<Layer>, Cause> {
    let scope = &options.measure.scope;
    if !scope.is_named() {
        return Ok(Vec::new());
    }
    let layers = scope.layers();
    let is_measured = |layer: &Layer| {
        let mut infos = meta.run.layers.iter();
        infos.any(|info| info.layer == *layer && info.refused.is_none())
    };
    if let Some(missing) = layers.iter().find(|layer| !is_measured(layer)) {
        let measured: Vec<Layer> = meta.run.layers.iter().map(|info| info.layer).collect();
        let measured: Vec<Layer> = measured.into_iter().filter(is_measured).collect();
        return Err(format!(
            "{missing} is not in the recording; it has {}",
            joined(&measured, Layer::name)
        )
        .into());
    }
    Ok(layers)
}

/// The filter of the recording, and what is selected in addition, as fields of a report.
pub fn filter(recorded: &Filter, target: &Target) -> Filter {
    let text = |path: &Path| path.display().to_string();
    let paths = &target.paths;
    let folders = paths.folders.iter().map(|folder| {
        let folder = text(folder);
        format!("{}/", folder.trim_end_matches('/'))
    });
    let files: Vec<String> = paths.files.iter().map(|file| text(file)).chain(folders).collect();
    let mut filter = recorded.clone();
    if !target.pids().is_empty() {
        filter.pids = target.pids().to_vec();
        filter.follow = target.follows();
    }
    let wanted = [
        (&mut filter.comm, target.comm.clone()),
        (&mut filter.cgroup, target.cgroup.as_ref().map(ControlGroup::to_string)),
        (&mut filter.disk, target.disk.clone()),
        (&mut filter.file, (!files.is_empty()).then(|| files.join(", "))),
    ];
    for (field, wanted) in wanted {
        if wanted.is_some() {
            *field = wanted;
        }
    }
    filter
}

/// The same in words; empty: everything that was recorded.
pub fn subject(target: &Target) -> String {
    let pids: Vec<String> = target.pids().iter().map(u32::to_string).collect();
    let paths = &target.paths;
    let files = paths.files.iter().map(|file| file.display().to_string());
    let folders = paths
        .folders
        .iter()
        .map(|folder| format!("files below {}", folder.display()));
    let on: Vec<String> = target.disk.clone().into_iter().chain(files).chain(folders).collect();
    words(target, &pids, &on)
}

#[cfg(test)]
pub(super) mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::args::{Paths, Whose};
    use crate::model::recording::{Disk, Partition};

    /// A recording that was made with this filter, on a machine with the disk sda.
    pub fn recorded(filter: Filter) -> Meta {
        let partition = Partition {
            name: "sda1".to_owned(),
            number: [8, 1],
            ..Partition::default()
        };
        let disk = Disk {
            name: "sda".to_owned(),
            number: [8, 0],
            partitions: vec![partition],
            ..Disk::default()
        };
        let mut meta = Meta {
            disks: vec![disk],
            ..Meta::default()
        };
        meta.run.filter = filter;
        meta
    }

    fn processes(pids: &[u32], follow: bool) -> Target {
        Target {
            whose: Whose::Processes {
                pids: pids.to_vec(),
                follow,
            },
            ..Target::default()
        }
    }

    fn files(files: &[&str]) -> Target {
        Target {
            paths: Paths {
                files: files.iter().map(PathBuf::from).collect(),
                folders: Vec::new(),
            },
            ..Target::default()
        }
    }

    #[test]
    fn what_the_recording_has_nothing_else_of_needs_no_selection() {
        let filter = Filter {
            pids: vec![7, 8],
            comm: Some("app".to_owned()),
            file: Some("/a".to_owned()),
            disk: Some("sda".to_owned()),
            ..Filter::default()
        };
        let meta = recorded(filter);
        let same = Target {
            comm: Some("app".to_owned()),
            disk: Some("/dev/sda".to_owned()),
            paths: files(&["/a"]).paths,
            ..processes(&[7, 8], false)
        };
        assert!(selection(&meta, &same).unwrap().is_all());
        assert!(selection(&meta, &Target::default()).unwrap().is_all());
        let one = selection(&meta, &processes(&[7], false)).unwrap();
        assert_eq!(one.pids, BTreeSet::from([7]));
    }

    #[test]
    fn what_was_not_recorded_cannot_be_selected() {
        let filter = Filter {
            pids: vec![7],
            comm: Some("app".to_owned()),
            cgroup: Some("/x".to_owned()),
            file: Some("/a".to_owned()),
            disk: Some("sda".to_owned()),
            ..Filter::default()
        };
        let meta = recorded(filter);
        let line = |target: &Target| selection(&meta, target).map_err(|cause| cause.line).unwrap_err();
        let all = Target::default();
        let other = Some("other".to_owned());
        for (target, message) in [
            (processes(&[8], false), "recorded with -p 7"),
            (
                Target {
                    comm: other.clone(),
                    ..all.clone()
                },
                "recorded with --comm app",
            ),
            (
                Target {
                    cgroup: Some(ControlGroup::Path("/y".into())),
                    ..all.clone()
                },
                "recorded with --cgroup /x",
            ),
            (
                Target {
                    disk: other,
                    ..all.clone()
                },
                "recorded with -d sda",
            ),
            (files(&["/a", "/b"]), "recorded with --file /a"),
            (files(&["a"]), "recorded with --file /a"),
        ] {
            assert_eq!(line(&target), format!("{message}: others are not in it"));
        }
        let elsewhere = Meta {
            boot_id: "another".to_owned(),
            ..Meta::default()
        };
        let cgroup = Target {
            cgroup: Some(ControlGroup::Path("/y".into())),
            ..all
        };
        let refused = selection(&elsewhere, &cgroup).map_err(|cause| cause.line).unwrap_err();
        assert!(refused.ends_with("record with --cgroup"), "{refused}");
    }

    #[test]
    fn a_part_of_what_was_recorded_is_selected() {
        let of = |numbers: &[u64]| BTreeSet::from_iter(numbers.iter().copied());
        let recorded = of(&[1, 2]);
        assert_eq!(part_of(of(&[1, 2]), &recorded), Some(of(&[])));
        assert_eq!(part_of(of(&[2]), &recorded), Some(of(&[2])));
        assert_eq!(part_of(of(&[1, 2, 3]), &recorded), None);
        let disk = |recorded: &str, wanted: &str| {
            let meta = self::recorded(Filter {
                disk: Some(recorded.to_owned()),
                ..Filter::default()
            });
            let target = Target {
                disk: Some(wanted.to_owned()),
                ..Target::default()
            };
            let selection = selection(&meta, &target).map_err(|cause| cause.line);
            selection.map(|selection| selection.devices)
        };
        for (recorded, wanted, expected) in [
            ("sda", "/dev/sda", Ok(BTreeSet::new())),
            ("sda", "/dev/sda1", Ok(BTreeSet::from([[8, 1]]))),
            ("sda1", "sda1", Ok(BTreeSet::new())),
            (
                "sda1",
                "sda",
                Err("recorded with -d sda1: others are not in it".to_owned()),
            ),
        ] {
            assert_eq!(disk(recorded, wanted), expected, "{recorded} {wanted}");
        }
    }

    #[test]
    fn names_of_control_groups_say_which_are_the_same_or_others() {
        let path = |path: &str| ControlGroup::Path(path.into());
        let owned = |by, name: &str| ControlGroup::Owned {
            by,
            name: name.to_owned(),
        };
        for (wanted, recorded, expected) in [
            (path("/a"), "/a", ByName::Same),
            (path("/a/"), "a", ByName::Same),
            (path("/sys/fs/cgroup/a"), "/sys/fs/cgroup/unified/a/", ByName::Same),
            (path("/a/b"), "/a", ByName::Unknown),
            (path("/a"), "/a/b", ByName::Other),
            (path("/ab"), "/a", ByName::Other),
            (owned(By::Unit, "x"), "unit x", ByName::Same),
            (owned(By::Unit, "x"), "unit y", ByName::Other),
            (owned(By::Container, "n/x/c"), "pod n/x", ByName::Unknown),
            (path("/a"), "unit x", ByName::Unknown),
            (owned(By::Unit, "x"), "/a", ByName::Unknown),
        ] {
            assert_eq!(
                by_name(&wanted, &recorded_cgroup(recorded)),
                expected,
                "{wanted} {recorded}"
            );
        }
    }

    #[test]
    fn a_control_group_below_the_recorded_one_is_selected() {
        let path = |path: &str| ControlGroup::Path(path.into());
        // /a has a/b, which is the unit x.
        let numbers = |group: &ControlGroup| match group.to_string().as_str() {
            "/a" => Ok(BTreeSet::from([1, 2])),
            "/a/b" | "unit x" => Ok(BTreeSet::from([2])),
            "/c" | "unit y" => Ok(BTreeSet::from([3])),
            other => Err(Cause::from(format!("no {other}"))),
        };
        let select =
            |wanted: ControlGroup, recorded| part_of_cgroup(&wanted, recorded, numbers).map_err(|cause| cause.line);
        let unit = |name: &str| recorded_cgroup(&format!("unit {name}"));
        let b = BTreeSet::from([2]);
        let others = |recorded: &str| Err(format!("recorded with {recorded}: others are not in it"));
        for (wanted, recorded, expected) in [
            (path("/a/b"), None, Ok(b.clone())),
            (path("/a/b"), Some("/a"), Ok(b.clone())),
            (unit("x"), Some("/a"), Ok(b)),
            (path("a/"), Some("/a"), Ok(BTreeSet::new())),
            (path("/a/b"), Some("unit x"), Ok(BTreeSet::new())),
            // It has been removed: what was recorded is known by its name.
            (path("/gone/"), Some("/gone"), Ok(BTreeSet::new())),
            (path("/a"), Some("/a/b"), others("--cgroup /a/b")),
            (path("/a"), Some("unit x"), others("--unit x")),
            (unit("y"), Some("/a"), others("--cgroup /a")),
            (path("/a/none"), Some("/a"), Err("no /a/none".to_owned())),
            (path("/none"), Some("/a"), others("--cgroup /a")),
            (unit("none"), Some("unit x"), others("--unit x")),
        ] {
            assert_eq!(select(wanted.clone(), recorded), expected, "{wanted} {recorded:?}");
        }
    }

    #[test]
    fn a_file_is_the_same_however_its_path_is_typed() {
        let here = whole_path(Path::new("db"));
        // What earlier versions recorded, and what this one does.
        for file in ["db", &here] {
            let meta = recorded(Filter {
                file: Some(file.to_owned()),
                ..Filter::default()
            });
            for wanted in ["db", "./db", &here] {
                assert!(selection(&meta, &files(&[wanted])).unwrap().is_all(), "{file} {wanted}");
            }
        }
        let all = recorded(Filter::default());
        assert_eq!(selection(&all, &files(&["db"])).unwrap().files, [here]);
    }

    #[test]
    fn a_disk_includes_its_partitions() {
        let meta = recorded(Filter::default());
        let of = |name: &str| {
            let disk = Some(name.to_owned());
            let target = Target {
                disk,
                ..Target::default()
            };
            selection(&meta, &target).map(|selection| selection.devices)
        };
        assert_eq!(of("sda").unwrap(), BTreeSet::from([[8, 0], [8, 1]]));
        assert_eq!(of("/dev/sda1").unwrap(), BTreeSet::from([[8, 1]]));
        let refused = of("sdb").map_err(|cause| cause.line).unwrap_err();
        assert_eq!(refused, "no such disk in the recording: 'sdb'; it has sda");
    }

    #[test]
    fn a_disk_is_found_by_its_name_of_the_device_mapper_and_by_links() {
        let mut meta = recorded(Filter {
            disk: Some("dm-0".to_owned()),
            ..Filter::default()
        });
        meta.disks.push(Disk {
            name: "dm-0".to_owned(),
            mapped: "vg-data".to_owned(),
            number: [253, 0],
            ..Disk::default()
        });
        let of = |meta: &Meta, name: &str| part_of_disk(meta, name).map_err(|cause| cause.line);
        for name in ["/dev/mapper/vg-data", "vg-data", "/dev/dm-0", "dm-0"] {
            assert_eq!(of(&meta, name), Ok(BTreeSet::new()), "{name}");
        }
        let others = Err("recorded with -d dm-0: others are not in it".to_owned());
        assert_eq!(of(&meta, "/dev/mapper/vg-other"), others);
        meta.run.filter.disk = None;
        assert_eq!(of(&meta, "/dev/mapper/vg-data"), Ok(BTreeSet::from([[253, 0]])));
        assert_eq!(
            of(&meta, "/dev/disk/by-id/none"),
            Err("no such disk in the recording: 'disk/by-id/none'; it has sda, dm-0".to_owned())
        );
    }

    #[test]
    fn a_selection_is_named_in_words_and_fields() {
        let mut target = processes(&[7, 8], true);
        target.paths = Paths {
            files: vec!["/a".into()],
            folders: vec!["/srv/".into()],
        };
        assert_eq!(
            subject(&target),
            "PIDs 7, 8 and their descendants on /a, files below /srv/"
        );
        let fields = filter(&Filter::default(), &target);
        assert_eq!((&fields.pids[..], fields.follow), (&[7, 8][..], true));
        assert_eq!(fields.file.as_deref(), Some("/a, /srv/"));
        assert_eq!(subject(&Target::default()), "");
    }
}
