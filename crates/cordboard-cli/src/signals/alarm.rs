//! The interval timer (a process has one), and SIGALRM, which other processes
//! send too: an alarm that was set before this program was started continues
//! (`alarm(2)`, execve(2)), and `kill -ALRM` requests a stop like SIGTERM.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use crate::sys;

/// When the earlier alarm is due, in microseconds of the monotonic clock, by
/// which the timer counts too (`it_real_fn`, kernel/time/itimer.c); 0: none.
static DUE: AtomicI64 = AtomicI64::new(0);
/// SIGALRM was not ignored at the start.
static HANDLED: AtomicBool = AtomicBool::new(false);

/// Keeps an earlier alarm. Called with signals blocked, before SIGALRM has its
/// handler.
pub fn adopt() {
    if sys::ignores(libc::SIGALRM) {
        return;
    }
    HANDLED.store(true, Ordering::SeqCst);
    let now = now();
    let left = sys::timer_left();
    if !left.is_zero() {
        DUE.store(now + micros(left), Ordering::SeqCst);
        // Armed again by this clock: the signal does not arrive before `DUE`.
        set_timer(Duration::ZERO);
    }
}

/// Sends SIGALRM every `interval`, the first time after one, and at the earlier
/// alarm. Zero: only at that alarm. Returns the previous interval.
/// Async-signal-safe.
pub fn set_timer(interval: Duration) -> Duration {
    let first = match DUE.load(Ordering::SeqCst) {
        0 => interval,
        due => {
            let left = u64::try_from(due - now()).unwrap_or(0).max(1);
            let left = Duration::from_micros(left);
            match interval.is_zero() {
                true => left,
                false => left.min(interval),
            }
        }
    };
    sys::set_timer(first, interval)
}

/// Whether a SIGALRM requests a stop: it is not of this timer, or the earlier
/// alarm is due. Async-signal-safe.
pub fn is_to_stop(sent: bool) -> bool {
    let due = DUE.load(Ordering::SeqCst);
    let comes = due != 0 && now() >= due;
    if comes {
        DUE.store(0, Ordering::SeqCst);
    }
    HANDLED.load(Ordering::SeqCst) && (sent || comes)
}

fn now() -> i64 {
    micros(sys::now())
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const TICK: Duration = Duration::from_millis(20);

    #[test]
    fn an_alarm_that_was_set_before_outlasts_the_timer() {
        // The process has one timer.
        assert!(testkit::child::in_a_child(|| {
            DUE.store(0, Ordering::SeqCst);
            sys::set_timer(HOUR, Duration::ZERO);
            adopt();
            let none_yet = !is_to_stop(false);
            let begun = set_timer(HOUR * 2);
            let first = sys::timer_left();
            let ticks = set_timer(Duration::ZERO);
            let kept = sys::timer_left();
            DUE.store(now(), Ordering::SeqCst);
            let comes = [is_to_stop(false), is_to_stop(false)];
            set_timer(Duration::ZERO);
            none_yet
                && [begun, ticks] == [Duration::ZERO, HOUR * 2]
                && [first, kept].map(|left| left <= HOUR && left > HOUR / 2) == [true; 2]
                && comes == [true, false]
                && sys::timer_left().is_zero()
        }));
    }

    #[test]
    fn what_was_ignored_is_not_heeded() {
        assert!(testkit::child::in_a_child(|| {
            // Other tests have installed the handlers.
            HANDLED.store(false, Ordering::SeqCst);
            DUE.store(0, Ordering::SeqCst);
            sys::ignore(libc::SIGALRM);
            sys::set_timer(HOUR, Duration::ZERO);
            adopt();
            let sent = is_to_stop(true);
            set_timer(TICK);
            !sent && DUE.load(Ordering::SeqCst) == 0
        }));
    }
}
