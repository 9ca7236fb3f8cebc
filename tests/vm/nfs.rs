//! A file system exported by the guest to itself: NFS 4.2, with the kernel's own server and client.
//!
//! The data that `exportfs` and `mountd` pass to the server is written to its tables in advance, and the data that
//! `mount.nfs` looks up is known. Version 4 needs no port mapper and no other daemon.

use crate::guest::{Guest, Loaded, wait_for};
use nix::mount::{MsFlags, mount, umount};
use std::fs;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::time::Duration;

const SERVER: &str = "/proc/fs/nfsd";
/// A directory on ext4.
const EXPORTED: &str = "/mnt/ext4/exported";
/// Where the server records its clients.
const CLIENTS: &str = "/var/lib/nfs/v4recovery";
const BOUND: Duration = Duration::from_secs(60);

/// The server and a mount of it, while this exists.
pub struct Nfs {
    is_mounted: bool,
    has_server: bool,
    _modules: Vec<Loaded>,
}

impl Nfs {
    pub const FOLDER: &str = "/mnt/nfs";

    pub fn new(guest: &Guest) -> Result<Self, String> {
        let modules = ["nfsd", "nfsv4"].into_iter().map(|name| guest.load(name, ""));
        let mut nfs = Self {
            is_mounted: false,
            has_server: false,
            _modules: modules.collect::<Result<_, _>>()?,
        };
        start_loopback()?;
        for folder in [EXPORTED, CLIENTS, Self::FOLDER] {
            fs::create_dir_all(folder).map_err(|e| format!("{folder}: {e}"))?;
        }
        nfs.serve()?;
        let options = "vers=4.2,proto=tcp,addr=127.0.0.1,clientaddr=127.0.0.1";
        let source = "127.0.0.1:/";
        let mut last = Ok(());
        // A server that has just started refuses some calls with EIO on a busy host.
        let mounted = wait_for("a mount", BOUND, || {
            let flags = MsFlags::MS_NOATIME;
            last = mount(Some(source), Self::FOLDER, Some("nfs4"), flags, Some(options));
            last.is_ok()
        });
        mounted.map_err(|error| format!("{source}: {error}: {last:?}"))?;
        nfs.is_mounted = true;
        Ok(nfs)
    }

    /// Tables and their formats: fs/nfsd/export.c, net/sunrpc/svcauth_unix.c.
    fn serve(&mut self) -> Result<(), String> {
        const NEVER: u32 = i32::MAX as u32;
        // NFSEXP_INSECURE_PORT, NFSEXP_NOSUBTREECHECK, NFSEXP_FSID of include/uapi/linux/nfsd/export.h
        let flags = 0x2 | 0x400 | 0x2000;
        let kind = Some("nfsd");
        mount(kind, SERVER, kind, MsFlags::empty(), None::<&str>).map_err(|e| format!("{SERVER}: {e}"))?;
        self.has_server = true;
        write(
            "/proc/net/rpc/auth.unix.ip/channel",
            &format!("nfsd 127.0.0.1 {NEVER} us\n"),
        )?;
        // The root of the export tree has file system id 0.
        write(
            "/proc/net/rpc/nfsd.fh/channel",
            &format!("us 1 \\x00000000 {NEVER} {EXPORTED}\n"),
        )?;
        write(
            "/proc/net/rpc/nfsd.export/channel",
            &format!("us {EXPORTED} {NEVER} {flags} 0 0 0\n"),
        )?;
        let set = |file: &str, text: &str| write(&format!("{SERVER}/{file}"), &format!("{text}\n"));
        set("versions", "-2 -3 +4 +4.1 +4.2")?;
        // The shortest grace period; it is ended explicitly, except on kernels without client tracking.
        set("nfsv4leasetime", "10")?;
        set("nfsv4gracetime", "10")?;
        set("portlist", "tcp 2049")?;
        set("threads", "2")?;
        let _ = set("v4_end_grace", "Y");
        Ok(())
    }
}

impl Drop for Nfs {
    fn drop(&mut self) {
        let tell = |what: &str, result: Result<(), String>| {
            if let Err(error) = result {
                eprintln!("{what}: {error}");
            }
        };
        if self.is_mounted {
            let unmounted = wait_for("the last user to end", BOUND, || umount(Self::FOLDER).is_ok());
            tell(Self::FOLDER, unmounted);
        }
        if self.has_server {
            tell(SERVER, write(&format!("{SERVER}/threads"), "0\n"));
            tell(SERVER, umount(SERVER).map_err(|e| e.to_string()));
        }
    }
}

fn write(file: &str, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|e| format!("{file}: {text:?}: {e}"))
}

/// Does the work of `ip link set lo up`; the address is the default.
fn start_loopback() -> Result<(), String> {
    let socket = UdpSocket::bind("0.0.0.0:0").map_err(|e| format!("a socket: {e}"))?;
    // SAFETY: integers, of which 0 is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(*b"lo") {
        *place = byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = libc::IFF_UP as libc::c_short;
    // SAFETY: the request is valid for the call.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) } {
        -1 => Err(format!("lo: {}", std::io::Error::last_os_error())),
        _ => Ok(()),
    }
}
