//! Decides the next action of a transfer. All that run one share this (the synchronous driver, the
//! engine, a [`Stepping`](super::Stepping), the compositions): they only wait differently.

use std::time::Duration;

use super::thread_kind::ThreadKind;
use super::turn::{Next, SHORT, Turn, Wait, WaitFor};
use super::wait::{
    BACKOFF, Clock, Interest, Threshold, Waiter, Wakeup, hides_shutdown, sink_error,
};
use super::{Control, Progress, Transfer};
use crate::endpoint::Side;
use crate::errno::Errno;
use crate::report::Ended;

/// The number of consecutive times that `poll(2)` may report a descriptor ready and
/// the call then return `EAGAIN`. More are no coincidence and would keep the
/// processor busy, so each further try follows a pause.
const SPURIOUS: u32 = 32;

/// The interval at which a full sink is tried if no wait reports its shutdown.
pub(super) const FULL_SINK_RETRY: Duration = Duration::from_secs(1);

/// The interval at which a transfer checks whether a late answer of `pipe::FifoCheck` has
/// arrived.
const FIFO_CHECK: Duration = Duration::from_millis(100);

/// The state of a transfer that its runner needs between steps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stepper {
    pub(crate) start: Duration,
    last_progress: Duration,
    spurious: u32,
    /// The source was idle for too long, and buffered bytes are written.
    flushing: bool,
    /// The start of the first wait for the source since bytes have last moved.
    silent_since: Option<Duration>,
    /// The source counts as ended, because it was silent ([`Threshold::Silence`]).
    source_ended: bool,
    /// It is paused, or was at the last step: the idle limit does not run.
    paused: bool,
    /// The number of pauses at the last step.
    pauses: u32,
    /// The source was at rest at the last wait for it.
    source_rested: bool,
    /// The time from the last step to the next grant of the schedule.
    next_grant: Option<Duration>,
    /// The start of the last wait for the schedule.
    held_since: Duration,
}

impl Stepper {
    pub(crate) fn begin(now: Duration) -> Stepper {
        Stepper {
            start: now,
            last_progress: now,
            spurious: 0,
            flushing: false,
            silent_since: None,
            source_ended: false,
            paused: false,
            pauses: 0,
            source_rested: false,
            next_grant: None,
            held_since: now,
        }
    }

    /// Stops the idle limit while the transfer is paused; it starts again afterwards.
    fn note_pause(&mut self, transfer: &Transfer<'_>, clock: &mut dyn Clock) {
        let Some(control) = &transfer.control else {
            return;
        };
        let pauses = std::mem::replace(&mut self.pauses, control.pauses());
        let was_paused = std::mem::replace(&mut self.paused, control.is_paused());
        if (was_paused || pauses != self.pauses) && !self.paused {
            self.last_progress = clock.now();
        }
    }

