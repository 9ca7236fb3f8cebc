//! The endpoint for metrics: HTTP over TCP or a Unix socket, for one page that is made anew for each reader.
//!
//! A thread of its own talks to clients, so that slow and hostile ones delay nothing: at most [`CLIENTS`] at a time,
//! requests of at most [`LONGEST`] bytes, and [`PATIENCE`] for all of an exchange. The page is made by the thread that
//! reads the counters, which [`Endpoint::ready`] wakes.

use std::fmt;
use std::fs;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::cause::Cause;

/// Clients at a time. One more replaces the one that has been silent for longest.
const CLIENTS: usize = 8;
/// Bytes of a request.
const LONGEST: usize = 8 << 10;
/// Header fields of a request.
const FIELDS: usize = 64;
/// From the first byte to the last one of an exchange.
const PATIENCE: Duration = Duration::from_secs(5);
/// Where clients find the metrics.
const METRICS: &str = "/metrics";

/// The port of `--metrics` without an address.
pub const PORT: u16 = 19_560;

/// Where the endpoint listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
    /// A socket that systemd has opened (`LISTEN_FDS`).
    Inherited,
}

impl Default for Address {
    fn default() -> Self {
        Self::Tcp((Ipv4Addr::LOCALHOST, PORT).into())
    }
}

impl FromStr for Address {
    type Err = String;

    /// `PORT`, `IP:PORT`, `unix:PATH` or `systemd`.
    fn from_str(word: &str) -> Result<Self, String> {
        if word == "systemd" {
            return Ok(Self::Inherited);
        }
        if let Some(path) = word.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Self::Unix(path.into()));
        }
        if let Ok(port) = word.parse::<u16>() {
            return Ok(Self::Tcp((Ipv4Addr::LOCALHOST, port).into()));
        }
        word.parse()
            .map(Self::Tcp)
            .map_err(|_| "not a port, an address as 127.0.0.1:9100 or [::1]:9100, unix:PATH, or systemd".to_owned())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "http://{address}{METRICS}"),
            Self::Unix(path) => write!(f, "the socket {}", path.display()),
            Self::Inherited => f.write_str("the socket of systemd"),
        }
    }
}

/// A socket that listens, before the run begins.
#[derive(Debug)]
pub struct Listening {
    listener: Listener,
    /// With the real port.
    pub address: Address,
}

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// The first descriptor that systemd passes (sd_listen_fds(3)).
const FIRST_INHERITED: i32 = 3;

impl Listening {
    /// # Errors
    /// Why the address cannot be used, in one line.
    pub fn open(address: &Address) -> Result<Self, Cause> {
        let opened = match address {
            Address::Tcp(at) => TcpListener::bind(at).map(Listener::Tcp),
            Address::Unix(path) => bind_unix(path).map(Listener::Unix),
            Address::Inherited => inherited(),
        };
        let failed = |error: io::Error| Cause::of(format_args!("cannot listen at {address}"), &error);
        let listener = opened.map_err(|error| {
            let mut cause = failed(error);
            if cause.errno == Some(libc::EADDRINUSE) {
                cause.line += instead(address);
            }
            cause
        })?;
        listener.set_nonblocking().map_err(failed)?;
        let address = match &listener {
            Listener::Tcp(tcp) => tcp.local_addr().map_or_else(|_| address.clone(), Address::Tcp),
            Listener::Unix(_) => address.clone(),
        };
        Ok(Self { listener, address })
    }

    /// Starts to answer.
    ///
    /// # Errors
    /// If there can be no thread, in one line.
    pub fn serve(self) -> Result<Endpoint, Cause> {
        let failed = |error: io::Error| Cause::of("cannot serve metrics", &error);
        let wanted = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK);
        let wanted = Arc::new(wanted.map_err(|error| failed(error.into()))?);
        let (ask, asked) = mpsc::channel();
        let maker = Maker {
            wanted: Arc::clone(&wanted),
            ask,
        };
        let listener = self.listener;
        thread::Builder::new()
            .name("metrics".to_owned())
            .spawn(move || talk(&listener, &maker))
            .map_err(failed)?;
        Ok(Endpoint { wanted, asked })
    }
}

/// What to do about an address that is in use.
fn instead(address: &Address) -> &'static str {
    match address {
        Address::Unix(path) if !is_socket(path) => " by a file that is no socket; choose another path",
        Address::Unix(_) => "; choose another path: --metrics=unix:PATH",
        _ => "; choose another port: --metrics=PORT",
    }
}

