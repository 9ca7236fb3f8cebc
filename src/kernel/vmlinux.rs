//! The address of a kernel variable from the symbol table of vmlinux, the kernel's ELF file, for kernels whose
//! `/proc/kallsyms` lists no data (`CONFIG_KALLSYMS_ALL`) or hides addresses.
//!
//! At boot the kernel relocates itself by a random offset (KASLR), which is the same for all of vmlinux.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs::{self, File};
use std::io;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::str;

use nix::sys::utsname::uname;
use object::Endianness;
use object::elf::{FileHeader64, NT_GNU_BUILD_ID, PT_NOTE, SHT_NOTE, SHT_SYMTAB};
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader, SectionHeader, Sym};
use object::read::{ReadCache, ReadRef, StringTable};

const KERNEL_NOTES: &str = "/sys/kernel/notes";
const MODULES: &str = "/sys/module";
const KALLSYMS: &str = "/proc/kallsyms";
const KCORE: &str = "/proc/kcore";

/// A symbol in both vmlinux and kallsyms; the difference is the KASLR offset.
const ANCHOR: &str = "_stext";

/// The notes of /proc/kcore have some 20 KiB; a larger segment, in bytes, is not read.
const MAX_NOTES: u64 = 1 << 20;

/// A symbol's address in the running kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub address: NonZeroU64,
    /// The ELF file with the symbol.
    pub path: PathBuf,
    /// The source of the KASLR offset.
    pub offset_source: &'static str,
}

/// Why the address is not available.
#[derive(Debug)]
pub enum Error {
    /// The symbol belongs to this loaded module, so vmlinux does not have it.
    Module(String),
    /// The running kernel's build ID is unknown, so no file can be compared with it.
    NoRunningBuildId(io::Error),
    /// None of these files exists.
    Missing {
        release: String,
        paths: Vec<PathBuf>,
    },
    Unreadable {
        path: PathBuf,
        error: io::Error,
    },
    NotElf {
        path: PathBuf,
        error: object::read::Error,
    },
    OtherKernel {
        path: PathBuf,
        build_id: Option<BuildId>,
        running: BuildId,
    },
    NoSymbol {
        path: PathBuf,
        symbol: String,
    },
    /// Neither kallsyms nor kcore has the KASLR offset; the error is kcore's.
    NoOffset(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Module(module) => write!(
                formatter,
                "{module} is a module here: its symbols are not in vmlinux, and {KALLSYMS} needs CAP_SYSLOG and \
                 kernel.kptr_restrict below 2"
            ),
            Self::NoRunningBuildId(error) => {
                write!(
                    formatter,
                    "cannot check that a vmlinux file belongs to this kernel: cannot read {KERNEL_NOTES}: {error}"
                )
            }
            Self::Missing { release, paths } => {
                write!(
                    formatter,
                    "no vmlinux of {release}: install its debug symbols or use --vmlinux (not found:"
                )?;
                for (index, path) in paths.iter().enumerate() {
                    write!(formatter, "{} {}", if index == 0 { "" } else { "," }, path.display())?;
                }
                formatter.write_char(')')
            }
            Self::Unreadable { path, error } => write!(formatter, "cannot read {}: {error}", path.display()),
            Self::NotElf { path, error } => {
                write!(
                    formatter,
                    "{} is not an uncompressed 64-bit vmlinux: {error}",
                    path.display()
                )
            }
            Self::OtherKernel {
                path,
                build_id: Some(build_id),
                running,
            } => write!(
                formatter,
                "{} belongs to another kernel: use the one whose build ID is {running}, not {build_id}",
                path.display()
            ),
            Self::OtherKernel {
                path,
                build_id: None,
                running,
            } => {
                write!(
                    formatter,
                    "{} has no build ID: use the one whose build ID is {running}",
                    path.display()
                )
            }
            Self::NoSymbol { path, symbol } => {
                write!(
                    formatter,
                    "{} has no symbol '{symbol}': use one that is not stripped",
                    path.display()
                )
            }
            Self::NoOffset(error) => write!(
                formatter,
                "the kernel's offset is hidden: {KALLSYMS} needs CAP_SYSLOG and kernel.kptr_restrict below 2, or \
                 {KCORE} CAP_SYS_RAWIO ({error})"
            ),
        }
    }
}

