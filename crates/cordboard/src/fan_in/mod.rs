//! Moves the bytes of several sources into one sink, in turns of bytes, records or
//! datagrams. It composes transfers and adds no data path.
//!
//! One transfer for each source moves its bytes into a private channel, for the length
//! of a turn. A transfer on the engine moves the content of the channel to the sink. The
//! bytes reach the sink in the order of the channel, so the account of each source needs
//! only counts.

mod end;
#[expect(clippy::module_inception, reason = "the structure of that name")]
mod fan_in;
#[cfg(test)]
mod idle_tests;
mod inlet;
mod ledger;
mod limit;
mod order;
mod outcome;
mod policy;
mod records;
mod run;
#[cfg(test)]
mod run_tests;

pub use fan_in::FanIn;
pub use outcome::{FanInOutcome, Refused, SourceEnded, SourceReport};
pub use policy::{OnFailure, Turn};
