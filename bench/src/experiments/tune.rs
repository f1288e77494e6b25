//! Each path with each size of its calls, the first choice, and the controller that
//! measures while it moves the bytes, between all kinds of sources and sinks.
//!
//! The grid is of fixed settings: `--route PATH --block SIZE`. The controller has to find
//! the best of them.

use std::fmt::Write as _;

use anyhow::Result;
use serde_json::Value;

use super::experiment::Experiment;
use super::streams::{self, DISCARDED, From, Places, Stream, To};
use crate::baselines;
use crate::harness::Bench;
use crate::harness::contestant::{Contestant, Role};
use crate::harness::cores;
use crate::harness::digest::Content;
use crate::harness::interleave::{Pass, Setting};
use crate::harness::load::Load;
use crate::harness::series::{Series, SettingResult};
use crate::harness::target::{Against, Measure, Target};
use crate::harness::{files, tools::Tools};

/// The entry in the list of experiments.
pub const EXPERIMENT: Experiment = Experiment {
    name: "tune",
    about: "The controller against each path and block size, for each kind of source and of \
            sink, on a quiet machine and beside a busy process on each core.",
    run,
};

const CONTROLLER: &str = "controller";
const FIRST_CHOICE: &str = "first choice";
const ROUNDS: usize = 5;
/// The length of a transfer, and of one from a cold file or to a file.
const LENGTH: u64 = 8 << 30;
const OF_FILES: u64 = 1 << 30;
/// The lengths of shorter transfers, which the controller must not slow down.
const SHORTER: [u64; 2] = [64 << 20, 512 << 20];
/// How many of the fixed settings run after the first round, with all of them.
const KEPT: usize = 4;
const PLAIN: &str = "read/write 128K";
const BLOCKS: [&str; 5] = ["64K", "128K", "256K", "512K", "1M"];

const SOURCES: [(From, &str); 6] = [
    (From::Cached, "cached file"),
    (From::Cold, "cold file"),
    (From::Stream(Stream::Tcp), "tcp"),
    (From::Stream(Stream::Unix), "unix stream"),
    (From::Stream(Stream::Pipe), "pipe"),
    (From::Zero, "zero"),
];
const SINKS: [(To, &str); 5] = [
    (To::File, "file"),
    (To::Stream(Stream::Tcp), "tcp"),
    (To::Stream(Stream::Unix), "unix stream"),
    (To::Stream(Stream::Pipe), "pipe"),
    (To::Null, "null"),
];

/// The ends of the names of settings.
const QUIET: &str = " (quiet)";
const BUSY: &str = " (busy)";

fn run(bench: &mut Bench) -> Result<()> {
    let source = bench.path("source");
    let mut content = Content {
        bytes: 0,
        digest: 0,
    };
    // A quick run has each source and each sink once.
    let all = !bench.options.quick || !bench.options.settings.is_empty();
    for (row, (from, from_name)) in SOURCES.into_iter().enumerate() {
        for (column, (to, to_name)) in SINKS.into_iter().enumerate() {
            if !all && column != (row + 1) % SINKS.len() {
                continue;
            }
            let size = size_of(bench, from, to);
            let name = format!("{from_name} to {to_name}");
            let names = [QUIET, BUSY].map(|end| format!("{name}{end}"));
            for shorter in SHORTER.into_iter().filter(|_| all) {
                short(bench, (from, to), &name, shorter)?;
            }
            if !names.iter().any(|name| bench.wants(name)) {
                continue;
            }
            if from.is_file() && content.bytes != size {
                files::remove(&source);
                content = files::make(&source, size)?;
            }
            let expected = expected(from, to, content, size)?;
            for (setting, is_busy) in names.into_iter().zip([false, true]) {
                if is_busy && !all && row > 0 {
                    continue;
                }
                pair(bench, (from, to), setting, expected, is_busy)?;
            }
        }
    }
    files::remove(&source);
    bench.notes.extend(later(&bench.results));
    bench.notes.push(format!(
        "{} to /dev/null and to streams, {} from a cold file and to a file. The time is from \
         the start of the command until the sink has reached the end of file. The grid has each \
         path with each block size, fixed. After the first round only the {KEPT} fastest of it run. \
         The fastest is chosen by every other round, and compared in the rounds between them. \
         Busy: beside a busy process on each core.",
        files::size_text(size_of(bench, From::Cached, To::Null)),
        files::size_text(size_of(bench, From::Cold, To::File)),
    ));
    Ok(())
}

