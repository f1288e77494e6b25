//! `contestant | reader`.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};

use crate::harness::launch::{Finished, Job, counts};
use crate::harness::series::Sample;
use crate::harness::tools::Tools;

/// The time after which a reader sleeps in its first read.
const SETTLING: Duration = Duration::from_millis(15);
const WIDE: usize = 1 << 20;
/// The readers that are measured.
pub const READERS: [Reader; 4] = [
    Reader::Splices,
    Reader::SplicesWide,
    Reader::Reads,
    Reader::Pv,
];

/// The reader of the pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reader {
    /// Splices into `/dev/null`.
    Splices,
    /// The same, with a pipe of 1 MiB from the start.
    SplicesWide,
    /// Reads into a buffer.
    Reads,
    /// `pv`, into `/dev/null`.
    Pv,
    /// Computes the digest of all bytes.
    Checks,
}

impl Reader {
    /// The name of the setting.
    pub fn setting(self) -> &'static str {
        match self {
            Reader::Splices => "splicing reader",
            Reader::SplicesWide => "splicing reader 1 MiB pipe",
            Reader::Reads => "reading reader",
            Reader::Pv => "pv",
            Reader::Checks => "checking reader",
        }
    }

    /// The capacity of the pipe at the start, if not the default.
    pub fn capacity(self) -> Option<usize> {
        (self == Reader::SplicesWide).then_some(WIDE)
    }

    fn command_line(self, tools: &Tools) -> Vec<OsString> {
        let ours = |sink: &str| vec![tools.bench.clone().into(), "baseline".into(), sink.into()];
        match self {
            Reader::Splices | Reader::SplicesWide => ours("sink-splice"),
            Reader::Reads => ours("sink-read"),
            Reader::Checks => ours("sink-digest"),
            Reader::Pv => ["pv", "-n", "-b"].map(OsString::from).to_vec(),
        }
    }

    /// The number of bytes that it has read, and the digest if it computes one.
    fn account(self, finished: &Finished) -> Result<(u64, Option<u64>)> {
        let text = match self {
            Reader::Pv => finished.complaints.lines().last().unwrap_or_default(),
            _ => finished.output.as_str(),
        };
        counts(text).context("the reader")
    }
}

/// Runs `words | reader` through a pipe of this capacity.
pub fn pipeline(
    tools: &Tools,
    reader: Reader,
    capacity: Option<usize>,
    words: &[OsString],
) -> Result<Sample> {
    let (take, put): (OwnedFd, OwnedFd) = pipe_with(PipeFlags::CLOEXEC)?;
    if let Some(capacity) = capacity {
        fcntl_setpipe_size(&put, capacity)?;
    }
    let reading = Job::new(&reader.command_line(tools))?.stdin(take);
    let reading = if reader == Reader::Pv {
        reading
    } else {
        reading.keep_output()
    };
    let writing = Job::new(words)?.stdout(put);
    let reading = reading.start()?;
    std::thread::sleep(SETTLING);

    let started = Instant::now();
    // If this fails, the write end is closed too, and the reader ends.
    let writer = writing.start().and_then(|writer| writer.reap());
    let reader_end = reading.reap()?;
    let wall = started.elapsed().as_secs_f64();

    let writer = writer?.check()?;
    let read = reader_end.check().context("the reader")?;
    let (bytes, digest) = reader.account(&read)?;
    Ok(Sample {
        wall,
        cpu: writer.cpu,
        others: read.cpu,
        bytes,
        digest,
        ..Sample::default()
    })
}
