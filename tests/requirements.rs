//! The errors of a build on a machine that lacks what the build needs: one cause, and what to do.

mod folder;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::process::Command;

use folder::Folder;
use object::{Object as _, ObjectSection as _, ObjectSymbol as _};

/// A machine whose search path contains only the given programs.
struct Machine {
    folder: Folder,
    /// A variable that names a folder of libraries, and the folder.
    libraries: Option<(String, PathBuf)>,
}

impl Machine {
    fn new(name: &str) -> Self {
        let folder = Folder::new(name);
        for part in ["bin", "out"] {
            fs::create_dir_all(folder.join(part)).unwrap();
        }
        Self {
            folder,
            libraries: None,
        }
    }

    fn program(&self, name: &str) -> PathBuf {
        self.folder.join("bin").join(name)
    }

    /// Programs of this machine.
    fn with(self, programs: &[&str]) -> Self {
        for program in programs {
            symlink(found(program), self.program(program)).unwrap();
        }
        self
    }

    fn with_script(self, name: &str, script: &str) -> Self {
        fs::write(self.program(name), format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(self.program(name), fs::Permissions::from_mode(0o755)).unwrap();
        self
    }

    /// The errors that the tool's build script reports to cargo in a native build.
    fn errors(&self) -> Vec<String> {
        self.errors_for(std::env::consts::ARCH)
    }

    /// The same in a build for another architecture.
    fn errors_for(&self, architecture: &str) -> Vec<String> {
        let machine = format!("{architecture}-unknown-linux-gnu");
        let mut script = Command::new(env!("IOSB_BUILD_SCRIPT"));
        script
            .env_clear()
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .env("PATH", self.folder.join("bin"))
            .env("OUT_DIR", self.folder.join("out"))
            .envs([("TARGET", &machine), ("HOST", &machine)])
            .envs([("OPT_LEVEL", "0"), ("CARGO_CFG_TARGET_FEATURE", "fxsr,crt-static")])
            .env("CARGO_CFG_TARGET_ARCH", architecture)
            .envs(self.libraries.clone());
        let output = script.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.success() && !said.contains("panicked"),
            "{}: {said}",
            output.status
        );
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = stdout.lines().filter_map(|line| line.strip_prefix("cargo::error="));
        errors.map(str::to_owned).collect()
    }
}

/// The path of a program on this machine.
fn found(program: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    let mut candidates = std::env::split_paths(&path).map(|folder| folder.join(program));
    candidates
        .find(|candidate| candidate.is_file())
        .unwrap_or_else(|| panic!("no {program} here"))
}

/// The answer of a compiler that does not find a library.
const FINDS_NOTHING: &str = "case $1 in -print-file-name=*) echo \"${1#*=}\" ;; esac";

#[test]
fn without_clang_one_line_says_how_to_get_it() {
    let machine = Machine::new("no-clang").with(&["cc"]);
    assert_eq!(
        machine.errors(),
        ["not found: clang. Debian, Ubuntu: apt-get install clang; Fedora: dnf install clang"]
    );
}

#[test]
fn everything_missing_is_in_one_line() {
    let machine = Machine::new("no-libraries").with_script("cc", FINDS_NOTHING);
    assert_eq!(
        machine.errors(),
        [
            "not found: clang, libc.a, libelf.a, libz.a. Debian, Ubuntu: apt-get install clang libc6-dev libelf-dev zlib1g-dev; \
          Fedora: dnf install clang glibc-static elfutils-libelf-devel-static zlib-static"
        ]
    );
}

/// In a build for another architecture, this machine's libraries are of no use.
#[test]
fn libraries_of_another_architecture_have_a_variable_of_their_own() {
    let mut machine = Machine::new("other-libraries").with_script("cc", FINDS_NOTHING);
    for library in ["libc.a", "libelf.a", "libz.a"] {
        fs::write(machine.folder.join(library), "").unwrap();
    }
    let variable = "LIBBPF_SYS_LIBRARY_PATH_aarch64_unknown_linux_gnu";
    machine.libraries = Some((variable.into(), machine.folder.to_path_buf()));
    let missing = |architecture| machine.errors_for(architecture)[0].matches("lib").count();
    // The names of libraries, and those of their packages.
    assert_eq!([missing("aarch64"), missing("x86_64")], [0, 9]);
}