    /// Takes one step and decides the next action.
    pub(crate) fn step(
        &mut self,
        transfer: &mut Transfer<'_>,
        cancelled: bool,
        waiter: &mut dyn Waiter,
    ) -> Next {
        if cancelled || transfer.control.as_ref().is_some_and(Control::is_cancelled) {
            return Next::End(Turn::Done(Ended::Cancelled));
        }
        self.note_pause(transfer, waiter);
        let before = transfer.flow.read() + transfer.flow.written();
        let tries = [Side::Source, Side::Sink].map(|side| transfer.calls_at_once(side));
        transfer.flow.clear_interrupted();
        self.next_grant = transfer.take_grant(waiter);
        let meter = transfer.start_meter();
        let turn = transfer.step();
        transfer.return_grant();
        if let Some(before) = meter {
            let is_refused = matches!(turn, Turn::HeldBack) && self.next_grant.is_some();
            let waits = matches!(turn, Turn::Blocked(_)) || transfer.is_paused();
            let waits = (!is_refused).then_some(waits);
            transfer.stop_meter(before, waits, waiter);
        }
        // Bytes that are only buffered so far are progress too, also if the sink is full.
        let has_progress = transfer.flow.read() + transfer.flow.written() > before;
        if has_progress {
            self.spurious = 0;
            self.silent_since = None;
            if transfer.is_timed() {
                self.last_progress = waiter.now();
            }
        }
        match turn {
            Turn::Moved(_) => {
                if has_progress {
                    if let Err(errno) = transfer.start_writeback() {
                        return Next::End(Turn::Failed(Some(Side::Sink), Some(errno)));
                    }
                    transfer.tune(waiter);
                } else if self.idle_left(transfer, waiter) == Some(Duration::ZERO)
                    // After an interrupted call, or one that moved no bytes, such as an empty
                    // message. The source may return them without end.
                    && let side = transfer.flow.interrupted().unwrap_or(Side::Source)
                    && let Next::End(end) = self.blocked(transfer, side, waiter)
                {
                    return Next::End(end);
                }
                self.notify_observer(transfer, waiter);
                Next::Step
            }
            Turn::Blocked(Side::Source) if transfer.source_is_complete => {
                if transfer.flow.has_written_all() {
                    return Next::End(Turn::Done(Ended::Eof));
                }
                // A child of fork(2) may keep the source from its end. Less than the sink takes
                // at once is written as at the end.
                if !self.source_ended && transfer.source_is_empty() {
                    self.source_ended = true;
                    transfer.end_here();
                    return Next::Step;
                }
                self.blocked(transfer, Side::Sink, waiter)
            }
            // There is nothing to wait for.
            Turn::Blocked(side) if self.spurious > SPURIOUS && tries[side as usize] => {
                Next::End(Turn::Failed(Some(side), Some(Errno::EAGAIN)))
            }
            Turn::Blocked(side) => self.blocked(transfer, side, waiter),
            Turn::Pending => self.unless_idle(transfer, WaitFor::Completions, waiter),
            Turn::Elsewhere => Next::Elsewhere,
            Turn::HeldBack if transfer.is_paused() => {
                Next::Wait(self.new_wait(transfer, WaitFor::Resume, waiter))
            }
            Turn::HeldBack if let Some(rest) = self.next_grant => {
                // The rest would only come before the end. Without a turn, others are next.
                let is_long = rest > SHORT && transfer.quota != Some(0);
                match is_long.then(|| transfer.end_of_source()).flatten() {
                    Some(end) => Next::End(end),
                    None => Next::Wait(self.new_wait(transfer, WaitFor::Grant, waiter)),
                }
            }
            // The grant is used up: the next step requests another one.
            Turn::HeldBack => Next::Step,
            Turn::Done(_) if self.source_ended => Next::End(Turn::Done(Ended::Eof)),
            Turn::Done(_) if self.flushing => Next::End(Turn::Done(Ended::Idle)),
            end => Next::End(end),
        }
    }

    /// Before a step that may wait for the lock of the source pipe: returns the wait for the
    /// source, if it has no bytes yet. On an engine, another thread takes over from a
    /// reactor's thread that has blocked, so not every step needs the check.
    pub(crate) fn poll_source_first(
        &mut self,
        transfer: &mut Transfer<'_>,
        waiter: &mut dyn Waiter,
    ) -> Option<Next> {
        let is_taken_over = transfer.runs_on != ThreadKind::Anywhere && !transfer.was_blocked;
        // The first step of a path reads the pipe's capacity.
        let due = !is_taken_over || transfer.is_between_paths() || transfer.drains();
        if !due || !transfer.source_may_be_locked() {
            return None;
        }
        let source = Interest::of(transfer.flow.source.endpoint(), false);
        match waiter.wait(&source, Some(Duration::ZERO)) {
            Ok(wakeup) if !wakeup.ready && !transfer.fifo_has_no_writer() => {
                Some(self.unless_idle(transfer, WaitFor::Side(Side::Source), waiter))
            }
            _ => None,
        }
    }

    fn blocked(
        &mut self,
        transfer: &mut Transfer<'_>,
        side: Side,
        waiter: &mut dyn Waiter,
    ) -> Next {
        match self.unless_idle(transfer, WaitFor::Side(side), waiter) {
            Next::Wait(wait) if self.spurious > SPURIOUS => Next::Wait(Wait {
                target: WaitFor::Backoff(side),
                timeout: Some(wait.timeout.map_or(BACKOFF, |t| t.min(BACKOFF))),
            }),
            // The buffered bytes have not been offered to the sink yet. The idle
            // limit starts again for them, and for the rest each time that the sink
            // accepts a part.
            Next::End(Turn::Done(Ended::Idle))
                if side == Side::Source && !self.flushing && transfer.holds() =>
            {
                self.flushing = true;
                self.last_progress = waiter.now();
                transfer.flow.allowance.close_early();
                Next::Step
            }
            next => next,
        }
    }

