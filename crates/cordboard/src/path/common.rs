//! What several paths ask.

use super::flow::Flow;
use super::verdict::Verdict;
use crate::endpoint::{Facts, Side};
use crate::errno::Errno;
use crate::request::Why;

/// Both sides are files with content and positions.
pub(super) fn both_files(source: &Facts, sink: &Facts) -> Result<(), Why> {
    if source.kind.is_file() && sink.kind.is_file() {
        Ok(())
    } else {
        Err(Why::Kinds("not between two files"))
    }
}

/// Why nothing is taken from a source that is [unpaged](Facts::unpaged).
pub(super) const UNPAGED: &str = "its server has, or may have, the source read past the page cache";

/// There is no room, or no memory, for what the call does. From a source it
/// need not be final: before Linux 5.18, tmpfs allocates a hole that is read by
/// pages (`shmem_file_read_iter`, `SGP_CACHE`; removed in 56a8c8eb1eaf), which
/// gives `ENOSPC`, `EFBIG` and `ENOMEM`, and with quotas `EDQUOT`; `read(2)`
/// takes zeros. From a sink it is: the next path's write says so again.
pub(crate) fn needs_room(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::ENOSPC | Errno::EDQUOT | Errno::EFBIG | Errno::ENOMEM | Errno::ENOBUFS
    )
}

/// Why nothing is spliced, where [`Flow::sink_could_wait`], or the source could.
pub(super) const COULD_WAIT: &str = "a blocking socket can keep the thread that splices";

/// For calls that do not tell which side failed: reads one byte where the
/// source stands. A source that reads well leaves the sink.
pub(super) fn blame(flow: &mut Flow<'_>, errno: Errno) -> Verdict {
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
