//! The kernels that guests run: the newest of each series, from the machine's own mirror.

use super::packages::{self, Failure, Package, atomically, command, compare_versions};
use crate::protocol::{COUNTED, COUNTED_8, LARGE};
use std::cmp::Ordering;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A kernel of the matrix.
pub struct KernelSpec {
    pub name: &'static str,
    /// The suites to search; all of them are searched.
    suites: &'static [&'static str],
    /// The beginning of its version.
    series: &'static str,
    flavour: &'static str,
    /// One configuration each: nothing, a word for the command line, [`COUNTED`] or [`COUNTED_8`].
    pub variants: &'static [&'static str],
}

impl KernelSpec {
    /// Debian's name of its architecture, which is part of each flavour's.
    fn architecture(&self) -> &'static str {
        let mut parts = self.flavour.split('-');
        parts.find(|part| part.ends_with("64")).unwrap_or(self.flavour)
    }
}

const AS_BOOTED: &[&str] = &[""];
const BOTH_AND_COUNTED: &[&str] = &["", "preempt=full", COUNTED];
/// A kernel before 6.5 starts its CPUs in a busy loop, during which QEMU's counting clock does not let any other CPU
/// run.
const AS_BOOTED_AND_LARGE: &[&str] = &["", LARGE];
const BOTH_AND_COUNTED_8: &[&str] = &["", "preempt=full", COUNTED_8];

/// Cloud kernels have ext4 and nvme built in; the full and the real-time ones have modules. 5.10 cannot select its
/// preemption model.
pub const MATRIX: &[KernelSpec] = &[
    KernelSpec {
        name: "5.10",
        suites: &["bullseye"],
        series: "5.10.",
        flavour: "cloud-amd64",
        variants: AS_BOOTED_AND_LARGE,
    },
    KernelSpec {
        name: "6.1",
        suites: &["bookworm"],
        series: "6.1.",
        flavour: "cloud-amd64",
        variants: BOTH_AND_COUNTED,
    },
    KernelSpec {
        name: "6.1-full",
        suites: &["bookworm"],
        series: "6.1.",
        flavour: "amd64",
        variants: AS_BOOTED,
    },
    KernelSpec {
        name: "6.1-rt",
        suites: &["bookworm"],
        series: "6.1.",
        flavour: "rt-amd64",
        variants: AS_BOOTED,
    },
    KernelSpec {
        name: "6.12",
        suites: &["trixie"],
        series: "6.12.",
        flavour: "cloud-amd64",
        variants: BOTH_AND_COUNTED_8,
    },
    KernelSpec {
        name: "7",
        suites: &["trixie-backports", "sid"],
        series: "7.",
        flavour: "cloud-amd64",
        variants: BOTH_AND_COUNTED,
    },
];

/// Debian's kernels for arm64, whose preemption model is fixed; one has pages of 16 KiB.
pub const ARM64: &[KernelSpec] = &[
    KernelSpec {
        name: "6.1",
        suites: &["bookworm"],
        series: "6.1.",
        flavour: "cloud-arm64",
        variants: AS_BOOTED,
    },
    KernelSpec {
        name: "6.12",
        suites: &["trixie"],
        series: "6.12.",
        flavour: "cloud-arm64",
        variants: AS_BOOTED,
    },
    KernelSpec {
        name: "6.12-16k",
        suites: &["trixie"],
        series: "6.12.",
        flavour: "arm64-16k",
        variants: AS_BOOTED,
    },
    KernelSpec {
        name: "7",
        suites: &["trixie-backports", "sid"],
        series: "7.",
        flavour: "cloud-arm64",
        variants: AS_BOOTED,
    },
];

/// Extracted from each kernel's package, with their dependencies. A kernel may lack some, or have them built in.
/// `crc32c_generic`, `crc32_generic` and `aesni-intel` are requested by file systems and dm-crypt through aliases of
/// the crypto API, which dependency lists do not show.
const MODULES: [&str; 24] = [
    "crc32c_generic",
    "crc32_generic",
    "nvme",
    "ext4",
    "xfs",
    "btrfs",
    "f2fs",
    "nfs",
    "nfsv3",
    "nfsv4",
    "nfsd",
    "overlay",
    "loop",
    "null_blk",
    "dm-delay",
    "dm-mod",
    "dm-crypt",
    "aesni-intel",
    "raid1",
    "mq-deadline",
    "scsi_debug",
    "sd_mod",
    "virtio_pci",
    "virtio_blk",
];

/// A kernel in the cache.
#[derive(Clone, Debug)]
pub struct Kernel(PathBuf);

impl Kernel {
    pub fn vmlinuz(&self) -> PathBuf {
        self.0.join("vmlinuz")
    }

