//! Very many pipe pairs with next to nothing to do: what they take while
//! nothing moves, and how soon a few bytes are through.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::pipe::{PipeFlags, pipe_with};

use super::far::{Far, IN_HAND, MESSAGE};
use super::figures::Memory;
use super::movers::{Mover, Transfer};
use crate::harness::figures::print;
use crate::harness::stats::percentile;
use crate::harness::usage::{Usage, resident};

/// Descriptors of a pair: the near ends. The far ones are another process's.
pub const DESCRIPTORS: u64 = 2;
/// For everything else.
pub const SPARE: u64 = 100 + IN_HAND;
/// For all to be asleep.
const SETTLING: Duration = Duration::from_millis(200);

/// Starts `n`, lets them be for `silence`, and sends `messages`.
pub fn run(mover: &str, n: usize, messages: usize, silence: Duration) -> Result<()> {
    let mover = Mover::named(mover)?;
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
        running.push(Transfer::start(mover, source, sink, false, None)?);
    }
    let starting = started.elapsed().as_secs_f64();
    print("start µs each", starting * 1e6 / n as f64);

    std::thread::sleep(SETTLING);
    let of_others = || -> Result<Usage> { Ok(Usage::of_process()? - Usage::of_thread()?) };
    let before = of_others()?;
    std::thread::sleep(silence);
    print("idle wake-ups", (of_others()? - before).switches);
    print(
        "idle RSS B each",
        (resident()? - memory.resident) / n as f64,
    );

    let before = of_others()?;
    let times = far.talk(messages)?;
    let used = of_others()? - before;
    print("bytes", (messages * MESSAGE) as f64);
    print("wall", times.iter().sum());
    print("cpu", used.cpu);
    print("wake-ups a message", used.switches / messages as f64);
    for (name, share) in [("p50 µs", 0.5), ("p99 µs", 0.99)] {
        print(name, percentile(&times, share).unwrap_or(0.0) * 1e6);
    }
    memory.print_pipes(n)?;
    end(far, running, messages)
}

/// Every transfer has to end, and to have its count right.
fn end(far: Far, running: Vec<Transfer>, messages: usize) -> Result<()> {
    far.end()?;
    let mut written = 0;
    for one in running {
        written += one.wait()?;
    }
    let sent = (messages * MESSAGE) as u64;
    ensure!(written == sent, "{written} bytes reported of {sent}");
    Ok(())
}
