//! Ends the threads that run beside a test.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets the flag that ends them when it is dropped, also by a panic: their scope waits
/// for them.
pub struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
