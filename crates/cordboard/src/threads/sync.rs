//! What the queue is made of. The model check (`crates/model`) compiles the
//! queue against its own.

pub(super) use std::sync::{Condvar, Mutex, MutexGuard};
