//! A stage that only inspects, with the count of bytes it has seen.

use super::inspect::Inspect;
use super::report::StageReport;
use crate::threads::run_callers;

/// An inspecting stage, and the number of bytes it has seen.
pub(crate) struct Inspector {
    stage: Box<dyn Inspect>,
    bytes: u64,
}

impl Inspector {
    pub(super) fn by(stage: Box<dyn Inspect>) -> Inspector {
        Inspector { stage, bytes: 0 }
    }

    pub(super) fn inspect(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        run_callers(|| self.stage.inspect(bytes));
    }

    pub(super) fn inspect_zeros(&mut self, count: u64) {
        self.bytes += count;
        run_callers(|| self.stage.inspect_zeros(count));
    }

    pub(super) fn report(&self) -> StageReport {
        StageReport {
            stage: self.stage.name(),
            bytes_in: self.bytes,
            bytes_out: self.bytes,
            digest: self.stage.digest(),
            fault: None,
        }
    }
}
