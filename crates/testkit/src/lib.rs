//! Sources and sinks of every kind, for the tests and the benches.
//!
//! [`Source::make`] returns a descriptor to read from, with what feeds it (a thread
//! at the other end of a pipe, a loop device, queued signals) and a description of
//! the bytes that must come out of it. [`Sink::make`] returns a descriptor to write
//! to, and [`Sink::finish`] what arrived. [`model::run`] is the plain read/write
//! loop that everything is compared with.
//!
//! What this machine or this user lacks is found by [`needs`], and reported and
//! counted by [`skip::report`].
//!
//! | subject | modules |
//! |---|---|
//! | every kind of descriptor | [`source`], [`sink`], [`spec`], [`expect`], [`pattern`], [`matrix`], [`table`] |
//! | special files, devices and sockets | [`fuse`], [`loopdev`], [`tun`], [`sockets`] |
//! | descriptors that make a call wait | [`obstacle`], [`locked`] (pipes), [`locked_file`] (files), [`stalled`] (TCP), [`full`] (UNIX) |
//! | system calls | [`refuse`]: fail; [`midst`]: held in a thread; [`stall`]: held in a child; [`calls`]: counted |
//! | processes and threads | [`owned`], [`child`], [`thread_start`], [`ends`] |
//! | memory | [`allocated`] |
//! | running tests | [`needs`], [`environment`], [`filesystem`], [`skip`], [`watchdog`], [`rounds`] |

pub mod allocated;
pub mod calls;
pub mod child;
pub mod ends;
pub mod environment;
pub mod expect;
pub mod file;
pub mod filesystem;
pub mod full;
pub mod fuse;
pub mod locked;
pub mod locked_file;
pub mod loopdev;
pub mod matrix;
pub mod midst;
pub mod model;
pub mod needs;
pub mod obstacle;
pub mod one_processor;
pub mod owned;
pub mod pattern;
pub mod refuse;
pub mod rounds;
pub mod sink;
pub mod skip;
pub mod sockets;
pub mod source;
pub mod spec;
pub mod stall;
pub mod stalled;
pub mod table;
pub mod tcp;
pub mod thread_start;
pub mod tun;
pub mod veth;
pub mod watchdog;
mod wire;

pub use expect::Expect;
pub use sink::{Collected, Sink, SinkKind};
pub use source::{Ask, Source, SourceKind};
pub use spec::{Pace, Spec};
