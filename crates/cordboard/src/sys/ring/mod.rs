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
use super::poll::poll_for;
use super::process::Stamp;
use super::wake_fd::WakeFd;
use crate::errno::Errno;

mod setup;

/// Pairs of reads and writes in flight. Owns the memory of each until the kernel is
/// done with it.
///
/// Must be used on the thread that made it: with `IORING_SETUP_SINGLE_ISSUER` the
/// kernel refuses every other thread. On another thread, or in a child of `fork(2)`, a
/// ring can only be dropped, which leaks the memory that the kernel may still write to.
pub(crate) struct Uring {
    ring: ManuallyDrop<IoUring>,
    slots: ManuallyDrop<Vec<Slot>>,
    /// Blocks not yet submitted, in order.
    queued: VecDeque<usize>,
    /// Calls submitted and not completed.
    in_kernel: usize,
    /// Nothing more is submitted.
    closed: bool,
    /// `io_uring_enter(2)` is not called any more.
    abandoned: bool,
    /// The arena is registered as a fixed buffer.
    fixed: bool,
    /// The files and the memory are unregistered.
    retired: bool,
    owner: (Stamp, ThreadId),
    /// Signalled by the kernel with each completion.
    completions: WakeFd,
    /// The caller may wait for [`Uring::fd`].
    waited: Cell<bool>,
    _source: OwnedFd,
    /// `None` once it is taken.
    sink: Option<OwnedFd>,
}

#[derive(Default)]
struct Slot {
    piece: Option<Piece>,
    /// Completions to come.
    expected: u8,
}

/// The `user_data` of the tags that complete once a registered resource is released:
/// either file, the memory, or a file that no call uses.
const RELEASED: u64 = 1 << 32;
/// The tag of the file that no call uses.
const WITNESS: u64 = RELEASED | 3;

fn here() -> (Stamp, ThreadId) {
    (Stamp::here(), std::thread::current().id())
}

