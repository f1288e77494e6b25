//! What blocks in flight may take of memory, which the kernel pins.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::sys::{LARGEST_ARENA, PerProcess};

/// Of all transfers of one process.
const PROCESS: usize = 64 << 20;
/// Of one transfer, at least.
const LEAST: usize = 1 << 20;

/// A child of `fork(2)` has none of its parent's blocks: they are not copied
/// for it, and what the parent gives back it never hears of.
static GRANTED: PerProcess<AtomicUsize> = PerProcess::new();

/// So many bytes of the budget; they go back when it is dropped, to where they
/// were taken from.
#[derive(Debug)]
pub(super) struct Share {
    bytes: usize,
    granted: &'static AtomicUsize,
}

impl Share {
    /// Up to 8 MiB, no more than `wanted` is worth, of the 64 MiB that a
    /// process has; less where they are nearly used up. `None`: they are.
    pub(super) fn take(wanted: u64) -> Option<Share> {
        let granted = GRANTED.get(|_| Ok::<_, Infallible>(AtomicUsize::new(0)));
        let granted = granted.unwrap_or_else(|never| match never {});
        Share::of(granted, wanted).map(|bytes| Share { bytes, granted })
    }

    fn of(granted: &AtomicUsize, wanted: u64) -> Option<usize> {
        let wanted = usize::try_from(wanted).unwrap_or(LARGEST_ARENA);
        let mut bytes = wanted.clamp(LEAST, LARGEST_ARENA);
        while bytes >= LEAST {
            let update = |used: usize| Some(used + bytes).filter(|sum| *sum <= PROCESS);
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
        let shares: Vec<usize> = std::iter::from_fn(|| Share::of(&granted, u64::MAX)).collect();
        assert_eq!(shares, [LARGEST_ARENA; 8]);
        assert_eq!(Share::of(&granted, 1), None);
        granted.fetch_sub(3 << 20, Ordering::Relaxed);
        assert_eq!(Share::of(&granted, u64::MAX), Some(2 << 20));
        assert_eq!(Share::of(&granted, 1), Some(LEAST));
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
