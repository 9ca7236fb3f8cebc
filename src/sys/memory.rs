//! How the C library manages the memory of this process. If it refuses a setting, or has none, memory is managed as by default.

/// Returns large blocks, such as the kernel's types, to the kernel when they are freed. By default malloc raises its
/// mmap threshold once such a block is freed, and later blocks stay in the heap.
pub fn return_large_blocks() {
    // glibc's initial threshold; setting it explicitly stops it from growing.
    #[cfg(target_env = "gnu")]
    set(&[libc::M_MMAP_THRESHOLD], 128 << 10);
}

/// Keeps a few MiB of freed memory for the next time, as much as a second of the live view or a batch of records needs and
/// gives back. Otherwise both get their memory from the kernel each time, by system calls and page faults.
pub fn keep_freed() {
    #[cfg(target_env = "gnu")]
    set(&[libc::M_MMAP_THRESHOLD, libc::M_TRIM_THRESHOLD], 4 << 20);
}

#[cfg(target_env = "gnu")]
fn set(settings: &[i32], value: i32) {
    for setting in settings {
        // SAFETY: it takes numbers, and changes how memory is managed from now on.
        unsafe { libc::mallopt(*setting, value) };
    }
}
