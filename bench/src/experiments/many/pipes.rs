//! Busy pipe pairs.

use anyhow::Result;

use super::contestants::{ENGINE, THREADS, THREADS_SPLICE, as_fast_as_by_hand, by_bench};
use crate::harness::contestant::Role;
use crate::harness::digest::Content;
use crate::harness::interleave::{Setting, Turn};
use crate::harness::launch::Job;
use crate::harness::series::Sample;
use crate::harness::{Bench, figures};

const ROUNDS: usize = 5;

/// Measures `count` pairs, through which the same total size moves for every
/// `count`.
pub fn run(bench: &mut Bench, count: usize) -> Result<()> {
    let each = bench.size(4 << 30, 32 << 20) / count as u64;
    let contestants = [
        (ENGINE, Role::Ours, "engine"),
        (THREADS, Role::Baseline, "threads"),
        (THREADS_SPLICE, Role::Baseline, "threads-splice"),
    ]
    .map(|(name, role, mover)| {
        let args = format!("many-pipes {mover} {count} {each}");
        by_bench(&bench.tools, name, role, &args)
    });
    let setting = Setting {
        name: format!("pipes ×{count}"),
        // The contestant itself checks every byte.
        expected: Content {
            bytes: each * count as u64,
            digest: 0,
        },
        rounds: ROUNDS,
    };
    bench.measure(&setting, &contestants, once)?;
    bench.targets.push(as_fast_as_by_hand(&setting.name));
    Ok(())
}

fn once(turn: &Turn<'_>) -> Result<Sample> {
    let mut words = turn.command_line(&[]);
    if turn.verifies() {
        words.push("verify".into());
    }
    let (finished, _) = Job::new(&words)?.keep_output().run()?;
    let sample = Sample {
        digest: Some(0),
        ..Sample::default()
    };
    figures::add_output(sample, &finished.output)
}
