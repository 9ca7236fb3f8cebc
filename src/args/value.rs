//! Parsers of option values.

use std::time::Duration;

use crate::budget::CpuShare;

const UNITS: [(&str, f64); 7] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
    // As BCC's interval.
    ("", 1.0),
];

/// A number with its unit, decimals allowed: `500ms`, `10s`, `2m`, `1h`. Without a unit it is in seconds.
fn time(text: &str) -> Option<Duration> {
    let seconds = |(unit, factor): &(&str, f64)| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * factor);
    Duration::try_from_secs_f64(UNITS.iter().find_map(seconds)?).ok()
}

const NO_TIME: &str = "not a time above 0, such as 10s, 500ms or 2m; a number alone is seconds";

const NO_THRESHOLD: &str = "not a time such as 10ms or 500us (0: every call); a number alone is seconds";

/// A number from 1 on.
pub fn whole_number<N: std::str::FromStr + From<u8> + PartialOrd>(text: &str) -> Result<N, &'static str> {
    let number: Option<N> = text.parse().ok();
    number
        .filter(|number| *number >= N::from(1))
        .ok_or("not a whole number, 1 or more")
}

/// A length of time above 0.
pub fn time_span(text: &str) -> Result<Duration, &'static str> {
    time(text).filter(|span| !span.is_zero()).ok_or(NO_TIME)
}

/// A threshold; 0 selects everything.
pub fn threshold(text: &str) -> Result<Duration, &'static str> {
    let span = time(text).ok_or(NO_THRESHOLD)?;
    // A time below one nanosecond is not meant as 0.
    let is_zero = !text.contains(|c: char| ('1'..='9').contains(&c));
    if span.is_zero() && !is_zero {
        Err(NO_THRESHOLD)
    } else {
        Ok(span)
    }
}

/// The number of a process.
pub fn process_number(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        Err(_) if text.starts_with(|c: char| c.is_alphabetic()) => {
            let name = beginning(text);
            Err(format!("not a process ID; for threads of this name: --comm {name}"))
        }
        _ if text.is_empty() => Err("empty; separate process IDs with single commas".to_owned()),
        _ => Err("not a process ID".to_owned()),
    }
}

/// As much of a name as the kernel keeps of a thread's.
pub fn beginning(name: &str) -> &str {
    let ends = name.char_indices().map(|(at, c)| at + c.len_utf8());
    let end = ends.take_while(|end| *end <= COMM_LENGTH).last().unwrap_or(0);
    &name[..end]
}

/// Maximum length of a thread's name, in bytes.
pub const COMM_LENGTH: usize = 15;

/// A percentage of one CPU, at most that of all CPUs.
pub fn percent(text: &str) -> Result<CpuShare, String> {
    let online = nix::unistd::sysconf(nix::unistd::SysconfVar::_NPROCESSORS_ONLN);
    let cpus = online.ok().flatten().and_then(|cpus| u64::try_from(cpus).ok());
    CpuShare::parse(text, cpus.unwrap_or(1))
}
