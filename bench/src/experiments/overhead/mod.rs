//! Section 4.3 of the paper on `cue()`: how many calls of `gettimeofday(2)`
//! another process makes while files are transferred.

mod endless;

use std::time::Duration;

use anyhow::{Context, Result};

use super::experiment::{Experiment, synced};
use super::places::{Made, Place};
use super::together::{self, Ends};
use crate::harness::contestant::{Contestant, Role};
use crate::harness::interleave::Setting;
use crate::harness::launch::Job;
use crate::harness::load::Load;
use crate::harness::series::Sample;
use crate::harness::stats::Spread;
use crate::harness::target::{Against, Measure, Target};
use crate::harness::workqueues::Confined;
use crate::harness::{Bench, cores, files};
use crate::{paper, paper_cue};

/// The entry in the list of experiments.
pub const EXPERIMENT: Experiment = Experiment {
    name: "overhead",
    about: "How many calls of gettimeofday a process makes on the core on which files are \
            transferred.",
    run,
};

const USER_DRIVEN: &str = "read-write";
const AUTOMATIC: &str = "automatic";
const DIRECT: &str = "automatic direct";
const SCHEDULE: &str = "schedule";
/// The figure: the calls of the metering process beyond those during user-driven transfers, in
/// the time of those.
const GAIN: &str = "gain %";
const CALLS: &str = "M calls";
const IDLE: &str = "idle M calls/s";
const OF_IDLE: &str = "% of idle";
const COUNTS: &[usize] = &[1, 2, 3];
const COUNTS_QUICK: &[usize] = &[2];
/// The rate of the disk for the connections, in bytes a second. At this rate the transfers use
/// much of a processor, but the disk is the limit.
const RATE: u64 = 400_000_000;
const ROUNDS: usize = 5;
/// The time for which the metering process is measured alone before and after each run.
const ALONE: Duration = Duration::from_millis(250);
const ALONE_QUICK: Duration = Duration::from_millis(60);

/// The kind of the sinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum To {
    /// TCP connections, from a throttled disk.
    Sockets,
    /// Files on another RAM disk, synced, from a RAM disk.
    Files,
}

impl To {
    fn name(self, count: usize) -> String {
        match self {
            To::Sockets => format!("connections ×{count}"),
            To::Files => format!("files fsync ×{count}"),
        }
    }

    fn place(self) -> Place {
        match self {
            To::Sockets => Place::Throttled(RATE),
            To::Files => Place::Ram,
        }
    }

    /// The bytes of all transfers together.
    fn size(self, bench: &Bench) -> u64 {
        match self {
            To::Sockets => bench.size(128 << 20, 6 << 20),
            To::Files => bench.size(384 << 20, 24 << 20),
        }
    }
}

/// The metering process, and the cores.
struct Meter {
    load: Load,
    /// Another core, for the readers of the connections.
    other: usize,
    alone: Duration,
}

fn run(bench: &mut Bench) -> Result<()> {
    let allowed = cores::allowed()?;
    let core = *allowed.last().context("no core")?;
    let meter = Meter {
        load: Load::metering(core)?,
        other: allowed[0],
        alone: match bench.options.quick {
            true => ALONE_QUICK,
            false => ALONE,
        },
    };
    let confined = Confined::to(core);
    let counts = match bench.options.quick {
        true => COUNTS_QUICK,
        false => COUNTS,
    };
    for to in [To::Sockets, To::Files] {
        for count in counts.iter().copied() {
            if !bench.wants(&to.name(count)) {
                continue;
            }
            let room = 2 * to.size(bench);
            // The sinks are on a device of their own.
            let made = to.place().make(bench, room);
            let made = made.and_then(|source| Ok((source, Place::Ram.make(bench, room)?)));
            match made {
                Ok((source, sink)) => at(bench, to, count, &source, &sink, &meter)?,
                Err(why) => bench.skip(&to.name(count), format!("{why:#}")),
            }
        }
    }
    if bench.wants(endless::NAME) {
        endless::run(bench, &meter)?;
    }
    drop(meter);
    if let Err(why) = confined {
        bench.skip(
            "restricting the kernel's workers to the core",
            format!("{why:#}"),
        );
    }
    bench.notes.push(NOTE.to_owned());
    Ok(())
}

const NOTE: &str = "The metering process, the transfers and the kernel's workers run on one \
    core, the readers of connections on another one. gain: the calls of the metering process \
    beyond those during read-write, in the time that read-write takes. After the end of a faster \
    contestant it runs alone; for a slower one, the calls that it would make alone in the further \
    time are subtracted, as in the paper.";

