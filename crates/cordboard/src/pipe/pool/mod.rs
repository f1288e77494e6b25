//! Idle pipes and socket pairs, to use again.
//!
//! Making a pipe and growing it to 1 MiB costs as much as moving half a
//! megabyte, so a few are kept.

use std::convert::Infallible;

use super::budget::{User, fair};
use super::capacity::{LARGEST, max_capacity};
use super::channel::Channel;
use super::owned::OwnedPipe;
use super::shelf::Shelf;
use super::socket_pair::SocketPair;
use crate::errno::Errno;
use crate::sys::{PerProcess, page_size};

/// The idle pipes of one process. A child of `fork(2)` has a pool of its own: it
/// must not share a pipe with its parent, and another thread may have held the
/// lock.
#[derive(Default)]
struct PipePool {
    idle: Shelf<OwnedPipe>,
    pairs: Shelf<SocketPair>,
}

fn pool() -> &'static PipePool {
    static POOL: PerProcess<PipePool> = PerProcess::new();
    let Ok(pool) = POOL.get(|parents| Ok::<_, Infallible>(PipePool::after(parents)));
    pool
}

impl PipePool {
    /// Makes a pool. In a child, closes the pipes inherited from the parent.
    fn after(parents: Option<&'static PipePool>) -> PipePool {
        if let Some(parents) = parents {
            parents.idle.clear();
            parents.pairs.clear();
        }
        PipePool::default()
    }
}

/// Returns an empty pipe of this capacity in bytes, or of less if the budget or
/// the kernel limits it.
///
/// # Errors
///
/// `EMFILE`, `ENFILE`, `ENOMEM`: no pipe is available. The caller then takes a
/// path without one.
pub(crate) fn acquire(capacity: usize) -> Result<OwnedPipe, Errno> {
    let user = User::new();
    let wanted = capacity.clamp(page_size(), LARGEST.min(max_capacity()));
    let capacity = wanted.min(fair());
    let mut pipe = match pool().idle.take(|pipe| pipe.capacity() == capacity) {
        Some(pipe) => pipe,
        None => OwnedPipe::open()?,
    };
    (pipe.user, pipe.wanted, pipe.was_full) = (Some(user), wanted, false);
    pipe.resize(capacity);
    Ok(pipe)
}

impl OwnedPipe {
    /// Returns the pipe to the pool. A pipe that is not empty is closed, never
    /// used again.
    pub(crate) fn release(mut self) {
        if self.held() > 0 {
            return;
        }
        self.user = None;
        pool().idle.put(self);
    }
}

/// Returns an empty pair.
///
/// # Errors
///
/// As [`SocketPair::open`].
pub(crate) fn acquire_pair() -> Result<SocketPair, Errno> {
    match pool().pairs.take(|_| true) {
        Some(pair) => Ok(pair),
        None => SocketPair::open(),
    }
}

/// Returns a pair to the pool. A pair that is not empty is closed, never used
/// again.
pub(crate) fn release_pair(pair: SocketPair) {
    match pair.held() {
        0 => pool().pairs.put(pair),
        _ => pair.close(),
    }
}

#[cfg(test)]
mod tests;
