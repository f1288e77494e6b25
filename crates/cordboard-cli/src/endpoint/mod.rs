//! Endpoints by name: what a name means, and how it is opened.

mod alias;
mod control;
mod discard;
mod examine;
mod listening;
mod name;
mod open;
mod opened;
mod preview;
mod same_file;
mod several;
mod sockets;
mod standard;

pub use alias::{
    check_alias, check_append_to_itself, check_kept_alias, check_not_emptied, is_alias,
    is_directory_alias, is_kept_alias, is_loop_device_of,
};
pub use control::{check_control_name, connect_at_once, control_connection, control_socket};
pub use discard::discard_sink;
pub use examine::{check_source_offset, examine};
pub use listening::Shared;
pub use name::{Name, file, names_other_endpoint, parse, path_in_hash_lines};
pub use open::{
    check_appendable, sink, sink_sharing, source, source_of_several, source_sharing,
    without_offsets,
};
pub use opened::{Existing, Opened, check_sparse, truncate};
pub use preview::{Preview, StandIn, preview};
pub use same_file::{check_same_file, same_file_problem};
pub use several::{leaving, sinks, sources};
pub use sockets::linger::until_acknowledged;
pub use sockets::unix::SocketFile;
pub use standard::open_problem;
