//! A transfer's request, and the names of the data paths.

mod backend;
mod data_path;
mod switches;
mod watermarks;

pub use backend::{Backend, BadBackend};
pub use data_path::{BadSwitch, DataPath, Declined, Why};
pub use switches::Switches;
pub use watermarks::Watermarks;

use std::num::NonZeroUsize;
use std::time::Duration;

/// How many bytes to move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Size {
    /// Until the source ends.
    #[default]
    Eof,
    /// This many bytes, or until the source ends. Records of the kernel (`eventfd(2)`,
    /// `timerfd_create(2)`, `signalfd(2)`, `inotify(7)`) are moved whole: a record that
    /// is longer than the rest of the size stays in the source, with `EINVAL` if no
    /// other was moved.
    Bytes(u64),
}

impl From<u64> for Size {
    fn from(bytes: u64) -> Size {
        Size::Bytes(bytes)
    }
}

/// How to treat holes: ranges of a file that have no blocks and read as zeros
/// (`lseek(2)`, `SEEK_HOLE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[non_exhaustive]
pub enum Sparse {
    /// Holes of the source become holes of the sink.
    #[default]
    Auto,
    /// Blocks of zeros become holes too.
    Always,
    /// Every byte is written; the transfer makes no holes.
    Never,
}

/// Whether to bypass the page cache (`O_DIRECT`) between files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[non_exhaustive]
pub enum Direct {
    /// If that is at least as fast as any other path: much to move, `sync` requested,
    /// and most of the source not in the page cache.
    #[default]
    Auto,
    /// If both sides support it, before any other path.
    Always,
    /// Never.
    Never,
}

/// One request: how many bytes, from where, and on which conditions.
///
/// Write it as a literal that ends in `..Request::default()`. Any version may add
/// fields, with a default that changes nothing; a literal that lists all of them may
/// then not compile.
///
/// ```
/// use cordboard::{Request, Size};
/// let request = Request { size: Size::Bytes(4096), sync: true, ..Request::default() };
/// ```
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// How many bytes to move. A datagram is moved whole or not at all: if the next one
    /// is longer than the rest of the size, the transfer ends before it and leaves it
    /// in the source. The same holds for records of an eventfd, a timerfd, a signalfd
    /// or inotify. The last datagram may exceed the size if another process reads the
    /// same socket meanwhile.
    pub size: Size,
    /// The offset in the source to read from, in bytes; the source's own position is
    /// then neither used nor moved. `None`: from its position, which moves along.
    pub source_offset: Option<u64>,
    /// The same for the sink.
    pub sink_offset: Option<u64>,
    /// No other process, thread or descriptor uses the source's position while the
    /// transfer runs: the caller has opened the source, and has not passed it on. By
    /// default, others may. The position is then moved past the bytes of a step before
    /// they are read, so that each reader gets bytes of its own, as with `read(2)`; if
    /// the transfer ends early, it is moved back, unless another process has moved it
    /// meanwhile.
    pub source_unshared: bool,
    /// The same for the sink.
    pub sink_unshared: bool,
    /// The most bytes moved by one step, and the size of each datagram if a stream is
    /// sent to a datagram sink. `None`: a value that suits the pair.
    pub block: Option<NonZeroUsize>,
    /// End, without an error, when nothing has moved for this long. If the source sends
    /// nothing, the bytes that were read, and what the stages make of them, still go to
    /// the sink, which has the same time again to accept each part. A stage whose input
    /// is incomplete then fails on the source's side, as at the source's end. A call
    /// that waits inside the kernel, where nothing can interrupt it, is finished first:
    /// [`Running::cancel`](crate::Running::cancel) lists these calls.
    pub idle: Option<Duration>,
    /// Take a stable snapshot: exclude the paths that pass pages of the page cache to a
    /// pipe or a socket, where later writes to the source file would still show. A pipe
    /// or a stream socket as the source may hold such pages too, and is copied. A write
    /// that changes them before they are read cannot be detected.
    pub stable: bool,
    /// `fsync(2)` the sink after the last byte, and report its result.
    pub sync: bool,
    /// How to treat holes.
    pub sparse: Sparse,
    /// Whether to bypass the page cache.
    pub direct: Direct,
    /// How many blocks may be in flight on a path that keeps several. `None`: adapted
    /// to the device.
    pub watermarks: Option<Watermarks>,
    /// Which paths may be used. `None`: as the environment says (`CORDBOARD_ROUTE`,
    /// `CORDBOARD_WITHOUT`; see [`Switches::from_env`]).
    pub switches: Option<Switches>,
}
