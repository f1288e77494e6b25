//! Several transfers at once, each in a process of its own, as in the paper on
//! `cue()`: from a file of its own to a TCP connection of its own.

use std::ffi::OsString;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};

use crate::harness::cpu::Cpu;
use crate::harness::digest::Content;
use crate::harness::interleave::Turn;
use crate::harness::launch::{Finished, Job, counts};
use crate::harness::network::loopback;
use crate::harness::series::Sample;
use crate::harness::{Bench, files};

/// The sources of the transfers.
#[derive(Debug)]
pub struct Sources {
    /// The files.
    pub paths: Vec<PathBuf>,
    /// All of their bytes, with the digest of the digests.
    pub content: Content,
}

impl Sources {
    /// Makes `count` files of `bytes` bytes each.
    pub fn make(directory: &Path, count: usize, bytes: u64) -> Result<Sources> {
        let paths: Vec<PathBuf> = (0..count)
            .map(|n| directory.join(format!("source{n}")))
            .collect();
        let contents = paths.iter().enumerate().map(|(n, path)| {
            // Of different lengths, so that their contents differ.
            files::make(path, bytes + (n as u64) * 4096)
        });
        let contents: Vec<Content> = contents.collect::<Result<_>>()?;
        Ok(Sources {
            paths,
            content: Content::of_all(&contents),
        })
    }

    /// Evicts them from the page cache; if permitted, all other pages too.
    pub fn evict(&self, everything: bool) -> Result<()> {
        self.paths.iter().try_for_each(|p| files::evict(p, false))?;
        if everything {
            files::drop_caches();
        }
        Ok(())
    }

    /// Reads them into the page cache.
    pub fn cache(&self) -> Result<()> {
        self.paths.iter().try_for_each(|path| files::cache(path))
    }

    /// Removes them.
    pub fn remove(&self) {
        self.paths.iter().for_each(|path| files::remove(path));
    }
}

/// Ended processes, with the seconds from their common start to each end.
#[derive(Debug)]
pub struct Ends {
    /// The results and the seconds of each.
    pub each: Vec<(Finished, f64)>,
    /// The seconds until the last end.
    pub wall: f64,
}

impl Ends {
    /// Returns the processor time of all processes.
    pub fn cpu(&self) -> Cpu {
        let all = self.each.iter().map(|(finished, _)| finished.cpu);
        all.fold(Cpu::default(), |sum, one| sum + one)
    }
}

/// Starts all jobs and waits for all of them.
pub fn run(jobs: Vec<Job>) -> Result<Ends> {
    let started = Instant::now();
    let running: Vec<_> = jobs.into_iter().map(Job::start).collect();
    // A thread waits for each, so that each end has its time.
    let reaped: Vec<_> = std::thread::scope(|scope| {
        let wait = |running: Result<_>| {
            scope.spawn(move || {
                let reaped = running.and_then(crate::harness::launch::Running::reap);
                (reaped, started.elapsed().as_secs_f64())
            })
        };
        let waiting: Vec<_> = running.into_iter().map(wait).collect();
        waiting.into_iter().map(|thread| thread.join()).collect()
    });
    let mut each = Vec::new();
    for end in reaped {
        let (reaped, seconds) = end.map_err(|_| anyhow::anyhow!("a waiting thread panicked"))?;
        each.push((reaped?.check()?, seconds));
    }
    let wall = each.iter().map(|(_, seconds)| *seconds).fold(0.0, f64::max);
    Ok(Ends { each, wall })
}

/// Returns the process that reads a connection to its end. `how`: with `count`, the kernel
/// discards the bytes; with `digest`, the process reads them.
pub fn sink(bench: &Path, far: TcpStream, how: &str) -> Result<Job> {
    let words = ["baseline", "relay-sink", how].map(OsString::from);
    let words: Vec<OsString> = [bench.as_os_str().to_owned()]
        .into_iter()
        .chain(words)
        .collect();
    Ok(Job::new(&words)?.keep_output().hand_over(vec![far.into()]))
}

/// Moves each source to a connection, whose other end is read by a process of
/// its own. The sink of a contestant is its standard output. Returns the sample
/// and the seconds of each transfer.
pub fn to_sockets(
    bench: &Path,
    sources: &Sources,
    turn: &Turn<'_>,
    start: impl FnOnce(Vec<Job>) -> Result<Ends>,
) -> Result<(Sample, Vec<f64>)> {
    let how = if turn.verifies() { "digest" } else { "count" };
    let mut sinks = Vec::new();
    let mut movers = Vec::new();
    for path in &sources.paths {
        let (near, far) = loopback()?;
        let sink = sink(bench, far, how)?.start()?;
        sinks.push(sink);
        let job = Job::new(&turn.command_line(&[("src", path.into())]))?;
        movers.push(job.stdout(OwnedFd::from(near)));
    }
    let started = Instant::now();
    let ends = start(movers);
    let mut contents = Vec::new();
    let mut others = Cpu::default();
    for sink in sinks {
        let finished = sink.reap()?.check().context("a sink")?;
        others = others + finished.cpu;
        let (bytes, digest) = counts(&finished.output).context("a sink")?;
        contents.push(Content {
            bytes,
            digest: digest.unwrap_or(0),
        });
    }
    let wall = started.elapsed().as_secs_f64();
    let ends = ends?;
    let content = Content::of_all(&contents);
    let sample = Sample {
        wall,
        cpu: ends.cpu(),
        others,
        bytes: content.bytes,
        digest: Some(content.digest),
        ..Sample::default()
    };
    let seconds = ends.each.iter().map(|(_, seconds)| *seconds).collect();
    Ok((sample, seconds))
}

/// Copies each source to a file of its own in `directory`.
pub fn to_files(
    directory: &Path,
    sources: &Sources,
    turn: &Turn<'_>,
    start: impl FnOnce(Vec<Job>) -> Result<Ends>,
) -> Result<(Sample, Vec<f64>)> {
    let sinks: Vec<PathBuf> = (0..sources.paths.len())
        .map(|n| directory.join(format!("sink{n}")))
        .collect();
    let pairs = sources.paths.iter().zip(&sinks);
    let jobs = pairs.map(|(source, sink)| {
        let fill = [("src", source.into()), ("dst", sink.into())];
        Job::new(&turn.command_line(&fill))
    });
    let result = jobs.collect::<Result<_>>().and_then(start);
    let result = result.and_then(|ends| {
        let contents = sinks.iter().map(|sink| match turn.verifies() {
            true => files::content(sink),
            false => Ok(Content {
                bytes: std::fs::metadata(sink)?.len(),
                digest: 0,
            }),
        });
        let content = Content::of_all(&contents.collect::<Result<Vec<_>>>()?);
        let sample = Sample {
            wall: ends.wall,
            cpu: ends.cpu(),
            bytes: content.bytes,
            digest: Some(content.digest),
            ..Sample::default()
        };
        Ok((sample, ends.each.iter().map(|(_, s)| *s).collect()))
    });
    sinks.iter().for_each(|sink| files::remove(sink));
    result
}

impl Bench {
    /// Adds a figure to each sample of the last setting: the rate, divided by
    /// the median rate of the contestant of this name.
    pub fn normalise(&mut self, to: &str, name: &str) {
        let Some(result) = self.results.last_mut() else {
            return;
        };
        let Some(median) = result.of(to).and_then(|series| series.median()) else {
            return;
        };
        for (_, sample) in result.series.iter_mut().flat_map(|s| &mut s.samples) {
            sample.figures.push((name.to_owned(), median / sample.wall));
        }
    }
}
