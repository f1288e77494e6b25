//! Sources that can be read only once, and `--verify` of them.

use std::os::fd::BorrowedFd;

use cordboard::{DataPath, Switches};
use rustix::fs::FileType;

use crate::copy::job::Job;
use crate::files::kind;
use crate::signals::retry;
use crate::stages::TransferExtras;

impl Job {
    /// Returns whether a source that is verified can be read only once.
    ///
    /// A file without positions, such as a stream of a FUSE server, may provide
    /// its bytes only once. A file that is generated on reading has no size,
    /// and may differ each time. For `--verify` such a source is hashed during
    /// the transfer, which needs the path read/write. So is a source that is
    /// not a regular file. If that path is not allowed, only a file without
    /// positions counts as such a source.
    pub fn is_read_once(&self, source: BorrowedFd<'_>) -> bool {
        let changes = || {
            let stat = retry(|| cordboard::fstat(source));
            stat.is_ok_and(|stat| kind(&stat) != FileType::RegularFile || stat.st_size == 0)
        };
        let once = || !seeks(source) || self.reads_and_writes() && changes();
        self.staging.verify && once()
    }

    /// Returns what a transfer from this source needs, whatever its sink is.
    pub fn source_extras(&self, source: BorrowedFd<'_>) -> TransferExtras {
        TransferExtras {
            read_once: self.is_read_once(source),
            ..TransferExtras::default()
        }
    }

    /// Whether the path read/write, which takes every pair, is allowed.
    pub fn reads_and_writes(&self) -> bool {
        let switches = self.request.switches;
        let switches = switches.or_else(|| Switches::from_env().ok());
        switches.is_none_or(|switches| switches.allows(DataPath::ReadWrite))
    }
}

/// Whether a file has positions. A FUSE file may have none
/// (`FOPEN_NONSEEKABLE`).
pub fn seeks(file: BorrowedFd<'_>) -> bool {
    rustix::fs::tell(file).is_ok()
}
