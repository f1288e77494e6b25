//! The directories of the running commands of a user, which `cordboard top` reads. Each command
//! with a control socket adds an entry that names the socket.

mod directory;
mod entry;
mod listening;
mod places;

pub use directory::Directory;
pub use entry::{Entry, Registered};
pub use listening::Listening;
pub use places::{Opened, Places};
