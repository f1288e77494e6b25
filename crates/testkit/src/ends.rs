//! Ends the threads that run beside a test.

use std::sync::atomic::{AtomicBool, Ordering};

/// Sets the flag that ends the threads when this is dropped, also by a panic: the scope
/// of the threads waits for their end.
pub struct Ends<'a>(pub &'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
