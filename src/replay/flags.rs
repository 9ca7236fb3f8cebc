//! Flags of open files. Recordings have the numbers of the recorded architecture; plans have those of x86-64.

/// Numbers of x86-64 (include/uapi/asm-generic/fcntl.h).
pub const WRITE_ONLY: u32 = 0o1;
pub const CREATE: u32 = 0o100;
pub const EXCLUSIVE: u32 = 0o200;
pub const TRUNCATE: u32 = 0o1000;
pub const APPEND: u32 = 0o2000;
pub const DIRECT: u32 = 0o40_000;
pub const DIRECTORY: u32 = 0o200_000;
pub const NO_FOLLOW: u32 = 0o400_000;
/// `O_TMPFILE` without the flag of directories, which it includes.
pub const UNNAMED: u32 = 0o20_000_000;
/// Those of an open file that `F_SETFL` changes (`SETFL_MASK`, include/linux/fcntl.h, without that of signals): append, not
/// blocking, direct, and without times of access.
pub const SETTABLE: u32 = APPEND | 0o4000 | DIRECT | 0o1_000_000;
pub const PATH: u32 = 0o10_000_000;
/// All that open(2) knows; it ignores others, which openat2(2) refuses.
const KNOWN: u32 = 0o37_777_703;
/// What it knows beside [`PATH`] (`O_PATH_FLAGS`, include/linux/fcntl.h).
const BESIDE_PATH: u32 = DIRECTORY | NO_FOLLOW | 0o2_000_000;

/// The four flags whose numbers differ: on x86-64, and on arm64 (arch/arm64/include/uapi/asm/fcntl.h).
const DIFFERENT: [(u32, u32); 4] = [
    (DIRECT, 0o200_000),
    (0o100_000, 0o400_000),
    (DIRECTORY, 0o40_000),
    (NO_FOLLOW, 0o100_000),
];

/// Whether an architecture has the numbers of arm64.
fn is_arm(machine: &str) -> bool {
    machine == "aarch64"
}

fn changed(flags: u32, pairs: impl Iterator<Item = (u32, u32)> + Clone) -> u32 {
    let all = pairs.clone().fold(0, |all, (from, _)| all | from);
    pairs.fold(flags & !all, |to, (from, into)| {
        to | if flags & from != 0 { into } else { 0 }
    })
}

/// The flags of a recording that was made on `machine`, with the numbers of x86-64.
#[must_use]
pub fn recorded(flags: u32, machine: &str) -> u32 {
    let flags = if is_arm(machine) {
        changed(flags, DIFFERENT.into_iter().map(|(x86, arm)| (arm, x86)))
    } else {
        flags
    };
    let flags = flags & KNOWN;
    if flags & PATH != 0 {
        flags & (PATH | BESIDE_PATH)
    } else {
        flags
    }
}

/// The flags of a plan, with the numbers of `machine`.
#[must_use]
pub fn of_machine(flags: u32, machine: &str) -> u32 {
    if is_arm(machine) {
        changed(flags, DIFFERENT.into_iter())
    } else {
        flags
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_keep_their_meaning_on_the_other_architecture() {
        let arm = 0o200_000 | 0o2 | CREATE;
        assert_eq!(recorded(arm, "aarch64"), DIRECT | 0o2 | CREATE);
        assert_eq!(of_machine(recorded(arm, "aarch64"), "aarch64"), arm);
        assert_eq!(of_machine(DIRECTORY, "aarch64"), 0o40_000);
        assert_eq!(recorded(DIRECT, "x86_64"), DIRECT);
        for bit in (0..32).filter(|bit| KNOWN & 1 << bit != 0) {
            assert_eq!(recorded(of_machine(1 << bit, "aarch64"), "aarch64"), 1 << bit, "{bit}");
        }
        // open(2) ignores what openat2(2) refuses.
        assert_eq!(recorded(u32::MAX, "x86_64"), PATH | BESIDE_PATH);
        assert_eq!(recorded(1 << 31 | CREATE, "x86_64"), CREATE);
    }
}
