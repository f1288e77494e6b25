//! Running a transfer step by step on the caller's thread.

use rustix::event::Timespec;
use rustix::thread::nanosleep;

use super::poll::Poll;
use super::spin::SPELL;
use super::transfer::Transfer;
use super::turn::{Course, Need, Next, Turn, What};
use super::wait::{Awake, REST, Waiter};
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
    fn looks_first(&self) -> bool {
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
    /// [`Control`](crate::Control) for what does.
    ///
    /// The transfer sleeps inside its system calls if it has no
    /// [`Request::idle`](crate::Request::idle), no [`Control`](crate::Control) and no observer with an interval, or
    /// if its `Control` [interrupts](crate::Control::interrupting) it. While it sleeps in
    /// a call on its source, it does not notice that its sink is dead. So if
    /// `poll(2)` shows that of the sink, it polls a source that is a pipe, a socket
    /// or a terminal instead; but it sleeps in `splice(2)` from a blocking TCP
    /// connection that has just given a full step, which is 1 MiB.
    ///
    /// [`Control::cancel`](crate::Control::cancel) and [`Request::idle`](crate::Request::idle) take effect only after a
    /// system call that blocks and cannot be interrupted has returned; see
    /// [`Running::cancel`](crate::Running::cancel) for which calls do.
    pub fn run(self) -> Outcome {
        run(self, &mut Poll::new())
    }
}

/// Runs to the end.
pub(super) fn run(mut transfer: Transfer<'_>, waiter: &mut dyn Waiter) -> Outcome {
    let mut course = Course::begin(waiter.now());
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
    let turn = turns(&mut transfer, &mut course, waiter);
    let outcome = transfer.settle(&turn, waiter, course.start);
    drop(hold);
    outcome
}

/// Step after step, and waiting in between, until there is an end.
fn turns(transfer: &mut Transfer<'_>, course: &mut Course, waiter: &mut dyn Waiter) -> Turn {
    let mut next = Next::Step;
    let mut looked = false;
    loop {
        next = match next {
            Next::Step | Next::Elsewhere
                if !looked && transfer.looks_first() && !transfer.finds_a_fifo_over() =>
            {
                let need = course.ask(transfer, What::Side(Side::Source), waiter);
                match pause(transfer, waiter, &need) {
                    Ok(awake) if awake == Awake::default() => {
                        course.tell(transfer, waiter);
                        match course.unless_idle(transfer, need.what, waiter) {
                            Next::Wait(_) => Next::Step,
                            end => end,
                        }
                    }
                    Ok(awake) => {
                        looked = awake.ready;
                        course.resume(transfer, need, awake, waiter)
                    }
                    // A filter's word, which says nothing of the pipe.
                    Err(_) => {
                        looked = true;
                        Next::Step
                    }
                }
            }
            Next::Step | Next::Elsewhere => {
                looked = false;
                course.step(transfer, false, waiter)
            }
            Next::End(turn) => return turn,
            Next::Wait(need) => match pause(transfer, waiter, &need) {
                Ok(awake) => {
                    looked = awake.ready;
                    course.resume(transfer, need, awake, waiter)
                }
                Err(errno) if errno.is_refusal() => return transfer.cannot_wait(errno),
                Err(errno) => return Turn::Failed(need.side(), Some(errno)),
            },
        }
    }
}

/// Waits for what a transfer needs.
fn pause(
    transfer: &mut Transfer<'_>,
    waiter: &mut dyn Waiter,
    need: &Need,
) -> Result<Awake, Errno> {
    if need.what == What::Side(Side::Sink) && transfer.spin.worth_it(&transfer.flow) {
        match waiter.watch(&need.interest(transfer), SPELL) {
            Ok(awake) => {
                transfer.spin.learn(awake.ready);
                if awake != Awake::default() {
                    return Ok(awake);
                }
            }
            Err(errno) if errno.is_refusal() => {}
            Err(errno) => return Err(errno),
        }
    }
    match waiter.wait(&need.interest(transfer), need.timeout) {
        Err(errno) if errno.is_refusal() => transfer.go_on_unasked(need).ok_or(errno),
        done => done,
    }
}

impl Transfer<'_> {
    /// A filter refuses each call that tells what is ready. A call that may wait
    /// does so itself, and one that never waits is made again after a rest. `None`:
    /// it would wait, and the thread is wanted back.
    fn go_on_unasked(&mut self, need: &Need) -> Option<Awake> {
        let asks_itself = self.tells_by_itself(need);
        if asks_itself {
            let rest = need.timeout.map_or(REST, |timeout| timeout.min(REST));
            let _ = Timespec::try_from(rest).map(|rest| nanosleep(&rest));
        }
        if self.flow.mode.may_sleep() {
            // No call tells whether the sink dies meanwhile, either.
            self.flow.source.ready.may_sleep = true;
        }
        (asks_itself || self.flow.mode.may_sleep()).then_some(Awake {
            ready: true,
            open: true,
            ..Awake::default()
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
