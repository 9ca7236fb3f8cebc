//! Writes what a package has beside the binary, out of the same definition as the command line: the manual page and the
//! completions of bash, zsh and fish. `cargo run --example assets -- FOLDER`.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use clap_complete::{Shell, generate_to};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use flate2::Compression;
use flate2::write::GzEncoder;

const NAME: &str = "IOStackBreakdown";
/// Beside what the command line says of itself. Heading, and paragraphs.
const SECTIONS: &[(&str, &[&str])] = &[
    (
        "PRIVILEGES",
        &[
            "Root, or CAP_BPF, CAP_PERFMON and CAP_DAC_READ_SEARCH; before Linux 5.11 CAP_SYS_RESOURCE, for the memory of \
             programs. For perf's kprobes and tracepoints while kernel.perf_event_paranoid is above 1, types of modules, and \
             --budget: CAP_SYS_ADMIN. For kprobe events: CAP_DAC_OVERRIDE.",
            "The kernel must have BTF (/sys/kernel/btf/vmlinux).",
        ],
    ),
    (
        "TRUST",
        &[
            "Each report ends with what was lost and what it cost. What could not be measured is named in it, and never \
             printed as 0. --check tries every probe and tells which ones work here.",
            "--budget limits what measuring may cost: the run time of its programs in the kernel and its own CPU time, in percent of \
             one CPU, in each second. The layer that costs most is detached when they are more. To know, the kernel counts the runs \
             of BPF programs, which costs each run two readings of the clock.",
        ],
    ),
];
const STATUSES: &[(&str, &str)] = &[
    ("0", "done"),
    (
        "1",
        "could not measure; one line on standard error says why, and the way out. Of --check: a layer counted nothing, or was refused something",
    ),
    ("2", "wrong usage"),
    ("130", "ended at once, by a second Ctrl-C"),
    (
        "125, 126, 127",
        "with COMMAND: could not measure, cannot be executed, not found",
    ),
    (
        "others",
        "with COMMAND: its own status, or 128 and the signal that ended it",
    ),
];

fn manual() -> io::Result<Vec<u8>> {
    let man = Man::new(iostackbreakdown::cli::command()).section("8");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    let mut roff = Roff::new();
    for (heading, paragraphs) in SECTIONS {
        roff.control("SH", [*heading]);
        for paragraph in *paragraphs {
            roff.control("PP", []);
            roff.text([roman(*paragraph)]);
        }
    }
    roff.control("SH", ["EXIT STATUS"]);
    for (status, meaning) in STATUSES {
        roff.control("TP", []);
        roff.text([bold(*status)]);
        roff.text([roman(*meaning)]);
    }
    roff.to_writer(&mut page)?;
    man.render_extra_section(&mut page)?;
    Ok(page)
}

fn write_all(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    // Debian's policy: manuals are compressed, the best way, and without the time of that.
    let file = File::create(folder.join(format!("{NAME}.8.gz")))?;
    let mut packed = GzEncoder::new(file, Compression::best());
    packed.write_all(&manual()?)?;
    packed.finish()?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        generate_to(shell, &mut iostackbreakdown::cli::command(), NAME, folder)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1) else {
        eprintln!("usage: assets FOLDER");
        return ExitCode::from(2);
    };
    match write_all(Path::new(&folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}: {error}", Path::new(&folder).display());
            ExitCode::FAILURE
        }
    }
}
