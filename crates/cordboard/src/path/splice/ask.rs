//! Queries of the ends, for facts that the result of a call does not show.

use rustix::pipe::SpliceFlags;

use super::pipe_to_pipe::holds_bytes;
use crate::endpoint::{Kind, Side};
use crate::errno::Errno;
use crate::path::flow::Flow;
use crate::path::verdict::Verdict;
use crate::pipe::{self, Channel, OwnedPipe};
use crate::request::Why;
use crate::sys;

/// Tests whether the sink accepts pages at all, before anything is taken from a
/// source that cannot be rewound: splicing from the empty private pipe gives `EAGAIN`
/// if it would work, and the refusal if it would not.
pub(super) fn probe(flow: &mut Flow<'_>, pipe: &OwnedPipe) -> Result<(), Why> {
    // Without an offset the call writes back the position that it began with
    // (`do_splice`, fs/splice.c), and another process may have moved it.
    let mut to = match flow.claims_sink() {
        true => flow.sink.offset(),
        false => flow.sink.cursor.place(),
    };
    let done = rustix::pipe::splice(
        pipe.reader(),
        None,
        flow.sink.fd(),
        to.as_mut(),
        1,
        SpliceFlags::NONBLOCK,
    );
    match done.map_err(Errno::from) {
        Err(errno @ (Errno::EINVAL | Errno::EOPNOTSUPP | Errno::ENOSYS | Errno::EPERM)) => {
            Err(errno.into())
        }
        _ => Ok(()),
    }
}

/// Whether splicing could block a thread that must not block. Another path is used
/// then, if there is one.
pub(crate) fn could_wait(flow: &Flow<'_>) -> bool {
    flow.sink_could_wait() || flow.source_could_wait()
}

/// Whether the contents of a private pipe may be copied through memory after this
/// errno of a splice to the sink: the sink accepts no pages, or memory is short for
/// them, or one of them is no longer valid (`EIO`, `page_cache_pipe_buf_confirm` in
/// fs/splice.c), which is not the sink's failure; or the stream socket takes no send as
/// long as this (`EMSGSIZE`).
pub(super) fn refuses_pages(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::EINVAL
            | Errno::EOPNOTSUPP
            | Errno::ENOSYS
            | Errno::EIO
            | Errno::ENOMEM
            | Errno::ENOBUFS
            | Errno::EMSGSIZE
    )
}

/// Returns how many bytes the next step takes from a pipe. Into a claimed range, no
/// more than the pipe holds.
pub(super) fn available_step(flow: &mut Flow<'_>, step: usize) -> Result<usize, Verdict> {
    let step = flow.want(step);
    if !flow.claims_sink() {
        return Ok(step);
    }
    match sys::unsent(flow.source.fd()) {
        // `poll(2)` need not show its end (`fifo_open`, fs/pipe.c).
        Ok(0) if flow.source.kind() == Kind::Fifo => match sys::is_over(flow.source.fd()) {
            Some(true) => Err(Verdict::Ended),
            // A claim without bytes stays a hole, if another process writes
            // meanwhile.
            Some(false) => Err(Verdict::Blocked(Side::Source)),
            None => Ok(flow.claim_sink(step.min(1))),
        },
        Ok(0) => match flow.source_has_ended() {
            Ok(Some(true)) => Err(Verdict::Ended),
            Ok(None) => Ok(flow.claim_sink(step.min(1))),
            _ => Err(Verdict::Blocked(Side::Source)),
        },
        Ok(there) => {
            let there = usize::try_from(there).unwrap_or(usize::MAX);
            Ok(flow.claim_sink(step.min(there)))
        }
        // Another process may move the position during a splice without a claim.
        Err(errno) => Err(Verdict::Declined(errno.into())),
    }
}

/// Whether another process has taken bytes from the pipe for which a range of the
/// sink was claimed.
pub(super) fn others_take(flow: &Flow<'_>, length: usize, done: Result<usize, Errno>) -> bool {
    let rest = match done {
        Ok(n @ 1..) => length.saturating_sub(n),
        Err(Errno::EAGAIN) => length,
        _ => 0,
    };
    let there = || sys::unsent(flow.source.fd());
    rest > 0
        && flow.sink.cursor.claimed().is_some()
        && there().is_ok_and(|there| there < rest as u64)
}

/// Finds which descriptor is not ready after `EAGAIN` of one call on two.
pub(super) fn which_is_not_ready(flow: &Flow<'_>) -> Side {
    let from_pipe = flow.source.kind().is_pipe();
    if from_pipe && flow.sink.kind().is_cached() {
        // A file is always writable. Another reader has taken the bytes, and the pipe
        // may hold new ones.
        return Side::Source;
    }
    if from_pipe {
        return match holds_bytes(flow) {
            true => Side::Sink,
            false => Side::Source,
        };
    }
    match pipe::has_room(flow.sink.fd()) {
        true => Side::Source,
        false => Side::Sink,
    }
}
