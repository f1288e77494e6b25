//! The grant of the schedule for one step.

use std::time::Duration;

use super::auto::{Load, Step};
use super::need::Need;
use super::pacer::Returned;
use crate::endpoint::{Kind, Side};
use crate::request::Schedule;
use crate::sys::thread_time;
use crate::transfer::Transfer;
use crate::transfer::control::Control;
use crate::transfer::wait::Clock;

impl Transfer<'_> {
    /// Takes as many bytes from the schedule as it grants now. Returns the time until
    /// the next grant if it grants none.
    pub(in crate::transfer) fn take_grant(&mut self, clock: &mut dyn Clock) -> Option<Duration> {
        let control = (self.control.as_ref()).filter(|control| control.is_paced());
        let quota = self.quota.filter(|_| !self.flow.allowance.is_over());
        if quota == Some(0) {
            self.flow.allowance.add_grant(0);
            return Some(Duration::MAX);
        }
        let Some(control) = control else {
            self.flow.allowance.add_grant(quota.unwrap_or(u64::MAX));
            return None;
        };
        if self.flow.allowance.is_over() {
            return None;
        }
        // Bytes that were in flight before there was a schedule are no debt of it.
        if !self.flow.allowance.is_paced() {
            let in_flight = self.in_flight();
            self.flow.allowance.add_grant(in_flight);
        }
        // A paused transfer that asks for bytes would delay those that share with it.
        if control.is_paused() {
            self.flow.allowance.add_grant(0);
            return None;
        }
        let now = clock.now();
        if control.needs_load(now) {
            let devices = [Side::Source, Side::Sink].map(|side| self.device(side));
            control.observe(now, Load::now(devices).as_ref());
        }
        match control.grant(now, self.need()) {
            Ok((bytes, changes)) => {
                self.grant_changes = changes;
                self.has_grant = bytes > 0;
                self.flow.allowance.add_grant(bytes);
                None
            }
            Err(wait) => {
                self.flow.allowance.add_grant(0);
                Some(wait)
            }
        }
    }

    /// Returns the thread's processor time before a step, if the schedule or the choice of a
    /// path depends on it.
    pub(in crate::transfer) fn start_meter(&self) -> Option<Duration> {
        // Without other work, the thread's whole processor time is that of the transfer.
        let is_measured = self.tuning.is_some() || self.first_sample.is_some();
        let measures = self.flow.mode.shares_thread() && is_measured;
        (measures || self.metered().is_some()).then(thread_time)
    }

    /// Records the cost of a step. `waits`: as in [`Step`].
    pub(in crate::transfer) fn stop_meter(
        &mut self,
        before: Duration,
        waits: Option<bool>,
        clock: &mut dyn Clock,
    ) {
        let spent = thread_time().saturating_sub(before);
        if self.flow.mode.shares_thread() {
            match (&mut self.tuning, &mut self.first_sample) {
                (Some(tuning), _) => tuning.spent += spent,
                (None, Some(first)) => first.of_steps += spent,
                (None, None) => {}
            }
        }
        if let Some(control) = self.metered() {
            control.stepped(clock.now(), Step { spent, waits });
        }
    }

    /// Returns the control of a schedule that depends on the cost of steps.
    fn metered(&self) -> Option<&Control> {
        let control = self.control.as_ref()?;
        (control.is_paced() && control.is_metered()).then_some(control)
    }

    pub(super) fn need(&self) -> Need {
        let unit = (self.current.as_ref()).map_or(1, |(_, path)| path.unit());
        let left = self.flow.before_its_size();
        // A source that has grown has whole blocks behind its first size.
        let left = left.filter(|left| unit == 1 || *left >= unit || !self.flow.source_has_grown());
        let quota = self.quota.unwrap_or(u64::MAX);
        let most = self.flow.allowance.remaining().min(quota);
        let block = self.flow.options.block.map(|block| block as u64);
        Need {
            // At its size, a source is read once more, to find its end or more bytes.
            most: left
                .filter(|left| *left > 0)
                .map_or(most, |left| left.min(most)),
            unit: if left == Some(0) { 1 } else { unit },
            block: block.unwrap_or(Schedule::BLOCK),
            in_flight: self.in_flight(),
            may_sleep: [&self.flow.source.ready, &self.flow.sink.ready]
                .iter()
                .any(|ready| ready.may_sleep && !ready.never_waits),
        }
    }

    /// Returns the number of bytes in flight, which stay granted until they are in the sink.
    fn in_flight(&self) -> u64 {
        (self.current.as_ref()).map_or(0, |(_, path)| path.in_flight())
    }

    /// Returns the number of the block device, or of the device of a regular file's file
    /// system.
    fn device(&self, side: Side) -> Option<u64> {
        let facts = self.flow.end(side).facts();
        let is_on_disk = matches!(facts.kind, Kind::File | Kind::BlockDevice);
        facts.id.filter(|_| is_on_disk).map(|id| id.device)
    }

    /// Returns what the last step has not used, except for bytes in flight. If it had a grant, the
    /// schedule is also told that nothing is left of it.
    pub(in crate::transfer) fn return_grant(&mut self) {
        let (surplus, overdrawn) = self.flow.allowance.take_surplus(self.in_flight());
        let had_grant = std::mem::take(&mut self.has_grant);
        if (had_grant || surplus > 0 || overdrawn > 0)
            && let Some(control) = self.control.as_ref().filter(|its| its.is_paced())
        {
            // Only bytes in flight are left of earlier grants, and they are not returned.
            control.give_back(Returned {
                unused: surplus,
                overdrawn,
                changes: self.grant_changes,
            });
        }
    }
}
