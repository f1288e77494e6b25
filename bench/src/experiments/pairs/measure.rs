//! Measures a pair by the library and by the plain loop, in turns.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::time::{ClockId, clock_gettime};
use testkit::{Expect, Sink, SinkKind, Source, SourceKind, Spec, matrix, model};

use super::verify;
use crate::harness::cpu::Cpu;
use crate::harness::series::Sample;
use crate::harness::stats::Spread;

/// The time that a measurement should take, in seconds: long compared with
/// starting and stopping, short enough for all pairs.
const SECONDS: f64 = 0.05;
/// The minimum and the maximum size of one transfer, in bytes.
const LEAST: u64 = 64 << 10;
const MOST: u64 = 128 << 20;
/// The maximum number of repetitions, if a kind cannot hold that much.
const REPEATS: f64 = 40.0;
/// The maximum time of the repetitions in seconds, including the creation of
/// both ends.
const PATIENCE: f64 = 0.2;

/// The time after which the threads that feed and drain a pair sleep. A
/// transfer that begins while they still start would have an advantage.
const SETTLING: Duration = Duration::from_micros(100);

/// The samples of one cell, each with its position in its round.
pub struct Measured {
    /// The median over the rounds of the time of the plain loop divided by that
    /// of the library.
    pub ratio: Option<f64>,
    pub library: Vec<(usize, Sample)>,
    pub plain: Vec<(usize, Sample)>,
}

/// The plain loop fails, perhaps because of the sizes in which the data
/// arrives.
#[derive(Debug)]
struct PlainFails(model::Side, i32);

impl std::fmt::Display for PlainFails {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self(side, errno) = self;
        write!(f, "the plain loop fails: {side:?}, errno {errno}")
    }
}

impl std::error::Error for PlainFails {}

#[derive(Debug, Clone, Copy)]
enum Mover {
    Library,
    Plain,
}

/// A pair, with the size and repetitions for the intended time.
struct Setup {
    source: SourceKind,
    sink: SinkKind,
    spec: Spec,
    repeats: u32,
    /// A source that can be read again.
    kept: Option<Source>,
}

