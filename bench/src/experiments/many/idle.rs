//! Idle pipe pairs, with a few bytes from time to time.

use anyhow::Result;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::contestants::{ENGINE, THREADS, by_bench};
use crate::baselines::many::{DESCRIPTORS, MESSAGE, SPARE};
use crate::harness::contestant::Role;
use crate::harness::digest::Content;
use crate::harness::interleave::Setting;
use crate::harness::target::{Against, Measure, Target};
use crate::harness::{Bench, figures};

const PAIRS: u64 = 10_000;
const PAIRS_QUICK: u64 = 100;
const ROUNDS: usize = 3;
/// The maximum memory of an idle transfer besides its pipes, in bytes.
const RESIDENT: f64 = 2048.0;

/// Measures as many pairs as the descriptor limit allows.
pub fn run(bench: &mut Bench) -> Result<()> {
    let wanted = bench.size(PAIRS, PAIRS_QUICK);
    let pairs = allowed_pairs(wanted);
    if pairs < wanted {
        bench.skip(
            &format!("{wanted} idle pairs"),
            format!("the descriptor limit allows {pairs}"),
        );
    }
    let (messages, silence) = if bench.options.quick {
        (200, 100)
    } else {
        (20_000, 3000)
    };
    let contestants = [
        (ENGINE, Role::Ours, "engine"),
        (THREADS, Role::Baseline, "threads"),
    ]
    .map(|(name, role, mover)| {
        let args = format!("many-idle {mover} {pairs} {messages} {silence}");
        by_bench(&bench.tools, name, role, &args)
    });
    let setting = Setting {
        name: format!("idle pipes ×{pairs}"),
        // The contestant itself checks every message.
        expected: Content {
            bytes: (messages * MESSAGE) as u64,
            digest: 0,
        },
        rounds: ROUNDS,
    };
    bench.measure(&setting, &contestants, figures::alone)?;
    for (figure, bound) in [("idle RSS B each", RESIDENT), ("idle wake-ups", 0.0)] {
        bench.targets.push(Target {
            setting: setting.name.clone(),
            ours: ENGINE,
            against: Against::Absolute,
            measure: Measure::Less(figure),
            bound,
        });
    }
    bench.notes.push(format!(
        "Idle pipes: {silence} ms without any message, then {messages} messages of {MESSAGE} \
         bytes, one after the other through different pairs. The time of a message is from its \
         write to the end of the read at the other end."
    ));
    Ok(())
}

/// Raises the descriptor limit as far as necessary and permitted, for this
/// process and the contestants; the number of pairs that it allows.
fn allowed_pairs(pairs: u64) -> u64 {
    let wanted = pairs * DESCRIPTORS + SPARE;
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.map_or(wanted, |hard| hard.max(wanted));
    // Above the old hard limit, which needs CAP_SYS_RESOURCE.
    for maximum in [Some(hard), limit.maximum] {
        let current = maximum.map_or(wanted, |most| most.min(wanted));
        let current = limit.current.map(|now| now.max(current));
        if setrlimit(Resource::Nofile, Rlimit { current, maximum }).is_ok() {
            break;
        }
    }
    let allowed = getrlimit(Resource::Nofile).current;
    allowed.map_or(pairs, |allowed| {
        pairs.min(allowed.saturating_sub(SPARE) / DESCRIPTORS)
    })
}
