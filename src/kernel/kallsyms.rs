//! Reads wanted names from `/proc/kallsyms`.
//!
//! The kernel formats every line when it is read (over 200,000 of them, tens of milliseconds), so it is read once, for
//! all names at the same time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::num::NonZeroU64;
use std::str;

use super::beginnings::Beginnings;

const PATH: &str = "/proc/kallsyms";

/// One line of `/proc/kallsyms` (`s_show` in kernel/kallsyms.c): `%px %c %s`, then `\t[%s]` for a module's symbol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// `None` if the kernel printed 0, as it does with `kernel.kptr_restrict` or without CAP_SYSLOG.
    pub address: Option<NonZeroU64>,
    /// The letter that `nm` uses; lower case for a static symbol.
    pub kind: char,
    /// `None` for vmlinux. BPF programs and trampolines have made-up modules such as `bpf`.
    pub module: Option<String>,
}

/// The entries of `/proc/kallsyms` with one of the wanted names. A name may have several, such as static functions of
/// several modules.
#[derive(Clone, Debug, Default)]
pub struct Symbols {
    by_name: BTreeMap<String, Vec<Symbol>>,
}

impl Symbols {
    /// Reads those of the running kernel.
    pub fn read(wanted: &BTreeSet<&str>) -> io::Result<Self> {
        Self::parse(BufReader::with_capacity(1 << 16, File::open(PATH)?), wanted)
    }

    /// Reads `lines` to the end. Malformed lines are skipped, and so is a last one without a line feed, whose name may
    /// be truncated.
    pub fn parse(mut lines: impl BufRead, wanted: &BTreeSet<&str>) -> io::Result<Self> {
        let mut symbols = Self::default();
        let beginnings = Beginnings::new(wanted.iter().copied());
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line)? > 0 {
            if name_of(&line).is_some_and(|name| beginnings.may_have(name))
                && let Some((name, symbol)) = parse_line(&line, wanted)
            {
                symbols.by_name.entry(name.to_owned()).or_default().push(symbol);
            }
            line.clear();
        }
        Ok(symbols)
    }

    /// All entries of a name, in the kernel's order.
    pub fn entries(&self, name: &str) -> &[Symbol] {
        self.by_name.get(name).map_or(&[], Vec::as_slice)
    }

    /// Whether vmlinux or `module` has a function of this name.
    pub fn is_text(&self, name: &str, module: Option<&str>) -> bool {
        let here = |symbol: &Symbol| symbol.module.is_none() || symbol.module.as_deref() == module;
        self.entries(name)
            .iter()
            .any(|symbol| here(symbol) && matches!(symbol.kind, 't' | 'T' | 'w' | 'W'))
    }

    /// The address of a variable or constant: `None` if it is unknown, hidden or not unique.
    pub fn data_address(&self, name: &str) -> Option<NonZeroU64> {
        self.address_if(name, |kind| matches!(kind, 'd' | 'D' | 'b' | 'B' | 'r' | 'R'))
    }

    /// The address of a function: `None` if it is unknown, hidden or not unique.
    pub fn text_address(&self, name: &str) -> Option<NonZeroU64> {
        self.address_if(name, |kind| matches!(kind, 't' | 'T' | 'w' | 'W'))
    }

    /// The address of a symbol of any kind: `None` if it is unknown, hidden or not unique.
    pub fn address(&self, name: &str) -> Option<NonZeroU64> {
        self.address_if(name, |_| true)
    }

    /// Symbols with the same name are ambiguous, and a wrong address would be worse than none.
    fn address_if(&self, name: &str, kind: impl Fn(char) -> bool) -> Option<NonZeroU64> {
        let mut addresses = self
            .entries(name)
            .iter()
            .filter(|symbol| kind(symbol.kind))
            .map(|symbol| symbol.address);
        let first = addresses.next()?;
        addresses.all(|other| other == first).then_some(first).flatten()
    }
}

/// The rest of a line from the name on, which follows a full-length address and a letter.
fn name_of(line: &[u8]) -> Option<&[u8]> {
    const AT: usize = 2 * size_of::<u64>() + " T ".len();
    let from = match line.get(AT - 1) {
        Some(b' ') => line.get(AT..)?,
        // Not the format of a 64-bit kernel.
        _ => line.splitn(3, |&byte| byte == b' ').nth(2)?,
    };
    from.get(..memchr::memchr2(b'\t', b'\n', from)?)
}