impl std::error::Error for Error {}

/// The address of the variable or constant `symbol` in the running kernel.
///
/// The ELF file is `explicit`, otherwise the first in the usual directories that belongs to the running kernel.
/// `runtime_stext` is the address of `_stext` in `/proc/kallsyms`, if it is visible.
pub fn data_address(symbol: &str, explicit: Option<&Path>, runtime_stext: Option<NonZeroU64>) -> Result<Found, Error> {
    find(symbol, explicit, runtime_stext).map_err(|error| match (error, loaded_module(symbol, Path::new(MODULES))) {
        (Error::Missing { .. } | Error::NoSymbol { .. }, Some(module)) => Error::Module(module.to_owned()),
        (error, _) => error,
    })
}

/// The loaded module whose name is the prefix of a symbol, for example ext4 of `ext4_file_operations`.
fn loaded_module<'a>(symbol: &'a str, modules: &Path) -> Option<&'a str> {
    let (module, _) = symbol.split_once('_')?;
    // A built-in module has at most parameters there: only a loaded one has a state (kernel/module/sysfs.c).
    modules.join(module).join("initstate").exists().then_some(module)
}

fn find(symbol: &str, explicit: Option<&Path>, runtime_stext: Option<NonZeroU64>) -> Result<Found, Error> {
    let running = running_build_id().map_err(Error::NoRunningBuildId)?;
    let (path, elf) = match explicit {
        Some(path) => (path.to_owned(), open_of_kernel(path, symbol, &running)?),
        None => search(symbol, &running)?,
    };
    let address_of = |name: &str| {
        elf.address(name).ok_or_else(|| Error::NoSymbol {
            path: path.clone(),
            symbol: name.to_owned(),
        })
    };
    let link_address = address_of(symbol)?;
    let (offset, offset_source) = match runtime_stext {
        Some(stext) => (stext.get().wrapping_sub(address_of(ANCHOR)?), KALLSYMS),
        None => (kcore_offset().map_err(Error::NoOffset)?, KCORE),
    };
    match NonZeroU64::new(link_address.wrapping_add(offset)) {
        Some(address) => Ok(Found {
            address,
            path,
            offset_source,
        }),
        None => Err(Error::NoSymbol {
            path,
            symbol: symbol.to_owned(),
        }),
    }
}

/// Where distributions install vmlinux files.
fn paths(release: &str) -> Vec<PathBuf> {
    vec![
        format!("/usr/lib/debug/boot/vmlinux-{release}").into(),
        format!("/usr/lib/debug/lib/modules/{release}/vmlinux").into(),
        format!("/boot/vmlinux-{release}").into(),
        format!("/lib/modules/{release}/vmlinux").into(),
        format!("/lib/modules/{release}/build/vmlinux").into(),
    ]
}

