//! Compiles the BPF programs (`bpf/`) once for each view, strips what no loader needs, compresses the objects, and
//! generates the skeleton that both have.

use std::collections::{BTreeMap, HashSet};
use std::env;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;

use libbpf_cargo::SkeletonBuilder;
use object::build::Id;
use object::build::elf::{Builder, SectionData};
use object::elf::{SHT_STRTAB, STB_LOCAL, STT_FUNC, STT_NOTYPE, STT_OBJECT};

/// The objects: the folder of each, and the value of `WHOLE_STACK` with which it is compiled (`bpf/view.bpf.h`).
const VIEWS: [(&str, u8); 2] = [("layers", 0), ("stack", 1)];

/// Creates the compressed objects and their skeleton in `out`. Returns the size of each uncompressed object in bytes, by
/// its folder.
///
/// # Errors
/// Lines that say why the architecture or the compiler is not supported.
pub fn compile(out: &Path, clang: &OsStr) -> Result<Vec<(&'static str, usize)>, Vec<String>> {
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
    // The skeleton's types have the name of its object.
    let path = |name: &str| out.join(name).join("iostackbreakdown.o");
    for (name, _) in VIEWS {
        fs::create_dir_all(out.join(name)).expect("OUT_DIR can be written");
    }
    // At the same time, since compiling is most of the work.
    let built = thread::scope(|scope| {
        let built = VIEWS.map(|(name, whole_stack)| {
            let object = path(name);
            scope.spawn(move || {
                compile_view(&object, clang, arch, whole_stack)?;
                strip(&object);
                Ok(compress(&object))
            })
        });
        built.map(|one| one.join().expect("the compiler's thread ends"))
    });
    let sizes: Vec<usize> = built.into_iter().collect::<Result<_, Vec<String>>>()?;

    let [layers, stack] = VIEWS.map(|(name, _)| path(name));
    assert_eq!(
        layout(&layers),
        layout(&stack),
        "both objects fit the skeleton: they have the same variables, maps and programs"
    );
    let skeleton = out.join("iostackbreakdown.skel.rs");
    let mut builder = SkeletonBuilder::new();
    builder.obj(&stack).reference_obj(true);
    builder.generate(&skeleton).expect("the object is one that clang made");
    let text = fs::read_to_string(&skeleton).expect("it was just written");
    fs::write(&skeleton, decompressing(text)).expect("OUT_DIR can be written");
    Ok(VIEWS.map(|(name, _)| name).into_iter().zip(sizes).collect())
}

/// Compiles the programs for one view.
fn compile_view(object: &Path, clang: &OsStr, arch: &str, whole_stack: u8) -> Result<(), Vec<String>> {
    let arch = format!("-D__TARGET_ARCH_{arch}");
    let view = format!("-DWHOLE_STACK={whole_stack}");
    let mut builder = SkeletonBuilder::new();
    let built = builder
        .source("bpf/iostackbreakdown.bpf.c")
        .clang(clang)
        .obj(object)
        .clang_args(
            [
                "-Wall",
                "-Wextra",
                "-Wno-unused-parameter",
                "-Werror",
                "-mcpu=v3",
                &arch,
                &view,
            ]
            .map(OsStr::new),
        )
        .build();
    built.map_err(|error| {
        let first = format!(
            "{} does not compile the kernel side (bpf/); clang 14 and 19 do: select one, for example by CLANG=clang-19",
            version_of(clang)
        );
        let error = format!("{error:#}");
        let lines = error.lines().filter(|line| !line.is_empty());
        [first].into_iter().chain(lines.map(str::to_owned)).collect()
    })
}

/// Writes the compressed object to a file beside it. Returns the size of the uncompressed object in bytes.
fn compress(object: &Path) -> usize {
    let bytes = fs::read(object).expect("it was just written");
    let compressed = zstd::bulk::compress(&bytes, zstd::DEFAULT_COMPRESSION_LEVEL).expect("there is memory for it");
    fs::write(object.with_extension("o.zst"), compressed).expect("OUT_DIR can be written");
    bytes.len()
}

/// What the skeleton has of an object, by name: the section, the offset and the size of each variable; of maps, whose
/// order does not matter, and of programs only the section.
fn layout(object: &Path) -> BTreeMap<String, (String, Option<(u64, u64)>)> {
    let file = fs::read(object).expect("it was just written");
    let elf = Builder::read(&file[..]).expect("clang writes ELF");
    let symbols = elf.symbols.iter().filter_map(|symbol| {
        let section = elf.sections.get(symbol.section?).name.to_string();
        let is_variable = symbol.st_type() == STT_OBJECT;
        let is_program = symbol.st_type() == STT_FUNC && section != ".text";
        let at = (is_variable && section != ".maps").then_some((symbol.st_value, symbol.st_size));
        (is_variable || is_program).then(|| (symbol.name.to_string(), (section, at)))
    });
    symbols.collect()
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

/// Changes the skeleton, which contains an object uncompressed, so that it decompresses the object of the builder's view only
/// while libbpf opens it, and passes its address in libbpf's structure.
fn decompressing(mut skeleton: String) -> String {
    const OPEN: &str = "let ret = unsafe { libbpf_sys::bpf_object__open_skeleton(skel_ptr.as_ptr(), open_opts) };";
    let with_object = format!(
        "let bytes = crate::kernel::interface::object(self.view); \
         let skeleton = skel_ptr.as_ptr(); \
         unsafe {{ (*skeleton).data = bytes.as_ptr().cast(); (*skeleton).data_sz = bytes.len() as _; }} \
         {OPEN} \
         unsafe {{ (*skeleton).data = std::ptr::null(); (*skeleton).data_sz = 0; }} \
         drop(bytes);"
    );
    const FIELD: &str = "pub obj_builder: libbpf_rs::ObjectBuilder,";
    let with_view = format!("{FIELD} pub view: crate::kernel::interface::View,");
    for (before, after) in [("new(&DATA)", "new(&[])"), (OPEN, &with_object), (FIELD, &with_view)] {
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