    /// Returns the wait for `target`, or the end if the transfer has been idle too
    /// long.
    pub(super) fn unless_idle(
        &mut self,
        transfer: &mut Transfer<'_>,
        target: WaitFor,
        waiter: &mut dyn Waiter,
    ) -> Next {
        self.note_pause(transfer, waiter);
        if target == WaitFor::Side(Side::Source) {
            if transfer.is_paused() {
                return Next::Step;
            }
            let rested = std::mem::replace(&mut self.source_rested, transfer.source_rests);
            if rested || transfer.source_rests {
                self.last_progress = waiter.now();
            }
        }
        let wait = self.new_wait(transfer, target, waiter);
        if self.idle_left(transfer, waiter) != Some(Duration::ZERO) {
            return Next::Wait(wait);
        }
        // The process may have been stopped for all that time: bytes that are ready
        // now are moved before the end.
        if self.spurious <= SPURIOUS
            && let Ok(wakeup) = waiter.wait(&wait.interest(transfer), Some(Duration::ZERO))
            && wakeup != Wakeup::default()
        {
            return self.resume(transfer, wait, wakeup, waiter);
        }
        Next::End(Turn::Done(Ended::Idle))
    }

    pub(crate) fn new_wait(
        &mut self,
        transfer: &Transfer<'_>,
        target: WaitFor,
        clock: &mut dyn Clock,
    ) -> Wait {
        if matches!(target, WaitFor::Resume | WaitFor::Grant) {
            self.held_since = clock.now();
            let grant = self.next_grant.filter(|_| target == WaitFor::Grant);
            let check = transfer.interval(Control::pause_interval);
            return Wait {
                target,
                timeout: check.into_iter().chain(grant).min(),
            };
        }
        let idle = self.idle_left(transfer, clock);
        let hidden =
            target == WaitFor::Side(Side::Sink) && hides_shutdown(transfer.flow.sink.kind());
        let retry = match target {
            WaitFor::Completions => Wait::completions(transfer).timeout,
            WaitFor::Side(Side::Source) => Threshold::of(&transfer.flow)
                .map(|threshold| threshold.next_check(self.silence(clock))),
            _ => hidden.then_some(FULL_SINK_RETRY),
        };
        let pending = target == WaitFor::Side(Side::Source) && transfer.fifo_check.is_pending();
        let check = pending.then_some(FIFO_CHECK);
        // Another transfer may take the wakeup of a control that they share, and the idle limit
        // begins again at the resume.
        let pause = transfer.interval(Control::pause_interval);
        let pause = pause.filter(|_| self.paused && transfer.is_timed());
        let times = [
            idle,
            transfer.interval(Control::interval),
            retry,
            check,
            pause,
        ];
        Wait {
            target,
            timeout: times.into_iter().flatten().min(),
        }
    }

    /// Returns how long the source has been silent.
    fn silence(&mut self, clock: &mut dyn Clock) -> Duration {
        let now = clock.now();
        now.saturating_sub(*self.silent_since.get_or_insert(now))
    }

    /// Checks for bytes, or an end, that a read would return although the wait has
    /// not reported them.
    fn check_threshold(&mut self, transfer: &mut Transfer<'_>, clock: &mut dyn Clock) {
        match Threshold::of(&transfer.flow) {
            Some(threshold) if !threshold.is_reached(&transfer.flow, self.silence(clock)) => {}
            Some(Threshold::Silence(_)) => {
                self.source_ended = true;
                transfer.end_here();
            }
            Some(Threshold::Bytes(_)) => transfer.flow.source.ready.marked = true,
            None => {}
        }
    }

    /// Returns the time until the transfer counts as idle. `None`: never, or not while
    /// it is paused.
    fn idle_left(&self, transfer: &Transfer<'_>, clock: &mut dyn Clock) -> Option<Duration> {
        let idle = transfer.request.idle.filter(|_| !self.paused)?;
        Some((self.last_progress.saturating_add(idle)).saturating_sub(clock.now()))
    }