/// A copy of a file must fit into memory beside the file, and a disk is slow.
fn size_of(bench: &Bench, from: From, to: To) -> u64 {
    match from == From::Cold || to == To::File {
        true => bench.size(OF_FILES, 24 << 20),
        // In a quick run, one pair is long enough to measure settings.
        false if (from, to) == (From::Cached, To::Stream(Stream::Tcp)) => {
            bench.size(LENGTH, 96 << 20)
        }
        false => bench.size(LENGTH, 24 << 20),
    }
}

/// Returns the bytes that have to arrive.
fn expected(from: From, to: To, file: Content, size: u64) -> Result<Content> {
    let sent = match from {
        From::Cached | From::Cold => file,
        From::Zero => baselines::zeros(size),
        From::Stream(_) => baselines::sent(usize::try_from(size)?),
    };
    Ok(match to {
        To::Null => Content {
            digest: DISCARDED,
            ..sent
        },
        To::File | To::Stream(_) => sent,
    })
}

/// Returns the name of the setting of a shorter transfer.
fn of_length(pair: &str, size: u64) -> String {
    format!("{pair} ({})", files::size_text(size))
}

/// Measures one pair with fewer bytes, without the grid.
fn short(bench: &mut Bench, (from, to): (From, To), pair: &str, size: u64) -> Result<()> {
    let name = of_length(pair, size);
    if !bench.wants(&name) {
        return Ok(());
    }
    let (source, sink) = (bench.path("short"), bench.path("sink"));
    let content = match from.is_file() {
        true => files::make(&source, size)?,
        false => Content {
            bytes: size,
            digest: 0,
        },
    };
    let expected = expected(from, to, content, size)?;
    let tools = bench.tools.clone();
    let places = Places {
        source: &source,
        sink: &sink,
        size,
    };
    let mut all = contestants(&tools, (from, to), size);
    all.retain(|one| [CONTROLLER, FIRST_CHOICE, PLAIN].contains(&one.name.as_str()));
    let setting = Setting {
        name,
        expected,
        rounds: if bench.options.quick { 1 } else { ROUNDS },
    };
    bench.measure(&setting, &all, |turn| {
        Ok(streams::between(&tools, (from, to), places, turn)?.sample)
    })?;
    files::remove(&source);
    never_slower(bench, &setting.name);
    Ok(())
}

/// Measures one pair.
fn pair(
    bench: &mut Bench,
    (from, to): (From, To),
    name: String,
    expected: Content,
    is_busy: bool,
) -> Result<()> {
    if !bench.wants(&name) {
        return Ok(());
    }
    let tools = bench.tools.clone();
    let (source, sink) = (bench.path("source"), bench.path("sink"));
    let places = Places {
        source: &source,
        sink: &sink,
        size: expected.bytes,
    };
    let cores = if is_busy {
        cores::allowed()?
    } else {
        Vec::new()
    };
    let load: Vec<Load> = cores.into_iter().map(Load::start).collect::<Result<_>>()?;
    let setting = Setting {
        name,
        expected,
        rounds: if bench.options.quick { 1 } else { ROUNDS },
    };
    let mut last = String::new();
    bench.measure_fastest(
        KEPT,
        &setting,
        &contestants(&tools, (from, to), places.size),
        |turn| {
            let moved = streams::between(&tools, (from, to), places, turn)?;
            if turn.contestant.name == CONTROLLER && turn.pass == Pass::Timed {
                last = moved.report;
            }
            Ok(moved.sample)
        },
    )?;
    drop(load);
    targets(bench, &setting.name);
    if let Some(used) = used(&last) {
        let name = &setting.name;
        bench.notes.push(format!(
            "{name}: in the last round the controller used {used}."
        ));
    }
    Ok(())
}

