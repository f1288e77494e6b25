//! Sources and sinks of every kind, for the tests and the benches.
//!
//! [`Source::make`] gives a descriptor to read from, with whatever it takes to
//! keep it fed (a thread at the other end of a pipe, a loop device, queued
//! signals) and a description of the bytes that must come out of it.
//! [`Sink::make`] gives a descriptor to write to, and [`Sink::finish`] tells
//! what arrived. [`model::run`] is the plain read/write loop that everything
//! is compared with.
//!
//! A kind that this machine or this user cannot have is reported by
//! [`skip::report`] and counted, never passed over in silence.

pub mod calls;
pub mod child;
pub mod ends;
pub mod expect;
pub mod fuse;
pub mod locked;
pub mod loopdev;
pub mod matrix;
pub mod midst;
pub mod model;
pub mod needs;
pub mod obstacle;
pub mod pattern;
pub mod refuse;
pub mod rounds;
pub mod sink;
pub mod skip;
pub mod source;
pub mod spec;
pub mod stall;
pub mod stalled;
pub mod starting;
pub mod table;
pub mod tun;
pub mod watchdog;
mod wire;

pub use expect::Expect;
pub use sink::{Collected, Sink, SinkKind};
pub use source::{Ask, Source, SourceKind};
pub use spec::{Pace, Spec};
