//! The directory in which the running commands of a user are found: `cordboard top`
//! reads it. Each command with a control socket writes an entry that names the socket.

mod directory;
mod entry;
mod listening;

pub use directory::Directory;
pub use entry::{Entry, Registered};
pub use listening::Listening;
