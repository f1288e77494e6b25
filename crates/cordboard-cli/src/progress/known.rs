//! A number that may not be complete.

/// A number that is being counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// The number so far.
    pub count: u64,
    /// There are no more; otherwise there may be.
    pub is_all: bool,
}

impl Known {
    /// A number that is complete.
    pub fn all(count: u64) -> Known {
        Known {
            count,
            is_all: true,
        }
    }

    /// Returns the number if it is complete.
    pub fn complete(self) -> Option<u64> {
        self.is_all.then_some(self.count)
    }
}
