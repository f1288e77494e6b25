//! The type of an experiment, and the search for its contestants.

use anyhow::Result;

use crate::harness::Bench;
use crate::harness::contestant::Contestant;
use crate::harness::tools::Tools;

/// One experiment.
#[derive(Debug, Clone, Copy)]
pub struct Experiment {
    /// The name on the command line.
    pub name: &'static str,
    /// What it measures.
    pub about: &'static str,
    /// Runs it.
    pub run: fn(&mut Bench) -> Result<()>,
}

/// The contestants that are available. The others are reported as skipped.
pub fn available(bench: &mut Bench, all: Vec<(&str, Option<Contestant>)>) -> Vec<Contestant> {
    let mut found = Vec::new();
    for (name, contestant) in all {
        match contestant {
            Some(contestant) => found.push(contestant),
            None => bench.skip(name, "not found"),
        }
    }
    found
}

/// The same contestant, with `fsync` of the copy within its measured time.
pub fn synced(tools: &Tools, contestant: Contestant) -> Contestant {
    let mut args: Vec<String> = ["baseline", "then-fsync", "{dst}"]
        .map(str::to_owned)
        .into();
    args.push(contestant.program.to_string_lossy().into_owned());
    args.extend(contestant.args);
    Contestant {
        program: tools.bench.clone(),
        args,
        ..contestant
    }
}
