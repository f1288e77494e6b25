//! The ways to carry bytes, one file a path.
//!
//! Every file has the same anatomy: which pairs it takes (`takes`, a pure
//! function of facts), since which Linux, what each errno means for it with
//! the evidence, one step, its tests. A step makes a bounded number of system
//! calls, never waits unless the transfer allows it, and says with a
//! [`Verdict`] what came of it.

pub(crate) mod claim;
mod clone;
pub(crate) mod copy_file_range;
mod cursor;
pub(crate) mod datagram;
pub(crate) mod direct;
mod flow;
pub(crate) mod holes;
mod in_place;
mod lengthen;
mod lent;
mod preallocate;
pub(crate) mod read_write;
pub(crate) mod sendfile;
mod socket;
mod spill;
pub(crate) mod splice;
mod staged;
mod stream;
mod surplus;
mod terminal;

pub(crate) use cursor::Cursor;
pub(crate) use flow::{Flow, Ready};
pub(crate) use lengthen::lengthen;
pub(crate) use preallocate::Preallocation;
pub(crate) use surplus::give_back;

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::endpoint::{Facts, Side};
use crate::errno::Errno;
use crate::pair::{Capabilities, Pair};
use crate::report::Stranded;
use crate::request::{DataPath, Why};

/// What one step of a path came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// So many bytes made progress; 0 if a signal came first.
    Moved(u64),
    /// The path does not take this pair, or not any more; this step provably
    /// consumed nothing, so the next path may go on from here.
    Declined(Why),
    /// Nothing can be done before this side is ready.
    Blocked(Side),
    /// The kernel is at work on this transfer's behalf: nothing can be done
    /// before [`Step::completions`] polls readable.
    Pending,
    /// The source has ended, as far as this path can tell.
    Ended,
    /// One side failed.
    Failed(Side, Errno),
    /// A stage failed, and neither side is the cause.
    StageFailed(Errno),
}

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

/// Whether a path takes a pair: the reason it does, or why it does not.
pub(crate) type Takes = Result<&'static str, Why>;

/// Asks one path about a pair.
pub(crate) fn takes(path: DataPath, pair: &Pair<'_>, can: &Capabilities) -> Takes {
    match path {
        DataPath::Clone => clone::takes(pair),
        DataPath::Direct => direct::takes(pair),
        DataPath::CopyFileRange => copy_file_range::takes(pair, can),
        DataPath::Sendfile => sendfile::takes(pair),
        DataPath::Splice => splice::takes(pair, can),
        DataPath::Datagram => datagram::takes(pair),
        DataPath::ReadWrite => read_write::takes(pair),
    }
}

/// Whether every step of a path, from its start on, is to be taken on one and
/// the same thread.
pub(crate) fn keeps_to_one_thread(path: DataPath) -> bool {
    match path {
        // Its ring belongs to the thread that made it.
        DataPath::Direct => true,
        DataPath::Clone
        | DataPath::CopyFileRange
        | DataPath::Sendfile
        | DataPath::Splice
        | DataPath::Datagram
        | DataPath::ReadWrite => false,
    }
}

/// Sets a path up for a transfer. What it needs may not be to be had.
pub(crate) fn start(path: DataPath, flow: &mut Flow<'_>) -> Result<Box<dyn Step + Send>, Why> {
    Ok(match path {
        DataPath::Clone => Box::new(clone::Clone::default()),
        DataPath::Direct => Box::new(direct::Direct::start(flow)?),
        DataPath::CopyFileRange => Box::new(copy_file_range::CopyFileRange::default()),
        DataPath::Sendfile => Box::new(sendfile::Sendfile::start(flow)?),
        DataPath::Splice => Box::new(splice::Splice::start(flow)?),
        DataPath::Datagram => Box::new(datagram::Datagram::start(flow)?),
        DataPath::ReadWrite => match flow.stages.lend() {
            Some(chain) => Box::new(staged::Staged::start(flow, chain)?),
            None => Box::new(read_write::ReadWrite::start(flow)?),
        },
    })
}

/// Both sides are files with content and positions.
fn both_files(source: &Facts, sink: &Facts) -> Result<(), Why> {
    if source.kind.is_file() && sink.kind.is_file() {
        Ok(())
    } else {
        Err(Why::Kinds("not between two files"))
    }
}

/// Why nothing is taken from a source that is [unpaged](Facts::unpaged).
const UNPAGED: &str = "its server has, or may have, the source read past the page cache";

/// There is no room, or no memory, for what the call does. From a source it
/// need not be final: before Linux 5.18, tmpfs allocates a hole that is read by
/// pages (`shmem_file_read_iter`, `SGP_CACHE`; removed in 56a8c8eb1eaf), which
/// gives `ENOSPC`, `EFBIG` and `ENOMEM`, and with quotas `EDQUOT`; `read(2)`
/// takes zeros. From a sink it is: the next path's write says so again.
pub(crate) fn needs_room(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::ENOSPC | Errno::EDQUOT | Errno::EFBIG | Errno::ENOMEM | Errno::ENOBUFS
    )
}

/// Why nothing is spliced, where [`Flow::sink_could_wait`], or the source could.
const COULD_WAIT: &str = "a blocking socket can keep the thread that splices";

/// For calls that do not tell which side failed: reads one byte where the
/// source stands. A source that reads well leaves the sink.
fn blame(flow: &mut Flow<'_>, errno: Errno) -> Verdict {
    match errno {
        // Only writing can give these.
        Errno::EPIPE | Errno::EROFS => Verdict::Failed(Side::Sink, errno),
        _ => match flow.source_goes_on() {
            Err(Errno::EINTR) => flow.was_interrupted(Side::Source),
            Err(errno) => Verdict::Failed(Side::Source, errno),
            Ok(_) => Verdict::Failed(Side::Sink, errno),
        },
    }
}
