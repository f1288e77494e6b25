//! Control descriptors, which start and steer transfers: the `cue()` of Bhatia and
//! Bharadwaj's paper.
//!
//! [`Cue::new`] returns a control descriptor. Commands are written to it, and records
//! are read from it ([`Command`], [`Record`]). One thread of the process reads the
//! commands of all control descriptors and starts transfers on the engine. It sleeps
//! while nothing happens, at most a minute at a time.
//!
//! A control descriptor is itself an endpoint. `Cue::new(socket, &cue)` passes the bytes
//! from the socket to `cue` as commands, and returns the records of `cue` to the socket.
//! By such a link, a remote peer can steer transfers.

mod calls;
mod handle;
mod limits;
mod output;
mod protocol;
mod registry;
mod service;
mod stranded;
mod stream;

#[doc(hidden)]
pub use calls::{receive_at_once, send_at_once};
pub use handle::Cue;
pub use protocol::{
    BadCommand, Command, Commands, Done, Limit, Record, Records, State, Status, VERSION,
};
