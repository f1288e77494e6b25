//! Why a transfer was not begun.

use crate::endpoint::Side;
use crate::errno::Errno;
use crate::request::Declined;

/// Why a request was refused before anything moved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The descriptor could not be looked at.
    #[error("the {side} is not usable: {errno}")]
    Unusable {
        /// Which descriptor.
        side: Side,
        /// `EBADF` for one that is closed or open the wrong way.
        errno: Errno,
    },
    /// The descriptor is open, but not for this direction.
    #[error("the {side} is not open for {}", if *.side == Side::Source { "reading" } else { "writing" })]
    WrongMode {
        /// Which descriptor.
        side: Side,
    },
    /// It is open for this direction, but has no such operation (epoll, pidfd).
    #[error("the {side} cannot be {} at all", if *.side == Side::Source { "read" } else { "written" })]
    NoOperation {
        /// Which.
        side: Side,
    },
    /// A directory was given.
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
    /// Source and sink are one file, and writing would feed the reading.
    #[error("source and sink are the same file, {help}")]
    EndlessLoop {
        /// Why there is no end, or none that is known, and what helps.
        help: &'static str,
    },
    /// Source and sink are one pipe, and what is written would be read again.
    #[error("source and sink are the same pipe, which holds {holds} bytes: {help}")]
    SamePipe {
        /// Bytes that were in it when it was looked at.
        holds: u64,
        /// What would make it end.
        help: &'static str,
    },
    /// One open description: reading moves the place of writing.
    #[error("source and sink are one open file with one position: give an offset for either")]
    SharedPosition,
    /// Ranges of one file overlap so that bytes would be overwritten before
    /// they are read.
    #[error("source and sink are overlapping ranges of the same file: copy it elsewhere first")]
    Overlap,
    /// An offset for a descriptor that has no positions.
    #[error("the {side} is a {kind}, which cannot seek: leave the offset out")]
    NotSeekable {
        /// Which descriptor.
        side: Side,
        /// What it is.
        kind: crate::endpoint::Kind,
    },
    /// An offset for a sink that appends.
    #[error("the sink appends: it takes no offset")]
    AppendOffset,
    /// `sync` for a sink that keeps nothing.
    #[error("the sink is a {kind}, which cannot be synced: leave sync out")]
    NotSyncable {
        /// What it is.
        kind: crate::endpoint::Kind,
    },
    /// An offset past what a file can have.
    #[error("an offset is past 2^63-1, the end of any file")]
    TooLarge,
    /// The switches leave no path that takes this pair.
    #[error("no path is left for this pair: {}", said(.declined))]
    NoPath {
        /// The paths that were allowed, and what excludes each.
        declined: Vec<Declined>,
    },
    /// A stage that changes the bytes, and an endpoint whose messages end
    /// where they end.
    #[error("the {side} is a {kind}, and {stage} would run its messages together: use a stream")]
    StagedMessages {
        /// Which descriptor.
        side: Side,
        /// What it is.
        kind: crate::endpoint::Kind,
        /// The stage.
        stage: &'static str,
    },
    /// A stage that changes the bytes of a file on the way into itself.
    #[error("source and sink are the same file, which {stage} cannot replace while it reads it")]
    StagedOntoItself {
        /// The stage.
        stage: &'static str,
    },
    /// `CORDBOARD_ROUTE` or `CORDBOARD_WITHOUT` holds a word that is no path.
    #[error("{0}")]
    BadSwitch(#[from] crate::request::BadSwitch),
    /// `CORDBOARD_ENGINE` holds a word that is no engine.
    #[error("{0}")]
    BadBackend(#[from] crate::request::BadBackend),
    /// An engine keeps descriptors of its own, and none was free.
    #[error(
        "no descriptor is left for the transfer: {errno}; \
         raise the limit of open files (ulimit -n), or give it yours with Transfer::owning"
    )]
    NoDescriptor {
        /// `EMFILE` or `ENFILE`.
        errno: Errno,
    },
    /// The calling thread has a table of descriptors of its own, from
    /// `unshare(2)`: to the engine's threads these numbers are other files.
    #[error(
        "this thread has descriptors of its own (unshare(2), CLONE_FILES), which the engine \
         does not have: run the transfer here, or make an engine in this thread"
    )]
    OtherDescriptors,
    /// The engine does not take it.
    #[error("{}", no_engine(*.errno))]
    NoEngine {
        /// `ESHUTDOWN`: it has shut down. `ECHILD`: it is the parent's, from
        /// before `fork(2)`. Otherwise it could not be started: `EMFILE` of its
        /// descriptors, `EAGAIN` of its thread, `EPERM` of a filter.
        errno: Errno,
    },
}

fn no_engine(errno: Errno) -> String {
    match errno {
        Errno::ESHUTDOWN => "the engine has shut down".to_owned(),
        Errno::ECHILD => "the engine is the parent process's: make another after fork".to_owned(),
        _ => format!("no engine could be started: {errno}"),
    }
}

fn said(declined: &[Declined]) -> String {
    let each = declined.iter().map(|d| format!("{} ({})", d.path, d.why));
    let all: Vec<String> = each.collect();
    if all.is_empty() {
        "all are turned off".to_owned()
    } else {
        all.join(", ")
    }
}

impl Refusal {
    /// The side it concerns.
    pub fn side(&self) -> Option<Side> {
        match self {
            Refusal::Unusable { side, .. }
            | Refusal::WrongMode { side }
            | Refusal::NoOperation { side }
            | Refusal::Directory { side }
            | Refusal::Listening { side }
            | Refusal::NotSeekable { side, .. }
            | Refusal::StagedMessages { side, .. } => Some(*side),
            Refusal::AppendOffset | Refusal::NotSyncable { .. } => Some(Side::Sink),
            _ => None,
        }
    }

    /// The errno a system call would have given for it.
    pub fn errno(&self) -> Errno {
        match self {
            Refusal::Unusable { errno, .. }
            | Refusal::NoDescriptor { errno }
            | Refusal::NoEngine { errno } => *errno,
            Refusal::WrongMode { .. } | Refusal::OtherDescriptors => Errno::EBADF,
            Refusal::Directory { .. } => Errno::EISDIR,
            Refusal::NotSeekable { .. } => Errno::ESPIPE,
            Refusal::TooLarge => Errno::EOVERFLOW,
            Refusal::NoPath { .. } => Errno::EOPNOTSUPP,
            _ => Errno::EINVAL,
        }
    }
}
