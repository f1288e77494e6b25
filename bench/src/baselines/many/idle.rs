//! Very many pipe pairs with next to nothing to do: what they take while
//! nothing moves, and how soon a few bytes are through.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rustix::pipe::{PipeFlags, pipe_with};

use super::Memory;
use super::ways::{One, Way};
use crate::harness::figures::say;
use crate::harness::stats::percentile;
use crate::harness::usage::{Usage, resident};

/// Bytes of a message.
pub const MESSAGE: usize = 16;
/// Descriptors of a pair: the outer ends, and the inner ones of whoever moves.
pub const DESCRIPTORS: u64 = 4;
/// For everything else.
pub const SPARE: u64 = 100;
/// For all to be asleep.
const SETTLING: Duration = Duration::from_millis(200);

/// Starts `n`, lets them be for `silence`, and sends `messages`.
pub fn run(way: &str, n: usize, messages: usize, silence: Duration) -> Result<()> {
    let way = Way::named(way)?;
    let mut outer = Vec::new();
    let mut inner = Vec::new();
    let mut running = Vec::with_capacity(n);
    for _ in 0..n {
        let (source, fill) = pipe_with(PipeFlags::CLOEXEC)?;
        let (drain, sink) = pipe_with(PipeFlags::CLOEXEC)?;
        outer.push((fill, drain));
        inner.push((source, sink));
    }
    let memory = Memory::now()?;
    let started = Instant::now();
    // Each one's descriptors are closed here as soon as it has its own.
    for (source, sink) in inner {
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
    let times = talk(&outer, messages)?;
    let used = of_others()? - before;
    say("bytes", (messages * MESSAGE) as f64);
    say("wall", times.iter().sum());
    say("cpu", used.cpu);
    say("wake-ups a message", used.switches / messages as f64);
    for (name, share) in [("p50 µs", 0.5), ("p99 µs", 0.99)] {
        say(name, percentile(&times, share).unwrap_or(0.0) * 1e6);
    }
    memory.say_pipes(n)?;
    end(outer, running, messages)
}

/// A message through one pair after the other, far apart; seconds each took.
fn talk(outer: &[(OwnedFd, OwnedFd)], messages: usize) -> Result<Vec<f64>> {
    let mut times = Vec::with_capacity(messages);
    for (n, pair) in (0..outer.len())
        .cycle()
        .step_by(stride(outer.len()))
        .take(messages)
        .enumerate()
    {
        let (fill, drain) = &outer[pair];
        let mut sent = [0; MESSAGE];
        sent[..8].copy_from_slice(&n.to_le_bytes());
        let mut came = [0; MESSAGE];
        let started = Instant::now();
        ensure!(rustix::io::write(fill, &sent)? == MESSAGE, "no room");
        ensure!(rustix::io::read(drain, &mut came)? == MESSAGE, "less came");
        times.push(started.elapsed().as_secs_f64());
        ensure!(came == sent, "something else came");
    }
    Ok(times)
}

/// Some number without a divisor in common with `n`, about three eighths of it.
fn stride(n: usize) -> usize {
    let common = |mut a: usize, mut b: usize| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    (n * 3 / 8..)
        .find(|s| *s > 0 && common(*s, n) == 1)
        .unwrap_or(1)
}

/// Closes all sources; every transfer has to end, and to have its count right.
fn end(outer: Vec<(OwnedFd, OwnedFd)>, running: Vec<One>, messages: usize) -> Result<()> {
    let drains: Vec<OwnedFd> = outer.into_iter().map(|(_, drain)| drain).collect();
    let mut written = 0;
    for one in running {
        written += one.wait()?;
    }
    let sent = (messages * MESSAGE) as u64;
    ensure!(written == sent, "{written} bytes reported of {sent}");
    for drain in drains {
        ensure!(rustix::io::read(&drain, &mut [0; 1])? == 0, "more came");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::stride;

    #[test]
    fn everybody_has_a_turn_before_anybody_has_another() {
        for n in [1, 2, 7, 64, 1000] {
            let mut seen: Vec<usize> = (0..n).cycle().step_by(stride(n)).take(n).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..n), "{n}");
        }
    }
}
