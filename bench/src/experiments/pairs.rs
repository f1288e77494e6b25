//! Every pair of kinds.

use anyhow::Result;

use super::Experiment;
use crate::harness::Bench;

/// The slot.
pub const EXPERIMENT: Experiment = Experiment {
    name: "pairs",
    about: "Every pair of kinds of descriptor: which path is taken, and how fast.",
    run,
};

fn run(bench: &mut Bench) -> Result<()> {
    bench.skip("pairs", "not written yet");
    Ok(())
}