/// The table of the rates of the controller after its first bytes, relative to the fastest fixed
/// setting. `None`: no pair was measured in both lengths.
fn later(results: &[SettingResult]) -> Option<String> {
    const FIRST: u64 = SHORTER[1];
    let first = files::size_text(FIRST);
    let mut out = format!(
        "## After the first {first}\n\nThe time of the controller for the rest is that of the whole \
         transfer less that of one of {first}.\n\n| setting | × rate of the fastest fixed setting |\n|---|--:|\n"
    );
    let before = out.len();
    let find = |name: &str| results.iter().find(|result| result.name == name);
    let time = |result: &SettingResult| result.of(CONTROLLER).and_then(Series::median);
    for whole in results {
        let Some(pair) = whole.name.strip_suffix(QUIET) else {
            continue;
        };
        let short = find(&of_length(pair, FIRST)).and_then(time);
        // Slower ones may have run in the first round only.
        let rounds = whole.series.iter().map(|series| series.samples.len()).max();
        let fastest =
            whole.best(|series| series.role != Role::Ours && Some(series.samples.len()) == rounds);
        let fixed = fastest.and_then(Series::median);
        if let (Some(all), Some(short), Some(fixed)) = (time(whole), short, fixed)
            && whole.bytes > FIRST
            && all > short
        {
            let share = (whole.bytes - FIRST) as f64 / whole.bytes as f64;
            let _ = writeln!(out, "| {pair} | {:.3} |", share * fixed / (all - short));
        }
    }
    (out.len() > before).then_some(out)
}

/// Describes the paths of a report, with the bytes of each.
fn used(report: &str) -> Option<String> {
    let report: Value = serde_json::from_str(report).ok()?;
    let Some(by_path) = report["by_path"].as_array() else {
        return Some(format!("{} only", report["path"][0].as_str()?));
    };
    let one = |used: &Value| {
        let bytes = files::size_text(used["bytes"].as_u64()?);
        let (path, chosen) = (used["path"].as_str()?, used["chosen"].as_str()?);
        let piece = used["piece"].as_u64().map(files::size_text);
        let mut how = piece.map_or_else(String::new, |piece| format!(", {piece} a call"));
        if let Some(depth) = used["depth"].as_u64() {
            let _ = write!(how, ", {depth} in flight");
        }
        if let Some(after) = used["after"].as_u64() {
            let _ = write!(how, ", after {}", files::size_text(after));
        }
        Some(format!("{path} for {bytes} ({chosen}{how})"))
    };
    let all: Option<Vec<String>> = by_path.iter().map(one).collect();
    Some(all?.join(", "))
}

/// The paths of the grid. Paths that a pair cannot take are not in it.
fn paths(from: From, to: To) -> Vec<&'static str> {
    let mut paths = Vec::new();
    if !matches!((from, to), (From::Zero, To::Null)) {
        paths.push("splice");
    }
    if from.is_file() && to != To::Stream(Stream::Pipe) {
        paths.push("sendfile");
    }
    if from.is_file() && to == To::File {
        paths.extend(["copy_file_range", "direct"]);
    }
    paths.push("read/write");
    paths
}

/// The grid, the first choice and the controller.
fn contestants(tools: &Tools, (from, to): (From, To), size: u64) -> Vec<Contestant> {
    let ends = format!("splice --json {} {}", from.words(size), to.word());
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
    for path in paths(from, to) {
        // Larger calls of the other paths need as much memory, and are not used.
        let larger = (path == "sendfile").then_some("2M");
        for block in BLOCKS.into_iter().chain(larger) {
            let args = format!("{ends} --route {path} --block {block}");
            let grid = tools.ours(&format!("{path} {block}"), &args);
            all.push(Contestant {
                role: match grid.name == PLAIN {
                    true => Role::Reference,
                    false => Role::Baseline,
                },
                ..grid
            });
        }
    }
    all
}

