//! `--verify` of a source that can be read once.

use std::os::fd::BorrowedFd;

use cordboard::{DataPath, Switches};
use rustix::fs::FileType;

use crate::copy::job::Job;
use crate::files::kind;
use crate::signals::retry;
use crate::stages::TransferExtras;

impl Job {
    /// What a transfer from this source needs before it is known where it goes.
    ///
    /// A file without positions, such as a stream of a FUSE server, may hand out
    /// its bytes once; one that is made up as it is read has no size, and may be
    /// another each time. They are hashed on the way, which needs read/write. So is
    /// what is no regular file, where that path may be taken.
    pub fn extras(&self, source: BorrowedFd<'_>) -> TransferExtras {
        let changes = || {
            let stat = retry(|| rustix::fs::fstat(source));
            stat.is_ok_and(|stat| kind(&stat) != FileType::RegularFile || stat.st_size == 0)
        };
        let once = || !seeks(source) || self.reads_and_writes() && changes();
        TransferExtras {
            once: self.staging.verify && once(),
            stage: None,
        }
    }

    /// Whether the path that takes every pair may be used.
    pub fn reads_and_writes(&self) -> bool {
        let switches = self.request.switches;
        let switches = switches.or_else(|| Switches::from_env().ok());
        switches.is_none_or(|switches| switches.allows(DataPath::ReadWrite))
    }
}

/// A FUSE file may have no positions (`FOPEN_NONSEEKABLE`).
pub fn seeks(file: BorrowedFd<'_>) -> bool {
    rustix::fs::tell(file).is_ok()
}
