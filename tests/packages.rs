//! Packages: the sources of the guests' ones (mirrors known to apt, and only signed packages), and what the Debian package
//! of this project installs.

#[allow(dead_code, reason = "shared with the guests, who need more of it")]
#[path = "vm/host/apt.rs"]
mod apt;
mod folder;
#[allow(dead_code, reason = "shared with the guests, who need more of it")]
#[path = "vm/host/packages.rs"]
mod packages;

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

use iostackbreakdown::args;
use iostackbreakdown::serve::{Address, PORT};
use serde_json::Value;

use apt::{Apt, Mirror, named_in, trusted};
use folder::Folder;

fn mirrors(file: &str, text: &str) -> Vec<String> {
    let mirrors = named_in(&[(file.into(), text.into())]);
    mirrors.iter().map(|mirror| mirror.source("trixie", "amd64")).collect()
}

fn stanza(uri: &str, keys: &str) -> String {
    let keys = trusted(
        keys,
        Path::new("/usr/share/keyrings/debian-archive-keyring.gpg").exists(),
    );
    let keys = if keys.is_empty() {
        keys
    } else {
        format!("Signed-By:{keys}\n")
    };
    format!("Types: deb\nURIs: {uri}\nSuites: trixie\nComponents: main\nArchitectures: amd64\n{keys}")
}

#[test]
fn a_mirror_is_trusted_with_the_keys_that_its_source_names() {
    let one_line = "deb [arch=amd64 signed-by=/etc/keys/own.gpg] http://mirror.example/debian/ bookworm main\n\
                    deb-src http://sources.example/debian bookworm main\n\
                    deb [trusted=yes] http://unsigned.example/debian bookworm main\n";
    assert_eq!(
        mirrors("own.list", one_line),
        [
            stanza("http://mirror.example/debian", " /etc/keys/own.gpg"),
            stanza("http://unsigned.example/debian", ""),
        ]
    );
    let key = " -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n mQIN\n -----END PGP PUBLIC KEY BLOCK-----";
    let stanzas = format!(
        "Types: deb\nURIs: http://mirror.example/debian\nSuites: bookworm\nComponents: main\nSigned-By:\n{key}\n\n\
         Types: deb\nURIs: http://off.example/debian\nSuites: bookworm\nComponents: main\nEnabled: no\n"
    );
    assert_eq!(
        mirrors("own.sources", &stanzas),
        [stanza("http://mirror.example/debian", &format!("\n{key}"))]
    );
}

#[test]
fn debians_own_keys_are_added_to_files_only() {
    const DEBIAN: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
    let cases = [
        ("", false, ""),
        ("", true, " /usr/share/keyrings/debian-archive-keyring.gpg"),
        (" /k.gpg", false, " /k.gpg"),
        (
            " /k.gpg",
            true,
            " /k.gpg /usr/share/keyrings/debian-archive-keyring.gpg",
        ),
        (" 0123456789ABCDEF", true, " 0123456789ABCDEF"),
    ];
    for (named, has_keyring, expected) in cases {
        assert_eq!(trusted(named, has_keyring), expected, "{named}");
    }
    assert_eq!(trusted(&format!(" {DEBIAN}"), true), format!(" {DEBIAN}"));
}

/// A mirror on this disk whose lists are not signed.
#[test]
fn unsigned_packages_are_refused() {
    let folder = Folder::new("mirror");
    let mirror = folder.join("debian");
    let list = mirror.join("dists/trixie/main/binary-amd64");
    fs::create_dir_all(&list).unwrap();
    fs::write(list.join("Packages"), "Package: linux-image-own\nVersion: 1\n").unwrap();
    let release = "Origin: Debian\nCodename: trixie\nComponents: main\nArchitectures: amd64\nDate: Tue, 24 Nov 2026 00:00:00 UTC\n";
    fs::write(mirror.join("dists/trixie/Release"), release).unwrap();
    let uri = format!("file:{}", mirror.display());
    let apt = Apt::new(&Mirror::new(&uri, ""), "trixie", "amd64", &folder.join("apt")).unwrap();
    let error = apt.list().unwrap_err();
    assert!(
        error.contains("is not signed") && error.ends_with("debian-archive-keyring"),
        "{error}"
    );
}

/// The service that keeps measuring, and its socket.
const UNIT: &str = "packaging/systemd/iostackbreakdown-metrics";

fn unit(kind: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("{UNIT}.{kind}"))).unwrap()
}

/// The values of a setting of a unit, in order.
fn settings<'a>(unit: &'a str, name: &str) -> Vec<&'a str> {
    let lines = unit
        .lines()
        .filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    lines.collect()
}

/// The command line of the service, as systemd makes it from its own options.
fn command_of_the_service() -> String {
    let service = unit("service");
    let options = settings(&service, "Environment")[0].trim_matches('"');
    let options = options.strip_prefix("OPTIONS=").unwrap();
    settings(&service, "ExecStart")[0].replace("$OPTIONS", options)
}

#[test]
fn the_service_measures_within_a_budget_for_the_port_of_its_socket() {
    let words = command_of_the_service();
    let words = words.split(' ').map(OsString::from);
    let Ok(args::Command::Trace(options)) = args::parse(words) else {
        panic!("{}", command_of_the_service());
    };
    assert_eq!(options.output.metrics, Some(Address::Inherited));
    assert!(options.span.budget.is_some() && options.span.duration.is_none());
    let socket = unit("socket");
    assert_eq!(settings(&socket, "ListenStream"), [format!("127.0.0.1:{PORT}")]);
    assert_eq!(
        settings(&unit("service"), "Requires"),
        ["iostackbreakdown-metrics.socket"]
    );
}

