//! `--verify` of a source that can be read once.

use std::os::fd::BorrowedFd;

use rustix::fs::FileType;

use super::one::seeks;
use super::{Job, kind};
use crate::signals::again;
use crate::stages::Besides;

impl Job {
    /// What a transfer from this source needs before it is known where it goes.
    ///
    /// A file without positions, such as a stream of a FUSE server, may hand out
    /// its bytes once; one that is made up as it is read has no size, and may be
    /// another each time. They are hashed on the way, which needs read/write. So is
    /// what is no regular file, where that path may be taken.
    pub fn besides(&self, source: BorrowedFd<'_>) -> Besides {
        let changes = || {
            let stat = again(|| rustix::fs::fstat(source));
            stat.is_ok_and(|stat| kind(&stat) != FileType::RegularFile || stat.st_size == 0)
        };
        let once = || !seeks(source) || self.reads_and_writes() && changes();
        Besides {
            once: self.staging.verify && once(),
            stage: None,
        }
    }
}
