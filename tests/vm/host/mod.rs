//! The runner's side: gets kernels, boots a guest per configuration and adds up the verdicts.

mod apt;
mod cpio;
mod disk;
mod initramfs;
mod kernels;
mod machine;
mod native;
mod packages;
mod peers;
mod programs;
mod qemu;
mod report;
mod times;
mod tool;

use crate::protocol::{Orders, TOOL, counted_cpus};
use crate::{checks, figures};
use clap::Parser;
use initramfs::Extra;
use kernels::{Kernel, KernelSpec};
use machine::Machine;
use programs::Programs;
use qemu::Boot;
use report::{Report, Tally};
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Boots real Debian kernels under QEMU and runs checks inside them.
#[derive(Parser)]
#[command(name = "vm")]
struct Arguments {
    /// Kernels to use, separated by blanks or commas; by default those of IOSB_KERNELS, otherwise all
    #[arg(long, value_name = "NAMES")]
    kernels: Option<String>,
    /// Only configurations with this word, such as preempt=full; "none" selects kernels without such a word
    #[arg(long, value_name = "WORD")]
    variant: Option<String>,
    /// Only checks whose name contains this
    #[arg(long, value_name = "SUBSTRING")]
    filter: Option<String>,
    /// Run each applicable check in each configuration, not only where it is most likely to fail (`--list` shows
    /// where); --filter does so as well
    #[arg(long)]
    every: bool,
    /// Run each check in one of the configurations for which it is selected, to be done in half the time
    #[arg(long, conflicts_with_all = ["kernels", "filter", "every"])]
    once: bool,
    /// Guests to run at a time; by default one and a half times the number of CPUs, since they sleep much of the time
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Minutes that a guest may run
    #[arg(long, value_name = "MINUTES", default_value_t = 60)]
    limit: u64,
    /// Test this executable instead of the release build
    #[arg(long, value_name = "FILE")]
    tool: Option<PathBuf>,
    /// Boot kernels for arm64, with this file as their first process: this runner, built for arm64
    #[arg(long, value_name = "FILE", requires = "tool", conflicts_with_all = ["once", "costs"])]
    arm64: Option<PathBuf>,
    /// List configurations and checks, and exit
    #[arg(long)]
    list: bool,
    /// Measure everything in the table of costs, including this machine's figures, and print it
    #[arg(long, conflicts_with_all = ["kernels", "variant", "filter", "exec", "every"])]
    costs: bool,
    /// Keep the logs of successful guests as well
    #[arg(long)]
    keep: bool,
    /// Add a word to the kernel's command line
    #[arg(long, value_name = "WORD")]
    append: Vec<String>,
    /// Put this host file (with the libraries it needs) into the guest, in /bin unless a path is given
    #[arg(long, value_name = "FILE[:GUESTPATH]")]
    with: Vec<String>,
    /// Instead of the checks, run this file in the guest and copy its output to stdout
    #[arg(long, value_name = "FILE")]
    exec: Option<PathBuf>,
    /// Arguments for the file of --exec
    #[arg(last = true, requires = "exec")]
    exec_arguments: Vec<String>,
}

impl Arguments {
    fn machine(&self) -> &'static Machine {
        match self.arm64 {
            Some(_) => &machine::ARM64,
            None => &machine::AMD64,
        }
    }

    /// The first process of guests.
    fn init(&self) -> Result<PathBuf, String> {
        match &self.arm64 {
            Some(init) => Ok(init.clone()),
            None => std::env::current_exe().map_err(|e| format!("this executable: {e}")),
        }
    }

    /// Whether each check runs in every applicable configuration.
    fn is_every(&self) -> bool {
        self.every || self.costs || self.filter.is_some()
    }

    /// Whether all checks are to run.
    fn is_default(&self) -> bool {
        let is_part = self.arm64.is_some()
            || self.variant.is_some()
            || self.filter.is_some()
            || self.exec.is_some()
            || self.costs;
        !is_part && self.names().is_none()
    }

    /// The selected kernels, unless all are.
    fn names(&self) -> Option<String> {
        let environment = std::env::var("IOSB_KERNELS").ok().filter(|names| !names.is_empty());
        self.kernels.clone().or(environment)
    }
}

/// Programs of the host that checks run in the guest.
const PROGRAMS: [&str; 1] = ["mkfs.ext4"];

/// A kernel with a command line.
#[derive(Clone, Copy)]
struct Configuration {
    spec: &'static KernelSpec,
    variant: &'static str,
}

