//! A large buffer between a source and a sink, for sources that give their bytes in
//! bursts. It composes transfers and adds no data path.
//!
//! One transfer moves the source's bytes into a private pipe, a transfer on the engine
//! moves another pipe's content to the sink. Bytes that do not fit into the second pipe
//! wait in a queue of unlinked files, in memory or in a directory.

mod buffered;
mod end;
mod outcome;
mod run;
mod store;
mod unwritten;

pub use buffered::{Buffered, Place};
pub use outcome::{BufferedOutcome, Refused};
pub use unwritten::Unwritten;
