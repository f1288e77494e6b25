//! Both ends are pipes. `splice(2)` would pass on the flag of a packet, and a
//! reader of the sink that expects a stream would lose a part of it.
//!
//! Pages that go through a socket pair lose the flag, so it does not matter what
//! is in the source, and when its writers turn packet mode on and off. The pair is
//! filled with what the sink has room for: what it does not pass on at once is out
//! of reach of other readers of the source. If no pair is available, everything is
//! inspected before it is moved.

use rustix::event::PollFlags;

use super::super::{Flow, Verdict};
use super::{DOUBTS, Splice};
use crate::endpoint::{Kind, Side};
use crate::errno::Errno;
use crate::pipe::packets::{self, Front};
use crate::pipe::{self, Channel, SocketPair};
use crate::sys;

/// What is between two pipes.
#[derive(Default)]
pub(super) struct Between {
    pair: Option<SocketPair>,
    /// None can be made, or it refuses pages.
    without: bool,
    /// Bytes in the source that are known to be a stream.
    inspected: usize,
}

impl Between {
    pub(super) fn held(&self) -> u64 {
        self.pair.as_ref().map_or(0, Channel::held)
    }

    /// So many bytes went from pipe to pipe by one call.
    pub(super) fn moved(&mut self, bytes: usize) {
        self.inspected = self.inspected.saturating_sub(bytes);
    }

    pub(super) fn rest(&mut self) {
        if let Some(pair) = self.pair.take() {
            pipe::release_pair(pair);
        }
    }

    /// Closes the pair, which holds nothing, and has refused something.
    fn do_without(&mut self) {
        if let Some(pair) = self.pair.take() {
            pair.close();
        }
        self.without = true;
    }

    pub(super) fn let_go(&mut self) {
        if let Some(pair) = self.pair.take() {
            pair.forget();
        }
    }

    /// The pair, if something is held in it.
    pub(super) fn take_held(&mut self) -> Option<SocketPair> {
        self.pair.take_if(|pair| pair.held() > 0)
    }

    /// Nothing is in the source that was not polled before. An idle transfer needs
    /// no pipe or pair; poll(2) tells of an end, but that of a FIFO that was opened
    /// before it had a writer.
    pub(super) fn finds_nothing(&self, flow: &Flow<'_>) -> bool {
        let named = || flow.source.kind() == Kind::Fifo;
        self.inspected == 0 && sys::unsent(flow.source_fd()) == Ok(0) && !named()
    }
}

impl Splice {
    /// From the source into the pair. `None`: not this way.
    pub(super) fn enter_pair(&mut self, flow: &mut Flow<'_>) -> Option<Result<(), Verdict>> {
        if self.between.without {
            return None;
        }
        let room = match room(flow) {
            Ok(0) => return Some(Err(Verdict::Blocked(Side::Sink))),
            Ok(room) => room,
            // Without a reader too, which the call says that takes nothing.
            Err(_) => return None,
        };
        let between = &mut self.between;
        if between.pair.is_none() {
            between.pair = pipe::acquire_pair().ok();
        }
        let Some(pair) = &mut between.pair else {
            between.without = true;
            return None;
        };
        let length = flow.want(self.step.min(room));
        match pair.fill(flow.source_fd(), length) {
            Ok(0) if !holds_bytes(flow) => Some(Err(Verdict::Ended)),
            Ok(n @ 1..) => {
                self.doubts = 0;
                flow.took(n as u64);
                flow.lent_moved(Side::Source, n);
                Some(Ok(()))
            }
            Err(Errno::EINTR) => Some(Err(flow.was_interrupted(Side::Source))),
            Err(Errno::EAGAIN) if self.was_empty(flow) => Some(Err(Verdict::Blocked(Side::Source))),
            // A filter refuses it, no memory is available, or the next page cannot be
            // read, which a buffer tells.
            Ok(_) | Err(_) => {
                self.between.do_without();
                None
            }
        }
    }

