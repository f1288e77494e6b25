//! Requested and achieved rates, the spread of equal transfers, and the cost of pacing.

mod cost;
mod rates;
mod spread;

use anyhow::Result;

use super::experiment::Experiment;
use crate::harness::Bench;

/// The entry in the list of experiments.
pub const EXPERIMENT: Experiment = Experiment {
    name: "pacing",
    about: "Transfers at a rate: the achieved rate, the spread between equal transfers, and the \
            processor time compared with the same transfer without a rate.",
    run,
};

const OURS: &str = "cordboard --rate";
const FREE: &str = "cordboard without a rate";
/// The figure: the difference between the achieved rate and the requested one.
const OFF: &str = "% off the rate";

fn run(bench: &mut Bench) -> Result<()> {
    rates::run(bench)?;
    spread::run(bench)?;
    cost::run(bench)
}
