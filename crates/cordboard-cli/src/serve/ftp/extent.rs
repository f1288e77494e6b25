//! The size of a file when its download began.
//!
//! A transfer finds out that its source was truncated by the size that the source had at its start.
//! A download may consist of two transfers (`head.rs`), and the file is opened before the data
//! connection is made: the first transfer, or the second one, may begin behind the new end.

use std::os::fd::{AsFd, OwnedFd};

use cordboard::cue::Done;
use cordboard::{Ended, Errno, Side};
use rustix::fs::{FileType, tell};

use crate::files::kind;

/// A regular file that is sent from its position to its end.
pub struct Extent {
    /// It shares the position with the source.
    file: OwnedFd,
    size: u64,
    /// The position was behind the end.
    is_beyond: bool,
}

impl Extent {
    /// Returns `None` if the source is another file.
    ///
    /// # Errors
    ///
    /// `EMFILE`, `ENFILE`: no descriptor is available.
    pub fn of(source: &OwnedFd) -> Result<Option<Extent>, Errno> {
        let Some(size) = size(source) else {
            return Ok(None);
        };
        let file = rustix::io::fcntl_dupfd_cloexec(source, 0)?;
        let is_beyond = tell(&file).is_ok_and(|position| position > size);
        Ok(Some(Extent {
            file,
            size,
            is_beyond,
        }))
    }

    /// Returns whether the file was truncated before all its bytes were read.
    fn is_cut(&self) -> bool {
        let is_short = |size| tell(&self.file).is_ok_and(|position| position.max(size) < self.size);
        self.is_beyond || size(&self.file).is_some_and(is_short)
    }

    /// Returns the end of the download.
    pub fn checked(&self, mut done: Done) -> Done {
        if done.ended == Ended::Eof && self.is_cut() {
            done.ended = Ended::Error;
            (done.failed, done.errno) = (Some(Side::Source), Some(Errno::ENODATA));
        }
        done
    }
}

fn size(file: &OwnedFd) -> Option<u64> {
    let about = cordboard::fstat(file.as_fd()).ok()?;
    let is_file = kind(&about) == FileType::RegularFile;
    is_file.then(|| u64::try_from(about.st_size).unwrap_or_default())
}
