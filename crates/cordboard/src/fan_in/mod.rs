//! Moves the bytes of several sources into one sink, by turn, by record or by datagram.
//! It composes transfers and adds no data path.
//!
//! One transfer for each source moves its bytes into a private channel, for the length
//! of a turn. A transfer on the engine moves the channel's content to the sink. The
//! order in the channel is the order of the sink, so an account of each source needs
//! only counts.

mod end;
#[expect(clippy::module_inception, reason = "the structure of that name")]
mod fan_in;
mod inlet;
mod ledger;
mod order;
mod outcome;
mod policy;
mod records;
mod run;

pub use fan_in::FanIn;
pub use outcome::{FanInOutcome, Refused, SourceEnded, SourceReport};
pub use policy::{OnFailure, Turn};
