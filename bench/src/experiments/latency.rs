//! 4 KiB from one pipe to another: the cost of a transfer from start to end.

use anyhow::Result;

use super::experiment::Experiment;
use crate::baselines::latency::BLOCK;
use crate::harness::Bench;
use crate::harness::contestant::{Contestant, Role};
use crate::harness::digest::Content;
use crate::harness::figures;
use crate::harness::interleave::Setting;
use crate::harness::target::{Against, Measure, Target};

/// The entry in the list of experiments.
pub const EXPERIMENT: Experiment = Experiment {
    name: "latency",
    about: "4 KiB from pipe to pipe: the time of a transfer from start to end.",
    run,
};

const SETTING: &str = "4 KiB pipe to pipe";
const ROUNDS: usize = 9;
/// The name in the tables, and that of the baseline.
const PLAIN: &[(&str, &str)] = &[
    ("read+write", "read-write"),
    ("one splice", "splice"),
    ("splice+splice", "splice-splice"),
];
const OURS: &[(&str, &str)] = &[
    ("cordboard::splice", "library"),
    ("start + wait", "engine-wait"),
    ("start + Future", "engine-future"),
    ("start + eventfd", "engine-eventfd"),
    ("start alone", "engine-start"),
];

fn run(bench: &mut Bench) -> Result<()> {
    let count = bench.size(20_000, 500);
    let with = |role: Role, methods: &[(&str, &str)]| -> Vec<Contestant> {
        let one = |(name, method): &(&str, &str)| {
            let args = format!("baseline latency {method} {count}");
            Contestant::new(name, role, &bench.tools.bench, &args)
        };
        methods.iter().map(one).collect()
    };
    let mut contestants = with(Role::Ours, OURS);
    contestants.extend(with(Role::Baseline, PLAIN));
    let setting = Setting {
        name: SETTING.to_owned(),
        // The contestant itself checks each block.
        expected: Content {
            bytes: count * BLOCK as u64,
            digest: 0,
        },
        rounds: ROUNDS,
    };
    bench.measure(&setting, &contestants, figures::alone)?;
    bench.targets.push(Target {
        setting: SETTING.to_owned(),
        ours: "cordboard::splice",
        against: Against::Best(&["read+write"]),
        measure: Measure::Less("p50 µs"),
        bound: 2.0,
    });
    bench.notes.push(format!(
        "{count} successive transfers in one process. The measured time includes neither the write \
         of the block to the source pipe nor its read from the sink pipe. The percentiles are \
         medians over the rounds. start alone: the time until the call returns. cpu is that of \
         the whole process, including these writes and reads."
    ));
    Ok(())
}
