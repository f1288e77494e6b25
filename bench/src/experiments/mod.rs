//! The experiments, one per file.

mod cat;
mod copy_file;
mod cue_table1;
mod experiment;
mod fan_out;
mod figures45;
mod flow;
mod latency;
mod many;
mod net2006;
mod one_byte;
mod overhead;
mod pacing;
mod pairs;
mod paper_tables;
mod pipeline;
mod places;
mod relay;
mod small_files;
mod streams;
mod together;
mod tune;

pub use experiment::Experiment;

/// All experiments.
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
    pacing::EXPERIMENT,
    cue_table1::EXPERIMENT,
    overhead::EXPERIMENT,
    fan_out::EXPERIMENT,
    figures45::EXPERIMENT,
    tune::EXPERIMENT,
    net2006::EXPERIMENT,
];
