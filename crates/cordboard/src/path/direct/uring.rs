//! Blocks carried out by `io_uring(7)`: the write is linked to the read, so
//! that the kernel starts it with no code of ours in between, as the paper's
//! read handler did.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use super::ring::{Block, Fate, Ring};
use crate::errno::Errno;
use crate::sys::{Arena, Half, SLOTS, Uring, is_refusal};

/// The kernel has no such call.
static MISSING: AtomicBool = AtomicBool::new(false);

/// `IOSQE_IO_LINK`: where the read does not fill its buffer (an error, or a
/// short read), the link is broken and the write ends with `ECANCELED`
/// (`io_uring_enter(2)`).
pub(super) struct ByUring {
    ring: Uring,
    slots: [Halves; SLOTS],
}

/// What has become of a slot's block so far.
#[derive(Debug, Clone, Copy, Default)]
struct Halves {
    length: usize,
    read: Option<Fate>,
    written: Option<Fate>,
}

impl Halves {
    /// Keeps what is told of one half.
    fn learn(&mut self, half: Half, result: Result<usize, Errno>) {
        match half {
            Half::Read => self.read = Some(Fate::of_read(result, self.length)),
            // Whatever it has written, it is not what was read.
            Half::Write if self.read.is_none() => self.written = Some(Fate::Dropped),
            Half::Write => self.written = Some(Fate::of_write(result, self.length)),
        }
    }

    /// Once nothing more is to be expected.
    fn fate(&self) -> Fate {
        match (self.read, self.written) {
            (Some(Fate::Read), Some(fate)) => fate,
            (Some(Fate::Read) | None, _) => Fate::Dropped,
            (Some(broken), _) => broken,
        }
    }
}

impl ByUring {
    /// A ring; or why there is none, and the descriptors again.
    ///
    /// | errno | remembered | evidence |
    /// |---|---|---|
    /// | `ENOSYS` | yes | before Linux 5.13, or `CONFIG_IO_URING` off |
    /// | `EPERM`, `EACCES` | no: a filter may be one thread's alone, and the setting may change | seccomp profiles of container engines, of either call; `kernel.io_uring_disabled` |
    /// | `EMFILE`, `ENFILE`, `ENOMEM` | no | limits |
    pub(super) fn new(
        files: [OwnedFd; 2],
        arena: &Arena,
    ) -> Result<ByUring, (Errno, [OwnedFd; 2])> {
        if MISSING.load(Ordering::Relaxed) {
            return Err((Errno::ENOSYS, files));
        }
        let ring = Uring::new(files, arena).inspect_err(|(errno, _)| {
            if *errno == Errno::ENOSYS {
                MISSING.store(true, Ordering::Relaxed);
            }
        })?;
        Ok(ByUring {
            ring,
            slots: [Halves::default(); SLOTS],
        })
    }

    fn tell(&mut self, told: &mut Vec<(usize, Fate)>) {
        while let Some(done) = self.ring.next() {
            let block = &mut self.slots[done.slot];
            block.learn(done.half, done.result);
            if done.half == Half::Read && block.read == Some(Fate::Read) {
                told.push((done.slot, Fate::Read));
            }
            self.end(done.slot, told);
        }
        if self.ring.is_closed() {
            (0..SLOTS).for_each(|slot| self.end(slot, told));
        }
    }

    /// Tells what has become of a block, if nothing more is to be expected.
    fn end(&mut self, slot: usize, told: &mut Vec<(usize, Fate)>) {
        // Its memory is free before it is told of, for the block that comes next.
        if self.ring.release(slot).is_some() {
            told.push((slot, self.slots[slot].fate()));
        }
    }
}

impl Ring for ByUring {
    fn submit(&mut self, block: Block) -> Result<(), ()> {
        self.slots[block.slot] = Halves {
            length: block.memory.len(),
            ..Halves::default()
        };
        let queued = self
            .ring
            .queue(block.slot, block.memory, block.from, block.to);
        queued.map_err(|_| ())
    }

    /// | errno | what follows | evidence |
    /// |---|---|---|
    /// | `EAGAIN` | again, once something in hand has ended; with nothing in hand, nothing is handed over any more | no memory for a request: `io_submit_sqes` |
    /// | `EBUSY` | the same | completions without room: `io_uring_enter(2)` |
    /// | `EPERM`, `EACCES`, `ENOSYS` | with nothing in hand, nothing is handed over any more | a filter since the ring was made |
    fn reap(&mut self, wait: bool, told: &mut Vec<(usize, Fate)>) -> Result<(), Errno> {
        let entered = self.ring.enter(wait);
        self.tell(told);
        match entered {
            Err(Errno::EAGAIN | Errno::EBUSY) if wait && told.is_empty() => {
                self.ring.wait()?;
                self.tell(told);
            }
            Ok(()) | Err(Errno::EAGAIN | Errno::EBUSY) => {}
            Err(errno) if is_refusal(errno) && self.ring.is_stuck() => {}
            entered => return entered,
        }
        if self.ring.is_stuck() {
            self.ring.close();
            self.tell(told);
        }
        Ok(())
    }

    fn cancel(&mut self) {
        self.ring.close();
    }

    fn retire(&mut self) {
        self.ring.retire();
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.ring.fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_read_and_then_written_counts() {
        let fate = |halves: &[(Half, Result<usize, Errno>)]| {
            let mut block = Halves {
                length: 10,
                ..Halves::default()
            };
            (halves.iter()).for_each(|(half, result)| block.learn(*half, *result));
            block.fate()
        };
        let (read, write) = (Half::Read, Half::Write);
        let cancelled = (write, Err(Errno::ECANCELED));
        assert_eq!(fate(&[(read, Ok(10)), (write, Ok(10))]), Fate::Written);
        assert_eq!(fate(&[(read, Ok(10)), (write, Ok(9))]), Fate::Cut(9));
        assert_eq!(fate(&[(read, Ok(9)), cancelled]), Fate::Short);
        let failed = (read, Err(Errno::EIO));
        assert_eq!(fate(&[failed, cancelled]), Fate::ReadFailed(Errno::EIO));
        // The write has not waited for the read.
        assert_eq!(fate(&[(write, Ok(10)), (read, Ok(10))]), Fate::Dropped);
        // One of the two was never handed over, or neither.
        assert_eq!(fate(&[(read, Ok(10))]), Fate::Dropped);
        assert_eq!(fate(&[failed]), Fate::ReadFailed(Errno::EIO));
        assert_eq!(fate(&[]), Fate::Dropped);
    }
}
