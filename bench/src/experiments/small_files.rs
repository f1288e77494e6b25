//! Many small files.

use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};

use super::experiment::{Experiment, available};
use crate::harness::contestant::Contestant;
use crate::harness::digest::Content;
use crate::harness::interleave::{Setting, Turn};
use crate::harness::launch::Job;
use crate::harness::loopfs::LoopFs;
use crate::harness::series::Sample;
use crate::harness::target::{Against, Measure, Target};
use crate::harness::{Bench, env, files};

/// The entry in the list of experiments.
pub const EXPERIMENT: Experiment = Experiment {
    name: "small-files",
    about: "10,000 files of 4 KiB copied into a new directory.",
    run,
};

const OURS: &str = "cordboard copy";
const FILE: usize = 4096;
const ROUNDS: usize = 9;
/// The time for which ext4 does not reuse a freed inode.
const RECENT: std::time::Duration = std::time::Duration::from_secs(6);
const ROOM: u64 = 1 << 30;

fn run(bench: &mut Bench) -> Result<()> {
    let count = if bench.options.quick { 500 } else { 10_000 };
    let disk = env::filesystem(bench.directory.path());
    let directory = bench.directory.path().to_owned();
    on(bench, &disk, &directory, count, &[false, true])?;
    let memory = Path::new("/dev/shm");
    if disk != "tmpfs" && env::filesystem(memory) == "tmpfs" {
        let directory = tempfile::Builder::new()
            .prefix("cordboard-bench-")
            .tempdir_in(memory)?;
        on(bench, "tmpfs", directory.path(), count, &[false])?;
    }
    for kind in ["xfs", "btrfs"] {
        if !bench.wants(&setting_name(kind, false)) {
            continue;
        }
        match LoopFs::make(kind, ROOM) {
            Ok(made) => on(bench, kind, made.path(), count, &[false])?,
            Err(why) => bench.skip(kind, format!("{why:#}")),
        }
    }
    bench.notes.push(format!(
        "{count} files of {} in one directory. The argument of a contestant with a recursive mode \
         is the directory; another one gets the names of the files.",
        files::size_text(FILE as u64)
    ));
    Ok(())
}

fn setting_name(place: &str, cold: bool) -> String {
    format!("{place} {}", if cold { "cold" } else { "cached" })
}

fn on(
    bench: &mut Bench,
    place: &str,
    directory: &Path,
    count: usize,
    colds: &[bool],
) -> Result<()> {
    let source = directory.join("many");
    let sink = directory.join("copy");
    let expected = make(&source, count)?;
    files::sync(directory)?;
    let contestants = contestants(bench);
    let quick = bench.options.quick;
    for cold in colds.iter().copied() {
        let name = setting_name(place, cold);
        let setting = Setting {
            name: name.clone(),
            expected,
            rounds: ROUNDS,
        };
        let mut kept = 0;
        bench.measure(&setting, &contestants, |turn| {
            if place == "ext4" {
                kept += 1;
                put_aside(&sink, kept)?;
            } else {
                files::remove(&sink);
            }
            if !quick {
                files::sync(directory)?;
            }
            if cold && !quick {
                files::drop_caches();
                files::cache(&turn.contestant.program)?;
            } else {
                files::content_of_all(&source)?;
            }
            once(&source, &sink, turn)
        })?;
        files::remove(&sink);
        for number in 1..=kept {
            files::remove(&aside(&sink, number));
        }
        if kept > 0 && !quick {
            std::thread::sleep(RECENT);
        }
        bench.targets.push(Target {
            setting: name,
            ours: OURS,
            against: Against::Best(&["cp -r"]),
            measure: Measure::Rate,
            bound: 1.0,
        });
    }
    Ok(())
}

/// Renames the copy instead of removing it. When ext4 looks for a free inode,
/// it skips each inode that was freed in the last seconds, one by one, so
/// removing the copy would slow down the next contestant.
fn put_aside(sink: &Path, number: usize) -> Result<()> {
    if sink.exists() {
        fs::rename(sink, aside(sink, number))?;
    }
    Ok(())
}

fn aside(sink: &Path, number: usize) -> std::path::PathBuf {
    sink.with_extension(number.to_string())
}

fn make(directory: &Path, count: usize) -> Result<Content> {
    fs::create_dir(directory)?;
    let mut noise = files::Noise::new(count as u64);
    let mut buffer = [0; FILE];
    for n in 0..count {
        noise.fill(&mut buffer);
        fs::File::create(directory.join(format!("{n:05}")))?.write_all(&buffer)?;
    }
    files::content_of_all(directory)
}

fn contestants(bench: &mut Bench) -> Vec<Contestant> {
    let tools = bench.tools.clone();
    let ours = if tools.help_of("copy").contains("--recursive") {
        tools.ours(OURS, "copy --recursive {src} {dst}")
    } else {
        tools.ours(OURS, "copy {names}")
    };
    let named = |name: &str, found: Option<Contestant>| {
        found.map(|c| Contestant {
            name: name.to_owned(),
            ..c
        })
    };
    let all = vec![
        ("cordboard", Some(ours)),
        ("GNU cp", named("cp -r", tools.gnu("cp", "-r {src} {dst}"))),
        (
            "uutils cp",
            named("uutils cp -r", tools.uutils("cp", "-r {src} {dst}")),
        ),
        (
            "read-write",
            Some(tools.baseline("read-write", "copy-all read-write {src} {dst}")),
        ),
        (
            "copy_file_range",
            Some(tools.baseline("copy_file_range", "copy-all copy_file_range {src} {dst}")),
        ),
    ];
    available(bench, all)
}

fn once(source: &Path, sink: &Path, turn: &Turn<'_>) -> Result<Sample> {
    let mut words = turn.command_line(&[("src", source.into()), ("dst", sink.into())]);
    if let Some(at) = words.iter().position(|word| word == "{names}") {
        // Into an existing directory: creating it is not measured.
        fs::create_dir(sink)?;
        words.splice(at..=at, names(source, sink)?);
    }
    let (finished, wall) = Job::new(&words)?.directory(source).run()?;
    let arrived = if turn.verifies() {
        files::content_of_all(sink)?
    } else {
        Content {
            bytes: sizes(sink)?,
            digest: 0,
        }
    };
    Ok(Sample {
        wall,
        cpu: finished.cpu,
        bytes: arrived.bytes,
        digest: Some(arrived.digest),
        ..Sample::default()
    })
}

/// The arguments `00000 00001 … DIRECTORY`.
fn names(source: &Path, sink: &Path) -> Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(source)? {
        names.push(entry?.file_name());
    }
    names.push(sink.into());
    Ok(names)
}

fn sizes(directory: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(directory).context("nothing was copied")? {
        sum += entry?.metadata()?.len();
    }
    Ok(sum)
}
