//! Requested and achieved rates: a cached file, copied at a rate.

use std::fs::File;

use anyhow::Result;

use super::{FREE, OFF, OURS};
use crate::experiments::experiment::available;
use crate::harness::interleave::Setting;
use crate::harness::launch::Job;
use crate::harness::series::Sample;
use crate::harness::{Bench, files};

/// Bytes a second.
const RATES: [(&str, u64); 4] = [
    ("64 KiB/s", 64 << 10),
    ("1 MB/s", 1_000_000),
    ("100 MB/s", 100_000_000),
    ("1 GB/s", 1_000_000_000),
];
const ROUNDS: usize = 5;
/// The time that a paced copy takes, in tenths of a second.
const TENTHS: u64 = 20;
const QUICK_TENTHS: u64 = 2;

/// Measures at each rate.
pub fn run(bench: &mut Bench) -> Result<()> {
    for (name, rate) in RATES {
        if bench.wants(name) {
            at(bench, name, rate)?;
        }
    }
    bench.notes.push(format!(
        "{OFF}: of the bytes and the time of the whole process, which includes its start."
    ));
    Ok(())
}

fn at(bench: &mut Bench, name: &str, rate: u64) -> Result<()> {
    let tenths = match bench.options.quick {
        true => QUICK_TENTHS,
        false => TENTHS,
    };
    let (source, sink) = (bench.path("source"), bench.path("sink"));
    let expected = files::make(&source, rate / 10 * tenths)?;
    let tools = bench.tools.clone();
    let all = vec![
        (
            OURS,
            Some(tools.ours(OURS, &format!("splice {{src}} {{dst}} --rate {rate}"))),
        ),
        (FREE, Some(tools.ours(FREE, "splice {src} {dst}"))),
        ("pv", tools.peer("pv", &format!("-q -L {rate} {{src}}"))),
    ];
    let contestants = available(bench, all);
    let setting = Setting {
        name: name.to_owned(),
        expected,
        rounds: if bench.options.quick { 1 } else { ROUNDS },
    };
    bench.measure(&setting, &contestants, |turn| {
        let words =
            turn.command_line(&[("src", source.clone().into()), ("dst", sink.clone().into())]);
        let job = match turn.contestant.name.as_str() {
            OURS | FREE => Job::new(&words)?,
            _ => Job::new(&words)?.stdout(File::create(&sink)?),
        };
        let (finished, wall) = job.run()?;
        let arrived = files::content(&sink)?;
        files::remove(&sink);
        let sample = Sample {
            wall,
            cpu: finished.cpu,
            bytes: arrived.bytes,
            digest: Some(arrived.digest),
            ..Sample::default()
        };
        Ok(match turn.contestant.name.as_str() {
            FREE => sample,
            _ => {
                let got = arrived.bytes as f64 / wall;
                sample.with(OFF, (got / rate as f64 - 1.0).abs() * 100.0)
            }
        })
    })?;
    files::remove(&source);
    Ok(())
}
