//! Processor affinity, and how busy the cores are.
//!
//! The processor time of a process does not include kernel threads that work
//! for it: writeback, loop devices, io_uring workers. The time of the cores
//! includes them, together with all other activity of the machine.

use std::fs;

use anyhow::{Context, Result, ensure};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The columns of a `cpu` line of `/proc/stat` that count as busy: `user`,
/// `nice`, `system`, `irq`, `softirq`. Not `idle`, `iowait` and `steal`; `user`
/// includes `guest`. See `proc_stat(5)`.
const BUSY: [usize; 5] = [0, 1, 2, 5, 6];

/// The busy seconds of each core since boot, by its number.
#[derive(Debug, Clone, PartialEq)]
pub struct Busy(Vec<(usize, f64)>);

impl Busy {
    /// The current values.
    pub fn now() -> Result<Busy> {
        let text = fs::read_to_string("/proc/stat").context("/proc/stat")?;
        Ok(parse(&text, rustix::param::clock_ticks_per_second() as f64))
    }

    /// The busy seconds since `before` of this core, and of all others
    /// together.
    pub fn since(&self, before: &Busy, core: usize) -> (f64, f64) {
        let mut here = 0.0;
        let mut elsewhere = 0.0;
        for (number, seconds) in &self.0 {
            // A core without an earlier value has come online since.
            let earlier = before.0.iter().find(|(n, _)| n == number);
            let spent = seconds - earlier.map_or(0.0, |(_, s)| *s);
            if *number == core {
                here += spent;
            } else {
                elsewhere += spent;
            }
        }
        (here, elsewhere)
    }
}

fn parse(text: &str, ticks: f64) -> Busy {
    let line = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split_whitespace();
        let number = words.next()?.parse().ok()?;
        let columns: Vec<f64> = words.filter_map(|w| w.parse().ok()).collect();
        let busy: f64 = BUSY.iter().filter_map(|i| columns.get(*i)).sum();
        Some((number, busy / ticks))
    };
    // The first line, without a number, is the sum.
    let numbered = text.lines().filter(|l| !l.starts_with("cpu "));
    Busy(numbered.filter_map(line).collect())
}

/// The cores that this process may use.
pub fn allowed() -> Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|n| set.is_set(*n)).collect())
}

/// Runs `work` with this thread on one core. Processes and threads that it
/// starts inherit the affinity.
pub fn on_core<T>(core: usize, work: impl FnOnce() -> T) -> Result<T> {
    let before = sched_getaffinity(None)?;
    let mut one = CpuSet::new();
    ensure!(core < CpuSet::MAX_CPU, "no core {core}");
    one.set(core);
    sched_setaffinity(None, &one).with_context(|| format!("core {core}"))?;
    let value = work();
    sched_setaffinity(None, &before)?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "cpu  10 0 10 90 9 0 0 5 0 0\n\
                          cpu0 10 0 10 90 9 0 0 5 0 0\n\
                          intr 12 3\n";
    const AFTER: &str = "cpu  160 2 70 290 99 3 4 9 7 0\n\
                         cpu0 110 2 60 190 90 3 4 9 7 0\n\
                         cpu1 50 0 10 100 9 0 0 0 0 0\n";

    #[test]
    fn waiting_and_stolen_time_is_not_busy() {
        let (before, after) = (parse(BEFORE, 100.0), parse(AFTER, 100.0));
        let (here, elsewhere) = after.since(&before, 0);
        assert!((here - 1.59).abs() < 1e-9, "{here}");
        assert!((elsewhere - 0.60).abs() < 1e-9, "{elsewhere}");
        let (here, elsewhere) = after.since(&before, 1);
        assert!((here - 0.60).abs() < 1e-9, "{here}");
        assert!((elsewhere - 1.59).abs() < 1e-9, "{elsewhere}");
    }

    #[test]
    fn the_affinity_is_set_and_restored() {
        let before = allowed().unwrap();
        let last = *before.last().unwrap();
        assert_eq!(on_core(last, || allowed().unwrap()).unwrap(), [last]);
        assert_eq!(allowed().unwrap(), before);
    }
}
