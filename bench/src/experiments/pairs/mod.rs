//! Every pair of kinds of descriptor: whether it works, which path is taken,
//! and how its speed compares with a plain read/write loop between the same
//! descriptors.
//!
//! This experiment runs in the process of the bench, because a command line
//! cannot name most of these descriptors. A complete `--record` run writes
//! `docs/paths.md`; with `--setting "pipe -> TCP"` or `--setting="-> eventfd"`
//! only those cells are updated.

mod cell;
mod document;
mod measure;
mod verify;

use anyhow::Result;
use testkit::table::Entry;
use testkit::{SinkKind, SourceKind, matrix};

use super::experiment::Experiment;
use crate::harness::Bench;
use crate::harness::contestant::Role;
use crate::harness::series::{Failed, Series, SettingResult};
use cell::Cell;
use measure::Measured;

/// The entry in the list of experiments.
pub const EXPERIMENT: Experiment = Experiment {
    name: "pairs",
    about: "Every pair of kinds of descriptor: which path is taken, and how fast.",
    run,
};

fn run(bench: &mut Bench) -> Result<()> {
    let rounds = bench.options.rounds;
    // Of each setup: an even number, so that each mover is the first equally often.
    let rounds = rounds.unwrap_or(if bench.options.quick { 1 } else { 4 });
    let mut cells = Vec::new();
    for source in SourceKind::ALL.iter().copied() {
        let mut row = SettingResult {
            name: format!("from {}", source.name()),
            // The samples have their own sizes.
            bytes: 0,
            series: Vec::new(),
        };
        for sink in SinkKind::ALL.iter().copied() {
            let name = format!("{} -> {}", source.name(), sink.name());
            if !bench.wants(&name) {
                continue;
            }
            if let Some(why) = matrix::unavailable(source, sink) {
                bench.skip(&name, why);
                let entry = Entry::Skipped;
                cells.push(Cell {
                    source,
                    sink,
                    entry,
                });
                continue;
            }
            let entry = cell(bench, source, sink, rounds, &mut row)?;
            eprintln!("  {name}: {entry}");
            cells.push(Cell {
                source,
                sink,
                entry,
            });
        }
        if !row.series.is_empty() {
            bench.results.push(row);
        }
    }
    bench
        .notes
        .extend(document::notes(&cells, bench.options.quick));
    if bench.options.record {
        document::update(&cells)?;
    }
    Ok(())
}

/// Verifies a pair, measures it, and adds the samples to `row`.
fn cell(
    bench: &mut Bench,
    source: SourceKind,
    sink: SinkKind,
    rounds: usize,
    row: &mut SettingResult,
) -> Result<Entry> {
    let entry = verify::verify(source, sink)?;
    match entry {
        Entry::Moved { path, .. } => {
            let measured = measure::measure(source, sink, rounds, bench.options.quick)?;
            let Some(measured) = measured else {
                return Ok(Entry::Moved { path, ratio: None });
            };
            let Measured {
                ratio,
                library,
                plain,
            } = measured;
            let to = sink.name();
            for (name, role, samples) in [
                (format!("to {to}: cordboard"), Role::Ours, library),
                (format!("to {to}: read/write"), Role::Baseline, plain),
            ] {
                row.series.push(Series {
                    name,
                    role,
                    samples,
                    instructions: None,
                });
            }
            Ok(Entry::Moved { path, ratio })
        }
        Entry::Wrong(why) => {
            bench.failures.push(Failed {
                setting: format!("{} -> {}", source.name(), sink.name()),
                name: "cordboard".to_owned(),
                role: Role::Ours,
                corrupt: false,
                why: why.clone(),
            });
            Ok(Entry::Wrong(why))
        }
        entry => Ok(entry),
    }
}
