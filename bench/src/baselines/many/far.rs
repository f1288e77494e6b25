//! The outer ends of thousands of pipe pairs, in a second process: the number
//! of descriptors of a process is limited, and the transfers need all of them.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// The size of a message through a pair, in bytes.
pub const MESSAGE: usize = 16;
/// The number of pairs that are passed at a time, with two descriptors each.
/// One message takes at most 253 descriptors (`SCM_MAX_FD`, `unix(7)`).
const BATCH: usize = 20;
/// The number of descriptors that are open here before they are passed.
pub const BATCH_DESCRIPTORS: u64 = 2 * BATCH as u64;

/// The commands to the other process, one byte each. The pairs come with the
/// first.
const PAIRS: u8 = 1;
const TALK: u8 = 2;
const END: u8 = 3;

/// The write end and the read end of a pair.
type Ends = (OwnedFd, OwnedFd);

/// The process that has the outer ends.
pub struct Far {
    process: Child,
    line: UnixStream,
    /// The pairs that are not passed yet.
    batch: Vec<Ends>,
}

impl Far {
    pub fn start() -> Result<Far> {
        let (line, other) = UnixStream::pair()?;
        let process = Command::new(std::env::current_exe()?)
            .args(["baseline", "many-far"])
            .stdin(OwnedFd::from(other))
            .stdout(Stdio::null())
            .spawn()?;
        Ok(Far {
            process,
            line,
            batch: Vec::with_capacity(BATCH),
        })
    }

    /// Passes these ends to the other process, together with others.
    pub fn take(&mut self, fill: OwnedFd, drain: OwnedFd) -> Result<()> {
        self.batch.push((fill, drain));
        if self.batch.len() == BATCH {
            self.hand_over()?;
        }
        Ok(())
    }

    /// Passes the rest. Returns when the other process has received them.
    pub fn hand_over(&mut self) -> Result<()> {
        let fds: Vec<BorrowedFd<'_>> = (self.batch.iter())
            .flat_map(|(fill, drain)| [fill.as_fd(), drain.as_fd()])
            .collect();
        if fds.is_empty() {
            return Ok(());
        }
        let mut space =
            [const { MaybeUninit::uninit() }; rustix::cmsg_space!(ScmRights(2 * BATCH))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let message = SendAncillaryMessage::ScmRights(&fds);
        ensure!(
            ancillary.push(message),
            "too many descriptors for a message"
        );
        let parts = [IoSlice::new(&[PAIRS])];
        sendmsg(&self.line, &parts, &mut ancillary, SendFlags::empty())?;
        // In flight they count for this process (unix(7), ETOOMANYREFS).
        self.line.read_exact(&mut [0])?;
        self.batch.clear();
        Ok(())
    }

    /// Makes it send `messages` messages through different pairs, one after the
    /// other; the time of each in seconds.
    pub fn talk(&mut self, messages: usize) -> Result<Vec<f64>> {
        self.line.write_all(&[TALK])?;
        self.line.write_all(&messages.to_le_bytes())?;
        let mut times = vec![0; messages * size_of::<f64>()];
        self.line
            .read_exact(&mut times)
            .context("the process with the outer ends")?;
        let (times, _) = times.as_chunks();
        Ok(times.iter().copied().map(f64::from_le_bytes).collect())
    }

    /// Makes it close the write ends and check that no more bytes arrive.
    pub fn end(mut self) -> Result<()> {
        self.line.write_all(&[END])?;
        let ended = self.process.wait()?;
        ensure!(ended.success(), "the process with the outer ends: {ended}");
        Ok(())
    }
}

/// Runs the other process.
pub fn run() -> Result<()> {
    let mut line = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let mut pairs = Vec::new();
    loop {
        match hear(&line, &mut pairs)? {
            PAIRS => line.write_all(&[PAIRS])?,
            TALK => {
                let mut messages = [0; size_of::<usize>()];
                line.read_exact(&mut messages)?;
                let times = talk(&pairs, usize::from_le_bytes(messages))?;
                let bytes: Vec<u8> = times.into_iter().flat_map(f64::to_le_bytes).collect();
                line.write_all(&bytes)?;
            }
            _ => return end(pairs),
        }
    }
}

/// Receives a command; pairs that come with it are added to `pairs`.
fn hear(line: &UnixStream, pairs: &mut Vec<Ends>) -> Result<u8> {
    let mut space = [const { MaybeUninit::uninit() }; rustix::cmsg_space!(ScmRights(2 * BATCH))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut command = [END];
    recvmsg(
        line,
        &mut [IoSliceMut::new(&mut command)],
        &mut ancillary,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(mut fds) = message {
            while let (Some(fill), Some(drain)) = (fds.next(), fds.next()) {
                pairs.push((fill, drain));
            }
        }
    }
    Ok(command[0])
}

fn talk(pairs: &[Ends], messages: usize) -> Result<Vec<f64>> {
    let order = (0..pairs.len()).cycle().step_by(stride(pairs.len()));
    let mut times = Vec::with_capacity(messages);
    for (n, pair) in order.take(messages).enumerate() {
        let (fill, drain) = &pairs[pair];
        let mut sent = [0; MESSAGE];
        sent[..8].copy_from_slice(&n.to_le_bytes());
        let mut came = [0; MESSAGE];
        let started = Instant::now();
        ensure!(
            rustix::io::write(fill, &sent)? == MESSAGE,
            "short write to the source"
        );
        ensure!(
            rustix::io::read(drain, &mut came)? == MESSAGE,
            "short read from the sink"
        );
        times.push(started.elapsed().as_secs_f64());
        ensure!(came == sent, "other bytes arrived");
    }
    Ok(times)
}

fn end(pairs: Vec<Ends>) -> Result<()> {
    let drains: Vec<OwnedFd> = pairs.into_iter().map(|(_, drain)| drain).collect();
    for drain in drains {
        ensure!(
            rustix::io::read(&drain, &mut [0; 1])? == 0,
            "more bytes arrived"
        );
    }
    Ok(())
}

/// A number coprime to `n`, about three eighths of it.
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

#[cfg(test)]
mod tests {
    use super::stride;

    #[test]
    fn every_pair_has_a_message_before_any_has_a_second() {
        for n in [1, 2, 7, 64, 1000] {
            let mut seen: Vec<usize> = (0..n).cycle().step_by(stride(n)).take(n).collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..n), "{n}");
        }
    }
}
