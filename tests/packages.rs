//! The sources of the guests' packages: mirrors known to apt, and only signed packages.

#[allow(dead_code, reason = "shared with the guests, who need more of it")]
#[path = "vm/host/apt.rs"]
mod apt;
#[allow(dead_code, reason = "shared with the guests, who need more of it")]
#[path = "vm/host/packages.rs"]
mod packages;

use std::fs;
use std::path::Path;

use apt::{Apt, Mirror, named_in, trusted};

fn mirrors(file: &str, text: &str) -> Vec<String> {
    let mirrors = named_in(&[(file.into(), text.into())]);
    mirrors.iter().map(|mirror| mirror.source("trixie")).collect()
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
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("mirror-{}", std::process::id()));
    let mirror = folder.join("debian");
    let list = mirror.join("dists/trixie/main/binary-amd64");
    fs::create_dir_all(&list).unwrap();
    fs::write(list.join("Packages"), "Package: linux-image-own\nVersion: 1\n").unwrap();
    let release = "Origin: Debian\nCodename: trixie\nComponents: main\nArchitectures: amd64\nDate: Tue, 24 Nov 2026 00:00:00 UTC\n";
    fs::write(mirror.join("dists/trixie/Release"), release).unwrap();
    let uri = format!("file:{}", mirror.display());
    let apt = Apt::new(&Mirror::new(&uri, ""), "trixie", &folder.join("apt")).unwrap();
    let answer = apt.list();
    fs::remove_dir_all(&folder).unwrap();
    let error = answer.unwrap_err();
    assert!(
        error.contains("is not signed") && error.ends_with("debian-archive-keyring"),
        "{error}"
    );
}
