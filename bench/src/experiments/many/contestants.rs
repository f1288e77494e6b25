//! The contestants of these experiments, and their common requirement.

use crate::harness::contestant::{Contestant, Role};
use crate::harness::target::{Against, Measure, Target};
use crate::harness::tools::Tools;

/// The engine of the library.
pub const ENGINE: &str = "engine";
/// One thread per transfer, with `read(2)` and `write(2)`.
pub const THREADS: &str = "threads read/write";
/// One thread per transfer, with `splice(2)`.
pub const THREADS_SPLICE: &str = "threads splice";

/// The engine is as fast as the best hand-written baseline.
pub fn as_fast_as_by_hand(setting: &str) -> Target {
    Target {
        setting: setting.to_owned(),
        ours: ENGINE,
        against: Against::Baselines,
        measure: Measure::Rate,
        bound: 0.95,
    }
}

/// The engine or a baseline, in a process of the bench.
pub fn by_bench(tools: &Tools, name: &str, role: Role, args: &str) -> Contestant {
    let args = format!("baseline {args}");
    Contestant::new(name, role, &tools.bench, &args)
}