fn is_socket(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket())
}

/// A socket file that no process listens on any more is replaced.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let first = UnixListener::bind(path);
    let in_use = first.as_ref().is_err_and(|error| error.kind() == ErrorKind::AddrInUse);
    if in_use
        && is_socket(path)
        && UnixStream::connect(path).is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
    {
        fs::remove_file(path)?;
        return UnixListener::bind(path);
    }
    first
}

/// The first socket that systemd has passed to this process.
fn inherited() -> io::Result<Listener> {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u32>().ok());
    if number("LISTEN_PID") != Some(std::process::id()) || number("LISTEN_FDS").unwrap_or(0) == 0 {
        return Err(io::Error::other("systemd has passed no socket (LISTEN_FDS)"));
    }
    // A command or a process that detaches must not inherit it.
    // SAFETY: changes a flag of a descriptor.
    if unsafe { libc::fcntl(FIRST_INHERITED, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: systemd has opened the descriptor for this process, and nothing else uses it.
    let fd = unsafe { OwnedFd::from_raw_fd(FIRST_INHERITED) };
    let tcp = TcpListener::from(fd);
    if tcp.local_addr().is_ok() {
        return Ok(Listener::Tcp(tcp));
    }
    Ok(Listener::Unix(UnixListener::from(OwnedFd::from(tcp))))
}

impl Listener {
    fn set_nonblocking(&self) -> io::Result<()> {
        match self {
            Self::Tcp(tcp) => tcp.set_nonblocking(true),
            Self::Unix(unix) => unix.set_nonblocking(true),
        }
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(tcp) => tcp.as_fd(),
            Self::Unix(unix) => unix.as_fd(),
        }
    }

    fn accept(&self) -> io::Result<Stream> {
        let stream = match self {
            Self::Tcp(tcp) => Stream::Tcp(tcp.accept()?.0),
            Self::Unix(unix) => Stream::Unix(unix.accept()?.0),
        };
        match &stream {
            Stream::Tcp(tcp) => tcp.set_nonblocking(true)?,
            Stream::Unix(unix) => unix.set_nonblocking(true)?,
        }
        Ok(stream)
    }
}

/// The main thread's side of the endpoint.
pub struct Endpoint {
    wanted: Arc<EventFd>,
    asked: mpsc::Receiver<mpsc::SyncSender<String>>,
}

impl Endpoint {
    /// Readable when a client waits for a page.
    #[must_use]
    pub fn ready(&self) -> BorrowedFd<'_> {
        self.wanted.as_fd()
    }

    /// Makes a page, if a client waits for one.
    pub fn answer(&self, page: impl FnOnce() -> String) {
        // Fails if nothing was written since, which is not an error.
        let _ = self.wanted.read();
        let waiting: Vec<_> = self.asked.try_iter().collect();
        if waiting.is_empty() {
            return;
        }
        let page = page();
        for client in waiting {
            // A client that has not waited long enough has its answer.
            let _ = client.try_send(page.clone());
        }
    }
}

/// Gets pages from the main thread.
struct Maker {
    wanted: Arc<EventFd>,
    ask: mpsc::Sender<mpsc::SyncSender<String>>,
}

impl Maker {
    /// `None`: the main thread does not answer in time.
    fn page(&self) -> Option<String> {
        let (send, receive) = mpsc::sync_channel(1);
        self.ask.send(send).ok()?;
        self.wanted.write(1).ok()?;
        receive.recv_timeout(PATIENCE).ok()
    }
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(tcp) => tcp.as_fd(),
            Self::Unix(unix) => unix.as_fd(),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(tcp) => tcp.read(buffer),
            Self::Unix(unix) => unix.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(tcp) => tcp.write(bytes),
            Self::Unix(unix) => unix.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One exchange with a client.
struct Client {
    stream: Stream,
    until: Instant,
    request: Vec<u8>,
    /// What is left to be written, once there is an answer.
    answer: Option<Vec<u8>>,
}

/// What to do about the bytes that a client has sent.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// The request is incomplete.
    Wait,
    /// It wants the metrics; `true`: without their text.
    Metrics { head_only: bool },
    /// The answer is an error.
    Refuse(&'static str, &'static str),
}

