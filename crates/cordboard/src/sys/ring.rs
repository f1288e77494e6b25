//! A ring of `io_uring(7)` that does one thing: read a block of one file, and
//! write the same memory to another.

use std::cell::Cell;
use std::collections::VecDeque;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::thread::ThreadId;

use io_uring::squeue::{Entry, Flags};
use io_uring::{IoUring, opcode, types};

pub(crate) use self::setup::try_io_uring;
use self::setup::{again, errno, register_files, set_up};
use super::arena::{Arena, Piece};
use super::blocks::{Completion, Half, SLOTS};
use super::eventfd::EventFd;
use super::poll::poll_for;
use super::process::Stamp;
use crate::errno::Errno;

mod setup;

/// Pairs of reads and writes in flight. The memory of each stays here until
/// the kernel is done with it.
///
/// Must be used on the thread that made it: where the kernel has
/// `IORING_SETUP_SINGLE_ISSUER`, it refuses every other. Elsewhere, or in a
/// child after `fork(2)`, a ring can only be dropped, and then leaves its
/// memory where the kernel may still write to it.
pub(crate) struct Uring {
    ring: ManuallyDrop<IoUring>,
    slots: ManuallyDrop<Vec<Slot>>,
    /// Blocks that the kernel has not taken, in order.
    queued: VecDeque<usize>,
    /// Calls that it has taken, and whose end has not been seen.
    in_kernel: usize,
    /// It is handed nothing any more.
    closed: bool,
    /// It is never entered again.
    abandoned: bool,
    /// The arena is registered.
    fixed: bool,
    /// The kernel has let go of the files and the memory.
    retired: bool,
    owner: (Stamp, ThreadId),
    /// Rung by each completion.
    bell: EventFd,
    /// Somebody waits for the bell.
    heard: Cell<bool>,
    _files: [OwnedFd; 2],
}

#[derive(Default)]
struct Slot {
    piece: Option<Piece>,
    /// Completions to come.
    expected: u8,
}

/// In the `user_data` of what tells that something registered has been let go:
/// one of the two files, the memory, or a file that no call ever uses.
const LET_GO: u64 = 1 << 32;
/// The one that no call uses.
const WITNESS: u64 = LET_GO | 3;

fn here() -> (Stamp, ThreadId) {
    (Stamp::here(), std::thread::current().id())
}

impl Uring {
    /// From `files[0]` to `files[1]`. `io_uring_setup(2)`, since Linux 5.13 as
    /// it is used here.
    ///
    /// # Errors
    ///
    /// `ENOSYS`: no such call, or an older one. `EPERM`, `EACCES`: a filter, as
    /// most containers have, or the sysctl `kernel.io_uring_disabled`. The same
    /// of `eventfd2(2)`, without which completions wake nobody.
    /// `ENOMEM`, `EMFILE`, `ENFILE`.
    pub(crate) fn new(files: [OwnedFd; 2], arena: &Arena) -> Result<Uring, (Errno, [OwnedFd; 2])> {
        let (ring, bell) = match set_up() {
            Ok(made) => made,
            Err(errno) => return Err((errno, files)),
        };
        // Nothing fails behind this: the kernel would keep the files for a
        // while.
        let numbers = [files[0].as_fd(), files[1].as_fd(), bell.as_fd()].map(|fd| fd.as_raw_fd());
        let tags = [LET_GO, LET_GO | 1, WITNESS];
        if let Err(errno) = register_files(&ring, numbers, tags) {
            return Err((errno, files));
        }
        let whole = libc::iovec {
            iov_base: arena.start().cast_mut().cast(),
            iov_len: arena.len(),
        };
        // SAFETY: the kernel pins the pages of the range, which is mapped now;
        // each block's memory is held in its slot while the kernel uses it.
        let registered = unsafe { (ring.submitter()).register_buffers2(&[whole], &[LET_GO | 2]) };
        Ok(Uring {
            ring: ManuallyDrop::new(ring),
            slots: ManuallyDrop::new((0..SLOTS).map(|_| Slot::default()).collect()),
            queued: VecDeque::with_capacity(SLOTS),
            in_kernel: 0,
            closed: false,
            abandoned: false,
            // ENOMEM past RLIMIT_MEMLOCK: the pages are then pinned for each call.
            fixed: registered.is_ok(),
            retired: false,
            owner: here(),
            bell,
            heard: Cell::new(false),
            _files: files,
        })
    }

