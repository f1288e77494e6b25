//! Several sources, several sinks, and large buffers.

mod buffer;
#[path = "../common/mod.rs"]
mod common;
mod fan_in;
mod fan_out;
mod forks;
