//! Runs the contestants of a setting in turn, round by round, so that changes
//! on the machine affect all of them alike.

use std::ffi::OsString;

use anyhow::{Result, bail, ensure};

use super::bench::Bench;
use super::contestant::{Contestant, Role};
use super::cpu;
use super::digest::Content;
use super::series::{Failed, Sample, Series, SettingResult};
use super::sys;

/// The purpose of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// Checks that the right bytes arrive. Also warms the caches.
    Verify,
    /// Counts instructions.
    Count,
    /// Measures.
    Timed,
}

/// One run of a contestant.
#[derive(Debug, Clone)]
pub struct Turn<'a> {
    /// The contestant.
    pub contestant: &'a Contestant,
    /// The purpose of the run.
    pub pass: Pass,
    prefix: Vec<OsString>,
}

impl Turn<'_> {
    /// The whole command line.
    pub fn command_line(&self, fill: &[(&str, OsString)]) -> Vec<OsString> {
        let mut words = self.prefix.clone();
        words.extend(self.contestant.command_line(fill));
        words
    }

    /// Whether the experiment computes the digest of the bytes that arrived.
    pub fn verifies(&self) -> bool {
        self.pass == Pass::Verify
    }
}

/// A situation in which the contestants are compared.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The name in the tables, without a comma: it separates names on the
    /// command line.
    pub name: String,
    /// The bytes that have to arrive.
    pub expected: Content,
    /// The number of rounds, unless the command line sets it.
    pub rounds: usize,
}

