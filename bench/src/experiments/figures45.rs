//! Figures 4 and 5 of the paper on `cue()`: the rate of three and of four
//! transfers at once, for each schedule of k blocks and a rest of t ms.

use anyhow::Result;

use super::experiment::Experiment;
use super::places::{Made, Place};
use super::together;
use crate::harness::Bench;
use crate::harness::contestant::{Contestant, Role};
use crate::harness::files;
use crate::harness::interleave::Setting;
use crate::harness::target::{Against, Measure, Target};

/// The entry in the list of experiments.
pub const EXPERIMENT: Experiment = Experiment {
    name: "figures4-5",
    about: "Three and four transfers at once from a disk to TCP connections: the rate of all, \
            for k blocks and rests of t ms, relative to user-driven transfers.",
    run,
};

/// The user-driven transfers, to which the rates are normalised.
const USER_DRIVEN: &str = "read-write";
const AUTOMATIC: &str = "automatic";
/// The figure of the papers' y-axis.
const NORMALISED: &str = "normalised";
/// A contestant for each schedule of the sweep.
const SCHEDULES: &[&str] = &[
    "k=2 t=0",
    "k=2 t=10",
    "k=2 t=20",
    "k=2 t=40",
    "k=2 t=70",
    "k=2 t=100", //
    "k=3 t=0",
    "k=3 t=10",
    "k=3 t=20",
    "k=3 t=40",
    "k=3 t=70",
    "k=3 t=100", //
    "k=4 t=0",
    "k=4 t=10",
    "k=4 t=20",
    "k=4 t=40",
    "k=4 t=70",
    "k=4 t=100",
];
/// Those of a quick run.
const QUICK: &[&str] = &["k=2 t=0", "k=4 t=0", "k=4 t=40"];
/// The transfers of figure 5 and of figure 4.
const TRANSFERS: [usize; 2] = [3, 4];
/// A block of a schedule is 16 times as long as the papers' 8 KB, and so is the
/// rate of the disk: theirs moved 410 KB a second for one transfer.
const RATE: u64 = 410 * 16 * 1024;
const ROUNDS: usize = 3;

fn run(bench: &mut Bench) -> Result<()> {
    for place in [Place::Throttled(RATE), Place::Disk] {
        for count in TRANSFERS {
            let name = format!("{} ×{count}", place.name());
            if !bench.wants(&name) {
                continue;
            }
            let room = 2 * size(bench, place) * count as u64;
            match place.make(bench, room) {
                Ok(made) => at(bench, &made, count, name)?,
                Err(why) => bench.skip(&name, format!("{why:#}")),
            }
        }
    }
    bench.notes.push(format!(
        "A schedule is that of each transfer; a block is 128 KiB; a rest of 0 ms lasts 1 ms. \
         {NORMALISED}: the rate of all transfers together, divided by that of {USER_DRIVEN} with \
         as many transfers."
    ));
    Ok(())
}

/// The bytes of each transfer.
fn size(bench: &Bench, place: Place) -> u64 {
    match place {
        Place::Throttled(_) => bench.size(8 << 20, 256 << 10),
        _ => bench.size(16 << 20, 1 << 20),
    }
}

fn at(bench: &mut Bench, made: &Made, count: usize, name: String) -> Result<()> {
    let size = size(bench, made.place);
    let sources = made.sources(count, size)?;
    let contestants = contestants(bench);
    let setting = Setting {
        name: name.clone(),
        expected: sources.content,
        rounds: if bench.options.quick { 1 } else { ROUNDS },
    };
    let program = bench.tools.bench.clone();
    bench.measure(&setting, &contestants, |turn| {
        made.prepare(&sources)?;
        files::cache(&turn.contestant.program)?;
        let (sample, _) = together::to_sockets(&program, &sources, turn, together::run)?;
        let rate = sample.bytes as f64 / 1e6 / sample.wall;
        Ok(sample.with("MB/s", rate))
    })?;
    bench.normalise(USER_DRIVEN, NORMALISED);
    sources.remove();
    let target = |against, bound| Target {
        setting: name.clone(),
        ours: AUTOMATIC,
        against,
        measure: Measure::Rate,
        bound,
    };
    let targets = [
        target(Against::Best(SCHEDULES), 0.95),
        target(Against::Best(&[USER_DRIVEN]), 0.95),
    ];
    bench.targets.extend(targets);
    let about = made.place.about(&made.directory);
    let each = files::size_text(size);
    bench.notes.push(format!("{name}: {about}; {each} each."));
    Ok(())
}

fn contestants(bench: &Bench) -> Vec<Contestant> {
    let tools = &bench.tools;
    let ours = |name: &str, args: &str| tools.ours(name, &format!("splice {{src}} - {args}"));
    let by_hand = tools.baseline(USER_DRIVEN, "cat-read-write {src} 131072");
    let mut all = vec![Contestant {
        role: Role::Reference,
        ..by_hand
    }];
    all.push(ours(AUTOMATIC, "--auto throughput"));
    let schedules = match bench.options.quick {
        true => QUICK,
        false => SCHEDULES,
    };
    for name in schedules {
        let pair = name.replace("k=", "").replace(" t=", ",");
        all.push(ours(name, &format!("--schedule {pair}")));
    }
    all
}
