//! Memory and fairness of many transfers.

use anyhow::Result;

use crate::harness::figures::print;
use crate::harness::stats::{jain, most_to_least};
use crate::harness::usage;

/// The memory before any transfer was started.
pub struct Memory {
    pub resident: f64,
    pipes: f64,
}

impl Memory {
    pub fn now() -> Result<Memory> {
        usage::forget_peak()?;
        Ok(Memory {
            resident: usage::resident()?,
            pipes: usage::pipe_capacity()?,
        })
    }

    /// Prints the peak of the memory since then, per transfer of `n`.
    pub fn print_resident(&self, n: usize) -> Result<()> {
        let more = usage::resident_peak()? - self.resident;
        print("RSS KiB each", more / n as f64 / 1024.0);
        Ok(())
    }

    /// Prints how much the capacity of all pipes has grown, per transfer of
    /// `n`: private pipes, and the enlargement of the given ones.
    pub fn print_pipes(&self, n: usize) -> Result<()> {
        let more = usage::pipe_capacity()? - self.pipes;
        print("pipe KiB each", more / n as f64 / 1024.0);
        Ok(())
    }
}

/// Prints how evenly the transfers progressed: the progress of each at the
/// first end, and the time from the first end to the last, relative to the
/// whole time.
pub fn print_fairness(progress: &[f64], ends: &[f64]) {
    let last = ends.iter().copied().fold(0.0, f64::max);
    let first = ends.iter().copied().fold(f64::INFINITY, f64::min);
    print("Jain", jain(progress).unwrap_or(0.0));
    // A transfer without any progress makes the ratio infinite.
    print("max÷min", most_to_least(progress).unwrap_or(f64::INFINITY));
    print("end spread %", (last - first) / last * 100.0);
}
