//! What the caller asks for, and the names of the data paths.

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

/// How far to move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Size {
    /// Until the source ends.
    #[default]
    Eof,
    /// This many bytes, or until the source ends. Records of the kernel's
    /// (`eventfd(2)`, `timerfd_create(2)`, `signalfd(2)`, `inotify(7)`) are
    /// moved whole: one that is longer than what is left stays, which is
    /// `EINVAL` if no other was moved.
    Bytes(u64),
}

impl From<u64> for Size {
    fn from(bytes: u64) -> Size {
        Size::Bytes(bytes)
    }
}

/// What becomes of holes: ranges of a file that have no blocks and read as
/// zeros (`lseek(2)`, `SEEK_HOLE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[non_exhaustive]
pub enum Sparse {
    /// The source's holes stay holes in the sink.
    #[default]
    Auto,
    /// Blocks of zeros become holes too.
    Always,
    /// Every byte is written; the sink has no holes from this transfer.
    Never,
}

/// Whether to go past the page cache (`O_DIRECT`) between files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
#[non_exhaustive]
pub enum Direct {
    /// Where that is at least as fast as any other way: much to move, `sync`
    /// asked for, and most of the source not in the page cache.
    #[default]
    Auto,
    /// Wherever both sides can, before any other way.
    Always,
    /// Not at all.
    Never,
}

/// One request: how many bytes, from where, under which promises.
///
/// Write it as a literal that ends in `..Request::default()`. Fields may be
/// added in any version, with a default that changes nothing; a literal that
/// lists all of them is not promised to compile again.
///
/// ```
/// use cordboard::{Request, Size};
/// let request = Request { size: Size::Bytes(4096), sync: true, ..Request::default() };
/// ```
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// How far to move. A datagram is moved whole or not at all: where the
    /// next one is longer than what is left of the size, the transfer ends
    /// before it and leaves it in the source. The same goes for the records of
    /// an eventfd, a timerfd, a signalfd or inotify. The last datagram may
    /// exceed the size if another process reads the same socket meanwhile.
    pub size: Size,
    /// Read from this byte of the source on; its own position is then neither
    /// used nor moved. `None`: from its position, which moves along.
    pub source_offset: Option<u64>,
    /// The same for the sink.
    pub sink_offset: Option<u64>,
    /// No other process, thread or descriptor uses the source's position while the
    /// transfer runs: the caller has opened the source, and has not passed it on.
    /// By default, others may. The position is then moved past the bytes of a step
    /// before they are read, so that each reader has bytes of its own, as with
    /// `read(2)`; if the transfer ends early, it is moved back, unless another
    /// process has moved it meanwhile.
    pub source_unshared: bool,
    /// The same for the sink.
    pub sink_unshared: bool,
    /// Bytes moved by one step at most, and the size of each datagram where a
    /// stream is sent to a datagram sink. `None`: whatever suits the pair.
    pub block: Option<NonZeroUsize>,
    /// End, without an error, when nothing has moved for this long. If the source
    /// falls silent, the bytes that were read, and what the stages make of them, still
    /// go to the sink, which has the same time again to take each part. A stage whose
    /// input is incomplete then fails on the source's side, as at the source's end.
    /// A call that waits inside the kernel, where nothing can end it, is finished
    /// first: [`Running::cancel`](crate::Running::cancel) says which do.
    pub idle: Option<Duration>,
    /// Take a stable snapshot: exclude the paths that hand the page cache's
    /// own pages to a pipe or a socket, where later writes to the source file
    /// would still show. A pipe or a stream socket as the source may hold such
    /// pages too, and is copied. What a write changes before they are read from
    /// it is not known.
    pub stable: bool,
    /// When all is written, `fsync(2)` the sink and report its result.
    pub sync: bool,
    /// What becomes of holes.
    pub sparse: Sparse,
    /// Whether to go past the page cache.
    pub direct: Direct,
    /// How many blocks may be in flight, where a path has several there.
    /// `None`: as the device shows.
    pub watermarks: Option<Watermarks>,
    /// Which paths may be used. `None`: as the environment says
    /// (`CORDBOARD_ROUTE`, `CORDBOARD_WITHOUT`; see [`Switches::from_env`]).
    pub switches: Option<Switches>,
}
