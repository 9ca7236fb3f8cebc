//! Parsers of option values.

use std::time::Duration;

use crate::budget::CpuShare;
use crate::catalog::SYSCALLS;
use crate::model::ids::{Family, UnknownName};
use crate::model::report::records::{Limit, Limited};
use crate::model::sample::Sample;
use crate::model::trigger::Trigger;
use crate::view::errno::errno_name;
use crate::view::text::number::thousands;

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

/// A limit: `fsync=50ms`.
pub fn limit(text: &str) -> Result<Limit, String> {
    let (of, time) = text
        .split_once('=')
        .ok_or("not a limit such as read=10ms, pread64=10ms, fsync=50ms, device=20ms or queue=5ms")?;
    let of = of.parse().map_err(|error: UnknownName| error.to_string())?;
    let span = time_span(time)?;
    let ns = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
    Ok(Limit { of, ns })
}

/// What is kept in memory: `60s`, `60s,256M`.
pub fn ring(text: &str) -> Result<(Duration, Option<u64>), String> {
    let (time, bytes) = match text.split_once(',') {
        Some((time, bytes)) => (time, Some(bytes)),
        None => (text, None),
    };
    let bytes = bytes.map(size).transpose()?;
    if bytes.is_some_and(|bytes| bytes < LEAST_RING) {
        return Err("less than 1M".to_owned());
    }
    Ok((time_span(time)?, bytes))
}

/// The size at which a recording ends: `500M`.
pub fn max_size(text: &str) -> Result<u64, &'static str> {
    match size(text)? {
        bytes if bytes < LEAST_RECORDING => Err("less than 4k"),
        bytes => Ok(bytes),
    }
}

/// The least size at which a recording ends: the counters of its start take about as much.
const LEAST_RECORDING: u64 = 4 << 10;

/// The least size of a ring.
const LEAST_RING: u64 = 1 << 20;

/// What takes long: `500ms`, `500ms,fsync`.
pub fn slower(text: &str) -> Result<Trigger, String> {
    let (time, of) = match text.split_once(',') {
        Some((time, of)) => (time, Some(limited(of)?)),
        None => (text, None),
    };
    let ns = u64::try_from(time_span(time)?.as_nanos()).unwrap_or(u64::MAX);
    Ok(Trigger::Slower { ns, of })
}

/// What fails: `EIO`, `EIO,write`.
pub fn error(text: &str) -> Result<Trigger, String> {
    let (name, of) = match text.split_once(',') {
        Some((name, of)) => (name, Some(limited(of)?)),
        None => (text, None),
    };
    if of == Some(Limited::Queue) {
        return Err("requests do not fail in the queue; use device".to_owned());
    }
    let errno = (1..LAST_ERRNO).find(|errno| errno_name(*errno) == name || errno.to_string() == name);
    let errno = errno.ok_or_else(|| format!("'{name}' is no error such as EIO or ENOSPC"))?;
    Ok(Trigger::Error {
        errno: errno.unsigned_abs(),
        of,
    })
}

/// MAX_ERRNO, include/linux/err.h.
const LAST_ERRNO: i32 = 4096;

/// A family or a name of calls, or requests.
fn limited(text: &str) -> Result<Limited, String> {
    let of = text.parse().map_err(|error: UnknownName| error.to_string())?;
    match of {
        Limited::Op(op) if !SYSCALLS.iter().any(|call| call.op == op) => Err(format!(
            "'{text}' is no call; requests of disks are device (from issue to completion) and queue"
        )),
        of => Ok(of),
    }
}

/// A factor of speed: 0 is without limit.
pub fn speed(text: &str) -> Result<f64, &'static str> {
    let speed: Option<f64> = text.parse().ok();
    speed
        .filter(|speed| speed.is_finite() && (*speed == 0.0 || (0.001..=1000.0).contains(speed)))
        .ok_or("not a factor from 0.001 to 1000, such as 2 or 0.5, or 0 (without waiting)")
}

/// A family of calls that can be replayed.
pub fn replayed_kind(text: &str) -> Result<Family, &'static str> {
    let family: Option<Family> = text.parse().ok();
    family
        .filter(|family| *family != Family::Asynchronous)
        .ok_or("not a kind of calls: use read, write, open, fsync or metadata")
}

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

/// Of how many calls one is measured: `1/100`.
pub fn sample(text: &str) -> Result<Sample, String> {
    let one_in = text
        .strip_prefix("1/")
        .filter(|n| n.bytes().all(|b| b.is_ascii_digit()));
    let sample = one_in.and_then(|n| Sample::new(n.parse().ok()?));
    sample.ok_or_else(|| {
        let [least, most] = [Sample::LEAST, Sample::MOST].map(|n| thousands(n.into()));
        format!("not 1/N, such as 1/100, with a whole number N from {least} to {most}")
    })
}

/// A number of bytes: `64M`, `1.5GiB`, `500kB`. K, M, G and T alone are powers of 1024, as in most tools.
pub fn size(text: &str) -> Result<u64, &'static str> {
    const WRONG: &str = "not a size such as 64M, 2G or 500kB";
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().map_err(|_| WRONG)?;
    let factor: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        "t" | "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(WRONG),
    };
    let bytes = number * factor as f64;
    if bytes.is_finite() && bytes < u64::MAX as f64 {
        Ok(bytes as u64)
    } else {
        Err(WRONG)
    }
}

/// A moment of a recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Since midnight, by the clock of the recorded machine.
    OfDay(Duration),
    AfterStart(Duration),
    BeforeEnd(Duration),
}

/// `12:03:07`, `12:03:07.5`, `+10s` after the start, `-10s` before the end.
pub fn moment(text: &str) -> Result<Moment, &'static str> {
    const WRONG: &str = "not a moment such as 12:03:07, 12:03:07.5, +10s (after the start) or -10s (before the end)";
    if let Some(after) = text.strip_prefix('+') {
        return time(after).map(Moment::AfterStart).ok_or(WRONG);
    }
    if let Some(before) = text.strip_prefix('-') {
        return time(before).map(Moment::BeforeEnd).ok_or(WRONG);
    }
    let parts: Vec<&str> = text.split(':').collect();
    let [hours, minutes, seconds] = parts[..] else {
        return Err(WRONG);
    };
    let is_number = |text: &str| text.len() == 2 && text.bytes().all(|b| b.is_ascii_digit());
    let whole = seconds.split('.').next().unwrap_or_default();
    if ![hours, minutes, whole].into_iter().all(is_number) {
        return Err(WRONG);
    }
    let (hours, minutes) = (
        hours.parse::<u64>().map_err(|_| WRONG)?,
        minutes.parse::<u64>().map_err(|_| WRONG)?,
    );
    let seconds = time(&format!("{seconds}s")).ok_or(WRONG)?;
    if hours > 23 || minutes > 59 || seconds >= Duration::from_secs(60) {
        return Err(WRONG);
    }
    Ok(Moment::OfDay(
        Duration::from_secs(hours * 3600 + minutes * 60) + seconds,
    ))
}

/// A percentage of one CPU, at most that of all CPUs.
pub fn percent(text: &str) -> Result<CpuShare, String> {
    let online = nix::unistd::sysconf(nix::unistd::SysconfVar::_NPROCESSORS_ONLN);
    let cpus = online.ok().flatten().and_then(|cpus| u64::try_from(cpus).ok());
    CpuShare::parse(text, cpus.unwrap_or(1))
}
