//! The synchronization types of the queue. The model check (`crates/model`)
//! compiles the queue against its own types.

pub(super) use std::sync::{Condvar, Mutex, MutexGuard};
