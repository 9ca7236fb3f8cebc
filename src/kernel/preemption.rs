//! Whether a task can be preempted while it runs kernel code.
//!
//! This decides which hooks lose nothing: if it can, a BPF trampoline skips its program for a task while another task
//! is preempted inside the same program on the same CPU.

use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io::{self, Read};

use flate2::read::GzDecoder;
use nix::sys::utsname::{UtsName, uname};

use crate::sys::text_of;

const DEBUGFS: &str = "/sys/kernel/debug/sched/preempt";
const COMMAND_LINE: &str = "/proc/cmdline";
const CONFIG: &str = "the kernel's configuration";

/// When kernel code can be preempted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Model {
    /// The kernel was built without preemption: its none or voluntary model.
    Absent,
    /// Disabled in a kernel that supports it.
    None,
    /// At explicit points only, where the code yields.
    Voluntary,
    /// Anywhere that preemption is not disabled.
    Full,
    /// Like `Full`, but for ordinary tasks only from the next tick on.
    Lazy,
    /// Like `Full`, and also in most spin locks and interrupt handlers.
    Rt,
    /// No readable source says.
    #[default]
    Unknown,
}

/// The preemption model and its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preemption {
    pub model: Model,
    /// The file or command that it comes from.
    pub source: &'static str,
}

impl Preemption {
    /// Whether a task can be preempted inside kernel code. An unknown model counts as possible: the hooks chosen then
    /// cost a little more, but lose nothing.
    pub fn is_possible(self) -> bool {
        !matches!(self.model, Model::Absent | Model::None | Model::Voluntary)
    }

    /// Determines it for the running kernel. It can be changed in debugfs at any time.
    pub fn read() -> Self {
        let names = uname();
        let text = |get: fn(&UtsName) -> &OsStr| names.as_ref().ok().and_then(|names| get(names).to_str());
        decide(&Sources {
            debugfs: text_of(DEBUGFS).ok(),
            version: text(UtsName::version).map(str::to_owned),
            command_line: text_of(COMMAND_LINE).ok(),
            config: text(UtsName::release).and_then(read_config),
        })
    }
}

/// The kernel's configuration, from the kernel itself or as installed by the distribution.
fn read_config(release: &str) -> Option<String> {
    let compressed = fs::File::open("/proc/config.gz");
    let known = compressed.and_then(decompress);
    known.or_else(|_| text_of(format!("/boot/config-{release}"))).ok()
}

fn decompress(file: impl Read) -> io::Result<String> {
    // Real configurations have about 300 kB.
    const LIMIT: u64 = 16 << 20;
    let mut text = String::new();
    GzDecoder::new(file).take(LIMIT).read_to_string(&mut text)?;
    Ok(text)
}

/// One phrase, such as `voluntary (/sys/kernel/debug/sched/preempt)`.
impl fmt::Display for Preemption {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let model = match self.model {
            Model::Absent => "not built in",
            Model::None => "none",
            Model::Voluntary => "voluntary",
            Model::Full => "full",
            Model::Lazy => "lazy",
            Model::Rt => "real-time",
            Model::Unknown => "unknown, assumed possible",
        };
        write!(formatter, "{model} ({})", self.source)
    }
}

/// The contents of the possible sources; `None` for one that cannot be read.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// `sched/preempt` in debugfs: the modes, with the current one in parentheses (`sched_dynamic_show` in
    /// kernel/sched/debug.c).
    pub debugfs: Option<String>,
    /// `uname -v`. After the build number it has one of `PREEMPT`, `PREEMPT_DYNAMIC`, `PREEMPT_RT`, or none of them
    /// (init/Makefile, scripts/mkcompile_h); before 5.18 `PREEMPT` stands for `PREEMPT_DYNAMIC` too.
    pub version: Option<String>,
    /// `/proc/cmdline`.
    pub command_line: Option<String>,
    /// The configuration that the kernel was built with, as text.
    pub config: Option<String>,
}

/// Decides on the model from the most reliable source: the current mode, how the kernel was built, the boot parameter,
/// and the default mode.
pub fn decide(sources: &Sources) -> Preemption {
    let found = |model, source| Preemption { model, source };
    if let Some(model) = sources.debugfs.as_deref().and_then(marked_mode) {
        return found(model, DEBUGFS);
    }
    let Some(version) = sources.version.as_deref().filter(|version| !version.trim().is_empty()) else {
        return found(Model::Unknown, "uname -v is empty");
    };
    let is_flagged = |flag| version.split_whitespace().any(|word| word == flag);
    if !version.split_whitespace().any(|word| word.starts_with("PREEMPT")) {
        return found(Model::Absent, "uname -v");
    }
    // Real-time kernels print this flag instead of the dynamic one, and always preempt.
    if is_flagged("PREEMPT_RT") {
        return found(Model::Rt, "uname -v");
    }
    let config = sources.config.as_deref().map(Config);
    let is_set = |option| config.is_some_and(|config| config.is_set(option));
    if !is_flagged("PREEMPT_DYNAMIC") && !is_set("CONFIG_PREEMPT_DYNAMIC") {
        return match config.and_then(Config::model) {
            Some(Model::Lazy) => found(Model::Lazy, CONFIG),
            _ => found(Model::Full, "uname -v"),
        };
    }

    // If the lazy model exists, kernels from 7.0 on refuse `preempt=none` and `preempt=voluntary` (sched_dynamic_mode
    // in kernel/sched/core.c). There neither can be configured, so the configuration does not mention them as not set.
    let takes_none = config.is_some_and(|config| config.mentions("CONFIG_PREEMPT_NONE"));
    if let Some(model) = sources
        .command_line
        .as_deref()
        .and_then(|line| booted_mode(line, takes_none))
    {
        return found(model, COMMAND_LINE);
    }
    match config.and_then(Config::model) {
        Some(model) => found(model, CONFIG),
        None => found(
            Model::Unknown,
            "PREEMPT_DYNAMIC in uname -v, and /sys/kernel/debug cannot be read",
        ),
    }
}

