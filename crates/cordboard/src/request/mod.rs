//! A transfer's request, and the names of the data paths.

mod aim;
mod backend;
mod data_path;
mod environment;
mod schedule;
mod switches;
mod tune;
mod watermarks;

pub use aim::Aim;
pub use backend::{Backend, BadBackend};
pub use data_path::{BadSwitch, DataPath, Declined, Why};
pub(crate) use environment::Environment;
pub use schedule::Schedule;
pub use switches::Switches;
pub use tune::{BadTune, Tune};
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
    /// is longer than the rest of the size stays in the source. The transfer fails with
    /// `EINVAL` if no record was moved before it.
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
    /// If direct I/O is at least as fast as any other path: both sides are files of local
    /// file systems or block devices, at least 16 MiB are to be copied, `sync` is
    /// requested, at most a tenth of the source is in the page cache, and the sink is not
    /// on btrfs, which compresses only buffered writes. Since Linux 6.5, by
    /// `cachestat(2)`, which newer kernels permit only to the owner of the source and to
    /// processes that may write to it.
    #[default]
    Auto,
    /// If both sides support it, before any other path.
    Always,
    /// Never.
    Never,
}

/// One request: how many bytes to move, from which offset to which, and on which
/// conditions.
///
/// Write it as a literal that ends in `..Request::default()`. Any version may add
/// fields, whose defaults change nothing. A literal that lists all fields may then fail
/// to compile.
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
    /// or inotify. The last datagram may exceed the size if another process reads from
    /// the same socket during the transfer.
    pub size: Size,
    /// The offset in the source to read from, in bytes: the transfer neither uses nor
    /// moves the source's file position. `None`: reads from the file position and
    /// advances it.
    pub source_offset: Option<u64>,
    /// The same for the sink.
    pub sink_offset: Option<u64>,
    /// No other process, thread or descriptor uses the source's position while the
    /// transfer runs: the caller has opened the source, and has not passed it on. With
    /// the default, `false`, others may use it. The transfer then moves the position
    /// past the bytes of a step before it reads them, so that each reader gets bytes of
    /// its own, as with `read(2)`. If the transfer ends early, it moves the position
    /// back, unless another process has moved the position since.
    pub source_unshared: bool,
    /// The same for the sink.
    pub sink_unshared: bool,
    /// The most bytes moved by one step, and the size of each datagram if a stream is
    /// sent to a datagram sink. `None`: a value that suits the pair. A transfer with a block
    /// measures no settings ([`Tune`]), and direct I/O keeps to one number of blocks.
    pub block: Option<NonZeroUsize>,
    /// End, without an error, when no byte has moved for this long. If the source sends
    /// nothing, the transfer still writes the bytes that it has read, and the output of
    /// the stages for them; the sink has the same time again to accept each part. A
    /// stage whose input is incomplete then fails on the source's side, as at the
    /// source's end. If a system call blocks and cannot be interrupted, the transfer
    /// ends after that call has returned: [`Running::cancel`](crate::Running::cancel)
    /// lists these calls.
    pub idle: Option<Duration>,
    /// Take a stable snapshot: exclude the paths that pass pages of the page cache to a
    /// pipe or a socket, where later writes to the source file would still show. If the
    /// source is a pipe or a stream socket, which may hold such pages, its bytes are
    /// copied. The transfer cannot detect a write that changed the pages before it read
    /// them.
    pub stable: bool,
    /// `fsync(2)` the sink after the last byte, and report its result.
    pub sync: bool,
    /// How to treat holes.
    pub sparse: Sparse,
    /// Whether to bypass the page cache.
    pub direct: Direct,
    /// How many blocks may be in flight, on a path that keeps several in flight.
    /// `None`: adapted to the device, unless there is a [`Request::block`], or
    /// [`Request::switches`] leave one path.
    pub watermarks: Option<Watermarks>,
    /// Which paths may be used. `None`: those that the environment allows
    /// (`CORDBOARD_ROUTE`, `CORDBOARD_WITHOUT`; see [`Switches::from_env`]).
    pub switches: Option<Switches>,
    /// Whether the transfer measures other paths and block sizes while it runs. `None`: the
    /// environment decides (`CORDBOARD_TUNE`; see [`Tune::from_env`]).
    pub tune: Option<Tune>,
}
