//! The bytes of a buffer that the sink has not accepted.

use std::collections::VecDeque;
use std::io::{Error, Read, Result};
use std::os::fd::{AsFd, OwnedFd};

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

    /// Returns the number of bytes that are left to read.
    pub fn len(&self) -> u64 {
        self.left
    }

    /// Returns whether no bytes are left to read.
    pub fn is_empty(&self) -> bool {
        self.left == 0
    }
}

impl Read for Unwritten {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        loop {
            let n = match self.parts.front_mut() {
                None => return Ok(0),
                Some(Part::Bytes(bytes)) => {
                    let n = (&bytes[self.read..]).read(into)?;
                    self.read += n;
                    n
                }
                Some(Part::File { file, at, end }) => {
                    let most = usize::try_from(*end - *at).unwrap_or(usize::MAX);
                    let most = most.min(into.len());
                    let done = again(|| pread(file.as_fd(), &mut into[..most], *at));
                    let n = done.map_err(|errno| Error::from_raw_os_error(errno.raw_os_error()))?;
                    writeback_error(file.as_fd())
                        .map_err(|errno| Error::from_raw_os_error(errno.raw()))?;
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
