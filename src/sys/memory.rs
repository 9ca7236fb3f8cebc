//! How the C library manages the memory of this process. If it refuses a setting, memory is managed as by default.

/// Returns large blocks, such as the kernel's types, to the kernel when they are freed. By default malloc raises its
/// mmap threshold once such a block is freed, and later blocks stay in the heap.
pub fn return_large_blocks() {
    /// glibc's initial threshold; setting it explicitly stops it from growing.
    const LARGE: i32 = 128 << 10;
    set(&[libc::M_MMAP_THRESHOLD], LARGE);
}

/// Keeps up to so many bytes of freed memory for the next time. Otherwise work that is done each second gets its memory from
/// the kernel each time, by system calls and page faults.
pub fn keep_freed(bytes: i32) {
    set(&[libc::M_MMAP_THRESHOLD, libc::M_TRIM_THRESHOLD], bytes);
}

fn set(settings: &[i32], value: i32) {
    for setting in settings {
        // SAFETY: it takes numbers, and changes how memory is managed from now on.
        unsafe { libc::mallopt(*setting, value) };
    }
}