/// The command lines of the pod, of `kubectl debug`, and of other selections for the service.
#[test]
fn command_lines_for_many_machines_are_understood() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |file: &str| fs::read_to_string(root.join(file)).unwrap();
    let parse = |words: Vec<String>| {
        let all = ["IOStackBreakdown".to_owned()].into_iter().chain(words.clone());
        match args::parse(all.map(OsString::from)) {
            Ok(args::Command::Trace(options)) => options,
            other => panic!("{words:?}: {other:?}"),
        }
    };
    let manifest = read("packaging/kubernetes/daemonset.yaml");
    let setting = |name: &str| {
        manifest
            .lines()
            .find_map(|line| line.trim().strip_prefix(name))
            .unwrap()
    };
    // A list of YAML in brackets is JSON.
    let pod = parse(serde_json::from_str(setting("args: ")).unwrap());
    let port: u16 = setting("containerPort: ").parse().unwrap();
    assert_eq!(pod.output.metrics, Some(Address::Tcp(([0, 0, 0, 0], port).into())));
    assert!(pod.span.budget.is_some());

    let page = read("docs/fleet.md");
    let debug = page.lines().filter(|line| line.starts_with("kubectl debug"));
    let debug = debug.map(|line| line.split_once("IOStackBreakdown ").unwrap().1);
    // The unit, the block of the page, and its table.
    let service = unit("service");
    let quoted = service.lines().chain(page.lines());
    let quoted = quoted.filter_map(|line| line.split_once("OPTIONS=\"")?.1.split('"').next());
    let listed = page
        .lines()
        .filter(|line| line.contains("--budget") && line.starts_with("| `-"));
    let listed = listed.filter_map(|line| line.split('`').nth(1));
    let all: Vec<&str> = debug.chain(quoted).chain(listed).collect();
    assert!(all.len() >= 8, "{all:?}");
    for line in all {
        parse(line.split(' ').map(str::to_owned).collect());
    }
}

/// systemd knows each setting, and its analysis finds no exposure besides those that the unit gives a reason for.
#[test]
fn the_service_is_hardened() {
    /// In tenths.
    const SCORE: &str = "--threshold=18";
    let folder = Folder::new("units");
    let analyze = |arguments: &[&str]| {
        let analyze = Command::new("systemd-analyze")
            .args(arguments)
            .env("LC_ALL", "C.UTF-8")
            .current_dir(&folder)
            .output();
        let output = analyze.expect("systemd-analyze is there: tests/run installs it");
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status.success(), said)
    };
    // It wants a program that exists.
    let service = unit("service").replace("/usr/bin/IOStackBreakdown", env!("CARGO_BIN_EXE_IOStackBreakdown"));
    fs::write(folder.join("iostackbreakdown-metrics.service"), service).unwrap();
    fs::write(folder.join("iostackbreakdown-metrics.socket"), unit("socket")).unwrap();
    let units = [
        "./iostackbreakdown-metrics.service",
        "./iostackbreakdown-metrics.socket",
    ];
    let (is_valid, said) = analyze(&["verify", "--man=no", units[0], units[1]]);
    let about_it: Vec<&str> = said.lines().filter(|line| line.contains("iostackbreakdown")).collect();
    assert!(is_valid && about_it.is_empty(), "{said}");
    let (is_hardened, said) = analyze(&["security", "--offline=true", "--no-pager", SCORE, units[0]]);
    assert!(is_hardened, "{said}");
    // A comment names what is not set.
    for missing in ["ProtectKernelTunables", "ProcSubset", "PrivateNetwork", "PrivateUsers"] {
        assert!(unit("service").contains(&format!("# Not {missing}=")), "{missing}");
    }
}

/// What cargo-deb reads: the units are installed, but neither enabled nor started, and every file exists.
#[test]
fn the_debian_package_installs_the_service_disabled() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let cargo = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .current_dir(root)
        .output()
        .unwrap();
    let all: Value = serde_json::from_slice(&cargo.stdout).unwrap();
    let packages = all["packages"].as_array().unwrap();
    let own = packages.iter().find(|one| one["name"] == "iostackbreakdown").unwrap();
    let deb = &own["metadata"]["deb"];
    let units = &deb["systemd-units"];
    assert_eq!(
        (&units["enable"], &units["start"]),
        (&Value::Bool(false), &Value::Bool(false))
    );
    let scripts = Path::new(units["unit-scripts"].as_str().unwrap());
    assert_eq!(scripts.join(units["unit-name"].as_str().unwrap()), Path::new(UNIT));
    // Without it, cargo-deb ignores the units.
    assert!(deb["maintainer-scripts"].is_string());

    let assets = deb["assets"].as_array().unwrap();
    let sources = assets.iter().map(|asset| asset[0].as_str().unwrap());
    let sources: BTreeSet<&str> = sources.filter(|source| !source.starts_with("target/")).collect();
    for source in &sources {
        let exists = match source.split_once('*') {
            None => root.join(source).is_file(),
            Some((folder, ending)) => {
                let mut files = fs::read_dir(root.join(folder)).unwrap();
                files.any(|file| file.unwrap().file_name().to_string_lossy().ends_with(ending))
            }
        };
        assert!(exists, "{source}");
    }
    for reads_metrics in [
        "packaging/prometheus/iostack.rules.yml",
        "packaging/grafana/iostack.json",
        "packaging/kubernetes/daemonset.yaml",
    ] {
        assert!(sources.contains(reads_metrics), "{reads_metrics}");
    }
}
