//! A large buffer between a source and a sink, for sources that provide their bytes in
//! bursts. It composes transfers and adds no data path.
//!
//! One transfer moves bytes from the source into a private pipe. A transfer on the engine
//! moves the content of a second pipe to the sink. Bytes that do not fit into the second
//! pipe wait in a queue of unlinked files, in memory or in a directory.

mod buffered;
mod end;
mod outcome;
mod run;
mod store;
mod unwritten;

pub use buffered::{Buffered, Place};
pub use outcome::{BufferedOutcome, Refused};
pub use unwritten::Unwritten;
