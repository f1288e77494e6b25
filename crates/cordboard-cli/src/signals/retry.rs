//! Repeating calls that a signal has interrupted.

use std::time::Duration;

use rustix::io::Errno;

use super::alarm::set_timer;
use super::state::{is_pending, reaches_this_thread, stop};
use super::timer::{RETRY, tick, tick_for_drawing};

/// Repeats a call that a signal has interrupted. A file system, such as one in
/// user space, may fail any call with `EINTR`, for example at the signal of the
/// timer that draws progress. Once a signal to stop has arrived, the result is
/// `EINTR`: a problem with this errno is a stop, not a failure.
pub fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    match call() {
        Err(Errno::INTR) if stop().is_none() => {}
        done => return done,
    }
    let done = repeat_interrupted(|| match stop() {
        None => Ok(call()),
        Some(_) => Err(Errno::INTR),
    });
    done.unwrap_or_else(Err)
}

/// Repeats an interrupted call until it succeeds or fails, with the timer that
/// draws progress switched off: a call that takes longer than the timer's
/// interval would be interrupted each time. Other signals have their own timer.
///
/// The process has one timer, which interrupts only the main thread's calls. The
/// threads of `copy` block all signals. If `EINTR` occurs there, it comes from
/// elsewhere, such as a file server. These threads leave the timer alone: two
/// threads that save and restore it would lose it.
pub fn repeat_interrupted<T, E>(
    mut call: impl FnMut() -> Result<Result<T, Errno>, E>,
) -> Result<Result<T, Errno>, E> {
    if !reaches_this_thread() {
        loop {
            match call() {
                Ok(Err(Errno::INTR)) if stop().is_none() => {}
                done => return done,
            }
        }
    }
    let before = set_timer(Duration::ZERO);
    let done = loop {
        match call() {
            Ok(Err(Errno::INTR)) if stop().is_none() => {}
            done => break done,
        }
        // A requested line of progress is printed after the call.
        set_timer(Duration::ZERO);
    };
    if before == RETRY && !is_pending() {
        // It was set for a signal that has been handled meanwhile.
        tick_for_drawing();
    } else if !before.is_zero() {
        tick(before);
    } else if is_pending() {
        set_timer(RETRY);
    }
    done
}

#[cfg(test)]
mod tests {
    use super::super::state::{request_progress, take_progress_request};
    use super::super::timer::draw_every;
    use super::*;
    use crate::sys;

    /// A request that is answered while a call waits leaves no timer behind, or that of the
    /// drawing.
    #[test]
    fn the_timer_of_a_handled_signal_does_not_stay() {
        const HOUR: Duration = Duration::from_secs(3600);
        for drawing in [Duration::ZERO, HOUR] {
            // The process has one timer.
            assert!(testkit::child::in_a_child(|| {
                // Its default is the end of the process.
                sys::ignore(libc::SIGALRM);
                draw_every(drawing);
                let mut calls = 0;
                let done = retry(|| {
                    calls += 1;
                    if calls == 1 {
                        // The handler of SIGUSR1.
                        request_progress();
                        tick(RETRY);
                        return Err(Errno::INTR);
                    }
                    take_progress_request();
                    Ok(())
                });
                let interval = sys::set_timer(Duration::ZERO, Duration::ZERO);
                done == Ok(()) && interval == drawing
            }));
        }
    }
}