/// Decides what a request wants. Pure.
fn step(request: &[u8]) -> Step {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut parsed = httparse::Request::new(&mut fields);
    match parsed.parse(request) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if request.len() >= LONGEST => {
            return Step::Refuse("431 Request Header Fields Too Large", "the request is too long\n");
        }
        Ok(httparse::Status::Partial) => return Step::Wait,
        Err(httparse::Error::TooManyHeaders) => {
            return Step::Refuse("431 Request Header Fields Too Large", "too many header fields\n");
        }
        Err(_) => return Step::Refuse("400 Bad Request", "not an HTTP request\n"),
    }
    let path = parsed.path.unwrap_or_default();
    let path = path.split('?').next().unwrap_or_default();
    match (parsed.method.unwrap_or_default(), path) {
        ("GET", METRICS) => Step::Metrics { head_only: false },
        ("HEAD", METRICS) => Step::Metrics { head_only: true },
        ("GET" | "HEAD", _) => Step::Refuse("404 Not Found", "the metrics are at /metrics\n"),
        _ => Step::Refuse("405 Method Not Allowed", "only GET and HEAD are answered\n"),
    }
}

/// The bytes of an answer, after which the connection is closed.
fn answer(status: &str, text: &str, head_only: bool) -> Vec<u8> {
    let allow = if status.starts_with("405") {
        "Allow: GET, HEAD\r\n"
    } else {
        ""
    };
    let mut bytes = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n{allow}Connection: close\r\n\r\n",
        text.len()
    )
    .into_bytes();
    if !head_only {
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes
}

/// Talks to clients until the process ends.
fn talk(listener: &Listener, maker: &Maker) {
    let mut clients: Vec<Client> = Vec::new();
    loop {
        let now = Instant::now();
        clients.retain(|client| client.until > now);
        let Some(ready) = wait(listener, &clients) else {
            continue;
        };
        // The listener comes first.
        let has_new = ready.first() == Some(&true);
        let mut active = ready.into_iter().skip(1);
        clients.retain_mut(|client| !active.next().unwrap_or(false) || client.go_on(maker).is_ok_and(|more| more));
        if has_new && let Ok(stream) = listener.accept() {
            if clients.len() >= CLIENTS {
                clients.remove(0);
            }
            clients.push(Client {
                stream,
                until: Instant::now() + PATIENCE,
                request: Vec::new(),
                answer: None,
            });
        }
    }
}

