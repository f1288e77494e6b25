//! The memory of the listings of all sessions.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The maximum memory of all listings in bytes.
pub const LISTINGS: u64 = 256 << 20;

/// A number of bytes that all sessions share.
pub struct Budget(AtomicU64);

impl Budget {
    pub fn new(bytes: u64) -> Arc<Budget> {
        Arc::new(Budget(AtomicU64::new(bytes)))
    }
}

/// A part of a budget. Its drop gives the bytes back.
pub struct Share {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Share {
    pub fn none_of(budget: &Arc<Budget>) -> Share {
        Share {
            budget: Arc::clone(budget),
            bytes: 0,
        }
    }

    /// Adds bytes to the share.
    ///
    /// # Errors
    ///
    /// `OutOfMemory`: the budget has fewer bytes.
    pub fn add(&mut self, bytes: usize) -> io::Result<()> {
        let bytes = bytes as u64;
        let relaxed = Ordering::Relaxed;
        let taken = (self.budget.0).fetch_update(relaxed, relaxed, |left| left.checked_sub(bytes));
        taken.map_err(|_| {
            let text = "the listings need too much memory";
            io::Error::new(io::ErrorKind::OutOfMemory, text)
        })?;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.0.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_do_not_exceed_the_budget() {
        let budget = Budget::new(10);
        let (mut one, mut other) = (Share::none_of(&budget), Share::none_of(&budget));
        one.add(6).unwrap();
        let error = other.add(5).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
        other.add(4).unwrap();
        assert!(one.add(1).is_err());
        drop(other);
        one.add(4).unwrap();
        drop(one);
        Share::none_of(&budget).add(10).unwrap();
    }
}
