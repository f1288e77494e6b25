//! The stages of one transfer, and those among them that see what the sink
//! accepts.

use super::boxed::{Nature, Stage};
use super::chain::Chain;
use super::inspector::Inspector;
use super::report::StageReport;

/// All stages of one transfer: up to the last that changes the bytes, a chain
/// that the path at work borrows; behind it, what looks at what the sink
/// accepts.
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

    /// Some stage changes the bytes.
    pub(crate) fn transforms(&self) -> bool {
        self.transforms
    }

    /// Somebody looks at what the sink accepts.
    pub(crate) fn look(&self) -> bool {
        !self.tail.is_empty()
    }

    /// Lends the chain to the path at work …
    pub(crate) fn lend(&mut self) -> Option<Chain> {
        self.chain.take()
    }

    /// … which gives it back at the end.
    pub(crate) fn give_back(&mut self, chain: Chain) {
        self.chain = Some(chain);
    }

    /// The sink accepted these.
    pub(crate) fn inspect(&mut self, bytes: &[u8]) {
        self.tail.iter_mut().for_each(|seen| seen.inspect(bytes));
    }

    /// The sink got a hole.
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