/// Waits for a client; whether the listener, and each client, is ready. `None`: a time has passed, or a signal came.
fn wait(listener: &Listener, clients: &[Client]) -> Option<Vec<bool>> {
    let mut fds = vec![PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    fds.extend(clients.iter().map(|client| {
        let for_what = if client.answer.is_some() {
            PollFlags::POLLOUT
        } else {
            PollFlags::POLLIN
        };
        PollFd::new(client.stream.as_fd(), for_what)
    }));
    let first = clients.iter().map(|client| client.until).min();
    let timeout = first.map_or(PollTimeout::NONE, |until| {
        let left = until.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
    });
    match poll(&mut fds, timeout) {
        Ok(n) if n > 0 => Some(fds.iter().map(|fd| fd.any() == Some(true)).collect()),
        _ => None,
    }
}

impl Client {
    /// Reads or writes what is possible now; whether there is more to do.
    fn go_on(&mut self, maker: &Maker) -> io::Result<bool> {
        if self.answer.is_none() {
            let mut buffer = [0; LONGEST];
            let room = LONGEST - self.request.len();
            match self.stream.read(&mut buffer[..room.max(1)]) {
                Ok(0) => return Ok(false),
                Ok(n) => self.request.extend_from_slice(&buffer[..n]),
                Err(error) if is_passing(&error) => return Ok(true),
                Err(error) => return Err(error),
            }
            self.answer = match step(&self.request) {
                Step::Wait => return Ok(true),
                Step::Metrics { head_only } => Some(match maker.page() {
                    Some(page) => answer("200 OK", &page, head_only),
                    None => answer("503 Service Unavailable", "the counters cannot be read now\n", false),
                }),
                Step::Refuse(status, text) => Some(answer(status, text, false)),
            };
        }
        let Some(answer) = &mut self.answer else {
            return Ok(true);
        };
        match self.stream.write(answer) {
            Ok(n) => {
                answer.drain(..n);
                Ok(!answer.is_empty())
            }
            Err(error) if is_passing(&error) => Ok(true),
            Err(error) => Err(error),
        }
    }
}

/// Whether the same may work later.
fn is_passing(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fuzz;

    #[test]
    fn addresses_are_read() {
        let tcp = |word: &str| Address::Tcp(word.parse().unwrap());
        assert_eq!("9100".parse(), Ok(tcp("127.0.0.1:9100")));
        assert_eq!("[::1]:9100".parse(), Ok(tcp("[::1]:9100")));
        assert_eq!("unix:/run/x".parse(), Ok(Address::Unix("/run/x".into())));
        assert_eq!("systemd".parse(), Ok(Address::Inherited));
        for wrong in ["", "unix:", "70000", "localhost", "1.2.3.4"] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
        assert_eq!(Address::default().to_string(), "http://127.0.0.1:19560/metrics");
    }

    #[test]
    fn a_request_gets_the_metrics_or_a_reason() {
        let metrics = Step::Metrics { head_only: false };
        assert_eq!(step(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), metrics);
        assert_eq!(step(b"GET /metrics?a=b HTTP/1.0\r\n\r\n"), metrics);
        assert_eq!(
            step(b"HEAD /metrics HTTP/1.1\r\n\r\n"),
            Step::Metrics { head_only: true }
        );
        assert_eq!(step(b"GET /metrics HTTP/1.1\r\nHost"), Step::Wait);
        let status = |request: &[u8]| match step(request) {
            Step::Refuse(status, _) => status[..3].to_owned(),
            other => format!("{other:?}"),
        };
        assert_eq!(status(b"GET / HTTP/1.1\r\n\r\n"), "404");
        assert_eq!(status(b"POST /metrics HTTP/1.1\r\n\r\n"), "405");
        assert_eq!(status(b"\x16\x03\x01\x02\x00"), "400");
        let mut long = b"GET /metrics HTTP/1.1\r\nX: ".to_vec();
        long.resize(LONGEST, b'a');
        assert_eq!(status(&long), "431");
        let many = "a: b\r\n".repeat(FIELDS + 1);
        assert_eq!(status(format!("GET /metrics HTTP/1.1\r\n{many}\r\n").as_bytes()), "431");
    }

    /// An endpoint on a port of its own, whose pages are numbered.
    fn serve() -> SocketAddr {
        let listening = Listening::open(&Address::Tcp((Ipv4Addr::LOCALHOST, 0).into())).unwrap();
        let Address::Tcp(at) = listening.address else {
            panic!("a TCP address")
        };
        let endpoint = listening.serve().unwrap();
        thread::spawn(move || {
            let mut pages = 0;
            loop {
                let mut fds = [PollFd::new(endpoint.ready(), PollFlags::POLLIN)];
                poll(&mut fds, PollTimeout::NONE).unwrap();
                endpoint.answer(|| {
                    pages += 1;
                    format!("page {pages}\n")
                });
            }
        });
        at
    }

    fn get(at: SocketAddr) -> String {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn silent_clients_do_not_delay_others() {
        let at = serve();
        // More than there is room for; they stay open, and send nothing, or the half of a request.
        let mut silent: Vec<TcpStream> = (0..3 * CLIENTS).map(|_| TcpStream::connect(at).unwrap()).collect();
        for stream in silent.iter_mut().step_by(2) {
            // An older one may have been closed already.
            let _ = stream.write_all(b"GET /metr");
        }
        for page in 1..=20 {
            let text = get(at);
            assert!(text.starts_with("HTTP/1.1 200 OK\r\n"), "{text}");
            assert!(text.ends_with(&format!("\r\n\r\npage {page}\n")), "{text}");
        }
    }

    #[test]
    fn a_socket_file_that_was_left_is_replaced_and_one_in_use_is_not() {
        let path = std::env::temp_dir().join(format!("iosb-serve-{}", std::process::id()));
        let address = Address::Unix(path.clone());
        drop(Listening::open(&address).unwrap());
        let first = Listening::open(&address).unwrap();
        let refused = |address: &Address| Listening::open(address).unwrap_err().line;
        let said = refused(&address);
        assert!(said.ends_with("; choose another path: --metrics=unix:PATH"), "{said}");
        drop(first);
        fs::write(path.with_extension("txt"), "mine").unwrap();
        let said = refused(&Address::Unix(path.with_extension("txt")));
        assert!(
            said.ends_with(" by a file that is no socket; choose another path"),
            "{said}"
        );
        assert_eq!(fs::read_to_string(path.with_extension("txt")).unwrap(), "mine");
        fs::remove_file(path.with_extension("txt")).unwrap();
        fs::remove_file(path).unwrap();
    }

    proptest! {
        #![proptest_config(fuzz::config())]

        #[test]
        fn any_request_has_an_answer(bytes in fuzz::bytes_like(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")) {
            let _ = step(&bytes);
        }
    }
}
