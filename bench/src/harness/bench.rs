//! The state of one run of an experiment.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::series::{Failed, SettingResult};
use super::target::Target;
use super::tools::Tools;
use super::{cpu, env};

/// What the command line asks of a run.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Small sizes and few rounds, to see that everything works.
    pub quick: bool,
    /// The run is kept.
    pub record: bool,
    /// Rounds of each setting, instead of the experiment's own number.
    pub rounds: Option<usize>,
    /// Only contestants whose name contains one of these.
    pub only: Vec<String>,
    /// Only settings whose name contains one of these.
    pub settings: Vec<String>,
    /// Where the files are made.
    pub directory: Option<PathBuf>,
}

/// One run of one experiment: what it may use, and what it has found.
#[derive(Debug)]
pub struct Bench {
    /// What was asked for.
    pub options: Options,
    /// The programs found.
    pub tools: Tools,
    /// A directory of this run's own; gone afterwards.
    pub directory: tempfile::TempDir,
    /// Whether perf counts instructions, else why not.
    pub counting: Result<(), String>,
    /// The measurements.
    pub results: Vec<SettingResult>,
    /// What was hoped for.
    pub targets: Vec<Target>,
    /// Whatever else the summary should say.
    pub notes: Vec<String>,
    /// What was left out, and why.
    pub skipped: Vec<String>,
    /// Contestants that failed.
    pub failures: Vec<Failed>,
}

impl Bench {
    /// Nothing measured yet.
    pub fn new(options: &Options, tools: &Tools) -> Result<Bench> {
        let parent = options.directory.clone().unwrap_or_else(on_disk);
        let directory = tempfile::Builder::new()
            .prefix("cordboard-bench-")
            .tempdir_in(&parent)
            .with_context(|| format!("no room for files in {}", parent.display()))?;
        let counting = cpu::counts_instructions(directory.path());
        Ok(Bench {
            options: options.clone(),
            tools: tools.clone(),
            directory,
            counting,
            results: Vec::new(),
            targets: Vec::new(),
            notes: Vec::new(),
            skipped: Vec::new(),
            failures: Vec::new(),
        })
    }

    /// A path in the run's directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Full size, or the small one of a quick run.
    pub fn size(&self, full: u64, quick: u64) -> u64 {
        if self.options.quick { quick } else { full }
    }

    /// Says in the summary why something was left out.
    pub fn skip(&mut self, what: &str, why: impl std::fmt::Display) {
        let line = format!("{what}: {why}");
        eprintln!("  skipped: {line}");
        self.skipped.push(line);
    }

    /// Whether the command line leaves room for this setting.
    pub fn wants(&self, setting: &str) -> bool {
        let wanted = &self.options.settings;
        wanted.is_empty() || wanted.iter().any(|w| setting.contains(w.as_str()))
    }

    /// A message without this machine's paths.
    pub(super) fn without_paths(&self, message: &str) -> String {
        let directories = [Some(self.directory.path()), self.tools.bench.parent()];
        let paths = directories.into_iter().flatten().map(Path::to_string_lossy);
        paths.fold(message.to_owned(), |message, path| {
            message.replace(&*path, "…")
        })
    }

    /// Whether the run has to be called a failure: ours failed, or anybody
    /// delivered wrong bytes.
    pub fn failed(&self) -> bool {
        self.failures.iter().any(Failed::counts)
    }
}

/// The system's directory for temporary files, unless that is in memory.
fn on_disk() -> PathBuf {
    let usual = std::env::temp_dir();
    let kept = Path::new("/var/tmp");
    if env::filesystem(&usual) == "tmpfs" && kept.is_dir() {
        kept.to_owned()
    } else {
        usual
    }
}
