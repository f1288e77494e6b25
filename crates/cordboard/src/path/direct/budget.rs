//! What blocks in flight may take of memory, which the kernel pins.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::sys::{LARGEST_ARENA, PerProcess, memory_limit};

/// Of all transfers of one process.
const PROCESS: usize = 64 << 20;
/// Of one transfer, at least.
const LEAST: usize = 1 << 20;

/// A child of `fork(2)` has none of its parent's blocks: they are not copied
/// for it, and what the parent gives back it never hears of.
static GRANTED: PerProcess<AtomicUsize> = PerProcess::new();

/// Of the control group, past which the kernel kills a process: what is pinned cannot
/// be taken back. Read once.
static LIMIT: PerProcess<u64> = PerProcess::new();

/// So many bytes of the budget; they go back when it is dropped, to where they
/// were taken from.
#[derive(Debug)]
pub(super) struct Share {
    bytes: usize,
    granted: &'static AtomicUsize,
}

impl Share {
    /// Up to 8 MiB, no more than `wanted` is worth, of the 64 MiB that a
    /// process has; less where they are nearly used up. `None`: they are. No more
    /// than an eighth of what the control group has, and of all no more than half,
    /// but 1 MiB.
    pub(super) fn take(wanted: u64) -> Option<Share> {
        let granted = GRANTED.get(|_| Ok::<_, Infallible>(AtomicUsize::new(0)));
        let limit = LIMIT.get(|_| Ok::<_, Infallible>(memory_limit().unwrap_or(u64::MAX)));
        let (Ok(granted), Ok(&limit)) = (granted, limit);
        Share::of(granted, wanted, limit).map(|bytes| Share { bytes, granted })
    }

    fn of(granted: &AtomicUsize, wanted: u64, limit: u64) -> Option<usize> {
        let part = |of: u64| usize::try_from(limit / of).unwrap_or(usize::MAX).max(LEAST);
        let process = PROCESS.min(part(2));
        let wanted = usize::try_from(wanted).unwrap_or(LARGEST_ARENA);
        let most = LARGEST_ARENA.min(1 << part(8).ilog2());
        let mut bytes = wanted.clamp(LEAST, most);
        while bytes >= LEAST {
            let update = |used: usize| Some(used + bytes).filter(|sum| *sum <= process);
            let taken = granted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, update);
            if taken.is_ok() {
                return Some(bytes);
            }
            bytes /= 2;
        }
        None
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.granted.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_shares_together_are_bounded() {
        let granted = AtomicUsize::new(0);
        let shares: Vec<usize> =
            std::iter::from_fn(|| Share::of(&granted, u64::MAX, u64::MAX)).collect();
        assert_eq!(shares, [LARGEST_ARENA; 8]);
        assert_eq!(Share::of(&granted, 1, u64::MAX), None);
        granted.fetch_sub(3 << 20, Ordering::Relaxed);
        assert_eq!(Share::of(&granted, u64::MAX, u64::MAX), Some(2 << 20));
        assert_eq!(Share::of(&granted, 1, u64::MAX), Some(LEAST));
    }

    /// Past the limit, the process would be killed.
    #[test]
    fn a_limit_of_the_control_group_leaves_room() {
        let shares = |limit: u64| {
            let granted = AtomicUsize::new(0);
            let shares = std::iter::from_fn(|| Share::of(&granted, u64::MAX, limit));
            shares.collect::<Vec<usize>>()
        };
        assert_eq!(shares(0), [LEAST]);
        assert_eq!(shares(3 << 20), [LEAST]);
        assert_eq!(shares(10 << 20), [LEAST; 5]);
        assert_eq!(shares(40 << 20), [4 << 20; 5]);
        assert_eq!(shares(1 << 30), [LARGEST_ARENA; 8]);
    }

    /// A fork beside transfers that have it all leaves the child its own.
    #[test]
    fn a_child_has_a_budget_of_its_own() {
        let all: Vec<Share> = std::iter::from_fn(|| Share::take(u64::MAX)).collect();
        assert!(!all.is_empty() && Share::take(1).is_none());
        assert!(testkit::child::in_a_child(|| {
            let whole = |share: Option<Share>| share.is_some_and(|s| s.bytes() == LARGEST_ARENA);
            let fine = whole(Share::take(u64::MAX));
            drop(all);
            fine && whole(Share::take(u64::MAX))
        }));
    }
}
