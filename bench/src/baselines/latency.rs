//! Repeated transfers of 4 KiB from one pipe to another in this process: the
//! cost of starting and ending a transfer.

use std::hint::black_box;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use rustix::pipe::{SpliceFlags, pipe};

use super::engine;
use crate::harness::figures::print;
use crate::harness::stats::percentile;
use crate::harness::usage::Usage;

/// The size of one transfer, in bytes.
pub const BLOCK: usize = 4096;
/// The first transfers, which are not counted: they warm the caches and start
/// the engine.
const WARM_UP: usize = 200;

/// The ends of two pipes.
struct Pipes {
    source: OwnedFd,
    sink: OwnedFd,
}

/// Moves the block that is in the source; the time in seconds.
type Method = Box<dyn FnMut(&Pipes) -> Result<f64>>;

/// Moves `count` blocks and prints the percentiles of their times.
pub fn run(method: &str, count: usize) -> Result<()> {
    let mut method = find(method)?;
    let (source, fill) = pipe()?;
    let (drain, sink) = pipe()?;
    let pipes = Pipes { source, sink };
    let (mut sent, mut came) = ([7; BLOCK], [0; BLOCK]);
    let mut times = Vec::with_capacity(count);
    let mut used = Usage::of_process()?;
    for n in 0..WARM_UP + count {
        if n == WARM_UP {
            used = Usage::of_process()?;
        }
        sent[..8].copy_from_slice(&n.to_le_bytes());
        ensure!(
            rustix::io::write(&fill, &sent)? == BLOCK,
            "short write to the source"
        );
        let seconds = method(&pipes)?;
        ensure!(
            rustix::io::read(&drain, &mut came)? == BLOCK,
            "short read from the sink"
        );
        ensure!(came == sent, "other bytes arrived");
        if n >= WARM_UP {
            times.push(seconds);
        }
    }
    let used = Usage::of_process()? - used;
    print("bytes", (count * BLOCK) as f64);
    print("wall", times.iter().sum());
    print("cpu", used.cpu);
    for (name, share) in [("p50 µs", 0.5), ("p99 µs", 0.99), ("p99.9 µs", 0.999)] {
        print(name, percentile(&times, share).unwrap_or(0.0) * 1e6);
    }
    print("wake-ups each", used.switches / count as f64);
    Ok(())
}

fn find(method: &str) -> Result<Method> {
    let none = SpliceFlags::empty();
    Ok(match method {
        "read-write" => {
            let mut buffer = vec![0; BLOCK];
            timed(move |pipes| {
                let n = rustix::io::read(&pipes.source, &mut buffer)?;
                Ok(rustix::io::write(&pipes.sink, &buffer[..n])?)
            })
        }
        "splice" => timed(move |pipes| {
            let (from, to) = (&pipes.source, &pipes.sink);
            Ok(rustix::pipe::splice(from, None, to, None, BLOCK, none)?)
        }),
        "splice-splice" => {
            let (take, put) = pipe()?;
            timed(move |pipes| {
                let n = rustix::pipe::splice(&pipes.source, None, &put, None, BLOCK, none)?;
                Ok(rustix::pipe::splice(
                    &take,
                    None,
                    &pipes.sink,
                    None,
                    n,
                    none,
                )?)
            })
        }
        "library" => timed(|pipes| {
            let size = cordboard::Size::Bytes(BLOCK as u64);
            let report = cordboard::splice(&pipes.source, &pipes.sink, size)?;
            Ok(usize::try_from(report.written)?)
        }),
        "engine-wait" => timed(|p| engine::wait(p.source.as_fd(), p.sink.as_fd(), BLOCK)),
        "engine-future" => timed(|p| engine::block_on(p.source.as_fd(), p.sink.as_fd(), BLOCK)),
        "engine-eventfd" => timed(|p| engine::poll(p.source.as_fd(), p.sink.as_fd(), BLOCK)),
        // The time of the call only; the wait is not measured.
        "engine-start" => Box::new(|pipes| {
            let from = Instant::now();
            let running = engine::start(pipes.source.as_fd(), pipes.sink.as_fd(), BLOCK)?;
            let seconds = from.elapsed().as_secs_f64();
            running.wait().into_result()?;
            Ok(seconds)
        }),
        _ => bail!("unknown method {method}"),
    })
}

fn timed(mut method: impl FnMut(&Pipes) -> Result<usize> + 'static) -> Method {
    Box::new(move |pipes| {
        let from = Instant::now();
        let moved = black_box(method(pipes)?);
        let seconds = from.elapsed().as_secs_f64();
        ensure!(moved == BLOCK, "{moved} bytes moved");
        Ok(seconds)
    })
}
