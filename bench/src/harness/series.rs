//! Measurements.

use super::contestant::{Contestant, Role};
use super::cpu::Cpu;
use super::stats::Spread;

/// One measurement.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    /// Seconds from the start until the last byte was delivered.
    pub wall: f64,
    /// The processor time of the contestant, with that of an fsync made for it.
    pub cpu: Cpu,
    /// The processor time of the processes at the other ends.
    pub others: Cpu,
    /// The number of bytes that arrived.
    pub bytes: u64,
    /// Their digest, in a verifying run.
    pub digest: Option<u64>,
    /// Further figures of the experiment, by the names of their columns.
    pub figures: Vec<(String, f64)>,
}

impl Sample {
    /// Adds a figure.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: f64) -> Sample {
        self.figures.push((name.into(), value));
        self
    }
}

/// All measurements of one contestant in one setting.
#[derive(Debug)]
pub struct Series {
    /// The name of the contestant.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// One sample per round, with its position in the round.
    pub samples: Vec<(usize, Sample)>,
    /// The instruction count of one run.
    pub instructions: Option<u64>,
}

impl Series {
    /// A series without samples.
    pub fn empty(contestant: &Contestant) -> Series {
        Series {
            name: contestant.name.clone(),
            role: contestant.role,
            samples: Vec::new(),
            instructions: None,
        }
    }

    /// The wall times, in seconds.
    pub fn walls(&self) -> Vec<f64> {
        self.samples.iter().map(|(_, s)| s.wall).collect()
    }

    /// The processor times, in seconds.
    pub fn cpus(&self) -> Vec<f64> {
        self.samples.iter().map(|(_, s)| s.cpu.total()).collect()
    }

    /// The processor times at the other ends, in seconds.
    pub fn others(&self) -> Vec<f64> {
        self.samples.iter().map(|(_, s)| s.others.total()).collect()
    }

    /// The values of the figure with this name.
    pub fn figure(&self, name: &str) -> Vec<f64> {
        let all = self.samples.iter().flat_map(|(_, s)| &s.figures);
        all.filter(|(n, _)| n == name).map(|(_, v)| *v).collect()
    }

    /// The median of the wall times, in seconds.
    pub fn median(&self) -> Option<f64> {
        Spread::of(&self.walls()).map(|s| s.median)
    }
}

/// All measurements of one setting.
#[derive(Debug)]
pub struct SettingResult {
    /// Its name.
    pub name: String,
    /// The number of bytes that a run moves.
    pub bytes: u64,
    /// The contestants that succeeded.
    pub series: Vec<Series>,
}

impl SettingResult {
    /// The measurements of this contestant.
    pub fn of(&self, name: &str) -> Option<&Series> {
        self.series.iter().find(|s| s.name == name)
    }

    /// The names of all figures, in the order of the samples.
    pub fn figure_names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        let samples = self.series.iter().flat_map(|s| &s.samples);
        for (name, _) in samples.flat_map(|(_, s)| &s.figures) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        names
    }

    /// The fastest contestant that satisfies `filter`.
    pub fn best(&self, filter: impl Fn(&Series) -> bool) -> Option<&Series> {
        let mut those: Vec<&Series> = self.series.iter().filter(|s| filter(s)).collect();
        those.retain(|s| s.median().is_some());
        let median = |s: &Series| s.median().unwrap_or(f64::INFINITY);
        those
            .into_iter()
            .min_by(|a, b| median(a).total_cmp(&median(b)))
    }
}

/// A contestant that failed.
#[derive(Debug)]
pub struct Failed {
    /// The setting.
    pub setting: String,
    /// The name of the contestant.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// Whether it delivered wrong bytes without an error.
    pub corrupt: bool,
    /// The error message.
    pub why: String,
}

impl Failed {
    /// Whether the run has failed because of it.
    pub fn counts(&self) -> bool {
        self.corrupt || self.role == Role::Ours
    }
}
