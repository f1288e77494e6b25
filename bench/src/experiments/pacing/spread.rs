//! Section 4.4 of the paper on `cue()`: how equally several transfers with the
//! same schedule progress.

use anyhow::Result;

use super::{FREE, OFF, OURS};
use crate::experiments::experiment::available;
use crate::experiments::together::{self, Sources};
use crate::harness::Bench;
use crate::harness::interleave::Setting;

const COUNTS: [usize; 2] = [4, 16];
/// Bytes a second of each transfer.
const RATE: u64 = 10_000_000;
const ROUNDS: usize = 5;
/// The time from the first end to the last, relative to the last.
const SPREAD: &str = "end spread %";

/// Measures for each number of transfers.
pub fn run(bench: &mut Bench) -> Result<()> {
    let counts = match bench.options.quick {
        true => &COUNTS[..1],
        false => &COUNTS[..],
    };
    for count in counts.iter().copied() {
        let name = format!("equal ×{count}");
        if bench.wants(&name) {
            at(bench, name, count)?;
        }
    }
    bench.notes.push(format!(
        "equal: as many transfers at once, each at {} MB/s from a cached file to a connection. \
         {SPREAD}: the time from the first end to the last, relative to the whole.",
        RATE / 1_000_000
    ));
    Ok(())
}

fn at(bench: &mut Bench, name: String, count: usize) -> Result<()> {
    let size = bench.size(2 * RATE, RATE / 10);
    let sources = Sources::make(bench.directory.path(), count, size)?;
    let tools = bench.tools.clone();
    let ours = |name, args: &str| Some(tools.ours(name, &format!("splice {{src}} - {args}")));
    // The bytes of 20 ms in two blocks, then a rest of 20 ms.
    let block = RATE / 100;
    let schedule = format!("--schedule 2,20 --block {block}");
    let all = vec![
        (OURS, ours(OURS, &format!("--rate {RATE}"))),
        ("schedule", ours("cordboard --schedule", &schedule)),
        (FREE, ours(FREE, "")),
        ("pv", tools.peer("pv", &format!("-q -L {RATE} {{src}}"))),
    ];
    let contestants = available(bench, all);
    let setting = Setting {
        name,
        expected: sources.content,
        rounds: if bench.options.quick { 1 } else { ROUNDS },
    };
    bench.measure(&setting, &contestants, |turn| {
        sources.cache()?;
        let (sample, seconds) = together::to_sockets(&tools.bench, &sources, turn, together::run)?;
        let last = seconds.iter().copied().fold(0.0, f64::max);
        let first = seconds.iter().copied().fold(f64::INFINITY, f64::min);
        let got = sample.bytes as f64 / sample.wall / count as f64;
        let sample = sample.with(SPREAD, (last - first) / last * 100.0);
        Ok(match turn.contestant.name.as_str() {
            FREE => sample,
            _ => sample.with(OFF, (got / RATE as f64 - 1.0).abs() * 100.0),
        })
    })?;
    sources.remove();
    Ok(())
}