impl Bench {
    /// Runs all of `contestants` in this setting: a verifying round, a counting
    /// round if perf can count, and the measured rounds. A contestant that
    /// fails is recorded as failed and not run again.
    ///
    /// # Errors
    ///
    /// Only an interrupt by a signal.
    pub fn measure(
        &mut self,
        setting: &Setting,
        contestants: &[Contestant],
        once: impl FnMut(&Turn<'_>) -> Result<Sample>,
    ) -> Result<()> {
        self.measure_fastest(usize::MAX, setting, contestants, once)
    }

    /// As [`measure`](Bench::measure), but only the `kept` fastest baselines of the first
    /// measured round run in the other rounds, and no baseline in the verifying one: for many
    /// baselines that are settings of one program.
    ///
    /// # Errors
    ///
    /// Only an interrupt by a signal.
    pub fn measure_fastest(
        &mut self,
        kept: usize,
        setting: &Setting,
        contestants: &[Contestant],
        mut once: impl FnMut(&Turn<'_>) -> Result<Sample>,
    ) -> Result<()> {
        if !self.wants(&setting.name) {
            return Ok(());
        }
        let only = &self.options.only;
        let wanted =
            |c: &&Contestant| only.is_empty() || only.iter().any(|o| c.name.contains(o.as_str()));
        let mut running: Vec<(&Contestant, Series)> = contestants
            .iter()
            .filter(wanted)
            .map(|c| (c, Series::empty(c)))
            .collect();
        let rounds = self.options.rounds.unwrap_or(if self.options.quick {
            1
        } else {
            setting.rounds
        });
        eprintln!(
            "{}: {} contestants, {rounds} rounds",
            setting.name,
            running.len()
        );

        let baselines = running
            .iter()
            .filter(|(c, _)| c.role == Role::Baseline)
            .count();

        let mut failed = Vec::new();
        let mut passes = vec![(Pass::Verify, 0)];
        if self.counting.is_ok() {
            passes.push((Pass::Count, 0));
        }
        passes.extend((0..rounds).map(|round| (Pass::Timed, round)));
        let counts = self.path("instructions");
        let mut resting: Vec<String> = Vec::new();
        for (pass, round) in passes {
            if pass == Pass::Timed && round == 1 {
                resting = slower(running.iter().map(|(_, series)| series), kept);
            }
            for (place, index) in order(running.len(), round).into_iter().enumerate() {
                let (contestant, series) = &mut running[index];
                let name = &contestant.name;
                let is_unverified =
                    pass == Pass::Verify && kept < baselines && contestant.role == Role::Baseline;
                if is_unverified
                    || resting.contains(name)
                    || failed.iter().any(|f: &Failed| f.name == *name)
                {
                    continue;
                }
                let prefix = match pass {
                    Pass::Count => cpu::counting_prefix(&counts),
                    _ => Vec::new(),
                };
                let turn = Turn {
                    contestant,
                    pass,
                    prefix,
                };
                let outcome = checked(&turn, setting, &mut once);
                if sys::interrupted() {
                    bail!("interrupted");
                }
                match outcome {
                    Ok(sample) if pass == Pass::Timed => series.samples.push((place, sample)),
                    Ok(_) if pass == Pass::Count => {
                        let text = std::fs::read_to_string(&counts).unwrap_or_default();
                        series.instructions = cpu::parse_count(&text);
                    }
                    Ok(_) => {}
                    Err(error) => failed.push(Failed {
                        setting: setting.name.clone(),
                        name: contestant.name.clone(),
                        role: contestant.role,
                        corrupt: error.is::<WrongBytes>(),
                        why: self.without_paths(&format!("{error:#}")),
                    }),
                }
            }
            if pass == Pass::Timed && (rounds < 20 || (round + 1).is_multiple_of(rounds / 10)) {
                eprintln!("  round {}/{rounds}", round + 1);
            }
        }
        for failure in &failed {
            eprintln!("  {} failed: {}", failure.name, failure.why);
        }
        running.retain(|(c, _)| !failed.iter().any(|f| f.name == c.name));
        self.failures.extend(failed);
        self.results.push(SettingResult {
            name: setting.name.clone(),
            bytes: setting.expected.bytes,
            series: running.into_iter().map(|(_, series)| series).collect(),
        });
        Ok(())
    }
}

/// Returns the names of all baselines but the `kept` fastest ones.
fn slower<'s>(all: impl Iterator<Item = &'s Series>, kept: usize) -> Vec<String> {
    let mut baselines: Vec<&Series> = all.filter(|s| s.role == Role::Baseline).collect();
    let median = |s: &Series| s.median().unwrap_or(f64::INFINITY);
    baselines.sort_by(|a, b| median(a).total_cmp(&median(b)));
    let slower = baselines.into_iter().skip(kept);
    slower.map(|series| series.name.clone()).collect()
}

/// The order of a round. Every round starts with the next contestant, and every
/// second round is reversed, so that a contestant has different predecessors.
fn order(n: usize, round: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).map(|i| (i + round) % n).collect();
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// Other bytes arrived than were sent.
#[derive(Debug)]
struct WrongBytes(String);

impl std::fmt::Display for WrongBytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongBytes {}

fn checked(
    turn: &Turn<'_>,
    setting: &Setting,
    once: &mut impl FnMut(&Turn<'_>) -> Result<Sample>,
) -> Result<Sample> {
    let sample = once(turn)?;
    let expected = setting.expected;
    ensure!(
        sample.bytes == expected.bytes,
        WrongBytes(format!(
            "{} bytes arrived of {}",
            sample.bytes, expected.bytes
        ))
    );
    ensure!(
        !turn.verifies() || sample.digest == Some(expected.digest),
        WrongBytes("the digest of the bytes that arrived is wrong".to_owned())
    );
    Ok(sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slower_baselines_rest() {
        let series = |name: &str, role, wall| Series {
            samples: vec![(
                0,
                Sample {
                    wall,
                    ..Sample::default()
                },
            )],
            ..Series::empty(&Contestant::new(name, role, "c", ""))
        };
        let all = [
            series("a", Role::Baseline, 3.0),
            series("b", Role::Baseline, 1.0),
            series("ours", Role::Ours, 9.0),
            series("c", Role::Baseline, 2.0),
        ];
        assert_eq!(slower(all.iter(), 1), ["c", "a"]);
        assert_eq!(slower(all.iter(), 2), ["a"]);
        assert!(slower(all.iter(), usize::MAX).is_empty());
    }

    #[test]
    fn every_contestant_runs_in_every_round() {
        for round in 0..6 {
            let mut order = order(4, round);
            order.sort_unstable();
            assert_eq!(order, [0, 1, 2, 3]);
        }
        assert_eq!(order(3, 0), [0, 1, 2]);
        assert_eq!(order(3, 1), [0, 2, 1]);
        assert!(order(0, 5).is_empty());
    }

    #[test]
    fn wrong_bytes_are_detected() {
        let setting = Setting {
            name: "s".into(),
            expected: Content {
                bytes: 2,
                digest: 9,
            },
            rounds: 1,
        };
        let contestant = Contestant::new("c", Role::Peer, "c", "");
        let turn = Turn {
            contestant: &contestant,
            pass: Pass::Verify,
            prefix: Vec::new(),
        };
        let sample = |bytes, digest| Sample {
            wall: 1.0,
            bytes,
            digest: Some(digest),
            ..Sample::default()
        };
        let run = |s: Sample| checked(&turn, &setting, &mut |_| Ok(s.clone()));
        assert!(run(sample(2, 9)).is_ok());
        assert!(run(sample(1, 9)).unwrap_err().is::<WrongBytes>());
        assert!(run(sample(2, 8)).unwrap_err().is::<WrongBytes>());
    }
}