    /// Readable when there is something to reap: an eventfd, because the ring's
    /// own descriptor wakes nobody while its completions are deferred
    /// (`io_req_local_work_add` in io_uring/io_uring.c rings only this).
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.heard.set(true);
        self.bell.as_fd()
    }

    /// Queues a block: the read, and linked to it the write, which the kernel
    /// starts by itself once the read has filled the piece. Gives the piece
    /// back where its slot is in use, and once the ring is closed.
    pub(crate) fn queue(
        &mut self,
        slot: usize,
        piece: Piece,
        from: u64,
        to: u64,
    ) -> Result<(), Piece> {
        if self.closed || self.slots[slot].piece.is_some() || self.ring.submission().is_full() {
            return Err(piece);
        }
        let [read, write] = entries(self.fixed, slot, &piece, from, to);
        self.slots[slot] = Slot {
            piece: Some(piece),
            expected: 2,
        };
        // SAFETY: both descriptors are registered and owned by this value; the
        // memory is a piece that stays in its slot until both have completed.
        let pushed = unsafe { self.ring.submission().push_multiple(&[read, write]) };
        if pushed.is_err() {
            let given = std::mem::take(&mut self.slots[slot]);
            return given.piece.map_or(Ok(()), Err);
        }
        self.queued.push_back(slot);
        Ok(())
    }

    /// Hands the kernel what is queued, and waits for a completion if told to.
    /// No call is made where there is neither.
    ///
    /// # Errors
    ///
    /// `EINTR`: a signal came while waiting. `EAGAIN`, `EBUSY`: not now.
    /// `EEXIST`: this is not the thread that made the ring.
    pub(crate) fn enter(&mut self, wait: bool) -> Result<(), Errno> {
        if self.heard.take() {
            // Before anything is looked at: what comes after it rings again.
            let _ = self.bell.clear();
        }
        let idle = self.queued.is_empty() && {
            let queue = self.ring.submission();
            !queue.taskrun() && !queue.cq_overflow()
        };
        if idle && (!wait || self.in_kernel == 0) {
            return Ok(());
        }
        self.hand_over(2 * self.queued.len(), wait)
    }

    /// Has the kernel complete what it has in hand, if there is anything, and
    /// waits until some of it is done if told to; hands it nothing.
    pub(crate) fn complete(&mut self, wait: bool) -> Result<(), Errno> {
        match self.in_kernel {
            0 => Ok(()),
            _ => self.hand_over(0, wait),
        }
    }

    /// A moment, or less where something completes by itself: as all does where
    /// the kernel has no `IORING_SETUP_DEFER_TASKRUN`.
    pub(crate) fn rest(&self) {
        use rustix::event::{PollFd, PollFlags, Timespec};
        const MOMENT: Timespec = Timespec {
            tv_sec: 0,
            tv_nsec: 10_000_000,
        };
        let mut bell = [PollFd::new(&self.bell, PollFlags::IN)];
        // Either way it is looked at again.
        if poll_for(&mut bell, Some(&MOMENT)).is_err() {
            let _ = rustix::thread::nanosleep(&MOMENT);
        }
        let _ = self.bell.clear();
    }

    /// It is never entered again, and keeps what the kernel has in hand.
    pub(crate) fn abandon(&mut self) {
        self.close();
        self.abandoned = true;
    }

    /// The memory of a block is there, whose end has not been seen.
    pub(crate) fn is_in_use(&self, slot: usize) -> bool {
        self.slots[slot].piece.is_some()
    }

    /// So many of the queued calls, in `io_uring_enter(2)`, which may take
    /// fewer. Where it ends between the two calls of a block, it has started
    /// the read by itself (`io_submit_state_end` in io_uring/io_uring.c), and
    /// the write would begin without waiting for it the next time: the ring is
    /// closed then.
    fn hand_over(&mut self, calls: usize, wait: bool) -> Result<(), Errno> {
        let calls = if self.closed { 0 } else { calls };
        let done = enter(&self.ring, calls, wait);
        let taken = done.map_err(|error| errno(&error))?.min(calls);
        self.in_kernel += taken;
        self.queued.drain(..taken / 2);
        if taken % 2 == 1 {
            if let Some(slot) = self.queued.pop_front() {
                self.slots[slot].expected = 1;
            }
            self.close();
        }
        Ok(())
    }

    /// Hands the kernel nothing any more: neither what is queued, of which
    /// nothing is to be expected from now on, nor what is still to come.
    pub(crate) fn close(&mut self) {
        self.closed = true;
        for slot in self.queued.drain(..) {
            self.slots[slot].expected = 0;
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Something is queued, and the kernel has nothing in hand whose end would
    /// be a reason to try again.
    pub(crate) fn is_stuck(&self) -> bool {
        self.in_kernel == 0 && !self.queued.is_empty()
    }

    /// The next completion that has been reaped.
    pub(crate) fn next(&mut self) -> Option<Completion> {
        let entry = self.ring.completion().next()?;
        let data = entry.user_data();
        debug_assert!(data < LET_GO, "let go before it was given up");
        let slot = (data >> 1) as usize;
        self.in_kernel -= 1;
        self.slots[slot].expected -= 1;
        Some(Completion {
            slot,
            half: if data & 1 == 0 {
                Half::Read
            } else {
                Half::Write
            },
            result: usize::try_from(entry.result())
                .map_err(|_| Errno::from_raw(entry.result().wrapping_neg())),
        })
    }

    /// The memory of a block of which nothing more is to be expected.
    pub(crate) fn release(&mut self, slot: usize) -> Option<Piece> {
        match self.slots[slot].expected {
            0 => self.slots[slot].piece.take(),
            _ => None,
        }
    }

    /// Has the kernel let go of both files and of the memory: closing a ring
    /// leaves that to a worker of the kernel's, some time later
    /// (`io_ring_exit_work` in io_uring/io_uring.c), and until then the sink is
    /// busy for `execve(2)`, `umount(2)` and leases. To be called with nothing
    /// in flight, by the thread that made the ring; it takes no more blocks.
    pub(crate) fn retire(&mut self) {
        if self.retired || self.in_kernel > 0 || self.owner != here() {
            return;
        }
        self.close();
        self.retired = true;
        let submitter = self.ring.submitter();
        let mut left = 0i32;
        if again(|| submitter.unregister_files()).is_ok() {
            left += 3;
        }
        if self.fixed && again(|| submitter.unregister_buffers()).is_ok() {
            left += 1;
        }
        // Until Linux 6.12 those calls wait for whoever still has a file or the
        // memory, and say nothing. Since then they do not wait: a worker of the
        // kernel's that has just completed a call may have them for a moment
        // yet, and each is told of once it is free. What nobody has is told of
        // at once.
        let mut tells = false;
        loop {
            for entry in self.ring.completion() {
                let data = entry.user_data();
                tells |= data == WITNESS;
                left -= i32::from((LET_GO..=WITNESS).contains(&data));
            }
            // Hands nothing over: what is still queued never begins, now less
            // than ever, and what it would complete with is not waited for.
            if !tells || left <= 0 || again(|| enter(&self.ring, 0, true)).is_err() {
                return;
            }
        }
    }

    /// Waits until the kernel is done with all memory. `false` if that cannot
    /// be brought about from here.
    fn drain(&mut self) -> bool {
        self.close();
        while self.in_kernel > 0 {
            while self.next().is_some() {}
            match self.enter(true) {
                Ok(()) | Err(Errno::EINTR | Errno::EAGAIN | Errno::EBUSY) => {}
                Err(_) => return false,
            }
        }
        true
    }
}

/// `io_uring_enter(2)`: hands over so many of the queued calls, and waits for a
/// completion if told to.
fn enter(ring: &IoUring, calls: usize, wait: bool) -> std::io::Result<usize> {
    const GETEVENTS: u32 = 1;
    // SAFETY: the queued entries are of `queue`, which says why they are
    // sound; the call has no argument of its own.
    unsafe {
        (ring.submitter()).enter::<libc::sigset_t>(calls as u32, u32::from(wait), GETEVENTS, None)
    }
}

/// The two calls of a block, linked.
fn entries(fixed: bool, slot: usize, piece: &Piece, from: u64, to: u64) -> [Entry; 2] {
    let (memory, length) = (piece.as_raw(), piece.len() as u32);
    let (source, sink) = (types::Fixed(0), types::Fixed(1));
    let (read, write) = if fixed {
        (
            opcode::ReadFixed::new(source, memory, length, 0)
                .offset(from)
                .build(),
            opcode::WriteFixed::new(sink, memory, length, 0)
                .offset(to)
                .build(),
        )
    } else {
        (
            opcode::Read::new(source, memory, length)
                .offset(from)
                .build(),
            opcode::Write::new(sink, memory, length).offset(to).build(),
        )
    };
    let data = (slot as u64) << 1;
    [
        read.flags(Flags::IO_LINK).user_data(data),
        write.user_data(data | 1),
    ]
}

impl Drop for Uring {
    fn drop(&mut self) {
        if self.in_kernel > 0 && (self.abandoned || self.owner != here() || !self.drain()) {
            // The kernel may still read and write what is in the slots.
            return;
        }
        if !self.owner.0.is_here() {
            // The parent's: its mapping is not here.
            return;
        }
        self.retire();
        // SAFETY: dropped once, here, and not used after.
        unsafe { ManuallyDrop::drop(&mut self.ring) };
        // SAFETY: as above; the kernel is done with all of their memory.
        unsafe { ManuallyDrop::drop(&mut self.slots) };
    }
}

#[cfg(test)]
mod tests;
