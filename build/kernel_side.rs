//! Compiles the BPF programs (`bpf/`), strips what no loader needs, compresses the object, and generates its skeleton.

use std::collections::HashSet;
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use flate2::Compression;
use flate2::write::DeflateEncoder;
use libbpf_cargo::SkeletonBuilder;
use object::build::Id;
use object::build::elf::{Builder, SectionData};
use object::elf::{SHT_STRTAB, STB_LOCAL, STT_NOTYPE};

/// Creates the compressed object and its skeleton in `out`. Returns the size of the uncompressed object in bytes.
///
/// # Errors
/// Lines that say why the architecture or the compiler is not supported.
pub fn compile(out: &Path, clang: &OsStr) -> Result<usize, Vec<String>> {
    let arch = match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => "x86",
        Ok("aarch64") => "arm64",
        other => {
            let name = other.unwrap_or_default();
            return Err(vec![format!(
                "the kernel side has no register layout for {name}; build for x86_64 or aarch64"
            )]);
        }
    };
    println!("cargo:rerun-if-env-changed=CLANG");
    for entry in Path::new("bpf").read_dir().expect("bpf/ is part of the source") {
        println!(
            "cargo:rerun-if-changed={}",
            entry.expect("bpf/ can be listed").path().display()
        );
    }
    let object = out.join("iostackbreakdown.o");
    let mut builder = SkeletonBuilder::new();
    builder.clang(clang).obj(&object).reference_obj(true);
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
        let first = format!(
            "{} does not compile the kernel side (bpf/); clang 14 and 19 do: select one, for example by CLANG=clang-19",
            version_of(clang)
        );
        let error = format!("{error:#}");
        let lines = error.lines().filter(|line| !line.is_empty());
        return Err([first].into_iter().chain(lines.map(str::to_owned)).collect());
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
    Ok(bytes.len())
}

/// Removes what no loader reads, two fifths of the object: line info (the source line of each instruction), and the
/// symbols of labels inside functions.
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
        let is_label = symbol.st_type() == STT_NOTYPE && symbol.st_bind() == STB_LOCAL;
        symbol.delete = is_label && !used.contains(&symbol.id().index());
    }
    for section in &mut elf.sections {
        if let SectionData::Data(bytes) = &mut section.data
            && *section.name == *b".BTF.ext"
        {
            *bytes = without_lines(bytes).into();
        }
    }
    // libbpf's linker writes all names to one section; this writer needs a section of its own for the names of
    // sections.
    let names = elf.sections.add();
    (names.name, names.sh_type, names.data) = (b".shstrtab"[..].into(), SHT_STRTAB, SectionData::SectionString);
    let mut stripped = Vec::new();
    elf.write(&mut stripped).expect("a Vec can be written");
    fs::write(path, stripped).expect("OUT_DIR can be written");
}

/// A `.BTF.ext` section without its line info. `struct btf_ext_header` has the offset, from the end of the header, and
/// the length of each part: function info, line info, and CO-RE relocations (Documentation/bpf/btf.rst).
fn without_lines(section: &[u8]) -> Vec<u8> {
    /// Offset of the field with the length of the header.
    const LENGTH: usize = 4;
    /// Offsets of the fields with the offset of each part; its length follows 4 bytes later.
    const FUNCTIONS: usize = 8;
    const LINES: usize = 16;
    const RELOCATIONS: usize = 24;
    let word = |offset: usize| {
        let bytes = section[offset..offset + 4].try_into().expect("four bytes");
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

/// Changes the skeleton, which contains the object uncompressed, so that it inflates the object only while libbpf opens
/// it, and passes its address in libbpf's structure.
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

/// The first line of the compiler's `--version`, or its name if there is none.
fn version_of(clang: &OsStr) -> String {
    let output = Command::new(clang).arg("--version").output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let first = text.ok().and_then(|text| text.lines().next().map(str::to_owned));
    first.unwrap_or_else(|| clang.display().to_string())
}
