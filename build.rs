//! Compiles the kernel side (`bpf/`) and generates its skeleton.
//!
//! `CLANG` names the compiler to use; `clang` otherwise.

use std::env;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use libbpf_cargo::SkeletonBuilder;

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let arch = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => "x86",
        Ok("aarch64") => "arm64",
        other => panic!("the kernel side knows no architecture {other:?}"),
    };
    for entry in Path::new("bpf").read_dir().expect("bpf/ is part of the source") {
        println!(
            "cargo:rerun-if-changed={}",
            entry.expect("bpf/ can be listed").path().display()
        );
    }
    println!("cargo:rerun-if-changed=src/libelf_supplement.c");
    println!("cargo:rerun-if-env-changed=CLANG");

    let mut builder = SkeletonBuilder::new();
    if let Some(clang) = env::var_os("CLANG") {
        builder.clang(clang);
    }
    let arch = format!("-D__TARGET_ARCH_{arch}");
    let built = builder
        .source("bpf/iostackbreakdown.bpf.c")
        .clang_args(
            [
                "-Wall",
                "-Wextra",
                "-Wno-unused-parameter",
                "-Werror",
                "-mcpu=v3",
                &arch,
            ]
            .map(OsStr::new),
        )
        .build_and_generate(out.join("iostackbreakdown.skel.rs"));
    if let Err(error) = built {
        panic!(
            "the kernel side did not compile; is clang installed (Debian, Ubuntu: apt-get install clang)?\n{error:#}"
        );
    }

    let header = fs::read_to_string("bpf/interface.h").expect("bpf/interface.h is part of the source");
    fs::write(out.join("interface.rs"), constants(&header)).expect("OUT_DIR can be written");
    complete_static_libelf();
}

/// The numbers of `interface.h`, `#define NAME 1` and `NAME = 1,` alike, as Rust constants: the skeleton has the types
/// only.
fn constants(header: &str) -> String {
    let mut text = String::new();
    for line in header.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (name, value) = match words[..] {
            ["#define", name, value, ..] => (name, value),
            [name, "=", value, ..] => (name, value.trim_end_matches(',')),
            _ => continue,
        };
        let number = value
            .strip_prefix("0x")
            .map_or_else(|| value.parse(), |hex| u32::from_str_radix(hex, 16));
        if let Ok(number) = number {
            writeln!(text, "pub const {name}: u32 = {number};").expect("a String can be written");
        }
    }
    text
}

/// The static libelf of newer distributions (elfutils 0.192 in Debian 13) calls libzstd and functions of its own that are
/// in no archive; nothing says so to the linker. These come last on its command line, behind the libelf that needs them.
fn complete_static_libelf() {
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
        // An archive: what libelf brings along itself is not taken from it.
        cc::Build::new()
            .file("src/libelf_supplement.c")
            .cargo_metadata(false)
            .compile("eu");
        println!(
            "cargo:rustc-link-arg={}/libeu.a",
            env::var("OUT_DIR").expect("cargo sets OUT_DIR")
        );
    }
    if mentions(b"ZSTD_") {
        println!("cargo:rustc-link-arg={}", folder.join("libzstd.a").display());
    }
}
