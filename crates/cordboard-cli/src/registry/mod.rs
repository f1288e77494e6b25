//! The directory of the running commands of a user, which `cordboard top` reads. Each command
//! with a control socket adds an entry that names the socket.

mod directory;
mod entry;
mod listening;

pub use directory::Directory;
pub use entry::{Entry, Registered};
pub use listening::Listening;
