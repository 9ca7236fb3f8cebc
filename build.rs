//! Compiles the kernel side (`bpf/`), leaves out what no loader needs, compresses it, and generates its skeleton.
//!
//! `CLANG` names the compiler to use; `clang` otherwise. What is missing or too old is told in a line of cargo's, with the way
//! out; `tests/requirements.rs` runs this script for that.

#[path = "build_libelf.rs"]
mod libelf;

use std::collections::HashSet;
use std::env;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::Compression;
use flate2::write::DeflateEncoder;
use libbpf_cargo::SkeletonBuilder;
use object::build::Id;
use object::build::elf::{Builder, SectionData};
use object::elf::{SHT_STRTAB, STB_LOCAL, STT_NOTYPE};

/// What this script and the linker need, and the build scripts of dependencies do not miss: a program or a static library, the
/// package of Debian and Ubuntu that brings it, and that of Fedora.
const NEEDS: [[&str; 3]; 4] = [
    ["clang", "clang", "clang"],
    ["libc.a", "libc6-dev", "glibc-static"],
    ["libelf.a", "libelf-dev", "elfutils-libelf-devel-static"],
    ["libz.a", "zlib1g-dev", "zlib-static"],
];

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let arch = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => "x86",
        Ok("aarch64") => "arm64",
        other => {
            let name = other.unwrap_or_default();
            println!("cargo::error=the kernel side has no register layout for {name}; build for x86_64 or aarch64");
            return;
        }
    };
    for entry in Path::new("bpf").read_dir().expect("bpf/ is part of the source") {
        println!(
            "cargo:rerun-if-changed={}",
            entry.expect("bpf/ can be listed").path().display()
        );
    }
    println!("cargo:rerun-if-env-changed=CLANG");
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
    let object = out.join("iostackbreakdown.o");
    let mut builder = SkeletonBuilder::new();
    builder.clang(&clang).obj(&object).reference_obj(true);
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
        .build();
    if let Err(error) = built {
        println!(
            "cargo::error={} does not compile the kernel side (bpf/); clang 14 and 19 do: name one by CLANG, as in CLANG=clang-19",
            version_of(&clang)
        );
        for line in format!("{error:#}").lines().filter(|line| !line.is_empty()) {
            println!("cargo::error={line}");
        }
        return;
    }

    strip(&object);
    let skeleton = out.join("iostackbreakdown.skel.rs");
    builder.generate(&skeleton).expect("the object is one that clang made");
    let text = fs::read_to_string(&skeleton).expect("it was just written");
    fs::write(&skeleton, inflating(text)).expect("OUT_DIR can be written");
    let bytes = fs::read(&object).expect("it was just written");
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&bytes).expect("a Vec can be written");
    let compressed = encoder.finish().expect("a Vec can be written");
    fs::write(object.with_extension("o.deflate"), compressed).expect("OUT_DIR can be written");

    let header = fs::read_to_string("bpf/interface.h").expect("bpf/interface.h is part of the source");
    let kernel = fs::read_to_string("bpf/vmlinux.h").expect("bpf/vmlinux.h is part of the source");
    let size = format!("pub const OBJECT_SIZE: usize = {};\n", bytes.len());
    let text = constants(&header) + &kernel_types(&kernel) + &size;
    fs::write(out.join("interface.rs"), text).expect("OUT_DIR can be written");
    libelf::complete("src/libelf_supplement.c");
}

/// Leaves out of the object what no loader looks at, two fifths of it: which line of the source each instruction is of, and the names
/// of places inside of functions.
fn strip(path: &Path) {
    let file = fs::read(path).expect("clang has written it");
    let mut elf = Builder::read(&file[..]).expect("clang writes ELF");
    let sections = elf.sections.iter();
    let used: HashSet<usize> = sections
        .filter_map(|section| match &section.data {
            SectionData::Relocation(all) => Some(all.iter().filter_map(|relocation| Some(relocation.symbol?.index()))),
            _ => None,
        })
        .flatten()
        .collect();
    for symbol in &mut elf.symbols {
        let is_place = symbol.st_type() == STT_NOTYPE && symbol.st_bind() == STB_LOCAL;
        symbol.delete = is_place && !used.contains(&symbol.id().index());
    }
    for section in &mut elf.sections {
        if let SectionData::Data(bytes) = &mut section.data
            && *section.name == *b".BTF.ext"
        {
            *bytes = without_lines(bytes).into();
        }
    }
    // libbpf's linker has all names in one section; this writer has those of sections apart.
    let names = elf.sections.add();
    (names.name, names.sh_type, names.data) = (b".shstrtab"[..].into(), SHT_STRTAB, SectionData::SectionString);
    let mut stripped = Vec::new();
    elf.write(&mut stripped).expect("a Vec can be written");
    fs::write(path, stripped).expect("OUT_DIR can be written");
}

