//! A count that may be incomplete.

/// A count that may be incomplete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// The number so far.
    pub count: u64,
    /// The number is complete; otherwise there may be more.
    pub is_all: bool,
}

impl Known {
    /// Creates a complete count.
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
