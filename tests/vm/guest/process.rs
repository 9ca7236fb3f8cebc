//! Processes of a check: started, signalled and waited for, with a limit on every wait.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Polling interval.
const POLL: Duration = Duration::from_millis(5);
/// After a process has ended, how long a child may keep its output open, and how long our threads may take to read the
/// rest. On a busy host either may take seconds.
const LAST_WORDS: Duration = Duration::from_secs(60);

/// For all probes to be detached.
const DETACH_BOUND: Duration = Duration::from_secs(60);

/// The beginning of every error of a wait that ran out.
const RAN_OUT: &str = ", in vain";

/// Whether a check failed because something did not happen in time. The host may have been busy all that time, which
/// the check cannot know.
pub fn ran_out(reason: &str) -> bool {
    reason.contains(RAN_OUT)
}

/// The error of a wait that ran out.
pub fn waited(what: &str, bound: Duration) -> String {
    format!("waited {bound:?} for {what}{RAN_OUT}")
}

/// Waits until the condition holds; the error names what it waited for.
pub fn wait_for(what: &str, bound: Duration, mut holds: impl FnMut() -> bool) -> Result<(), String> {
    let start = Instant::now();
    while !holds() {
        if start.elapsed() > bound {
            return Err(waited(what, bound));
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// Waits until no process of the tool is running any more, including those that detach.
pub fn all_detached() -> Result<(), String> {
    wait_for("all to be detached", DETACH_BOUND, || ours().is_empty())
}

/// Processes of the tool, including its helpers, without zombies.
pub fn ours() -> BTreeSet<String> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok())
        .filter(|stat| stat.contains("(IOStack") || stat.contains("(iosb-"))
        .filter(|stat| !stat.contains(") Z "))
        .map(|stat| stat.split(' ').take(3).collect::<Vec<_>>().join(" "))
        .collect()
}

/// The output and the status of a process that ended.
#[derive(Debug)]
pub struct Output {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Output {
    /// An error, with all output, unless the process ended with status 0.
    pub fn success(self) -> Result<Self, String> {
        if self.status.success() {
            Ok(self)
        } else {
            Err(format!("{}\n{}{}", self.status, self.stdout, self.stderr))
        }
    }
}

/// Runs a command to its end.
pub fn run(command: &mut Command, limit: Duration) -> Result<Output, String> {
    Running::start(command)?.finish(limit)
}

/// A running process. Dropping it kills it.
pub struct Running {
    name: String,
    child: Child,
    stdout: Pipe,
    stderr: Pipe,
}

impl Running {
    /// Starts it with both outputs captured and no input.
    pub fn start(command: &mut Command) -> Result<Self, String> {
        let name = format!("{command:?}");
        let spawned = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = spawned.map_err(|e| format!("{name}: {e}"))?;
        Ok(Self {
            stdout: Pipe::read(child.stdout.take()),
            stderr: Pipe::read(child.stderr.take()),
            name,
            child,
        })
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    pub fn signal(&self, signal: Signal) -> Result<(), String> {
        kill(self.pid(), signal).map_err(|e| format!("{}: {signal}: {e}", self.name))
    }

    /// Its output on stdout so far.
    pub fn stdout(&self) -> String {
        self.stdout.text()
    }

    /// Its output on stderr so far, to wait for its banner.
    pub fn stderr(&self) -> String {
        self.stderr.text()
    }

    /// Waits until it has ended; kills it when the time is over.
    pub fn finish(mut self, limit: Duration) -> Result<Output, String> {
        let start = Instant::now();
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if start.elapsed() > limit => {
                    let (stdout, stderr) = (self.stdout.text(), self.stderr.text());
                    let end = waited(&format!("the end of {}", self.name), limit);
                    return Err(format!("{end}\n{stdout}{stderr}"));
                }
                Ok(None) => std::thread::sleep(POLL),
                Err(error) => return Err(format!("{}: {error}", self.name)),
            }
        };
        wait_for("the end of its output", LAST_WORDS, || {
            self.stdout.ended() && self.stderr.ended()
        })
        .map_err(|e| format!("{}: {e}", self.name))?;
        Ok(Output {
            status,
            stdout: self.stdout.text(),
            stderr: self.stderr.text(),
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let ended = self.child.kill().and_then(|()| self.child.wait());
            if let Err(error) = ended {
                eprintln!("{}: {error}", self.name);
            }
        }
    }
}

/// One output, read continuously, so that the process cannot block on a full pipe.
struct Pipe {
    bytes: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Pipe {
    fn read(pipe: Option<impl Read + Send + 'static>) -> Self {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&bytes);
        let reader = std::thread::spawn(move || {
            let Some(mut pipe) = pipe else { return };
            let mut chunk = [0; 8192];
            loop {
                match pipe.read(&mut chunk) {
                    Ok(0) => return,
                    Ok(n) => sink
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .extend_from_slice(&chunk[..n]),
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(error) => return eprintln!("reading a process's output: {error}"),
                }
            }
        });
        Self { bytes, reader }
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    fn ended(&self) -> bool {
        self.reader.is_finished()
    }
}
