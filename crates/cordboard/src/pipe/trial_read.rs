//! The number of bytes that one read may take without truncating a packet, determined
//! by reading a duplicate of the front of the pipe (`packets` has the rules).

use std::os::fd::BorrowedFd;

use super::channel::Channel;
use super::owned::OwnedPipe;
use super::packets::{Front, duplicate, largest};
use super::pool::acquire;
use crate::errno::Errno;
use crate::sys::{discard, unsent};

/// The most bytes of one trial; one call of [`discard`] can read them.
const MOST: usize = 1 << 20;

/// Returns how many bytes one read of `at_most` would take, which ends at the end of a
/// packet. Reads a duplicate in the empty pipe `own`.
///
/// # Errors
///
/// Those of [`duplicate`]: the pipe is empty, or a filter refuses the query.
pub(super) fn length_to_packet_end(
    own: OwnedPipe,
    source: BorrowedFd<'_>,
    at_most: usize,
) -> Result<usize, Result<Front, Errno>> {
    match Trial::with(own, source, at_most, at_most)? {
        trial if trial.taken > 0 => Ok(trial.end()),
        _ => Err(Ok(Front::Nothing)),
    }
}

/// Returns a number of bytes, up to `at_most`, such that a read of that length drops
/// nothing: 0 at the end; `None` if it is unknown. Another reader may take the bytes
/// first.
///
/// # Errors
///
/// `EAGAIN`: the pipe is empty. (A read that waited for the next packet could be too
/// short for it.) `EMSGSIZE`: the first packet is longer than `at_most`.
pub(super) fn lossless_length(
    source: BorrowedFd<'_>,
    at_most: usize,
) -> Result<Option<usize>, Errno> {
    let mut length = at_most.min(MOST);
    loop {
        match drops_nothing(source, length)? {
            Tried::Takes(bytes) => return Ok(Some(bytes)),
            Tried::Ended => return Ok(Some(0)),
            Tried::Unknown => return Ok(None),
            Tried::Cuts if length <= 1 => return Err(Errno::EMSGSIZE),
            // The bytes before the packet may be a stream, within which a read can end
            // anywhere.
            Tried::Cuts => length /= 2,
        }
    }
}

/// The result of a read of a duplicate.
enum Tried {
    /// The read took this many bytes, and dropped nothing.
    Takes(usize),
    Cuts,
    /// The pipe is empty and has no writer.
    Ended,
    Unknown,
}

fn drops_nothing(source: BorrowedFd<'_>, length: usize) -> Result<Tried, Errno> {
    // Includes all of a packet that begins within this length.
    let all = length + largest();
    let Ok(own) = acquire(all) else {
        return Ok(Tried::Unknown);
    };
    let trial = match Trial::with(own, source, all, length) {
        Ok(trial) => trial,
        Err(Ok(Front::End)) => return Ok(Tried::Ended),
        Err(Ok(_)) => return Err(Errno::EAGAIN),
        Err(Err(_)) => return Ok(Tried::Unknown),
    };
    Ok(match trial.rest() {
        Ok(rest) if trial.taken + rest < trial.copied => Tried::Cuts,
        Ok(_) => Tried::Takes(trial.end()),
        Err(_) => Tried::Unknown,
    })
}

/// A read of a duplicate. Dropping it closes its pipe and the rest of the content.
struct Trial {
    own: OwnedPipe,
    copied: usize,
    taken: usize,
}

impl Trial {
    /// Duplicates up to `at_most` bytes into the empty pipe `own`, and reads up to
    /// `length` of them. If it cannot, returns the reason.
    fn with(
        own: OwnedPipe,
        source: BorrowedFd<'_>,
        at_most: usize,
        length: usize,
    ) -> Result<Trial, Result<Front, Errno>> {
        let (own, copied) = duplicate(source, own, at_most)?;
        let taken = discard(own.reader(), length).map_err(Err)?;
        Ok(Trial { own, copied, taken })
    }

