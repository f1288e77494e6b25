//! What a transfer does next, whoever runs it: the synchronous driver on its
//! caller's thread, or an engine. Only the waiting itself is theirs.

use std::time::Duration;

use super::threshold::Threshold;
use super::wait::{BACKOFF, Clock, Interest, Waiter, Wakeup};
use super::{Control, Progress, Transfer};
use crate::endpoint::{Kind, Side};
use crate::errno::Errno;
use crate::pipe;
use crate::report::Ended;

/// A step as the transfer's runner sees it: hand-overs between paths are over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Turn {
    Moved(u64),
    Blocked(Side),
    /// It is paused, and nothing is in flight.
    Paused,
    /// Wait for [`Transfer::completions`].
    Pending,
    /// The next path is for another of the engine's threads: see
    /// [`ThreadKind`](super::Home).
    Elsewhere,
    Done(Ended),
    Failed(Option<Side>, Option<Errno>),
}

/// What the runner is to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Next {
    /// Take another step; others may have their turn first.
    Step,
    /// Wait, and come back with [`Stepper::resume`].
    Wait(Wait),
    /// Take another step on another of the engine's threads.
    Elsewhere,
    /// Settle.
    End(Turn),
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitFor {
    /// This side becoming ready.
    Side(Side),
    /// Time: this side has claimed to be ready too often without being so.
    Backoff(Side),
    /// The kernel, which is at work on the transfer's behalf.
    Completions,
    /// Being resumed.
    Resume,
}

/// One wait of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Wait {
    pub(crate) target: WaitFor,
    /// It goes on then at the latest. `None`: no need to.
    pub(crate) timeout: Option<Duration>,
}

impl Wait {
    /// The kernel, or the threads that work for a transfer.
    pub(crate) fn completions(transfer: &Transfer<'_>) -> Wait {
        Wait {
            target: WaitFor::Completions,
            timeout: transfer.completion_poll_interval(),
        }
    }

    /// The descriptors that go with it.
    pub(crate) fn interest<'a>(&self, transfer: &'a Transfer<'_>) -> Interest<'a> {
        let flow = &transfer.flow;
        let (ready, watch) = match self.target {
            WaitFor::Side(Side::Sink) => (Some((flow.sink.fd(), true)), false),
            // While the source is silent, a sink that dies must not go unnoticed.
            WaitFor::Side(Side::Source) => {
                (Some((flow.source.fd(), false)), flow.sink_is_watched())
            }
            WaitFor::Backoff(_) | WaitFor::Resume => (None, false),
            WaitFor::Completions => (transfer.completions().map(|fd| (fd, false)), false),
        };
        Interest {
            ready,
            watch: watch.then_some(flow.sink.fd()),
            wake: transfer.control.as_ref().and_then(Control::wake_fd),
            edge_triggered: match self.target {
                WaitFor::Side(Side::Sink) => [flow.sink.ready.doubted, false],
                WaitFor::Side(Side::Source) => {
                    [flow.source.ready.doubted, watch && flow.sink.ready.doubted]
                }
                WaitFor::Backoff(_) | WaitFor::Completions | WaitFor::Resume => [false; 2],
            },
        }
    }

    /// The side whose fault it is if the wait itself fails.
    pub(crate) fn side(&self) -> Option<Side> {
        match self.target {
            WaitFor::Side(side) | WaitFor::Backoff(side) => Some(side),
            WaitFor::Completions | WaitFor::Resume => None,
        }
    }
}

/// Ready according to `poll(2)`, and not so according to the call: so many
/// times in a row are a coincidence, more are a descriptor that would keep
/// the processor busy for nothing, and is then asked again after a rest.
const SPURIOUS: u32 = 32;

/// How often a full sink is tried if no wait tells of its shutdown.
pub(super) const FULL_SINK_RETRY: Duration = Duration::from_secs(1);