/// Whether a function has an atomic instruction that returns the old value, which is a full barrier on arm64.
fn has_full_barrier(object: &[u8], function: &str) -> bool {
    /// `BPF_STX | BPF_ATOMIC | BPF_DW`, and `BPF_FETCH` of its immediate (include/uapi/linux/bpf.h).
    const ATOMIC: u8 = 0xdb;
    const FETCH: u8 = 1;
    let object = object::File::parse(object).unwrap();
    let symbol = object.symbols().find(|symbol| symbol.name() == Ok(function)).unwrap();
    let section = object.section_by_index(symbol.section_index().unwrap()).unwrap();
    let code = section.data_range(symbol.address(), symbol.size()).unwrap().unwrap();
    let mut instructions = code.chunks_exact(8);
    instructions.any(|it| it[0] == ATOMIC && it[4] & FETCH != 0)
}

/// The number of 64-bit loads at the offset of the number of a system call in arm64's saved registers (`struct pt_regs`). It has
/// 32 bits there, and the verifier refuses to load more of a field through a typed pointer.
fn wide_loads_of_the_number(object: &[u8]) -> usize {
    /// `BPF_LDX | BPF_MEM | BPF_DW` (include/uapi/linux/bpf.h).
    const LOAD: u8 = 0x79;
    const NUMBER: [u8; 2] = 280_i16.to_le_bytes();
    let object = object::File::parse(object).unwrap();
    let code = object
        .sections()
        .filter(|section| section.kind() == object::SectionKind::Text);
    let count = |code: &[u8]| {
        let loads = code.chunks_exact(8).filter(|it| it[0] == LOAD);
        loads.filter(|it| it[2..4] == NUMBER).count()
    };
    code.map(|section| count(section.data().unwrap())).sum()
}

/// The compiler for arm64, which only the linker would need, is not required here.
#[test]
fn the_kernel_side_compiles_for_each_architecture() {
    for architecture in ["x86_64", "aarch64"] {
        let machine = Machine::new(architecture).with(&["cc", "clang"]);
        assert!(machine.errors_for(architecture).is_empty());
        for view in ["layers", "stack"] {
            let object = fs::read(machine.folder.join("out").join(view).join("iostackbreakdown.o")).unwrap();
            // More than an object without programs has; in line, groups and slow calls would make it larger than this.
            assert!(
                (1 << 18..1 << 20).contains(&object.len()),
                "{architecture}, {view}: {}",
                object.len()
            );
            // The whole stack has a field of its own at this offset.
            if architecture == "aarch64" && view == "layers" {
                assert_eq!(wide_loads_of_the_number(&object), 0, "{view}");
            }
            // A group is marked as complete after all stores before, which x86 keeps in order by itself.
            assert_eq!(
                has_full_barrier(&object, "find_or_make_group"),
                architecture == "aarch64",
                "{architecture}, {view}"
            );
        }
    }
    let errors = Machine::new("riscv64").with(&["cc", "clang"]).errors_for("riscv64");
    assert!(
        errors.len() == 1 && errors[0].contains("no register layout for riscv64"),
        "{errors:?}"
    );
}

#[test]
fn a_clang_that_is_too_old_is_named() {
    let old = "case $* in *--version*) echo 'Some clang version 9.0.1-2'; echo 'Target: x86_64' ;; *) \
               echo 'error: unknown attribute preserve_access_index' >&2; exit 1 ;; esac";
    let errors = Machine::new("old-clang")
        .with(&["cc"])
        .with_script("clang", old)
        .errors();
    assert_eq!(
        errors[0],
        "Some clang version 9.0.1-2 does not compile the kernel side (bpf/); clang 14 and 19 do: select one, for example by \
         CLANG=clang-19"
    );
    assert!(
        errors[1..].iter().any(|line| line.contains("preserve_access_index")),
        "{errors:?}"
    );
}
