//! Runs a transfer step by step on the caller's thread.

use rustix::event::Timespec;
use rustix::thread::nanosleep;

use super::stepper::Stepper;
use super::transfer::Transfer;
use super::turn::{Next, Turn, Wait, WaitFor};
use super::wait::{BACKOFF, Waiter, Wakeup};
use super::wait::{Poll, SPIN_TIME};
use crate::endpoint::Side;
use crate::errno::Errno;
use crate::report::Outcome;
use crate::request::{Declined, Why};
use crate::sys::{SignalGuard, file_size_limit, sigpipe_is_ignored};

impl Transfer<'_> {
    /// Returns whether the thread may sleep inside system calls: nothing needs it
    /// before they return, or a signal interrupts them.
    fn may_sleep(&self) -> bool {
        let interval = self.observer.as_ref().and_then(|o| o.interval());
        self.request.idle.is_none()
            && match &self.control {
                Some(control) => control.interrupts(),
                None => interval.is_none(),
            }
    }

    /// Returns whether the source is polled before each step: the thread may be
    /// needed while a step waits for the lock of a pipe.
    fn polls_source_first(&self) -> bool {
        let interval = self.observer.as_ref().and_then(|o| o.interval());
        let timed = self.request.idle.is_some() || interval.is_some();
        (timed || self.control.is_some()) && self.source_may_be_locked()
    }

    /// Registers with the control, which determines whether it can wake this thread.
    pub(crate) fn listen(&mut self) {
        if let Some(control) = &mut self.control {
            control.listen();
        }
    }

    /// Returns whether writing to the sink may raise a signal.
    pub(super) fn needs_guard(&self) -> bool {
        let kind = self.flow.sink.kind();
        if kind.is_cached() {
            // Assumes a limit if it cannot be read.
            file_size_limit().map_or(true, |limit| limit.is_some())
        } else {
            kind.can_block() && !sigpipe_is_ignored()
        }
    }
}

impl Transfer<'_> {
    /// Moves the bytes on the caller's thread and returns the outcome.
    ///
    /// A signal that the caller's own handler handles does not end the transfer;
    /// [`Control`](crate::Control) does.
    ///
    /// The transfer sleeps inside its system calls if it has no [`Request::idle`], no
    /// [`Control`] and no observer with an interval, or if its `Control`
    /// [interrupts](crate::Control::interrupting) it. While it sleeps in a call on its
    /// source, it does not notice that its sink has failed. So if `poll(2)` can report
    /// that failure, the transfer polls a source that is a pipe, a socket or a
    /// terminal, together with the sink. There is one exception: it sleeps in
    /// `splice(2)` from a blocking TCP connection that has just delivered a full step
    /// (1 MiB).
    ///
    /// [`Control::cancel`](crate::Control::cancel) and
    /// [`Request::idle`](crate::Request::idle) take effect only after a system call
    /// that blocks and cannot be interrupted has returned; see
    /// [`Running::cancel`](crate::Running::cancel) for which calls do.
    ///
    /// [`Control`]: crate::Control
    /// [`Control::cancel`]: crate::Control::cancel
    /// [`Request::idle`]: crate::Request::idle
    pub fn run(self) -> Outcome {
        run(self, &mut Poll::new())
    }
}

/// Runs the transfer to its end.
pub(super) fn run(mut transfer: Transfer<'_>, waiter: &mut dyn Waiter) -> Outcome {
    let mut stepper = Stepper::begin(waiter.now());
    transfer.listen();
    let hold = if transfer.needs_guard() {
        SignalGuard::start()
    } else {
        None
    };
    let may_sleep = transfer.may_sleep();
    transfer.flow.set_may_sleep(may_sleep);
    transfer.reopen_terminals();
    let watched = transfer.observer.is_some() || transfer.control.is_some();
    transfer.flow.mode.set_watched(watched);
    let turn = turns(&mut transfer, &mut stepper, waiter);
    let outcome = transfer.settle(&turn, waiter, stepper.start);
    drop(hold);
    outcome
}

