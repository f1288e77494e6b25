//! Automatic schedules: [`Aim`].

mod background;
#[cfg(test)]
mod background_tests;
mod load;
mod share;
#[cfg(test)]
mod share_tests;

use std::time::Duration;

use super::need::Need;
use crate::request::{Aim, Schedule};
use background::Background;
pub(in crate::transfer) use load::Load;
use share::Sharer;

/// Held by each unit test that uses the shares of the process.
#[cfg(test)]
pub(super) static SHARES_OF_TESTS: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// The cost of a step, and whether a wait follows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    /// Processor time of the thread.
    pub(crate) spent: Duration,
    /// The transfer waits for its source or its sink, or is paused. `None`: its schedule has
    /// refused a grant.
    pub(crate) waits: Option<bool>,
}

/// The state of an automatic schedule. [`Aim::Throughput`] has none: it does not limit the
/// transfer, and the paths adapt by themselves.
#[derive(Debug)]
pub(super) enum Auto {
    Background(Background),
    Share(Sharer),
}

impl Auto {
    pub(super) fn new(aim: Aim) -> Option<Box<Auto>> {
        match aim {
            Aim::Throughput => None,
            Aim::Background => Some(Box::new(Auto::Background(Background::default()))),
            Aim::Share(weight) => Some(Box::new(Auto::Share(Sharer::new(weight)))),
        }
    }

    /// Returns whether it is a share of the throughput.
    pub(super) fn is_share(&self) -> bool {
        matches!(self, Auto::Share(_))
    }

    /// Sets the weight of a share to that of this schedule. Returns false if one of both is no
    /// share.
    pub(super) fn set_weight(&self, schedule: Schedule) -> bool {
        match (self, schedule) {
            (Auto::Share(sharer), Schedule::Auto(Aim::Share(weight))) => {
                sharer.set_weight(weight);
                true
            }
            _ => false,
        }
    }

    /// Returns whether it is time for [`Auto::observe`].
    pub(super) fn needs_load(&self, now: Duration) -> bool {
        matches!(self, Auto::Background(background) if background.is_due(now))
    }

    /// Adapts to the load of the machine, unless another transfer has just done so.
    pub(super) fn observe(&mut self, now: Duration, load: Option<&Load>) {
        if let Auto::Background(background) = self
            && background.is_due(now)
        {
            background.observe(now, load);
        }
    }

    /// Returns the rate in bytes a second. `None`: the schedule has no rate.
    pub(super) fn rate(&self) -> Option<u64> {
        match self {
            Auto::Background(background) => Some(background.rate()),
            Auto::Share(_) => None,
        }
    }

    /// Grants bytes, if the schedule has no rate.
    pub(super) fn grant(&mut self, now: Duration, need: Need) -> Result<u64, Duration> {
        match self {
            Auto::Background(_) => Ok(u64::MAX),
            Auto::Share(sharer) => sharer.grant(now, need),
        }
    }

    /// Records bytes that were granted.
    pub(super) fn granted(&mut self, bytes: u64) {
        if let Auto::Background(background) = self {
            background.took(bytes);
        }
    }

    /// Records the bytes that a step has not used, and those that it has taken beyond its
    /// grant.
    pub(super) fn give_back(&mut self, unused: u64, overdrawn: u64) {
        match self {
            Auto::Background(background) => background.give_back(unused, overdrawn),
            Auto::Share(sharer) => sharer.give_back(unused, overdrawn),
        }
    }

    /// Records the end of a step.
    pub(super) fn stepped(&mut self, now: Duration, step: Step) {
        match self {
            Auto::Background(background) => background.spent(step.spent),
            Auto::Share(sharer) => {
                if let Some(waits) = step.waits {
                    sharer.stepped(now, step.spent, waits);
                }
            }
        }
    }

    /// Records that a limit of the schedule has refused what this schedule has granted.
    /// Others do not wait for a transfer that is slow by its own limit.
    pub(super) fn held_back(&self, now: Duration) {
        if let Auto::Share(sharer) = self {
            sharer.stepped(now, Duration::ZERO, true);
        }
    }
}
