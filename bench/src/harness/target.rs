//! Targets: required results, and whether they were reached.

use super::contestant::Role;
use super::series::{Series, SettingResult};
use super::stats::{Spread, ratio_of_medians};

/// What Cordboard is compared with.
#[derive(Debug, Clone)]
pub enum Against {
    /// The best of these contestants, by the measure.
    Best(&'static [&'static str]),
    /// The best baseline.
    Baselines,
    /// The baseline with the highest rate, whatever is compared. It is chosen by every other round
    /// and compared in the rounds between them: the best of many medians of the same rounds is
    /// better than its contestant.
    FastestBaseline,
    /// Nothing: the bound is a number of seconds.
    Seconds,
    /// Nothing: the bound is a value of the figure.
    Absolute,
}

/// What is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// Bytes per second: more is better.
    Rate,
    /// Processor seconds: less is better.
    Processor,
    /// Wall seconds: less is better.
    Wall,
    /// The figure of this name: more is better.
    More(&'static str),
    /// The figure of this name: less is better.
    Less(&'static str),
}

/// A required result. It is reported, never asserted.
#[derive(Debug, Clone)]
pub struct Target {
    /// The name of the setting.
    pub setting: String,
    /// The Cordboard contestant.
    pub ours: &'static str,
    /// What it is compared with.
    pub against: Against,
    /// What is compared.
    pub measure: Measure,
    /// The minimum if more is better, else the maximum.
    pub bound: f64,
}

/// The result of checking a target.
#[derive(Debug)]
pub struct Check {
    /// The target as text.
    pub required: String,
    /// The result, in the same unit.
    pub reached: Option<f64>,
    /// Whether the target is reached.
    pub met: Option<bool>,
}

impl Target {
    /// Checks the target against the results.
    pub fn check(&self, results: &[SettingResult]) -> Check {
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
            Against::Best(_) | Against::Baselines | Against::FastestBaseline => {
                let other = setting.and_then(|s| self.best(s));
                let others = match (&self.against, other) {
                    (Against::Best([name]), _) => (*name).to_owned(),
                    (_, Some(other)) => format!("{} ({})", self.others(), other.name),
                    (_, None) => self.others(),
                };
                let ratio = ours
                    .zip(other)
                    .and_then(|(ours, other)| self.ratio(ours, other));
                (
                    format!("{} {sign} {} × {unit} of {others}", self.ours, self.bound),
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
        let compared = |values: Vec<f64>| match self.against {
            Against::FastestBaseline => of_rounds(values, 1),
            _ => values,
        };
        match self.measure {
            Measure::Rate => ratio_of_medians(&compared(other.walls()), &compared(ours.walls())),
            _ => ratio_of_medians(
                &compared(self.measured(ours)),
                &compared(self.measured(other)),
            ),
        }
    }

    /// The compared values; for a rate, the wall times.
    fn measured(&self, series: &Series) -> Vec<f64> {
        match self.measure {
            Measure::Rate | Measure::Wall => series.walls(),
            Measure::Processor => series.cpus(),
            Measure::More(name) | Measure::Less(name) => series.figure(name),
        }
    }

    /// What it is compared with, as text.
    fn others(&self) -> String {
        match &self.against {
            // A sweep has a contestant for each of its points.
            Against::Best(names) if names.len() > 8 => {
                format!("the best of {} contestants", names.len())
            }
            Against::Best(names) => format!("the best of {}", names.join(", ")),
            Against::FastestBaseline => "the fastest baseline".to_owned(),
            _ => "the best baseline".to_owned(),
        }
    }

    /// The best of those it is compared with, by the measure or by the rate.
    fn best<'r>(&self, setting: &'r SettingResult) -> Option<&'r Series> {
        // Slower baselines may have run in the first round only.
        let rounds = setting.series.iter().map(|s| s.samples.len()).max();
        let those = setting.series.iter();
        let those = those.filter(|s| match &self.against {
            Against::Best(names) => names.contains(&s.name.as_str()),
            _ => s.role == Role::Baseline && Some(s.samples.len()) == rounds,
        });
        let values = |s: &Series| match &self.against {
            Against::FastestBaseline => of_rounds(s.walls(), 0),
            _ => self.measured(s),
        };
        let known = those.filter_map(|s| Some((Spread::of(&values(s))?.median, s)));
        let best = match (&self.against, self.measure) {
            (Against::Best(_) | Against::Baselines, Measure::More(_)) => {
                known.max_by(|a, b| a.0.total_cmp(&b.0))
            }
            _ => known.min_by(|a, b| a.0.total_cmp(&b.0)),
        };
        best.map(|(_, series)| series)
    }
}

/// Returns the values of every other round, from `first`; all if there is one round.
fn of_rounds(values: Vec<f64>, first: usize) -> Vec<f64> {
    match values.len() {
        1 => values,
        _ => values.into_iter().skip(first).step_by(2).collect(),
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
            role: match name {
                "slow" | "cheap" => Role::Baseline,
                _ => Role::Peer,
            },
            samples: vec![(0, sample)],
            instructions: None,
        }
    }

    fn checked(measure: Measure, against: Against, bound: f64) -> Check {
        // Slower than all others, but with less processor time.
        let mut cheap = series("cheap", 16.0);
        cheap.samples[0].1.cpu.system = 0.5;
        let results = [SettingResult {
            name: "s".into(),
            bytes: 1,
            series: vec![
                series("ours", 1.0),
                series("slow", 8.0),
                series("fast", 2.0),
                cheap,
            ],
        }];
        let target = Target {
            setting: "s".into(),
            ours: "ours",
            against,
            measure,
            bound,
        };
        target.check(&results)
    }

    #[test]
    fn the_best_of_the_others_is_compared() {
        let v = checked(Measure::Rate, Against::Best(&["slow", "fast"]), 2.5);
        assert_eq!((v.reached, v.met), (Some(2.0), Some(false)));
        let v = checked(Measure::Rate, Against::Best(&["slow"]), 2.5);
        assert_eq!((v.reached, v.met), (Some(8.0), Some(true)));
        let v = checked(Measure::Processor, Against::Best(&["fast"]), 1.1);
        assert_eq!((v.reached, v.met), (Some(0.5), Some(true)));
    }

    #[test]
    fn a_figure_is_compared_by_its_name() {
        let against = || Against::Best(&["slow", "fast"]);
        let v = checked(Measure::More("share"), against(), 1.9);
        assert_eq!((v.reached, v.met), (Some(2.0), Some(true)));
        let v = checked(Measure::More("share"), Against::Baselines, 9.0);
        assert_eq!((v.reached, v.met), (Some(8.0), Some(false)));
        let v = checked(Measure::Less("share"), Against::Absolute, 0.9);
        assert_eq!((v.reached, v.met), (Some(1.0), Some(false)));
        let v = checked(Measure::More("unheard of"), against(), 0.0);
        assert_eq!((v.reached, v.met), (None, None));
    }

    #[test]
    fn the_processor_time_is_compared_with_that_of_the_fastest() {
        let v = checked(Measure::Processor, Against::FastestBaseline, 1.1);
        assert_eq!((v.reached, v.met), (Some(0.125), Some(true)));
        assert!(
            v.required.ends_with("the fastest baseline (slow)"),
            "{}",
            v.required
        );
        let v = checked(Measure::Processor, Against::Baselines, 1.1);
        assert_eq!((v.reached, v.met), (Some(2.0), Some(false)));
    }

    /// A contestant that is the fastest by luck in the rounds of the choice is compared without it.
    #[test]
    fn the_fastest_is_compared_in_other_rounds() {
        let of = |name: &str, walls: [f64; 4]| {
            let sample = |wall: f64| (0, series(name, wall).samples.remove(0).1);
            Series {
                samples: walls.map(sample).into(),
                ..series(name, 1.0)
            }
        };
        let results = [SettingResult {
            name: "s".into(),
            bytes: 1,
            series: vec![
                of("ours", [9.0, 2.0, 9.0, 2.0]),
                of("slow", [3.0, 1.0, 3.0, 1.0]),
                of("cheap", [2.0, 4.0, 2.0, 4.0]),
            ],
        }];
        let target = Target {
            setting: "s".into(),
            ours: "ours",
            against: Against::FastestBaseline,
            measure: Measure::Rate,
            bound: 0.93,
        };
        let check = target.check(&results);
        assert_eq!(check.reached, Some(2.0));
        assert!(check.required.ends_with("(cheap)"), "{}", check.required);
    }

    #[test]
    fn without_a_comparison_there_is_no_result() {
        let v = checked(Measure::Rate, Against::Best(&["absent"]), 1.0);
        assert_eq!((v.reached, v.met), (None, None));
        let v = checked(Measure::Wall, Against::Seconds, 0.02);
        assert_eq!((v.reached, v.met), (Some(1.0), Some(false)));
    }
}
