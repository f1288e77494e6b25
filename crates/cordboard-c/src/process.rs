//! Per-process state, and its locks.

use std::convert::Infallible;
use std::sync::MutexGuard;

use cordboard::{Lock, PerProcess};

/// Returns this process's value, which `make` makes at the first use. In a
/// child of `fork(2)`, `make` gets the parent's value.
pub(crate) fn value<T: Send + Sync>(
    slot: &'static PerProcess<T>,
    make: impl Fn(Option<&'static T>) -> T,
) -> &'static T {
    let Ok(value) = slot.get(|parents| Ok::<_, Infallible>(make(parents)));
    value
}

/// Locks a part of this process's state, which `find` returns. Calls `find`
/// again if a signal handler has forked in between: the child has its own
/// state.
pub(crate) fn lock<T>(find: impl Fn() -> &'static Lock<T>) -> MutexGuard<'static, T> {
    loop {
        if let Some(guard) = find().lock() {
            return guard;
        }
    }
}
