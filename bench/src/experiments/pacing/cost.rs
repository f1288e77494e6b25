//! The processor time of a paced transfer, compared with the same transfer without a rate, on
//! the paths that copy the fewest bytes.

use std::path::Path;

use anyhow::Result;

use super::{FREE, OURS};
use crate::experiments::pipeline::{Reader, pipeline};
use crate::harness::interleave::{Setting, Turn};
use crate::harness::launch::Job;
use crate::harness::series::Sample;
use crate::harness::target::{Against, Measure, Target};
use crate::harness::{Bench, files};

/// The settings, by their paths.
const PATHS: [&str; 2] = ["splice", "direct"];
/// Bytes a second. The bytes of 10 ms are about one call of the lower rate, and several of the
/// higher one.
const RATES: [u64; 2] = [100_000_000, 1_000_000_000];
/// The most bytes of a transfer.
const MOST: u64 = 2_000_000_000;
/// A loop that splices a piece every 10 ms, and the capacity of its pipe, which is enough for the
/// lower rate.
const BY_HAND: &str = "splice every 10 ms";
const PIPE: usize = 1 << 20;
const ROUNDS: usize = 9;
/// The maximum processor time with a rate, divided by that without a rate.
const COST: f64 = 1.02;

/// Measures each rate on each path.
pub fn run(bench: &mut Bench) -> Result<()> {
    for rate in RATES {
        for path in PATHS {
            let name = format!("cost of a rate: {path} {} MB/s", rate / 1_000_000);
            if bench.wants(&name) {
                on(bench, path, rate, name)?;
            }
        }
    }
    bench.notes.push(
        "cost of a rate: the same transfer at a rate and without one. splice: a cached file into a \
         pipe, whose reader splices. direct: a file that is not cached, synced."
            .to_owned(),
    );
    Ok(())
}

fn on(bench: &mut Bench, path: &'static str, rate: u64, name: String) -> Result<()> {
    let (source, sink) = (bench.path("source"), bench.path("sink"));
    let expected = files::make(&source, bench.size((4 * rate).min(MOST), rate / 32))?;
    let tools = bench.tools.clone();
    let transfer = match path {
        "splice" => "splice {src} - --route splice",
        _ => "copy {src} {dst} --sync --route direct",
    };
    let mut contestants = vec![
        tools.ours(OURS, &format!("{transfer} --rate {rate}")),
        tools.ours(FREE, transfer),
    ];
    if path == "splice" && rate / 100 <= PIPE as u64 {
        let by_hand = format!("cat-paced {{src}} {rate} {PIPE}");
        contestants.push(tools.baseline(BY_HAND, &by_hand));
    }
    let setting = Setting {
        name: name.clone(),
        expected,
        rounds: if bench.options.quick { 1 } else { ROUNDS },
    };
    bench.measure(&setting, &contestants, |turn| {
        let fill = [("src", source.clone().into()), ("dst", sink.clone().into())];
        let words = turn.command_line(&fill);
        if path == "splice" {
            files::cache(&source)?;
            let reader = match turn.verifies() {
                true => Reader::Checks,
                false => Reader::Splices,
            };
            return pipeline(&tools, reader, None, &words);
        }
        files::evict(&source, false)?;
        let sample = copied(turn, &sink, Job::new(&words)?);
        files::remove(&sink);
        sample
    })?;
    files::remove(&source);
    bench.targets.push(Target {
        setting: name,
        ours: OURS,
        against: Against::Best(&[FREE]),
        measure: Measure::Processor,
        bound: COST,
    });
    Ok(())
}

fn copied(turn: &Turn<'_>, sink: &Path, job: Job) -> Result<Sample> {
    let (finished, wall) = job.run()?;
    let digest = match turn.verifies() {
        true => Some(files::content(sink)?.digest),
        false => None,
    };
    Ok(Sample {
        wall,
        cpu: finished.cpu,
        bytes: std::fs::metadata(sink)?.len(),
        digest,
        ..Sample::default()
    })
}
