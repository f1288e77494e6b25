//! A thread that waits for many transfers, and takes their steps.

mod run;
mod state;
#[cfg(test)]
mod tests;

pub(super) use run::Shift;
pub(super) use state::Reactor;
