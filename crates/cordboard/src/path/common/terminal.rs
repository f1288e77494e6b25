//! A blocking terminal as the sink of a thread that must not block.

use crate::endpoint::{Kind, is_pty_master};
use crate::path::flow::Flow;
use crate::sys::poll_now;

/// The largest write.
const PIECE: usize = 4096;
/// The master of a pseudoterminal that polls writable accepts this many bytes
/// without blocking: its buffer is below its limit, and grows by the requested
/// size, up to half a page at a time (`__tty_buffer_request_room`,
/// drivers/tty/tty_buffer.c).
const PIECE_OF_MASTER: usize = 256;

/// Limits writes to such a sink.
#[derive(Debug, Default)]
pub(in crate::path) struct Terminal {
    /// Whether the sink is the master of a pseudoterminal, once queried.
    is_master: Option<bool>,
}

impl Terminal {
    /// Whether the sink may be written now. `covered`: the write has its own flag
    /// against blocking.
    pub(in crate::path) fn is_open(&mut self, flow: &mut Flow<'_>, covered: bool) -> bool {
        // A hang-up only means that no slave is open: bytes that are written wait
        // for the next one, as long as there is room.
        flow.sink.may_use(covered) && (!self.is_a_master_that_waits(flow) || takes_more(flow))
    }

    /// Returns these bytes, or as many as a terminal accepts without blocking. Bytes for
    /// another device are not cut: each write may be a record, and a shorter one may block too.
    pub(in crate::path) fn piece<'b>(&mut self, flow: &Flow<'_>, bytes: &'b [u8]) -> &'b [u8] {
        let facts = flow.sink.facts();
        if facts.kind != Kind::Tty || facts.nonblocking || flow.mode.may_sleep() {
            return bytes;
        }
        let piece = match self.is_a_master_that_waits(flow) {
            true => PIECE_OF_MASTER,
            false => PIECE,
        };
        &bytes[..bytes.len().min(piece)]
    }

    fn is_a_master_that_waits(&mut self, flow: &Flow<'_>) -> bool {
        let facts = flow.sink.facts();
        let waits = facts.kind == Kind::Tty && !facts.nonblocking && !flow.mode.may_sleep();
        let ask = || is_pty_master(flow.sink.fd());
        waits && *self.is_master.get_or_insert_with(ask)
    }
}

fn takes_more(flow: &Flow<'_>) -> bool {
    use rustix::event::PollFlags;
    // If the query fails, the earlier poll counts.
    poll_now(flow.sink.fd(), PollFlags::OUT)
        .map_or(true, |shown| shown.shows(PollFlags::OUT) != Some(false))
}
