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
/// Bytes a second.
const RATE: u64 = 100_000_000;
/// A loop that splices a piece every 10 ms, and the capacity of its pipe.
const BY_HAND: &str = "splice every 10 ms";
const PIPE: usize = 1 << 20;
const ROUNDS: usize = 9;
/// The maximum processor time with a rate, divided by that without a rate.
const COST: f64 = 1.02;

/// Measures on each path.
pub fn run(bench: &mut Bench) -> Result<()> {
    for path in PATHS {
        let name = format!("cost of a rate: {path}");
        if bench.wants(&name) {
            on(bench, path, name)?;
        }
    }
    bench.notes.push(format!(
        "cost of a rate: the same transfer at {} MB/s and without a rate. splice: a cached file \
         into a pipe, whose reader splices. direct: a file that is not cached, synced.",
        RATE / 1_000_000
    ));
    Ok(())
}

fn on(bench: &mut Bench, path: &'static str, name: String) -> Result<()> {
    let (source, sink) = (bench.path("source"), bench.path("sink"));
    let expected = files::make(&source, bench.size(4 * RATE, RATE / 8))?;
    let tools = bench.tools.clone();
    let transfer = match path {
        "splice" => "splice {src} - --route splice",
        _ => "copy {src} {dst} --sync --route direct",
    };
    let mut contestants = vec![
        tools.ours(OURS, &format!("{transfer} --rate {RATE}")),
        tools.ours(FREE, transfer),
    ];
    if path == "splice" {
        let by_hand = format!("cat-paced {{src}} {RATE} {PIPE}");
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
