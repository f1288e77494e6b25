//! What the state that the engine's threads share is made of. The model check
//! (`crates/model`) compiles the files that use it against its own.

pub(crate) use std::sync::atomic::{AtomicBool, Ordering};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

pub(crate) use crate::errno::Errno;
pub(crate) use crate::guarded::guarded;
pub(crate) use crate::sys::{Event, EventFd};