fn mode(name: &str) -> Option<Model> {
    match name {
        "none" => Some(Model::None),
        "voluntary" => Some(Model::Voluntary),
        "full" => Some(Model::Full),
        "lazy" => Some(Model::Lazy),
        _ => None,
    }
}

/// The mode in parentheses: `full` in `none voluntary (full)`.
fn marked_mode(modes: &str) -> Option<Model> {
    modes
        .split_whitespace()
        .find_map(|word| mode(word.strip_prefix('(')?.strip_suffix(')')?))
}

/// The last `preempt=` that the kernel accepts; arguments after `--` are for init.
fn booted_mode(command_line: &str, takes_none: bool) -> Option<Model> {
    command_line
        .split_whitespace()
        .take_while(|&word| word != "--")
        .filter_map(|word| mode(word.strip_prefix("preempt=")?))
        .filter(|model| takes_none || !matches!(model, Model::None | Model::Voluntary))
        .last()
}

/// The text of a kernel configuration.
#[derive(Clone, Copy)]
struct Config<'a>(&'a str);

impl Config<'_> {
    fn is_set(self, option: &str) -> bool {
        self.0.lines().any(|line| line.strip_prefix(option) == Some("=y"))
    }

    /// Whether the option exists in this kernel: it is set, or listed as not set.
    fn mentions(self, option: &str) -> bool {
        self.0.lines().any(|line| {
            let line = line.strip_prefix("# ").unwrap_or(line);
            line.strip_prefix(option)
                .is_some_and(|rest| rest.starts_with('=') || rest == " is not set")
        })
    }

    /// The model chosen at build time, with which a dynamic kernel boots too (`preempt_dynamic_init` in
    /// kernel/sched/core.c).
    fn model(self) -> Option<Model> {
        const CHOICES: [(&str, Model); 4] = [
            ("CONFIG_PREEMPT_NONE", Model::None),
            ("CONFIG_PREEMPT_VOLUNTARY", Model::Voluntary),
            ("CONFIG_PREEMPT_LAZY", Model::Lazy),
            ("CONFIG_PREEMPT", Model::Full),
        ];
        CHOICES
            .iter()
            .find(|(option, _)| self.is_set(option))
            .map(|&(_, model)| model)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;

    const DEBIAN_6_1: &str = "#1 SMP PREEMPT_DYNAMIC Debian 6.1.176-1 (2026-07-01)";
    const CONFIG_6_1: &str = "\
CONFIG_PREEMPT_BUILD=y
# CONFIG_PREEMPT_NONE is not set
CONFIG_PREEMPT_VOLUNTARY=y
# CONFIG_PREEMPT is not set
CONFIG_PREEMPT_COUNT=y
CONFIG_PREEMPTION=y
CONFIG_PREEMPT_DYNAMIC=y
CONFIG_PREEMPT_RCU=y
";
    /// From 7.0 on x86 has neither NONE nor VOLUNTARY.
    const CONFIG_7: &str = "\
CONFIG_PREEMPT_BUILD=y
CONFIG_ARCH_HAS_PREEMPT_LAZY=y
# CONFIG_PREEMPT is not set
CONFIG_PREEMPT_LAZY=y
# CONFIG_PREEMPT_RT is not set
CONFIG_PREEMPT_COUNT=y
CONFIG_PREEMPTION=y
CONFIG_PREEMPT_DYNAMIC=y
";

    /// The model and its source, from texts in the order of `Sources`; an empty text is an unreadable source.
    fn model(debugfs: &str, version: &str, command_line: &str, config: &str) -> (Model, &'static str) {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let preemption = decide(&Sources {
            debugfs: some(debugfs),
            version: some(version),
            command_line: some(command_line),
            config: some(config),
        });
        (preemption.model, preemption.source)
    }

    #[test]
    fn debugfs_is_believed_before_all_else() {
        let lines = [
            ("none (voluntary) full \n", Model::Voluntary),
            ("(none) voluntary full \n", Model::None),
            ("none voluntary (full) lazy \n", Model::Full),
            ("full (lazy) \n", Model::Lazy),
        ];
        for (line, expected) in lines {
            assert_eq!(
                model(line, DEBIAN_6_1, "quiet preempt=full", CONFIG_6_1),
                (expected, DEBUGFS),
                "{line}"
            );
        }
        let unmarked = "none voluntary full";
        assert_eq!(model(unmarked, DEBIAN_6_1, "", CONFIG_6_1), (Model::Voluntary, CONFIG));
    }

    #[test]
    fn uname_decides_when_the_model_is_fixed() {
        let versions = [
            ("#1 SMP Debian 5.10.223-1 (2024-08-10)", Model::Absent),
            ("#1 SMP PREEMPT Wed Mar 2 00:30:59 UTC 2022", Model::Full),
            ("#1 SMP PREEMPT_RT Debian 6.1.176-1 (2026-07-01)", Model::Rt),
        ];
        for (version, expected) in versions {
            assert_eq!(
                model("", version, "preempt=none", ""),
                (expected, "uname -v"),
                "{version}"
            );
        }
        let lazy = "# CONFIG_PREEMPT_NONE is not set\nCONFIG_PREEMPT_LAZY=y\n";
        assert_eq!(model("", "#1 SMP PREEMPT @0", "", lazy), (Model::Lazy, CONFIG));
    }

    #[test]
    fn the_command_line_switches_a_dynamic_kernel() {
        let booted = |line| model("", DEBIAN_6_1, line, CONFIG_6_1);
        assert_eq!(booted("root=/dev/sda1 preempt=full quiet"), (Model::Full, COMMAND_LINE));
        assert_eq!(
            booted("preempt=full preempt=none"),
            (Model::None, COMMAND_LINE),
            "the last wins"
        );
        assert_eq!(
            booted("preempt=full preempt=fast"),
            (Model::Full, COMMAND_LINE),
            "refused by the kernel"
        );
        assert_eq!(booted("quiet -- preempt=full"), (Model::Voluntary, CONFIG), "for init");
        assert_eq!(booted("rcutree.preempt=full preempt"), (Model::Voluntary, CONFIG));
    }

    #[test]
    fn a_kernel_without_the_none_model_refuses_it() {
        let version = "#1 SMP PREEMPT_DYNAMIC Debian 7.2.13-1 (2026-11-01)";
        assert_eq!(model("", version, "preempt=none", CONFIG_7), (Model::Lazy, CONFIG));
        assert_eq!(
            model("", version, "preempt=voluntary preempt=full", CONFIG_7),
            (Model::Full, COMMAND_LINE)
        );
    }

    #[test]
    fn before_5_18_only_the_configuration_says_dynamic() {
        let version = "#1 SMP PREEMPT Debian 5.17.11-1 (2022-05-26)";
        assert_eq!(
            model("", version, "preempt=none", CONFIG_6_1),
            (Model::None, COMMAND_LINE)
        );
        assert_eq!(model("", version, "", CONFIG_6_1), (Model::Voluntary, CONFIG));
    }

    #[test]
    fn the_unknown_counts_as_possible() {
        for (version, command_line) in [("", ""), ("\n", ""), (DEBIAN_6_1, ""), (DEBIAN_6_1, "preempt=none")] {
            assert_eq!(
                model("", version, command_line, "").0,
                Model::Unknown,
                "{version} {command_line}"
            );
        }
        assert_eq!(model("", DEBIAN_6_1, "", "\0\n=y\nCONFIG_PREEMPT=").0, Model::Unknown);
        assert!(decide(&Sources::default()).is_possible());
    }

    #[test]
    fn preemption_is_possible_in_these_models() {
        let possible = |model| Preemption { model, source: "" }.is_possible();
        assert!(
            [Model::Full, Model::Lazy, Model::Rt, Model::Unknown]
                .into_iter()
                .all(possible)
        );
        assert!(![Model::Absent, Model::None, Model::Voluntary].into_iter().any(possible));
    }

    #[test]
    fn says_it_in_a_phrase() {
        let voluntary = Preemption {
            model: Model::Voluntary,
            source: DEBUGFS,
        };
        assert_eq!(voluntary.to_string(), "voluntary (/sys/kernel/debug/sched/preempt)");
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn any_texts_are_decided_on(
            debugfs in proptest::option::of(fuzz::text_like("none voluntary (full) lazy\n")),
            version in proptest::option::of(fuzz::text_like(DEBIAN_6_1)),
            command_line in proptest::option::of(fuzz::text_like("quiet preempt=none -- preempt=full\n")),
            config in proptest::option::of(fuzz::text_like("CONFIG_PREEMPT_DYNAMIC=y\n# CONFIG_PREEMPT_NONE is not set\n")),
        ) {
            let decided = decide(&Sources { debugfs, version, command_line, config });
            prop_assert!(!decided.to_string().is_empty());
        }


        #[test]
        fn any_bytes_are_decompressed(bytes in fuzz::bytes_like(compressed("CONFIG_PREEMPT=y\n".repeat(50).as_bytes()))) {
            let _ = decompress(&bytes[..]);
        }
    }

    fn compressed(text: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(text).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_compressed_configuration_is_text() {
        assert_eq!(
            decompress(&compressed(b"CONFIG_PREEMPT=y\n")[..]).unwrap(),
            "CONFIG_PREEMPT=y\n"
        );
    }
}
