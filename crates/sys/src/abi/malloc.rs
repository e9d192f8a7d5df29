//! Numbers of the C library's allocator.

pub(crate) use libc::{M_ARENA_MAX, M_MMAP_THRESHOLD};

/// Gives whole pages that are free back to the kernel, wherever they lie in the heaps.
pub(crate) fn trim_heaps() {
    // SAFETY: it takes the allocator's own locks; what is in use stays where it is.
    unsafe { libc::malloc_trim(0) };
}

/// Whether the allocator took it.
pub(crate) fn set_heap_number(parameter: libc::c_int, value: libc::c_int) -> bool {
    // SAFETY: two numbers, by value; the allocator changes its parameter under its own lock.
    unsafe { libc::mallopt(parameter, value) != 0 }
}
