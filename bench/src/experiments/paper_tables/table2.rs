//! Table 2: throughput on an idle machine.

use std::time::Instant;

use anyhow::Result;

use super::copiers::{CP, LIBRARY, OTHERS, OURS};
use super::devices::{Device, Setup};
use super::{rounds, side_by_side};
use crate::experiments::experiment::Experiment;
use crate::harness::Bench;
use crate::harness::cores::Busy;
use crate::harness::interleave::Turn;
use crate::harness::series::Sample;
use crate::harness::target::{Against, Measure, Target};

/// The entry in the list of experiments.
pub const EXPERIMENT: Experiment = Experiment {
    name: "table2",
    about: "Throughput: a cold file copied and synced, on an idle machine.",
    run,
};

fn run(bench: &mut Bench) -> Result<()> {
    rounds::on_every_device(bench, once)?;
    bench.notes.push(side_by_side::throughput(bench));
    bench.notes.push(NOTE.to_owned());
    bench
        .targets
        .extend(Device::ALL.into_iter().flat_map(targets));
    Ok(())
}

const NOTE: &str = "The source is not cached, and every contestant ends with fsync. cpu is the \
    processor time of the contestant; machine is the busy time of all cores, which includes \
    kernel threads (writeback, loop devices, io_uring workers).";

fn once(place: &Setup, turn: &Turn<'_>) -> Result<Sample> {
    let busy = Busy::now()?;
    let started = Instant::now();
    let sample = rounds::finish(rounds::start(place, turn)?, started)?;
    let (first, others) = Busy::now()?.since(&busy, 0);
    let gigabytes = std::fs::metadata(&place.sink)?.len() as f64 / 1e9;
    Ok(sample.with("machine s/GB", (first + others) / gigabytes))
}

fn targets(device: Device) -> Vec<Target> {
    let target = |ours, against, measure, bound| Target {
        setting: device.name().to_owned(),
        ours,
        against,
        measure,
        bound,
    };
    let one = |ours| match device {
        Device::Ram => vec![target(ours, Against::Best(&[CP]), Measure::Rate, 1.8)],
        Device::Disk => vec![
            target(ours, Against::Best(OTHERS), Measure::Rate, 0.95),
            target(ours, Against::Best(OTHERS), Measure::Processor, 0.1),
        ],
        Device::Rz58 | Device::Rz56 => {
            vec![target(ours, Against::Best(OTHERS), Measure::Rate, 0.97)]
        }
    };
    [OURS, LIBRARY].into_iter().flat_map(one).collect()
}
