//! Runs the tool on a pseudoterminal, which is its controlling terminal, and shows its output by a terminal emulator.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::openpty;
use nix::sys::signal::{Signal, kill};
use nix::sys::termios::{LocalFlags, Termios, tcgetattr};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

pub const TOOL: &str = env!("CARGO_BIN_EXE_IOStackBreakdown");
/// Far more than anything takes.
const LIMIT: Duration = Duration::from_secs(60);

/// A run on a terminal.
pub struct Session {
    child: Child,
    master: Option<File>,
    /// Keeps the terminal open when the tool has ended, so that its settings can be read.
    slave: Option<OwnedFd>,
    before: Termios,
    screen: Arc<Mutex<vt100::Parser>>,
    /// Reads what is written to the terminal, until the flag says that it closes.
    reader: Option<JoinHandle<()>>,
    is_closing: Arc<AtomicBool>,
    /// Nothing is read meanwhile.
    is_held: Arc<AtomicBool>,
}

fn size_of((columns, rows): (u16, u16)) -> libc::winsize {
    libc::winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    }
}

impl Session {
    /// Starts the tool with these words in a directory.
    pub fn start(folder: &Path, size: (u16, u16), words: &[&str], variables: &[(&str, &str)]) -> Self {
        let mut tool = Command::new(TOOL);
        tool.args(words);
        Self::of(tool, folder, size, variables)
    }

    /// Starts the tool with these words in the background of a shell, which brings it to the foreground, continues it in the
    /// background when it has stopped, and brings it back, twice.
    fn start_in_background(folder: &Path, size: (u16, u16), words: &[&str]) -> (Self, Background) {
        let mut shell = Command::new("sh");
        let script =
            r#"set -m; "$@" & echo $! > pid.new; mv pid.new pid; read go; fg; bg; read go; fg; bg; read go; fg"#;
        shell.args(["-c", script, "sh", TOOL]).args(words);
        let mut session = Self::of(shell, folder, size, &[]);
        let mut pid = None;
        session.wait_until("started", |_| {
            pid = std::fs::read_to_string(folder.join("pid")).ok();
            pid.is_some()
        });
        let pid = Pid::from_raw(pid.unwrap().trim().parse().unwrap());
        (session, Background(pid))
    }

