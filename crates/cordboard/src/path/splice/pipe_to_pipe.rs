//! Both ends are pipes. `splice(2)` would pass on a packet's flag, and a reader of
//! the sink that expects a stream would lose part of it.
//!
//! Pages that go through a socket pair lose the flag, so neither the contents of the
//! source matter, nor the moment at which its writers turn packet mode on or off.
//! The pair is filled with no more than the sink has room for: bytes that stay in
//! the pair are out of reach of other readers of the source. If no pair is
//! available, everything is inspected before it is moved.

use rustix::event::PollFlags;

use crate::endpoint::{Kind, Side};
use crate::errno::Errno;
use crate::path::flow::Flow;
use crate::path::verdict::Verdict;
use crate::pipe::{self, Channel, SocketPair};
use crate::sys;

/// The state of a transfer between two pipes.
#[derive(Default)]
pub(super) struct PipeToPipe {
    pub(super) pair: Option<SocketPair>,
    /// No pair can be made, or it refuses pages.
    pub(super) unavailable: bool,
    /// Bytes in the source that are known to be a stream.
    pub(super) inspected: usize,
}

impl PipeToPipe {
    pub(super) fn held(&self) -> u64 {
        self.pair.as_ref().map_or(0, Channel::held)
    }

    /// Records that `bytes` went from pipe to pipe in one call.
    pub(super) fn moved(&mut self, bytes: usize) {
        self.inspected = self.inspected.saturating_sub(bytes);
    }

    pub(super) fn rest(&mut self) {
        if let Some(pair) = self.pair.take() {
            pipe::release_pair(pair);
        }
    }

    /// Closes the pair, which is empty and has refused something.
    pub(super) fn close_pair(&mut self) {
        if let Some(pair) = self.pair.take() {
            pair.close();
        }
        self.unavailable = true;
    }

    pub(super) fn forget_pair(&mut self) {
        if let Some(pair) = self.pair.take() {
            pair.forget();
        }
    }

    /// Takes the pair, if it holds bytes.
    pub(super) fn take_held(&mut self) -> Option<SocketPair> {
        self.pair.take_if(|pair| pair.held() > 0)
    }

    /// Whether an unpolled source is empty. An idle transfer needs no pipe or pair.
    /// `poll(2)` reports the end, except that of a FIFO that was opened before it
    /// had a writer.
    pub(super) fn source_is_empty(&self, flow: &Flow<'_>) -> bool {
        let named = || flow.source.kind() == Kind::Fifo;
        self.inspected == 0 && sys::unsent(flow.source.fd()) == Ok(0) && !named()
    }
}

/// Interprets a splice from the source that returned 0: the end. From a pipe that
/// holds bytes, it means that a page is gone (`ENODATA` in `splice_from_pipe_feed`,
/// fs/splice.c), which a read reports. If no path follows that reads, the bytes are
/// the source's failure: they stay in the pipe.
pub(super) fn end_of(flow: &Flow<'_>) -> Verdict {
    if !flow.source.kind().is_pipe() || !holds_bytes(flow) {
        return Verdict::Ended;
    }
    match flow.has_next() {
        true => Verdict::Declined(Errno::ENODATA.into()),
        false => Verdict::Failed(Side::Source, Errno::ENODATA),
    }
}

/// Whether the source holds bytes. If a seccomp filter refuses `FIONREAD`, uses
/// `poll(2)`.
pub(super) fn holds_bytes(flow: &Flow<'_>) -> bool {
    match sys::unsent(flow.source.fd()) {
        Ok(there) => there > 0,
        Err(_) => sys::shows_now(flow.source.fd(), PollFlags::IN),
    }
}

/// Returns how many bytes the sink accepts now, if their pages are full.
///
/// # Errors
///
/// `EPIPE`: it has no reader, or may have none. Any other errno: a seccomp filter
/// refuses the query.
pub(super) fn room(flow: &Flow<'_>) -> Result<usize, Errno> {
    let sink = flow.sink.fd();
    let shown = sys::poll_now(sink, PollFlags::OUT)?;
    if shown.shows(PollFlags::ERR) != Some(false) {
        return Err(Errno::EPIPE);
    }
    if shown.shows(PollFlags::OUT) == Some(false) {
        return Ok(0);
    }
    let there = usize::try_from(sys::unsent(sink)?).unwrap_or(usize::MAX);
    // An estimate: the pages in the pipe may hold more, or fewer, bytes.
    let known = flow.enlarged_pipes.sink_capacity();
    let capacity = known.unwrap_or_else(|| pipe::capacity(sink));
    let room = capacity.saturating_sub(there);
    Ok(room.max(sys::page_size()))
}
