//! Both ends are pipes. `splice(2)` would pass on a packet's flag, and a reader of
//! the sink that expects a stream would lose part of it.
//!
//! Pages that go through a socket pair lose the flag, so it does not matter what is
//! in the source, or when its writers turn packet mode on and off. The pair is
//! filled with what the sink has room for: what it does not pass on at once is out
//! of reach of other readers of the source. If no pair is available, everything is
//! inspected before it is moved.

use rustix::event::PollFlags;

use crate::endpoint::Kind;
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

    /// The pair, if something is held in it.
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

/// Interprets 0 of a splice from the source: its end, except that from a pipe that
/// holds bytes it means a page that is gone (`ENODATA` in `splice_from_pipe_feed`,
/// fs/splice.c), which a read reports.
pub(super) fn end_of(flow: &Flow<'_>) -> Verdict {
    match flow.source.kind().is_pipe() && flow.has_next() && holds_bytes(flow) {
        true => Verdict::Declined(Errno::ENODATA.into()),
        false => Verdict::Ended,
    }
}

/// Whether the source holds bytes. If a seccomp filter refuses `FIONREAD`, `poll(2)`
/// tells.
pub(super) fn holds_bytes(flow: &Flow<'_>) -> bool {
    let shown = || sys::poll_now(flow.source.fd(), PollFlags::IN);
    match sys::unsent(flow.source.fd()) {
        Ok(there) => there > 0,
        Err(_) => shown().is_ok_and(|shown| shown.shows(PollFlags::IN) == Some(true)),
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
    // A page may hold more, or less.
    let known = flow.enlarged_pipes.sink_capacity();
    let capacity = known.unwrap_or_else(|| pipe::capacity(sink));
    let room = capacity.saturating_sub(there);
    Ok(room.max(sys::page_size()))
}