    /// Returns the number of bytes that the read has left. If a filter refuses
    /// `FIONREAD`, reads and counts them.
    fn rest(&self) -> Result<usize, Errno> {
        if let Ok(bytes) = unsent(self.own.reader()) {
            return Ok(bytes as usize);
        }
        let mut rest = 0;
        loop {
            // One packet at a time; the pipe does not wait.
            match discard(self.own.reader(), MOST) {
                Ok(0) | Err(Errno::EAGAIN) => return Ok(rest),
                Ok(bytes) => rest += bytes,
                Err(errno) => return Err(errno),
            }
        }
    }

    /// Returns how many bytes the read took. Releases the pipe if it is empty.
    fn end(mut self) -> usize {
        self.own.drained(self.taken);
        if self.taken == self.copied {
            self.own.release();
        }
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::fs::{OFlags, fcntl_setfl};
    use rustix::pipe::{PipeFlags, pipe, pipe_with};

    use super::*;

    #[test]
    fn the_length_of_the_first_packet() {
        let _only = testkit::child::without_children();
        let (source, feed) = pipe_with(PipeFlags::DIRECT).unwrap();
        for length in [1, 1000, 4096] {
            rustix::io::write(&feed, &vec![7; length]).unwrap();
            rustix::io::write(&feed, &[8; 4096]).unwrap();
            for room in [1, 999, 1000, 4095, 4096, 1 << 21] {
                let expected = match length > room {
                    true => Err(Errno::EMSGSIZE),
                    false => Ok(Some(length)),
                };
                assert_eq!(
                    lossless_length(source.as_fd(), room),
                    expected,
                    "{length} {room}"
                );
            }
            for length in [length, 4096] {
                assert_eq!(rustix::io::read(&source, &mut [0; 4096]), Ok(length));
            }
        }
        assert_eq!(lossless_length(source.as_fd(), 1), Err(Errno::EAGAIN));
        drop(feed);
        assert_eq!(lossless_length(source.as_fd(), 1), Ok(Some(0)));
        let file = tempfile::tempfile().unwrap();
        assert_eq!(lossless_length(file.as_fd(), 1), Ok(None));
    }

    /// A stream, and a packet behind it that does not fit into its last page: what
    /// fits becomes a part of the stream (`pipe_write`, fs/pipe.c).
    #[test]
    fn a_read_that_cuts_no_packet() {
        let page = largest();
        let packet = page - 96;
        for stream in [100, 500, page, 2 * page + 808] {
            let (source, feed) = pipe().unwrap();
            rustix::io::write(&feed, &vec![7; stream]).unwrap();
            assert_eq!(lossless_length(source.as_fd(), 1 << 16), Ok(Some(stream)));
            fcntl_setfl(&feed, OFlags::DIRECT).unwrap();
            rustix::io::write(&feed, &vec![8; packet]).unwrap();
            for length in [1, stream.div_ceil(2), stream, stream + packet, 1 << 16] {
                let all = length.min(stream + packet);
                assert_eq!(
                    lossless_length(source.as_fd(), length),
                    Ok(Some(all)),
                    "{stream}"
                );
            }
            for length in [stream + 1, stream + packet - 1] {
                let found = lossless_length(source.as_fd(), length).unwrap().unwrap();
                assert!((1..=stream).contains(&found), "{stream} {length}: {found}");
            }
            let there = rustix::io::ioctl_fionread(&source);
            assert_eq!(there, Ok((stream + packet) as u64));
        }
    }

    #[test]
    fn a_read_ends_with_a_packet() {
        let one =
            |source, at_most| length_to_packet_end(acquire(1 << 16).unwrap(), source, at_most);
        let (source, feed) = pipe_with(PipeFlags::DIRECT).unwrap();
        rustix::io::write(&feed, &[7; 500]).unwrap();
        rustix::io::write(&feed, &[8; 10]).unwrap();
        for (at_most, expected) in [(1, 1), (499, 499), (500, 500), (501, 500), (4000, 500)] {
            assert_eq!(one(source.as_fd(), at_most), Ok(expected));
        }
        let (stream, feed) = pipe().unwrap();
        assert_eq!(one(stream.as_fd(), 9), Err(Ok(Front::Nothing)));
        rustix::io::write(&feed, &[7; 500]).unwrap();
        assert_eq!(one(stream.as_fd(), 4000), Ok(500));
        let file = tempfile::tempfile().unwrap();
        assert_eq!(one(file.as_fd(), 9), Err(Err(Errno::EINVAL)));
    }
}
