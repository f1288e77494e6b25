//! Transfers without an end, beside a metering process that uses the processor all the time.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::{AUTOMATIC, Meter, OF_IDLE, ROUNDS, USER_DRIVEN, metered, reference};
use crate::experiments::together;
use crate::harness::digest::Content;
use crate::harness::interleave::Setting;
use crate::harness::launch::Job;
use crate::harness::network::loopback;
use crate::harness::series::Sample;
use crate::harness::target::{Against, Measure, Target};
use crate::harness::{Bench, cores};

/// The name of the setting.
pub const NAME: &str = "endless ×1";
const BACKGROUND: &str = "background";
/// The calls of the metering process beside a background transfer, in percent of those alone.
const REQUIRED: f64 = 95.0;
const TIME: Duration = Duration::from_secs(4);
const TIME_QUICK: Duration = Duration::from_millis(300);

/// Measures transfers for a fixed time. A transfer that yields to other work would not end
/// beside a process that uses the processor all the time.
pub fn run(bench: &mut Bench, meter: &Meter) -> Result<()> {
    let time = match bench.options.quick {
        true => TIME_QUICK,
        false => TIME,
    };
    let ours = |name, aim| {
        let args = format!("splice {{src}} - --auto {aim}");
        bench.tools.ours(name, &args)
    };
    let by_hand = bench
        .tools
        .baseline(USER_DRIVEN, "cat-read-write {src} 131072");
    let contestants = [
        reference(by_hand),
        ours(AUTOMATIC, "throughput"),
        ours(BACKGROUND, "background"),
    ];
    // The number of bytes is a figure here, and is not checked.
    let setting = Setting {
        name: NAME.to_owned(),
        expected: Content {
            bytes: 0,
            digest: 0,
        },
        rounds: match bench.options.quick {
            true => 1,
            false => ROUNDS,
        },
    };
    let program = bench.tools.bench.clone();
    bench.measure(&setting, &contestants, |turn| {
        metered(meter, |_| {
            let (near, far) = loopback()?;
            let sink = together::sink(&program, far, "count")?.start()?;
            let job = Job::new(&turn.command_line(&[("src", "/dev/zero".into())]))?;
            let job = job.stdout(OwnedFd::from(near));
            let started = Instant::now();
            let running = cores::on_core(meter.load.core(), || job.start())??;
            std::thread::sleep(time);
            let cpu = running.end()?;
            let finished = sink.reap()?.check().context("the sink")?;
            let wall = started.elapsed().as_secs_f64();
            let bytes: f64 = finished.output.trim().parse()?;
            let sample = Sample {
                wall,
                cpu,
                others: finished.cpu,
                digest: Some(0),
                ..Sample::default()
            };
            Ok(sample.with("MB/s", bytes / 1e6 / wall))
        })
    })?;
    bench.targets.push(Target {
        setting: NAME.to_owned(),
        ours: BACKGROUND,
        against: Against::Absolute,
        measure: Measure::More(OF_IDLE),
        bound: REQUIRED,
    });
    bench.notes.push(format!(
        "{NAME}: zeros to a connection, for {time:?}; the bytes are not checked."
    ));
    Ok(())
}
