//! What is required, and whether it was reached.

use super::contestant::Role;
use super::series::{Series, SettingResult};
use super::stats::{Spread, ratio_of_medians};

/// Against whom ours is held.
#[derive(Debug, Clone)]
pub enum Against {
    /// The best of these that took part, by what is compared.
    Best(&'static [&'static str]),
    /// The best baseline.
    Baselines,
    /// Nobody: the bound is a number of seconds.
    Seconds,
    /// Nobody: the bound is the figure itself.
    Absolute,
}

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Bytes a second: the more the better.
    Rate,
    /// Processor seconds: the less the better.
    Processor,
    /// Wall seconds: the less the better.
    Wall,
    /// A figure of this name: the more the better.
    More(&'static str),
    /// A figure of this name: the less the better.
    Less(&'static str),
}

/// A requirement. It is printed, never asserted.
#[derive(Debug, Clone)]
pub struct Target {
    /// In which setting.
    pub setting: String,
    /// Which of ours.
    pub ours: &'static str,
    /// Against whom.
    pub against: Against,
    /// What is compared.
    pub measure: Measure,
    /// The more the better: at least this; the less the better: at most.
    pub bound: f64,
}

/// How a requirement was met.
#[derive(Debug)]
pub struct Check {
    /// The requirement in words.
    pub required: String,
    /// What came out, in the same unit.
    pub reached: Option<f64>,
    /// Whether that is enough.
    pub met: Option<bool>,
}

impl Target {
    /// Judges it by the results.
    pub fn judge(&self, results: &[SettingResult]) -> Check {
        let setting = results.iter().find(|r| r.name == self.setting);
        let ours = setting.and_then(|s| s.of(self.ours));
        let (sign, unit) = match self.measure {
            Measure::Rate => ("≥", "rate"),
            Measure::Processor => ("≤", "processor time"),
            Measure::Wall => ("≤", "wall time"),
            Measure::More(figure) => ("≥", figure),
            Measure::Less(figure) => ("≤", figure),
        };
        let (required, reached) = match &self.against {
            Against::Seconds => (
                format!("{} {sign} {} s {unit}", self.ours, self.bound),
                ours.and_then(Series::median),
            ),
            Against::Absolute => (
                format!("{} {sign} {} {unit}", self.ours, self.bound),
                ours.and_then(|s| Some(Spread::of(&self.measured(s))?.median)),
            ),
            Against::Best(_) | Against::Baselines => {
                let other = setting.and_then(|s| self.best(s));
                let who = match (&self.against, other) {
                    (Against::Best([name]), _) => (*name).to_owned(),
                    (_, Some(other)) => format!("{} ({})", self.rivals(), other.name),
                    (_, None) => self.rivals(),
                };
                let ratio = ours
                    .zip(other)
                    .and_then(|(ours, other)| self.ratio(ours, other));
                (
                    format!("{} {sign} {} × {unit} of {who}", self.ours, self.bound),
                    ratio,
                )
            }
        };
        Check {
            required,
            reached,
            met: reached.map(|r| match self.measure {
                Measure::Rate | Measure::More(_) => r >= self.bound,
                Measure::Processor | Measure::Wall | Measure::Less(_) => r <= self.bound,
            }),
        }
    }

    fn ratio(&self, ours: &Series, other: &Series) -> Option<f64> {
        match self.measure {
            Measure::Rate => ratio_of_medians(&other.walls(), &ours.walls()),
            _ => ratio_of_medians(&self.measured(ours), &self.measured(other)),
        }
    }

    /// What is compared, as measured; a rate by its wall time.
    fn measured(&self, series: &Series) -> Vec<f64> {
        match self.measure {
            Measure::Rate | Measure::Wall => series.walls(),
            Measure::Processor => series.cpus(),
            Measure::More(name) | Measure::Less(name) => series.figure(name),
        }
    }

    /// Against whom, in words.
    fn rivals(&self) -> String {
        match &self.against {
            Against::Best(names) => format!("the best of {}", names.join(", ")),
            _ => "the best baseline".to_owned(),
        }
    }

    /// The best of those it is held against, by what is compared.
    fn best<'r>(&self, setting: &'r SettingResult) -> Option<&'r Series> {
        let those = setting.series.iter();
        let those = those.filter(|s| match &self.against {
            Against::Best(names) => names.contains(&s.name.as_str()),
            _ => s.role == Role::Baseline,
        });
        let known = those.filter_map(|s| Some((Spread::of(&self.measured(s))?.median, s)));
        let best = match self.measure {
            Measure::More(_) => known.max_by(|a, b| a.0.total_cmp(&b.0)),
            _ => known.min_by(|a, b| a.0.total_cmp(&b.0)),
        };
        best.map(|(_, series)| series)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::cpu::Cpu;
    use crate::harness::series::Sample;

    fn series(name: &str, wall: f64) -> Series {
        let sample = Sample {
            wall,
            cpu: Cpu {
                user: 0.0,
                system: wall,
            },
            bytes: 1,
            figures: vec![("share".to_owned(), 1.0 / wall)],
            ..Sample::default()
        };
        Series {
            name: name.to_owned(),
            role: if name == "slow" {
                Role::Baseline
            } else {
                Role::Peer
            },
            samples: vec![(0, sample)],
            instructions: None,
        }
    }

    fn judged(measure: Measure, against: Against, bound: f64) -> Check {
        let results = [SettingResult {
            name: "s".into(),
            bytes: 1,
            series: vec![
                series("ours", 1.0),
                series("slow", 8.0),
                series("fast", 2.0),
            ],
        }];
        let target = Target {
            setting: "s".into(),
            ours: "ours",
            against,
            measure,
            bound,
        };
        target.judge(&results)
    }

    #[test]
    fn the_best_of_the_others_counts() {
        let v = judged(Measure::Rate, Against::Best(&["slow", "fast"]), 2.5);
        assert_eq!((v.reached, v.met), (Some(2.0), Some(false)));
        let v = judged(Measure::Rate, Against::Best(&["slow"]), 2.5);
        assert_eq!((v.reached, v.met), (Some(8.0), Some(true)));
        let v = judged(Measure::Processor, Against::Best(&["fast"]), 1.1);
        assert_eq!((v.reached, v.met), (Some(0.5), Some(true)));
    }

    #[test]
    fn a_figure_is_compared_by_its_name() {
        let against = || Against::Best(&["slow", "fast"]);
        let v = judged(Measure::More("share"), against(), 1.9);
        assert_eq!((v.reached, v.met), (Some(2.0), Some(true)));
        let v = judged(Measure::More("share"), Against::Baselines, 9.0);
        assert_eq!((v.reached, v.met), (Some(8.0), Some(false)));
        let v = judged(Measure::Less("share"), Against::Absolute, 0.9);
        assert_eq!((v.reached, v.met), (Some(1.0), Some(false)));
        let v = judged(Measure::More("unheard of"), against(), 0.0);
        assert_eq!((v.reached, v.met), (None, None));
    }

    #[test]
    fn who_was_not_there_is_no_measure() {
        let v = judged(Measure::Rate, Against::Best(&["absent"]), 1.0);
        assert_eq!((v.reached, v.met), (None, None));
        let v = judged(Measure::Wall, Against::Seconds, 0.02);
        assert_eq!((v.reached, v.met), (Some(1.0), Some(false)));
    }
}