/// Takes steps, and waits in between, until the transfer ends.
fn turns(transfer: &mut Transfer<'_>, stepper: &mut Stepper, waiter: &mut dyn Waiter) -> Turn {
    let mut next = Next::Step;
    let mut source_polled = false;
    loop {
        next = match next {
            Next::Step | Next::Elsewhere
                if !source_polled
                    && transfer.polls_source_first()
                    && !transfer.fifo_has_no_writer() =>
            {
                let wait = stepper.new_wait(transfer, WaitFor::Side(Side::Source), waiter);
                match wait_for(transfer, waiter, &wait) {
                    Ok(wakeup) if wakeup == Wakeup::default() => {
                        stepper.notify_observer(transfer, waiter);
                        match stepper.unless_idle(transfer, wait.target, waiter) {
                            Next::Wait(_) => Next::Step,
                            end => end,
                        }
                    }
                    Ok(wakeup) => {
                        source_polled = wait.found_source(wakeup);
                        stepper.resume(transfer, wait, wakeup, waiter)
                    }
                    // From a seccomp filter: it says nothing about the pipe.
                    Err(_) => {
                        source_polled = true;
                        Next::Step
                    }
                }
            }
            Next::Step | Next::Elsewhere => {
                source_polled = false;
                stepper.step(transfer, false, waiter)
            }
            Next::End(turn) => return turn,
            Next::Wait(wait) => match wait_for(transfer, waiter, &wait) {
                Ok(wakeup) => {
                    source_polled = wait.found_source(wakeup);
                    stepper.resume(transfer, wait, wakeup, waiter)
                }
                Err(errno) if errno.is_refusal_or_invalid() => return transfer.cannot_wait(errno),
                Err(errno) => return Turn::Failed(wait.side(), Some(errno)),
            },
        }
    }
}

/// Waits as the transfer requires.
fn wait_for(
    transfer: &mut Transfer<'_>,
    waiter: &mut dyn Waiter,
    wait: &Wait,
) -> Result<Wakeup, Errno> {
    if wait.target == WaitFor::Side(Side::Sink) && transfer.spin.should_spin(&transfer.flow) {
        match waiter.spin(&wait.interest(transfer), SPIN_TIME) {
            Ok(wakeup) => {
                transfer.spin.record(wakeup.ready);
                if wakeup != Wakeup::default() {
                    return Ok(wakeup);
                }
            }
            Err(errno) if errno.is_refusal_or_invalid() => {}
            Err(errno) => return Err(errno),
        }
    }
    match wait.take(transfer, waiter) {
        Err(errno) if errno.is_refusal_or_invalid() => {
            transfer.continue_without_poll(wait).ok_or(errno)
        }
        done => done,
    }
}

impl Transfer<'_> {
    /// Continues although a seccomp filter refuses every call that reports readiness.
    /// A call that may block is left to block, and a call that never blocks is
    /// repeated after a pause. `None`: a call would block, and the thread may be
    /// needed.
    fn continue_without_poll(&mut self, wait: &Wait) -> Option<Wakeup> {
        let retries = self.step_checked_readiness(wait);
        if retries {
            let backoff = wait.timeout.map_or(BACKOFF, |timeout| timeout.min(BACKOFF));
            let _ = Timespec::try_from(backoff).map(|backoff| nanosleep(&backoff));
        }
        if self.flow.mode.may_sleep() {
            // A source is otherwise polled together with the sink, but no call reports
            // a failure of the sink either.
            self.flow.source.ready.may_sleep = true;
        }
        (retries || self.flow.mode.may_sleep()).then_some(Wakeup {
            ready: true,
            open: true,
            ..Wakeup::default()
        })
    }

    /// Ends the transfer with a failure of neither side.
    pub(super) fn cannot_wait(&mut self, errno: Errno) -> Turn {
        self.declined.push(Declined {
            path: self.path(),
            why: Why::CannotWait,
        });
        Turn::Failed(None, Some(errno))
    }
}
