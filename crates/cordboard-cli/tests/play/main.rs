//! `cordboard play`: frames whole and in order, the audio beside them, and an
//! account of both. Nothing here asserts a time: how frames are paced is tested
//! beside the code, with time that is made up.
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
