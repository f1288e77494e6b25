//! Endpoints by name: what a name means, and how it is opened.

mod alias;
mod discard;
mod name;
mod open;
mod opened;
mod preview;
mod same_file;
mod sockets;
mod standard;

pub use alias::{
    is_alias, is_directory_alias, is_kept_alias, not_emptied, not_onto_itself, same_contents,
};
pub use discard::discard_sink;
pub use name::{Name, file, is_no_path, parse};
pub use open::{has_end, sink, source};
pub use opened::{Opened, can_have_holes, cut};
pub use preview::{Preview, preview};
pub use same_file::{one_file, same_file};
pub use standard::not_opened;
