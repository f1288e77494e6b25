//! A stage that only counts: the report has the count of every stage.

use super::inspect::Inspect;

/// Counts the bytes.
pub(super) struct Count;

impl Inspect for Count {
    fn name(&self) -> &'static str {
        "count"
    }

    fn inspect(&mut self, _bytes: &[u8]) {}

    fn inspect_zeros(&mut self, _count: u64) {}
}
