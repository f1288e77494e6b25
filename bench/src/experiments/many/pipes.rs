//! Pipe pairs, all busy.

use anyhow::Result;

use super::contestants::{ENGINE, THREADS, THREADS_SPLICE, as_fast_as_by_hand, by_bench};
use crate::harness::contestant::Role;
use crate::harness::digest::Content;
use crate::harness::interleave::{Setting, Turn};
use crate::harness::launch::Job;
use crate::harness::series::Sample;
use crate::harness::{Bench, figures};

const ROUNDS: usize = 5;

/// `count` pairs through which always the same goes together.
pub fn run(bench: &mut Bench, count: usize) -> Result<()> {
    let each = bench.size(4 << 30, 32 << 20) / count as u64;
    let contestants = [
        (ENGINE, Role::Ours, "engine"),
        (THREADS, Role::Baseline, "threads"),
        (THREADS_SPLICE, Role::Baseline, "threads-splice"),
    ]
    .map(|(name, role, way)| {
        let args = format!("many-pipes {way} {count} {each}");
        by_bench(&bench.tools, name, role, &args)
    });
    let setting = Setting {
        name: format!("pipes ×{count}"),
        // Every byte is compared by the contestant itself.
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
    let mut words = turn.words(&[]);
    if turn.verifies() {
        words.push("verify".into());
    }
    let (finished, _) = Job::new(&words)?.keep_output().run()?;
    let sample = Sample {
        digest: Some(0),
        ..Sample::default()
    };
    figures::heard(sample, &finished.output)
}
