//! Running a transfer step by step on the caller's thread.

use rustix::event::Timespec;
use rustix::thread::nanosleep;

use super::poll::Poll;
use super::spin::SPIN_TIME;
use super::stepper::Stepper;
use super::transfer::Transfer;
use super::turn::{Next, Turn, Wait, WaitFor};
use super::wait::{BACKOFF, Waiter, Wakeup};
use crate::endpoint::Side;
use crate::errno::Errno;
use crate::report::Outcome;
use crate::request::{Declined, Why};
use crate::sys::{SignalGuard, file_size_limit, sigpipe_is_ignored};

impl Transfer<'_> {
    /// Whether the thread may sleep inside system calls: nobody needs it back
    /// before they return, or somebody interrupts them.
    fn may_sleep(&self) -> bool {
        let interval = self.observer.as_ref().and_then(|o| o.interval());
        self.request.idle.is_none()
            && match &self.control {
                Some(control) => control.interrupts(),
                None => interval.is_none(),
            }
    }

    /// Somebody wants the thread back, and may want it while a step waits for
    /// the lock of a pipe.
    fn polls_source_first(&self) -> bool {
        let interval = self.observer.as_ref().and_then(|o| o.interval());
        let timed = self.request.idle.is_some() || interval.is_some();
        (timed || self.control.is_some()) && self.source_may_be_locked()
    }

    /// Finds out whether its control can wake it.
    pub(crate) fn listen(&mut self) {
        if let Some(control) = &mut self.control {
            control.listen();
        }
    }

    /// The sink raises signals where it fails.
    fn needs_hold(&self) -> bool {
        let kind = self.flow.sink.kind();
        if kind.is_cached() {
            // Where nobody says, there may be one.
            file_size_limit().map_or(true, |limit| limit.is_some())
        } else {
            kind.can_block() && !sigpipe_is_ignored()
        }
    }
}

impl Transfer<'_> {
    /// Moves the bytes on the caller's thread, and says how it went.
    ///
    /// A signal handled by the caller's own handler does not end it; see
    /// [`Control`] for what does.
    ///
    /// The transfer sleeps inside its system calls if it has no
    /// [`Request::idle`], no [`Control`] and no observer with an interval, or
    /// if its `Control` [interrupts](Control::interrupting) it. While it sleeps in
    /// a call on its source, it does not notice that its sink is dead. So if
    /// `poll(2)` shows that of the sink, it polls a source that is a pipe, a socket
    /// or a terminal instead; but it sleeps in `splice(2)` from a blocking TCP
    /// connection that has just given a full step, which is 1 MiB.
    ///
    /// [`Control::cancel`] and [`Request::idle`] take effect only after a
    /// system call that blocks and cannot be interrupted has returned; see
    /// [`Running::cancel`](crate::Running::cancel) for which calls do.
    pub fn run(self) -> Outcome {
        run(self, &mut Poll::new())
    }
}

/// Runs to the end.
pub(super) fn run(mut transfer: Transfer<'_>, waiter: &mut dyn Waiter) -> Outcome {
    let mut stepper = Stepper::begin(waiter.now());
    transfer.listen();
    let hold = if transfer.needs_hold() {
        SignalGuard::start()
    } else {
        None
    };
    let may_sleep = transfer.may_sleep();
    transfer.flow.let_sleep(may_sleep);
    transfer.reopen_terminals();
    let watched = transfer.observer.is_some() || transfer.control.is_some();
    transfer.flow.mode.set_watched(watched);
    let turn = turns(&mut transfer, &mut stepper, waiter);
    let outcome = transfer.settle(&turn, waiter, stepper.start);
    drop(hold);
    outcome
}

/// Step after step, and waiting in between, until there is an end.
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
                match pause(transfer, waiter, &wait) {
                    Ok(wakeup) if wakeup == Wakeup::default() => {
                        stepper.notify_observer(transfer, waiter);
                        match stepper.unless_idle(transfer, wait.target, waiter) {
                            Next::Wait(_) => Next::Step,
                            end => end,
                        }
                    }
                    Ok(wakeup) => {
                        source_polled = wakeup.ready;
                        stepper.resume(transfer, wait, wakeup, waiter)
                    }
                    // A filter's word, which says nothing of the pipe.
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
            Next::Wait(wait) => match pause(transfer, waiter, &wait) {
                Ok(wakeup) => {
                    source_polled = wakeup.ready;
                    stepper.resume(transfer, wait, wakeup, waiter)
                }
                Err(errno) if errno.is_refusal() => return transfer.cannot_wait(errno),
                Err(errno) => return Turn::Failed(wait.side(), Some(errno)),
            },
        }
    }
}

/// Waits for what a transfer needs.
fn pause(
    transfer: &mut Transfer<'_>,
    waiter: &mut dyn Waiter,
    wait: &Wait,
) -> Result<Wakeup, Errno> {
    if wait.target == WaitFor::Side(Side::Sink) && transfer.spin.worth_it(&transfer.flow) {
        match waiter.spin(&wait.interest(transfer), SPIN_TIME) {
            Ok(wakeup) => {
                transfer.spin.learn(wakeup.ready);
                if wakeup != Wakeup::default() {
                    return Ok(wakeup);
                }
            }
            Err(errno) if errno.is_refusal() => {}
            Err(errno) => return Err(errno),
        }
    }
    match waiter.wait(&wait.interest(transfer), wait.timeout) {
        Err(errno) if errno.is_refusal() => transfer.continue_without_poll(wait).ok_or(errno),
        done => done,
    }
}

impl Transfer<'_> {
    /// A filter refuses each call that tells what is ready. A call that may wait
    /// does so itself, and one that never waits is made again after a rest. `None`:
    /// it would wait, and the thread is wanted back.
    fn continue_without_poll(&mut self, wait: &Wait) -> Option<Wakeup> {
        let asks_itself = self.step_checked_readiness(wait);
        if asks_itself {
            let rest = wait.timeout.map_or(BACKOFF, |timeout| timeout.min(BACKOFF));
            let _ = Timespec::try_from(rest).map(|rest| nanosleep(&rest));
        }
        if self.flow.mode.may_sleep() {
            // No call tells whether the sink dies meanwhile, either.
            self.flow.source.ready.may_sleep = true;
        }
        (asks_itself || self.flow.mode.may_sleep()).then_some(Wakeup {
            ready: true,
            open: true,
            ..Wakeup::default()
        })
    }

    /// The failure is neither side's.
    fn cannot_wait(&mut self, errno: Errno) -> Turn {
        self.declined.push(Declined {
            path: self.path(),
            why: Why::CannotWait,
        });
        Turn::Failed(None, Some(errno))
    }
}
