//! Messages from the guest to the runner, by the second serial port.

use crate::protocol::Event;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

/// Not the kernel's console, whose messages could interrupt a line.
#[cfg(target_arch = "x86_64")]
const PORT: &str = "/dev/ttyS1";
/// The console has a driver of its own there, which numbers its ports by itself.
#[cfg(not(target_arch = "x86_64"))]
const PORT: &str = "/dev/ttyS0";

pub struct Verdicts(File);

/// Sends a note, from within a check.
pub fn note(text: &str) -> Result<(), String> {
    Verdicts::open()?.send(&Event::Noted(text.into()));
    Ok(())
}

/// Sends a measured figure for the table of costs.
pub fn measured(figure: &str, value: u64) -> Result<(), String> {
    Verdicts::open()?.send(&Event::Measured(figure.into(), value));
    Ok(())
}

impl Verdicts {
    pub fn open() -> Result<Self, String> {
        let port = OpenOptions::new()
            .write(true)
            .custom_flags(libc::O_NOCTTY)
            .open(PORT)
            .map_err(|e| format!("{PORT}: {e}"))?;
        // Without raw mode the terminal layer would add carriage returns.
        let mut settings = std::mem::MaybeUninit::<libc::termios>::uninit();
        // SAFETY: tcgetattr fills in the settings when it returns 0, and only then are they used.
        let answer = unsafe {
            if libc::tcgetattr(port.as_raw_fd(), settings.as_mut_ptr()) == 0 {
                let mut settings = settings.assume_init();
                libc::cfmakeraw(&raw mut settings);
                libc::tcsetattr(port.as_raw_fd(), libc::TCSANOW, &raw const settings)
            } else {
                -1
            }
        };
        if answer != 0 {
            return Err(format!("{PORT}: raw mode: {}", std::io::Error::last_os_error()));
        }
        Ok(Self(port))
    }

    /// A single write per line, which the terminal layer does not split.
    pub fn send(&self, event: &Event) {
        if let Err(error) = (&self.0).write_all(event.to_line().as_bytes()) {
            eprintln!("{PORT}: {error}; lost: {event:?}");
        }
    }

    /// Waits until the last byte has been sent.
    pub fn drain(&self) {
        // SAFETY: the descriptor is open as long as this exists.
        unsafe { libc::tcdrain(self.0.as_raw_fd()) };
    }
}