fn at(
    bench: &mut Bench,
    to: To,
    count: usize,
    source: &Made,
    sink: &Made,
    meter: &Meter,
) -> Result<()> {
    let size = to.size(bench) / count as u64;
    let sources = source.sources(count, size)?;
    let contestants = contestants(bench, to, count);
    let setting = Setting {
        name: to.name(count),
        expected: sources.content,
        rounds: match bench.options.quick {
            true => 1,
            false => ROUNDS,
        },
    };
    let program = bench.tools.bench.clone();
    bench.measure(&setting, &contestants, |turn| {
        source.prepare(&sources)?;
        files::cache(&turn.contestant.program)?;
        metered(meter, |start| match to {
            To::Sockets => moved(together::to_sockets(&program, &sources, turn, start)),
            To::Files => moved(together::to_files(&sink.directory, &sources, turn, start)),
        })
    })?;
    sources.remove();
    add_gains(bench);
    bench.notes.push(format!(
        "{}: {}; {} each.",
        to.name(count),
        to.place().about(&source.directory),
        files::size_text(size)
    ));
    bench.targets.extend(targets(to, count));
    Ok(())
}

fn moved(result: Result<(Sample, Vec<f64>)>) -> Result<Sample> {
    Ok(result?.0)
}

type Start<'a> = &'a dyn Fn(Vec<Job>) -> Result<Ends>;

/// Runs the transfers on the core of the metering process.
fn metered(meter: &Meter, transfer: impl FnOnce(Start<'_>) -> Result<Sample>) -> Result<Sample> {
    let before = alone(meter);
    let mark = meter.load.mark();
    let start = |jobs| cores::on_core(meter.load.core(), || together::run(jobs))?;
    let sample = cores::on_core(meter.other, || transfer(&start))??;
    let delta = meter.load.mark().since(&mark);
    let idle = (before + alone(meter)) / 2.0;
    let share = paper::availability(delta.operations, delta.seconds, idle);
    let share = share.context("the metering process did not run")?;
    Ok(sample
        .with(CALLS, delta.operations / 1e6)
        .with(IDLE, idle / 1e6)
        .with(OF_IDLE, share * 100.0))
}

/// The rate of the metering process alone. On a busy machine it may not run for a while.
fn alone(meter: &Meter) -> f64 {
    loop {
        let rate = meter.load.during(meter.alone).rate();
        if rate > 0.0 {
            return rate;
        }
    }
}

/// Adds the gain to each sample of the last setting.
fn add_gains(bench: &mut Bench) {
    let Some(result) = bench.results.last_mut() else {
        return;
    };
    let reference = result.of(USER_DRIVEN).and_then(|series| {
        let calls = Spread::of(&series.figure(CALLS))?.median;
        Some((calls, series.median()?))
    });
    let Some((calls, seconds)) = reference else {
        return;
    };
    for (_, sample) in result.series.iter_mut().flat_map(|s| &mut s.samples) {
        let figure = |name: &str| sample.figures.iter().find(|(n, _)| n == name).map(|f| f.1);
        if let (Some(its), Some(idle)) = (figure(CALLS), figure(IDLE)) {
            let gain = paper_cue::metering_gain(its, sample.wall, idle, calls, seconds);
            sample
                .figures
                .extend(gain.map(|g| (GAIN.to_owned(), g * 100.0)));
        }
    }
}

fn contestants(bench: &Bench, to: To, count: usize) -> Vec<Contestant> {
    let tools = &bench.tools;
    match to {
        To::Sockets => {
            let ours = |name, args| tools.ours(name, &format!("splice {{src}} - {args}"));
            // All transfers together are allowed 4 blocks a millisecond, a bit more than
            // the disk has.
            let schedule = format!("--schedule 4,{count}");
            vec![
                reference(tools.baseline(USER_DRIVEN, "cat-read-write {src} 131072")),
                ours(AUTOMATIC, "--auto throughput"),
                ours(SCHEDULE, &schedule),
            ]
        }
        To::Files => {
            let ours =
                |name, args| tools.ours(name, &format!("copy --sync {args} {{src}} {{dst}}"));
            let by_hand = tools.baseline(USER_DRIVEN, "copy read-write {src} {dst}");
            vec![
                reference(synced(tools, by_hand)),
                ours(DIRECT, "--auto throughput --route direct"),
                ours(AUTOMATIC, "--auto throughput"),
            ]
        }
    }
}

fn reference(contestant: Contestant) -> Contestant {
    Contestant {
        role: Role::Reference,
        ..contestant
    }
}

fn targets(to: To, count: usize) -> Vec<Target> {
    let target = |ours, bound| Target {
        setting: to.name(count),
        ours,
        against: Against::Absolute,
        measure: Measure::More(GAIN),
        bound,
    };
    match to {
        To::Sockets => vec![target(AUTOMATIC, 5.0), target(SCHEDULE, 5.0)],
        To::Files => vec![target(DIRECT, 60.0)],
    }
}