    /// A line for each module: its dependencies and itself, in load order.
    pub fn module_list(&self) -> PathBuf {
        self.0.join("modules.list")
    }

    /// Name and file of each module, unpacked.
    pub fn modules(&self) -> Result<Vec<(String, PathBuf)>, String> {
        let list = self.module_list();
        let text = std::fs::read_to_string(&list).map_err(|e| format!("{}: {e}", list.display()))?;
        let mut names: Vec<&str> = text.split_whitespace().collect();
        names.sort_unstable();
        names.dedup();
        Ok(names
            .into_iter()
            .map(|name| (name.into(), self.0.join(format!("{name}.ko"))))
            .collect())
    }

    /// Whether it was created with the current list of modules.
    fn is_current(&self) -> bool {
        std::fs::read_to_string(self.wanted()).is_ok_and(|made| made == MODULES.join(" "))
    }

    fn wanted(&self) -> PathBuf {
        self.0.join("modules.wanted")
    }
}

/// A version of a kernel, packaged as one or two packages.
struct Candidate {
    version: String,
    packages: Vec<Package>,
}

/// The newest available kernel: from the cache, otherwise from the mirror, otherwise an older one from the cache.
pub fn get(spec: &KernelSpec, cache: &Path, note: &dyn Fn(&str)) -> Result<Kernel, String> {
    let folder = packages::of_architecture(&cache.join("kernels"), spec.architecture());
    let mut reasons = Vec::new();
    for candidate in candidates(spec, cache, note, &mut reasons) {
        let kernel = Kernel(folder.join(format!("{}-{}", spec.name, candidate.version)));
        if kernel.is_current() {
            return Ok(kernel);
        }
        note(&format!(
            "getting {}",
            candidate
                .packages
                .iter()
                .map(|p| p.name.as_str())
                .collect::<Vec<_>>()
                .join(", ")
        ));
        match make(&kernel, &candidate) {
            Ok(()) => return Ok(kernel),
            Err(Failure::Missing(reason)) => {
                note(&format!("skipping {}: {reason}", candidate.version));
                reasons.push(reason);
            }
            Err(Failure::Other(reason)) => {
                reasons.push(reason);
                break;
            }
        }
    }
    let reason = reasons.join("; ");
    let cached = cached(spec, &folder).ok_or_else(|| format!("cannot be had: {reason}"))?;
    note(&format!("using {} from the cache: {reason}", cached.0.display()));
    Ok(cached)
}

/// All versions in the lists, the newest first.
fn candidates(spec: &KernelSpec, cache: &Path, note: &dyn Fn(&str), reasons: &mut Vec<String>) -> Vec<Candidate> {
    let mut all = Vec::new();
    for suite in spec.suites {
        match packages::list(suite, spec.architecture(), cache, note) {
            Ok(list) => all.extend(in_list(spec, &list)),
            Err(reason) => reasons.push(reason),
        }
    }
    if all.is_empty() && reasons.is_empty() {
        reasons.push(format!("no {} kernel in {}", spec.series, spec.suites.join(", ")));
    }
    all.sort_by(|a, b| compare_versions(&b.version, &a.version));
    all
}

/// Since 7.0 the image package is empty and depends on two others. A version with only one of them published cannot be
/// installed.
fn in_list(spec: &KernelSpec, list: &[Package]) -> Vec<Candidate> {
    let find = |kind: &str, release: &str| {
        let name = format!("linux-{kind}-{release}-{}", spec.flavour);
        list.iter()
            .filter(|package| package.name == name)
            .max_by(|a, b| newer(a, b))
            .cloned()
    };
    let mut releases: Vec<&str> = list
        .iter()
        .filter_map(|package| {
            let rest = ["linux-image-", "linux-binary-"]
                .iter()
                .find_map(|kind| package.name.strip_prefix(kind))?;
            let release = rest.strip_suffix(spec.flavour)?.strip_suffix('-')?;
            // The rest of another flavour's name ends in that flavour.
            let plain = !["cloud", "rt"].iter().any(|flavour| release.ends_with(flavour));
            Some(release).filter(|release| plain && release.starts_with(spec.series))
        })
        .collect();
    releases.sort_unstable();
    releases.dedup();
    releases
        .into_iter()
        .filter_map(|release| {
            let split = [find("binary", release), find("modules", release)];
            let packages = match (split, find("image", release)) {
                ([Some(binary), Some(modules)], _) => vec![binary, modules],
                ([None, None], Some(image)) => vec![image],
                _ => return None,
            };
            Some(Candidate {
                version: packages[0].version.clone(),
                packages,
            })
        })
        .collect()
}

fn newer(a: &Package, b: &Package) -> Ordering {
    compare_versions(&a.version, &b.version)
}

