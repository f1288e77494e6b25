//! The account of a buffered transfer.

use rustix::fs::{SeekFrom, seek, tell};

use super::outcome::BufferedOutcome;
use super::store::Store;
use super::unwritten::{Part, Unwritten};
use crate::compose::{bytes_of, excuse_reader, length_of};
use crate::endpoint::{Endpoint, Side};
use crate::errno::Errno;
use crate::report::{Ended, Outcome};
use crate::request::Request;

/// The result of the transfer from the source.
pub(super) struct Taken {
    /// The outcome of the transfer from the source.
    pub(super) outcome: Outcome,
    pub(super) store: Store,
    /// The errno of the buffer.
    pub(super) failed: Option<Errno>,
    /// That is the errno of a wait.
    pub(super) wait_failed: bool,
    pub(super) most: u64,
}

/// The result of the transfer to the sink.
pub(super) struct Drained {
    /// The outcome of the transfer to the sink.
    pub(super) outcome: Outcome,
    /// The content of the first pipe.
    pub(super) first: Vec<Vec<u8>>,
    /// The content of the second pipe.
    pub(super) second: Vec<Vec<u8>>,
}

/// Collects the account.
pub(super) fn outcome(
    taken: Taken,
    drained: Drained,
    from: &Endpoint<'_>,
    request: &Request,
    size: u64,
) -> BufferedOutcome {
    let (source, mut sink) = (taken.outcome.report, drained.outcome.report);
    let (mut read, written) = (source.read, sink.written);
    let mut stranded = read.saturating_sub(written);
    let stored = taken.store.stored;
    let mut last = bytes_of(drained.outcome.stranded);
    if length_of(&last) == sink.stranded {
        last.extend(drained.second);
    }
    let mut parts: Vec<Part> = last.into_iter().map(Part::Bytes).collect();
    let readable = parts.len();
    parts.extend(taken.store.into_parts());
    let after = drained
        .first
        .into_iter()
        .chain(bytes_of(taken.outcome.stranded));
    parts.extend(after.map(Part::Bytes));
    // A page could not be read: the caller would take bytes behind the gap for the missing
    // ones.
    if parts.iter().map(Part::len).sum::<u64>() < stranded {
        parts.truncate(readable);
    }
    if stranded == 0 && matches!(source.ended, Ended::Eof | Ended::Size) {
        excuse_reader(&mut sink);
    }
    if stranded > 0 && rewind(from, request, read, stranded) {
        (read, stranded) = (written, 0);
    }
    let unwritten = (stranded > 0).then(|| Unwritten::new(parts));
    let (ended, failed, errno) = match (sink.ended, taken.failed, source.ended) {
        (Ended::Eof, Some(errno), _) => (Ended::Error, None, Some(errno)),
        (Ended::Eof, None, Ended::Error) => (Ended::Error, Some(Side::Source), source.errno),
        (Ended::Eof, None, ended) => (ended, None, None),
        (Ended::Error, ..) => (Ended::Error, Some(Side::Sink), sink.errno),
        (ended, ..) => (ended, None, None),
    };
    BufferedOutcome {
        read,
        written,
        stranded,
        ended,
        failed,
        wait_failed: taken.wait_failed && (ended, failed) == (Ended::Error, None),
        errno,
        size,
        most: taken.most,
        stored,
        source,
        sink,
        unwritten,
    }
}

/// Rewinds a seekable source over bytes that the sink has not accepted. Returns `false` if
/// the source cannot seek, or if another process has moved its position.
fn rewind(source: &Endpoint<'_>, request: &Request, read: u64, back: u64) -> bool {
    let facts = source.facts();
    let Some(start) = facts.position.filter(|_| facts.kind.is_cached()) else {
        return false;
    };
    if request.source_offset.is_some() {
        // The position was not used.
        return true;
    }
    let fd = source.fd();
    tell(fd) == Ok(start + read) && seek(fd, SeekFrom::Start(start + read - back)).is_ok()
}
