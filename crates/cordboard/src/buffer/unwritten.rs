//! The bytes of a buffer that the sink has not accepted.

use std::collections::VecDeque;
use std::io::{Error, Read, Result};
use std::os::fd::{AsFd, OwnedFd};

use crate::errno::Errno;
use crate::sys::{again, pread, writeback_error};

/// A part of the bytes.
#[derive(Debug)]
pub(super) enum Part {
    Bytes(Vec<u8>),
    /// The range of a file.
    File {
        file: OwnedFd,
        at: u64,
        end: u64,
    },
}

impl Part {
    pub(super) fn len(&self) -> u64 {
        match self {
            Part::Bytes(bytes) => bytes.len() as u64,
            Part::File { at, end, .. } => end - at,
        }
    }
}

/// The bytes that were read from the source and not accepted by the sink, in their order.
/// Bytes in files of the buffer stay there until they are read.
#[derive(Debug)]
pub struct Unwritten {
    parts: VecDeque<Part>,
    /// The number of bytes of the first part that were read, if that part is in memory.
    read: usize,
    left: u64,
}

impl Unwritten {
    pub(super) fn new(parts: Vec<Part>) -> Unwritten {
        Unwritten {
            left: parts.iter().map(Part::len).sum(),
            parts: parts.into(),
            read: 0,
        }
    }

    /// Returns the number of bytes that are left to read: 0 after a read has failed.
    pub fn len(&self) -> u64 {
        self.left
    }

    /// Returns whether no bytes are left to read.
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }
}

impl Unwritten {
    fn next(&mut self, into: &mut [u8]) -> std::result::Result<usize, Errno> {
        loop {
            let n = match self.parts.front_mut() {
                None => return Ok(0),
                Some(Part::Bytes(bytes)) => {
                    let left = &bytes[self.read..];
                    let n = left.len().min(into.len());
                    into[..n].copy_from_slice(&left[..n]);
                    self.read += n;
                    n
                }
                Some(Part::File { file, at, end }) => {
                    let most = usize::try_from(*end - *at).unwrap_or(usize::MAX);
                    let most = most.min(into.len());
                    let n = again(|| pread(file.as_fd(), &mut into[..most], *at))?;
                    writeback_error(file.as_fd())?;
                    if n == 0 && most > 0 {
                        // The file is shorter than the bytes that were written to it.
                        return Err(Errno::EIO);
                    }
                    *at += n as u64;
                    n
                }
            };
            if n > 0 || into.is_empty() {
                self.left -= n as u64;
                return Ok(n);
            }
            self.parts.pop_front();
            self.read = 0;
        }
    }
}

impl Read for Unwritten {
    /// Reads the next bytes. After an error, no bytes are left: the caller would take those
    /// behind the lost ones for these, and the kernel reports a failed writeback only once.
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        self.next(into).map_err(|errno| {
            self.parts.clear();
            self.left = 0;
            Error::from_raw_os_error(errno.raw())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each file has lost bytes, and others follow it.
    #[test]
    fn nothing_behind_lost_bytes_is_handed_back() {
        let shorter = testkit::file::file_with(&[7; 40]);
        let unreadable = std::fs::File::options().write(true).open("/dev/null");
        let cases = [
            (shorter, 40, Errno::EIO),
            (unreadable.unwrap(), 0, Errno::EBADF),
        ];
        for (file, readable, errno) in cases {
            let mut unwritten = Unwritten::new(vec![
                Part::Bytes(vec![7; 10]),
                Part::File {
                    file: file.into(),
                    at: 0,
                    end: 100,
                },
                Part::Bytes(vec![9; 10]),
            ]);
            assert_eq!(unwritten.len(), 120);
            let mut all = Vec::new();
            let failed = unwritten.read_to_end(&mut all).unwrap_err();
            assert_eq!(failed.raw_os_error(), Some(errno.raw()));
            assert_eq!(all, vec![7; 10 + readable]);
            assert_eq!(unwritten.read(&mut [0; 10]).unwrap(), 0);
            assert!(unwritten.is_empty());
        }
    }
}
