//! The stages of one transfer, and those among them that see what the sink
//! accepts.

use super::{Chain, Inspect, Nature, Stage, StageReport};

/// One that looks, and how much it has seen.
pub(crate) struct Seen {
    stage: Box<dyn Inspect>,
    bytes: u64,
}

impl Seen {
    pub(super) fn by(stage: Box<dyn Inspect>) -> Seen {
        Seen { stage, bytes: 0 }
    }

    pub(super) fn inspect(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.stage.inspect(bytes);
    }

    fn inspect_zeros(&mut self, count: u64) {
        self.bytes += count;
        self.stage.inspect_zeros(count);
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

/// All stages of one transfer: up to the last that changes the bytes, a chain
/// that the path at work borrows; behind it, what looks at what the sink
/// accepts.
#[derive(Default)]
pub(crate) struct Stages {
    chain: Option<Chain>,
    tail: Vec<Seen>,
    transforms: bool,
}

impl Stages {
    pub(crate) fn push(&mut self, stage: Stage) {
        match stage.0 {
            Nature::Inspect(stage) => self.tail.push(Seen::by(stage)),
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
        all.extend(self.tail.iter().map(Seen::report));
        all
    }
}

/// A hash of known bytes, however they come in; and of zeros that are a hole.
#[cfg(test)]
#[allow(dead_code, reason = "for the hashes, each behind a feature")]
pub(super) fn known<S: Inspect>(new: fn() -> S, bytes: &[u8], digest: &str) {
    for split in 0..=bytes.len() {
        let mut stage = new();
        stage.inspect(&bytes[..split]);
        stage.inspect(&bytes[split..]);
        assert_eq!(stage.digest().as_deref(), Some(digest), "split at {split}");
    }
    let (mut hole, mut zeros) = (new(), new());
    hole.inspect_zeros(100_001);
    zeros.inspect(&vec![0; 100_001]);
    assert_eq!(hole.digest(), zeros.digest());
}
