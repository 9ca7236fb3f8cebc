//! Metrics of a run on this machine, whatever it allows, read by a real Prometheus. Run it as root.

#[allow(dead_code, reason = "shared with the tests of its structure")]
mod dashboard;
mod folder;
#[allow(dead_code, reason = "shared with the guests, who need more of it")]
#[path = "vm/guest/process.rs"]
mod process;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use folder::Folder;
use process::run;
use serde_json::Value;

const TOOL: &str = env!("CARGO_BIN_EXE_IOStackBreakdown");
/// How long to wait for anything.
const LIMIT: Duration = Duration::from_secs(60);

/// Calls `attempt` until it returns something.
fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = attempt() {
            return found;
        }
        assert!(start.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        std::thread::yield_now();
    }
}

/// The answer to a GET over this stream: its status line and its text.
fn exchange(mut stream: impl Read + Write, path: &str) -> Option<(String, String)> {
    let request = format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, text) = answer.split_once("\r\n\r\n")?;
    Some((head.lines().next()?.to_owned(), text.to_owned()))
}

fn get(port: u16, path: &str) -> Option<(String, String)> {
    let stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(LIMIT)).ok()?;
    exchange(stream, path)
}

/// A process that is killed when the test ends.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The tool, serving metrics, and what else it prints to stderr.
struct Tool {
    child: Killed,
    /// As it prints it.
    address: String,
    stderr: BufReader<ChildStderr>,
}

impl Tool {
    fn start(arguments: &[&str]) -> Self {
        let mut tool = Command::new(TOOL);
        tool.args(arguments).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = Killed(tool.spawn().unwrap());
        let mut stderr = BufReader::new(child.0.stderr.take().unwrap());
        let mut said = String::new();
        loop {
            let mut line = String::new();
            assert_ne!(stderr.read_line(&mut line).unwrap(), 0, "{said}");
            if let Some(address) = line.trim().strip_prefix("metrics: ") {
                let address = address.to_owned();
                return Self { child, address, stderr };
            }
            said.push_str(&line);
        }
    }

    fn port(&self) -> u16 {
        let address = self.address.strip_prefix("http://127.0.0.1:").unwrap();
        address.strip_suffix("/metrics").unwrap().parse().unwrap()
    }

    /// Ends the run. Returns what it printed since.
    fn end(mut self) -> String {
        let pid = nix::unistd::Pid::from_raw(self.child.0.id() as i32);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).unwrap();
        assert!(self.child.0.wait().unwrap().success(), "{said}");
        said
    }
}

