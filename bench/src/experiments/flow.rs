//! Flow control: fixed block sizes and watermarks, and adaptive ones.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};

use super::experiment::Experiment;
use super::paper_tables::devices::{Device, Setup};
use crate::baselines::flow::RATE;
use crate::harness::contestant::{Contestant, Role};
use crate::harness::interleave::{Setting, Turn};
use crate::harness::launch::Job;
use crate::harness::series::Sample;
use crate::harness::target::{Against, Measure, Target};
use crate::harness::{Bench, figures, files};

/// The entry in the list of experiments.
pub const EXPERIMENT: Experiment = Experiment {
    name: "flow",
    about: "Flow control of the direct path: block sizes and watermarks, fixed and adaptive.",
    run,
};

const ADAPTIVE: &str = "adaptive";
const ROUNDS: usize = 3;
const BLOCKS: [u64; 4] = [64 << 10, 256 << 10, 1 << 20, 4 << 20];
/// Pending reads, pending writes, reads started per finished write. The third
/// are the papers'.
const MARKS: [[u32; 3]; 5] = [[1, 1, 1], [2, 2, 2], [3, 5, 5], [4, 4, 4], [8, 8, 8]];
/// The bytes during which an adaptive transfer may find its setting.
const START: u64 = 256 << 20;
/// The minimum rate after that, relative to the best fixed setting.
const ENOUGH: f64 = 0.95;

fn run(bench: &mut Bench) -> Result<()> {
    for device in [Device::Ram, Device::Disk] {
        if !bench.wants(device.name()) {
            continue;
        }
        match device.make(bench) {
            Ok(place) => on(bench, device, &place)?,
            Err(why) => bench.skip(device.name(), format!("{why:#}")),
        }
    }
    bench.notes.push(format!(
        "The name of a contestant has the block size, and pending reads / pending writes / reads \
         started per finished write. {RATE}: the rate after the first {}, including fsync.",
        files::size_text(start(bench))
    ));
    Ok(())
}

fn start(bench: &Bench) -> u64 {
    bench.size(START, 4 << 20)
}

fn on(bench: &mut Bench, device: Device, place: &Setup) -> Result<()> {
    let size = device.size(bench);
    let expected = files::make(&place.source, size).context(device.name())?;
    let contestants = contestants(bench);
    let quick = bench.options.quick;
    let setting = Setting {
        name: device.name().to_owned(),
        expected,
        rounds: if quick { 1 } else { ROUNDS },
    };
    bench.measure(&setting, &contestants, |turn| {
        files::remove(&place.sink);
        if !quick {
            files::sync(place.sink_directory())?;
        }
        files::evict(&place.source, !quick)?;
        files::cache(&turn.contestant.program)?;
        let sample = once(&place.source, &place.sink, turn);
        files::remove(&place.sink);
        sample
    })?;
    files::remove(&place.source);
    bench.targets.push(Target {
        setting: setting.name,
        ours: ADAPTIVE,
        against: Against::Baselines,
        measure: Measure::More(RATE),
        bound: ENOUGH,
    });
    Ok(())
}

fn contestants(bench: &Bench) -> Vec<Contestant> {
    let start = start(bench);
    let one = |name: &str, role, args: &str| {
        let args = format!("baseline flow {{src}} {{dst}} {start} {args}");
        Contestant::new(name, role, &bench.tools.bench, &args)
    };
    let (blocks, marks) = if bench.options.quick {
        (&BLOCKS[2..3], &MARKS[2..3])
    } else {
        (&BLOCKS[..], &MARKS[..])
    };
    let mut all = vec![one(ADAPTIVE, Role::Ours, "")];
    for block in blocks {
        for [reads, writes, burst] in marks {
            let name = format!("{} {reads}/{writes}/{burst}", files::size_text(*block));
            let args = format!("{block} {reads} {writes} {burst}");
            all.push(one(&name, Role::Baseline, &args));
        }
    }
    all
}

fn once(source: &Path, sink: &Path, turn: &Turn<'_>) -> Result<Sample> {
    let words = turn.command_line(&[("src", source.into()), ("dst", sink.into())]);
    let started = Instant::now();
    let (finished, _) = Job::new(&words)?.keep_output().run()?;
    let wall = started.elapsed().as_secs_f64();
    let digest = match turn.verifies() {
        true => Some(files::content(sink)?.digest),
        false => None,
    };
    let sample = Sample {
        wall,
        cpu: finished.cpu,
        bytes: std::fs::metadata(sink)?.len(),
        digest,
        ..Sample::default()
    };
    figures::add_output(sample, &finished.output)
}