/// How a transfer has fared so far, as far as its runner needs to know.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stepper {
    pub(crate) start: Duration,
    last_progress: Duration,
    spurious: u32,
    /// The source was silent for too long, and what is in hand goes on.
    flushing: bool,
    /// It has been waited for since, and nothing has moved.
    silent_since: Option<Duration>,
    /// The source has ended by its silence.
    source_ended: bool,
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
        }
    }

    /// One step, and what follows from it.
    pub(crate) fn step(
        &mut self,
        transfer: &mut Transfer<'_>,
        cancelled: bool,
        waiter: &mut dyn Waiter,
    ) -> Next {
        if cancelled || transfer.control.as_ref().is_some_and(Control::is_cancelled) {
            return Next::End(Turn::Done(Ended::Cancelled));
        }
        let before = transfer.flow.read() + transfer.flow.written();
        let tries = [Side::Source, Side::Sink].map(|side| transfer.calls_at_once(side));
        transfer.flow.clear_interrupted();
        match transfer.step() {
            Turn::Moved(_) => {
                // Bytes that are only gathered so far are progress too.
                if transfer.flow.read() + transfer.flow.written() > before {
                    self.spurious = 0;
                    self.silent_since = None;
                    if let Err(errno) = transfer.start_writeback() {
                        return Next::End(Turn::Failed(Some(Side::Sink), Some(errno)));
                    }
                    if transfer.is_timed() {
                        self.last_progress = waiter.now();
                    }
                } else if let Some(side) = transfer.flow.interrupted()
                    && transfer.is_timed()
                    && self.idle_left(transfer, waiter).is_zero()
                    && let Next::End(end) = self.blocked(transfer, side, waiter)
                {
                    return Next::End(end);
                }
                self.notify_observer(transfer, waiter);
                Next::Step
            }
            // There is nothing to wait for.
            Turn::Blocked(side) if self.spurious > SPURIOUS && tries[side as usize] => {
                Next::End(Turn::Failed(Some(side), Some(Errno::EAGAIN)))
            }
            Turn::Blocked(side) => self.blocked(transfer, side, waiter),
            Turn::Pending => self.unless_idle(transfer, WaitFor::Completions, waiter),
            Turn::Elsewhere => Next::Elsewhere,
            Turn::Paused => Next::Wait(self.new_wait(transfer, WaitFor::Resume, waiter)),
            Turn::Done(_) if self.source_ended => Next::End(Turn::Done(Ended::Eof)),
            Turn::Done(_) if self.flushing => Next::End(Turn::Done(Ended::Idle)),
            end => Next::End(end),
        }
    }

    /// On an engine, before a step that may wait for the lock of the source: the
    /// wait for the source itself, where it has nothing yet.
    pub(crate) fn poll_source_first(
        &mut self,
        transfer: &mut Transfer<'_>,
        waiter: &mut dyn Waiter,
    ) -> Option<Next> {
        // The first step of a path asks how large the pipe is.
        let due = transfer.is_between_paths() || transfer.was_blocked;
        if !due || !transfer.source_may_be_locked() {
            return None;
        }
        let source = Interest {
            ready: Some((transfer.flow.source.fd(), false)),
            watch: None,
            wake: None,
            edge_triggered: [false; 2],
        };
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
            // What is in hand was not offered to the sink yet, which has the same
            // time for each part of it.
            Next::End(Turn::Done(Ended::Idle))
                if side == Side::Source && !self.flushing && transfer.holds() =>
            {
                self.flushing = true;
                self.last_progress = waiter.now();
                transfer.flow.allowance.close();
                Next::Step
            }
            next => next,
        }
    }

    /// Waits for this, unless it has been waited long enough.
    pub(super) fn unless_idle(
        &mut self,
        transfer: &mut Transfer<'_>,
        target: WaitFor,
        waiter: &mut dyn Waiter,
    ) -> Next {
        if target == WaitFor::Side(Side::Source) && transfer.is_paused() {
            return Next::Step;
        }
        let wait = self.new_wait(transfer, target, waiter);
        if transfer.request.idle.is_none() || !self.idle_left(transfer, waiter).is_zero() {
            return Next::Wait(wait);
        }
        // The process may have been stopped for all that time, and a step takes
        // only what was found ready: what is ready now comes before the end.
        if self.spurious <= SPURIOUS
            && let Ok(wakeup) = waiter.wait(&wait.interest(transfer), Some(Duration::ZERO))
            && wakeup != Wakeup::default()
        {
            return self.resume(transfer, wait, wakeup, waiter);
        }
        Next::End(Turn::Done(Ended::Idle))
    }

    pub(super) fn new_wait(
        &mut self,
        transfer: &Transfer<'_>,
        target: WaitFor,
        clock: &mut dyn Clock,
    ) -> Wait {
        if target == WaitFor::Resume {
            return Wait {
                target,
                timeout: transfer.pause_interval(),
            };
        }
        let idle = (transfer.request.idle).map(|_| self.idle_left(transfer, clock));
        let silent =
            target == WaitFor::Side(Side::Sink) && hides_shutdown(transfer.flow.sink.kind());
        let unheard = match target {
            WaitFor::Completions => Wait::completions(transfer).timeout,
            WaitFor::Side(Side::Source) => Threshold::of(&transfer.flow)
                .map(|threshold| threshold.next_check(self.silence(clock))),
            _ => silent.then_some(FULL_SINK_RETRY),
        };
        let times = [idle, transfer.interval(), unheard];
        Wait {
            target,
            timeout: times.into_iter().flatten().min(),
        }
    }

    /// How long the source has been waited for.
    fn silence(&mut self, clock: &mut dyn Clock) -> Duration {
        let now = clock.now();
        now.saturating_sub(*self.silent_since.get_or_insert(now))
    }

    /// What a read would find, of which the wait has told nothing.
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

    /// Until the transfer counts as idle.
    fn idle_left(&self, transfer: &Transfer<'_>, clock: &mut dyn Clock) -> Duration {
        let idle = transfer.request.idle.unwrap_or(Duration::MAX);
        (self.last_progress.saturating_add(idle)).saturating_sub(clock.now())
    }

    /// The wait is over.
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
        match wait.target {
            WaitFor::Backoff(side) if !wakeup.woken => {
                return Next::Wait(self.new_wait(transfer, WaitFor::Side(side), clock));
            }
            WaitFor::Backoff(_) | WaitFor::Completions => {}
            WaitFor::Resume => {
                self.spurious = 0;
                self.silent_since = None;
                self.last_progress = clock.now();
            }
            WaitFor::Side(Side::Source) if wakeup == Wakeup::default() => {
                self.spurious = 0;
                self.check_threshold(transfer, clock);
            }
            WaitFor::Side(side) => {
                // A source that has something to say comes first: it may be its
                // end, and then nobody needs the sink any more.
                if !wakeup.ready && (wakeup.error || wakeup.hang_up) {
                    if let Some(errno) = sink_error(transfer, wakeup.hang_up) {
                        return Next::End(Turn::Failed(Some(Side::Sink), Some(errno)));
                    }
                    transfer.flow.sink.ready.doubted = true;
                }
                if wakeup.ready
                    && let Err(errno) = transfer.is_ready(side, wakeup)
                {
                    return Next::End(Turn::Failed(Some(side), Some(errno)));
                }
                // What claims to be ready and is not wakes us again and again.
                let for_nothing = wakeup.ready || wakeup.error || wakeup.hang_up;
                self.spurious = if for_nothing { self.spurious + 1 } else { 0 };
            }
        }
        self.notify_observer(transfer, clock);
        Next::Step
    }

    pub(super) fn notify_observer(&self, transfer: &mut Transfer<'_>, clock: &mut dyn Clock) {
        if transfer.observer.is_some() {
            let progress = transfer.progress(clock.now().saturating_sub(self.start));
            if let Some(observer) = &mut transfer.observer {
                observer.progress(&progress);
            }
        }
    }
}

