//! The state of one run of an experiment.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::series::{Failed, SettingResult};
use super::target::Target;
use super::tools::Tools;
use super::{cpu, env};

/// The options of a run.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Use small sizes and few rounds, to check that everything works.
    pub quick: bool,
    /// Record the run.
    pub record: bool,
    /// The number of rounds of each setting, instead of that of the experiment.
    pub rounds: Option<usize>,
    /// Only contestants whose name contains one of these.
    pub only: Vec<String>,
    /// Only settings whose name contains one of these.
    pub settings: Vec<String>,
    /// The directory for the files.
    pub directory: Option<PathBuf>,
}

/// One run of one experiment: its options, resources and results.
#[derive(Debug)]
pub struct Bench {
    /// The options.
    pub options: Options,
    /// The programs that were found.
    pub tools: Tools,
    /// The directory of this run, removed at its end.
    pub directory: tempfile::TempDir,
    /// Whether perf can count instructions, or why not.
    pub counting: Result<(), String>,
    /// The measurements.
    pub results: Vec<SettingResult>,
    /// The targets.
    pub targets: Vec<Target>,
    /// Further paragraphs of the summary.
    pub notes: Vec<String>,
    /// What was skipped, and why.
    pub skipped: Vec<String>,
    /// Contestants that failed.
    pub failures: Vec<Failed>,
}

impl Bench {
    /// A run without results.
    pub fn new(options: &Options, tools: &Tools) -> Result<Bench> {
        let parent = options.directory.clone().unwrap_or_else(on_disk);
        let directory = tempfile::Builder::new()
            .prefix("cordboard-bench-")
            .tempdir_in(&parent)
            .with_context(|| format!("cannot create a directory in {}", parent.display()))?;
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

    /// A path in the directory of the run.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The full size, or the size for a quick run.
    pub fn size(&self, full: u64, quick: u64) -> u64 {
        if self.options.quick { quick } else { full }
    }

    /// Records in the summary that something was skipped, and why.
    pub fn skip(&mut self, what: &str, why: impl std::fmt::Display) {
        let line = format!("{what}: {why}");
        eprintln!("  skipped: {line}");
        self.skipped.push(line);
    }

    /// Whether the command line selects this setting.
    pub fn wants(&self, setting: &str) -> bool {
        let wanted = &self.options.settings;
        wanted.is_empty() || wanted.iter().any(|w| setting.contains(w.as_str()))
    }

    /// A message without the paths of this machine.
    pub(super) fn without_paths(&self, message: &str) -> String {
        let directories = [Some(self.directory.path()), self.tools.bench.parent()];
        let paths = directories.into_iter().flatten().map(Path::to_string_lossy);
        paths.fold(message.to_owned(), |message, path| {
            message.replace(&*path, "…")
        })
    }

    /// Whether the run has failed: Cordboard failed, or any contestant
    /// delivered wrong bytes.
    pub fn failed(&self) -> bool {
        self.failures.iter().any(Failed::counts)
    }
}

/// The system's directory for temporary files, or `/var/tmp` if that is a
/// tmpfs.
fn on_disk() -> PathBuf {
    let usual = std::env::temp_dir();
    let kept = Path::new("/var/tmp");
    if env::filesystem(&usual) == "tmpfs" && kept.is_dir() {
        kept.to_owned()
    } else {
        usual
    }
}
