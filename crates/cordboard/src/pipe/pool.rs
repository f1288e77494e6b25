//! Pipes to use again, within a budget.
//!
//! Making a pipe and growing it to 1 MiB costs as much as moving half a
//! megabyte, so a few are kept. What a user's pipes hold together is limited
//! (`fs.pipe-user-pages-soft`, 64 MiB by default): past it the kernel gives
//! every new pipe of that user one or two pages, in every program. So the
//! pipes of one process take at most half of that between them; those beyond
//! stay at the kernel's default of 64 KiB.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, TryLockError};

use super::{DEFAULT, LARGEST, OwnedPipe};
use crate::errno::Errno;
use crate::sys::Stamp;

/// Idle pipes that are kept.
const KEPT: usize = 8;

struct Pool {
    /// The process that these pipes belong to: a child after `fork(2)` has
    /// the same descriptors, and must not share a pipe with its parent.
    owner: Stamp,
    idle: Vec<OwnedPipe>,
}

static POOL: Mutex<Pool> = Mutex::new(Pool {
    owner: Stamp::NOBODY,
    idle: Vec::new(),
});

/// Bytes of capacity above the default, over all pipes in use and kept.
static GRANTED: AtomicUsize = AtomicUsize::new(0);

/// A pipe of this capacity, or of less where the budget or the kernel says so.
///
/// # Errors
///
/// `EMFILE`, `ENFILE`, `ENOMEM`: none is to be had; a path without a pipe is
/// then the way.
pub(crate) fn acquire(capacity: usize) -> Result<OwnedPipe, Errno> {
    let capacity = capacity.clamp(4096, LARGEST.min(max_size()));
    let kept = lock().and_then(|mut pool| {
        let best = pool
            .idle
            .iter()
            .position(|pipe| pipe.capacity() == capacity)
            .or_else(|| pool.idle.len().checked_sub(1));
        best.map(|index| pool.idle.swap_remove(index))
    });
    let mut pipe = match kept {
        Some(pipe) => pipe,
        None => OwnedPipe::open()?,
    };
    if pipe.share.set(capacity) {
        pipe.resize(capacity);
        pipe.share.set(pipe.capacity());
    }
    Ok(pipe)
}

pub(super) fn release(pipe: OwnedPipe) {
    if pipe.held() > 0 {
        return;
    }
    if let Some(mut pool) = lock()
        && pool.idle.len() < KEPT
    {
        pool.idle.push(pipe);
    }
}

/// What one pipe takes of the budget: its capacity above the default.
#[derive(Debug, Default)]
pub(super) struct Share(usize);

impl Share {
    /// What a pipe of this capacity needs, if the budget has it.
    pub(super) fn reserve(capacity: usize) -> Option<Share> {
        let mut share = Share::default();
        share.set(capacity).then_some(share)
    }

    /// Takes what this capacity needs, or gives back what it does not. `false`
    /// if the budget does not allow it.
    fn set(&mut self, capacity: usize) -> bool {
        let above = capacity.saturating_sub(DEFAULT);
        let update = |granted: usize| {
            let after = granted.saturating_sub(self.0).saturating_add(above);
            (above <= self.0 || after <= budget()).then_some(after)
        };
        let set = GRANTED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
        if set.is_ok() {
            self.0 = above;
        }
        set.is_ok()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// The pool, if nobody else is at it this moment: a child of `fork(2)` may have
/// been made while another thread held the lock, and would wait for ever.
fn lock() -> Option<MutexGuard<'static, Pool>> {
    let mut pool = match POOL.try_lock() {
        Ok(pool) => pool,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return None,
    };
    if !pool.owner.is_here() {
        pool.idle.clear();
        pool.owner = Stamp::here();
    }
    Some(pool)
}

/// Half of what a user's pipes may hold together; the limit binds the
/// unprivileged only, the moderation everyone.
fn budget() -> usize {
    static BUDGET: OnceLock<usize> = OnceLock::new();
    *BUDGET.get_or_init(|| {
        let pages = limit("/proc/sys/fs/pipe-user-pages-soft").unwrap_or(16384);
        // 0 means no limit.
        if pages == 0 {
            256 << 20
        } else {
            pages.saturating_mul(4096 / 2)
        }
    })
}

fn max_size() -> usize {
    static MAX: OnceLock<usize> = OnceLock::new();
    *MAX.get_or_init(|| limit("/proc/sys/fs/pipe-max-size").unwrap_or(LARGEST))
}

fn limit(path: &str) -> Option<usize> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_that_holds_bytes_is_never_used_again() {
        let mut pipe = acquire(LARGEST).unwrap();
        rustix::io::write(pipe.writer(), b"left over").unwrap();
        pipe.filled(9);
        let inode = |pipe: &OwnedPipe| rustix::fs::fstat(pipe.reader()).unwrap().st_ino;
        // Held open by this copy, so that no new pipe can have its number.
        let copy = pipe.reader().try_clone_to_owned().unwrap();
        let number = inode(&pipe);
        pipe.release();
        let others: Vec<_> = (0..KEPT + 1).map(|_| acquire(LARGEST).unwrap()).collect();
        assert!(others.iter().all(|other| inode(other) != number));
        drop(copy);
    }

    /// Case 51: a thousand pipes do not eat up the user's share.
    #[test]
    fn the_budget_bounds_what_many_pipes_take() {
        let pipes: Vec<_> = (0..200).map_while(|_| acquire(LARGEST).ok()).collect();
        let above: usize = pipes
            .iter()
            .map(|p| p.capacity().saturating_sub(DEFAULT))
            .sum();
        assert!(above <= budget(), "{above} of {}", budget());
        assert!(pipes.len() == 200);
    }
}
