//! One cached file into 8 pipes, and into 8 files, compared with the same file into one.

use std::ffi::OsString;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use rustix::pipe::{PipeFlags, pipe_with};

use super::experiment::{Experiment, available};
use crate::harness::contestant::{Contestant, Role};
use crate::harness::cpu::Cpu;
use crate::harness::interleave::{Setting, Turn};
use crate::harness::launch::{Job, counts};
use crate::harness::series::Sample;
use crate::harness::target::{Against, Measure, Target};
use crate::harness::{Bench, files};

/// The entry in the list of experiments.
pub const EXPERIMENT: Experiment = Experiment {
    name: "fan-out",
    about: "A cached file into 8 sinks at once, compared with the same file into one: pipes \
            whose readers splice, and files.",
    run,
};

const ONE: &str = "cordboard ×1";
const OURS: &str = "cordboard ×8";
const SINKS: usize = 8;
const ROUNDS: usize = 9;
/// The maximum processor time of 8 sinks, divided by that of one.
const COST: f64 = 1.5;

/// The kind of the sinks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum To {
    Pipes,
    Files,
}

impl To {
    fn setting(self) -> &'static str {
        match self {
            To::Pipes => "pipes",
            To::Files => "files",
        }
    }
}

fn run(bench: &mut Bench) -> Result<()> {
    let source = bench.path("source");
    for (to, size) in [
        (To::Pipes, bench.size(2 << 30, 16 << 20)),
        (To::Files, bench.size(128 << 20, 4 << 20)),
    ] {
        if !bench.wants(to.setting()) {
            continue;
        }
        let expected = files::make(&source, size)?;
        let contestants = contestants(bench, to);
        let setting = Setting {
            name: to.setting().to_owned(),
            expected,
            rounds: ROUNDS,
        };
        let sinks: Vec<PathBuf> = (0..SINKS)
            .map(|n| bench.path(&format!("sink{n}")))
            .collect();
        let tools = bench.tools.clone();
        bench.measure(&setting, &contestants, |turn| {
            files::cache(&source)?;
            match to {
                To::Pipes => into_pipes(&tools.bench, &source, turn),
                To::Files => into_files(&source, &sinks, turn),
            }
        })?;
        bench.targets.push(Target {
            setting: to.setting().to_owned(),
            ours: OURS,
            against: Against::Best(&[ONE]),
            measure: Measure::Processor,
            bound: COST,
        });
        bench.notes.push(format!(
            "{}: {} to each sink. GB/s and s/GB refer to the bytes of one sink; the processor \
             time is that of the contestant.",
            to.setting(),
            files::size_text(size)
        ));
        files::remove(&source);
    }
    Ok(())
}

fn contestants(bench: &mut Bench, to: To) -> Vec<Contestant> {
    let tools = bench.tools.clone();
    let numbers = 3..3 + SINKS;
    let (own, system): (Vec<String>, Vec<String>) = match to {
        To::Pipes => numbers
            .map(|n| (format!("fd:{n}"), format!("/dev/fd/{n}")))
            .unzip(),
        To::Files => (0..SINKS)
            .map(|n| (format!("{{sink{n}}}"), format!("{{sink{n}}}")))
            .unzip(),
    };
    // One process for each sink, which reads the source again.
    let each = tools.peer("cat", "").map(|_| {
        let words = "for sink; do cat < \"$source\" > \"$sink\" & done; wait";
        let script = format!("source=$1; shift; {words}");
        let mut shell = Contestant::new("cat each ×8", Role::Peer, "/bin/sh", "-c");
        shell.args.extend([script, "sh".into(), "{src}".into()]);
        shell.args.extend(system.iter().cloned());
        shell
    });
    let all = vec![
        (
            ONE,
            Some(tools.ours(ONE, &format!("splice {{src}} {}", own[0]))),
        ),
        (
            OURS,
            Some(tools.ours(OURS, &format!("splice {{src}} {}", own.join(" ")))),
        ),
        (
            "tee",
            tools
                .gnu("tee", &system.join(" "))
                .map(|c| c.called("tee ×8")),
        ),
        ("cat", each),
    ];
    available(bench, all)
}

/// Returns the number of sinks of this contestant.
fn sinks_of(turn: &Turn<'_>) -> usize {
    match turn.contestant.name.as_str() {
        ONE => 1,
        _ => SINKS,
    }
}

fn job(source: &Path, turn: &Turn<'_>, fill: &[(&str, OsString)]) -> Result<Job> {
    let job = Job::new(&turn.command_line(fill))?;
    Ok(match turn.contestant.name.starts_with("tee") {
        true => job.stdin(File::open(source)?),
        false => job,
    })
}

fn into_pipes(bench: &std::path::Path, source: &Path, turn: &Turn<'_>) -> Result<Sample> {
    let how = match turn.verifies() {
        true => "sink-digest",
        false => "sink-splice",
    };
    let mut writers: Vec<OwnedFd> = Vec::new();
    let mut readers = Vec::new();
    for _ in 0..sinks_of(turn) {
        let (take, put) = pipe_with(PipeFlags::CLOEXEC)?;
        let words = [bench.as_os_str().to_owned(), "baseline".into(), how.into()];
        readers.push(Job::new(&words)?.stdin(take).keep_output().start()?);
        writers.push(put);
    }
    let job = job(source, turn, &[("src", source.into())])?.hand_over(writers);
    let started = Instant::now();
    let mover = job.start().and_then(|running| running.reap());
    let ends = readers.into_iter().map(|reader| reader.reap());
    let ends: Vec<_> = ends.collect::<Result<_>>()?;
    let wall = started.elapsed().as_secs_f64();
    let cpu = mover?.check()?.cpu;
    let mut others = Cpu::default();
    let mut got = Vec::new();
    for end in ends {
        let finished = end.check().context("a reader")?;
        others = others + finished.cpu;
        got.push(counts(&finished.output).context("a reader")?);
    }
    let (bytes, digest) = the_same(&got)?;
    Ok(Sample {
        wall,
        cpu,
        others,
        bytes,
        digest,
        ..Sample::default()
    })
}

fn into_files(source: &Path, sinks: &[PathBuf], turn: &Turn<'_>) -> Result<Sample> {
    let names: Vec<String> = (0..sinks.len()).map(|n| format!("sink{n}")).collect();
    let mut fill = vec![("src", source.into())];
    let places = names.iter().zip(sinks);
    fill.extend(places.map(|(name, path)| (name.as_str(), path.into())));
    let result = job(source, turn, &fill)?
        .run()
        .and_then(|(finished, wall)| {
            let written = sinks.iter().take(sinks_of(turn));
            let got = written.map(|path| {
                let content = files::content(path)?;
                Ok((content.bytes, Some(content.digest)))
            });
            let (bytes, digest) = the_same(&got.collect::<Result<Vec<_>>>()?)?;
            Ok(Sample {
                wall,
                cpu: finished.cpu,
                bytes,
                digest,
                ..Sample::default()
            })
        });
    sinks.iter().for_each(|path| files::remove(path));
    result
}

/// Returns the content of each sink, if all sinks have the same.
fn the_same(got: &[(u64, Option<u64>)]) -> Result<(u64, Option<u64>)> {
    let first = *got.first().context("no sink")?;
    ensure!(
        got.iter().all(|one| *one == first),
        "the sinks got different bytes: {got:?}"
    );
    Ok(first)
}
