//! Many simultaneous transfers: of files, of busy pipe pairs, and of idle pipe
//! pairs.

mod contestants;
mod files;
mod idle;
mod pipes;

use anyhow::Result;

use super::experiment::Experiment;
use crate::harness::Bench;

/// The entry in the list of experiments.
pub const EXPERIMENT: Experiment = Experiment {
    name: "many",
    about: "1 to 256 copies at once, of files and of pipe pairs, and 10,000 idle pipe pairs.",
    run,
};

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

const NOTE: &str = "RSS each: the peak of the resident memory above that before the first \
    start, divided by the number of transfers. pipe each: the capacity of private pipes and the \
    enlargement of the given ones. wake-ups: voluntary context switches of all threads except \
    the bench's own. Jain and max÷min: Jain's fairness index and the ratio of the most to the \
    fewest bytes that each had moved at the first end. end spread: the time from the first end \
    to the last, relative to the whole time.";
