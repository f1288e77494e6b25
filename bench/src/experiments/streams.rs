//! A contestant between the streams of two other processes.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::harness::interleave::Turn;
use crate::harness::launch::{Job, counts};
use crate::harness::network::loopback;
use crate::harness::series::Sample;
use crate::harness::tools::Tools;

/// One kind of end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    File,
    Tcp,
    Unix,
}

/// Returns the two ends of a connection.
fn connection(kind: End) -> Result<(OwnedFd, OwnedFd)> {
    if kind == End::Unix {
        let (near, far) = UnixStream::pair()?;
        return Ok((near.into(), far.into()));
    }
    let (near, far) = loopback()?;
    Ok((near.into(), far.into()))
}

/// Runs the contestant between two ends, which are processes of this program, or from a
/// file. Its sockets are the descriptors 3 and 4. The time is from its start until the sink
/// has reached the end of file.
pub fn between(
    tools: &Tools,
    (from, to): (End, End),
    (file, size): (&Path, u64),
    turn: &Turn<'_>,
) -> Result<Sample> {
    let peer = |words: &[&str], socket: OwnedFd| -> Result<Job> {
        let mut all: Vec<OsString> = vec![tools.bench.clone().into(), "baseline".into()];
        all.extend(words.iter().map(OsString::from));
        Ok(Job::new(&all)?.hand_over(vec![socket]))
    };
    let (put, sink_side) = connection(to)?;
    let how = if turn.verifies() { "digest" } else { "count" };
    let sink = peer(&["relay-sink", how], sink_side)?
        .keep_output()
        .start()?;
    let (take, source) = match from {
        // The command opens the file itself.
        End::File => (std::fs::File::open("/dev/null")?.into(), None),
        End::Tcp | End::Unix => {
            let (source_side, take) = connection(from)?;
            let source = peer(&["relay-source", &size.to_string()], source_side)?;
            (take, Some(source.start()?))
        }
    };
    let line = turn.command_line(&[("src", file.as_os_str().to_owned())]);
    let mover = Job::new(&line)?.hand_over(vec![take, put]);

    let started = Instant::now();
    let mover = mover.start().and_then(|mover| mover.reap());
    let sink = sink.reap()?;
    let wall = started.elapsed().as_secs_f64();
    let source = source.map(|source| source.reap()).transpose()?;

    let mover = mover?.check()?;
    let sink = sink.check().context("the sink")?;
    let source = source.map(|source| source.check().context("the source"));
    let others = source
        .transpose()?
        .map_or_else(Default::default, |source| source.cpu);
    let (bytes, digest) = counts(&sink.output).context("the sink")?;
    Ok(Sample {
        wall,
        cpu: mover.cpu,
        others: sink.cpu + others,
        bytes,
        digest,
        ..Sample::default()
    })
}
