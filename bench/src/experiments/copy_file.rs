//! One large file copied within a file system.

use std::fs::File;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};

use super::experiment::{Experiment, available};
use crate::harness::contestant::Contestant;
use crate::harness::cpu::own_time;
use crate::harness::interleave::{Setting, Turn};
use crate::harness::launch::Job;
use crate::harness::loopfs::LoopFs;
use crate::harness::series::Sample;
use crate::harness::target::{Against, Measure, Target};
use crate::harness::{Bench, env, files};

/// The entry in the list of experiments.
pub const EXPERIMENT: Experiment = Experiment {
    name: "copy-file",
    about: "One file copied within a file system: cached, cached with fsync, cold with fsync.",
    run,
};

const OURS: &str = "cordboard copy";
const METHODS: &[&str] = &["read-write", "copy_file_range", "sendfile", "splice"];
const CLONE_SECONDS: f64 = 0.020;
const ROUNDS: usize = 7;
/// On file systems that can clone, other methods take a hundred times as long.
const ROUNDS_AMONG_CLONES: usize = 5;

/// Whether the source is cached at the start, and the copy synced at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    Cached,
    CachedSynced,
    ColdSynced,
}

impl Case {
    fn name(self) -> &'static str {
        match self {
            Case::Cached => "cached",
            Case::CachedSynced => "cached fsync",
            Case::ColdSynced => "cold fsync",
        }
    }
}

fn run(bench: &mut Bench) -> Result<()> {
    let size = bench.size(2 << 30, 16 << 20);
    let all = [Case::Cached, Case::CachedSynced, Case::ColdSynced];
    let disk = env::filesystem(bench.directory.path());
    let directory = bench.directory.path().to_owned();
    if bench.wants_any(&disk, &all) {
        on(bench, &disk, &directory, size, &all, false)?;
    }

    let memory = Path::new("/dev/shm");
    if disk != "tmpfs" && bench.wants_any("tmpfs", &all[..1]) {
        if env::filesystem(memory) == "tmpfs" && env::memory_available() > size * 3 {
            let directory = tempfile::Builder::new()
                .prefix("cordboard-bench-")
                .tempdir_in(memory)?;
            on(bench, "tmpfs", directory.path(), size, &all[..1], false)?;
        } else {
            bench.skip("tmpfs", "not enough memory, or no tmpfs at /dev/shm");
        }
    }
    for kind in ["xfs", "btrfs"] {
        if !bench.wants_any(kind, &all) {
            continue;
        }
        // Space for the source, a copy, and a removed copy that is not freed
        // yet.
        match LoopFs::make(kind, size * 3 + (1 << 30)) {
            Ok(made) => on(bench, kind, made.path(), size, &all, true)?,
            Err(why) => bench.skip(kind, format!("{why:#}")),
        }
    }
    bench.notes.push(format!(
        "{}. fsync: called by the harness within the measured time; its processor time counts \
         for the contestant. xfs and btrfs are on a loop device over tmpfs. The processor time \
         of kernel threads is not counted.",
        files::size_text(size)
    ));
    Ok(())
}

impl Bench {
    fn wants_any(&self, place: &str, cases: &[Case]) -> bool {
        cases
            .iter()
            .any(|case| self.wants(&setting_name(place, *case)))
    }
}

fn setting_name(place: &str, case: Case) -> String {
    format!("{place} {}", case.name())
}

fn on(
    bench: &mut Bench,
    place: &str,
    directory: &Path,
    size: u64,
    cases: &[Case],
    clones: bool,
) -> Result<()> {
    let source = directory.join("source");
    let sink = directory.join("sink");
    let expected = files::make(&source, size).with_context(|| place.to_owned())?;
    let contestants = contestants(bench, clones);
    let quick = bench.options.quick;
    for case in cases.iter().copied() {
        let name = setting_name(place, case);
        let setting = Setting {
            name: name.clone(),
            expected,
            rounds: if clones { ROUNDS_AMONG_CLONES } else { ROUNDS },
        };
        bench.measure(&setting, &contestants, |turn| {
            let sample = prepare(&source, &sink, directory, case, quick)
                .and_then(|()| files::cache(&turn.contestant.program))
                .and_then(|()| once(&source, &sink, case, turn));
            files::remove(&sink);
            sample
        })?;
        bench.targets.extend(targets(&name, case, clones));
    }
    Ok(())
}

fn contestants(bench: &mut Bench, clones: bool) -> Vec<Contestant> {
    let tools = bench.tools.clone();
    let mut all = vec![
        ("cordboard", Some(tools.ours(OURS, "copy {src} {dst}"))),
        ("library", Some(tools.library("{src} {dst}"))),
        ("GNU cp", tools.gnu("cp", "{src} {dst}")),
        ("uutils cp", tools.uutils("cp", "{src} {dst}")),
        (
            "dd",
            tools.peer("dd", "if={src} of={dst} bs=1M status=none"),
        ),
    ];
    for method in METHODS.iter().copied().chain(clones.then_some("clone")) {
        all.push((
            method,
            Some(tools.baseline(method, &format!("copy {method} {{src}} {{dst}}"))),
        ));
    }
    available(bench, all)
}

fn prepare(source: &Path, sink: &Path, directory: &Path, case: Case, quick: bool) -> Result<()> {
    files::remove(sink);
    if !quick {
        files::sync(directory)?;
    }
    match case {
        Case::Cached | Case::CachedSynced => files::cache(source),
        Case::ColdSynced => files::evict(source, !quick),
    }
}

fn once(source: &Path, sink: &Path, case: Case, turn: &Turn<'_>) -> Result<Sample> {
    let words = turn.command_line(&[("src", source.into()), ("dst", sink.into())]);
    let job = Job::new(&words)?;
    let started = Instant::now();
    let (finished, mut wall) = job.run()?;
    let mut cpu = finished.cpu;
    if case != Case::Cached {
        let (synced, own) = own_time(|| File::options().write(true).open(sink)?.sync_all());
        synced.context("fsync")?;
        cpu = cpu + own;
        wall = started.elapsed().as_secs_f64();
    }
    let digest = if turn.verifies() {
        Some(files::content(sink)?.digest)
    } else {
        None
    };
    Ok(Sample {
        wall,
        cpu,
        bytes: std::fs::metadata(sink)?.len(),
        digest,
        ..Sample::default()
    })
}

fn targets(setting: &str, case: Case, clones: bool) -> Vec<Target> {
    let target = |against, measure, bound| Target {
        setting: setting.to_owned(),
        ours: OURS,
        against,
        measure,
        bound,
    };
    match (case, clones) {
        (Case::Cached, true) => vec![target(Against::Seconds, Measure::Wall, CLONE_SECONDS)],
        (Case::Cached | Case::CachedSynced, false) => vec![
            target(Against::Best(METHODS), Measure::Rate, 0.95),
            target(Against::Best(&["cp"]), Measure::Rate, 1.2),
        ],
        _ => Vec::new(),
    }
}
