//! Whether an event counter (`eventfd(2)`) accepts a given number, which its
//! readiness does not show.

use std::os::fd::{AsRawFd, BorrowedFd};

use super::numbers::NUMBER;
use crate::sys;

/// Whether a counter that polled writable accepts the first of these numbers
/// without blocking.
///
/// `poll(2)` reports it writable if it accepts a 1. For more, its value must be
/// known, and no call returns it without changing it; procfs shows it. A write
/// has no flag of its own against blocking either: `RWF_NOWAIT` is `EOPNOTSUPP`
/// (fs/eventfd.c has no `write_iter`), and `O_NONBLOCK` would affect every
/// process that shares the counter.
///
/// So two kinds of write can block until the counter is next read: one for
/// which another process's write, between the check and the call, has left no
/// room, and any write without procfs.
pub(super) fn takes(sink: BorrowedFd<'_>, numbers: &[u8]) -> bool {
    let Some(number) = numbers.first_chunk::<NUMBER>() else {
        // Less than a number: EINVAL at once.
        return true;
    };
    let number = u64::from_ne_bytes(*number);
    // The largest number is EINVAL at once.
    if number <= 1 || number == u64::MAX {
        return true;
    }
    value(sink).is_none_or(|value| number < u64::MAX - value)
}

/// Reads the value of a counter: `proc_pid_fdinfo(5)`, `eventfd-count`, since
/// Linux 3.8.
fn value(fd: BorrowedFd<'_>) -> Option<u64> {
    let file = format!("/proc/thread-self/fdinfo/{}", fd.as_raw_fd());
    sys::hexadecimal(&file, "eventfd-count:")
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::event::{EventfdFlags, eventfd};

    use super::*;

    /// Writes what `takes` says fits, and compares.
    #[test]
    fn what_it_takes_is_what_the_kernel_says() {
        let test = "what_it_takes_is_what_the_kernel_says";
        if testkit::needs::missing(test, &[testkit::needs::Need::Eventfd]) {
            return;
        }
        for value in [0, 1, 2, 5, u64::MAX - 2, u64::MAX - 1] {
            for number in [0, 1, 2, u64::MAX - 6, u64::MAX - 3, u64::MAX - 1, u64::MAX] {
                let counter = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap();
                rustix::io::write(&counter, &value.to_ne_bytes()).unwrap();
                assert_eq!(super::value(counter.as_fd()), Some(value));
                let said = takes(counter.as_fd(), &number.to_ne_bytes());
                let done = rustix::io::write(&counter, &number.to_ne_bytes());
                let waits = done == Err(rustix::io::Errno::AGAIN);
                // A 1 is only written after poll has reported room for it.
                assert!(said != waits || number == 1, "{value} + {number}: {done:?}");
            }
        }
    }
}
