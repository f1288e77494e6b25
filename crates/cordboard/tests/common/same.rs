//! A stage that changes no byte.

use cordboard::stage::{Fault, Finished, Passed, Transform};

/// A transforming stage whose output equals its input. The library treats it as a
/// stage that changes bytes.
pub struct Same;

impl Transform for Same {
    fn name(&self) -> &'static str {
        "same"
    }

    fn transform(&mut self, input: &[u8], output: &mut [u8]) -> Result<Passed, Fault> {
        let n = input.len().min(output.len());
        output[..n].copy_from_slice(&input[..n]);
        Ok(Passed { taken: n, made: n })
    }

    fn finish(&mut self, _: &mut [u8]) -> Result<Finished, Fault> {
        Ok(Finished {
            made: 0,
            done: true,
        })
    }
}
