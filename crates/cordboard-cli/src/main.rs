//! `cordboard`: moves bytes between any two endpoints, from the shell.

#![cfg_attr(not(test), no_main)]
#![deny(unsafe_code)]

mod bounded_write;
mod buffer;
mod cat;
mod copy;
mod cue;
mod directory;
mod endpoint;
#[allow(unsafe_code)]
mod entry;
mod exit;
mod explain;
mod fan_in;
mod fan_out;
mod files;
mod flags;
mod inherited;
mod interruptible;
mod keyboard;
mod man;
mod memory;
mod output;
mod play;
mod polling;
mod print;
mod problem;
mod progress;
mod registry;
mod report;
mod request;
mod run;
mod serve;
mod session;
mod signals;
mod socket_calls;
mod splice;
mod stages;
mod steering;
#[allow(unsafe_code)]
mod sys;
mod tcp_options;
mod top;
mod units;
mod usage;
mod user;
