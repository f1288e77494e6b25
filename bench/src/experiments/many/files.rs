//! Simultaneous copies of all files of a directory into another.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::contestants::{ENGINE, THREADS, as_fast_as_by_hand, by_bench};
use crate::experiments::experiment::available;
use crate::harness::contestant::{Contestant, Role};
use crate::harness::digest::Content;
use crate::harness::interleave::{Setting, Turn};
use crate::harness::launch::Job;
use crate::harness::series::Sample;
use crate::harness::{Bench, figures, files};

const ROUNDS: usize = 5;

/// Copies `count` files, whose total size does not depend on `count`.
pub fn run(bench: &mut Bench, count: usize) -> Result<()> {
    let total = bench.size(1 << 30, 16 << 20);
    let settings = [false, true].map(|cold| (cold, name(count, cold)));
    if !settings.iter().any(|(_, name)| bench.wants(name)) {
        return Ok(());
    }
    let source = bench.path("many");
    let sink = bench.path("copies");
    let expected = make(&source, count, total / count as u64)?;
    let quick = bench.options.quick;
    for (cold, name) in settings {
        let contestants = contestants(bench, count, cold);
        let setting = Setting {
            name,
            expected,
            rounds: if quick { 1 } else { ROUNDS },
        };
        bench.measure(&setting, &contestants, |turn| {
            prepare(&source, &sink, cold, quick)?;
            files::cache(&turn.contestant.program)?;
            once(&source, &sink, turn)
        })?;
        files::remove(&sink);
        bench.targets.push(as_fast_as_by_hand(&setting.name));
    }
    files::remove(&source);
    Ok(())
}

fn name(count: usize, cold: bool) -> String {
    let how = if cold { "cold fsync" } else { "cached" };
    format!("files ×{count} {how}")
}

fn make(directory: &Path, count: usize, size: u64) -> Result<Content> {
    fs::create_dir(directory)?;
    for n in 0..count {
        files::make(&directory.join(format!("{n:03}")), size)?;
    }
    files::content_of_all(directory)
}

fn contestants(bench: &mut Bench, count: usize, cold: bool) -> Vec<Contestant> {
    let tools = bench.tools.clone();
    let sync = if cold { "sync" } else { "" };
    let flag = if cold { "--sync" } else { "" };
    let args = |mover: &str| format!("many-files {mover} {{src}} {{dst}} {sync}");
    let ours = tools.ours("cordboard copy", &format!("copy {flag} {{names}} {{dst}}"));
    let parallel = tools.peer("xargs", "").and(tools.gnu("cp", "")).map(|_| {
        let then = if cold { "&& sync \"$2\"/*" } else { "" };
        let script = format!(r#"cd "$1" && ls | xargs -P {count} -I: cp : "$2/" {then}"#);
        let mut shell = Contestant::new("xargs -P cp", Role::Reference, "/bin/sh", "-c");
        shell
            .args
            .extend([script, "sh".into(), "{src}".into(), "{dst}".into()]);
        shell
    });
    let all = vec![
        ("cordboard", Some(ours)),
        (
            ENGINE,
            Some(by_bench(&tools, ENGINE, Role::Ours, &args("engine"))),
        ),
        ("xargs and cp", parallel),
        (
            THREADS,
            Some(by_bench(&tools, THREADS, Role::Baseline, &args("threads"))),
        ),
    ];
    available(bench, all)
}

fn prepare(source: &Path, sink: &Path, cold: bool, quick: bool) -> Result<()> {
    files::remove(sink);
    fs::create_dir(sink)?;
    if !quick {
        files::sync(sink)?;
    }
    for entry in fs::read_dir(source)? {
        let path = entry?.path();
        if cold {
            files::evict(&path, false)?;
        } else {
            files::cache(&path)?;
        }
    }
    if cold && !quick {
        files::drop_caches();
    }
    Ok(())
}

fn once(source: &Path, sink: &Path, turn: &Turn<'_>) -> Result<Sample> {
    let mut words = turn.command_line(&[("src", source.into()), ("dst", sink.into())]);
    if let Some(at) = words.iter().position(|word| word == "{names}") {
        words.splice(at..=at, names(source)?);
    }
    let (finished, wall) = Job::new(&words)?.directory(source).keep_output().run()?;
    let arrived = if turn.verifies() {
        files::content_of_all(sink)?
    } else {
        Content {
            bytes: sizes(sink)?,
            digest: 0,
        }
    };
    let sample = Sample {
        wall,
        cpu: finished.cpu,
        bytes: arrived.bytes,
        digest: Some(arrived.digest),
        ..Sample::default()
    };
    figures::add_output(sample, &finished.output)
}

fn names(directory: &Path) -> Result<Vec<OsString>> {
    let entries = fs::read_dir(directory)?;
    entries.map(|entry| Ok(entry?.file_name())).collect()
}

fn sizes(directory: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(directory).context("nothing was copied")? {
        sum += entry?.metadata()?.len();
    }
    Ok(sum)
}
