//! The plain read/write loop, with which the result and the throughput of every path
//! are compared.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::os::fd::BorrowedFd;

/// The loop's buffer, in bytes.
pub const BLOCK: usize = 128 << 10;

/// The side at which the loop failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Reading.
    Source,
    /// Writing.
    Sink,
}

/// The result of the loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
    /// The side and errno of an early end.
    pub failed: Option<(Side, i32)>,
}

/// Reads up to `size` bytes, or to the end, [`BLOCK`] bytes at a time, and
/// writes them in pieces of at most `piece` bytes. Waits at `EAGAIN`.
pub fn run(source: BorrowedFd<'_>, sink: BorrowedFd<'_>, size: Option<u64>, piece: usize) -> Run {
    let mut memory = vec![0u8; BLOCK + ALIGN];
    let buffer = aligned(&mut memory, BLOCK);
    let mut run = Run {
        read: 0,
        written: 0,
        failed: None,
    };
    loop {
        let left = size.map_or(u64::MAX, |size| size - run.read);
        let want = usize::try_from(left).unwrap_or(usize::MAX).min(BLOCK);
        if want == 0 {
            return run;
        }
        let got = match read(source, &mut buffer[..want]) {
            Ok(0) => return run,
            Ok(got) => got,
            Err(errno) => {
                run.failed = Some((Side::Source, errno.raw_os_error()));
                return run;
            }
        };
        run.read += got as u64;
        let mut rest = &buffer[..got];
        while !rest.is_empty() {
            match write(sink, &rest[..rest.len().min(piece)]) {
                Ok(done) => {
                    run.written += done as u64;
                    rest = &rest[done..];
                }
                Err(errno) => {
                    run.failed = Some((Side::Sink, errno.raw_os_error()));
                    return run;
                }
            }
        }
    }
}

/// The alignment of a buffer that direct I/O accepts everywhere.
const ALIGN: usize = 4096;

fn aligned(memory: &mut [u8], length: usize) -> &mut [u8] {
    let skip = memory.as_ptr().align_offset(ALIGN);
    &mut memory[skip..skip + length]
}

/// `read(2)` that also waits if the descriptor is non-blocking.
pub(crate) fn read(fd: BorrowedFd<'_>, buffer: &mut [u8]) -> Result<usize, Errno> {
    loop {
        match rustix::io::read(fd, &mut *buffer) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait(fd, PollFlags::IN)?,
            other => return other,
        }
    }
}

/// `write(2)` that also waits if the descriptor is non-blocking.
pub(crate) fn write(fd: BorrowedFd<'_>, bytes: &[u8]) -> Result<usize, Errno> {
    loop {
        match rustix::io::write(fd, bytes) {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait(fd, PollFlags::OUT)?,
            other => return other,
        }
    }
}

fn wait(fd: BorrowedFd<'_>, flags: PollFlags) -> Result<(), Errno> {
    match poll(&mut [PollFd::from_borrowed_fd(fd, flags)], None) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}
