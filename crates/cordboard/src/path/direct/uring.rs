//! Executes blocks by `io_uring(7)`: the write is linked to the read, so that the
//! kernel starts it without user-space code in between, as the paper's read
//! handler did.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use super::block_engine::{Block, BlockEngine, Outcome};
use crate::errno::Errno;
use crate::sys::{Arena, Half, SLOTS, Uring};

/// The kernel has no io_uring.
static MISSING: AtomicBool = AtomicBool::new(false);

/// The number of times that a call that submits nothing is retried, with pauses
/// in between. After that, about a second, operations in flight are abandoned.
const TRIES: u32 = 100;
/// How often a call with a transient error is retried at once.
const AT_ONCE: u32 = 4;

/// Whether the error is transient.
fn is_transient(errno: Errno) -> bool {
    matches!(errno, Errno::EAGAIN | Errno::EBUSY | Errno::ENOMEM)
}

/// `IOSQE_IO_LINK`: if the read does not fill its buffer (an error, or a short
/// read), the link is broken and the write ends with `ECANCELED`
/// (`io_uring_enter(2)`).
pub(super) struct UringEngine {
    ring: Uring,
    slots: [Halves; SLOTS],
    /// The kernel refuses to wait: see [`UringEngine::abandon`].
    abandoned: bool,
}

/// The completions of a slot's block so far.
#[derive(Debug, Clone, Copy, Default)]
struct Halves {
    length: usize,
    read: Option<Outcome>,
    written: Option<Outcome>,
}

impl Halves {
    /// Records the completion of one half.
    fn learn(&mut self, half: Half, result: Result<usize, Errno>) {
        match half {
            Half::Read => self.read = Some(Outcome::of_read(result, self.length)),
            // The write completed before the read: the contents are wrong.
            Half::Write if self.read.is_none() => self.written = Some(Outcome::Cancelled),
            Half::Write => self.written = Some(Outcome::of_write(result, self.length)),
        }
    }

    /// Returns the outcome, once no completion is to be expected.
    fn outcome(&self) -> Outcome {
        match (self.read, self.written) {
            (Some(Outcome::Read), Some(outcome)) => outcome,
            (Some(Outcome::Read) | None, _) => Outcome::Cancelled,
            (Some(broken), _) => broken,
        }
    }
}

impl UringEngine {
    /// Creates a ring, or returns the error and the descriptors.
    ///
    /// | errno | remembered | evidence |
    /// |---|---|---|
    /// | `ENOSYS` | yes | before Linux 5.13, or `CONFIG_IO_URING` off |
    /// | `EPERM`, `EACCES` | no: a seccomp filter may apply to one thread only, and the setting may change | seccomp profiles of container engines, of either call or of `eventfd2(2)`; `kernel.io_uring_disabled` |
    /// | `EMFILE`, `ENFILE`, `ENOMEM` | no | limits |
    pub(super) fn new(
        files: [OwnedFd; 2],
        arena: &Arena,
    ) -> Result<UringEngine, (Errno, [OwnedFd; 2])> {
        if MISSING.load(Ordering::Relaxed) {
            return Err((Errno::ENOSYS, files));
        }
        let ring = Uring::new(files, arena).inspect_err(|(errno, _)| {
            if *errno == Errno::ENOSYS {
                MISSING.store(true, Ordering::Relaxed);
            }
        })?;
        Ok(UringEngine {
            ring,
            slots: [Halves::default(); SLOTS],
            abandoned: false,
        })
    }

    fn collect(&mut self, completed: &mut Vec<(usize, Outcome)>) {
        while !self.abandoned
            && let Some(done) = self.ring.next()
        {
            let block = &mut self.slots[done.slot];
            block.learn(done.half, done.result);
            if done.half == Half::Read && block.read == Some(Outcome::Read) {
                completed.push((done.slot, Outcome::Read));
            }
            self.end(done.slot, completed);
        }
        if self.ring.is_closed() {
            (0..SLOTS).for_each(|slot| self.end(slot, completed));
        }
    }

    /// After a refused call: lets the kernel complete operations in flight, and
    /// waits for one if `wait` is set.
    fn retry_complete(
        &mut self,
        wait: bool,
        completed: &mut Vec<(usize, Outcome)>,
    ) -> Result<(), Errno> {
        for _ in 0..TRIES {
            match self.ring.complete(wait && completed.is_empty()) {
                Err(errno @ (Errno::EINTR | Errno::EEXIST)) => return Err(errno),
                done => {
                    self.collect(completed);
                    if done.is_ok() {
                        return Ok(());
                    }
                }
            }
            self.ring.rest();
        }
        self.abandon(completed);
        Ok(())
    }