impl Configuration {
    fn all(spec: &'static KernelSpec) -> impl Iterator<Item = Self> {
        spec.variants.iter().map(move |variant| Self { spec, variant })
    }

    fn name(self) -> String {
        format!("{} {}", self.spec.name, self.variant).trim_end().into()
    }

    /// The number of checks it runs by default, or if each runs once.
    fn selected(self, once: bool) -> usize {
        let name = self.name();
        checks::all()
            .filter(|check| checks::is_selected(check.name, &name, once))
            .count()
    }

    fn counted_cpus(self) -> Option<u32> {
        counted_cpus(self.variant)
    }
}

pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Err(error) = tool::go_to_source() {
        eprintln!("error: {error}");
        return ExitCode::FAILURE;
    }
    let configurations = match select(&arguments) {
        Ok(configurations) => configurations,
        Err(usage) => {
            eprintln!("error: {usage}");
            return ExitCode::from(2);
        }
    };
    if arguments.list {
        return match std::io::stdout().write_all(list(&configurations).as_bytes()) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
            _ => ExitCode::SUCCESS,
        };
    }
    match run(&arguments, &configurations) {
        Ok(tally) => {
            if arguments.exec.is_none() {
                println!("{} passed, {} failed", tally.passed, tally.failed);
            }
            ExitCode::from(u8::from(tally.failed > 0))
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The selected configurations, and all checks with the configurations in which they may fail.
fn list(configurations: &[Configuration]) -> String {
    let configurations = configurations.iter().map(|one| one.name());
    let configurations = configurations.map(|name| format!("configuration  {name}\n"));
    let checks = checks::all().map(|check| {
        let places = checks::places_of(check.name).join(", ");
        format!("check          {}  ({places})\n", check.name)
    });
    configurations.chain(checks).collect()
}

/// The selected configurations; an error is wrong usage.
fn select(arguments: &Arguments) -> Result<Vec<Configuration>, String> {
    let names = arguments.names();
    let named: Option<Vec<&str>> =
        (names.as_deref()).map(|all| all.split([' ', ',']).filter(|name| !name.is_empty()).collect());
    let all = arguments.machine().kernels;
    let known = || {
        let names: Vec<&str> = all.iter().map(|spec| spec.name).collect();
        names.join(", ")
    };
    if let Some(names) = &named {
        if let Some(stranger) = names.iter().find(|name| !all.iter().any(|spec| spec.name == **name)) {
            return Err(format!("no such kernel '{stranger}'; there are {}", known()));
        }
        if names.is_empty() {
            return Err(format!("no kernel is named; there are {}", known()));
        }
    }
    if let Some(part) = &arguments.filter
        && !checks::all().any(|check| check.name.contains(part.as_str()))
    {
        return Err(format!("no check's name contains '{part}'; see --list"));
    }
    let wanted = |variant_of: &str| match arguments.variant.as_deref() {
        _ if arguments.costs => counted_cpus(variant_of).is_some(),
        None => true,
        Some("none") => variant_of.is_empty(),
        Some(word) => variant_of == word,
    };
    // Booting counts as well.
    let has_work = |configuration: &Configuration| {
        let wanted = |check: &checks::Check| {
            let part = arguments.filter.as_deref().unwrap_or("");
            check.name.contains(part)
                && check.is_for(configuration.variant)
                && (arguments.is_every() || checks::is_selected(check.name, &configuration.name(), arguments.once))
        };
        arguments.exec.is_some() || checks::all().any(wanted)
    };
    let all: Vec<Configuration> = all
        .iter()
        .filter(|spec| named.as_ref().is_none_or(|names| names.contains(&spec.name)))
        .flat_map(Configuration::all)
        .filter(|configuration| wanted(configuration.variant) && has_work(configuration))
        .collect();
    if all.is_empty() {
        Err("none of these kernels has that variant, or none of its checks that name; see --list".into())
    } else {
        Ok(all)
    }
}

fn run(arguments: &Arguments, configurations: &[Configuration]) -> Result<Tally, String> {
    let cache = cache()?;
    let disk = disk::scratch(&cache)?;
    let tool = tool::get(arguments.tool.as_deref())?;
    let extras = extras(arguments, &tool, &cache)?;
    let exec = exec(arguments)?;
    let init = arguments.init()?;
    let logs = std::env::temp_dir().join(format!("iosb-vm-{}", std::process::id()));
    std::fs::create_dir_all(&logs).map_err(|e| format!("{}: {e}", logs.display()))?;

    let width = configurations.iter().map(|c| c.name().len()).max().unwrap_or(0);
    let report = Report::new(width, exec.is_some() && configurations.len() == 1);
    let peers = peers(arguments, &cache, &report);
    let mut tally = Tally::default();
    let mut queue = VecDeque::new();
    let is_used = |spec: &&KernelSpec| configurations.iter().any(|c| c.spec.name == spec.name);
    for spec in arguments.machine().kernels.iter().filter(is_used) {
        let mine = || configurations.iter().filter(|c| c.spec.name == spec.name).copied();
        match kernels::get(spec, &cache, &|text| report.note(spec.name, text)) {
            Ok(kernel) => queue.extend(mine().map(|configuration| (configuration, kernel.clone()))),
            Err(reason) => {
                for configuration in mine() {
                    tally += report.failed(&configuration.name(), "kernel", &reason, None);
                }
            }
        }
    }

    // The longest ones come first, so that no guest runs alone at the end.
    queue
        .make_contiguous()
        .sort_by_key(|(configuration, _)| Reverse(configuration.selected(arguments.once)));

    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = arguments
        .jobs
        .unwrap_or(cpus + cpus.div_ceil(2))
        .clamp(1, queue.len().max(1));
    let queue = Mutex::new(queue);
    let shared = Mutex::new(tally);
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                    let Some((configuration, kernel)) = next else { return };
                    let name = configuration.name();
                    let setup = Setup {
                        arguments,
                        disk: &disk,
                        peers: peers.as_deref(),
                        init: &init,
                        extras: &extras,
                        exec: exec.as_deref(),
                        logs: &logs,
                    };
                    let tally = match setup.boot(configuration, &kernel) {
                        Ok(boot) => boot.run(&name, &report),
                        Err(reason) => report.failed(&name, "guest", &reason, None),
                    };
                    *shared.lock().unwrap_or_else(PoisonError::into_inner) += tally;
                }
            });
        }
    });
    let mut tally = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
    if arguments.is_default() {
        tally += forgotten(&report, arguments.once);
    }
    if exec.is_none() {
        report.tell_times(jobs);
    }
    report.remind();
    if arguments.costs {
        tally += costs(&report, &tool);
    }
    if arguments.keep || tally.failed > 0 {
        eprintln!("logs: {}", logs.display());
    } else {
        std::fs::remove_dir_all(&logs).map_err(|e| format!("{}: {e}", logs.display()))?;
    }
    Ok(tally)
}

