//! Table 1: how much of the processor a copy leaves to a program beside it.

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
use crate::paper::{self, Beside};

/// In the registry.
pub const EXPERIMENT: Experiment = Experiment {
    name: "table1",
    about: "CPU availability: how fast a test program runs on the core on which a file is copied.",
    run,
};

/// Before and after each copy, the test program is measured alone so long.
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
            "keeping the kernel's workers on the core",
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
    are on one core. % of idle: operations of the test program while the copy ran, against those \
    it does alone just before and after, in the same time; F is its reciprocal. I: for the \
    operations that it does while cp copies the file, how many times as fast it is when this one \
    copies it instead; after the copy's end it is alone. Lost: how much of its time a gigabyte \
    has cost it. Its core and the other cores: seconds that they were busy with anything but the \
    test program.";

/// Adds to each sample what only the whole setting can tell: I, by CP's medians.
fn add_improvements(result: &mut SettingResult) {
    let beside = |sample: &Sample| {
        let (_, percent) = sample.figures.iter().find(|(name, _)| name == PERCENT)?;
        Some(Beside {
            availability: percent / 100.0,
            seconds: sample.wall,
        })
    };
    let median = |cp: &Series| {
        Some(Beside {
            availability: Spread::of(&cp.figure(PERCENT))?.median / 100.0,
            seconds: cp.median()?,
        })
    };
    let Some(cp) = result.of(CP).and_then(median) else {
        return;
    };
    for (_, sample) in result.series.iter_mut().flat_map(|s| &mut s.samples) {
        let factor = beside(sample).and_then(|one| one.improvement_over(cp));
        sample
            .figures
            .extend(factor.map(|i| (IMPROVEMENT.to_owned(), i)));
    }
}

/// One copy beside the test program.
fn once(place: &Setup, turn: &Turn<'_>, load: &Load, alone: Duration) -> Result<Sample> {
    let idle_before = load.during(alone).rate();
    let busy = Busy::now()?;
    let mark = load.mark();
    let started = Instant::now();
    let running = cores::on_core(load.core(), || rounds::start(place, turn))??;
    let sample = rounds::finish(running, started)?;
    let work = load.mark().since(&mark);
    let (here, elsewhere) = Busy::now()?.since(&busy, load.core());
    let idle = (idle_before + load.during(alone).rate()) / 2.0;

    let gigabytes = std::fs::metadata(&place.sink)?.len() as f64 / 1e9;
    let share = paper::availability(work.operations, work.seconds, idle).context("no time")?;
    let slowdown = paper::slowdown(share).context("the test program did not get to run")?;
    Ok(sample
        .with(PERCENT, share * 100.0)
        .with(SLOWDOWN, slowdown)
        .with("lost s/GB", (1.0 - share) * work.seconds / gigabytes)
        .with("its core s/GB", (here - work.processor) / gigabytes)
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
