//! Counting: the report counts what every stage has seen, and this one does
//! nothing else.

use super::inspect::Inspect;

/// Sees the bytes pass.
pub(super) struct Count;

impl Inspect for Count {
    fn name(&self) -> &'static str {
        "count"
    }

    fn inspect(&mut self, _bytes: &[u8]) {}

    fn inspect_zeros(&mut self, _count: u64) {}
}
