//! A thread that waits for many transfers and takes their steps.

mod event_loop;
mod run;
mod state;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod thread_tests;
mod turn;

pub(super) use event_loop::EventLoop;
pub(super) use state::Reactor;
