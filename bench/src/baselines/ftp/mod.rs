//! The FTP server of the paper on `cue()`, in each of its ways to send a file, and
//! clients that discard what they get.

pub mod client;
pub mod server;
