//! One file: opening both sides, copying, verifying, closing.

mod appended;
mod finish;
mod lease;
mod mode;
mod open;
mod opened;
mod read_once;
mod sink;
mod source;
mod unfit;
mod verify;

pub use finish::{CopyObserver, NoObserver};
pub use mode::{OpenError, OpenMode};
pub use opened::Opened;