/// Measures `rounds` rounds of each setup, after one that does not count. `None` if the plain
/// loop fails.
pub fn measure(
    source: SourceKind,
    sink: SinkKind,
    rounds: usize,
    quick: bool,
) -> Result<Option<Measured>> {
    match rounds_of(source, sink, rounds, quick) {
        Ok(measured) => Ok(Some(measured)),
        Err(error) if error.is::<PlainFails>() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The number of setups. Each has new files and sockets: the placement of pages and of the
/// reader's thread is the same for all rounds of a setup, and can differ by more than the two
/// movers do. Every pair has the same number: if only low ratios were measured again, their
/// medians would be too high.
const SETUPS: usize = 3;

fn rounds_of(source: SourceKind, sink: SinkKind, rounds: usize, quick: bool) -> Result<Measured> {
    let mut measured = Measured {
        ratio: None,
        library: Vec::new(),
        plain: Vec::new(),
    };
    let mut ratios = Vec::new();
    for _ in 0..if quick { 1 } else { SETUPS } {
        measure_setup(source, sink, rounds, quick, &mut measured, &mut ratios)?;
    }
    measured.ratio = Spread::of(&ratios).map(|spread| spread.median);
    Ok(measured)
}

/// Measures `rounds` rounds of both on a new setup.
fn measure_setup(
    source: SourceKind,
    sink: SinkKind,
    rounds: usize,
    quick: bool,
    measured: &mut Measured,
    ratios: &mut Vec<f64>,
) -> Result<()> {
    let mut setup = Setup::find(source, sink, quick)?;
    // Neither mover is the first to use this setup.
    setup.once(Mover::Library)?;
    setup.once(Mover::Plain)?;
    for round in 0..rounds {
        let mut turn = [Mover::Library, Mover::Plain];
        if round % 2 == 1 {
            turn.reverse();
        }
        for (place, mover) in turn.into_iter().enumerate() {
            let sample = setup.sample(mover)?;
            match mover {
                Mover::Library => measured.library.push((place, sample)),
                Mover::Plain => measured.plain.push((place, sample)),
            }
        }
        let pair = measured.library.last().zip(measured.plain.last());
        ratios.extend(pair.map(|((_, library), (_, plain))| rate(library) / rate(plain)));
    }
    Ok(())
}

fn rate(sample: &Sample) -> f64 {
    sample.bytes as f64 / sample.wall
}

impl Setup {
    /// Finds the size by trying the plain loop.
    fn find(source: SourceKind, sink: SinkKind, quick: bool) -> Result<Setup> {
        let spec = |size| Spec::throughput(matrix::bounded(source, sink, size));
        let mut setup = Setup {
            source,
            sink,
            spec: spec(1 << 20),
            repeats: 1,
            kept: None,
        };
        if quick {
            return Ok(setup);
        }
        setup.once(Mover::Plain)?;
        let mut trial = setup.once(Mover::Plain)?;
        if trial.wall < SECONDS / 8.0 {
            setup = Setup {
                spec: spec(16 << 20),
                kept: None,
                ..setup
            };
            trial = setup.once(Mover::Plain)?;
        }
        let wanted = rate(&trial) * SECONDS;
        // A multiple of the block size, for direct I/O.
        let size = (wanted as u64).clamp(LEAST, MOST).next_multiple_of(1 << 16);
        let spec = spec(size);
        setup = Setup {
            spec,
            kept: None,
            ..setup
        };
        let start = Instant::now();
        let trial = setup.once(Mover::Plain)?;
        let most = (PATIENCE / start.elapsed().as_secs_f64()).clamp(1.0, REPEATS);
        setup.repeats = (SECONDS / trial.wall).clamp(1.0, most).round() as u32;
        Ok(setup)
    }

    /// The sum of all repetitions.
    fn sample(&mut self, mover: Mover) -> Result<Sample> {
        let mut sum = self.once(mover)?;
        for _ in 1..self.repeats {
            let next = self.once(mover)?;
            sum.wall += next.wall;
            sum.cpu = sum.cpu + next.cpu;
            sum.bytes += next.bytes;
        }
        Ok(sum)
    }

    fn take_source(&mut self) -> Result<Source> {
        match self.kept.take() {
            Some(source) => {
                rustix::fs::seek(&source.fd, rustix::fs::SeekFrom::Start(0))?;
                Ok(source)
            }
            None => Source::make(self.source, &self.spec).context("making the source"),
        }
    }

    /// One transfer. A pseudo-terminal that was closed under load has lost the
    /// last bytes; such a run is reported and repeated. (`verify` checks the
    /// bytes of every pair.)
    fn once(&mut self, mover: Mover) -> Result<Sample> {
        let terminal = self.sink == SinkKind::Tty || self.source == SourceKind::Tty;
        let mut tries = if terminal { 3 } else { 1 };
        loop {
            tries -= 1;
            match self.attempt(mover) {
                Err(error) if tries > 0 && !error.is::<PlainFails>() => {
                    eprintln!("  repeated: {} by {mover:?}: {error}", self.sink.name());
                }
                done => return done,
            }
        }
    }

    fn attempt(&mut self, mover: Mover) -> Result<Sample> {
        let source = self.take_source()?;
        let sink = Sink::make(self.sink, &self.spec).context("making the sink")?;
        std::thread::sleep(SETTLING);
        let cpu = thread_time();
        let start = Instant::now();
        let (written, failed, plain) = match mover {
            Mover::Library => {
                let report = verify::transfer(&source, &sink);
                (report.written, report.errno, None)
            }
            Mover::Plain => {
                let (from, to) = (source.as_fd(), sink.as_fd());
                let run = model::run(from, to, source.ask.size(), self.sink.piece());
                (run.written, None, run.failed)
            }
        };
        let wall = start.elapsed().as_secs_f64();
        let system = thread_time() - cpu;
        if let Some((side, errno)) = plain {
            return Err(PlainFails(side, errno).into());
        }
        ensure!(failed.is_none(), "failed: {failed:?}");
        ensure!(written == source.expect.len(), "only {written} bytes");
        let arrived = sink.finish(written)?;
        let lost = arrived.check(&Expect::Any(written), written);
        ensure!(lost.is_ok(), "{lost:?}");
        if self.source.is_seekable() {
            self.kept = Some(source);
        }
        Ok(Sample {
            wall,
            cpu: Cpu { user: 0.0, system },
            bytes: written,
            ..Sample::default()
        })
    }
}

/// The processor time of this thread in seconds, in user space and in the
/// kernel.
fn thread_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
