//! Stages in the place of others.

use cordboard::Stage;
use cordboard::stage::{Fault, Finished, Passed, Transform};

/// A stage in the place of one that changes the bytes, for checks: it moves none.
pub struct StandIn(&'static str);

impl StandIn {
    /// Makes such a stage, with this name.
    pub fn stage(name: &'static str) -> Stage {
        Stage::transforming(StandIn(name))
    }
}

impl Transform for StandIn {
    fn name(&self) -> &'static str {
        self.0
    }

    fn transform(&mut self, input: &[u8], output: &mut [u8]) -> Result<Passed, Fault> {
        let made = input.len().min(output.len());
        output[..made].copy_from_slice(&input[..made]);
        Ok(Passed { taken: made, made })
    }

    fn finish(&mut self, _: &mut [u8]) -> Result<Finished, Fault> {
        Ok(Finished {
            made: 0,
            done: true,
        })
    }
}
