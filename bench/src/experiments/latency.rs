//! 4 KiB from one pipe to another: what a transfer costs from start to end.

use anyhow::Result;

use super::experiment::Experiment;
use crate::baselines::latency::BLOCK;
use crate::harness::Bench;
use crate::harness::contestant::{Contestant, Role};
use crate::harness::digest::Content;
use crate::harness::figures;
use crate::harness::interleave::Setting;
use crate::harness::target::{Against, Measure, Target};

/// In the registry.
pub const EXPERIMENT: Experiment = Experiment {
    name: "latency",
    about: "4 KiB from pipe to pipe: what a transfer takes from start to end.",
    run,
};

const SETTING: &str = "4 KiB pipe to pipe";
const ROUNDS: usize = 9;
/// As in the tables, and as the baseline is called.
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
    let with = |role: Role, ways: &[(&str, &str)]| -> Vec<Contestant> {
        let one = |(name, way): &(&str, &str)| {
            let args = format!("baseline latency {way} {count}");
            Contestant::new(name, role, &bench.tools.bench, &args)
        };
        ways.iter().map(one).collect()
    };
    let mut contestants = with(Role::Ours, OURS);
    contestants.extend(with(Role::Baseline, PLAIN));
    let setting = Setting {
        name: SETTING.to_owned(),
        // Each block is compared by the contestant itself.
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
        "{count} transfers one after the other, in one process; the block is put into the source \
         before the clock starts and taken from the sink after it has stopped. Medians over the \
         rounds of each round's percentiles. Start alone: until the caller goes on. cpu is the \
         whole process's, with putting in and taking out."
    ));
    Ok(())
}
