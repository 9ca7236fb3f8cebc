//! The conditions of a recording in memory, and what met them, in words.

use crate::model::report::records::Limited;
use crate::model::trigger::{Fired, Outcome, Trigger};
use crate::number::time_each;
use crate::view::errno::errno_name;

/// `a call of fsync takes 500 ms`
#[must_use]
pub fn condition(trigger: Trigger) -> String {
    match trigger {
        Trigger::Slower { ns, of } => match of {
            Some(Limited::Device) => format!("a request is at the device for {}", time_each(ns)),
            Some(Limited::Queue) => format!("a request is in the queue for {}", time_each(ns)),
            of => format!("{} takes {}", a_call(of), time_each(ns)),
        },
        Trigger::Error { errno, of } => {
            let what = match of {
                None => "a call or a request".to_owned(),
                Some(Limited::Device | Limited::Queue) => "a request".to_owned(),
                of => a_call(of),
            };
            format!("{what} fails with {}", errno_name(errno.cast_signed()))
        }
        Trigger::Stuck { ns } => format!("a call is under way for {}", time_each(ns)),
    }
}

fn a_call(of: Option<Limited>) -> String {
    of.map_or_else(|| "a call".to_owned(), |of| format!("a call of {}", of.name()))
}

/// ` until a call of fsync takes 500 ms or a call is under way for 5.0 s`; empty without conditions.
#[must_use]
pub fn until(triggers: &[Trigger]) -> String {
    let all: Vec<String> = triggers.iter().map(|trigger| condition(*trigger)).collect();
    match all.as_slice() {
        [] => String::new(),
        all => format!(" until {}", all.join(" or ")),
    }
}

/// Why nothing met a condition: `no call of fsync took 500 ms: the longest took 12.1 ms`.
#[must_use]
pub fn unmet(trigger: Trigger, longest_ns: u64) -> String {
    let longest = |how: &str| match longest_ns {
        0 => String::new(),
        ns => format!(": the longest {how} {}", time_each(ns)),
    };
    match trigger {
        Trigger::Slower { ns, of } => match of {
            Some(Limited::Device) => format!("no request was at the device for {}{}", time_each(ns), longest("was")),
            Some(Limited::Queue) => format!("no request was in the queue for {}{}", time_each(ns), longest("was")),
            of => format!(
                "{} took {}{}",
                a_call(of).replacen('a', "no", 1),
                time_each(ns),
                longest("took")
            ),
        },
        Trigger::Error { errno, of } => {
            let what = match of {
                None => "no call and no request".to_owned(),
                Some(Limited::Device | Limited::Queue) => "no request".to_owned(),
                of => a_call(of).replacen('a', "no", 1),
            };
            format!("{what} failed with {}", errno_name(errno.cast_signed()))
        }
        Trigger::Stuck { ns } => format!("no call was under way for {}", time_each(ns)),
    }
}

/// What is known of a call or request by its numbers.
#[derive(Debug, Clone, Copy, Default)]
pub struct KnownNames<'a> {
    /// Of the thread.
    pub comm: Option<&'a str>,
    pub path: Option<&'a str>,
    pub disk: Option<&'a str>,
    /// Of its largest row.
    pub row: Option<&'a str>,
}

