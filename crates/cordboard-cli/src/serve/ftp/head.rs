//! The first bytes of a download, which the session's thread sends.
//!
//! A control descriptor takes several wake-ups of threads until its first byte and after its
//! last one, and a second thread competes with the client for the processors. So a transfer that
//! ends before it could be listed has none.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use cordboard::cue::{Done, Status};
use cordboard::{DataPath, Ended, Endpoint, Outcome, Request, Stepping, Transfer};
use rustix::fs::FileType;
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::listed;
use crate::files::kind;

/// The age at which the control descriptor takes over: a transfer of this age is listed.
pub const LONGEST: Duration = listed::AFTER;

/// The number of steps between two looks at the control connection.
const STEPS: u32 = 4;
/// The most bytes that a step reads.
const STEP: u64 = 2 << 20;

/// What was sent.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sent {
    pub read: u64,
    pub written: u64,
    pub elapsed: Duration,
    pub path: Option<DataPath>,
    /// The end, if the control descriptor has nothing left to do.
    pub done: Option<Done>,
}

/// The transfer of the first bytes of a file that is cached.
pub struct Head<'a> {
    stepping: Stepping<'a>,
    /// Returns whether the reads of the next step do not wait. The argument is the number of bytes
    /// that were read.
    reads_at_once: Box<dyn Fn(u64) -> bool + 'a>,
    end: End,
}

/// How the head ends before the file does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    /// The control descriptor takes over.
    HandsOver,
    Cancelled,
}

impl<'a> Head<'a> {
    /// Prepares the transfer. `None`: a read may wait, or the transfer is refused. It is left to
    /// the control descriptor, which reports a refusal.
    pub fn new(source: &'a OwnedFd, sink: &'a OwnedFd) -> Option<Head<'a>> {
        let (start, size) = range_of(source)?;
        let in_memory = match piece_at_once(source, start, size) {
            Ok(()) => false,
            // At the end of a file, up to Linux 5.11.
            Err(Errno::AGAIN) if start >= size => false,
            // A pseudo file, whose bytes cannot be handed back, does not support it either.
            Err(Errno::OPNOTSUPP) if is_in_memory(source) => true,
            Err(_) => return None,
        };
        Head::checked(source, sink, move |read| {
            let first = start + read;
            in_memory || first >= size || piece_at_once(source, first, size).is_ok()
        })
    }

    fn checked(
        source: &'a OwnedFd,
        sink: &'a OwnedFd,
        reads_at_once: impl Fn(u64) -> bool + 'a,
    ) -> Option<Head<'a>> {
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), Request::default());
        let stepping = transfer.and_then(Transfer::stepping).ok()?;
        Some(Head {
            stepping,
            reads_at_once: Box::new(reads_at_once),
            end: End::Open,
        })
    }

    /// Takes a few steps until this time, if steps are possible. Hands over where a read may wait.
    /// Returns what was sent at the end.
    pub fn advance(&mut self, until: Instant) -> Option<Sent> {
        for _ in 0..STEPS {
            if let Some(outcome) = self.stepping.step() {
                return Some(self.sent(&outcome));
            }
            if self.end == End::Open && !(self.reads_at_once)(self.stepping.progress().read) {
                self.hand_over();
            }
            if !self.is_due() || Instant::now() >= until {
                break;
            }
        }
        None
    }

    /// Returns whether steps are possible without an event.
    pub fn is_due(&self) -> bool {
        self.stepping.is_due()
    }

    /// Returns whether the next steps only end the transfer.
    pub fn is_ending(&self) -> bool {
        self.end != End::Open
    }

    /// Ends the transfer. The file is rewound to the first byte that the socket has not accepted.
    pub fn hand_over(&mut self) {
        self.end_by(End::HandsOver);
    }

    /// Ends the transfer. The control descriptor has nothing left to do.
    pub fn cancel(&mut self) {
        self.end_by(End::Cancelled);
    }

    fn end_by(&mut self, end: End) {
        if self.end != End::Cancelled {
            self.end = end;
            self.stepping.cancel();
        }
    }

    /// Returns what was sent so far.
    pub fn status(&self) -> Status {
        let progress = self.stepping.progress();
        let mut status = Status::idle();
        (status.read, status.written) = (progress.read, progress.written);
        status.elapsed = progress.elapsed;
        status
    }

    fn sent(&self, outcome: &Outcome) -> Sent {
        let report = &outcome.report;
        let done = Done::of(1, report);
        let goes_on =
            self.end == End::HandsOver && report.ended == Ended::Cancelled && report.stranded == 0;
        Sent {
            read: report.read,
            written: report.written,
            elapsed: report.elapsed,
            path: done.path,
            done: (!goes_on).then_some(done),
        }
    }
}

impl AsFd for Head<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stepping.as_fd()
    }
}