    /// The source has said that it is empty, and is, or is believed: what it holds
    /// now may have come since the call.
    fn was_empty(&mut self, flow: &Flow<'_>) -> bool {
        let holds = holds_bytes(flow);
        let believed = !holds || self.doubts < DOUBTS;
        self.doubts += u32::from(holds && believed);
        believed
    }

    /// From the pair into the sink.
    pub(super) fn leave_pair(&mut self, flow: &mut Flow<'_>) -> Verdict {
        let copies = !self.spill.rest().is_empty();
        if !flow.may_write(!copies) {
            return Verdict::Blocked(Side::Sink);
        }
        if copies {
            return self.spill.write(flow);
        }
        let Some(pair) = &mut self.between.pair else {
            return Verdict::Moved(0);
        };
        let (sink, held) = (flow.sink_fd(), usize::try_from(pair.held()).ok());
        let done = flow.write_by(held, || pair.drain(sink));
        match done {
            Ok(1..) | Err(Errno::EAGAIN | Errno::EINTR | Errno::EPIPE) => {
                self.sink_says(flow, done)
            }
            // A pipe as the sink gives no other error (`splice_file_to_pipe`,
            // fs/splice.c): it is the pair's, whose bytes go by copying.
            Ok(_) | Err(_) => match self.spill.take(pair) {
                Ok(()) => {
                    self.between.do_without();
                    Verdict::Moved(0)
                }
                Err(errno) => Verdict::Failed(Side::Source, errno),
            },
        }
    }

    /// How many bytes the next step may move from pipe to pipe, or why none.
    pub(super) fn step_of_a_stream(&mut self, flow: &Flow<'_>) -> Result<usize, Verdict> {
        let step = flow.want(self.step);
        if self.between.inspected > 0 {
            return Ok(step.min(self.between.inspected));
        }
        Err(match packets::front(flow.source_fd(), step) {
            Ok(Front::Stream(bytes)) => {
                self.between.inspected = bytes;
                return Ok(bytes);
            }
            Ok(Front::Packets) => {
                Verdict::Declined("a reader of the sink would lose parts of packets".into())
            }
            Ok(Front::Nothing) => Verdict::Blocked(Side::Source),
            Ok(Front::End) => Verdict::Ended,
            // A buffer carries either.
            Err(errno) => Verdict::Declined(errno.into()),
        })
    }
}

/// What 0 of a splice from the source says: its end; but from a pipe that holds
/// bytes it is a page that is gone (`ENODATA` in `splice_from_pipe_feed`,
/// fs/splice.c), of which a buffer tells.
pub(super) fn end_of(flow: &Flow<'_>) -> Verdict {
    match flow.source.kind().is_pipe() && flow.has_next && holds_bytes(flow) {
        true => Verdict::Declined(Errno::ENODATA.into()),
        false => Verdict::Ended,
    }
}

/// Where a filter refuses to count them, `poll(2)` shows that there are some.
fn holds_bytes(flow: &Flow<'_>) -> bool {
    let shown = || sys::poll_now(flow.source_fd(), PollFlags::IN);
    match sys::unsent(flow.source_fd()) {
        Ok(there) => there > 0,
        Err(_) => shown().is_ok_and(|shown| shown.shows(PollFlags::IN) == Some(true)),
    }
}

/// How many bytes the sink takes now, if their pages are full.
///
/// # Errors
///
/// `EPIPE`: it has no reader, or may have none. Any other errno: a filter refuses to
/// tell.
fn room(flow: &Flow<'_>) -> Result<usize, Errno> {
    let sink = flow.sink_fd();
    let shown = sys::poll_now(sink, PollFlags::OUT)?;
    if shown.shows(PollFlags::ERR) != Some(false) {
        return Err(Errno::EPIPE);
    }
    if shown.shows(PollFlags::OUT) == Some(false) {
        return Ok(0);
    }
    let there = usize::try_from(sys::unsent(sink)?).unwrap_or(usize::MAX);
    // A page may hold more, or less.
    let known = flow.lent.sink_capacity();
    let capacity = known.unwrap_or_else(|| pipe::capacity(sink));
    let room = capacity.saturating_sub(there);
    Ok(room.max(sys::page_size()))
}
