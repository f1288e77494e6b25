//! Many transfers at once: of files, of pipe pairs, and of pipe pairs through
//! which next to nothing goes.

mod files;
mod idle;
mod pipes;

use anyhow::Result;

use super::Experiment;
use crate::harness::Bench;
use crate::harness::contestant::{Contestant, Role};
use crate::harness::target::{Against, Measure, Target};
use crate::harness::tools::Tools;

/// In the registry.
pub const EXPERIMENT: Experiment = Experiment {
    name: "many",
    about: "1 to 256 copies at once, of files and of pipe pairs, and 10,000 idle pipe pairs.",
    run,
};

/// The library's engine.
const ENGINE: &str = "engine";
/// A thread for each, with `read(2)` and `write(2)`.
const THREADS: &str = "threads read/write";
/// A thread for each, with `splice(2)`.
const THREADS_SPLICE: &str = "threads splice";

fn run(bench: &mut Bench) -> Result<()> {
    let counts: &[usize] = if bench.options.quick {
        &[8]
    } else {
        &[1, 4, 16, 64, 256]
    };
    for count in counts.iter().copied() {
        files::run(bench, count)?;
    }
    for count in counts.iter().copied() {
        pipes::run(bench, count)?;
    }
    idle::run(bench)?;
    bench.notes.push(NOTE.to_owned());
    Ok(())
}

const NOTE: &str = "RSS each: the peak of the process's memory over what it was before the \
    first start, by the number of transfers; pipe each: the capacity of private pipes, and by how \
    much the given ones were enlarged. Wake-ups: voluntary context switches of all threads but \
    the bench's own. Fairness: Jain's index and the ratio of the most to the least of what each \
    had moved when the first one ended; end spread: from the first end to the last one, of the \
    whole time.";

/// No slower than what can be had by hand.
fn as_fast_as_by_hand(setting: &str) -> Target {
    Target {
        setting: setting.to_owned(),
        ours: ENGINE,
        against: Against::Baselines,
        measure: Measure::Rate,
        bound: 0.95,
    }
}

/// One of ours or of our baselines, in a process of the bench.
fn by_bench(tools: &Tools, name: &str, role: Role, args: &str) -> Contestant {
    let args = format!("baseline {args}");
    Contestant::new(name, role, &tools.bench, &args)
}
