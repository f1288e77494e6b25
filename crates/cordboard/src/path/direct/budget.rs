//! What blocks in flight may take of memory, which the kernel pins.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::sys::LARGEST_ARENA;

/// Of all transfers of one process.
const PROCESS: usize = 64 << 20;
/// Of one transfer, at least.
const LEAST: usize = 1 << 20;

static GRANTED: AtomicUsize = AtomicUsize::new(0);

/// So many bytes of the budget; they go back when it is dropped.
#[derive(Debug)]
pub(super) struct Share(usize);

impl Share {
    /// Up to 8 MiB, no more than `wanted` is worth, of the 64 MiB that a
    /// process has; less where they are nearly used up. `None`: they are.
    pub(super) fn take(wanted: u64) -> Option<Share> {
        Share::of(&GRANTED, wanted).map(Share)
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
        self.0
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        GRANTED.fetch_sub(self.0, Ordering::Relaxed);
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
}
