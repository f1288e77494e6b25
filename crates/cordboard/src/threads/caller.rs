//! The caller's code on the threads of the library: callbacks, wakers, observers, stages. It
//! may fork and return in both processes.

use super::thread::is_own;
use crate::guarded::guarded;
use crate::sys::{Stamp, end_thread};

/// The process in which a thread of the library has called the caller's code.
struct Process(Stamp);

impl Drop for Process {
    /// In a child of `fork(2)`, ends the thread, which is the only one unless the caller's code
    /// has started others. It would take events from the epoll instance that it shares with the
    /// parent, and move the parent's bytes. Also after a panic.
    fn drop(&mut self) {
        if !self.0.is_here() {
            end_thread();
        }
    }
}

/// Runs the caller's code. A child of `fork(2)` that returns from it on a thread of the library
/// ends. On the caller's own thread, the code that follows is the caller's.
pub(crate) fn run_callers<T>(code: impl FnOnce() -> T) -> T {
    let _process = is_own().then(|| Process(Stamp::here()));
    code()
}

/// As [`run_callers`]. `None` if the code panics.
pub(crate) fn guard_callers<T>(code: impl FnOnce() -> T) -> Option<T> {
    guarded(|| run_callers(code))
}