/// The wanted name and its symbol. The name is checked first: nearly every line ends there.
fn parse_line<'a>(line: &'a [u8], wanted: &BTreeSet<&str>) -> Option<(&'a str, Symbol)> {
    let line = line.strip_suffix(b"\n")?;
    let kind_at = line.iter().position(|&byte| byte == b' ')? + 1;
    let (&kind, rest) = line.get(kind_at..)?.split_first()?;
    let rest = rest.strip_prefix(b" ")?;
    let name_end = rest.iter().position(|&byte| byte == b'\t').unwrap_or(rest.len());
    let name = str::from_utf8(&rest[..name_end])
        .ok()
        .filter(|name| wanted.contains(name))?;
    let module = match rest.get(name_end + 1..) {
        None => None,
        Some(module) => {
            let module = module.strip_prefix(b"[")?.strip_suffix(b"]")?;
            Some(str::from_utf8(module).ok()?.to_owned())
        }
    };
    let address = u64::from_str_radix(str::from_utf8(&line[..kind_at - 1]).ok()?, 16).ok()?;
    Some((
        name,
        Symbol {
            address: NonZeroU64::new(address),
            kind: char::from(kind),
            module,
        },
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;

    /// Lines of Debian 6.1 (ext4 as a module) and of a 6.18 with BPF programs loaded.
    const EXCERPT: &[u8] = b"\
ffffffffa5200000 T _stext
ffffffffa5200000 T _text
ffffffffa55e7b30 T vfs_read
ffffffffa527a5b0 W __x64_sys_quotactl
ffffffffa527a5b0 t cleanup
ffffffffa6a2c0a0 r proc_reg_file_ops
ffffffffc0a17cc0 t cleanup\t[xfs]
ffffffffc0b3a4a0 r ext4_file_operations\t[ext4]
ffffffffc0b0d5d0 t ext4_file_read_iter\t[ext4]
ffffffffc0b0d5d0 t bpf_prog_6deef7357e7b4530_sd_fw_egress\t[bpf]
ffffffffa7800000 A __per_cpu_end
";

    fn parse(text: &[u8], wanted: &[&str]) -> Symbols {
        Symbols::parse(text, &wanted.iter().copied().collect()).unwrap()
    }

    fn address(address: u64) -> Option<NonZeroU64> {
        NonZeroU64::new(address)
    }

    #[test]
    fn finds_functions_where_they_are() {
        let symbols = parse(
            EXCERPT,
            &[
                "vfs_read",
                "ext4_file_read_iter",
                "__x64_sys_quotactl",
                "proc_reg_file_ops",
            ],
        );
        assert!(symbols.is_text("vfs_read", None));
        assert!(
            symbols.is_text("vfs_read", Some("ext4")),
            "vmlinux counts whichever the module"
        );
        assert!(symbols.is_text("__x64_sys_quotactl", None), "weak");
        assert!(symbols.is_text("ext4_file_read_iter", Some("ext4")));
        assert!(!symbols.is_text("ext4_file_read_iter", None));
        assert!(!symbols.is_text("ext4_file_read_iter", Some("xfs")));
        assert!(!symbols.is_text("proc_reg_file_ops", None), "not a function");
        assert!(!symbols.is_text("_stext", None), "not wanted, so not kept");
    }

    #[test]
    fn keeps_every_entry_of_a_name() {
        let symbols = parse(EXCERPT, &["cleanup"]);
        assert_eq!(
            symbols.entries("cleanup"),
            [
                Symbol {
                    address: address(0xffff_ffff_a527_a5b0),
                    kind: 't',
                    module: None
                },
                Symbol {
                    address: address(0xffff_ffff_c0a1_7cc0),
                    kind: 't',
                    module: Some("xfs".into())
                },
            ]
        );
        assert_eq!(symbols.address("cleanup"), None, "which of the two cannot be known");
        assert_eq!(symbols.entries("absent"), []);
    }

    #[test]
    fn data_addresses_are_only_those_of_data() {
        let symbols = parse(
            EXCERPT,
            &["_stext", "ext4_file_operations", "vfs_read", "__per_cpu_end"],
        );
        assert_eq!(
            symbols.data_address("ext4_file_operations"),
            address(0xffff_ffff_c0b3_a4a0)
        );
        assert!(symbols.text_address("vfs_read").is_some());
        assert_eq!(symbols.text_address("ext4_file_operations"), None);
        assert_eq!(symbols.data_address("vfs_read"), None);
        assert_eq!(symbols.data_address("__per_cpu_end"), None);
        assert_eq!(symbols.address("_stext"), address(0xffff_ffff_a520_0000));
    }

    #[test]
    fn a_hidden_address_is_none() {
        let hidden = b"0000000000000000 T _stext\n0000000000000000 r ext4_file_operations\t[ext4]\n";
        let symbols = parse(hidden, &["_stext", "ext4_file_operations"]);
        assert_eq!(symbols.address("_stext"), None);
        assert_eq!(symbols.data_address("ext4_file_operations"), None);
        assert!(symbols.is_text("_stext", None), "the name is known nevertheless");
    }

    #[test]
    fn skips_what_the_kernel_would_not_write() {
        let bad: &[u8] = b"\n \n  \nffffffff81000000\nffffffff81000000 T\nffffffff81000000  vfs_read\n\
            xyz T vfs_read\n T vfs_read\n1ffffffff81000000 T vfs_read\nffffffff81000000 T vfs_read\text4\n\
            ffffffff81000000 T vfs_read\t\nffffffff81000000 T \xff\xfe\nffffffff81000000 T vfs_read\t[\xff]\n\
            ffffffff81000000 T vfs_read";
        assert_eq!(parse(bad, &["vfs_read", ""]).entries("vfs_read"), []);
        let with_good = [bad, b"_cut\nffffffff81000010 T vfs_read\n"].concat();
        assert_eq!(
            parse(&with_good, &["vfs_read"]).address("vfs_read"),
            address(0xffff_ffff_8100_0010)
        );
    }

    #[test]
    fn reads_this_kernel() {
        let symbols = Symbols::read(&BTreeSet::from(["vfs_read", "no such symbol"])).unwrap();
        assert!(symbols.is_text("vfs_read", None));
        assert_eq!(symbols.entries("no such symbol"), []);
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn any_bytes_are_read(bytes in fuzz::bytes_like(EXCERPT)) {
            let wanted = BTreeSet::from(["_stext", "cleanup", "ext4_file_operations", ""]);
            let symbols = Symbols::parse(&bytes[..], &wanted).unwrap();
            for name in wanted {
                prop_assert!(symbols.entries(name).len() <= bytes.len());
                let _ = (symbols.is_text(name, Some("ext4")), symbols.data_address(name), symbols.address(name));
            }
        }
    }
}
