//! A contestant between two ends: files, devices, pipes, and the streams of other processes.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::harness::files;
use crate::harness::interleave::Turn;
use crate::harness::launch::{Job, Running, counts};
use crate::harness::network::loopback;
use crate::harness::series::Sample;
use crate::harness::tools::Tools;

/// The digest of bytes that were discarded.
pub const DISCARDED: u64 = 0;

/// A stream to another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Tcp,
    Unix,
    Pipe,
}

/// A source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    /// A file in the page cache.
    Cached,
    /// A file that is not in the page cache.
    Cold,
    /// `/dev/zero`.
    Zero,
    /// A process writes into the stream.
    Stream(Stream),
}

/// A sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum To {
    /// A new file.
    File,
    /// `/dev/null`.
    Null,
    /// A process reads the stream.
    Stream(Stream),
}

/// The result of a run.
#[derive(Debug)]
pub struct Moved {
    pub sample: Sample,
    /// The standard error of the contestant, on which `--json` writes the report.
    pub report: String,
}

/// The files of the ends, and the number of bytes.
#[derive(Debug, Clone, Copy)]
pub struct Places<'a> {
    pub source: &'a Path,
    pub sink: &'a Path,
    pub size: u64,
}

impl From {
    /// Returns the words of the command line.
    pub fn words(self, size: u64) -> String {
        match self {
            From::Cached | From::Cold => "{src}".to_owned(),
            From::Zero => format!("--size {size} /dev/zero"),
            From::Stream(_) => "fd:3".to_owned(),
        }
    }

    /// Returns whether the source is a file.
    pub fn is_file(self) -> bool {
        matches!(self, From::Cached | From::Cold)
    }

    /// Prepares the source for a run.
    fn prepare(self, source: &Path) -> Result<()> {
        match self {
            From::Cached => files::cache(source),
            From::Cold => files::evict(source, false),
            From::Zero | From::Stream(_) => Ok(()),
        }
    }
}

impl To {
    /// Returns the word of the command line.
    pub fn word(self) -> &'static str {
        match self {
            To::File => "{dst}",
            To::Null => "/dev/null",
            To::Stream(_) => "fd:4",
        }
    }
}

/// Returns the end for a writer and the end for a reader.
fn connection(stream: Stream) -> Result<(OwnedFd, OwnedFd)> {
    Ok(match stream {
        Stream::Unix => {
            let (near, far) = UnixStream::pair()?;
            (near.into(), far.into())
        }
        Stream::Tcp => {
            let (near, far) = loopback()?;
            (near.into(), far.into())
        }
        Stream::Pipe => {
            let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
            (writer, reader)
        }
    })
}

fn peer(tools: &Tools, words: &[&str]) -> Result<Job> {
    let mut all: Vec<OsString> = vec![tools.bench.clone().into(), "baseline".into()];
    all.extend(words.iter().map(OsString::from));
    Job::new(&all)
}

/// Starts the process that reads the sink. Returns the descriptor for the contestant.
fn reader(tools: &Tools, stream: Stream, digest: bool) -> Result<(OwnedFd, Running)> {
    let (put, end) = connection(stream)?;
    let job = match (stream, digest) {
        (Stream::Pipe, true) => peer(tools, &["sink-digest"])?.stdin(end),
        (Stream::Pipe, false) => peer(tools, &["sink-splice"])?.stdin(end),
        (_, true) => peer(tools, &["relay-sink", "digest"])?.hand_over(vec![end]),
        (_, false) => peer(tools, &["relay-sink", "count"])?.hand_over(vec![end]),
    };
    Ok((put, job.keep_output().start()?))
}

/// Starts the process that writes the source. Returns the descriptor for the contestant.
fn writer(tools: &Tools, stream: Stream, size: u64) -> Result<(OwnedFd, Running)> {
    let (end, take) = connection(stream)?;
    let job = peer(tools, &["relay-source", &size.to_string()])?;
    Ok((take, job.hand_over(vec![end]).start()?))
}

/// Runs the contestant between two ends. Streams are the descriptors 3 and 4, and lead to
/// processes of this program. The time is from its start until the sink has reached the end
/// of file. `/dev/null` discards the bytes: the report of the contestant has their number.
pub fn between(
    tools: &Tools,
    (from, to): (From, To),
    places: Places<'_>,
    turn: &Turn<'_>,
) -> Result<Moved> {
    from.prepare(places.source)?;
    let unused = || OpenOptions::new().read(true).write(true).open("/dev/null");
    let (put, sink) = match to {
        To::Stream(stream) => {
            let (put, sink) = reader(tools, stream, turn.verifies())?;
            (put, Some(sink))
        }
        To::File | To::Null => (unused()?.into(), None),
    };
    let (take, source) = match from {
        From::Stream(stream) => {
            let (take, source) = writer(tools, stream, places.size)?;
            (take, Some(source))
        }
        _ => (unused()?.into(), None),
    };
    let line = turn.command_line(&[
        ("src", places.source.as_os_str().to_owned()),
        ("dst", places.sink.as_os_str().to_owned()),
    ]);
    let mover = Job::new(&line)?.hand_over(vec![take, put]);

    let started = Instant::now();
    let mover = mover.start().and_then(|mover| mover.reap());
    let sink = sink.map(Running::reap).transpose()?;
    let wall = started.elapsed().as_secs_f64();
    let source = source.map(Running::reap).transpose()?;

    let mover = mover?.check()?;
    let sink = sink.map(|sink| sink.check().context("the sink"));
    let sink = sink.transpose()?;
    let source = source.map(|source| source.check().context("the source"));
    let mut others = source.transpose()?.map_or_else(Default::default, |s| s.cpu);
    let (bytes, digest) = match (to, sink) {
        (_, Some(sink)) => {
            others = others + sink.cpu;
            counts(&sink.output).context("the sink")?
        }
        (To::File, None) => {
            let arrived = match turn.verifies() {
                true => files::content(places.sink).map(|c| (c.bytes, Some(c.digest))),
                false => Ok((File::open(places.sink)?.metadata()?.len(), None)),
            };
            files::remove(places.sink);
            arrived?
        }
        (_, None) => (written(&mover.complaints)?, Some(DISCARDED)),
    };
    let sample = Sample {
        wall,
        cpu: mover.cpu,
        others,
        bytes,
        digest,
        ..Sample::default()
    };
    let report = mover.complaints;
    Ok(Moved { sample, report })
}

/// Returns the number of bytes that a report has as written.
fn written(report: &str) -> Result<u64> {
    let report: serde_json::Value = serde_json::from_str(report).context("no report")?;
    report["written"].as_u64().context("no number of bytes")
}