    /// Starts a command that runs the tool.
    pub fn of(mut tool: Command, folder: &Path, size: (u16, u16), variables: &[(&str, &str)]) -> Self {
        let opened = openpty(&size_of(size), None).unwrap();
        let (master, slave) = (File::from(opened.master), opened.slave);
        // The tool must not keep its own terminal open.
        for fd in [master.as_raw_fd(), slave.as_raw_fd()] {
            // SAFETY: changes a flag of our own descriptors.
            assert_eq!(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) }, 0);
        }
        let before = tcgetattr(&slave).unwrap();
        tool.current_dir(folder)
            .env_remove("NO_COLOR")
            .env_remove("LC_ALL")
            .env_remove("LC_CTYPE")
            .env("LANG", "C.UTF-8")
            .env("TERM", "xterm-256color")
            .envs(variables.iter().copied());
        let end = || slave.try_clone().unwrap();
        tool.stdin(end()).stdout(end()).stderr(end());
        // SAFETY: only system calls between fork and exec.
        unsafe {
            tool.pre_exec(|| {
                if libc::setsid() < 0 || libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                    return Err(std::io::Error::last_os_error());
                }
                Ok(())
            });
        }
        let child = tool.spawn().unwrap();
        let screen = Arc::new(Mutex::new(vt100::Parser::new(size.1, size.0, 0)));
        let is_closing = Arc::new(AtomicBool::new(false));
        let (mut of_terminal, shown) = (master.try_clone().unwrap(), Arc::clone(&screen));
        let until = Arc::clone(&is_closing);
        let is_held = Arc::new(AtomicBool::new(false));
        let held = Arc::clone(&is_held);
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while !until.load(Ordering::SeqCst) {
                let mut fds = [PollFd::new(of_terminal.as_fd(), PollFlags::POLLIN)];
                match poll(&mut fds, PollTimeout::from(20_u8)) {
                    Ok(0) | Err(_) => continue,
                    Ok(_) if held.load(Ordering::SeqCst) => {
                        std::thread::sleep(Duration::from_millis(5));
                        continue;
                    }
                    Ok(_) => {}
                }
                match of_terminal.read(&mut bytes) {
                    Ok(n @ 1..) => shown.lock().unwrap().process(&bytes[..n]),
                    // Reading a terminal without programs fails with EIO.
                    _ => return,
                }
            }
        });
        Self {
            child,
            master: Some(master),
            slave: Some(slave),
            before,
            screen,
            reader: Some(reader),
            is_closing,
            is_held,
        }
    }

    /// From now on, what is written to the terminal is not read, or read again.
    #[allow(dead_code, reason = "only some tests have a slow terminal")]
    pub fn hold(&mut self, is_held: bool) {
        self.is_held.store(is_held, Ordering::SeqCst);
    }

    /// The number of its threads.
    #[allow(dead_code, reason = "only some tests have a slow terminal")]
    pub fn threads(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap().count()
    }

    pub fn press(&mut self, keys: &str) {
        self.master.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    pub fn lines(&self) -> Vec<String> {
        let screen = self.screen.lock().unwrap();
        let (_, columns) = screen.screen().size();
        screen.screen().rows(0, columns).collect()
    }

    /// What the emulator shows.
    #[allow(dead_code, reason = "only some tests draw it")]
    pub fn draw<T>(&self, draw: impl FnOnce(&vt100::Screen) -> T) -> T {
        draw(self.screen.lock().unwrap().screen())
    }

    /// Waits until a text is on the screen.
    pub fn wait_for(&mut self, text: &str) {
        self.wait_until(&format!("{text:?}"), |session| {
            session.lines().iter().any(|line| line.contains(text))
        });
    }

    pub fn wait_until(&mut self, what: &str, mut is_so: impl FnMut(&mut Self) -> bool) {
        let until = Instant::now() + LIMIT;
        while !is_so(self) {
            assert!(Instant::now() < until, "not {what}: {:#?}", self.lines());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether a cell has a colour.
    pub fn has_colors(&self) -> bool {
        let screen = self.screen.lock().unwrap();
        let (rows, columns) = screen.screen().size();
        let cells = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
        cells
            .filter_map(|(row, column)| screen.screen().cell(row, column))
            .any(|cell| cell.fgcolor() != vt100::Color::Default || cell.bgcolor() != vt100::Color::Default)
    }

    /// Whether the alternate screen is shown, without a cursor.
    pub fn is_alternate(&self) -> bool {
        let screen = self.screen.lock().unwrap();
        screen.screen().alternate_screen() && screen.screen().hide_cursor()
    }

    /// Whether keys arrive one by one.
    pub fn is_raw(&self) -> bool {
        let now = tcgetattr(self.slave.as_ref().unwrap()).unwrap();
        !now.local_flags.contains(LocalFlags::ICANON)
    }

    pub fn resize(&mut self, size: (u16, u16)) {
        self.screen.lock().unwrap().screen_mut().set_size(size.1, size.0);
        let window = size_of(size);
        let master = self.master.as_ref().unwrap().as_raw_fd();
        // SAFETY: the size is read.
        let done = unsafe { libc::ioctl(master, libc::TIOCSWINSZ, &raw const window) };
        assert_eq!(done, 0);
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id() as i32)
    }

    pub fn signal(&mut self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    /// Whether it has stopped since the last call.
    pub fn is_stopped(&mut self) -> bool {
        match waitpid(self.pid(), Some(WaitPidFlag::WUNTRACED | WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Stopped(..)) => true,
            Ok(WaitStatus::StillAlive) => false,
            other => panic!("{other:?}"),
        }
    }

    /// Clears the emulator's screen, as a shell may.
    pub fn forget_screen(&mut self) {
        self.screen.lock().unwrap().process(b"\x1b[2J");
        self.wait_until("empty", |session| {
            session.lines().iter().all(|line| line.trim().is_empty())
        });
    }

    /// Ends it by keys.
    pub fn end(&mut self, keys: &str) {
        self.press(keys);
        self.assert_ended();
    }

    /// It ends with status 0, and the terminal is as before.
    pub fn assert_ended(&mut self) {
        let status = self.ended();
        assert!(status.success(), "{status}: {:#?}", self.lines());
    }

    /// A signal ends it, and the terminal is as before.
    pub fn assert_ended_by(&mut self, signal: Signal) {
        self.signal(signal);
        assert_eq!(self.ended().signal(), Some(signal as i32));
    }

    /// Its status at its end, at which the terminal is as before.
    fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        self.wait_until("ended", |session| {
            status = session.child.try_wait().unwrap();
            status.is_some()
        });
        let now = tcgetattr(self.slave.as_ref().unwrap()).unwrap();
        assert_eq!(now, self.before);
        self.wait_until("as before", |session| {
            let screen = session.screen.lock().unwrap();
            !screen.screen().alternate_screen() && !screen.screen().hide_cursor()
        });
        status.unwrap()
    }

    /// Closes the terminal, with which it has to end.
    pub fn close_terminal(&mut self) {
        // The kernel hangs up when the last descriptor of the master is closed.
        self.is_closing.store(true, Ordering::SeqCst);
        self.reader.take().unwrap().join().unwrap();
        drop(self.slave.take());
        drop(self.master.take());
        let until = Instant::now() + LIMIT;
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < until, "it goes on without its terminal");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The tool, which a shell has started.
pub struct Background(Pid);

impl Background {
    /// Waits until it runs and takes hardly any CPU: less than a tenth of one, for two seconds.
    fn wait_until_idle(&self, session: &mut Session) {
        let (mut since, (_, mut before)) = (Instant::now(), self.used());
        session.wait_until("idle in the background", |_| {
            let took = since.elapsed();
            if took < Duration::from_secs(2) {
                return false;
            }
            let (is_stopped, now) = self.used();
            let used = now - before;
            (since, before) = (Instant::now(), now);
            !is_stopped && used < took / 10
        });
    }

    /// Whether it is stopped, and the CPU time that it has taken.
    fn used(&self) -> (bool, Duration) {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0)).unwrap();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
        let ticks: u64 = fields[11..13].iter().map(|ticks| ticks.parse::<u64>().unwrap()).sum();
        // SAFETY: only returns a number.
        let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as u64;
        (fields[0] == "T", Duration::from_millis(ticks * 1000 / per_second))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let _ = kill(self.0, Signal::SIGKILL);
        }
    }
}

/// Starts a view in the background of a shell, brings it to the foreground, and does the same after Ctrl-Z and after SIGSTOP.
/// `shown`: what is on its screen.
pub fn assert_waits_for_the_foreground(folder: &Path, words: &[&str], shown: &str) {
    let (mut session, background) = Session::start_in_background(folder, (100, 30), words);
    let bring_back = |session: &mut Session| {
        background.wait_until_idle(session);
        assert!(!session.is_alternate());
        session.press("go\n");
        session.wait_until("it is shown", |session| session.is_raw() && session.is_alternate());
        session.wait_for(shown);
    };
    assert!(!session.is_raw());
    bring_back(&mut session);
    session.press("\x1a");
    session.wait_until("the settings are as before", |session| !session.is_raw());
    bring_back(&mut session);
    // It cannot be caught, so the settings are left to the shell.
    kill(background.0, Signal::SIGSTOP).unwrap();
    bring_back(&mut session);
    session.end("q");
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.is_closing.store(true, Ordering::SeqCst);
    }
}
