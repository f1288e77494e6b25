//! Counts the bytes that a test program has allocated.
//!
//! ```
//! use testkit::allocated::Counting;
//!
//! #[global_allocator]
//! static ALLOCATOR: Counting = Counting;
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The system's allocator, with a count of the allocated bytes of the whole process.
#[derive(Debug)]
pub struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);

/// Returns the number of bytes that are allocated now.
pub fn in_use() -> usize {
    IN_USE.load(Ordering::Relaxed)
}

// SAFETY: all calls are forwarded to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        IN_USE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller fulfils the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller fulfils the contract of `dealloc`.
        unsafe { System.dealloc(start, layout) }
    }
}
