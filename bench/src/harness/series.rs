//! What was measured.

use super::contestant::{Contestant, Role};
use super::cpu::Cpu;
use super::stats::Spread;

/// One measurement.
#[derive(Debug, Clone, Default)]
pub struct Sample {
    /// Seconds from the start until the last byte was where it should be.
    pub wall: f64,
    /// The contestant's processor time, with that of an fsync made for it.
    pub cpu: Cpu,
    /// The processor time of those at the other end, if they are processes.
    pub others: Cpu,
    /// Bytes that arrived.
    pub bytes: u64,
    /// Their digest, in a verifying run.
    pub digest: Option<u64>,
    /// What else an experiment measures, each by the name of its column.
    pub figures: Vec<(String, f64)>,
}

impl Sample {
    /// With one more figure.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: f64) -> Sample {
        self.figures.push((name.into(), value));
        self
    }
}

/// All measurements of one contestant in one setting.
#[derive(Debug)]
pub struct Series {
    /// Who.
    pub name: String,
    /// What it is to the comparison.
    pub role: Role,
    /// A sample a round, with its place in the round.
    pub samples: Vec<(usize, Sample)>,
    /// Instructions of one run.
    pub instructions: Option<u64>,
}

impl Series {
    /// Nothing yet.
    pub fn empty(contestant: &Contestant) -> Series {
        Series {
            name: contestant.name.clone(),
            role: contestant.role,
            samples: Vec::new(),
            instructions: None,
        }
    }

    /// Wall seconds.
    pub fn walls(&self) -> Vec<f64> {
        self.samples.iter().map(|(_, s)| s.wall).collect()
    }

    /// Its own processor seconds.
    pub fn cpus(&self) -> Vec<f64> {
        self.samples.iter().map(|(_, s)| s.cpu.total()).collect()
    }

    /// Processor seconds at the other end.
    pub fn others(&self) -> Vec<f64> {
        self.samples.iter().map(|(_, s)| s.others.total()).collect()
    }

    /// The values of a figure of this name.
    pub fn figure(&self, name: &str) -> Vec<f64> {
        let all = self.samples.iter().flat_map(|(_, s)| &s.figures);
        all.filter(|(n, _)| n == name).map(|(_, v)| *v).collect()
    }

    /// The median of the wall seconds.
    pub fn median(&self) -> Option<f64> {
        Spread::of(&self.walls()).map(|s| s.median)
    }
}

/// All measurements of one setting.
#[derive(Debug)]
pub struct SettingResult {
    /// Its name.
    pub name: String,
    /// Bytes a run moves.
    pub bytes: u64,
    /// Those who finished.
    pub series: Vec<Series>,
}

impl SettingResult {
    /// The measurements of this contestant.
    pub fn of(&self, name: &str) -> Option<&Series> {
        self.series.iter().find(|s| s.name == name)
    }

    /// The names of the figures that anybody has, in the order of the samples.
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

    /// The fastest of those that satisfy `who`.
    pub fn best(&self, who: impl Fn(&Series) -> bool) -> Option<&Series> {
        let mut those: Vec<&Series> = self.series.iter().filter(|s| who(s)).collect();
        those.retain(|s| s.median().is_some());
        let median = |s: &Series| s.median().unwrap_or(f64::INFINITY);
        those
            .into_iter()
            .min_by(|a, b| median(a).total_cmp(&median(b)))
    }
}

/// A contestant that did not finish.
#[derive(Debug)]
pub struct Failed {
    /// Where.
    pub setting: String,
    /// Who.
    pub name: String,
    /// What it is to the comparison.
    pub role: Role,
    /// Whether it delivered wrong bytes and called that success.
    pub corrupt: bool,
    /// What it said.
    pub why: String,
}

impl Failed {
    /// Whether this makes the run a failure.
    pub fn counts(&self) -> bool {
        self.corrupt || self.role == Role::Ours
    }
}
