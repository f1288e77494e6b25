//! Moves the bytes of one source to several sinks. Each sink has its own account and
//! policy. It composes transfers and adds no data path.
//!
//! One transfer moves the source's bytes into a private pipe. `tee(2)` duplicates
//! its pages into each sink that is a pipe and that the others wait for. Every other
//! sink has a private pipe, and a transfer on the engine from that pipe to the sink.

mod block;
mod end;
#[cfg(test)]
mod end_tests;
#[expect(clippy::module_inception, reason = "the structure of that name")]
mod fan_out;
#[cfg(test)]
mod idle_tests;
mod outcome;
mod outlet;
mod policy;
#[cfg(test)]
mod policy_tests;
mod rest;
mod run;
#[cfg(test)]
mod run_tests;
#[cfg(test)]
mod script;
mod slowest;
mod wait;

pub use fan_out::FanOut;
pub use outcome::{Carry, FanOutOutcome, Refused, SinkEnded, SinkReport};
pub use policy::OnSlow;
