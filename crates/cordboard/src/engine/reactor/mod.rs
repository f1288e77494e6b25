//! A thread that waits for many transfers and takes their steps.

mod run;
mod state;
#[cfg(test)]
mod tests;

pub(super) use run::EventLoop;
pub(super) use state::Reactor;
