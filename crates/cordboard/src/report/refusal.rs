//! Why a transfer was refused.

use crate::endpoint::Side;
use crate::errno::Errno;
use crate::quantity::Bytes;
use crate::request::Declined;

/// Why a request was refused before anything moved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The descriptor is closed, or a call that prepares it, such as its duplication, failed.
    #[error("the {side} descriptor cannot be used: {errno}")]
    Unusable {
        /// Which descriptor.
        side: Side,
        /// `EBADF` if it is closed.
        errno: Errno,
    },
    /// A query that every transfer needs failed. A filter may refuse it.
    #[error("the {side} cannot be examined: {call} failed: {errno}")]
    Unexamined {
        /// Which descriptor.
        side: Side,
        /// The call: `fstat(2)`, `fcntl(2)` or `getsockopt(2)`.
        call: &'static str,
        /// The error of the call.
        errno: Errno,
    },
    /// A transfer for the caller's event loop needs an epoll instance, a timer and an
    /// eventfd ([`Transfer::stepping`](crate::Transfer::stepping)).
    #[error("no descriptor for an event loop can be created: {errno}")]
    NoStepping {
        /// `EMFILE`, `ENFILE`, `ENOMEM`: no descriptor or memory is available. `ENOSPC`: the
        /// limit of epoll registrations is reached (`/proc/sys/fs/epoll/max_user_watches`).
        /// Another errno: a filter refuses `epoll_create1(2)`, `epoll_ctl(2)`,
        /// `timerfd_create(2)` or `timerfd_settime(2)`, or both `eventfd2(2)` and `pipe2(2)`.
        errno: Errno,
    },
    /// The descriptor is open, but not for this direction.
    #[error("the {side} is not open for {}", if *.side == Side::Source { "reading" } else { "writing" })]
    WrongMode {
        /// Which descriptor.
        side: Side,
    },
    /// The descriptor is open for this direction, but does not support the
    /// operation (epoll, pidfd).
    #[error("the {side} does not support {}", if *.side == Side::Source { "reading" } else { "writing" })]
    NoOperation {
        /// Which descriptor.
        side: Side,
    },
    /// The descriptor is a directory.
    #[error("the {side} is a directory")]
    Directory {
        /// Which descriptor.
        side: Side,
    },
    /// A listening socket carries no bytes.
    #[error("the {side} is a listening socket: accept a connection first")]
    Listening {
        /// Which descriptor.
        side: Side,
    },
    /// Source and sink are one file, and the writes would extend the range that
    /// is read.
    #[error("source and sink are the same file, {help}")]
    EndlessLoop {
        /// Why the transfer would not end, or might not, and how to avoid that.
        help: &'static str,
    },
    /// Source and sink are one pipe, and the transfer would read what it has
    /// written.
    #[error("source and sink are the same pipe, which holds {}: {help}", Bytes(*.holds))]
    SamePipe {
        /// The number of bytes in the pipe.
        holds: u64,
        /// How to make the transfer end.
        help: &'static str,
    },
    /// Source and sink are one open file description: reading moves the
    /// position of writing.
    #[error("source and sink share one file position: give an offset for one of them")]
    SharedPosition,
    /// Ranges of one file or device overlap so that bytes would be overwritten before
    /// they are read.
    #[error(
        "source and sink are overlapping ranges of the same file or device: copy to another file first"
    )]
    Overlap,
    /// Two sinks of a fan-out are one file, block device, terminal, pipe or stream socket, one
    /// open file description of another device, or two block devices with bytes in common, such
    /// as a disk and its partition. Their bytes would mix.
    #[error(
        "two sinks are the same file, device, pipe or connection, or parts of one device: remove one"
    )]
    SameSinks,
    /// Two sources of a fan-in are the same file, block device, terminal, pipe or stream socket,
    /// or one open file description of another device: the division of its bytes among the two
    /// would be undefined.
    #[error("two sources are the same file, device, pipe or connection: name it once")]
    SameSources,
    /// A fan-in by datagram has a source without message boundaries.
    #[error(
        "the source is a {kind}, which has no message boundaries: take turns by bytes or by record"
    )]
    NoMessages {
        /// The kind of the source.
        kind: crate::endpoint::Kind,
    },
    /// Source and sink of a buffer have message boundaries.
    #[error("the source is a {kind}, and a buffer would merge its messages: omit the buffer")]
    BufferedMessages {
        /// The kind of the source.
        kind: crate::endpoint::Kind,
    },
    /// A file of the buffer cannot be created.
    #[error("the buffer cannot be created: {errno}")]
    NoBuffer {
        /// The errno of `memfd_create(2)`, or of `open(2)` in the directory.
        errno: Errno,
    },
    /// An offset was given for a descriptor that cannot seek.
    #[error("the {side} is a {kind}, which cannot seek: omit the offset")]
    NotSeekable {
        /// Which descriptor.
        side: Side,
        /// What it is.
        kind: crate::endpoint::Kind,
    },
    /// An offset was given for a sink that is open with `O_APPEND`.
    #[error("the sink is open with O_APPEND: omit the offset")]
    AppendOffset,
    /// `sync` was requested for a sink that stores nothing.
    #[error("the sink is a {kind}, which cannot be synced: omit sync")]
    NotSyncable {
        /// What it is.
        kind: crate::endpoint::Kind,
    },
    /// An offset exceeds the largest file offset.
    #[error("an offset exceeds 2^63-1, the largest file offset")]
    TooLarge,
    /// No path that the switches allow takes this pair.
    #[error("no usable data path for this pair: {}", reasons(.declined))]
    NoPath {
        /// The allowed paths, and what excludes each.
        declined: Vec<Declined>,
    },
    /// A stage changes the bytes, and an endpoint has message boundaries.
    #[error("the {side} is a {kind}, and {stage} would merge its messages: use a stream")]
    StagedMessages {
        /// Which descriptor.
        side: Side,
        /// What it is.
        kind: crate::endpoint::Kind,
        /// The stage.
        stage: &'static str,
    },
    /// A stage changes the bytes of a file that is both source and sink.
    #[error("source and sink are the same file, which {stage} cannot overwrite while reading it")]
    StagedOntoItself {
        /// The stage.
        stage: &'static str,
    },
    /// `CORDBOARD_ROUTE` or `CORDBOARD_WITHOUT` contains a word that is not a
    /// path.
    #[error("{0}")]
    BadSwitch(#[from] crate::request::BadSwitch),
    /// `CORDBOARD_ENGINE` contains a word that is not an engine.
    #[error("{0}")]
    BadBackend(#[from] crate::request::BadBackend),
    /// `CORDBOARD_TUNE` is neither `on`, `processor` nor `off`.
    #[error(transparent)]
    BadTune(#[from] crate::request::BadTune),
    /// An engine duplicates the descriptors, and no number was free. Owned descriptors
    /// ([`Transfer::owning`](crate::Transfer::owning)) are not duplicated.
    #[error(
        "no descriptor is available for the transfer: {errno}; \
         raise the limit of open files (ulimit -n)"
    )]
    NoDescriptor {
        /// `EMFILE` or `ENFILE`.
        errno: Errno,
    },
    /// The calling thread has its own descriptor table, from `unshare(2)`: in
    /// the engine's threads these numbers refer to other files.
    #[error(
        "this thread has its own descriptor table (unshare(2), CLONE_FILES), which the engine \
         does not share: run the transfer on this thread, or start an engine on it"
    )]
    OtherDescriptors,
    /// The engine does not accept the transfer.
    #[error("{}", no_engine(*.errno))]
    NoEngine {
        /// `ESHUTDOWN`: the engine has shut down. `ECHILD`: it was started
        /// before `fork(2)` and belongs to the parent process; or a signal handler has
        /// forked during the start, which continues in the parent. Any other errno:
        /// it could not be started, such as `EMFILE` (no descriptor), `EAGAIN`
        /// (no thread), `EPERM` (a filter).
        errno: Errno,
    },
}

