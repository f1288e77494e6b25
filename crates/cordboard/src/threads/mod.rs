//! Threads for calls that block in the kernel. They start when there is work
//! and exit after a period without any. All signals are blocked in them.

mod caller;
mod pool;
mod queue;
mod shared;
mod sync;
mod thread;

pub(crate) use caller::{guard_callers, run_callers};
pub(crate) use pool::{ThreadPool, Work};
pub(crate) use shared::{call, spawn};
pub(crate) use thread::{NO_OWNER, is_of, rename, start};
