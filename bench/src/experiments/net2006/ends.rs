//! A sender and a receiver, of which one is the contestant.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use serde_json::Value;

use super::OURS_DIRECT;
use crate::harness::cores::Busy;
use crate::harness::cpu::Cpu;
use crate::harness::interleave::Turn;
use crate::harness::launch::{Job, counts};
use crate::harness::network::Network;
use crate::harness::series::Sample;
use crate::harness::tools::Tools;
use crate::harness::{Bench, files};

/// The block size of the sender for all ways of receiving.
const SENT: &str = "1048576";

/// What both ends of a transfer need.
#[derive(Debug)]
pub struct Ends<'n> {
    tools: Tools,
    network: &'n Network,
    size: u64,
}

/// A sample, and the paths that Cordboard took.
type Measured = (Sample, Option<String>);

impl<'n> Ends<'n> {
    /// The ends of transfers of `size` bytes.
    pub fn new(bench: &Bench, network: &'n Network, size: u64) -> Ends<'n> {
        Ends {
            tools: bench.tools.clone(),
            network,
            size,
        }
    }

    /// Reads the programs of both ends into the page cache, from which a cold run has removed
    /// them.
    pub fn cache(&self, turn: &Turn<'_>) -> Result<()> {
        files::cache(&turn.contestant.program)?;
        files::cache(&self.tools.bench)
    }

    /// The contestant sends, and a process discards: in the kernel, without copying the bytes.
    pub fn send(&self, source: &Path, turn: &Turn<'_>) -> Result<Measured> {
        let (near, far) = self.network.connection()?;
        let how = if turn.verifies() { "digest" } else { "count" };
        let receiver = self.other(&["relay-sink".into(), how.into()], far)?;
        let receiver = receiver.keep_output().start()?;
        let fill = [
            ("src", source.into()),
            ("size", self.size.to_string().into()),
        ];
        let sender = Job::new(&turn.command_line(&fill))?.hand_over(vec![near]);

        let clock = Clock::start()?;
        let sender = sender.start().and_then(|sender| sender.reap());
        let receiver = receiver.reap()?;
        let sample = clock.stop(self.size)?;

        let sender = sender?.check()?;
        let receiver = receiver.check().context("the receiver")?;
        let (bytes, digest) = counts(&receiver.output).context("the receiver")?;
        let sample = Sample {
            cpu: sender.cpu,
            others: receiver.cpu,
            bytes,
            digest,
            ..sample
        };
        Ok((
            sample,
            report(&sender.complaints).map(|report| paths(&report)),
        ))
    }

    /// The contestant receives, and a process sends a cached file by `sendfile(2)`.
    pub fn receive(&self, source: &Path, sink: &Path, turn: &Turn<'_>) -> Result<Measured> {
        let (near, far) = self.network.connection()?;
        let size = self.size.to_string();
        let words = ["net-send", "sendfile", SENT].map(OsString::from);
        let words = [&words[..], &[source.into(), size.into()]].concat();
        let sender = self.other(&words, near)?;
        let mut descriptors = vec![far];
        if turn.contestant.name == OURS_DIRECT {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true);
            let opened = options.custom_flags(libc::O_DIRECT).open(sink);
            descriptors.push(opened.context("O_DIRECT")?.into());
        }
        let receiver = Job::new(&turn.command_line(&[("dst", sink.into())]))?;
        let receiver = receiver.keep_output().hand_over(descriptors);

        let clock = Clock::start()?;
        let receiver = receiver.start()?;
        let sender = sender.start();
        // If the sender has not started, its end of the connection is closed.
        let receiver = receiver.reap()?;
        let sample = clock.stop(self.size)?;
        let sender = sender?.reap()?;

        let receiver = receiver.check()?;
        let sender = sender.check().context("the sender")?;
        let report = report(&receiver.complaints);
        let bytes = match &report {
            Some(report) => report["written"].as_u64().context("no count")?,
            None => receiver.output.trim().parse().context("no count")?,
        };
        let sample = Sample {
            cpu: receiver.cpu,
            others: sender.cpu,
            bytes,
            ..sample
        };
        let sample = match turn.verifies() {
            true => {
                let content = files::content(sink)?;
                Sample {
                    bytes: content.bytes,
                    digest: Some(content.digest),
                    ..sample
                }
            }
            false => sample,
        };
        Ok((sample, report.map(|report| paths(&report))))
    }

    fn other(&self, words: &[OsString], socket: OwnedFd) -> Result<Job> {
        let mut all = vec![self.tools.bench.clone().into(), "baseline".into()];
        all.extend_from_slice(words);
        Ok(Job::new(&all)?.hand_over(vec![socket]))
    }
}

/// The wall time and the busy time of the cores.
struct Clock {
    started: Instant,
    busy: Busy,
}

impl Clock {
    fn start() -> Result<Clock> {
        let busy = Busy::now()?;
        Ok(Clock {
            started: Instant::now(),
            busy,
        })
    }

    fn stop(self, bytes: u64) -> Result<Sample> {
        let wall = self.started.elapsed().as_secs_f64();
        let (first, others) = Busy::now()?.since(&self.busy, 0);
        let busy = Cpu {
            user: 0.0,
            system: first + others,
        };
        let sample = Sample {
            wall,
            ..Sample::default()
        };
        Ok(sample.with("busy s/GB", busy.total() / (bytes as f64 / 1e9)))
    }
}

/// The report that Cordboard prints with `--json`; other contestants print none.
fn report(complaints: &str) -> Option<Value> {
    let mut lines = complaints.lines().rev();
    lines.find_map(|line| serde_json::from_str(line.strip_prefix('{').map(|_| line)?).ok())
}

/// The paths in the order of their first use.
fn paths(report: &Value) -> String {
    let names = report["path"].as_array().into_iter().flatten();
    let names: Vec<&str> = names.filter_map(Value::as_str).collect();
    names.join(", then ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_is_found_among_other_lines() {
        let text = "a warning\n{\"written\":7,\"path\":[\"splice\",\"read/write\"]}\n";
        let found = report(text).unwrap();
        assert_eq!(found["written"].as_u64(), Some(7));
        assert_eq!(paths(&found), "splice, then read/write");
        assert!(report("a warning\n{ not json\n").is_none());
    }
}
