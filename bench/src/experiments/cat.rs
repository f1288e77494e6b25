//! A cached file into a pipe: kaashif's comparison of `cat` with a read/write
//! loop and a splice loop, with three kinds of reader.

use std::path::Path;

use anyhow::Result;

use super::experiment::{Experiment, available};
use super::pipeline::{READERS, Reader, pipeline};
use crate::harness::Bench;
use crate::harness::contestant::Contestant;
use crate::harness::files;
use crate::harness::interleave::{Setting, Turn};
use crate::harness::profile::Profiler;
use crate::harness::series::Sample;
use crate::harness::target::{Against, Measure, Target};
use crate::harness::tools::Tools;

/// The entry in the list of experiments.
pub const EXPERIMENT: Experiment = Experiment {
    name: "cat",
    about: "A cached file into a pipe, with a reader that splices, one that reads, and pv.",
    run,
};

const OURS: &str = "cordboard cat";
const BROKER: &str = "broker 512k";
const BROKER_WIDE: &str = "broker 512k wide";
const ROUNDS: usize = 11;

fn run(bench: &mut Bench) -> Result<()> {
    let size = bench.size(2 << 30, 16 << 20);
    let file = bench.path("source");
    let expected = files::make(&file, size)?;
    let contestants = contestants(bench);
    let tools = bench.tools.clone();
    let has_pv = tools.peer("pv", "").is_some();
    let mut profiles = String::new();
    for reader in READERS {
        let setting = Setting {
            name: reader.setting().to_owned(),
            expected,
            rounds: ROUNDS,
        };
        if reader == Reader::Pv && !has_pv {
            bench.skip("pv", "not found");
            continue;
        }
        bench.measure(&setting, &contestants, |turn| {
            once(&tools, &file, reader, turn)
        })?;
        if [Reader::Splices, Reader::Reads].contains(&reader) && bench.wants(&setting.name) {
            profiles += &profile(bench, &file, reader, &contestants);
        }
    }
    if !profiles.is_empty() {
        bench.notes.push(format!("## Profile\n\n{profiles}"));
    }
    bench.notes.push(format!(
        "{} from the page cache. The measured time starts after the reader has started, and ends \
         when both have ended. wide: the contestant sets the reader's pipe to 1 MiB.",
        files::size_text(size)
    ));
    bench.targets.extend(targets());
    Ok(())
}

fn contestants(bench: &mut Bench) -> Vec<Contestant> {
    let tools = bench.tools.clone();
    let all = vec![
        ("cordboard", Some(tools.ours(OURS, "cat {src}"))),
        ("library", Some(tools.library("{src} -"))),
        ("GNU cat", tools.gnu("cat", "{src}")),
        ("uutils cat", tools.uutils("cat", "{src}")),
        (
            "slow",
            Some(tools.baseline("slow 32k", "cat-read-write {src} 32768")),
        ),
        (
            "fast",
            Some(tools.baseline("fast 16k", "cat-splice {src} 16384")),
        ),
        (
            "splice",
            Some(tools.baseline("splice 1m wide", "cat-splice {src} 1048576 1048576")),
        ),
        (
            "broker",
            Some(tools.baseline(BROKER, "cat-broker {src} 524288")),
        ),
        (
            "broker",
            Some(tools.baseline(BROKER_WIDE, "cat-broker {src} 524288 1048576")),
        ),
    ];
    available(bench, all)
}

fn once(tools: &Tools, file: &Path, reader: Reader, turn: &Turn<'_>) -> Result<Sample> {
    files::cache(file)?;
    let capacity = reader.capacity();
    let reader = if turn.verifies() {
        Reader::Checks
    } else {
        reader
    };
    pipeline(
        tools,
        reader,
        capacity,
        &turn.command_line(&[("src", file.into())]),
    )
}

/// A table of where each contestant spends its time, from a separate run.
fn profile(bench: &mut Bench, file: &Path, reader: Reader, contestants: &[Contestant]) -> String {
    if bench.options.quick {
        return String::new();
    }
    let Some(profiler) = Profiler::find(bench.directory.path()) else {
        bench.skip("profile", "neither perf nor strace works here");
        return String::new();
    };
    let output = bench.path("profile");
    let mut out = format!(
        "{}: {}\n\n| contestant | largest shares |\n|---|---|\n",
        reader.setting(),
        profiler.unit()
    );
    let finished = bench.results.last();
    let finished = |c: &&Contestant| finished.is_some_and(|r| r.of(&c.name).is_some());
    for contestant in contestants.iter().filter(finished) {
        let mut words = profiler.prefix(&output);
        words.extend(contestant.command_line(&[("src", file.into())]));
        let top = match pipeline(&bench.tools, reader, reader.capacity(), &words) {
            Ok(_) => profiler.top(&output).join(", "),
            Err(error) => format!("{error:#}"),
        };
        out += &format!("| {} | {top} |\n", contestant.name);
    }
    out + "\n"
}

fn targets() -> Vec<Target> {
    let target = |reader: Reader, bound, against: &'static [&'static str]| Target {
        setting: reader.setting().to_owned(),
        ours: OURS,
        against: Against::Best(against),
        measure: Measure::Rate,
        bound,
    };
    vec![
        target(Reader::Splices, 18.0, &["cat"]),
        target(Reader::Splices, 1.0, &["uutils cat"]),
        target(Reader::Splices, 0.95, &[BROKER]),
        target(Reader::Splices, 0.95, &[BROKER_WIDE]),
        target(Reader::SplicesWide, 0.95, &[BROKER]),
        target(Reader::Reads, 4.0, &["cat"]),
        target(Reader::Reads, 0.95, &["uutils cat", BROKER, BROKER_WIDE]),
    ]
}
