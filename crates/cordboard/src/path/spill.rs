//! The contents of a private pipe for a sink that refuses pages, or could block
//! on them: they are read out and written from memory. That needs no further
//! descriptor, so it also works at the limit of open files.

use std::os::fd::BorrowedFd;

use rustix::buffer::spare_capacity;

use super::{Flow, Verdict, in_place, stream};
use crate::endpoint::Side;
use crate::errno::Errno;
use crate::pipe::{OwnedPipe, SocketPair};

/// What a blocking pipe or terminal that polls writable takes without blocking.
const PIECE: usize = 4096;

/// Bytes that go by copying.
#[derive(Default)]
pub(super) struct Spill {
    bytes: Vec<u8>,
    start: usize,
}

impl Spill {
    /// Bytes of a step, if all of them go this way.
    pub(super) const ENOUGH: usize = 128 << 10;

    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Reads everything out of the pipe, or nothing if memory is unavailable
    /// (`ENOMEM`). If something in the pipe cannot be read, what stands before it is
    /// read: `EIO`, or what a file system says, of a page that is not valid any more.
    pub(super) fn take(&mut self, pipe: &mut OwnedPipe) -> Result<(), Errno> {
        self.make_room(pipe.held())?;
        while pipe.held() > 0 {
            let n = self.read(pipe.reader())?;
            pipe.drained(n);
        }
        Ok(())
    }

    /// The same of a socket pair.
    pub(super) fn take_pair(&mut self, pair: &mut SocketPair) -> Result<(), Errno> {
        self.make_room(pair.held())?;
        while pair.held() > 0 {
            let n = self.read(pair.reader())?;
            pair.drained(n);
        }
        Ok(())
    }

    fn make_room(&mut self, held: u64) -> Result<(), Errno> {
        if self.rest().is_empty() {
            self.bytes.clear();
            self.start = 0;
        }
        let held = usize::try_from(held).map_err(|_| Errno::ENOMEM)?;
        (self.bytes.try_reserve_exact(held)).map_err(|_| Errno::ENOMEM)
    }

    fn read(&mut self, from: BorrowedFd<'_>) -> Result<usize, Errno> {
        loop {
            match rustix::io::read(from, spare_capacity(&mut self.bytes)) {
                Ok(0) => return Err(Errno::EIO),
                Err(rustix::io::Errno::INTR) => {}
                done => return Ok(done?),
            }
        }
    }

    pub(super) fn write(&mut self, flow: &mut Flow<'_>) -> Verdict {
        let rest = self.rest();
        let done = match flow.sink.kind().is_socket() {
            true => flow.write_by(Some(rest.len()), || {
                stream::send(flow, rest, flow.may_sleep)
            }),
            false => {
                let bytes = flow.claimed(&rest[..rest.len().min(PIECE)]);
                in_place::write(flow, bytes).map_err(Errno::from)
            }
        };
        match done {
            Ok(0) => Verdict::Failed(Side::Sink, Errno::EIO),
            Ok(n) => {
                self.start += n;
                flow.gave(n as u64);
                Verdict::Moved(n as u64)
            }
            Err(Errno::EINTR) => flow.was_interrupted(Side::Sink),
            Err(Errno::EAGAIN) => Verdict::Blocked(Side::Sink),
            Err(errno) => Verdict::Failed(Side::Sink, errno),
        }
    }
}
