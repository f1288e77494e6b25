//! Thousands of idle pipe pairs: their resources while nothing moves, and the
//! latency of a few bytes.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::pipe::{PipeFlags, pipe_with};

use super::far::{BATCH_DESCRIPTORS, Far, MESSAGE};
use super::figures::Memory;
use super::movers::{Mover, Transfer};
use crate::harness::figures::print;
use crate::harness::stats::percentile;
use crate::harness::usage::{Usage, resident};

/// The number of descriptors of a pair in this process: the inner ends. The
/// outer ends are in another process.
pub const DESCRIPTORS: u64 = 2;
/// The number of other descriptors.
pub const SPARE: u64 = 100 + BATCH_DESCRIPTORS;
/// The time after which all threads sleep.
const SETTLING: Duration = Duration::from_millis(200);

/// Starts `n` transfers, sends nothing for `silence`, and then `messages`
/// messages.
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
    // Each transfer closes these descriptors once it has its own.
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

/// Checks that every transfer ends, and its count.
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
