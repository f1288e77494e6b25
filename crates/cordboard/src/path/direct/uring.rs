//! Blocks carried out by `io_uring(7)`: the write is linked to the read, so
//! that the kernel starts it with no code of ours in between, as the paper's
//! read handler did.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicI32, Ordering};

use super::ring::{Block, Fate, Ring};
use crate::errno::Errno;
use crate::sys::{Arena, Half, SLOTS, Uring};

/// The errno with which this process is refused rings for good; 0: none so far.
static REFUSED: AtomicI32 = AtomicI32::new(0);

/// `IOSQE_IO_LINK`: where the read does not fill its buffer (an error, or a
/// short read), the link is broken and the write ends with `ECANCELED`
/// (`io_uring_enter(2)`).
pub(super) struct ByUring {
    ring: Uring,
    /// The length of each slot's block, and what its read came to.
    slots: Vec<(usize, Option<Fate>)>,
}

impl ByUring {
    /// A ring; or why there is none, and the descriptors again.
    ///
    /// | errno | remembered | evidence |
    /// |---|---|---|
    /// | `ENOSYS` | yes | before Linux 5.13, or `CONFIG_IO_URING` off |
    /// | `EPERM`, `EACCES` | yes | seccomp profiles of container engines; `kernel.io_uring_disabled` |
    /// | `EMFILE`, `ENFILE`, `ENOMEM` | no | limits |
    pub(super) fn new(
        files: [OwnedFd; 2],
        arena: &Arena,
    ) -> Result<ByUring, (Errno, [OwnedFd; 2])> {
        let refused = REFUSED.load(Ordering::Relaxed);
        if refused != 0 {
            return Err((Errno::from_raw(refused), files));
        }
        let ring = Uring::new(files, arena).inspect_err(|(errno, _)| {
            if matches!(*errno, Errno::ENOSYS | Errno::EPERM | Errno::EACCES) {
                REFUSED.store(errno.raw(), Ordering::Relaxed);
            }
        })?;
        Ok(ByUring {
            ring,
            slots: vec![(0, None); SLOTS],
        })
    }

    fn tell(&mut self, told: &mut Vec<(usize, Fate)>) {
        while let Some(done) = self.ring.next() {
            let (length, read) = &mut self.slots[done.slot];
            match done.half {
                Half::Read => {
                    let fate = Fate::of_read(done.result, *length);
                    *read = Some(fate);
                    if fate == Fate::Read {
                        told.push((done.slot, fate));
                    }
                }
                Half::Write => {
                    let fate = match read.take() {
                        // Read in full, or its completion is still to come.
                        None | Some(Fate::Read) => Fate::of_write(done.result, *length),
                        Some(broken) => broken,
                    };
                    drop(self.ring.release(done.slot));
                    told.push((done.slot, fate));
                }
            }
        }
    }
}

impl Ring for ByUring {
    fn submit(&mut self, block: Block) -> Result<(), ()> {
        self.slots[block.slot] = (block.memory.len(), None);
        let queued = self
            .ring
            .queue(block.slot, block.memory, block.from, block.to);
        queued.map_err(|_| ())
    }

    fn reap(&mut self, wait: bool, told: &mut Vec<(usize, Fate)>) -> Result<(), Errno> {
        let entered = self.ring.enter(wait);
        self.tell(told);
        match entered {
            // What it has in hand must end first.
            Err(Errno::EAGAIN | Errno::EBUSY) => Ok(()),
            entered => entered,
        }
    }

    fn retire(&mut self) {
        self.ring.retire();
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.ring.fd()
    }
}
