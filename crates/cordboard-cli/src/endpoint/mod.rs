//! Endpoints by name: what a name means, and how it is opened.

mod alias;
mod device;
mod file_id;
mod interrupt;
mod linger;
mod name;
mod net;
mod nowhere;
mod open;
mod stale;
mod stand_in;
mod standard;
mod unix;

pub use alias::{
    is_alias, is_directory_alias, is_kept_alias, not_emptied, not_onto_itself, same_contents,
};
pub use file_id::Removable;
pub use name::{Name, file, is_no_path, parse};
pub use nowhere::nowhere;
pub use open::{Opened, can_have_holes, cut, has_end, one_file, same_file, sink, source};
pub use stand_in::{StandIn, stand_in};
pub use standard::{
    look as look_at_standard, not_opened, placeholder, was_closed as standard_was_closed,
};
