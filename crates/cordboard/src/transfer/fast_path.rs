//! A short transfer between two pipes: one call, before anything else is checked.
//!
//! Examining two descriptors takes longer than moving 4 KiB between them. For two
//! pipes, `splice(2)` itself reports nearly every obstacle: a descriptor that is
//! not open for its direction (`EBADF`), one pipe on both sides (`EINVAL`), an
//! empty source or a full sink (`EAGAIN`). It does not report packets in the
//! source, or a sink in packet mode. If it does not move all bytes, the full
//! transfer follows.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, fcntl_getfl};
use rustix::pipe::{SpliceFlags, fcntl_getpipe_size, splice};

use crate::pipe::packets::is_a_stream;
use crate::report::{Chosen, Ended, Failure, PathUse, Report};
use crate::request::{DataPath, Switches};
use crate::sys::{SignalGuard, page_size, sigpipe_is_ignored, unsent};

/// The default capacity of a pipe. One call cannot move more, and for more it pays
/// to enlarge the pipe.
const MOST: u64 = 64 << 10;

/// The result of the fast path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct FastPath {
    pub(super) moved: u64,
    elapsed: Duration,
}

/// Moves as many bytes as one call can move without blocking, if both are pipes.
pub(super) fn fast_path(source: BorrowedFd<'_>, sink: BorrowedFd<'_>, size: u64) -> FastPath {
    let start = Instant::now();
    let moved = if size == 0 || size > MOST {
        0
    } else {
        call(source, sink, size, start).unwrap_or(0)
    };
    FastPath {
        moved,
        elapsed: start.elapsed(),
    }
}

fn call(source: BorrowedFd<'_>, sink: BorrowedFd<'_>, size: u64, now: Instant) -> Option<u64> {
    // EBADF for anything but a pipe, at half the cost of `fstat(2)`.
    fcntl_getpipe_size(sink).ok()?;
    // Spliced bytes form no packet, and the reader expects packets.
    if fcntl_getfl(sink).ok()?.contains(OFlags::DIRECT) {
        return None;
    }
    // A splice of less than a page uses up a slot; a write continues the last page.
    if size < page_size() as u64 && unsent(sink) != Ok(0) {
        return None;
    }
    if !Switches::from_env().ok()?.allows(DataPath::Splice) {
        return None;
    }
    let length = is_a_stream(source, size as usize, now)?;
    // Saves two calls if SIGPIPE is still ignored; costs one if not.
    let hold = if IGNORED.load(Ordering::Relaxed) && sigpipe_is_ignored() {
        None
    } else {
        if IGNORED.load(Ordering::Relaxed) {
            IGNORED.store(false, Ordering::Relaxed);
        }
        Some(SignalGuard::start()?)
    };
    let done = splice(source, None, sink, None, length, SpliceFlags::NONBLOCK);
    if let Some(hold) = hold
        && done == Ok(length)
    {
        // Readers are checked before each buffer is moved, and none was missing
        // (`splice_pipe_to_pipe`, fs/splice.c): no signal was raised.
        hold.end_quietly();
    }
    done.ok().map(|n| n as u64)
}

/// False once a check has found that the host does not ignore `SIGPIPE`, the only
/// signal that a write to a pipe raises.
static IGNORED: AtomicBool = AtomicBool::new(true);

impl FastPath {
    /// Returns the report if nothing is left to do.
    pub(super) fn report(self) -> Report {
        self.add(Report {
            ended: Ended::Size,
            ..Report::default()
        })
    }

    /// Adds the bytes moved here to the result of the rest.
    pub(super) fn before(self, rest: Result<Report, Failure>) -> Result<Report, Failure> {
        match rest {
            Ok(report) => Ok(self.add(report)),
            Err(mut failure) => {
                failure.report = Box::new(self.add(*failure.report));
                Err(failure)
            }
        }
    }

    fn add(self, mut report: Report) -> Report {
        report.read += self.moved;
        report.written += self.moved;
        report.elapsed += self.elapsed;
        if self.moved == 0 {
            return report;
        }
        match (report.by_path.iter_mut()).find(|one| one.path == DataPath::Splice) {
            Some(rest) => rest.bytes += self.moved,
            None => {
                report.path.insert(0, DataPath::Splice);
                report
                    .by_path
                    .insert(0, PathUse::new(DataPath::Splice, self.moved, Chosen::First));
            }
        }
        report
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::pipe::pipe;

    use super::*;
    use crate::endpoint::Side;
    use crate::errno::Errno;
    use crate::{Size, splice};

    /// Returns whether `splice(2)` works here.
    fn splices() -> bool {
        testkit::needs::Need::Splice.is_met()
    }

    fn filled(bytes: usize) -> (std::os::fd::OwnedFd, std::os::fd::OwnedFd) {
        let (reader, writer) = pipe().unwrap();
        rustix::io::write(&writer, &vec![7; bytes]).unwrap();
        (reader, writer)
    }

    #[test]
    fn all_at_once_and_in_two_parts_count_the_same() {
        let _only = testkit::child::without_children();
        let path = match splices() {
            true => DataPath::Splice,
            false => DataPath::ReadWrite,
        };
        for (there, size, ended) in [
            (4096, 4096, Ended::Size),
            (4096, 1, Ended::Size),
            (100, 4096, Ended::Eof),
        ] {
            let (source, feed) = filled(there);
            drop(feed);
            let (_drain, sink) = pipe().unwrap();
            let report = splice(&source, &sink, Size::Bytes(size)).unwrap();
            let moved = size.min(there as u64);
            assert_eq!((report.read, report.written), (moved, moved));
            assert_eq!((report.ended, report.path[0]), (ended, path));
        }
    }

    #[test]
    fn what_cannot_be_moved_is_left_for_the_transfer() {
        let (source, _feed) = filled(page_size());
        let file = tempfile::tempfile().unwrap();
        assert_eq!(
            fast_path(source.as_fd(), file.as_fd(), page_size() as u64).moved,
            0
        );
        let (reader, sink) = pipe().unwrap();
        assert_eq!(fast_path(source.as_fd(), sink.as_fd(), MOST + 1).moved, 0);
        drop(reader);
        let failure = splice(&source, &sink, Size::Bytes(page_size() as u64)).unwrap_err();
        assert_eq!(failure.report.failed, Some(Side::Sink));
        assert_eq!(failure.report.errno, Some(Errno::EPIPE));
        // Read/write fills a buffer before its write finds no reader.
        let taken = if splices() { 0 } else { page_size() as u64 };
        assert_eq!(
            (failure.report.read, failure.report.stranded),
            (taken, taken)
        );
    }
}
