//! Descriptors that are kept between calls. The host may have closed them
//! (`close_range(2)`), and opened other files under their numbers.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

use cordboard::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::table::lock;

/// Device and inode.
pub(crate) type FileId = (u64, u64);

pub(crate) fn file(fd: BorrowedFd<'_>) -> Result<FileId, Errno> {
    let stat = rustix::fs::fstat(fd)?;
    Ok((stat.st_dev as u64, stat.st_ino as u64))
}

/// Another descriptor of the same thing, beyond the first three.
pub(crate) fn duplicate(fd: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    Ok(rustix::io::fcntl_dupfd_cloexec(fd, 3)?)
}

/// A descriptor of the library's own, which is neither used nor closed where
/// its number is another file by now.
#[derive(Debug)]
pub(crate) struct Kept {
    /// `None` once it is dropped.
    fd: Option<OwnedFd>,
    /// `None`: that is unknown, and nothing is it.
    file: Option<FileId>,
    /// What the host cannot open again. If its number is not this any more, the
    /// host has closed what it did not open.
    witness: Option<Arc<Kept>>,
}

impl Kept {
    /// One of something that only the library has.
    pub(crate) fn new(fd: OwnedFd) -> Kept {
        Kept {
            file: file(fd.as_fd()).ok(),
            fd: Some(fd),
            witness: None,
        }
    }

    /// One of a file of the host's, who may open it again under this number, or
    /// make the number a duplicate: then device and inode are the same.
    pub(crate) fn of_the_hosts(fd: OwnedFd) -> Kept {
        let mut kept = Kept::new(fd);
        kept.witness = witness();
        kept
    }

    /// It; `None` where its number is no longer its own.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.fd.as_ref()?.as_fd();
        let known = self.file.is_some() && file(fd).ok() == self.file;
        let attested = || (self.witness.as_ref()).is_none_or(|one| one.fd().is_some());
        (known && attested()).then_some(fd)
    }

    pub(crate) fn is_of(&self, file: FileId) -> bool {
        self.file == Some(file)
    }
}

/// One for all that are kept at a time: an end of a pipe of its own, which no
/// other descriptor leads to. `None` where no descriptor is available for it.
fn witness() -> Option<Arc<Kept>> {
    let mut known = lock(|table| &table.witness);
    let there = Weak::upgrade(&known).filter(|one| one.fd().is_some());
    there.or_else(|| {
        let (reader, _) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
        let made = Arc::new(Kept::new(duplicate(reader.as_fd()).ok()?));
        *known = Arc::downgrade(&made);
        Some(made)
    })
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.fd().is_none() {
            // The number refers to another file by now.
            std::mem::forget(self.fd.take());
        }
    }
}