fn no_engine(errno: Errno) -> String {
    match errno {
        Errno::ESHUTDOWN => "the engine has shut down".to_owned(),
        Errno::ECHILD => {
            "the engine belongs to the parent process: start another after fork(2)".to_owned()
        }
        _ => format!("the engine could not be started: {errno}"),
    }
}

fn reasons(declined: &[Declined]) -> String {
    let each = declined.iter().map(|d| format!("{} ({})", d.path, d.why));
    let all: Vec<String> = each.collect();
    if all.is_empty() {
        "all are disabled".to_owned()
    } else {
        all.join(", ")
    }
}

impl Refusal {
    /// Returns the refusal of a descriptor of this side that cannot be duplicated or made.
    pub(crate) fn of_descriptor(side: Side, errno: Errno) -> Refusal {
        match errno {
            Errno::EMFILE | Errno::ENFILE => Refusal::NoDescriptor { errno },
            _ => Refusal::Unusable { side, errno },
        }
    }

    /// Returns the refused side; `None` if the refusal is not about one side.
    pub fn side(&self) -> Option<Side> {
        match self {
            Refusal::Unusable { side, .. }
            | Refusal::Unexamined { side, .. }
            | Refusal::WrongMode { side }
            | Refusal::NoOperation { side }
            | Refusal::Directory { side }
            | Refusal::Listening { side }
            | Refusal::NotSeekable { side, .. }
            | Refusal::StagedMessages { side, .. } => Some(*side),
            Refusal::AppendOffset | Refusal::NotSyncable { .. } | Refusal::SameSinks => {
                Some(Side::Sink)
            }
            Refusal::SameSources
            | Refusal::NoMessages { .. }
            | Refusal::BufferedMessages { .. } => Some(Side::Source),
            _ => None,
        }
    }

    /// Returns the errno that a system call would have set.
    pub fn errno(&self) -> Errno {
        match self {
            Refusal::Unusable { errno, .. }
            | Refusal::Unexamined { errno, .. }
            | Refusal::NoDescriptor { errno }
            | Refusal::NoBuffer { errno }
            | Refusal::NoEngine { errno }
            | Refusal::NoStepping { errno } => *errno,
            Refusal::WrongMode { .. } | Refusal::OtherDescriptors => Errno::EBADF,
            Refusal::Directory { .. } => Errno::EISDIR,
            Refusal::NotSeekable { .. } => Errno::ESPIPE,
            Refusal::TooLarge => Errno::EOVERFLOW,
            Refusal::NoPath { .. } => Errno::EOPNOTSUPP,
            _ => Errno::EINVAL,
        }
    }
}
