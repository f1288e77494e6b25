//! A file of one byte: the cost of starting.

use anyhow::Result;

use super::experiment::{Experiment, available};
use crate::harness::interleave::Setting;
use crate::harness::launch::Job;
use crate::harness::series::Sample;
use crate::harness::target::{Against, Measure, Target};
use crate::harness::{Bench, env, files};

/// The entry in the list of experiments.
pub const EXPERIMENT: Experiment = Experiment {
    name: "one-byte",
    about: "A file of one byte copied: the cost of starting a process and choosing the route.",
    run,
};

const OURS: &str = "cordboard copy";
const ROUNDS: usize = 400;

fn run(bench: &mut Bench) -> Result<()> {
    let source = bench.path("source");
    let sink = bench.path("sink");
    let expected = files::make(&source, 1)?;
    let tools = bench.tools.clone();
    let all = vec![
        ("cordboard", Some(tools.ours(OURS, "copy {src} {dst}"))),
        ("library", Some(tools.library("{src} {dst}"))),
        ("GNU cp", tools.gnu("cp", "{src} {dst}")),
        ("uutils cp", tools.uutils("cp", "{src} {dst}")),
        (
            "read-write",
            Some(tools.baseline("read-write", "copy read-write {src} {dst}")),
        ),
        (
            "copy_file_range",
            Some(tools.baseline("copy_file_range", "copy copy_file_range {src} {dst}")),
        ),
    ];
    let contestants = available(bench, all);
    let setting = Setting {
        name: format!("one byte {}", env::filesystem(bench.directory.path())),
        expected,
        rounds: ROUNDS,
    };
    if bench.options.quick {
        bench.options.rounds.get_or_insert(20);
    }
    bench.measure(&setting, &contestants, |turn| {
        let words =
            turn.command_line(&[("src", source.clone().into()), ("dst", sink.clone().into())]);
        let (finished, wall) = Job::new(&words)?.run()?;
        let arrived = files::content(&sink)?;
        files::remove(&sink);
        Ok(Sample {
            wall,
            cpu: finished.cpu,
            bytes: arrived.bytes,
            digest: Some(arrived.digest),
            ..Sample::default()
        })
    })?;
    bench.targets.push(Target {
        setting: setting.name,
        ours: OURS,
        against: Against::Best(&["cp"]),
        measure: Measure::Wall,
        bound: 1.5,
    });
    Ok(())
}