/// The line of a thread's status that begins with this.
fn status_of(thread: &Path, name: &str) -> String {
    let status = fs::read_to_string(thread.join("status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.unwrap().trim().to_owned()
}

/// A thread that has answered clients could do no more than any user.
#[test]
fn no_thread_has_capabilities_while_it_serves() {
    let folder = Folder::new("metrics-unprivileged");
    let tool = Tool::start(&["--metrics=0", "--budget", "90", "--comm", "dd"]);
    let syncs = || {
        let page = get(tool.port(), "/metrics").unwrap().1;
        value(&page, "iostack_calls_total{family=\"fsync\"}")
    };
    let before = syncs();
    work(&folder, 10);
    let first = syncs();
    assert!(first > before, "{before}, then {first}");
    let threads = fs::read_dir(format!("/proc/{}/task", tool.child.0.id())).unwrap();
    let threads: Vec<PathBuf> = threads.map(|thread| thread.unwrap().path()).collect();
    assert!(threads.len() >= 3, "{threads:?}");
    for thread in &threads {
        for set in ["CapEff:", "CapPrm:", "CapInh:", "CapAmb:"] {
            assert_eq!(status_of(thread, set), "0000000000000000", "{set} {}", thread.display());
        }
        assert_eq!(status_of(thread, "NoNewPrivs:"), "1");
    }
    // It still reads counters.
    work(&folder, 10);
    assert!(syncs() > first);
    tool.end();
}

/// Writes and reads a file in `folder`, with this many calls of each.
fn work(folder: &Path, calls: u32) {
    let file = folder.join("data");
    let copy = |from: &Path, to: &Path| {
        let mut dd = Command::new("dd");
        dd.arg(format!("if={}", from.display()))
            .arg(format!("of={}", to.display()));
        dd.arg(format!("count={calls}"))
            .args(["bs=1", "status=none", "conv=fsync"]);
        run(&mut dd, LIMIT).unwrap().success().unwrap();
    };
    fs::write(folder.join("source"), vec![0; calls as usize]).unwrap();
    copy(&folder.join("source"), &file);
}

/// The value of a series with these labels in a page.
fn value(page: &str, series: &str) -> f64 {
    let line = page.lines().find(|line| line.starts_with(series));
    let line = line.unwrap_or_else(|| panic!("no {series} in:\n{page}"));
    line.rsplit_once(' ').unwrap().1.parse().unwrap()
}

#[test]
fn a_scrape_has_the_calls_so_far() {
    let folder = Folder::new("metrics-scrape");
    let tool = Tool::start(&["--metrics=0", "--comm", "dd"]);
    let read = || {
        let (status, page) = get(tool.port(), "/metrics").unwrap();
        assert_eq!(status, "HTTP/1.1 200 OK");
        value(&page, "iostack_calls_total{family=\"read\"}")
    };
    let before = read();
    work(&folder, 1_000);
    let first = read();
    // Some may be lost where tasks are preempted inside the kernel, and dd reads its libraries as well.
    assert!(first - before >= 500.0, "{before}, then {first}");
    work(&folder, 1_000);
    assert!(read() - first >= 500.0);
    // A scrape is no interval: the report at the end has everything.
    tool.end();
}

/// What a process has counted before an exec stays under the name that it had then.
#[test]
fn no_counter_of_a_process_goes_backwards_when_it_gets_another_name() {
    let folder = Folder::new("metrics-renamed");
    let names = ["iosb-before", "iosb-after"];
    for name in names {
        fs::copy("/bin/bash", folder.join(name)).unwrap();
    }
    // It makes reads for each line that it gets. After `exec`, it is the program `$1`, which does the same.
    let script = "while read -r go; do for i in {1..500}; do read -r line < /etc/passwd; done; echo done; \
        [ $go = stay ] || exec \"$1\" -c \"$0\" \"$0\" \"$1\"; done";
    let mut shell = Command::new(folder.join(names[0]));
    shell.args(["-c", script, script]).arg(folder.join(names[1]));
    shell.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut shell = Killed(shell.spawn().unwrap());
    let mut go = shell.0.stdin.take().unwrap();
    let mut done = BufReader::new(shell.0.stdout.take().unwrap()).lines();
    let pid = shell.0.id().to_string();
    let tool = Tool::start(&["--metrics=0", "--by", "process", "-p", &pid]);
    let mut step = |line: &str| {
        writeln!(go, "{line}").unwrap();
        done.next().unwrap().unwrap();
        let page = get(tool.port(), "/metrics").unwrap().1;
        let read = |name: &str| {
            let series = format!("iostack_calls_total{{family=\"read\",process=\"{name}\"}}");
            page.contains(&series).then(|| value(&page, &series))
        };
        names.map(read)
    };
    let [Some(before), None] = step("stay") else { panic!() };
    assert!(before >= 250.0, "{before}");
    step("exec");
    let [Some(now), Some(after)] = step("stay") else {
        panic!()
    };
    assert!(now >= before, "{before}, then {now}");
    let [Some(stays), Some(more)] = step("stay") else {
        panic!()
    };
    assert_eq!(stays, now);
    assert!(more >= after + 250.0, "{after}, then {more}");
    tool.end();
}

#[test]
fn a_unix_socket_serves_too() {
    let folder = Folder::new("metrics-unix");
    let path = folder.join("socket");
    let tool = Tool::start(&["-T", "syscall", &format!("--metrics=unix:{}", path.display())]);
    let (status, page) = exchange(UnixStream::connect(&path).unwrap(), "/metrics").unwrap();
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert!(
        page.contains("# TYPE iostack_operation_duration_seconds histogram"),
        "{page}"
    );
    tool.end();
}

/// Its probes are detached in the background.
#[test]
fn an_address_is_free_when_the_run_has_ended() {
    let tool = Tool::start(&["--metrics=127.0.0.1:0"]);
    let port = tool.port();
    tool.end();
    TcpListener::bind(("127.0.0.1", port)).unwrap();
}

#[test]
fn an_address_in_use_is_reported_before_anything_is_attached() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = Command::new(TOOL).arg(format!("--metrics={address}")).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said.starts_with("error: cannot listen at")
            && said.ends_with(" in use; choose another port: --metrics=PORT\n")
            && said.lines().count() == 1,
        "{said}"
    );
}

