//! The monotonic clock.

use std::time::Duration;

/// Returns the time of `CLOCK_MONOTONIC`, which all threads share. Since Linux 2.6;
/// async-signal-safe (`clock_gettime(2)`, by the vDSO).
pub(crate) fn monotonic() -> Duration {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is valid for writes.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    debug_assert_eq!(done, 0);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Returns the processor time of the calling thread (`CLOCK_THREAD_CPUTIME_ID`). Since
/// Linux 2.6.12.
pub(crate) fn thread_time() -> Duration {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is valid for writes.
    let done = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    // A filter may refuse it: then the time stays 0.
    if done != 0 {
        return Duration::ZERO;
    }
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