    /// Every waiting call is refused: blocks in flight do not count, and their
    /// results stay unknown. Their memory and files stay with the ring, which is
    /// never entered again: a write that has not begun then never begins
    /// (`IORING_SETUP_DEFER_TASKRUN`).
    fn abandon(&mut self, completed: &mut Vec<(usize, Outcome)>) {
        self.close(completed);
        self.abandoned = true;
        let left = (0..SLOTS).filter(|slot| self.ring.is_in_use(*slot));
        completed.extend(left.map(|slot| (slot, Outcome::Cancelled)));
        self.ring.abandon();
    }

    /// Stops submitting, and reports the blocks that were only queued.
    fn close(&mut self, completed: &mut Vec<(usize, Outcome)>) {
        self.ring.close();
        self.collect(completed);
    }

    /// Reports a block's outcome, if no completion is to be expected.
    fn end(&mut self, slot: usize, completed: &mut Vec<(usize, Outcome)>) {
        // Its memory is freed before completion is reported, for the next block.
        if self.ring.release(slot).is_some() {
            completed.push((slot, self.slots[slot].outcome()));
        }
    }
}

impl BlockEngine for UringEngine {
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

    /// | errno | result | evidence |
    /// |---|---|---|
    /// | `EAGAIN` | retried once something in flight has ended; with nothing in flight, a few times at once, and then nothing is submitted any more | no memory for a request: `io_submit_sqes` |
    /// | `EBUSY`, `ENOMEM` | the same | completion queue overflow: `io_uring_enter(2)` |
    /// | `EEXIST` | an error | another thread's ring |
    /// | anything else (`EPERM`, `EACCES`, `ENOSYS`) | nothing is submitted any more; what is in flight is waited for | a seccomp filter since the ring was made |
    ///
    /// Operations in flight may need a call to complete, and no other call may
    /// follow the refused one: it is retried, with nothing to submit.
    fn reap(&mut self, wait: bool, completed: &mut Vec<(usize, Outcome)>) -> Result<(), Errno> {
        if self.abandoned {
            return Ok(());
        }
        for left in (0..=AT_ONCE).rev() {
            let entered = self.ring.enter(wait && completed.is_empty());
            self.collect(completed);
            match entered {
                Ok(()) => {}
                Err(errno @ (Errno::EINTR | Errno::EEXIST)) => return Err(errno),
                Err(errno) => {
                    if !is_transient(errno) {
                        self.close(completed);
                    }
                    self.retry_complete(wait, completed)?;
                }
            }
            if !self.ring.is_stuck() {
                break;
            }
            if entered.is_ok() || left == 0 {
                self.close(completed);
            }
        }
        Ok(())
    }

    fn cancel(&mut self) {
        self.ring.close();
    }

    fn retire(&mut self) {
        self.ring.retire();
    }

    fn take_sink(&mut self) -> Option<OwnedFd> {
        self.ring.take_sink()
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.ring.fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_read_and_then_written_counts() {
        let outcome = |halves: &[(Half, Result<usize, Errno>)]| {
            let mut block = Halves {
                length: 10,
                ..Halves::default()
            };
            (halves.iter()).for_each(|(half, result)| block.learn(*half, *result));
            block.outcome()
        };
        let (read, write) = (Half::Read, Half::Write);
        let cancelled = (write, Err(Errno::ECANCELED));
        assert_eq!(
            outcome(&[(read, Ok(10)), (write, Ok(10))]),
            Outcome::Written
        );
        assert_eq!(
            outcome(&[(read, Ok(10)), (write, Ok(9))]),
            Outcome::ShortWrite(9)
        );
        assert_eq!(outcome(&[(read, Ok(9)), cancelled]), Outcome::ShortRead);
        let failed = (read, Err(Errno::EIO));
        assert_eq!(
            outcome(&[failed, cancelled]),
            Outcome::ReadFailed(Errno::EIO)
        );
        // The write did not wait for the read.
        assert_eq!(
            outcome(&[(write, Ok(10)), (read, Ok(10))]),
            Outcome::Cancelled
        );
        // One of the two was never submitted, or neither.
        assert_eq!(outcome(&[(read, Ok(10))]), Outcome::Cancelled);
        assert_eq!(outcome(&[failed]), Outcome::ReadFailed(Errno::EIO));
        assert_eq!(outcome(&[]), Outcome::Cancelled);
    }
}
