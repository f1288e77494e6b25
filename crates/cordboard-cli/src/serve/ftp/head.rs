//! The first bytes of a download, which the session's thread sends.
//!
//! A control descriptor takes several wake-ups of threads until its first byte and after its
//! last one. On an idle machine these take longer than a small file. So the first bytes are sent
//! before: a small file is complete then, and the client of a longer one is busy meanwhile.

use std::io::IoSliceMut;
use std::os::fd::{AsFd, OwnedFd};

use cordboard::cue::{Done, Status};
use cordboard::{Ended, Endpoint, Outcome, Request, Stepping, Transfer};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::FileType;
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use crate::files::kind;
use crate::polling::poll_or_rest;

/// The number of bytes after which the control descriptor takes over. The client reads the bytes in
/// the buffers of the connection while it starts. From 8 MiB on, a transfer may try other paths.
const MOST: u64 = 8 << 20;

/// What was sent.
#[derive(Debug, Clone, Copy, Default)]
pub struct Head {
    pub read: u64,
    pub written: u64,
    /// The end, if the control descriptor has nothing left to do.
    pub done: Option<Done>,
}

impl Head {
    /// Sends the first bytes of a file that is cached, as far as the socket accepts them at once.
    pub fn send(source: &OwnedFd, sink: &OwnedFd) -> Head {
        let Some((start, size)) = range_of(source) else {
            return Head::default();
        };
        // At the end of a file, preadv2(2) returns EAGAIN up to Linux 5.11.
        let reads_at_once = |n| start + n >= size || reads_at_once(source, start + n);
        if !reads_at_once(0) {
            return Head::default();
        }
        // What is refused here is also refused to the control descriptor, which reports it.
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), Request::default());
        match transfer.and_then(Transfer::stepping) {
            Ok(stepping) => Head::steps(stepping, reads_at_once),
            Err(_) => Head::default(),
        }
    }

    /// Takes steps while the socket accepts bytes, up to the first one behind [`MOST`], or behind
    /// which a read may wait.
    fn steps(mut stepping: Stepping<'_>, reads_at_once: impl Fn(u64) -> bool) -> Head {
        while stepping.is_due() {
            if let Some(outcome) = stepping.step() {
                return Head::of(&outcome, true);
            }
            let sent = stepping.progress().written;
            if sent >= MOST || !reads_at_once(sent) {
                break;
            }
        }
        // The file is rewound to the first byte that the socket has not accepted.
        stepping.cancel();
        loop {
            if let Some(outcome) = stepping.step() {
                let is_cancelled = outcome.report.ended == Ended::Cancelled;
                return Head::of(&outcome, !is_cancelled || outcome.report.stranded > 0);
            }
            if !stepping.is_due() {
                let _ = poll_or_rest(&mut [PollFd::new(&stepping, PollFlags::IN)], None);
            }
        }
    }

    fn of(outcome: &Outcome, is_end: bool) -> Head {
        Head {
            read: outcome.report.read,
            written: outcome.report.written,
            done: is_end.then(|| Done::of(1, &outcome.report)),
        }
    }

    /// Adds these bytes to a status of the control descriptor.
    pub fn before_status(&self, mut status: Status) -> Status {
        status.read += self.read;
        status.written += self.written;
        status
    }

    /// Adds these bytes to the end of the control descriptor's transfer.
    pub fn before_done(&self, mut done: Done) -> Done {
        done.read += self.read;
        done.written += self.written;
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

/// Returns whether a read at this position does not wait: the file is in memory, or the page is in
/// the page cache. A file of a server that does not answer would block the session.
fn reads_at_once(file: &OwnedFd, position: u64) -> bool {
    let mut byte = [0];
    let mut parts = [IoSliceMut::new(&mut byte)];
    match preadv2(file, &mut parts, position, ReadWriteFlags::NOWAIT) {
        Ok(_) => true,
        Err(Errno::OPNOTSUPP) => {
            let source = Endpoint::probe(file.as_fd()).ok();
            let filesystem = source.and_then(|source| source.facts().filesystem);
            filesystem.is_some_and(|filesystem| filesystem.is_in_memory())
        }
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read as _, Seek as _, Write as _};
    use std::os::unix::net::UnixStream;

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

    #[test]
    fn a_small_file_is_sent_whole() {
        for bytes in [0, 1, 5000] {
            let (sink, mut client) = pair();
            let head = Head::send(&file(bytes), &sink);
            assert_eq!((head.read, head.written), (bytes, bytes));
            let done = head.done.unwrap();
            assert_eq!((done.ended, done.written), (Ended::Eof, bytes));
            drop(sink);
            let mut got = Vec::new();
            client.read_to_end(&mut got).unwrap();
            assert_eq!(got.len() as u64, bytes);
        }
    }

    #[test]
    fn the_rest_of_a_long_file_begins_where_the_head_ends() {
        let (sink, mut client) = pair();
        let source = file(4 << 20);
        let head = Head::send(&source, &sink);
        assert!(head.done.is_none());
        assert_eq!(head.read, head.written);
        assert_eq!(rustix::fs::tell(&source).unwrap(), head.written);
        drop(sink);
        let mut got = Vec::new();
        client.read_to_end(&mut got).unwrap();
        assert_eq!(got.len() as u64, head.written);
        assert!(
            (0_u64..)
                .zip(&got)
                .all(|(n, byte)| *byte == (n % 251) as u8)
        );
    }

    /// Sends the head of a file to a client that reads until the end.
    fn head_of(bytes: u64, reads_at_once: impl Fn(u64) -> bool) -> Head {
        let (sink, mut client) = pair();
        let reader = std::thread::spawn(move || std::io::copy(&mut client, &mut std::io::sink()));
        let source = file(bytes);
        let request = Request::default();
        let transfer = Transfer::new(source.as_fd(), sink.as_fd(), request).unwrap();
        let head = Head::steps(transfer.stepping().unwrap(), reads_at_once);
        drop(sink);
        assert_eq!(reader.join().unwrap().unwrap(), head.written);
        head
    }

    #[test]
    fn it_ends_where_a_read_may_wait_and_at_the_bound() {
        const PIECE: u64 = 2 << 20;
        let head = head_of(64 << 20, |_| false);
        assert!(head.done.is_none() && head.written <= PIECE);
        let head = head_of(64 << 20, |_| true);
        assert!(head.done.is_none() && head.written < MOST + PIECE);
    }

    #[test]
    fn the_end_of_a_file_on_a_disk_is_seen() {
        for pages in [1, 2] {
            let mut source = tempfile::tempfile_in(".").unwrap();
            source.write_all(&vec![1; pages * 4096]).unwrap();
            source.rewind().unwrap();
            let (sink, client) = pair();
            let done = Head::send(&source.into(), &sink).done.unwrap();
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
        let done = Head::send(&file(5000), &sink).done.unwrap();
        assert_eq!(done.ended, Ended::Error);
        assert_eq!(done.errno, Some(cordboard::Errno::EPIPE));
    }

    #[test]
    fn what_may_wait_is_left_to_the_control_descriptor() {
        let (reader, writer) = std::io::pipe().unwrap();
        let (sink, _client) = pair();
        assert_eq!(Head::send(&reader.into(), &sink).written, 0);
        drop(writer);
    }

    #[test]
    fn counts_are_those_of_both_parts() {
        let head = Head {
            read: 5,
            written: 4,
            done: None,
        };
        let status = head.before_status(Status::idle());
        assert_eq!((status.read, status.written), (5, 4));
    }
}
