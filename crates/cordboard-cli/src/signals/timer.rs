//! The interval timer that interrupts the main thread's system calls.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::alarm::set_timer;
use super::state::is_pending;

/// The interval while a signal has not been handled.
pub const RETRY: Duration = Duration::from_millis(20);

/// Interrupts this thread every `interval`, the first time after one. Zero
/// switches the timer off. The interval is shorter while a signal has not been
/// handled.
pub fn tick(interval: Duration) {
    set_timer(interval);
    // This call has replaced the timer of a signal that arrived just before.
    if interval != RETRY && is_pending() {
        set_timer(RETRY);
    }
}

/// The interval for drawing progress, in microseconds.
static DRAWING: AtomicU64 = AtomicU64::new(0);

/// Interrupts this thread every `interval`, so that progress is drawn. Zero: it is not drawn.
pub fn draw_every(interval: Duration) {
    let micros = u64::try_from(interval.as_micros()).unwrap_or(u64::MAX);
    DRAWING.store(micros, Ordering::Relaxed);
    tick(interval);
}

/// Sets the interval for drawing, once no signal is pending any more.
pub(super) fn tick_for_drawing() {
    tick(Duration::from_micros(DRAWING.load(Ordering::Relaxed)));
}

/// Writes a status line. The timer interrupts a write that blocks.
pub fn with_timer<T>(write: impl FnOnce() -> T) -> T {
    tick(RETRY);
    let done = write();
    tick(Duration::ZERO);
    done
}
