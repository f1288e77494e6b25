//! The idle limit of a fan-in.
//!
//! The transfer to the sink has the same limit, for its own waits. It does not know which bytes
//! of the sources have not reached the channel yet, such as those of an incomplete record.

use std::sync::Arc;
use std::time::Duration;

use rustix::event::PollFd;

use crate::compose::{Drain, RETRY, Wake};
use crate::engine::Awaits;
use crate::transfer::Control;

/// The interval at which the end of a pause is looked for, which wakes only the transfer to the
/// sink.
const PAUSED: Duration = Duration::from_secs(1);

/// The limit, and the progress so far.
pub(super) struct Limit {
    idle: Duration,
    wake: Arc<Wake>,
    /// Bytes that the sink had accepted at the last check.
    written: u64,
    /// The sum of the bytes read and of those that the sink had accepted.
    moved: u64,
    /// The time of the last progress.
    since: Duration,
    /// The transfer to the sink is paused, or waits for its schedule.
    is_held_back: bool,
    /// The number of its pauses at the last check.
    pauses: u32,
}

impl Limit {
    pub(super) fn new(idle: Duration, now: Duration) -> Limit {
        Limit {
            idle,
            wake: Wake::new(),
            written: 0,
            moved: 0,
            since: now,
            is_held_back: false,
            pauses: 0,
        }
    }

    /// Returns the wakeup, for the transfer to the sink.
    pub(super) fn wake(&self) -> &Arc<Wake> {
        &self.wake
    }

    /// Returns whether no byte has moved for the limit, and the transfer to the sink waits for
    /// the channel. `read`: the bytes read from all sources. `control`: its handle.
    pub(super) fn is_reached(
        &mut self,
        now: Duration,
        read: u64,
        control: Option<&Control>,
        drain: &Drain<'_>,
    ) -> bool {
        // Before the bytes written, which then are all that it has moved.
        let awaits = drain.awaits();
        self.written = drain.written();
        let moved = read.wrapping_add(self.written);
        // Before the state: a pause that begins in between counts at the next check.
        let pauses = control.map_or(0, Control::pauses);
        let has_paused = std::mem::replace(&mut self.pauses, pauses) != pauses;
        let is_paused = control.is_some_and(Control::is_paused);
        let is_held_back = is_paused || awaits == Awaits::Permission;
        let was_held_back = std::mem::replace(&mut self.is_held_back, is_held_back);
        if moved != self.moved || is_held_back || was_held_back || has_paused {
            (self.moved, self.since) = (moved, now);
        }
        let is_due = now.saturating_sub(self.since) >= self.idle;
        is_due && awaits == Awaits::Source && !is_held_back
    }

    /// Requests a wakeup when the sink accepts bytes. Returns `false` if it has accepted some
    /// since the last check.
    pub(super) fn request(&self) -> bool {
        self.wake.request(self.written)
    }

    /// Adds the wakeup to the descriptors of a wait, and returns the timeout of the wait.
    pub(super) fn add_to<'f>(
        &'f self,
        fds: &mut Vec<PollFd<'f>>,
        timeout: Option<Duration>,
        now: Duration,
    ) -> Option<Duration> {
        let left = match self.since.saturating_add(self.idle).saturating_sub(now) {
            _ if self.is_held_back => self.idle.min(PAUSED),
            // The transfer to the sink has not begun to wait for the channel yet, or ends.
            Duration::ZERO => RETRY,
            left => left,
        };
        let timeout = timeout.into_iter().chain([left]).min();
        self.wake.add_to(fds, timeout)
    }

    /// Ends the request of a wakeup.
    pub(super) fn clear(&self) {
        self.wake.clear();
    }
}
