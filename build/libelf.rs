//! Adds the symbols that a static libelf lacks, for the build scripts of all packages that link it.

use std::env;
use std::fs;
use std::path::Path;

/// The static libelf of newer distributions (elfutils 0.192 in Debian 13) calls libzstd, and functions of elfutils that
/// are in no archive, and no build script passes them to the linker. Adds libzstd and `supplement`, a C file that
/// defines these functions, to the end of the linker's command line, after the libelf that needs them.
pub fn complete(supplement: &str) {
    println!("cargo:rerun-if-changed={supplement}");
    println!("cargo:rerun-if-env-changed=LIBBPF_SYS_LIBRARY_PATH");
    let folders = env::var("LIBBPF_SYS_LIBRARY_PATH").unwrap_or_default();
    let Some(folder) = folders
        .split(':')
        .map(Path::new)
        .find(|folder| folder.join("libelf.a").exists())
    else {
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
