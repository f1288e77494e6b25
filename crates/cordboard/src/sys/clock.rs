//! The monotonic clock, and the processor time of a thread.

use std::time::Duration;

use rustix::thread::{ClockId, Timespec, clock_nanosleep_relative};

/// Returns the time of `CLOCK_MONOTONIC`, which all threads share. Since Linux 2.6;
/// async-signal-safe (`clock_gettime(2)`, by the vDSO).
pub(crate) fn monotonic() -> Duration {
    let now = read(libc::CLOCK_MONOTONIC);
    debug_assert!(now.is_some());
    now.unwrap_or_default()
}

/// Returns the processor time of the calling thread (`CLOCK_THREAD_CPUTIME_ID`); 0 if a
/// filter refuses it. Since Linux 2.6.12.
pub(crate) fn thread_time() -> Duration {
    read(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or_default()
}

/// Sleeps for 50 µs, or until a signal arrives. `std::thread::sleep` would sleep without end while
/// signals arrive faster than it begins.
///
/// Public for the C library only; not part of the API.
pub fn sleep_a_moment() {
    const MOMENT: Timespec = Timespec {
        tv_sec: 0,
        tv_nsec: 50_000,
    };
    let _ = clock_nanosleep_relative(ClockId::Monotonic, &MOMENT);
}

fn read(clock: libc::clockid_t) -> Option<Duration> {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is valid for writes.
    let done = unsafe { libc::clock_gettime(clock, &raw mut now) };
    (done == 0).then(|| Duration::new(now.tv_sec as u64, now.tv_nsec as u32))
}
