//! The caller's pipes whose capacity a transfer adapts.
//!
//! Two transfers may use one pipe: one writes to it and the other reads from it. Only
//! the first adapts its capacity. The second would take the enlarged capacity for the
//! owner's, and leave the pipe that large.

use std::convert::Infallible;
use std::os::fd::BorrowedFd;

use crate::sys::{Identity, Lock, PerProcess, identity};

/// The pipes of one process. A child of `fork(2)` starts with none.
fn table() -> &'static Lock<Vec<Identity>> {
    static TABLE: PerProcess<Lock<Vec<Identity>>> = PerProcess::new();
    let Ok(table) = TABLE.get(|_| Ok::<_, Infallible>(Lock::default()));
    table
}

/// The right to adapt a pipe, until it is dropped.
pub(super) struct Adapted(Identity);

impl Adapted {
    /// `None` if another transfer adapts the pipe, or if that is unknown.
    pub(super) fn begin(fd: BorrowedFd<'_>) -> Option<Adapted> {
        let id = identity(fd)?;
        let mut all = table().lock()?;
        if all.contains(&id) || all.try_reserve(1).is_err() {
            return None;
        }
        all.push(id);
        Some(Adapted(id))
    }
}

impl Drop for Adapted {
    fn drop(&mut self) {
        if let Some(mut all) = table().lock()
            && let Some(at) = all.iter().position(|id| *id == self.0)
        {
            all.swap_remove(at);
        }
    }
}
