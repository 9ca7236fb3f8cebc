//! Adds the symbols that a static libelf lacks, for the build scripts of all packages that link it.

use std::env;
use std::fs;
use std::path::PathBuf;

/// Names the folders of libraries, and with the target's name behind it those for that target. libbpf-sys reads both as
/// well, for this target and, where the build script has it, for this machine.
const FOLDERS: &str = "LIBBPF_SYS_LIBRARY_PATH";

/// Where the target's static libraries are, in the order in which they are searched.
pub fn folders() -> Vec<PathBuf> {
    let target = env::var("TARGET").unwrap_or_default();
    let names = [
        format!("{FOLDERS}_{target}"),
        format!("{FOLDERS}_{}", target.replace('-', "_")),
        FOLDERS.into(),
    ];
    let values = names.iter().filter_map(|name| {
        println!("cargo:rerun-if-env-changed={name}");
        env::var_os(name)
    });
    values
        .flat_map(|value| env::split_paths(&value).collect::<Vec<_>>())
        .collect()
}

/// The static libelf of newer distributions (elfutils 0.192 in Debian 13) calls libzstd, and functions of elfutils that
/// are in no archive, and no build script passes them to the linker. Adds libzstd and `supplement`, a C file that
/// defines these functions, to the end of the linker's command line, after the libelf that needs them.
pub fn complete(supplement: &str) {
    println!("cargo:rerun-if-changed={supplement}");
    let has_it = |folder: &PathBuf| folder.join("libelf.a").exists();
    let Some(folder) = folders().into_iter().find(has_it) else {
        return;
    };
    let archive = fs::read(folder.join("libelf.a")).unwrap_or_default();
    let mentions = |name: &[u8]| archive.windows(name.len()).any(|bytes| bytes == name);
    if mentions(b"eu_search_tree_init") {
        // An archive, so that the linker takes nothing from it that libelf defines itself.
        cc::Build::new().file(supplement).cargo_metadata(false).compile("eu");
        println!(
            "cargo:rustc-link-arg={}/libeu.a",
            env::var("OUT_DIR").expect("cargo sets OUT_DIR")
        );
    }
    if mentions(b"ZSTD_") {
        println!("cargo:rustc-link-arg={}", folder.join("libzstd.a").display());
    }
}
