//! `cordboard cue CONTROL COMMAND`: steers another command, or any control
//! descriptor that is linked with a UNIX socket.

mod run;
mod show;

pub use run::run;
pub use show::{is_status, name_of, value};
