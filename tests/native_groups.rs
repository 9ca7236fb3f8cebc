//! System calls by process and file, on this machine, whatever it allows. Run it as root.
//!
//! Where tasks are preempted inside the kernel, it may skip calls: a run without losses must be exact.

mod chroot;
mod folder;
mod here;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use chroot::from_root;
use folder::Folder;
use here::process::run;
use here::{TOOL, schema};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);
/// The maximum number of runs until one loses nothing.
const ATTEMPTS: u32 = 5;
/// Bytes of each file that `dd` reads one by one.
const READS: [u64; 3] = [10, 110, 310];

impl Folder {
    /// With a file for each of [`READS`].
    fn filled(name: &str) -> Self {
        let folder = Self::new(&format!("groups-{name}"));
        for reads in READS {
            fs::write(folder.join(reads.to_string()), [1; 1000]).unwrap();
        }
        folder
    }

    fn data(&self, reads: u64) -> String {
        self.text(&reads.to_string())
    }

    /// As reported by the tool.
    fn path(&self, reads: u64) -> String {
        from_root(Path::new(&self.data(reads))).to_str().unwrap().to_owned()
    }

    /// The report about a shell that lets `dd` read the files, each in a process of its own.
    fn traced(&self, arguments: &[&str]) -> Value {
        let dd = READS.map(|reads| {
            format!(
                "dd if={} of=/dev/null bs=1 count={reads} status=none; ",
                self.data(reads)
            )
        });
        let script = dd.concat();
        for _ in 0..ATTEMPTS {
            let report = self.join("report");
            let mut tool = Command::new(TOOL);
            tool.args(["-T", "syscall", "--json"])
                .args(arguments)
                .arg("-o")
                .arg(&report);
            tool.args(["--", "sh", "-c", &script]);
            run(&mut tool, LIMIT).unwrap().success().unwrap();
            // This also checks that groups add up to the report.
            let reports = schema::reports(&fs::read_to_string(report).unwrap());
            let [report] = <[Value; 1]>::try_from(reports.unwrap()).unwrap();
            let lost = report["lost"].as_object().unwrap().values();
            if lost.map(schema::number).sum::<u64>() == 0 {
                return report;
            }
        }
        panic!("no run in {ATTEMPTS} was without loss");
    }
}

fn reads(numbers: &Value) -> u64 {
    let ops = schema::array(&numbers["layers"])
        .iter()
        .flat_map(|layer| schema::array(&layer["ops"]));
    let read = ops.filter(|op| op["op"] == "read");
    read.map(|op| schema::number(&op["count"])).sum()
}

fn groups(report: &Value) -> &[Value] {
    schema::array(&report["groups"]["groups"])
}

#[test]
fn files_are_named_by_path_and_counted_exactly() {
    let folder = Folder::filled("file");
    let report = folder.traced(&["--by", "file", "--top", "100"]);
    for count in READS {
        let path = folder.path(count);
        let group = groups(&report).iter().find(|group| group["name"] == path.as_str());
        let group = group.unwrap_or_else(|| panic!("{count}: {}", report["groups"]));
        assert_eq!(
            (reads(&group["numbers"]), &group["path_is"]),
            (count, &Value::from("whole"))
        );
    }
    assert!(report["groups"]["others"].is_null());
}

#[test]
fn ended_processes_have_their_last_names() {
    let folder = Folder::filled("process");
    let report = folder.traced(&["--by", "process"]);
    let of_dd = groups(&report).iter().filter(|group| group["comm"] == "dd");
    let mut reported: Vec<u64> = of_dd.map(|group| reads(&group["numbers"])).collect();
    reported.sort_unstable();
    // Each process also reads its own executable and libraries.
    let more = reported.first().map_or(0, |first| first - READS[0]);
    assert_eq!(reported, READS.map(|reads| reads + more));
    assert!(
        groups(&report).iter().any(|group| group["comm"] == "sh"),
        "{}",
        report["groups"]
    );
}

/// A control group, of version 1 where version 2 is not mounted.
struct Group(PathBuf);

impl Group {
    fn new(name: &str) -> Self {
        let version_2 = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
        let is_there = |root: &&str| Path::new(root).join("cgroup.controllers").exists();
        let root = version_2.into_iter().find(is_there);
        let root = root.unwrap_or("/sys/fs/cgroup/blkio");
        let folder = Path::new(root).join(name);
        let _ = fs::create_dir(&folder);
        Self(folder)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The processes in it have ended.
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn control_groups_are_named_after_their_units_and_containers() {
    let folder = Folder::filled("owners");
    for (by, group, name) in [
        ("unit", "iosb-test.service", "iosb-test.service"),
        ("container", "lxc.payload.iosb-test", "iosb-test"),
        ("pod", "iosb-test", "/iosb-test"),
    ] {
        let group = Group::new(group);
        let report = folder.join("report");
        let script = format!(
            "echo $$ >{}/cgroup.procs; dd if={} of=/dev/null bs=1 count=77 status=none",
            group.0.display(),
            folder.data(310)
        );
        let mut tool = Command::new(TOOL);
        tool.args(["-T", "syscall", "--json", "--by", by, "-o"]).arg(&report);
        tool.args(["--", "sh", "-c", &script]);
        run(&mut tool, LIMIT).unwrap().success().unwrap();
        let reports = schema::reports(&fs::read_to_string(report).unwrap()).unwrap();
        let named = groups(&reports[0]).iter().find(|group| group["name"] == name);
        let named = named.unwrap_or_else(|| panic!("{by}: {}", reports[0]["groups"]));
        assert!(reads(&named["numbers"]) >= 77, "{by}: {named}");
    }
}

#[test]
fn smaller_groups_are_in_others() {
    let folder = Folder::filled("others");
    let report = folder.traced(&["--by", "file", "--top", "1"]);
    assert_eq!(groups(&report).len(), 1);
    let others = &report["groups"]["others"];
    assert!(schema::number(&others["groups"]) >= READS.len() as u64 - 1, "{others}");
    assert_eq!(others["no_room"], 0);
}

#[test]
fn files_without_room_are_counted_in_others() {
    let folder = Folder::filled("room");
    let report = folder.traced(&["--by", "file", "--groups", "2"]);
    let others = &report["groups"]["others"];
    assert!(schema::number(&others["no_room"]) > 0, "{}", report["groups"]);
    let all: u64 = schema::parts(&report).map(reads).sum();
    assert!(all >= READS.iter().sum(), "{all}");
}