/// The first file in the usual directories that belongs to the running kernel. If there is none, the first file's error
/// is more useful than that other files are missing.
fn search(symbol: &str, running: &BuildId) -> Result<(PathBuf, ElfSymbols), Error> {
    let release = uname()
        .map(|names| names.release().to_string_lossy().into_owned())
        .unwrap_or_default();
    let paths = paths(&release);
    let mut refused = None;
    for path in &paths {
        match open_of_kernel(path, symbol, running) {
            Ok(elf) => return Ok((path.clone(), elf)),
            Err(Error::Unreadable { error, .. }) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(refused.unwrap_or(Error::Missing { release, paths }))
}

fn open_of_kernel(path: &Path, symbol: &str, running: &BuildId) -> Result<ElfSymbols, Error> {
    let elf = ElfSymbols::open(path, &[symbol, ANCHOR])?;
    if elf.build_id.as_ref() == Some(running) {
        return Ok(elf);
    }
    Err(Error::OtherKernel {
        path: path.to_owned(),
        build_id: elf.build_id,
        running: running.clone(),
    })
}

/// The linker's unique identifier of a program; shown in hexadecimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BuildId(Vec<u8>);

impl fmt::Display for BuildId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

/// The wanted symbols of an ELF file, and its build ID.
#[derive(Clone, Debug, Default)]
pub struct ElfSymbols {
    /// Link-time addresses; `None` for an ambiguous name.
    addresses: BTreeMap<String, Option<u64>>,
    pub build_id: Option<BuildId>,
}

impl ElfSymbols {
    /// Reads the headers, notes and symbol table: a few MiB of a file that may have a GiB with debug information.
    pub fn open(path: &Path, wanted: &[&str]) -> Result<Self, Error> {
        let file = File::open(path).map_err(|error| Error::Unreadable {
            path: path.to_owned(),
            error,
        })?;
        let cache = ReadCache::new(file);
        Self::parse(&cache, wanted).map_err(|error| Error::NotElf {
            path: path.to_owned(),
            error,
        })
    }

    /// Parses an ELF file's bytes. A file without a symbol table has no symbols.
    pub fn parse<'data>(data: impl ReadRef<'data>, wanted: &[&str]) -> object::read::Result<Self> {
        let header = FileHeader64::<Endianness>::parse(data)?;
        let endian = header.endian()?;
        let sections = header.sections(endian, data)?;
        let mut symbols = Self::default();
        for section in sections.iter().filter(|section| section.sh_type(endian) == SHT_NOTE) {
            let found = find_note(section.data(endian, data)?, endian, b"GNU", NT_GNU_BUILD_ID)?;
            symbols.build_id = symbols.build_id.or(found.map(|id| BuildId(id.to_vec())));
        }
        let Some(table) = sections.iter().find(|section| section.sh_type(endian) == SHT_SYMTAB) else {
            return Ok(symbols);
        };
        // Reads the whole table, since `ReadCache` would read each name separately.
        let entries: &[object::elf::Sym64<Endianness>] = table.data_as_array(endian, data)?;
        let names = sections.section(table.link(endian))?.data(endian, data)?;
        let names = StringTable::new(names, 0, names.len() as u64);
        for entry in entries.iter().filter(|entry| !entry.is_undefined(endian)) {
            let name = entry.name(endian, names)?;
            if let Some(name) = wanted.iter().find(|wanted| wanted.as_bytes() == name) {
                let address = entry.st_value(endian);
                symbols
                    .addresses
                    .entry((*name).to_owned())
                    .and_modify(|known| *known = known.filter(|&known| known == address))
                    .or_insert(Some(address));
            }
        }
        Ok(symbols)
    }

    /// The link-time address: `None` if the name is missing, was not wanted or is ambiguous.
    pub fn address(&self, name: &str) -> Option<u64> {
        self.addresses.get(name).copied().flatten()
    }
}

/// The contents of the first note of that owner and type. Notes in vmlinux, /sys/kernel/notes and /proc/kcore are
/// aligned to 4 bytes, whatever the section says.
fn find_note<'data>(
    notes: &'data [u8],
    endian: Endianness,
    owner: &[u8],
    kind: u32,
) -> object::read::Result<Option<&'data [u8]>> {
    let mut notes = NoteIterator::<FileHeader64<Endianness>>::new(endian, 4, notes)?;
    while let Some(note) = notes.next()? {
        if note.name() == owner && note.n_type(endian) == kind {
            return Ok(Some(note.desc()));
        }
    }
    Ok(None)
}

fn running_build_id() -> io::Result<BuildId> {
    let notes = fs::read(KERNEL_NOTES)?;
    match find_note(&notes, Endianness::default(), b"GNU", NT_GNU_BUILD_ID).map_err(io::Error::other)? {
        Some(id) => Ok(BuildId(id.to_vec())),
        None => Err(io::Error::other("no build ID")),
    }
}

fn kcore_offset() -> io::Result<u64> {
    let cache = ReadCache::new(File::open(KCORE)?);
    match vmcore_offset(&cache).map_err(io::Error::other)? {
        Some(offset) => Ok(offset),
        None => Err(io::Error::other("no KERNELOFFSET")),
    }
}