/// `fdatasync of mysqld 1311 on /srv/mysql/ib_logfile0 took 1.8 s: device 1.7 s`
#[must_use]
pub fn occurrence(fired: &Fired, names: KnownNames<'_>) -> String {
    let mut text = match fired.disk {
        None => fired.op.name().to_owned(),
        Some([major, minor]) => {
            let numbers = format!("{major}:{minor}");
            format!("{} request on {}", fired.op.name(), names.disk.unwrap_or(&numbers))
        }
    };
    match names.comm.filter(|comm| !comm.is_empty()) {
        Some(comm) => text.push_str(&format!(" of {comm} {}", fired.pid)),
        None if fired.pid > 0 => text.push_str(&format!(" of PID {}", fired.pid)),
        None => {}
    }
    if let Some(path) = names.path.filter(|path| !path.is_empty()) {
        text.push_str(&format!(" on {path}"));
    }
    text.push_str(&match fired.outcome {
        Outcome::Took(ns) if fired.disk.is_some() => format!(" was at the device for {}", time_each(ns)),
        Outcome::Took(ns) => format!(" took {}", time_each(ns)),
        Outcome::Queued(ns) => format!(" was in the queue for {}", time_each(ns)),
        Outcome::Failed(errno) => format!(" failed with {}", errno_name(errno.cast_signed())),
        Outcome::UnderWay(ns) => format!(" has been under way for {}", time_each(ns)),
    });
    if let (Outcome::Took(_), Some((_, ns)), Some(row)) = (fired.outcome, fired.row, names.row) {
        text.push_str(&format!(": {row} {}", time_each(ns)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::{Family, Op};

    const MS: u64 = 1_000_000;

    #[test]
    fn conditions_in_words() {
        let slower = |of| Trigger::Slower { ns: 500 * MS, of };
        let fsync = Some(Limited::Family(Family::Fsync));
        let error = |of| Trigger::Error { errno: 5, of };
        for (trigger, text, not) in [
            (
                slower(None),
                "a call takes 500 ms",
                "no call took 500 ms: the longest took 12.0 ms",
            ),
            (
                slower(fsync),
                "a call of fsync takes 500 ms",
                "no call of fsync took 500 ms: the longest took 12.0 ms",
            ),
            (
                slower(Some(Limited::Device)),
                "a request is at the device for 500 ms",
                "no request was at the device for 500 ms: the longest was 12.0 ms",
            ),
            (
                slower(Some(Limited::Queue)),
                "a request is in the queue for 500 ms",
                "no request was in the queue for 500 ms: the longest was 12.0 ms",
            ),
            (
                error(None),
                "a call or a request fails with EIO",
                "no call and no request failed with EIO",
            ),
            (
                error(fsync),
                "a call of fsync fails with EIO",
                "no call of fsync failed with EIO",
            ),
            (
                error(Some(Limited::Device)),
                "a request fails with EIO",
                "no request failed with EIO",
            ),
            (
                Trigger::Stuck { ns: 5000 * MS },
                "a call is under way for 5.0 s",
                "no call was under way for 5.0 s",
            ),
        ] {
            assert_eq!(condition(trigger), text);
            assert_eq!(unmet(trigger, 12 * MS), not);
        }
        assert_eq!(unmet(slower(None), 0), "no call took 500 ms");
        assert_eq!(until(&[]), "");
        assert_eq!(
            until(&[slower(None), error(None)]),
            " until a call takes 500 ms or a call or a request fails with EIO"
        );
    }

    #[test]
    fn what_happened_in_words() {
        let call = Fired {
            at_ns: 1,
            op: Op::Fdatasync,
            tid: 1312,
            pid: 1311,
            file: 7,
            disk: None,
            row: Some((9, 1_700 * MS)),
            outcome: Outcome::Took(1_800 * MS),
        };
        let names = KnownNames {
            comm: Some("mysqld"),
            path: Some("/srv/mysql/ib_logfile0"),
            disk: Some("sda"),
            row: Some("device"),
        };
        assert_eq!(
            occurrence(&call, names),
            "fdatasync of mysqld 1311 on /srv/mysql/ib_logfile0 took 1.8 s: device 1.7 s"
        );
        let none = KnownNames::default();
        let failed = Fired {
            outcome: Outcome::Failed(28),
            ..call.clone()
        };
        assert_eq!(occurrence(&failed, none), "fdatasync of PID 1311 failed with ENOSPC");
        let stuck = Fired {
            outcome: Outcome::UnderWay(5_060 * MS),
            ..call.clone()
        };
        assert_eq!(
            occurrence(&stuck, names),
            "fdatasync of mysqld 1311 on /srv/mysql/ib_logfile0 has been under way for 5.1 s"
        );
        let request = Fired {
            op: Op::Read,
            disk: Some([8, 0]),
            row: None,
            pid: 0,
            ..call
        };
        assert_eq!(
            occurrence(&request, none),
            "read request on 8:0 was at the device for 1.8 s"
        );
        let queued = Fired {
            outcome: Outcome::Queued(MS),
            ..request
        };
        assert_eq!(
            occurrence(&queued, KnownNames { path: None, ..names }),
            "read request on sda of mysqld 0 was in the queue for 1.0 ms"
        );
    }
}
