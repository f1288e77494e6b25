//! What every path is: a step with a verdict.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::flow::Flow;
use super::verdict::Verdict;
use crate::report::Stranded;

/// One path at work on one transfer.
pub(crate) trait Step {
    /// Moves some bytes, or says why not.
    fn step(&mut self, flow: &mut Flow<'_>) -> Verdict;

    /// Bytes taken from the source that the sink has not accepted.
    fn held(&self) -> u64 {
        0
    }

    /// Something is held, be it a message of no bytes.
    fn holds(&self) -> bool {
        self.held() > 0
    }

    /// A claim of [`Verdict::Ended`] needs no second opinion.
    fn knows_the_end(&self) -> bool {
        false
    }

    /// Readable when something that was [`Verdict::Pending`] is done.
    fn completions(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// How often to step all the same, where [`Step::completions`] may stay
    /// silent.
    fn looks_each(&self) -> Option<Duration> {
        None
    }

    /// Starts nothing new, and takes back what the kernel has done with.
    /// [`Verdict::Pending`]: there is more, to be called for again once
    /// [`Step::completions`] polls readable. An engine, which must not wait,
    /// calls this until [`Step::quiesce`] has nothing left to wait for.
    fn wind_down(&mut self, _flow: &mut Flow<'_>) -> Verdict {
        Verdict::Ended
    }

    /// Reads and writes that are on their way at this moment.
    fn pending(&self) -> (u32, u32) {
        (0, u32::from(self.holds()))
    }

    /// The transfer goes to sleep with nothing in hand: gives up what memory
    /// and descriptors can be had again.
    fn rest(&mut self) {}

    /// Waits until nothing of this transfer is in the kernel's hands any more:
    /// only then is what is held, written and read final. Called once, before
    /// the account is closed.
    fn quiesce(&mut self, _flow: &mut Flow<'_>) -> Verdict {
        Verdict::Ended
    }

    /// Gives up everything held, to be handed back.
    fn strand(&mut self) -> Option<Stranded> {
        None
    }

    /// Forgets everything held, because the source was rewound.
    fn forget(&mut self) {}

    /// Puts back what was set on the descriptors for the path's sake.
    fn finish(&mut self, _flow: &mut Flow<'_>) {}

    /// Gives up what it has without touching a descriptor: somebody else may
    /// have closed them all, and have others under their numbers. What the
    /// kernel may still write to stays.
    fn let_go(self: Box<Self>) {
        std::mem::forget(self);
    }
}
