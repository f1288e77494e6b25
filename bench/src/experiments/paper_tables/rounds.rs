//! Measuring one copy on each device.

use std::time::Instant;

use anyhow::{Context, Result};

use super::copiers;
use super::devices::{Device, Setup};
use crate::harness::contestant::Contestant;
use crate::harness::interleave::{Setting, Turn};
use crate::harness::launch::{Job, Running};
use crate::harness::series::Sample;
use crate::harness::{Bench, files};

const ROUNDS: usize = 5;
/// Copies on throttled devices take seconds, and vary little.
const ROUNDS_THROTTLED: usize = 3;

/// Measures on each device. `once` measures one copy.
pub fn on_every_device(
    bench: &mut Bench,
    mut once: impl FnMut(&Setup, &Turn<'_>) -> Result<Sample>,
) -> Result<()> {
    for device in Device::ALL {
        if !bench.wants(device.name()) {
            continue;
        }
        let place = match device.make(bench) {
            Ok(place) => place,
            Err(why) => {
                bench.skip(device.name(), format!("{why:#}"));
                continue;
            }
        };
        let size = device.size(bench);
        let expected = files::make(&place.source, size).context(device.name())?;
        let contestants: Vec<Contestant> = copiers::contestants(bench);
        let quick = bench.options.quick;
        let setting = Setting {
            name: device.name().to_owned(),
            expected,
            rounds: match device {
                _ if quick => 1,
                Device::Ram | Device::Disk => ROUNDS,
                Device::Rz58 | Device::Rz56 => ROUNDS_THROTTLED,
            },
        };
        bench.measure(&setting, &contestants, |turn| {
            let sample = copiers::prepare(&place, turn, quick)
                .and_then(|()| once(&place, turn))
                .and_then(|sample| arrived(&place, turn, sample));
            files::remove(&place.sink);
            sample
        })?;
        bench.notes.push(format!(
            "{}: {} on {}.",
            device.name(),
            files::size_text(size),
            place.filesystem
        ));
        files::remove(&place.source);
    }
    Ok(())
}

/// Starts the copy.
pub fn start(place: &Setup, turn: &Turn<'_>) -> Result<Running> {
    let (src, dst) = (place.source.clone().into(), place.sink.clone().into());
    Job::new(&turn.command_line(&[("src", src), ("dst", dst)]))?.start()
}

/// Waits for the end of the copy.
pub fn finish(running: Running, started: Instant) -> Result<Sample> {
    let reaped = running.reap()?;
    let wall = started.elapsed().as_secs_f64();
    Ok(Sample {
        wall,
        cpu: reaped.check()?.cpu,
        ..Sample::default()
    })
}

/// Adds the size of the copy, and its digest in a verifying run.
fn arrived(place: &Setup, turn: &Turn<'_>, sample: Sample) -> Result<Sample> {
    let digest = match turn.verifies() {
        true => Some(files::content(&place.sink)?.digest),
        false => None,
    };
    let bytes = std::fs::metadata(&place.sink)?.len();
    Ok(Sample {
        bytes,
        digest,
        ..sample
    })
}
