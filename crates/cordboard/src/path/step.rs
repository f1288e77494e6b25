//! The interface of every path: a step with a verdict.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::flow::Flow;
use super::verdict::Verdict;
use crate::errno::Errno;
use crate::report::{BestSetting, Stranded};

/// One path running one transfer.
pub(crate) trait Step {
    /// Moves some bytes, or returns why not.
    fn step(&mut self, flow: &mut Flow<'_>) -> Verdict;

    /// Bytes taken from the source that the sink has not accepted.
    fn held(&self) -> u64 {
        0
    }

    /// Whether anything is held, including a message of zero bytes.
    fn holds(&self) -> bool {
        self.held() > 0
    }

    /// Whether [`Verdict::Ended`] needs no confirmation.
    fn knows_the_end(&self) -> bool {
        false
    }

    /// A descriptor that is readable when an operation has completed for which
    /// [`Verdict::Pending`] was returned.
    fn completions(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Whether its operations complete later, also if no descriptor shows that.
    fn has_completions(&self) -> bool {
        self.completions().is_some()
    }

    /// The interval at which to step anyway, if [`Step::completions`] may miss
    /// an event.
    fn poll_interval(&self) -> Option<Duration> {
        None
    }

    /// Starts nothing new, and collects completed operations.
    /// [`Verdict::Pending`]: there is more; call again once
    /// [`Step::completions`] polls readable. An engine, which must not block,
    /// calls this until [`Step::quiesce`] has nothing left to wait for.
    fn wind_down(&mut self, _flow: &mut Flow<'_>) -> Verdict {
        Verdict::Ended
    }

    /// The number of reads and writes in flight.
    fn pending(&self) -> (u32, u32) {
        (0, u32::from(self.holds()))
    }

    /// The bytes in flight, which count as taken once they are in the sink.
    fn in_flight(&self) -> u64 {
        0
    }

    /// The least number of bytes that it moves by itself, unless the transfer has
    /// fewer left.
    fn unit(&self) -> u64 {
        1
    }

    /// Sets the most bytes of one call, from the next one on. Called only while nothing
    /// is held, for a path whose row says that it can be tuned.
    fn set_piece(&mut self, _bytes: usize) {}

    /// Returns the most bytes of a call, if it can be set.
    fn piece(&self) -> Option<usize> {
        None
    }

    /// Returns the best setting, if it has measured several by itself.
    fn best(&self) -> Option<BestSetting> {
        None
    }

    /// Releases memory and descriptors that can be acquired again: the transfer
    /// goes idle with nothing held.
    fn rest(&mut self) {}

    /// Returns the second descriptions of the source and of the sink that are open, if
    /// these are pipes.
    fn second_descriptions(&self) -> [Option<BorrowedFd<'_>>; 2] {
        [None; 2]
    }

    /// Waits until the kernel has completed everything of this transfer: only
    /// then are the counts of held, written and read final. Called once, before
    /// the counts are closed.
    fn quiesce(&mut self, _flow: &mut Flow<'_>) -> Verdict {
        Verdict::Ended
    }

    /// Hands over everything held, for the caller.
    fn strand(&mut self) -> Option<Stranded> {
        None
    }

    /// Returns the error of the source that followed bytes and that no step has returned
    /// yet: the kernel does not return it again.
    fn unreported(&mut self) -> Option<Errno> {
        None
    }

    /// Returns `ENOMEM` if [`Step::strand`] had no memory for all bytes, or they were too many.
    fn lacked_memory(&self) -> Option<Errno> {
        None
    }

    /// Discards everything held, because the source was rewound.
    fn forget(&mut self) {}

    /// Undoes changes that the path has made to the descriptors or to the sink.
    fn finish(&mut self, _flow: &mut Flow<'_>) {}

    /// Drops its state without touching a descriptor: another part of the
    /// process may have closed them all and reused their numbers. Memory that
    /// the kernel may still write to stays allocated. A path with shares of a budget
    /// returns them.
    fn drop_without_close(self: Box<Self>) {
        std::mem::forget(self);
    }
}
