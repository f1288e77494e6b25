//! The stages of one transfer.

use super::builtin::{Nature, Stage};
use super::chain::Chain;
use super::inspector::Inspector;
use super::report::StageReport;

/// All stages of one transfer: a chain up to the last stage that changes the
/// bytes, which the current path borrows; and the stages after it, which
/// inspect what the sink accepts.
#[derive(Default)]
pub(crate) struct Stages {
    chain: Option<Chain>,
    tail: Vec<Inspector>,
    transforms: bool,
}

impl Stages {
    pub(crate) fn push(&mut self, stage: Stage) {
        match stage.0 {
            Nature::Inspect(stage) => self.tail.push(Inspector::by(stage)),
            Nature::Transform(stage) => {
                self.transforms = true;
                let before = std::mem::take(&mut self.tail);
                self.chain.get_or_insert_default().push(before, stage);
            }
        }
    }

    /// Whether a stage changes the bytes.
    pub(crate) fn transforms(&self) -> bool {
        self.transforms
    }

    /// Whether a stage inspects what the sink accepts.
    pub(crate) fn look(&self) -> bool {
        !self.tail.is_empty()
    }

    /// Lends the chain to the current path, which returns it by
    /// [`Stages::give_back`].
    pub(crate) fn lend(&mut self) -> Option<Chain> {
        self.chain.take()
    }

    /// Takes the chain back at the end of a path.
    pub(crate) fn give_back(&mut self, chain: Chain) {
        self.chain = Some(chain);
    }

    /// Inspects bytes that the sink accepted.
    pub(crate) fn inspect(&mut self, bytes: &[u8]) {
        self.tail.iter_mut().for_each(|seen| seen.inspect(bytes));
    }

    /// Inspects a hole that was made in the sink.
    pub(crate) fn inspect_zeros(&mut self, count: u64) {
        let all = self.tail.iter_mut();
        all.for_each(|seen| seen.inspect_zeros(count));
    }

    pub(crate) fn report(&self) -> Vec<StageReport> {
        let mut all = self.chain.as_ref().map_or_else(Vec::new, Chain::report);
        all.extend(self.tail.iter().map(Inspector::report));
        all
    }
}
