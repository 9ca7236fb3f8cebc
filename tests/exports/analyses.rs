//! The analyses of LTTng, which read an export in CTF: each has the numbers of the report.

use std::collections::BTreeMap;

use iostackbreakdown::model::record::Call;
use serde_json::json;

use super::outside::run;
use super::{READS, Recorded, WRITES};

pub fn have_the_same_numbers(recorded: &Recorded) {
    let analysis = |words: &[&str]| run(&recorded.folder, &[words, &["--no-progress", "ctf"]].concat()).0;
    let mut of_ops = BTreeMap::<&str, [u64; 3]>::new();
    let statistics = analysis(&["lttng-syscallstats"]);
    for line in statistics.lines().filter_map(|line| line.strip_prefix(" - ")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let all = of_ops.entry(words[0]).or_insert([0, u64::MAX, 0]);
        all[0] += words[1].parse::<u64>().unwrap();
        all[1] = all[1].min(ns(words[2]));
        all[2] = all[2].max(ns(words[4]));
    }
    assert_eq!(of_ops.len(), recorded.calls.len());
    for (name, op) in &recorded.calls {
        let [count, min_ns, max_ns] = of_ops[name.as_str()];
        assert_eq!(
            (&op["count"], &op["min_ns"], &op["max_ns"]),
            (&json!(count), &json!(min_ns), &json!(max_ns)),
            "{name}"
        );
    }
    // The log has each of those calls that it knows.
    let mut logged = BTreeMap::<String, Vec<u64>>::new();
    let log = analysis(&["lttng-iolog"]);
    for (name, ns) in log.lines().filter_map(logged_call) {
        logged.entry(name).or_default().push(ns);
    }
    assert!(logged.len() >= 12, "{:?}", logged.keys());
    for (name, mut durations) in logged {
        let mut expected: Vec<u64> = of_family(recorded, &[&name]).map(|(_, ns)| ns).collect();
        expected.sort_unstable();
        durations.sort_unstable();
        assert_eq!(durations, expected, "{name}");
    }
    usage_top(recorded, &analysis(&["lttng-iousagetop", "--limit", "100000"]));
    latency_statistics(recorded, &analysis(&["lttng-iolatencystats"]));
    longest_calls(recorded, &analysis(&["lttng-iolatencytop"]));
}

/// Microseconds with three digits, so nothing is rounded but means.
fn ns(us: &str) -> u64 {
    let (whole, part) = us.split_once('.').unwrap_or((us, "0"));
    whole.parse::<u64>().unwrap() * 1000 + format!("{part:0<3}").parse::<u64>().unwrap()
}

/// The name and the duration of a call, if the line is "[15:06:11.154811646, 15:06:11.157678053]  openat  2866.407 ...".
fn logged_call(line: &str) -> Option<(String, u64)> {
    let words: Vec<&str> = line.strip_prefix('[')?.split_whitespace().collect();
    Some((words[2].to_owned(), ns(words[3])))
}

/// A row of system calls: their number, and minimum, mean and maximum of their durations; and one of each disk.
fn latency_statistics(recorded: &Recorded, out: &str) {
    // The name, the number of its calls, minimum, mean and maximum.
    let rows = |title: &str| -> Vec<(String, [u64; 4])> {
        let lines = out.lines().skip_while(|line| !line.starts_with(title)).skip(3);
        let rows = lines.take_while(|line| !line.trim().is_empty()).map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let numbers = [words[1].parse().unwrap(), ns(words[2]), ns(words[3]), ns(words[4])];
            (words[0].to_owned(), numbers)
        });
        rows.collect()
    };
    let of = |durations: &[u64]| {
        let (count, total) = (durations.len() as u64, durations.iter().sum::<u64>());
        let [min, max] = [durations.iter().min(), durations.iter().max()].map(|ns| *ns.unwrap());
        [count, min, total / count, max]
    };
    let is_same = |[count, min, mean, max]: [u64; 4], expected: [u64; 4]| {
        [count, min, max] == [expected[0], expected[1], expected[3]] && mean.abs_diff(expected[2]) <= 1
    };
    let calls = rows("Syscalls latency statistics");
    assert_eq!(calls.len(), FAMILIES.len(), "{out}");
    for ((name, numbers), (family, names)) in calls.into_iter().zip(FAMILIES) {
        let durations: Vec<u64> = of_family(recorded, names).map(|(_, ns)| ns).collect();
        assert_eq!(name.to_lowercase(), family);
        assert!(
            is_same(numbers, of(&durations)),
            "{name}: {numbers:?}, not {:?}",
            of(&durations)
        );
    }
    let mut disks: Vec<[u64; 4]> = rows("Disk latency statistics")
        .into_iter()
        .map(|(_, numbers)| numbers)
        .collect();
    let mut of_disks = BTreeMap::<[u32; 2], Vec<u64>>::new();
    for request in &recorded.records.requests {
        let duration = request.issued_ns.map(|issued| request.ended_ns - issued);
        of_disks.entry(request.disk).or_default().extend(duration);
    }
    let mut expected: Vec<[u64; 4]> = of_disks.values().map(|durations| of(durations)).collect();
    disks.sort_unstable();
    expected.sort_unstable();
    let mut pairs = disks.iter().zip(&expected);
    assert!(
        disks.len() == expected.len() && pairs.all(|(one, other)| is_same(*one, *other)),
        "{disks:?}, not {expected:?}"
    );
}

