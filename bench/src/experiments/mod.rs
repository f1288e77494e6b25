//! The experiments, one a file.

mod cat;
mod copy_file;
mod flow;
mod latency;
mod many;
mod one_byte;
mod pairs;
mod paper_tables;
mod pipeline;
mod relay;
mod small_files;

use anyhow::Result;

use crate::harness::Bench;
use crate::harness::contestant::Contestant;

/// One experiment.
#[derive(Debug, Clone, Copy)]
pub struct Experiment {
    /// As on the command line.
    pub name: &'static str,
    /// What it asks.
    pub about: &'static str,
    /// Does it.
    pub run: fn(&mut Bench) -> Result<()>,
}

/// All of them.
pub const ALL: &[Experiment] = &[
    cat::EXPERIMENT,
    copy_file::EXPERIMENT,
    small_files::EXPERIMENT,
    relay::EXPERIMENT,
    one_byte::EXPERIMENT,
    pairs::EXPERIMENT,
    paper_tables::table1::EXPERIMENT,
    paper_tables::table2::EXPERIMENT,
    flow::EXPERIMENT,
    many::EXPERIMENT,
    latency::EXPERIMENT,
];

/// The contestants that are there; says which are not.
fn present(bench: &mut Bench, all: Vec<(&str, Option<Contestant>)>) -> Vec<Contestant> {
    let mut found = Vec::new();
    for (name, contestant) in all {
        match contestant {
            Some(contestant) => found.push(contestant),
            None => bench.skip(name, "not found"),
        }
    }
    found
}
