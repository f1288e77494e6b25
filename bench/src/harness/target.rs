//! What is required, and whether it was reached.

use super::series::{Series, SettingResult};
use super::stats::ratio_of_medians;

/// Against whom ours is held.
#[derive(Debug, Clone)]
pub enum Against {
    /// The fastest of these that took part.
    Best(&'static [&'static str]),
    /// Nobody: a number of seconds.
    Seconds,
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
    /// For a rate at least this ratio, for seconds at most.
    pub bound: f64,
}

/// How a requirement was met.
#[derive(Debug)]
pub struct Verdict {
    /// The requirement in words.
    pub required: String,
    /// What came out, in the same unit.
    pub reached: Option<f64>,
    /// Whether that is enough.
    pub met: Option<bool>,
}

impl Target {
    /// Judges it by the results.
    pub fn judge(&self, results: &[SettingResult]) -> Verdict {
        let setting = results.iter().find(|r| r.name == self.setting);
        let ours = setting.and_then(|s| s.of(self.ours));
        let (sign, unit) = match self.measure {
            Measure::Rate => ("≥", "rate"),
            Measure::Processor => ("≤", "processor time"),
            Measure::Wall => ("≤", "wall time"),
        };
        let (required, reached) = match &self.against {
            Against::Seconds => (
                format!("{} {sign} {} s {unit}", self.ours, self.bound),
                ours.and_then(Series::median),
            ),
            Against::Best(names) => {
                let other = setting.and_then(|s| s.best(|o| names.contains(&o.name.as_str())));
                let who = match (names.len(), other) {
                    (1, _) => names[0].to_owned(),
                    (_, Some(other)) => {
                        format!("the best of {} ({})", names.join(", "), other.name)
                    }
                    (_, None) => format!("the best of {}", names.join(", ")),
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
        Verdict {
            required,
            reached,
            met: reached.map(|r| match self.measure {
                Measure::Rate => r >= self.bound,
                Measure::Processor | Measure::Wall => r <= self.bound,
            }),
        }
    }

    fn ratio(&self, ours: &Series, other: &Series) -> Option<f64> {
        match self.measure {
            Measure::Rate => ratio_of_medians(&other.walls(), &ours.walls()),
            Measure::Wall => ratio_of_medians(&ours.walls(), &other.walls()),
            Measure::Processor => ratio_of_medians(&ours.cpus(), &other.cpus()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::contestant::Role;
    use crate::harness::cpu::Cpu;
    use crate::harness::series::Sample;

    fn series(name: &str, wall: f64) -> Series {
        let sample = Sample {
            wall,
            cpu: Cpu {
                user: 0.0,
                system: wall,
            },
            others: Cpu::default(),
            bytes: 1,
            digest: None,
        };
        Series {
            name: name.to_owned(),
            role: Role::Peer,
            samples: vec![(0, sample)],
            instructions: None,
        }
    }

    fn judged(measure: Measure, against: Against, bound: f64) -> Verdict {
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
    fn who_was_not_there_is_no_measure() {
        let v = judged(Measure::Rate, Against::Best(&["absent"]), 1.0);
        assert_eq!((v.reached, v.met), (None, None));
        let v = judged(Measure::Wall, Against::Seconds, 0.02);
        assert_eq!((v.reached, v.met), (Some(1.0), Some(false)));
    }
}
