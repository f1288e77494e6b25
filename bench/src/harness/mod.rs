//! Measuring, recording and reporting.

mod bench;
pub mod contestant;
pub mod cores;
pub mod cpu;
pub mod digest;
pub mod env;
pub mod figures;
pub mod files;
pub mod interleave;
pub mod launch;
pub mod load;
pub mod loopfs;
pub mod mapping;
pub mod memory;
pub mod network;
pub mod profile;
pub mod prune;
pub mod record;
pub mod ring;
pub mod runs;
pub mod series;
pub mod stats;
pub mod summary;
pub mod sys;
pub mod target;
pub mod throttle;
pub mod tools;
pub mod usage;
pub mod workqueues;

pub use bench::{Bench, Options};
