//! Errors by their names.

use nix::errno::Errno;

/// `EIO`; `errno 4000` for a number without a name. Traced functions also return codes internal to the kernel
/// (include/linux/errno.h) that user space never sees.
#[must_use]
pub fn errno_name(errno: i32) -> String {
    let internal = match errno {
        512 => "ERESTARTSYS",
        513 => "ERESTARTNOINTR",
        514 => "ERESTARTNOHAND",
        515 => "ENOIOCTLCMD",
        516 => "ERESTART_RESTARTBLOCK",
        517 => "EPROBE_DEFER",
        518 => "EOPENSTALE",
        519 => "ENOPARAM",
        521 => "EBADHANDLE",
        522 => "ENOTSYNC",
        523 => "EBADCOOKIE",
        524 => "ENOTSUPP",
        525 => "ETOOSMALL",
        526 => "ESERVERFAULT",
        527 => "EBADTYPE",
        528 => "EJUKEBOX",
        529 => "EIOCBQUEUED",
        530 => "ERECALLCONFLICT",
        531 => "ENOGRACE",
        _ => "",
    };
    match Errno::from_raw(errno) {
        _ if !internal.is_empty() => String::from(internal),
        Errno::UnknownErrno => format!("errno {errno}"),
        known => format!("{known:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_names() {
        for (errno, name) in [
            (5, "EIO"),
            (11, "EAGAIN"),
            (95, "EOPNOTSUPP"),
            (512, "ERESTARTSYS"),
            (529, "EIOCBQUEUED"),
        ] {
            assert_eq!(errno_name(errno), name);
        }
        for unknown in [-5, 0, 520, 4000, i32::MAX] {
            assert_eq!(errno_name(unknown), format!("errno {unknown}"));
        }
    }
}
