//! `cordboard play`: frames whole and in order, the audio beside them, and a
//! report of both. Nothing here asserts a time: the pacing of frames is tested
//! beside the code, with simulated time.
#![allow(missing_docs)]

#[path = "../common/mod.rs"]
mod common;
mod endings;
mod film;
mod killed;
mod refusals;
mod sinks;
mod steering;
mod waits;