/// Checks that did not run in any configuration are failures.
fn forgotten(report: &Report, once: bool) -> Tally {
    let all = || kernels::MATRIX.iter().flat_map(Configuration::all);
    let names: Vec<&str> = checks::all().map(|check| check.name).collect();
    let configurations: Vec<String> = all().map(Configuration::name).collect();
    let mut tally = Tally::default();
    for mistake in checks::mistakes(&names, &configurations) {
        tally += report.failed("", "selection", &mistake, None);
    }
    // Most checks that count instructions are for the table of costs only, which reports what it lacks.
    let expected = checks::all().filter(|check| check.counted.is_none() && !(once && checks::is_long(check.name)));
    for check in expected.filter(|check| !report.has_run(check.name)) {
        tally += report.failed("", check.name, "it has run in no configuration", None);
    }
    tally
}

/// The disk with other tools, if a check needs it. If it is not available, only those checks fail.
fn peers(arguments: &Arguments, cache: &Path, report: &Report) -> Option<PathBuf> {
    let wanted = |part: &str| checks::that_use_peers().any(|check| check.name.contains(part));
    let filter = arguments.filter.as_deref();
    if arguments.exec.is_some() || !(arguments.costs || filter.is_none_or(wanted)) {
        return None;
    }
    peers::image(arguments.machine().architecture, cache, &|text| {
        report.note("peers", text)
    })
    .map_err(|reason| report.note("peers", &reason))
    .ok()
}

/// Prints the tables of costs; missing figures are failures.
fn costs(report: &Report, tool: &Path) -> Tally {
    let mut tally = Tally::default();
    let mut figures = report.figures();
    match native::measure(tool) {
        Ok(own) => figures.extend(own),
        Err(reason) => tally += report.failed(figures::HERE, "costs", &reason, None),
    }
    let (tables, missing) = figures::tables(&figures);
    print!("\n{tables}");
    for figure in missing {
        println!("MISSING {figure}");
        tally += Tally::FAILED;
    }
    tally
}

