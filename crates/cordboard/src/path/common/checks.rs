//! Checks shared by several paths.

use crate::endpoint::{Facts, Kind, Side};
use crate::errno::Errno;
use crate::path::flow::Flow;
use crate::path::verdict::Verdict;
use crate::request::Why;
use crate::sys;

/// Fails unless both sides are files with content and positions.
pub(in crate::path) fn both_files(source: &Facts, sink: &Facts) -> Result<(), Why> {
    if source.kind.is_file() && sink.kind.is_file() {
        Ok(())
    } else {
        Err(Why::Kinds("not between two files"))
    }
}

/// Why no pages are taken from a source that is [unpaged](Facts::unpaged).
pub(in crate::path) const UNPAGED: &str = "reads of the source may bypass the page cache";

/// Why no pages go to a sink that [may have records](Facts::has_pieces). The driver would
/// get a record in parts, none larger than the pipe. A driver without `splice_write` gets
/// each page alone before Linux 5.10 (`default_file_splice_write`, fs/splice.c), and
/// refuses pages with `EINVAL` since then.
pub(in crate::path) const RECORDS: &str = "each write to the sink may be a record";

/// Whether the errno reports a lack of space or memory. For a source this need
/// not be final: before Linux 5.18, tmpfs allocates a hole that is read by
/// pages (`shmem_file_read_iter`, `SGP_CACHE`; removed in 56a8c8eb1eaf), which
/// gives `ENOSPC`, `EFBIG` and `ENOMEM`, and with quotas `EDQUOT`; `read(2)`
/// returns zeros. For a sink it is final: the next path's write fails the same
/// way.
pub(crate) fn needs_room(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::ENOSPC | Errno::EDQUOT | Errno::EFBIG | Errno::ENOMEM | Errno::ENOBUFS
    )
}

/// Why nothing is spliced if [`Flow::sink_could_wait`] or
/// [`Flow::source_could_wait`].
pub(in crate::path) const COULD_WAIT: &str = "splicing a blocking socket could block the thread";

/// Why nothing is spliced if [`defers_connection`].
pub(in crate::path) const DEFERRED: &str = "the first send has to begin the connection";

/// Whether no page may be the first to be sent to the sink, because its connection is deferred to
/// the first send, and another path can send. Up to Linux 6.4, a call that sends pages does not
/// begin the connection, and waits for it (`do_tcp_sendpages`, net/ipv4/tcp.c): a blocking socket
/// for ever, while `poll(2)` shows one with `O_NONBLOCK` as writable.
pub(in crate::path) fn defers_connection(flow: &Flow<'_>) -> bool {
    flow.sink.kind() == Kind::Tcp && flow.has_next() && sys::defers_connection(flow.sink.fd())
}

/// Finds the side that failed, for calls that do not report it: reads one byte
/// at the source's position. If that succeeds, the sink failed.
pub(in crate::path) fn blame(flow: &mut Flow<'_>, errno: Errno) -> Verdict {
    match errno {
        // Only writing can give these.
        Errno::EPIPE | Errno::EROFS => Verdict::Failed(Side::Sink, errno),
        _ => match flow.source_goes_on() {
            Err(Errno::EINTR) => flow.was_interrupted(Side::Source),
            Err(errno) => Verdict::Failed(Side::Source, errno),
            Ok(_) => Verdict::Failed(Side::Sink, errno),
        },
    }
}