/// A `.BTF.ext` section without its line info: `struct btf_ext_header` has offsets behind itself and lengths, of the info on functions,
/// on lines, and of the relocations (Documentation/bpf/btf.rst).
fn without_lines(section: &[u8]) -> Vec<u8> {
    /// Place of the header's own length.
    const LENGTH: usize = 4;
    /// Of the offset and length of each part, by its place in the header.
    const FUNCTIONS: usize = 8;
    const LINES: usize = 16;
    const RELOCATIONS: usize = 24;
    let word = |place: usize| {
        let bytes = section[place..place + 4].try_into().expect("four bytes");
        u32::from_le_bytes(bytes) as usize
    };
    let mut stripped = section[..word(LENGTH)].to_vec();
    for part in [FUNCTIONS, LINES, RELOCATIONS] {
        let start = word(LENGTH) + word(part);
        let length = if part == LINES { 0 } else { word(part + 4) };
        let offset = (stripped.len() - word(LENGTH)) as u32;
        stripped.extend(&section[start..start + length]);
        stripped[part..part + 4].copy_from_slice(&offset.to_le_bytes());
        stripped[part + 4..part + 8].copy_from_slice(&(length as u32).to_le_bytes());
    }
    stripped
}

/// The skeleton, with the object inflated for as long as libbpf opens it instead of lying in the executable. In libbpf's structure
/// stands where it is.
fn inflating(mut skeleton: String) -> String {
    const OPEN: &str = "let ret = unsafe { libbpf_sys::bpf_object__open_skeleton(skel_ptr.as_ptr(), open_opts) };";
    let with_object = format!(
        "let bytes = crate::kernel::interface::object(); \
         let skeleton = skel_ptr.as_ptr(); \
         unsafe {{ (*skeleton).data = bytes.as_ptr().cast(); (*skeleton).data_sz = bytes.len() as _; }} \
         {OPEN} \
         unsafe {{ (*skeleton).data = std::ptr::null(); (*skeleton).data_sz = 0; }} \
         drop(bytes);"
    );
    for (before, after) in [("new(&DATA)", "new(&[])"), (OPEN, &with_object)] {
        assert_eq!(skeleton.matches(before).count(), 1, "libbpf-cargo writes {before} once");
        skeleton = skeleton.replace(before, after);
    }
    let data = skeleton
        .find("#[unsafe(link_section = \".bpf.objs\")]")
        .expect("libbpf-cargo writes the object");
    let end = data + skeleton[data..].find(';').expect("of an array's size");
    let end = end + 1 + skeleton[end + 1..].find(';').expect("of the array");
    skeleton.replace_range(data..=end, "");
    skeleton
}

fn is_here(need: &str, clang: &OsStr) -> bool {
    match need {
        "clang" => is_program(clang),
        // Who builds with flags of their own may link it as they like.
        "libc.a" if !env::var("CARGO_CFG_TARGET_FEATURE").is_ok_and(|has| has.contains("crt-static")) => true,
        library => is_library(library),
    }
}

fn is_program(name: &OsStr) -> bool {
    let folders = env::var_os("PATH").unwrap_or_default();
    // A name that is a path is not looked for.
    env::split_paths(&folders).any(|folder| folder.join(name).is_file())
}

/// Whether the linker will find it; a compiler that does not know a library answers with its bare name. Without a compiler that
/// could be asked, it is the linker's to complain.
fn is_library(name: &str) -> bool {
    let folders = env::var_os("LIBBPF_SYS_LIBRARY_PATH").unwrap_or_default();
    let compiler = || cc::Build::new().cargo_metadata(false).try_get_compiler();
    let ask = |compiler: cc::Tool| {
        compiler
            .to_command()
            .arg(format!("-print-file-name={name}"))
            .output()
            .ok()
    };
    env::split_paths(&folders).any(|folder| folder.join(name).is_file())
        || compiler()
            .ok()
            .and_then(ask)
            .is_none_or(|answer| answer.stdout.starts_with(b"/"))
}

/// What a compiler says it is, or its name when it says nothing.
fn version_of(clang: &OsStr) -> String {
    let said = Command::new(clang).arg("--version").output();
    let said = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let first = said.ok().and_then(|said| said.lines().next().map(str::to_owned));
    first.unwrap_or_else(|| clang.display().to_string())
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

/// The names of `vmlinux.h`, `struct name {` and `} name;` alike, as a list.
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
        "/// Types of the kernel's that the programs read.\npub const KERNEL_TYPES: [&str; {}] = {names:?};\n",
        names.len()
    )
}
