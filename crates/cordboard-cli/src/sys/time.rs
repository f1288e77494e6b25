//! The interval timer, and the clock.

use std::mem::MaybeUninit;
use std::time::Duration;

/// Sends SIGALRM after `first`, and then every `interval`; zero: never. Returns
/// the previous interval. Async-signal-safe.
pub fn set_timer(first: Duration, interval: Duration) -> Duration {
    let timeval = |time: Duration| libc::timeval {
        tv_sec: time.as_secs() as _,
        tv_usec: time.subsec_micros() as _,
    };
    let timer = libc::itimerval {
        it_interval: timeval(interval),
        it_value: timeval(first),
    };
    let mut before = timer;
    // SAFETY: setitimer(2) reads one itimerval and writes another, which are
    // valid; it is a system call, and async-signal-safe.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, &raw mut before) };
    duration(before.it_interval)
}

/// Returns the time until the timer sends SIGALRM; zero: it does not.
pub fn timer_left() -> Duration {
    let mut timer = MaybeUninit::<libc::itimerval>::zeroed();
    // SAFETY: getitimer(2) writes one itimerval, which is valid for it.
    unsafe { libc::getitimer(libc::ITIMER_REAL, timer.as_mut_ptr()) };
    // SAFETY: all zeros is a valid itimerval, and the call has filled it in.
    duration(unsafe { timer.assume_init() }.it_value)
}

fn duration(time: libc::timeval) -> Duration {
    let micros = u32::try_from(time.tv_usec).unwrap_or(0);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), micros * 1000)
}

/// Returns the time of the monotonic clock. Async-signal-safe, unlike rustix's:
/// its first call reads the auxiliary vector, and allocates for that if
/// `prctl(PR_GET_AUXV)` is missing (before Linux 6.4) or refused.
pub fn now() -> Duration {
    let mut now = MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: clock_gettime(2) writes one timespec, which is valid for it; it is
    // async-signal-safe by POSIX.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, now.as_mut_ptr()) };
    // SAFETY: all zeros is a valid timespec, and the call has filled it in.
    let now = unsafe { now.assume_init() };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