fn targets(bench: &mut Bench, setting: &str) {
    for (measure, bound) in [(Measure::Rate, 0.93), (Measure::Processor, 1.1)] {
        bench.targets.push(Target {
            setting: setting.to_owned(),
            ours: CONTROLLER,
            against: Against::FastestBaseline,
            measure,
            bound,
        });
    }
    never_slower(bench, setting);
}

fn never_slower(bench: &mut Bench, setting: &str) {
    for against in [&[PLAIN], &[FIRST_CHOICE]] {
        bench.targets.push(Target {
            setting: setting.to_owned(),
            ours: CONTROLLER,
            against: Against::Best(against),
            measure: Measure::Rate,
            bound: 0.97,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::series::Sample;

    #[test]
    fn the_rate_after_the_first_bytes_is_that_of_the_rest() {
        let result = |name: &str, bytes, walls: [f64; 2]| SettingResult {
            name: name.to_owned(),
            bytes,
            series: [(CONTROLLER, Role::Ours), ("splice 1M", Role::Baseline)]
                .into_iter()
                .zip(walls)
                .map(|((name, role), wall)| {
                    let sample = Sample {
                        wall,
                        ..Sample::default()
                    };
                    Series {
                        name: name.to_owned(),
                        role,
                        samples: vec![(0, sample)],
                        instructions: None,
                    }
                })
                .collect(),
        };
        let whole = result("tcp to pipe (quiet)", 2 << 30, [5.0, 4.0]);
        assert_eq!(later(std::slice::from_ref(&whole)), None);
        let short = result("tcp to pipe (512 MiB)", 512 << 20, [2.0, 1.0]);
        let quick = result("tcp to pipe (quiet)", 64 << 20, [5.0, 4.0]);
        assert_eq!(later(&[short, quick]), None);
        let short = result("tcp to pipe (512 MiB)", 512 << 20, [2.0, 1.0]);
        let table = later(&[short, whole]).unwrap();
        assert!(table.ends_with("| tcp to pipe | 1.000 |\n"), "{table}");
    }

    /// The page names all lengths, and the command that measures them on a quiet machine.
    #[test]
    fn the_lengths_are_documented() {
        let page = include_str!("../../../docs/experiments.md");
        let (_, rest) = page.split_once("\n## `tune`\n").unwrap();
        let (section, _) = rest.split_once("\n## ").unwrap();
        let section = section.replace('\n', " ");
        for length in [LENGTH, OF_FILES].into_iter().chain(SHORTER) {
            let text = files::size_text(length);
            assert!(section.contains(&text), "{text}");
        }
        let settings = ["(quiet)", "MiB)"];
        let command = format!("--setting '{}'", settings.join(","));
        assert!(section.contains(&command), "{command}");
        let is_measured = |name: &str| settings.iter().any(|setting| name.contains(setting));
        assert!(is_measured(&format!("pipe to tcp{QUIET}")));
        assert!(!is_measured(&format!("pipe to tcp{BUSY}")));
        for length in SHORTER {
            assert!(is_measured(&of_length("pipe to tcp", length)));
        }
    }

    #[test]
    fn the_paths_of_a_report_are_described() {
        let one = r#"{"path":["read/write"],"written":5}"#;
        assert_eq!(used(one).unwrap(), "read/write only");
        let two = r#"{"path":["splice","sendfile"],"by_path":[
            {"path":"splice","bytes":8388608,"chosen":"first"},
            {"path":"sendfile","bytes":1048576,"chosen":"best","piece":1048576,"after":9437184}]}"#;
        assert_eq!(
            used(two).unwrap(),
            "splice for 8 MiB (first), sendfile for 1 MiB (best, 1 MiB a call, after 9 MiB)"
        );
        let direct = r#"{"path":["direct"],"by_path":[{"path":"direct","bytes":1048576,
            "chosen":"best","piece":4096,"depth":2,"after":0}]}"#;
        assert_eq!(
            used(direct).unwrap(),
            "direct for 1 MiB (best, 4 KiB a call, 2 in flight, after 0 B)"
        );
        assert_eq!(used("error: no source"), None);
    }
}