/// The newest of this series in the cache, whatever the mirror has.
fn cached(spec: &KernelSpec, folder: &Path) -> Option<Kernel> {
    let prefix = format!("{}-", spec.name);
    let version = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        // "6.1-full-…" is not a version of "6.1".
        Some(name.strip_prefix(&prefix)?.to_string())
            .filter(|version| version.starts_with(|c: char| c.is_ascii_digit()))
    };
    let versions = std::fs::read_dir(folder).ok()?.flatten().filter_map(version);
    let kernels = versions.map(|version| (Kernel(folder.join(format!("{prefix}{version}"))), version));
    kernels
        .filter(|(kernel, _)| kernel.is_current())
        .max_by(|(_, a), (_, b)| compare_versions(a, b))
        .map(|(kernel, _)| kernel)
}

fn make(kernel: &Kernel, candidate: &Candidate) -> Result<(), Failure> {
    if kernel.0.exists() {
        // Created with another list of modules.
        std::fs::remove_dir_all(&kernel.0).map_err(|e| Failure::Other(format!("{}: {e}", kernel.0.display())))?;
    }
    atomically(&kernel.0, |folder| {
        let tree = folder.join("tree");
        let made = Kernel(folder.join("kernel"));
        for path in [&tree, &made.0] {
            std::fs::create_dir_all(path).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        for package in &candidate.packages {
            packages::unpack(package, &tree)?;
        }
        let vmlinuz = vmlinuz(&tree)
            .ok_or_else(|| Failure::Missing(format!("the package of {} holds no vmlinuz", candidate.version)))?;
        copy(&vmlinuz, &made.vmlinuz())?;
        pick_modules(&tree, &made)?;
        let wanted = made.wanted();
        std::fs::write(&wanted, MODULES.join(" ")).map_err(|e| format!("{}: {e}", wanted.display()))?;
        Ok(made.0)
    })
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    std::fs::copy(from, to)
        .map(drop)
        .map_err(|e| format!("{}: {e}", from.display()))
}

/// `boot/vmlinuz-*`, or beside the modules in split packages.
fn vmlinuz(tree: &Path) -> Option<PathBuf> {
    let boot = std::fs::read_dir(tree.join("boot"))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    let is_kernel = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz"))
    };
    let beside = module_folder(tree).map(|folder| folder.join("vmlinuz"));
    boot.chain(beside).find(|path| is_kernel(path) && path.is_file())
}

/// `lib/modules/RELEASE`, below `usr` in merged-/usr packages.
fn module_folder(tree: &Path) -> Option<PathBuf> {
    let roots = [tree.join("lib/modules"), tree.join("usr/lib/modules")];
    roots.iter().find_map(|root| {
        std::fs::read_dir(root)
            .ok()?
            .flatten()
            .map(|entry| entry.path())
            .find(|p| p.is_dir())
    })
}

/// Packages do not contain `modules.dep`: it is created at installation, and here.
fn pick_modules(tree: &Path, kernel: &Kernel) -> Result<(), String> {
    let folder = module_folder(tree).ok_or("the package holds no modules")?;
    let release = folder.file_name().unwrap_or_default();
    let base = folder.ancestors().nth(3).unwrap_or(tree);
    command(Command::new("depmod").arg("-b").arg(base).arg(release))?;
    let text = std::fs::read_to_string(folder.join("modules.dep")).map_err(|e| format!("modules.dep: {e}"))?;
    // "path: dependency dependency …", where the last one is loaded first.
    let dependencies: HashMap<String, (&str, Vec<&str>)> = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(path, rest)| (module_name(path), (path, rest.split_whitespace().rev().collect())))
        .collect();
    let mut list = String::new();
    for module in MODULES.map(module_name) {
        let Some((path, first)) = dependencies.get(&module) else {
            continue;
        };
        let chain: Vec<&str> = first.iter().copied().chain([*path]).collect();
        for path in &chain {
            unpack_module(&folder.join(path), &kernel.0.join(format!("{}.ko", module_name(path))))?;
        }
        list += &(chain.into_iter().map(module_name).collect::<Vec<_>>().join(" ") + "\n");
    }
    let path = kernel.module_list();
    std::fs::write(&path, list).map_err(|e| format!("{}: {e}", path.display()))
}

/// The kernel's name of the module in the file.
fn module_name(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    file.split('.').next().unwrap_or(file).replace('-', "_")
}

fn unpack_module(from: &Path, to: &Path) -> Result<(), String> {
    let unpacker = match from.extension().and_then(|end| end.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        _ => return copy(from, to),
    };
    let module = command(Command::new(unpacker).arg("-dc").arg(from))?;
    std::fs::write(to, module).map_err(|e| format!("{}: {e}", to.display()))
}
