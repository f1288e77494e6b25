//! Waits that a signal to stop ends.

use std::os::fd::AsFd;
use std::time::Duration;

use cordboard::poll_for;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::thread::nanosleep;

use crate::output::print_status;
use crate::polling::timespec;
use crate::signals::{
    Interrupted, check_stop, reaches_this_thread, repeat_interrupted, take_progress_request,
    with_timer, written,
};
use crate::units;

/// Repeats a system call while a signal interrupts it, until it is done or a
/// signal to stop arrives.
pub fn interruptible<T>(
    mut call: impl FnMut() -> Result<T, Errno>,
) -> Result<Result<T, Errno>, Interrupted> {
    check_stop()?;
    match call() {
        Err(Errno::INTR) => {}
        done => return Ok(done),
    }
    let done = repeat_interrupted(|| {
        check_stop()?;
        if reaches_this_thread() && take_progress_request() {
            let written = units::number_of(written(), "byte");
            let line = format!("{written} written: still waiting for an endpoint");
            with_timer(|| print_status(line));
        }
        Ok(call())
    })?;
    if matches!(done, Err(Errno::INTR)) {
        check_stop()?;
    }
    Ok(done)
}

/// Waits until the descriptor is ready, or until the time is over: `false`.
pub fn wait(
    fd: impl AsFd,
    events: PollFlags,
    time: Option<Duration>,
) -> Result<Result<bool, Errno>, Interrupted> {
    wait_for_any(&mut [PollFd::new(&fd, events)], time)
}

/// Waits until one of the descriptors is ready, or until the time is over: `false`.
pub fn wait_for_any(
    fds: &mut [PollFd<'_>],
    time: Option<Duration>,
) -> Result<Result<bool, Errno>, Interrupted> {
    let time = time.map(timespec);
    interruptible(|| poll_for(fds, time.as_ref()).map(|ready| ready > 0))
}

/// Waits for this time.
pub fn pause(time: Duration) -> Result<(), Interrupted> {
    let time = timespec(time);
    // A filter may refuse poll(2).
    if interruptible(|| poll_for(&mut [], Some(&time)))?.is_err() {
        let _ = nanosleep(&time);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;
    use crate::signals::{request_progress, retry};
    use crate::sys;

    /// Both are interrupted. The thread of `copy` ends between two calls of the
    /// main thread.
    #[test]
    fn a_thread_that_no_signal_reaches_leaves_the_timer_alone() {
        let hour = Duration::from_secs(3600);
        // The process has one timer.
        assert!(testkit::child::in_a_child(|| {
            sys::set_timer(hour, hour);
            let ((begun, has_begun), (end, ends)) = (channel(), channel());
            request_progress();
            let other = sys::without_signals(|| {
                std::thread::spawn(move || {
                    let mut calls = 0;
                    let call = || {
                        calls += 1;
                        if calls == 1 {
                            return Err(Errno::INTR);
                        }
                        begun.send(()).unwrap();
                        ends.recv().unwrap();
                        Ok(())
                    };
                    interruptible(call).is_ok_and(|done| done.is_ok())
                })
            });
            has_begun.recv().unwrap();
            // It does not report progress either: the main thread does.
            let untold = take_progress_request();
            let (mut calls, mut other) = (0, Some(other));
            let done = retry(|| {
                calls += 1;
                if calls == 2 {
                    end.send(()).unwrap();
                    let other = other.take().unwrap();
                    assert!(other.join().unwrap());
                }
                if calls < 3 { Err(Errno::INTR) } else { Ok(()) }
            });
            let hour_left = sys::set_timer(Duration::ZERO, Duration::ZERO) == hour;
            untold && done == Ok(()) && calls == 3 && hour_left
        }));
    }
}
