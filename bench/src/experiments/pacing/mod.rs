//! Rates asked for against rates got, how equally transfers pace each other, and
//! what pacing costs.

mod cost;
mod rates;
mod spread;

use anyhow::Result;

use super::experiment::Experiment;
use crate::harness::Bench;

/// The entry in the list of experiments.
pub const EXPERIMENT: Experiment = Experiment {
    name: "pacing",
    about: "Transfers at a rate: the rate got, the spread between equal transfers, and the \
            processor time beside the same transfer without a rate.",
    run,
};

const OURS: &str = "cordboard --rate";
const FREE: &str = "cordboard without a rate";
/// By how much the rate got differs from the one asked for.
const OFF: &str = "% off the rate";

fn run(bench: &mut Bench) -> Result<()> {
    rates::run(bench)?;
    spread::run(bench)?;
    cost::run(bench)
}