/// What all guests of this run share.
struct Setup<'a> {
    arguments: &'a Arguments,
    disk: &'a Path,
    peers: Option<&'a Path>,
    init: &'a Path,
    extras: &'a [Extra],
    exec: Option<&'a [String]>,
    logs: &'a Path,
}

/// Whether a filter selects costs by name, which includes those for the table only.
fn names_costs(filter: &str) -> bool {
    ["costs: ", "selections: ", "floors: ", "scaling: "]
        .iter()
        .any(|subject| filter.starts_with(subject))
}

impl Setup<'_> {
    fn boot(&self, configuration: Configuration, kernel: &Kernel) -> Result<Boot, String> {
        let folder = self.logs.join(configuration.name().replace(' ', "-"));
        std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let orders = Orders {
            kernel: configuration.spec.name.into(),
            variant: configuration.variant.into(),
            filter: self.arguments.filter.clone(),
            every: self.arguments.is_every(),
            once: self.arguments.once,
            table: self.arguments.costs || self.arguments.filter.as_deref().is_some_and(names_costs),
            exec: self.exec.map(<[String]>::to_vec),
        };
        let initrd = folder.join("initramfs");
        let image = initramfs::build(kernel, self.init, &orders, self.extras)?;
        std::fs::write(&initrd, image).map_err(|e| format!("{}: {e}", initrd.display()))?;
        let mut words: Vec<String> = self.arguments.append.clone();
        words.extend(
            Some(configuration.variant)
                .filter(|word| !word.is_empty() && configuration.counted_cpus().is_none())
                .map(Into::into),
        );
        Ok(Boot {
            machine: self.arguments.machine(),
            vmlinuz: kernel.vmlinuz(),
            initrd,
            disk: self.disk.into(),
            peers: self.peers.map(Into::into),
            console: folder.join("console.log"),
            words,
            counted: configuration.counted_cpus(),
            limit: Duration::from_secs(60 * self.arguments.limit),
            exec: self.exec.is_some(),
        })
    }
}

/// `$XDG_CACHE_HOME/iostackbreakdown`, outside the source tree so that a fresh checkout can use it.
fn cache() -> Result<PathBuf, String> {
    let set = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let cache = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")));
    let cache = cache.ok_or("neither XDG_CACHE_HOME nor HOME names a folder to cache kernels in")?;
    Ok(cache.join("iostackbreakdown"))
}

/// Files for the guest, in addition to the runner and the modules.
fn extras(arguments: &Arguments, tool: &Path, cache: &Path) -> Result<Vec<Extra>, String> {
    let mut extras = vec![Extra::new(tool, Some(TOOL))?];
    let foreign = match arguments.arm64 {
        Some(_) => Some(Programs::get(arguments.machine(), cache)?),
        None => None,
    };
    for program in PROGRAMS {
        let path = match &foreign {
            Some(foreign) => foreign.find(program)?,
            None => initramfs::in_path(program).ok_or_else(|| format!("{program}: not found"))?,
        };
        extras.push(Extra::new(&path, Some(&format!("/bin/{program}")))?);
        let libraries = foreign.as_ref().map(|foreign| foreign.libraries(&path)).transpose()?;
        for (library, guest) in libraries.unwrap_or_default() {
            extras.push(Extra::new(&library, Some(&guest))?);
        }
    }
    for text in &arguments.with {
        let (host, guest) = text
            .split_once(':')
            .map_or((text.as_str(), None), |(h, g)| (h, Some(g)));
        extras.push(Extra::new(Path::new(host), guest)?);
    }
    if let Some(file) = &arguments.exec {
        extras.push(Extra::new(file, None)?);
        let busybox = match &foreign {
            Some(foreign) => Some(foreign.find("busybox")?),
            None => initramfs::in_path("busybox"),
        };
        if let Some(busybox) = busybox {
            extras.push(Extra::new(&busybox, None)?);
        }
    }
    Ok(extras)
}

fn exec(arguments: &Arguments) -> Result<Option<Vec<String>>, String> {
    let Some(file) = &arguments.exec else { return Ok(None) };
    let mut command = vec![Extra::new(file, None)?.guest];
    command.extend(arguments.exec_arguments.iter().cloned());
    Ok(Some(command))
}
