//! The limit of the memory of all pipes of one process together.
//!
//! `fs.pipe-user-pages-soft` (64 MiB by default) limits the capacity of all
//! pipes of a user. Past the limit the kernel gives every new pipe of that user
//! one or two pages, in every program. So the capacities of one process's pipes
//! above the default are at most half of the limit in sum, and all pipes in use
//! get the same share: a transfer that began early must not be faster than the
//! others. No pipe gets less than the kernel's default of 16 pages.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::capacity::{LARGEST, default_capacity, max_capacity};
use crate::sys::{Known, PerProcess, number, page_size};

/// The account of one process. A child of `fork(2)` has an account of its own,
/// since it does not see what its parent releases.
#[derive(Default)]
struct Budget {
    /// Bytes of capacity above the default, over all pipes in use and kept.
    granted: AtomicUsize,
    /// Pipes in use.
    in_use: AtomicUsize,
}

fn budget() -> &'static Budget {
    static BUDGET: PerProcess<Budget> = PerProcess::new();
    let Ok(budget) = BUDGET.get(|_| Ok::<_, Infallible>(Budget::default()));
    budget
}

/// Returns the equal share of each pipe in use, as a capacity in bytes: a power
/// of two, to which `fcntl(2)` rounds. Each pipe takes its capacity above the
/// default from the budget.
pub(super) fn fair() -> usize {
    let most = LARGEST.min(max_capacity()).max(default_capacity());
    let above = limit() / budget().in_use.load(Ordering::Relaxed).max(1);
    1 << default_capacity()
        .saturating_add(above)
        .clamp(default_capacity(), most)
        .ilog2()
}

/// Counts one pipe in use until it is dropped.
pub(super) struct User(&'static Budget);

impl User {
    pub(super) fn new() -> User {
        let budget = budget();
        budget.in_use.fetch_add(1, Ordering::Relaxed);
        User(budget)
    }
}

/// Returns the number of pipes in use.
#[cfg(test)]
pub(crate) fn users() -> usize {
    budget().in_use.load(Ordering::Relaxed)
}

impl Drop for User {
    fn drop(&mut self) {
        self.0.in_use.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The part of the budget that one pipe takes: its capacity above the default.
/// It returns to the budget that it was taken from.
pub(super) struct Share {
    bytes: usize,
    budget: &'static Budget,
}

impl Share {
    pub(super) fn none() -> Share {
        Share {
            bytes: 0,
            budget: budget(),
        }
    }

    /// Changes the share to that of this capacity. `false` if the budget does
    /// not allow it; a smaller share is always allowed.
    pub(super) fn set(&mut self, capacity: usize) -> bool {
        let above = capacity.saturating_sub(default_capacity());
        let update = |granted: usize| {
            let after = granted.saturating_sub(self.bytes).saturating_add(above);
            (above <= self.bytes || after <= limit()).then_some(after)
        };
        let granted = &self.budget.granted;
        let set = granted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
        if set.is_ok() {
            self.bytes = above;
        }
        set.is_ok()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Returns half of the kernel's limit for the pipes of a user, in bytes; 256 MiB
/// if there is none. The kernel's limit binds unprivileged processes only; this
/// one binds every process.
pub(super) fn limit() -> usize {
    static LIMIT: Known = Known::not_yet();
    LIMIT.get(|| {
        let pages = number("/proc/sys/fs/pipe-user-pages-soft").unwrap_or(16384);
        // 0 means no limit.
        if pages == 0 {
            256 << 20
        } else {
            pages.saturating_mul(page_size() / 2)
        }
    })
}
