//! Many transfers at once, in one process: on the library's engine, or with a
//! thread for each.

pub mod far;
pub mod files;
pub mod idle;
pub mod pipes;
mod ways;

use anyhow::Result;

use crate::harness::figures::say;
use crate::harness::stats::{jain, most_to_least};
use crate::harness::usage;

pub use far::MESSAGE;
pub use idle::{DESCRIPTORS, SPARE};

/// Memory before anything was started.
struct Memory {
    resident: f64,
    pipes: f64,
}

impl Memory {
    fn now() -> Result<Memory> {
        usage::forget_peak()?;
        Ok(Memory {
            resident: usage::resident()?,
            pipes: usage::pipe_capacity()?,
        })
    }

    /// Says what each of `n` took at the peak since then.
    fn say_resident(&self, n: usize) -> Result<()> {
        let more = usage::resident_peak()? - self.resident;
        say("RSS KiB each", more / n as f64 / 1024.0);
        Ok(())
    }

    /// Says how much more each of `n` has in pipes now: private ones, and by
    /// how much the given ones were enlarged.
    fn say_pipes(&self, n: usize) -> Result<()> {
        let more = usage::pipe_capacity()? - self.pipes;
        say("pipe KiB each", more / n as f64 / 1024.0);
        Ok(())
    }
}

/// Says how evenly they went on: how far each was when the first one ended,
/// and how long after that the last one did, of the whole time.
fn say_fairness(progress: &[f64], ends: &[f64]) {
    let last = ends.iter().copied().fold(0.0, f64::max);
    let first = ends.iter().copied().fold(f64::INFINITY, f64::min);
    say("Jain", jain(progress).unwrap_or(0.0));
    // Somebody who has nothing at all by then has an infinite share to wait for.
    say("max÷min", most_to_least(progress).unwrap_or(f64::INFINITY));
    say("end spread %", (last - first) / last * 100.0);
}
