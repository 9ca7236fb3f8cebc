//! Writes the constants of `bpf/abi.h` as Rust and, with the feature `kernel-side`, compiles the BPF programs.
//!
//! `CLANG` names the compiler, by default `clang`. Missing or outdated tools are reported as an error of cargo that
//! says what to install; `tests/requirements.rs` runs this script to test that.

#[cfg(feature = "kernel-side")]
mod kernel_side;
mod libelf;

use std::env;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

/// What this script and the linker need, and the build scripts of dependencies do not check: a program or a static
/// library, the package of Debian and Ubuntu that contains it, and that of Fedora.
const NEEDS: [[&str; 3]; 4] = [
    ["clang", "clang", "clang"],
    ["libc.a", "libc6-dev", "glibc-static"],
    ["libelf.a", "libelf-dev", "elfutils-libelf-devel-static"],
    ["libz.a", "zlib1g-dev", "zlib-static"],
];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for header in ["bpf/abi.h", "bpf/vmlinux.h"] {
        println!("cargo:rerun-if-changed={header}");
    }
    if let Ok(script) = env::current_exe() {
        println!("cargo::rustc-env=IOSB_BUILD_SCRIPT={}", script.display());
    }

    let clang = env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    let missing: Vec<_> = NEEDS.into_iter().filter(|[need, ..]| !is_here(need, &clang)).collect();
    if !missing.is_empty() {
        let [needs, debian, fedora] = [0, 1, 2].map(|column| missing.iter().map(|row| row[column]).collect::<Vec<_>>());
        println!(
            "cargo::error=not found: {}. Debian, Ubuntu: apt-get install {}; Fedora: dnf install {}",
            needs.join(", "),
            debian.join(" "),
            fedora.join(" ")
        );
        return;
    }
    let header = fs::read_to_string("bpf/abi.h").expect("bpf/abi.h is part of the source");
    let kernel = fs::read_to_string("bpf/vmlinux.h").expect("bpf/vmlinux.h is part of the source");
    let text = constants(&header) + &kernel_types(&kernel);
    fs::write(out.join("abi.rs"), text).expect("OUT_DIR can be written");
    #[cfg(feature = "kernel-side")]
    match kernel_side::compile(&out, &clang) {
        Ok(sizes) => {
            let lines = sizes
                .iter()
                .map(|(name, size)| format!("const {}_SIZE: usize = {size};\n", name.to_uppercase()));
            fs::write(out.join("object_sizes.rs"), lines.collect::<String>()).expect("OUT_DIR can be written");
        }
        Err(lines) => {
            lines.iter().for_each(|line| println!("cargo::error={line}"));
            return;
        }
    }
    libelf::complete("src/libelf_supplement.c");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|known| known == value);
    // A panic aborts there, so that nothing unwinds. On arm64 the compiler's startup code of static executables refers to them.
    if is("PROFILE", "release") && is("CARGO_CFG_TARGET_ARCH", "x86_64") {
        let script = env::current_dir()
            .expect("cargo sets it")
            .join("build/without_unwind_tables.ld");
        println!("cargo:rerun-if-changed=build/without_unwind_tables.ld");
        println!("cargo::rustc-link-arg-bins=-Wl,-T,{}", script.display());
    }
    if can_pack_relocations() {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// Whether the C library of the executable reads relocations in their packed form (glibc 2.36), which takes a twentieth of
/// the space; each has its own 24 bytes otherwise. The linkers of systems with that glibc can write them.
fn can_pack_relocations() -> bool {
    let is_native = env::var("HOST").is_ok_and(|host| env::var("TARGET").is_ok_and(|target| target == host));
    is_native && glibc().is_some_and(|version| version >= (2, 36))
}

/// The version of the glibc that this script runs with.
#[cfg(target_env = "gnu")]
fn glibc() -> Option<(u32, u32)> {
    unsafe extern "C" {
        safe fn gnu_get_libc_version() -> *const std::ffi::c_char;
    }
    // SAFETY: it is a constant string.
    let version = unsafe { std::ffi::CStr::from_ptr(gnu_get_libc_version()) };
    let (major, minor) = version.to_str().ok()?.split_once('.')?;
    Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
}

#[cfg(not(target_env = "gnu"))]
fn glibc() -> Option<(u32, u32)> {
    None
}

fn is_here(need: &str, clang: &OsStr) -> bool {
    match need {
        "clang" => cfg!(not(feature = "kernel-side")) || is_program(clang),
        // The C library may be linked dynamically by a build with other flags than those of `.cargo/config.toml`.
        "libc.a" if !env::var("CARGO_CFG_TARGET_FEATURE").is_ok_and(|has| has.contains("crt-static")) => true,
        library => is_library(library),
    }
}

fn is_program(name: &OsStr) -> bool {
    let folders = env::var_os("PATH").unwrap_or_default();
    // `join` with an absolute path is that path.
    env::split_paths(&folders).any(|folder| folder.join(name).is_file())
}

/// Whether the linker will find a library. The compiler prints the path of a library that it finds, and only the name
/// of others. Without a compiler, this is true, and the linker reports the error.
fn is_library(name: &str) -> bool {
    let compiler = || cc::Build::new().cargo_metadata(false).try_get_compiler();
    let ask = |compiler: cc::Tool| {
        compiler
            .to_command()
            .arg(format!("-print-file-name={name}"))
            .output()
            .ok()
    };
    libelf::folders().iter().any(|folder| folder.join(name).is_file())
        || compiler()
            .ok()
            .and_then(ask)
            .is_none_or(|output| output.stdout.starts_with(b"/"))
}

/// The numbers of `abi.h`, from lines `#define NAME 1` and `NAME = 1,`, as Rust constants: the skeleton only has the
/// types.
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

/// The names of the types of `vmlinux.h`, from lines `struct name {` and `} name;`, as a Rust array.
fn kernel_types(header: &str) -> String {
    let names = header.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["struct" | "union" | "enum", name, "{"] if !line.starts_with(char::is_whitespace) => Some(name),
            ["}", name] => name.strip_suffix(';'),
            _ => None,
        }
    });
    let names: Vec<&str> = names.collect();
    format!(
        "/// The types of the kernel that the programs read.\npub const KERNEL_TYPES: [&str; {}] = {names:?};\n",
        names.len()
    )
}
