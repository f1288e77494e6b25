//! Memory and fairness of many transfers.

use anyhow::Result;

use crate::harness::figures::print;
use crate::harness::stats::{jain, most_to_least};
use crate::harness::usage;

/// Memory before anything was started.
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

    /// Says what each of `n` took at the peak since then.
    pub fn print_resident(&self, n: usize) -> Result<()> {
        let more = usage::resident_peak()? - self.resident;
        print("RSS KiB each", more / n as f64 / 1024.0);
        Ok(())
    }

    /// Says how much more each of `n` has in pipes now: private ones, and by
    /// how much the given ones were enlarged.
    pub fn print_pipes(&self, n: usize) -> Result<()> {
        let more = usage::pipe_capacity()? - self.pipes;
        print("pipe KiB each", more / n as f64 / 1024.0);
        Ok(())
    }
}

/// Says how evenly they went on: how far each was when the first one ended,
/// and how long after that the last one did, of the whole time.
pub fn print_fairness(progress: &[f64], ends: &[f64]) {
    let last = ends.iter().copied().fold(0.0, f64::max);
    let first = ends.iter().copied().fold(f64::INFINITY, f64::min);
    print("Jain", jain(progress).unwrap_or(0.0));
    // Somebody who has nothing at all by then has an infinite share to wait for.
    print("max÷min", most_to_least(progress).unwrap_or(f64::INFINITY));
    print("end spread %", (last - first) / last * 100.0);
}