    /// Continues after a wait.
    pub(crate) fn resume(
        &mut self,
        transfer: &mut Transfer<'_>,
        wait: Wait,
        wakeup: Wakeup,
        clock: &mut dyn Clock,
    ) -> Next {
        if wakeup.woken
            && let Some(control) = &mut transfer.control
        {
            control.clear_wake();
        }
        if wait.target == WaitFor::Side(Side::Source) && self.source_rested {
            self.last_progress = clock.now();
        }
        match wait.target {
            WaitFor::Backoff(side) if !wakeup.woken => {
                return Next::Wait(self.new_wait(transfer, WaitFor::Side(side), clock));
            }
            WaitFor::Backoff(_) | WaitFor::Completions => {}
            WaitFor::Resume | WaitFor::Grant => {
                if let Some(errno) = self.check_sink(transfer, wakeup) {
                    // If the source has ended there is nothing to write, and no reader is needed.
                    let end = transfer.end_of_source();
                    let failed = Turn::Failed(Some(Side::Sink), Some(errno));
                    return Next::End(end.unwrap_or(failed));
                }
                self.spurious = 0;
                self.pass_over(wait.target, clock.now());
            }
            WaitFor::Side(Side::Source) if wakeup == Wakeup::default() => {
                self.spurious = 0;
                self.check_threshold(transfer, clock);
            }
            WaitFor::Side(side) => {
                // A readable source comes first: it may have ended, and then the
                // sink is not needed any more.
                let wakeup = match side {
                    Side::Source => transfer.with_source(wakeup),
                    Side::Sink => wakeup,
                };
                if !wakeup.ready
                    && let Some(errno) = self.check_sink(transfer, wakeup)
                {
                    return Next::End(Turn::Failed(Some(Side::Sink), Some(errno)));
                }
                if wakeup.ready
                    && let Err(errno) = transfer.is_ready(side, wakeup)
                {
                    return Next::End(Turn::Failed(Some(side), Some(errno)));
                }
                // A descriptor that is falsely reported ready wakes the transfer
                // again and again.
                let claimed = wakeup.ready || wakeup.error || wakeup.hang_up;
                self.spurious = if claimed { self.spurious + 1 } else { 0 };
            }
        }
        self.notify_observer(transfer, clock);
        Next::Step
    }

    /// Excludes a pause, or a wait for the schedule, from the time without progress.
    fn pass_over(&mut self, target: WaitFor, now: Duration) {
        if target == WaitFor::Resume {
            self.silent_since = None;
            self.last_progress = now;
            return;
        }
        // The limit does not start again: beside a busy transfer that shares the schedule, a
        // silent one waits for a grant each time that the limit has passed.
        let held = now.saturating_sub(self.held_since);
        let starts = [Some(&mut self.last_progress), self.silent_since.as_mut()];
        for since in starts.into_iter().flatten() {
            *since = since.saturating_add(held).min(now);
        }
    }

    /// Returns the failure of a sink that was watched during a wait, if it has one.
    fn check_sink(&self, transfer: &mut Transfer<'_>, wakeup: Wakeup) -> Option<Errno> {
        if !wakeup.error && !wakeup.hang_up {
            return None;
        }
        let errno = sink_error(transfer, wakeup.hang_up);
        transfer.flow.sink.ready.error_persists |= errno.is_none();
        errno
    }

    pub(super) fn notify_observer(&self, transfer: &mut Transfer<'_>, clock: &mut dyn Clock) {
        if transfer.observer.is_some() {
            let progress = transfer.progress(clock.now().saturating_sub(self.start));
            if let Some(observer) = &mut transfer.observer {
                crate::threads::run_callers(|| observer.progress(&progress));
            }
        }
    }
}

impl Transfer<'_> {
    fn is_timed(&self) -> bool {
        self.request.idle.is_some()
    }

    /// Returns the longest wait without a call of the observer, or without a check
    /// of a control that has an interval.
    fn interval(&self, of: impl FnOnce(&Control) -> Option<Duration>) -> Option<Duration> {
        let observer = self.observer.as_ref().and_then(|o| o.interval());
        let control = self.control.as_ref().and_then(of);
        observer.into_iter().chain(control).min()
    }

    fn start_writeback(&mut self) -> Result<(), Errno> {
        // Direct I/O has reached the device already.
        if self.has_completions() {
            return Ok(());
        }
        let (sink, written) = (self.flow.sink.fd(), self.flow.written());
        if let Some(writeback) = &mut self.writeback
            && !writeback.advance(sink, written)?
        {
            self.writeback = None;
        }
        Ok(())
    }

    pub(super) fn progress(&self, elapsed: Duration) -> Progress {
        let (pending_reads, pending_writes) = self.pending();
        Progress {
            pending_reads,
            pending_writes,
            read: self.flow.read(),
            written: self.flow.written(),
            dropped: self.flow.dropped(),
            path: self.path(),
            elapsed,
            sinks: 1,
        }
    }
}

#[cfg(test)]
#[path = "stepper_tests.rs"]
mod tests;
