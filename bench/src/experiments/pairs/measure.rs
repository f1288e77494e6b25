//! How long a pair takes, by the library and by the plain loop, in turns.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::time::{ClockId, clock_gettime};
use testkit::{Expect, Sink, SinkKind, Source, SourceKind, Spec, matrix, model};

use super::verify;
use crate::harness::cpu::Cpu;
use crate::harness::series::Sample;
use crate::harness::stats::Spread;

/// What a measurement should take: long against starting and stopping, short
/// enough for all the pairs there are.
const SECONDS: f64 = 0.05;
/// The least and the most bytes of one transfer.
const LEAST: u64 = 64 << 10;
const MOST: u64 = 128 << 20;
/// Where a kind cannot hold that much, it is done again, so often at most,
const REPEATS: f64 = 40.0;
/// and not for longer than this, with all that making the kind takes.
const PATIENCE: f64 = 0.2;

/// For the threads that feed and drain a pair to be asleep: whoever begins while
/// they still start has a head start.
const SETTLING: Duration = Duration::from_micros(100);

/// The samples of one cell, each with its place in its round.
pub struct Measured {
    /// The median of the rounds' ratios of plain to library time.
    pub ratio: Option<f64>,
    pub library: Vec<(usize, Sample)>,
    pub plain: Vec<(usize, Sample)>,
}

/// The plain loop cannot do it, or not as the pieces happen to come in.
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
enum Who {
    Library,
    Plain,
}

/// A pair with as much in it as takes the time it should take.
struct Setup {
    source: SourceKind,
    sink: SinkKind,
    spec: Spec,
    repeats: u32,
    /// A source that can be read again.
    kept: Option<Source>,
}

/// Measures `rounds` times, after one time that does not count.
/// `None` where there is nothing to compare with.
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

/// A ratio below this is measured again, so often at most. All rounds count,
/// the first ones too: a second look makes the median surer, not better.
const DOUBTFUL: f64 = 0.98;
const LOOKS: usize = 4;

fn rounds_of(source: SourceKind, sink: SinkKind, rounds: usize, quick: bool) -> Result<Measured> {
    let mut measured = Measured {
        ratio: None,
        library: Vec::new(),
        plain: Vec::new(),
    };
    let mut ratios = Vec::new();
    for _ in 0..if quick { 1 } else { LOOKS } {
        // Files and sockets are made anew: where their pages lie, and on which
        // processor a reader sits, stays the same for one setup's rounds.
        look(source, sink, rounds, quick, &mut measured, &mut ratios)?;
        measured.ratio = Spread::of(&ratios).map(|spread| spread.median);
        if measured.ratio.is_none_or(|ratio| ratio >= DOUBTFUL) {
            break;
        }
    }
    Ok(measured)
}

/// So many rounds of both, on a setup of their own.
fn look(
    source: SourceKind,
    sink: SinkKind,
    rounds: usize,
    quick: bool,
    measured: &mut Measured,
    ratios: &mut Vec<f64>,
) -> Result<()> {
    let mut setup = Setup::find(source, sink, quick)?;
    setup.once(Who::Library)?;
    for round in 0..rounds {
        let mut turn = [Who::Library, Who::Plain];
        if round % 2 == 1 {
            turn.reverse();
        }
        for (place, who) in turn.into_iter().enumerate() {
            let sample = setup.sample(who)?;
            match who {
                Who::Library => measured.library.push((place, sample)),
                Who::Plain => measured.plain.push((place, sample)),
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
    /// Tries the plain loop to find the amount.
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
        setup.once(Who::Plain)?;
        let mut trial = setup.once(Who::Plain)?;
        if trial.wall < SECONDS / 8.0 {
            setup = Setup {
                spec: spec(16 << 20),
                kept: None,
                ..setup
            };
            trial = setup.once(Who::Plain)?;
        }
        let wanted = rate(&trial) * SECONDS;
        // Whole blocks, for direct I/O.
        let size = (wanted as u64).clamp(LEAST, MOST).next_multiple_of(1 << 16);
        let spec = spec(size);
        setup = Setup {
            spec,
            kept: None,
            ..setup
        };
        let start = Instant::now();
        let trial = setup.once(Who::Plain)?;
        let most = (PATIENCE / start.elapsed().as_secs_f64()).clamp(1.0, REPEATS);
        setup.repeats = (SECONDS / trial.wall).clamp(1.0, most).round() as u32;
        Ok(setup)
    }

    /// As often as it takes, added up.
    fn sample(&mut self, who: Who) -> Result<Sample> {
        let mut sum = self.once(who)?;
        for _ in 1..self.repeats {
            let next = self.once(who)?;
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

    /// One transfer. A pseudo-terminal that is closed at its busiest has been
    /// seen to lose the end of what was written to it; such a run is told of
    /// and done again. (What every pair delivers is for `verify` to judge.)
    fn once(&mut self, who: Who) -> Result<Sample> {
        let terminal = self.sink == SinkKind::Tty || self.source == SourceKind::Tty;
        let mut tries = if terminal { 3 } else { 1 };
        loop {
            tries -= 1;
            match self.attempt(who) {
                Err(error) if tries > 0 && !error.is::<PlainFails>() => {
                    eprintln!("  again, {} by {who:?}: {error}", self.sink.name());
                }
                done => return done,
            }
        }
    }

    fn attempt(&mut self, who: Who) -> Result<Sample> {
        let source = self.take_source()?;
        let sink = Sink::make(self.sink, &self.spec).context("making the sink")?;
        std::thread::sleep(SETTLING);
        let cpu = thread_time();
        let start = Instant::now();
        let (written, failed, plain) = match who {
            Who::Library => {
                let report = verify::transfer(&source, &sink);
                (report.written, report.errno, None)
            }
            Who::Plain => {
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

/// This thread's processor seconds, in user space and in the kernel.
fn thread_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