/// The KASLR offset in an ELF core file of a kernel: the line `KERNELOFFSET=`, in hexadecimal, of its note VMCOREINFO,
/// which /proc/kcore has since 4.19 (23c85094fe18 "proc/kcore: add vmcoreinfo note to /proc/kcore").
///
/// # Errors
/// When it is no such file.
pub fn vmcore_offset<'data>(data: impl ReadRef<'data>) -> object::read::Result<Option<u64>> {
    let header = FileHeader64::<Endianness>::parse(data)?;
    let endian = header.endian()?;
    let segments = header.program_headers(endian, data)?.iter();
    for segment in segments.filter(|segment| segment.p_type(endian) == PT_NOTE && segment.p_filesz(endian) <= MAX_NOTES)
    {
        let notes = data
            .read_bytes_at(segment.p_offset(endian), segment.p_filesz(endian))
            .unwrap_or_default();
        if let Some(text) = find_note(notes, endian, b"VMCOREINFO", 0)? {
            let value = text
                .split(|&byte| byte == b'\n')
                .find_map(|line| line.strip_prefix(b"KERNELOFFSET="));
            return Ok(value.and_then(|value| u64::from_str_radix(str::from_utf8(value).ok()?, 16).ok()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;

    const WANTED: [&str; 2] = ["ext4_file_operations", ANCHOR];

    /// The first two notes of /sys/kernel/notes, as on any kernel since 3.x: build ID, then an empty one of Linux.
    const NOTES: &[u8] = b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0\
        \x4a\x5a\x9b\x0a\xff\xb6\x6c\x43\x7a\xbc\xd4\x55\xd2\x73\x8a\xf8\x79\x98\x5f\xa9\
        \x06\0\0\0\x04\0\0\0\x01\x01\0\0Linux\0\0\0\0\0\0\0";
    const BUILD_ID: &str = "4a5a9b0affb66c437abcd455d2738af879985fa9";

    fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
        bytes[at..at + value.len()].copy_from_slice(value);
    }

    /// A little-endian ELF header with tables at these offsets.
    fn elf_header(kind: u16, segments: (u64, u16), sections: (u64, u16)) -> Vec<u8> {
        let mut header = vec![0; 64];
        put(&mut header, 0, b"\x7fELF\x02\x01\x01");
        put(&mut header, 16, &kind.to_le_bytes());
        put(&mut header, 20, &1u32.to_le_bytes());
        put(&mut header, 32, &segments.0.to_le_bytes());
        put(&mut header, 40, &sections.0.to_le_bytes());
        put(&mut header, 52, &64u16.to_le_bytes());
        put(&mut header, 54, &56u16.to_le_bytes());
        put(&mut header, 56, &segments.1.to_le_bytes());
        put(&mut header, 58, &64u16.to_le_bytes());
        put(&mut header, 60, &sections.1.to_le_bytes());
        put(&mut header, 62, &sections.1.saturating_sub(1).to_le_bytes());
        header
    }

    /// A vmlinux of those notes and symbols: (name, section index, address).
    fn vmlinux(notes: &[u8], symbols: &[(&str, u16, u64)]) -> Vec<u8> {
        let mut names = vec![0];
        let mut table = vec![0; 24];
        for (name, section, address) in symbols {
            let mut entry = [0; 24];
            put(&mut entry, 0, &(names.len() as u32).to_le_bytes());
            put(&mut entry, 6, &section.to_le_bytes());
            put(&mut entry, 8, &address.to_le_bytes());
            table.extend(entry);
            names.extend(name.as_bytes());
            names.push(0);
        }
        let mut body = Vec::new();
        let mut headers = vec![0; 64];
        for (kind, link, data) in [
            (SHT_NOTE, 0u32, notes),
            (SHT_SYMTAB, 3, &table),
            (object::elf::SHT_STRTAB, 0, &names),
        ] {
            let mut header = [0; 64];
            put(&mut header, 4, &kind.to_le_bytes());
            put(&mut header, 24, &(64 + body.len() as u64).to_le_bytes());
            put(&mut header, 32, &(data.len() as u64).to_le_bytes());
            put(&mut header, 40, &link.to_le_bytes());
            headers.extend(header);
            body.extend(data);
            body.resize(body.len().next_multiple_of(8), 0);
        }
        let mut file = elf_header(2, (0, 0), (64 + body.len() as u64, 4));
        file.extend(body);
        file.extend(headers);
        file
    }

    fn debian() -> Vec<u8> {
        vmlinux(
            NOTES,
            &[
                ("_stext", 1, 0xffff_ffff_8100_0000),
                ("ext4_file_operations", 2, 0xffff_ffff_8226_1c40),
                ("vfs_read", 1, 0xffff_ffff_8139_2a50),
            ],
        )
    }

    /// Notes as built by `elf_kcore_store_hdr` and `append_kcore_note` of fs/proc/kcore.c: CORE notes, then VMCOREINFO.
    fn kcore(vmcoreinfo: &[u8]) -> Vec<u8> {
        let mut notes = Vec::new();
        for (name, kind, data) in [(&b"CORE\0"[..], 1u32, &[7; 336][..]), (b"VMCOREINFO\0", 0, vmcoreinfo)] {
            notes.extend((name.len() as u32).to_le_bytes());
            notes.extend((data.len() as u32).to_le_bytes());
            notes.extend(kind.to_le_bytes());
            notes.extend(name);
            notes.resize(notes.len().next_multiple_of(4), 0);
            notes.extend(data);
            notes.resize(notes.len().next_multiple_of(4), 0);
        }
        let mut file = elf_header(4, (64, 2), (0, 0));
        // The second segment is memory: far beyond the end of the file, and never read.
        for (kind, offset, size) in [
            (PT_NOTE, 64 + 2 * 56, notes.len() as u64),
            (1, 0x7fff_ff00_0000, 1 << 40),
        ] {
            let mut segment = [0; 56];
            put(&mut segment, 0, &kind.to_le_bytes());
            put(&mut segment, 8, &u64::to_le_bytes(offset));
            put(&mut segment, 32, &size.to_le_bytes());
            file.extend(segment);
        }
        file.extend(notes);
        file
    }

    /// A file in the temporary directory, removed at the end.
    struct TemporaryFile(PathBuf);

    impl TemporaryFile {
        fn new(name: &str, bytes: &[u8]) -> Self {
            let path = std::env::temp_dir().join(format!("iostackbreakdown-{name}-{}", std::process::id()));
            fs::write(&path, bytes).unwrap();
            Self(path)
        }
    }

    impl Drop for TemporaryFile {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    #[test]
    fn finds_symbols_and_build_id() {
        let elf = ElfSymbols::parse(&debian()[..], &WANTED).unwrap();
        assert_eq!(elf.address("ext4_file_operations"), Some(0xffff_ffff_8226_1c40));
        assert_eq!(elf.address("_stext"), Some(0xffff_ffff_8100_0000));
        assert_eq!(elf.address("vfs_read"), None, "not wanted");
        assert_eq!(elf.build_id.unwrap().to_string(), BUILD_ID);
    }

    #[test]
    fn a_name_without_one_address_has_none() {
        let symbols = [
            ("_stext", 0, 4096),
            ("ext4_file_operations", 1, 1),
            ("ext4_file_operations", 1, 2),
        ];
        let elf = ElfSymbols::parse(&vmlinux(&[], &symbols)[..], &WANTED).unwrap();
        assert_eq!(elf.address("_stext"), None, "undefined");
        assert_eq!(elf.address("ext4_file_operations"), None, "two of them");
        assert_eq!(elf.build_id, None);
    }

    #[test]
    fn a_file_must_be_of_the_running_kernel() {
        let file = TemporaryFile::new("vmlinux", &debian());
        let running = BuildId(vec![0xab; 20]);
        let error = open_of_kernel(&file.0, "ext4_file_operations", &running).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "{} belongs to another kernel: use the one whose build ID is {running}, not {BUILD_ID}",
                file.0.display()
            )
        );
        let running = ElfSymbols::parse(&debian()[..], &[]).unwrap().build_id.unwrap();
        let elf = open_of_kernel(&file.0, "ext4_file_operations", &running).unwrap();
        assert_eq!(elf.address("ext4_file_operations"), Some(0xffff_ffff_8226_1c40));
    }

    #[test]
    fn errors_name_what_is_wrong_with_a_file() {
        let running = BuildId(vec![1]);
        let refusal = |path: &Path| open_of_kernel(path, "ext4_file_operations", &running).unwrap_err();
        assert!(matches!(refusal(Path::new("/nonexistent")), Error::Unreadable { .. }));
        let compressed = TemporaryFile::new("vmlinuz", b"MZ\xea\x07\0\xc0\x07\x8c\xc8\x8e\xd8\x8e\xc0\x8e\xd0");
        let error = refusal(&compressed.0);
        assert!(matches!(error, Error::NotElf { .. }));
        assert!(
            error.to_string().contains("is not an uncompressed 64-bit vmlinux: "),
            "{error}"
        );
        assert!(matches!(
            refusal(&std::env::temp_dir()),
            Error::NotElf { .. } | Error::Unreadable { .. }
        ));
    }

    #[test]
    fn a_module_is_not_in_vmlinux() {
        let modules = std::env::temp_dir().join(format!("iostackbreakdown-modules-{}", std::process::id()));
        fs::create_dir_all(modules.join("ext4")).unwrap();
        fs::create_dir_all(modules.join("xfs/parameters")).unwrap();
        fs::write(modules.join("ext4/initstate"), "live\n").unwrap();
        let module = |symbol| loaded_module(symbol, &modules);
        assert_eq!(module("ext4_file_operations"), Some("ext4"));
        assert_eq!(module("xfs_file_operations"), None, "built in");
        assert_eq!(module("btrfs_file_operations"), None, "neither");
        assert_eq!(module("ext4"), None);
        fs::remove_dir_all(&modules).unwrap();
        let error = Error::Module("ext4".into()).to_string();
        assert!(
            error.starts_with("ext4 is a module here: its symbols are not in vmlinux"),
            "{error}"
        );
    }

    #[test]
    fn says_where_it_looked() {
        let error = Error::Missing {
            release: "6.1.0".into(),
            paths: paths("6.1.0"),
        }
        .to_string();
        assert!(
            error.starts_with("no vmlinux of 6.1.0: install its debug symbols or use --vmlinux "),
            "{error}"
        );
        assert!(error.ends_with("/boot/vmlinux-6.1.0, /lib/modules/6.1.0/vmlinux, /lib/modules/6.1.0/build/vmlinux)"));
    }

    #[test]
    fn kcore_has_the_offset() {
        let info =
            b"OSRELEASE=6.1.0-50-amd64\nPAGESIZE=4096\nNUMBER(KERNEL_IMAGE_SIZE)=1073741824\nKERNELOFFSET=24200000\n";
        assert_eq!(vmcore_offset(&kcore(info)[..]), Ok(Some(0x2420_0000)));
        let cache = ReadCache::new(io::Cursor::new(kcore(info)));
        assert_eq!(vmcore_offset(&cache), Ok(Some(0x2420_0000)), "as a file is read");
        assert_eq!(vmcore_offset(&kcore(b"OSRELEASE=6.1.0\n")[..]), Ok(None));
        assert_eq!(vmcore_offset(&kcore(b"KERNELOFFSET=wide\xff\n")[..]), Ok(None));
        assert_eq!(vmcore_offset(&elf_header(4, (0, 0), (0, 0))[..]), Ok(None));
    }

    #[test]
    fn does_not_read_huge_notes() {
        let mut core = kcore(b"KERNELOFFSET=1000\n");
        put(&mut core, 64 + 32, &(MAX_NOTES + 1).to_le_bytes());
        core.resize(core.len() + MAX_NOTES as usize, 0);
        assert_eq!(vmcore_offset(&core[..]), Ok(None));
    }

    #[test]
    fn any_bytes_are_read_without_panic() {
        for good in [debian(), kcore(b"KERNELOFFSET=1000\n")] {
            for length in 0..good.len() {
                let _ = ElfSymbols::parse(&good[..length], &WANTED);
                let _ = vmcore_offset(&good[..length]);
            }
            for at in 0..good.len() {
                for value in [0, 1, 0x7f, 0xff] {
                    let mut bad = good.clone();
                    bad[at] = value;
                    let _ = ElfSymbols::parse(&bad[..], &WANTED);
                    let _ = vmcore_offset(&bad[..]);
                    let _ = find_note(&bad[at..], Endianness::Big, b"GNU", NT_GNU_BUILD_ID);
                }
            }
        }
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn any_bytes_are_no_panic(elf in fuzz::bytes_like(debian()), core in fuzz::bytes_like(kcore(b"KERNELOFFSET=1000\n")), notes in fuzz::bytes_like(NOTES)) {
            let _ = ElfSymbols::parse(&elf[..], &WANTED);
            let _ = ElfSymbols::parse(&ReadCache::new(io::Cursor::new(elf)), &WANTED);
            let _ = vmcore_offset(&core[..]);
            let _ = vmcore_offset(&ReadCache::new(io::Cursor::new(core)));
            for endian in [Endianness::Little, Endianness::Big] {
                let _ = find_note(&notes, endian, b"GNU", NT_GNU_BUILD_ID);
            }
        }
    }
}
