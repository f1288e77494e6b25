//! Finds the fastest of several settings while a transfer runs: block size, queue depth,
//! data path.
//!
//! It performs no I/O and reads no clock: the caller passes time and bytes, so tests simulate
//! devices. All arithmetic is on integers. `docs/design/tuning.md` has the reasons.

mod arms;
#[cfg(test)]
mod change_tests;
mod controller;
mod memory;
mod record;
#[cfg(test)]
mod regret_tests;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
mod window;

pub(crate) use arms::{Arm, Arms};
pub(crate) use controller::Controller;
pub(crate) use memory::{Found, Key, Search};
pub(crate) use window::Sample;

/// The criterion by which a setting is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goal {
    /// The rate first, processor time at equal rates.
    Rate,
    /// Processor time first, the rate at equal times.
    Time,
}
