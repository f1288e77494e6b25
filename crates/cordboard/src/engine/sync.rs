//! The synchronization primitives of the engine's shared state. The model
//! (`crates/model`) compiles the files that use this module against its own.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};

pub(crate) use crate::errno::Errno;
pub(crate) use crate::sys::{Event, WakeFd};
pub(crate) use crate::threads::guard_callers;