/// The result of a query to a Prometheus: the values of its series.
fn query(port: u16, query: &str) -> Option<Vec<f64>> {
    let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let (_, text) = get(port, &format!("/api/v1/query?query={encoded}"))?;
    let answer: Value = serde_json::from_str(&text).ok()?;
    let series = answer["data"]["result"].as_array()?.clone();
    series
        .iter()
        .map(|one| one["value"][1].as_str()?.parse().ok())
        .collect()
}

/// A Prometheus that scrapes the tool every second.
struct Prometheus {
    port: u16,
    _process: Killed,
}

impl Prometheus {
    fn start(folder: &Path, tool: &Tool) -> Self {
        // Free until the next moment: there is no other way to choose a port for it.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = folder.join("prometheus.yml");
        let target = format!("127.0.0.1:{}", tool.port());
        let scrape = format!(
            "global:\n  scrape_interval: 1s\nscrape_configs:\n  - job_name: iostack\n    static_configs:\n      - targets: ['{target}']\n"
        );
        fs::write(&config, scrape).unwrap();
        let prometheus = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("storage").display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Self {
            port,
            _process: Killed(prometheus.expect("prometheus is there: tests/run installs it")),
        }
    }

    fn query(&self, text: &str) -> Option<Vec<f64>> {
        query(self.port, text)
    }
}

#[test]
fn a_prometheus_sees_rows_that_add_up() {
    let folder = Folder::new("metrics-prometheus");
    let tool = Tool::start(&["--metrics=0"]);
    let prometheus = Prometheus::start(&folder, &tool);
    work(&folder, 1_000);
    let reads = until("a scrape with the reads", || {
        let found = prometheus.query("iostack_calls_total{family=\"read\"}")?;
        found.first().copied().filter(|reads| *reads >= 500.0)
    });
    assert!(reads >= 500.0);
    // Samples of one scrape have one time.
    let difference = "sum by (family) (iostack_call_row_seconds_total) - on (family) iostack_call_duration_seconds_sum";
    let differences = prometheus.query(difference).unwrap();
    assert_eq!(differences.len(), 6, "a value for each family");
    assert!(differences.iter().all(|ns| ns.abs() < 1e-6), "{differences:?}");
    assert_eq!(prometheus.query("count(up == 1)"), Some(vec![1.0]));
    tool.end();
}

/// Each query of the dashboard is answered, and with values if the page has its metrics.
#[test]
fn a_prometheus_answers_the_dashboard() {
    let folder = Folder::new("metrics-dashboard");
    // With these, the page has what only some runs have: groups, a budget, whom the disks served meanwhile.
    let tool = Tool::start(&["--metrics=0", "--comm", "dd", "--by", "process", "--budget", "100"]);
    let prometheus = Prometheus::start(&folder, &tool);
    work(&folder, 1_000);
    let (_, page) = get(tool.port(), "/metrics").unwrap();
    let is_there = |metric: &str| {
        let series = [
            format!("{metric}{{"),
            format!("{metric}_bucket{{"),
            format!("{metric} "),
        ];
        page.lines()
            .any(|line| series.iter().any(|start| line.starts_with(start)))
    };
    let mut with_values = 0;
    for query in dashboard::queries(&dashboard::read(), "process") {
        let expected = dashboard::metrics(&query.expression)
            .iter()
            .all(|(metric, _)| is_there(metric));
        // A rate needs two scrapes.
        until(&format!("{}: {}", query.panel, query.expression), || {
            let answer = prometheus.query(&query.expression)?;
            (!expected || !answer.is_empty()).then_some(())
        });
        with_values += usize::from(expected);
    }
    assert!(with_values > 25, "{with_values}");
    tool.end();
}