impl Sent {
    /// Adds these bytes and their time to a status of the control descriptor.
    pub fn added_to_status(&self, mut status: Status) -> Status {
        status.read += self.read;
        status.written += self.written;
        status.elapsed += self.elapsed;
        status
    }

    /// Adds these bytes and their time to the end of the control descriptor's transfer, and their
    /// path if it has moved none.
    pub fn added_to_end(&self, mut done: Done) -> Done {
        done.read += self.read;
        done.written += self.written;
        done.elapsed += self.elapsed;
        done.path = done.path.or(self.path);
        done
    }
}

/// Returns the position in a regular file, and its size.
fn range_of(file: &OwnedFd) -> Option<(u64, u64)> {
    let about = cordboard::fstat(file).ok()?;
    let is_file = kind(&about) == FileType::RegularFile;
    let start = rustix::fs::tell(file).ok()?;
    is_file.then_some((start, about.st_size as u64))
}

/// Returns whether a file is in memory, where no read waits. `RWF_NOWAIT` is not supported there.
fn is_in_memory(file: &OwnedFd) -> bool {
    let source = Endpoint::probe(file.as_fd()).ok();
    let filesystem = source.and_then(|source| source.facts().filesystem);
    filesystem.is_some_and(|filesystem| filesystem.is_in_memory())
}

/// Returns whether the first and the last page of the next step can be read without a wait. Pages
/// that a full socket did not accept were read just now, so the last one tells more.
fn piece_at_once(file: &OwnedFd, first: u64, size: u64) -> Result<(), Errno> {
    /// The smallest page.
    const PAGE: u64 = 4096;
    read_at_once(file, first)?;
    let last = (first + STEP).min(size).saturating_sub(1);
    match last / PAGE > first / PAGE {
        true => read_at_once(file, last),
        false => Ok(()),
    }
}

