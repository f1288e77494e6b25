//! Table 1: how much processor time a copy leaves to another program.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::columns::{IMPROVEMENT, PERCENT, SLOWDOWN};
use super::copiers::{CP, LIBRARY, OURS};
use super::devices::{Device, Setup};
use super::{rounds, side_by_side};
use crate::experiments::experiment::Experiment;
use crate::harness::Bench;
use crate::harness::cores::{self, Busy};
use crate::harness::interleave::Turn;
use crate::harness::load::Load;
use crate::harness::series::{Sample, Series, SettingResult};
use crate::harness::stats::Spread;
use crate::harness::target::{Against, Measure, Target};
use crate::harness::workqueues::Confined;
use crate::paper::{self, DuringCopy};

/// The entry in the list of experiments.
pub const EXPERIMENT: Experiment = Experiment {
    name: "table1",
    about: "CPU availability: how fast a test program runs on the core on which a file is copied.",
    run,
};

/// How long the test program is measured alone before and after each copy.
const ALONE: Duration = Duration::from_millis(250);
const ALONE_QUICK: Duration = Duration::from_millis(20);

fn run(bench: &mut Bench) -> Result<()> {
    let core = *cores::allowed()?.last().context("no core")?;
    let alone = if bench.options.quick {
        ALONE_QUICK
    } else {
        ALONE
    };
    let load = Load::start(core)?;
    let confined = Confined::to(core);
    rounds::on_every_device(bench, |place, turn| once(place, turn, &load, alone))?;
    drop(load);
    if let Err(why) = confined {
        bench.skip(
            "restricting the kernel's workers to the core",
            format!("{why:#}"),
        );
    }
    for result in &mut bench.results {
        add_improvements(result);
    }
    bench.notes.push(side_by_side::availability(bench));
    bench.notes.push(NOTE.to_owned());
    bench
        .targets
        .extend(Device::ALL.into_iter().flat_map(targets));
    Ok(())
}

const NOTE: &str = "The test program, the copy with all its threads, and the kernel's workers \
    run on one core. % of idle: the operations of the test program during the copy, relative to \
    those that it does alone just before and after in the same time; F is the reciprocal. I: how \
    many times as fast the test program does the operations that it does during cp, if this \
    contestant copies the file instead; after the end of the copy it runs alone. lost: the time \
    that the test program lost per gigabyte. its core, other cores: the time that they were busy \
    with anything other than the test program.";

/// Adds to each sample the improvement I, which needs the medians of CP.
fn add_improvements(result: &mut SettingResult) {
    let during_copy = |sample: &Sample| {
        let (_, percent) = sample.figures.iter().find(|(name, _)| name == PERCENT)?;
        Some(DuringCopy {
            availability: percent / 100.0,
            seconds: sample.wall,
        })
    };
    let median = |cp: &Series| {
        Some(DuringCopy {
            availability: Spread::of(&cp.figure(PERCENT))?.median / 100.0,
            seconds: cp.median()?,
        })
    };
    let Some(cp) = result.of(CP).and_then(median) else {
        return;
    };
    for (_, sample) in result.series.iter_mut().flat_map(|s| &mut s.samples) {
        let factor = during_copy(sample).and_then(|one| one.improvement_over(cp));
        sample
            .figures
            .extend(factor.map(|i| (IMPROVEMENT.to_owned(), i)));
    }
}

/// Measures one copy while the test program runs.
fn once(place: &Setup, turn: &Turn<'_>, load: &Load, alone: Duration) -> Result<Sample> {
    let idle_before = load.during(alone).rate();
    let busy = Busy::now()?;
    let mark = load.mark();
    let started = Instant::now();
    let running = cores::on_core(load.core(), || rounds::start(place, turn))??;
    let sample = rounds::finish(running, started)?;
    let delta = load.mark().since(&mark);
    let (here, elsewhere) = Busy::now()?.since(&busy, load.core());
    let idle = (idle_before + load.during(alone).rate()) / 2.0;

    let gigabytes = std::fs::metadata(&place.sink)?.len() as f64 / 1e9;
    let share = paper::availability(delta.operations, delta.seconds, idle)
        .context("the copy took no time")?;
    let slowdown = paper::slowdown(share).context("the test program did not run")?;
    Ok(sample
        .with(PERCENT, share * 100.0)
        .with(SLOWDOWN, slowdown)
        .with("lost s/GB", (1.0 - share) * delta.seconds / gigabytes)
        .with("its core s/GB", (here - delta.processor) / gigabytes)
        .with("other cores s/GB", elsewhere / gigabytes))
}

fn targets(device: Device) -> Vec<Target> {
    let target = |ours, figure, bound| Target {
        setting: device.name().to_owned(),
        ours,
        against: Against::Absolute,
        measure: Measure::More(figure),
        bound,
    };
    let one = |ours| match device {
        Device::Ram => vec![target(ours, IMPROVEMENT, 1.65)],
        Device::Disk => vec![target(ours, PERCENT, 90.0), target(ours, IMPROVEMENT, 1.65)],
        Device::Rz58 | Device::Rz56 => vec![target(ours, PERCENT, 97.0)],
    };
    [OURS, LIBRARY].into_iter().flat_map(one).collect()
}