impl Transfer<'_> {
    /// A side was found ready; or, if it is not open, to have an error.
    ///
    /// # Errors
    ///
    /// The source's own error, which a call would have told of.
    pub(super) fn is_ready(&mut self, side: Side, wakeup: Wakeup) -> Result<(), Errno> {
        let kind = self.flow.end(side).kind();
        // Of anything but a socket an error is told by the next call.
        let mut open = wakeup.open || !kind.is_socket();
        if !open {
            self.flow.end_mut(side).ready.doubted |= !wakeup.unclear;
            // All other calls on sockets have a flag against waiting, and tell.
            if side == Side::Source && self.is_spliced() && !self.flow.source.ready.never_waits {
                open = self.flow.answers()?;
            }
        }
        if open {
            self.flow.end_mut(side).ready.marked = true;
        }
        Ok(())
    }

    /// A file whose next call may wait, and is not polled before: `EAGAIN` of it
    /// is an error, as of a FUSE server or a sysfs attribute, and `poll(2)`
    /// always finds the file ready. The error may last for a moment only.
    fn calls_at_once(&self, side: Side) -> bool {
        let end = self.flow.end(side);
        let facts = end.facts();
        let always_ready = facts.kind.is_cached() || facts.kind == Kind::Pseudo;
        let ready = always_ready && !facts.nonblocking;
        let known = &end.ready;
        ready && (known.marked || known.never_waits || known.may_sleep)
    }

    fn is_timed(&self) -> bool {
        self.request.idle.is_some()
    }

    /// How long the observer lets it wait without a call, or it goes without a
    /// look at a control that cannot wake it.
    pub(super) fn interval(&self) -> Option<Duration> {
        let told = self.observer.as_ref().and_then(|o| o.interval());
        let looks = self.control.as_ref().and_then(Control::interval);
        told.into_iter().chain(looks).min()
    }

    /// The same for one that is paused.
    fn pause_interval(&self) -> Option<Duration> {
        let told = self.observer.as_ref().and_then(|o| o.interval());
        let looks = self.control.as_ref().and_then(Control::pause_interval);
        told.into_iter().chain(looks).min()
    }

    /// A step may wait for the lock of a source that is a pipe: whoever splices
    /// a silent socket into it holds that, and no signal ends the wait. `poll(2)`
    /// takes no lock, and a pipe that it finds empty need not be touched.
    pub(super) fn source_may_be_locked(&self) -> bool {
        let wanted = |control: &Control| !control.is_cancelled() && !control.is_paused();
        self.flow.source.kind().is_pipe()
            && self.flow.allowance.remaining() > 0
            && !self.holds()
            && self.control.as_ref().is_none_or(wanted)
    }

    /// The source is a FIFO without a writer, which `poll(2)` need not show: the next
    /// call tells of its end, as `read(2)` does. Asked once, before the first step,
    /// since any writer that comes and goes later shows; and only with `O_NONBLOCK`,
    /// without which `open(2)` waits for a writer, since whoever asks waits for the
    /// lock.
    pub(super) fn fifo_has_no_writer(&mut self) -> bool {
        let source = &self.flow.source;
        let may_be = source.kind() == Kind::Fifo && source.facts().nonblocking;
        let due = may_be && !std::mem::replace(&mut self.fifo_checked, true);
        // Where nobody tells, the call does.
        due && pipe::fifo_is_over(source.fd()) != Some(false)
    }

    fn start_writeback(&mut self) -> Result<(), Errno> {
        // What goes past the page cache is with the device already.
        if self.completions().is_some() {
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

    fn progress(&self, elapsed: Duration) -> Progress {
        let (pending_reads, pending_writes) = self.pending();
        Progress {
            pending_reads,
            pending_writes,
            read: self.flow.read(),
            written: self.flow.written(),
            path: self.path(),
            elapsed,
        }
    }
}

/// A full socket whose writes fail since it was shut down, by the peer for reading or
/// here for writing, and which `poll(2)` shows as full all the same: `unix_poll` and
/// `unix_dgram_poll` (net/unix/af_unix.c) look at the room only, and `vsock_poll`
/// (net/vmw_vsock/af_vsock.c) shows none then. Only an attempt tells. TCP polls writable
/// (`tcp_poll`, net/ipv4/tcp.c), and UDP has no peer that could keep it full.
fn hides_shutdown(kind: Kind) -> bool {
    kind.is_socket() && !matches!(kind, Kind::Tcp | Kind::Udp)
}

/// What an error or a hang-up on a sink that nobody writes to means.
fn sink_error(transfer: &Transfer<'_>, hang_up: bool) -> Option<Errno> {
    // A pipe's POLLERR: there is no reader any more. A socket's POLLHUP: both
    // directions are shut down. Why, SO_ERROR would tell once, and it is for
    // whoever reads the socket: without it a reset would be a clean end there.
    // A socket's POLLERR alone may be its error queue; a write will tell.
    match transfer.flow.sink.kind() {
        // What a write says (`hung_up_tty_write`, drivers/tty/tty_io.c).
        Kind::Tty => hang_up.then_some(Errno::EIO),
        kind => (hang_up || kind.is_pipe()).then_some(Errno::EPIPE),
    }
}