/// Reads a byte at this position if that does not wait: the page is in the page cache. A file of a
/// server that does not answer would block the session.
fn read_at_once(file: &OwnedFd, position: u64) -> Result<(), Errno> {
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    preadv2(file, &mut parts, position, ReadWriteFlags::NOWAIT).map(|_| ())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read as _, Seek as _, Write as _};
    use std::os::unix::net::UnixStream;

    use cordboard::Report;
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::fs::Advice;

    use super::*;

    fn file(bytes: u64) -> OwnedFd {
        let fd = rustix::fs::memfd_create("head", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mut file = File::from(fd);
        let content: Vec<u8> = (0..bytes).map(|n| (n % 251) as u8).collect();
        file.write_all(&content).unwrap();
        file.rewind().unwrap();
        file.into()
    }

    fn pair() -> (OwnedFd, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        (near.into(), far)
    }

    fn later() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    /// Sends a head to its end, to a client that may read meanwhile.
    fn to_the_end(mut head: Head<'_>) -> Sent {
        loop {
            if let Some(sent) = head.advance(later()) {
                return sent;
            }
            let mut fds = [PollFd::new(&head, PollFlags::IN)];
            poll(&mut fds, None).unwrap();
        }
    }

    fn head_of(source: &OwnedFd, sink: &OwnedFd) -> Sent {
        to_the_end(Head::new(source, sink).unwrap())
    }

    /// Takes steps until the socket is full.
    fn filled<'a>(source: &'a OwnedFd, sink: &'a OwnedFd) -> Head<'a> {
        let mut head = Head::new(source, sink).unwrap();
        while head.is_due() {
            assert!(head.advance(later()).is_none());
        }
        head
    }

    #[test]
    fn a_small_file_is_sent_whole() {
        for bytes in [0, 1, 5000] {
            let (sink, mut client) = pair();
            let sent = head_of(&file(bytes), &sink);
            assert_eq!((sent.read, sent.written), (bytes, bytes));
            let done = sent.done.unwrap();
            assert_eq!((done.ended, done.written), (Ended::Eof, bytes));
            drop(sink);
            let mut got = Vec::new();
            client.read_to_end(&mut got).unwrap();
            assert_eq!(got.len() as u64, bytes);
        }
    }

    #[test]
    fn a_long_file_is_sent_whole_to_a_client_that_reads() {
        const BYTES: u64 = 40 << 20;
        let (sink, mut client) = pair();
        let reader = std::thread::spawn(move || std::io::copy(&mut client, &mut std::io::sink()));
        let sent = head_of(&file(BYTES), &sink);
        drop(sink);
        assert_eq!(sent.done.unwrap().ended, Ended::Eof);
        assert_eq!(
            (sent.written, reader.join().unwrap().unwrap()),
            (BYTES, BYTES)
        );
    }

    #[test]
    fn the_rest_of_a_long_file_begins_where_the_head_ends() {
        let (sink, mut client) = pair();
        let source = file(4 << 20);
        let mut head = filled(&source, &sink);
        head.hand_over();
        let sent = to_the_end(head);
        assert!(sent.done.is_none());
        assert_eq!(sent.read, sent.written);
        assert_eq!(rustix::fs::tell(&source).unwrap(), sent.written);
        drop(sink);
        let mut got = Vec::new();
        client.read_to_end(&mut got).unwrap();
        assert_eq!(got.len() as u64, sent.written);
        assert!(
            (0_u64..)
                .zip(&got)
                .all(|(n, byte)| *byte == (n % 251) as u8)
        );
    }

    #[test]
    fn a_cancelled_head_hands_nothing_over() {
        let (sink, _client) = pair();
        let source = file(4 << 20);
        let mut head = filled(&source, &sink);
        head.cancel();
        head.hand_over();
        let done = to_the_end(head).done.unwrap();
        assert_eq!(done.ended, Ended::Cancelled);
    }

    #[test]
    fn it_hands_over_where_a_read_may_wait() {
        const CACHED: u64 = 8 << 20;
        let source = file(CACHED + (32 << 20));
        let (sink, mut client) = pair();
        let reader = std::thread::spawn(move || std::io::copy(&mut client, &mut std::io::sink()));
        let head = Head::checked(&source, &sink, |read| read < CACHED).unwrap();
        let sent = to_the_end(head);
        drop(sink);
        assert!(sent.done.is_none());
        assert!((CACHED..=CACHED + STEP).contains(&sent.written), "{sent:?}");
        assert_eq!(reader.join().unwrap().unwrap(), sent.written);
    }

    /// A preview has read its first pages.
    #[test]
    fn a_file_of_which_only_the_beginning_is_cached_has_no_head() {
        use std::os::unix::fs::FileExt as _;
        const BYTES: u64 = 1 << 20;
        let file = tempfile::tempfile_in(".").unwrap();
        file.write_all_at(&vec![1; BYTES as usize], 0).unwrap();
        file.sync_all().unwrap();
        for advice in [Advice::DontNeed, Advice::Random] {
            rustix::fs::fadvise(&file, 0, None, advice).unwrap();
        }
        file.read_exact_at(&mut [0], 0).unwrap();
        let file = OwnedFd::from(file);
        // The look itself starts a read of that page.
        if read_at_once(&file, 0).is_err() || read_at_once(&file, BYTES / 2).is_ok() {
            return testkit::skip::here("the pages of a file are cached together");
        }
        assert!(Head::new(&file, &pair().0).is_none());
    }

    /// The bytes that were read cannot be handed back.
    #[test]
    fn a_pseudo_file_is_left_to_the_control_descriptor() {
        let source = OwnedFd::from(File::open("/proc/self/status").unwrap());
        let (sink, _client) = pair();
        assert!(Head::new(&source, &sink).is_none());
    }

    #[test]
    fn the_end_of_a_file_on_a_disk_is_seen() {
        for pages in [1, 2] {
            let mut source = tempfile::tempfile_in(".").unwrap();
            source.write_all(&vec![1; pages * 4096]).unwrap();
            source.rewind().unwrap();
            let (sink, client) = pair();
            let done = head_of(&source.into(), &sink).done.unwrap();
            assert_eq!(
                (done.ended, done.written),
                (Ended::Eof, pages as u64 * 4096)
            );
            drop(client);
        }
    }

    #[test]
    fn a_client_that_has_left_ends_it() {
        let (sink, client) = pair();
        drop(client);
        let done = head_of(&file(5000), &sink).done.unwrap();
        assert_eq!(done.ended, Ended::Error);
        assert_eq!(done.errno, Some(cordboard::Errno::EPIPE));
    }

    #[test]
    fn what_may_wait_is_left_to_the_control_descriptor() {
        let (reader, writer) = std::io::pipe().unwrap();
        let (sink, _client) = pair();
        assert!(Head::new(&reader.into(), &sink).is_none());
        drop(writer);
    }

    #[test]
    fn counts_are_those_of_both_parts() {
        let sent = Sent {
            read: 5,
            written: 4,
            elapsed: Duration::from_millis(3),
            path: Some(DataPath::Sendfile),
            done: None,
        };
        let mut status = Status::idle();
        status.elapsed = Duration::from_millis(1);
        let status = sent.added_to_status(status);
        assert_eq!((status.read, status.written), (5, 4));
        assert_eq!(status.elapsed, Duration::from_millis(4));
        for (path, expected) in [
            (None, DataPath::Sendfile),
            (Some(DataPath::Splice), DataPath::Splice),
        ] {
            let mut done = Done::of(1, &Report::default());
            done.path = path;
            let done = sent.added_to_end(done);
            assert_eq!((done.read, done.written), (5, 4));
            assert_eq!(done.path, Some(expected));
        }
    }
}
