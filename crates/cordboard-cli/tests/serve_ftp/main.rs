//! `cordboard serve ftp`, by a client that sends exact bytes, and by other programs.
#![allow(missing_docs)]

mod aborts;
mod bounds;
mod client;
#[path = "../common/mod.rs"]
mod common;
mod confinement;
mod connection;
mod data;
mod endings;
mod hostile;
mod listed;
mod logins;
mod modes;
mod names;
mod reading;
mod server;
mod tls;
mod tools;
#[allow(dead_code)]
#[path = "../top/tty.rs"]
mod tty;
mod writing;
