//! Values of options.

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

/// A number with its unit, decimals allowed: `500ms`, `10s`, `2m`, `1h`. Without one it is seconds.
fn time(text: &str) -> Option<Duration> {
    let seconds = |(unit, factor): &(&str, f64)| Some(text.strip_suffix(unit)?.parse::<f64>().ok()? * factor);
    Duration::try_from_secs_f64(UNITS.iter().find_map(seconds)?).ok()
}

const NO_TIME: &str = "not a time above 0, such as 10s, 500ms or 2m; a number alone is seconds";

/// How long something goes on.
pub fn time_span(text: &str) -> Result<Duration, &'static str> {
    time(text).filter(|span| !span.is_zero()).ok_or(NO_TIME)
}

/// A time, or 0: everything.
pub fn threshold(text: &str) -> Result<Duration, &'static str> {
    let span = time(text).ok_or(NO_TIME)?;
    // What is less than a nanosecond was not meant as 0.
    let is_zero = !text.contains(|c: char| ('1'..='9').contains(&c));
    if span.is_zero() && !is_zero {
        Err(NO_TIME)
    } else {
        Ok(span)
    }
}

/// A process, by its number.
pub fn process_number(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        Err(_) if text.starts_with(|c: char| c.is_alphabetic()) => {
            // The kernel keeps that much of a name.
            let name: String = text
                .char_indices()
                .take_while(|(at, c)| at + c.len_utf8() <= COMM_LENGTH)
                .map(|(_, c)| c)
                .collect();
            Err(format!(
                "not the number of a process; for threads of this name: --comm {name}"
            ))
        }
        _ => Err("not the number of a process".to_owned()),
    }
}

/// Bytes of a thread's name, at most.
pub const COMM_LENGTH: usize = 15;

/// Of one CPU, at most all that there are.
pub fn percent(text: &str) -> Result<CpuShare, String> {
    let online = nix::unistd::sysconf(nix::unistd::SysconfVar::_NPROCESSORS_ONLN);
    let cpus = online.ok().flatten().and_then(|cpus| u64::try_from(cpus).ok());
    CpuShare::parse(text, cpus.unwrap_or(1))
}
