//! Limits the memory of blocks in flight, which the kernel pins.

use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::sys::{LARGEST_ARENA, PerProcess, memory_limit};

/// Bytes for all transfers of one process.
const PROCESS: usize = 64 << 20;
/// The smallest reservation of one transfer.
const LEAST: usize = 1 << 20;

/// Bytes reserved. A child of `fork(2)` has none of its parent's blocks: they are not
/// copied for it, and it does not learn what the parent releases.
static GRANTED: PerProcess<AtomicUsize> = PerProcess::new();

/// The memory limit of the control group, past which the kernel kills a process:
/// pinned memory cannot be reclaimed. Read once.
static LIMIT: PerProcess<u64> = PerProcess::new();

/// A number of bytes of the budget, released on drop to the counter that they were
/// taken from.
#[derive(Debug)]
pub(super) struct Reservation {
    bytes: usize,
    granted: &'static AtomicUsize,
}

impl Reservation {
    /// Reserves up to 8 MiB, no more than `wanted`, of the 64 MiB of a process; less
    /// if they are nearly used up. `None`: they are used up. One transfer gets at
    /// most an eighth of the control group's limit, and all together at most half,
    /// but at least 1 MiB.
    pub(super) fn take(wanted: u64) -> Option<Reservation> {
        let granted = GRANTED.get(|_| Ok::<_, Infallible>(AtomicUsize::new(0)));
        let limit = LIMIT.get(|_| Ok::<_, Infallible>(memory_limit().unwrap_or(u64::MAX)));
        let (Ok(granted), Ok(&limit)) = (granted, limit);
        Reservation::reserve(granted, wanted, limit).map(|bytes| Reservation { bytes, granted })
    }

    fn reserve(granted: &AtomicUsize, wanted: u64, limit: u64) -> Option<usize> {
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

impl Drop for Reservation {
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
        let reservations: Vec<usize> =
            std::iter::from_fn(|| Reservation::reserve(&granted, u64::MAX, u64::MAX)).collect();
        assert_eq!(reservations, [LARGEST_ARENA; 8]);
        assert_eq!(Reservation::reserve(&granted, 1, u64::MAX), None);
        granted.fetch_sub(3 << 20, Ordering::Relaxed);
        assert_eq!(
            Reservation::reserve(&granted, u64::MAX, u64::MAX),
            Some(2 << 20)
        );
        assert_eq!(Reservation::reserve(&granted, 1, u64::MAX), Some(LEAST));
    }

    /// Past the limit, the process would be killed.
    #[test]
    fn a_limit_of_the_control_group_leaves_room() {
        let reservations = |limit: u64| {
            let granted = AtomicUsize::new(0);
            let reservations =
                std::iter::from_fn(|| Reservation::reserve(&granted, u64::MAX, limit));
            reservations.collect::<Vec<usize>>()
        };
        assert_eq!(reservations(0), [LEAST]);
        assert_eq!(reservations(3 << 20), [LEAST]);
        assert_eq!(reservations(10 << 20), [LEAST; 5]);
        assert_eq!(reservations(40 << 20), [4 << 20; 5]);
        assert_eq!(reservations(1 << 30), [LARGEST_ARENA; 8]);
    }

    /// A fork while transfers use the whole budget leaves the child its own.
    #[test]
    fn a_child_has_a_budget_of_its_own() {
        let all: Vec<Reservation> = std::iter::from_fn(|| Reservation::take(u64::MAX)).collect();
        assert!(!all.is_empty() && Reservation::take(1).is_none());
        assert!(testkit::child::in_a_child(|| {
            let whole = |reservation: Option<Reservation>| {
                reservation.is_some_and(|s| s.bytes() == LARGEST_ARENA)
            };
            let fine = whole(Reservation::take(u64::MAX));
            drop(all);
            fine && whole(Reservation::take(u64::MAX))
        }));
    }
}
