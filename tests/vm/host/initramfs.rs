//! The initramfs of a guest.

use super::cpio::Archive;
use super::kernels::Kernel;
use crate::protocol::{MODULE_LIST, MODULES, ORDERS, Orders};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A host file for the guest, with the libraries it needs.
pub struct Extra {
    host: PathBuf,
    pub guest: String,
}

impl Extra {
    /// In the guest it is in `/bin` under its own name, unless another path is given.
    pub fn new(host: &Path, guest: Option<&str>) -> Result<Self, String> {
        let host = started(host).unwrap_or(host.into());
        let host = host.canonicalize().map_err(|e| format!("{}: {e}", host.display()))?;
        let name = host
            .file_name()
            .ok_or_else(|| format!("{} has no name", host.display()))?
            .to_string_lossy();
        let guest = guest.map_or_else(|| format!("/bin/{name}"), Into::into);
        Ok(Self { host, guest })
    }
}

/// With `init`, the runner built for the guest, as its first process.
pub fn build(kernel: &Kernel, init: &Path, orders: &Orders, extras: &[Extra]) -> Result<Vec<u8>, String> {
    let mut archive = Archive::default();
    // Without these, process 1 starts without open descriptors, and Rust's runtime exits at once.
    archive.character_device("/dev/console", 5, 1);
    archive.character_device("/dev/null", 1, 3);
    // The paths by which merged-/usr programs refer to libraries.
    for (link, target) in [("/usr/bin", "../bin"), ("/usr/sbin", "../bin"), ("/sbin", "bin")] {
        archive.link(link, target);
    }
    archive.folder("/bin");
    archive.file(ORDERS, orders.to_text().as_bytes());

    program(&mut archive, init, "/init")?;
    for extra in extras {
        program(&mut archive, &extra.host, &extra.guest)?;
    }
    archive.file(MODULE_LIST, &read(&kernel.module_list())?);
    for (name, path) in kernel.modules()? {
        archive.file(&format!("{MODULES}/{name}.ko"), &read(&path)?);
    }
    Ok(archive.finish())
}

/// The first match in the search path.
pub fn in_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// Where `tests/lib/requirements.sh` unpacks what it cannot install: wrappers of programs in `bin`, files in `root`.
fn unpacked() -> Option<PathBuf> {
    std::env::var_os("IOSB_UNPACKED").map(PathBuf::from)
}

/// The program that a wrapper executes; `None`: it is not a wrapper.
fn started(starter: &Path) -> Option<PathBuf> {
    let unpacked = unpacked()?;
    let name = starter.strip_prefix(unpacked.join("bin")).ok()?;
    let folders = ["usr/bin", "usr/sbin", "bin", "sbin"].into_iter();
    let programs = folders.map(|folder| unpacked.join("root").join(folder).join(name));
    programs.into_iter().find(|program| program.is_file())
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))
}

fn program(archive: &mut Archive, host: &Path, guest: &str) -> Result<(), String> {
    archive.program(guest, &read(host)?);
    let root = unpacked().map(|unpacked| unpacked.join("root"));
    for library in libraries(host, root.as_deref())? {
        // Under the name by which the program will look for it, which on the host may be a link. Unpacked libraries are
        // looked for as if they were installed.
        let within = root
            .as_ref()
            .and_then(|root| Path::new(&library).strip_prefix(root).ok());
        let guest = within.map(|path| Path::new("/").join(path));
        let guest = guest.map_or_else(|| library.clone(), |path| path.to_string_lossy().into_owned());
        archive.program(&guest, &read(Path::new(&library))?);
    }
    Ok(())
}

/// The shared libraries that the dynamic loader would load, and the loader itself; none for a static program or a
/// script. Those of an unpacked program may be below `root` as well.
fn libraries(program: &Path, root: Option<&Path>) -> Result<Vec<String>, String> {
    let mut ldd = Command::new("ldd");
    if let Some(root) = root.filter(|root| program.starts_with(root)) {
        let machine = format!("{}-linux-gnu", std::env::consts::ARCH);
        let folders = ["usr/lib", "lib"].map(|folder| root.join(folder).join(&machine));
        let folders = std::env::join_paths(folders).map_err(|e| format!("{}: {e}", root.display()))?;
        ldd.env("LD_LIBRARY_PATH", folders);
    }
    let output = ldd.arg(program).output().map_err(|e| format!("ldd: {e}"))?;
    // "libz.so.1 => /lib/x86_64-linux-gnu/libz.so.1 (0x…)", "/lib64/ld-linux-x86-64.so.2 (0x…)"
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if let Some(missing) = text.lines().find(|line| line.contains("not found")) {
        return Err(format!("{}: {}", program.display(), missing.trim()));
    }
    Ok(text
        .lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
        .map(Into::into)
        .collect())
}