/// The longest calls of each family.
fn longest_calls(recorded: &Recorded, out: &str) {
    for (family, names) in FAMILIES {
        let title = format!("Top system call latencies {family} (usec)");
        let lines = out.lines().skip_while(|line| *line != title).skip(2);
        let rows: Vec<(String, u64)> = lines.map_while(logged_call).collect();
        let expected = of_family(recorded, names).map(|(name, ns)| (name.to_owned(), ns));
        let mut expected: Vec<(String, u64)> = expected.collect();
        expected.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
        assert!(!rows.is_empty() && rows.len() <= expected.len(), "{out}");
        expected.truncate(rows.len());
        assert_eq!(rows, expected, "{family}");
    }
}

/// Rows of each table: a bar, a number with its unit, and what it is of.
fn usage_top(recorded: &Recorded, out: &str) {
    let table = |title: &str| -> Vec<Vec<&str>> {
        let lines = out.lines().skip_while(|line| !line.starts_with(title)).skip(2);
        let rows = lines.take_while(|line| !line.trim().is_empty());
        rows.map(|line| line.trim_start_matches(['█', ' ']).split_whitespace().collect())
            .collect()
    };
    let sum = |title: &str| -> u64 { table(title).iter().map(|row| row[0].parse::<u64>().unwrap()).sum() };
    assert_eq!(sum("Disk Request Count"), recorded.sum_of_requests("count"));
    assert_eq!(
        sum("Disk Requests Sector Count") * 512,
        recorded.sum_of_requests("bytes")
    );
    for (title, names) in [("Per-process I/O Read", READS), ("Per-process I/O Write", WRITES)] {
        // A row is of a thread, and names its process.
        let mut of_threads = BTreeMap::<(u32, u32), i64>::new();
        let calls = recorded
            .records
            .calls
            .iter()
            .filter(|call| names.contains(&call.op.name()));
        for call in calls.filter(|call| call.value > 0) {
            *of_threads.entry((call.pid, call.tid)).or_default() += call.value;
        }
        let expected = of_threads.iter().map(|((pid, _), bytes)| (*pid, binary(*bytes)));
        let mut expected: Vec<(u32, String)> = expected.collect();
        expected.sort();
        let number = |word: &&str| word.strip_prefix('(')?.strip_suffix(')')?.parse::<u32>().ok();
        let rows = table(title).into_iter().filter(|row| row[0] != "0");
        let rows = rows.map(|row| (row.iter().find_map(number).unwrap(), format!("{} {}", row[0], row[1])));
        let mut rows: Vec<(u32, String)> = rows.collect();
        rows.sort();
        assert_eq!(rows, expected, "{title}");
    }
}

/// As the analyses print bytes.
fn binary(bytes: i64) -> String {
    let mut number = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if number < 1024.0 {
            return if unit == "B" {
                format!("{bytes} {unit}")
            } else {
                format!("{number:.2} {unit}")
            };
        }
        number /= 1024.0;
    }
    panic!("{bytes}")
}

/// What the analyses count as one kind of calls.
const FAMILIES: [(&str, &[&str]); 4] = [
    ("open", &["open", "openat", "dup", "dup2", "dup3", "fcntl"]),
    ("read", &READS),
    ("write", &WRITES),
    ("sync", &["sync", "sync_file_range", "fsync", "fdatasync"]),
];

/// Names and durations of the calls that ended. fcntl opens a file only where it duplicates a descriptor.
fn of_family<'a>(recorded: &'a Recorded, names: &[&'a str]) -> impl Iterator<Item = (&'static str, u64)> + 'a {
    let names = names.to_vec();
    let is_its = move |call: &&Call| {
        let name = call.op.name();
        names.contains(&name) && (name != "fcntl" || call.extra == libc::F_DUPFD as u64)
    };
    let calls = recorded.records.calls.iter().filter(is_its);
    calls.filter_map(|call| Some((call.op.name(), call.duration_ns()?)))
}
