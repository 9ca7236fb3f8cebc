//! The capabilities of a thread: capget(2), capset(2). Threads that it starts inherit them.

use std::io;

/// `_LINUX_CAPABILITY_VERSION_3` (include/uapi/linux/capability.h): two words of each set.
const VERSION: u32 = 0x2008_0522;

#[repr(C)]
struct Header {
    version: u32,
    /// 0: the calling thread.
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Words {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Sets of capabilities, a bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sets {
    pub effective: u64,
    pub permitted: u64,
}

const HEADER: Header = Header {
    version: VERSION,
    pid: 0,
};

/// Those of the calling thread.
///
/// # Errors
/// The error of the kernel.
pub fn get() -> io::Result<Sets> {
    let mut header = HEADER;
    let mut words = [Words::default(); 2];
    // SAFETY: both point to what version 3 of the call reads and writes.
    let result = unsafe { libc::syscall(libc::SYS_capget, &raw mut header, words.as_mut_ptr()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let whole = |word: fn(&Words) -> u32| u64::from(word(&words[1])) << 32 | u64::from(word(&words[0]));
    Ok(Sets {
        effective: whole(|words| words.effective),
        permitted: whole(|words| words.permitted),
    })
}

/// Makes these the calling thread's, with nothing for programs that it executes.
///
/// # Errors
/// The error of the kernel: EPERM if one is not permitted now.
pub fn set(sets: Sets) -> io::Result<()> {
    let mut header = HEADER;
    let half = |shift: u32| Words {
        effective: (sets.effective >> shift) as u32,
        permitted: (sets.permitted >> shift) as u32,
        inheritable: 0,
    };
    let words = [half(0), half(32)];
    // SAFETY: both point to what version 3 of the call reads.
    let result = unsafe { libc::syscall(libc::SYS_capset, &raw mut header, words.as_ptr()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_up_is_gone() {
        // Of this thread only.
        let before = get().unwrap();
        set(Sets {
            effective: 0,
            permitted: before.permitted,
        })
        .unwrap();
        assert_eq!(get().unwrap().effective, 0);
        set(before).unwrap();
        assert_eq!(get().unwrap(), before);
        let none = Sets {
            effective: 0,
            permitted: 0,
        };
        set(none).unwrap();
        assert_eq!(get().unwrap(), none);
        assert!(before == none || set(before).is_err());
    }
}
