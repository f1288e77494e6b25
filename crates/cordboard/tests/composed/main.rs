//! Several sources, several sinks, and large buffers.

mod buffer;
#[path = "../common/mod.rs"]
mod common;
mod environment;
mod fan_in;
mod fan_out;
mod forks;
mod records;
