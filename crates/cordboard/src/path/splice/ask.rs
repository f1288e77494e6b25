//! Queries of the ends, for what the result of a call does not tell.

use rustix::pipe::SpliceFlags;

use crate::endpoint::{Kind, Side};
use crate::errno::Errno;
use crate::path::flow::Flow;
use crate::path::verdict::Verdict;
use crate::pipe::{self, Channel, OwnedPipe};
use crate::request::Why;
use crate::sys;

/// Tests whether the sink takes pages at all, before anything is taken from a
/// source that cannot be rewound: splicing from the empty private pipe gives
/// `EAGAIN` if it would work, and the refusal if it would not.
pub(super) fn probe(flow: &mut Flow<'_>, pipe: &OwnedPipe) -> Result<(), Why> {
    // Without an offset the call sets the position that it began with (`do_splice`,
    // fs/splice.c), and others may have moved it.
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

/// Nothing is spliced if that could block a thread that must not block, and
/// there is another way.
pub(super) fn could_wait(flow: &Flow<'_>) -> bool {
    flow.sink_could_wait() || flow.source_could_wait()
}

/// Whether what a private pipe holds may go by copying, after this errno of a splice
/// to the sink: the sink takes no pages, or memory is short for them, or one of them
/// is not valid any more (`EIO`, `page_cache_pipe_buf_confirm` in fs/splice.c), which
/// is no fault of the sink's.
pub(super) fn refuses_pages(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::EINVAL
            | Errno::EOPNOTSUPP
            | Errno::ENOSYS
            | Errno::EIO
            | Errno::ENOMEM
            | Errno::ENOBUFS
    )
}

/// How many bytes the next step takes from a pipe. Into a place that is claimed
/// for them, no more than there are.
pub(super) fn what_is_there(flow: &mut Flow<'_>, step: usize) -> Result<usize, Verdict> {
    let step = flow.want(step);
    if !flow.claims_sink() {
        return Ok(step);
    }
    match sys::unsent(flow.source.fd()) {
        // Its end need not show to `poll(2)` (`fifo_open`, fs/pipe.c).
        Ok(0) if flow.source.kind() == Kind::Fifo => match sys::is_over(flow.source.fd()) {
            Some(true) => Err(Verdict::Ended),
            // What is claimed for nothing stays a hole, if others write meanwhile.
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
        // Others may move the position during a splice that nothing is claimed for.
        Err(errno) => Err(Verdict::Declined(errno.into())),
    }
}

/// Whether others have taken from the pipe what a range of the sink was claimed for.
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

/// After `EAGAIN` of one call on two descriptors: which one is not ready.
pub(super) fn which_is_not_ready(flow: &Flow<'_>) -> Side {
    let source = flow.source.fd();
    let from_pipe = flow.source.kind().is_pipe();
    if from_pipe && flow.sink.kind().is_cached() {
        // A file is always writable. Another reader has taken the bytes, and the
        // pipe may hold new ones.
        return Side::Source;
    }
    if from_pipe {
        return match sys::unsent(source) {
            Ok(0) | Err(_) => Side::Source,
            Ok(_) => Side::Sink,
        };
    }
    match pipe::has_room(flow.sink.fd()) {
        true => Side::Source,
        false => Side::Sink,
    }
}