impl Uring {
    /// Makes a ring that copies from `files[0]` to `files[1]`. `io_uring_setup(2)`,
    /// since Linux 5.13 as it is used here.
    ///
    /// # Errors
    ///
    /// `ENOSYS`: no such call, or an older kernel. `EPERM`, `EACCES`: a filter, as in
    /// most containers, or the sysctl `kernel.io_uring_disabled`. The same of
    /// `eventfd2(2)`, without which completions wake no thread. `ENOMEM`, `EMFILE`,
    /// `ENFILE`.
    pub(crate) fn new(files: [OwnedFd; 2], arena: &Arena) -> Result<Uring, (Errno, [OwnedFd; 2])> {
        let (ring, completions) = match set_up() {
            Ok(made) => made,
            Err(errno) => return Err((errno, files)),
        };
        // Last of the calls that can fail: after a later failure the kernel would keep
        // the files for a while.
        let numbers =
            [files[0].as_fd(), files[1].as_fd(), completions.as_fd()].map(|fd| fd.as_raw_fd());
        let tags = [RELEASED, RELEASED | 1, WITNESS];
        if let Err(errno) = register_files(&ring, numbers, tags) {
            return Err((errno, files));
        }
        let whole = libc::iovec {
            iov_base: arena.start().cast_mut().cast(),
            iov_len: arena.len(),
        };
        // SAFETY: the kernel pins the pages of the range, which is mapped now;
        // each block's memory is held in its slot while the kernel uses it.
        let registered = unsafe { (ring.submitter()).register_buffers2(&[whole], &[RELEASED | 2]) };
        let [source, sink] = files;
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
            completions,
            waited: Cell::new(false),
            _source: source,
            sink: Some(sink),
        })
    }

    /// Returns a descriptor that is readable when there are completions: an eventfd,
    /// because the ring's own descriptor is not signalled while completions are
    /// deferred (`io_req_local_work_add` in io_uring/io_uring.c signals only this).
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.waited.set(true);
        self.completions.as_fd()
    }

    /// Queues a block: a read and a linked write, which the kernel starts once the read
    /// has filled the piece. Returns the piece if its slot is in use or the ring is
    /// closed.
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

    /// Submits the queued calls, and waits for a completion if `wait` is set. Makes no
    /// system call if there is nothing to submit, to wait for or to process.
    ///
    /// # Errors
    ///
    /// `EINTR`: a signal interrupted the wait. `EAGAIN`, `EBUSY`: temporarily refused.
    /// `EEXIST`: this is not the thread that made the ring.
    pub(crate) fn enter(&mut self, wait: bool) -> Result<(), Errno> {
        if self.waited.take() {
            // Before the completions are read: a later one signals again.
            let _ = self.completions.clear();
        }
        let idle = self.queued.is_empty() && {
            let queue = self.ring.submission();
            !queue.taskrun() && !queue.cq_overflow()
        };
        if idle && (!wait || self.in_kernel == 0) {
            return Ok(());
        }
        self.submit(2 * self.queued.len(), wait)
    }

    /// Lets the kernel complete submitted calls, and waits for a completion if `wait`
    /// is set. Submits nothing.
    pub(crate) fn complete(&mut self, wait: bool) -> Result<(), Errno> {
        match self.in_kernel {
            0 => Ok(()),
            _ => self.submit(0, wait),
        }
    }

    /// Waits for a completion, for at most 10 ms. Without `IORING_SETUP_DEFER_TASKRUN`,
    /// calls complete without `io_uring_enter(2)`.
    pub(crate) fn rest(&self) {
        use rustix::event::{PollFd, PollFlags, Timespec};
        const MOMENT: Timespec = Timespec {
            tv_sec: 0,
            tv_nsec: 10_000_000,
        };
        let mut fds = [PollFd::new(&self.completions, PollFlags::IN)];
        // After a timeout too, the caller checks for completions.
        if poll_for(&mut fds, Some(&MOMENT)).is_err() {
            let _ = rustix::thread::nanosleep(&MOMENT);
        }
        let _ = self.completions.clear();
    }

    /// Stops using the ring, which keeps the memory of submitted calls.
    pub(crate) fn abandon(&mut self) {
        self.close();
        self.abandoned = true;
    }

    /// Whether a block's memory is in this slot, not yet released.
    pub(crate) fn is_in_use(&self, slot: usize) -> bool {
        self.slots[slot].piece.is_some()
    }

    /// Submits `calls` of the queued calls by `io_uring_enter(2)`, which may submit
    /// fewer. If it submits only the read of a block, it starts that read alone
    /// (`io_submit_state_end` in io_uring/io_uring.c), and the next submission would
    /// start the write without waiting for the read. The ring is then closed.
    fn submit(&mut self, calls: usize, wait: bool) -> Result<(), Errno> {
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

    /// Stops submitting. Queued blocks never start, and have no completions.
    pub(crate) fn close(&mut self) {
        self.closed = true;
        for slot in self.queued.drain(..) {
            self.slots[slot].expected = 0;
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Whether calls are queued and none is submitted, so that no completion will
    /// prompt another attempt.
    pub(crate) fn is_stuck(&self) -> bool {
        self.in_kernel == 0 && !self.queued.is_empty()
    }

    /// Takes the next completion.
    pub(crate) fn next(&mut self) -> Option<Completion> {
        let entry = self.ring.completion().next()?;
        let data = entry.user_data();
        debug_assert!(
            data < RELEASED,
            "a tag completed before it was unregistered"
        );
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

    /// Takes the memory of a block that has no completions to come.
    pub(crate) fn release(&mut self, slot: usize) -> Option<Piece> {
        match self.slots[slot].expected {
            0 => self.slots[slot].piece.take(),
            _ => None,
        }
    }

    /// Unregisters both files and the memory. After a ring is closed, a kernel worker
    /// would do that some time later (`io_ring_exit_work` in io_uring/io_uring.c), and
    /// until then the sink is busy for `execve(2)`, `umount(2)` and leases. Must be
    /// called with nothing in flight, on the thread that made the ring. The ring takes
    /// no blocks afterwards.
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
        // Until Linux 6.12 those calls wait for all users of the files and the memory,
        // and no tag completes. Since then they do not wait: a kernel worker that has
        // just completed a call may use a resource a little longer, and the tag of each
        // resource completes once it is free. The tag of an unused resource completes
        // at once.
        let mut tells = false;
        loop {
            for entry in self.ring.completion() {
                let data = entry.user_data();
                tells |= data == WITNESS;
                left -= i32::from((RELEASED..=WITNESS).contains(&data));
            }
            // Submits nothing: queued blocks never start, and their completions are not
            // waited for.
            if !tells || left <= 0 || again(|| enter(&self.ring, 0, true)).is_err() {
                return;
            }
        }
    }

    /// Returns the second file. The ring takes no blocks afterwards. Must be called on the
    /// thread that made the ring.
    pub(crate) fn take_sink(&mut self) -> Option<OwnedFd> {
        self.close();
        self.retire();
        self.sink.take()
    }

    /// Waits until the kernel is done with all memory. `false` if this thread cannot
    /// wait for that.
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

/// `io_uring_enter(2)`: submits `calls` of the queued calls, and waits for a completion
/// if `wait` is set.
fn enter(ring: &IoUring, calls: usize, wait: bool) -> std::io::Result<usize> {
    const GETEVENTS: u32 = 1;
    // SAFETY: the queued entries are of `queue`, which says why they are
    // sound; the call has no argument of its own.
    unsafe {
        (ring.submitter()).enter::<libc::sigset_t>(calls as u32, u32::from(wait), GETEVENTS, None)
    }
}

/// Makes the two linked calls of a block.
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
            // The ring is the parent's: its mapping does not exist in this process.
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
