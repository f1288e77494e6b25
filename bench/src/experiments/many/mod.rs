//! Many transfers at once: of files, of pipe pairs, and of pipe pairs through
//! which next to nothing goes.

mod contestants;
mod files;
mod idle;
mod pipes;

use anyhow::Result;

use super::experiment::Experiment;
use crate::harness::Bench;

/// In the registry.
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

const NOTE: &str = "RSS each: the peak of the process's memory over what it was before the \
    first start, by the number of transfers; pipe each: the capacity of private pipes, and by how \
    much the given ones were enlarged. Wake-ups: voluntary context switches of all threads but \
    the bench's own. Fairness: Jain's index and the ratio of the most to the least of what each \
    had moved when the first one ended; end spread: from the first end to the last one, of the \
    whole time.";
