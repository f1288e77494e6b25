//! Very many pipe pairs with next to nothing to do: what they take while
//! nothing moves, and how soon a few bytes are through.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::pipe::{PipeFlags, pipe_with};

use super::Memory;
use super::far::{Far, IN_HAND, MESSAGE};
use super::ways::{One, Way};
use crate::harness::figures::say;
use crate::harness::stats::percentile;
use crate::harness::usage::{Usage, resident};

/// Descriptors of a pair: the near ends. The far ones are another process's.
pub const DESCRIPTORS: u64 = 2;
/// For everything else.
pub const SPARE: u64 = 100 + IN_HAND;
/// For all to be asleep.
const SETTLING: Duration = Duration::from_millis(200);

/// Starts `n`, lets them be for `silence`, and sends `messages`.
pub fn run(way: &str, n: usize, messages: usize, silence: Duration) -> Result<()> {
    let way = Way::named(way)?;
    let mut far = Far::start()?;
    let mut near = Vec::new();
    let mut running = Vec::with_capacity(n);
    for _ in 0..n {
        let (source, fill) = pipe_with(PipeFlags::CLOEXEC)?;
        let (drain, sink) = pipe_with(PipeFlags::CLOEXEC)?;
        far.take(fill, drain)?;
        near.push((source, sink));
    }
    far.hand_over()?;
    let memory = Memory::now()?;
    let started = Instant::now();
    // Each one's descriptors are closed here as soon as it has its own.
    for (source, sink) in near {
        running.push(One::start(way, source, sink, false, None)?);
    }
    let starting = started.elapsed().as_secs_f64();
    say("start µs each", starting * 1e6 / n as f64);

    std::thread::sleep(SETTLING);
    let of_others = || -> Result<Usage> { Ok(Usage::of_process()? - Usage::of_thread()?) };
    let before = of_others()?;
    std::thread::sleep(silence);
    say("idle wake-ups", (of_others()? - before).switches);
    say(
        "idle RSS B each",
        (resident()? - memory.resident) / n as f64,
    );

    let before = of_others()?;
    let times = far.talk(messages)?;
    let used = of_others()? - before;
    say("bytes", (messages * MESSAGE) as f64);
    say("wall", times.iter().sum());
    say("cpu", used.cpu);
    say("wake-ups a message", used.switches / messages as f64);
    for (name, share) in [("p50 µs", 0.5), ("p99 µs", 0.99)] {
        say(name, percentile(&times, share).unwrap_or(0.0) * 1e6);
    }
    memory.say_pipes(n)?;
    end(far, running, messages)
}

/// Every transfer has to end, and to have its count right.
fn end(far: Far, running: Vec<One>, messages: usize) -> Result<()> {
    far.end()?;
    let mut written = 0;
    for one in running {
        written += one.wait()?;
    }
    let sent = (messages * MESSAGE) as u64;
    ensure!(written == sent, "{written} bytes reported of {sent}");
    Ok(())
}
