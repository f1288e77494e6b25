//! Each path with each size of its calls, the first choice, and the controller that
//! measures while it moves the bytes, between files and sockets.
//!
//! The grid is of fixed settings: `--route PATH --block SIZE`. The controller has to find
//! the best of them.

use anyhow::Result;

use super::experiment::Experiment;
use super::streams::{self, End};
use crate::baselines;
use crate::harness::Bench;
use crate::harness::contestant::{Contestant, Role};
use crate::harness::interleave::Setting;
use crate::harness::target::{Against, Measure, Target};
use crate::harness::{files, tools::Tools};

/// The entry in the list of experiments.
pub const EXPERIMENT: Experiment = Experiment {
    name: "tune",
    about: "The controller against each path and block size, between files and sockets.",
    run,
};

const CONTROLLER: &str = "controller";
const FIRST_CHOICE: &str = "first choice";
const ROUNDS: usize = 5;
const BLOCKS: [&str; 5] = ["64K", "128K", "256K", "512K", "1M"];

/// The ends of the transfers, and their name.
const PAIRS: [(End, End, &str); 4] = [
    (End::File, End::Tcp, "cached file to tcp"),
    (End::File, End::Unix, "cached file to unix stream"),
    (End::Tcp, End::Tcp, "tcp to tcp"),
    (End::Unix, End::Tcp, "unix stream to tcp"),
];

fn run(bench: &mut Bench) -> Result<()> {
    let size = bench.size(8 << 30, 64 << 20);
    let tools = bench.tools.clone();
    let source = bench.path("source");
    let content = files::make(&source, size)?;
    for (from, to, name) in PAIRS {
        if !bench.wants(name) {
            continue;
        }
        files::cache(&source)?;
        let setting = Setting {
            name: name.to_owned(),
            expected: match from {
                End::File => content,
                End::Tcp | End::Unix => baselines::sent(usize::try_from(size)?),
            },
            rounds: ROUNDS,
        };
        let all = contestants(&tools, from);
        bench.measure(&setting, &all, |turn| {
            streams::between(&tools, (from, to), (&source, size), turn)
        })?;
        targets(bench, name);
    }
    files::remove(&source);
    bench.notes.push(format!(
        "{}. The time is from the start of the command until the sink has reached the end of \
         file. The grid has each path with each block size, fixed.",
        files::size_text(size)
    ));
    Ok(())
}

/// The grid, the first choice and the controller.
fn contestants(tools: &Tools, from: End) -> Vec<Contestant> {
    let source = if from == End::File { "{src}" } else { "fd:3" };
    let ends = format!("splice {source} fd:4");
    let mut all = vec![tools.ours(CONTROLLER, &ends)];
    if let Some(env) = tools.peer("env", "CORDBOARD_TUNE=off") {
        let mut off = Contestant {
            role: Role::Ours,
            ..env.called(FIRST_CHOICE)
        };
        off.args
            .push(tools.cordboard.to_string_lossy().into_owned());
        off.args.extend(ends.split(' ').map(str::to_owned));
        all.push(off);
    }
    let paths: &[&str] = match from {
        End::File => &["splice", "sendfile", "read/write"],
        End::Tcp | End::Unix => &["splice", "read/write"],
    };
    for path in paths {
        for block in BLOCKS {
            let args = format!("{ends} --route {path} --block {block}");
            let grid = tools.ours(&format!("{path} {block}"), &args);
            all.push(Contestant {
                role: Role::Baseline,
                ..grid
            });
        }
    }
    all
}

fn targets(bench: &mut Bench, setting: &str) {
    for (against, measure, bound) in [
        (Against::Baselines, Measure::Rate, 0.93),
        (Against::Baselines, Measure::Processor, 1.1),
        (Against::Best(&["read/write 128K"]), Measure::Rate, 0.97),
        (Against::Best(&[FIRST_CHOICE]), Measure::Rate, 0.97),
    ] {
        bench.targets.push(Target {
            setting: setting.to_owned(),
            ours: CONTROLLER,
            against,
            measure,
            bound,
        });
    }
}
