//! Descriptors that are kept between calls. The host may have closed them
//! (`close_range(2)`), and opened other files under their numbers.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cordboard::Errno;

/// Device and inode.
pub(crate) type FileId = (u64, u64);

pub(crate) fn file(fd: BorrowedFd<'_>) -> Result<FileId, Errno> {
    let stat = rustix::fs::fstat(fd)?;
    Ok((stat.st_dev as u64, stat.st_ino as u64))
}

/// A descriptor of the library's own, which is neither used nor closed where
/// its number is another file by now.
#[derive(Debug)]
pub(crate) struct Kept {
    /// `None` once it is dropped.
    fd: Option<OwnedFd>,
    /// `None`: that is unknown, and nothing is it.
    file: Option<FileId>,
}

impl Kept {
    pub(crate) fn new(fd: OwnedFd) -> Kept {
        Kept {
            file: file(fd.as_fd()).ok(),
            fd: Some(fd),
        }
    }

    /// It; `None` where its number is no longer its own.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.fd.as_ref()?.as_fd();
        let known = self.file.is_some() && file(fd).ok() == self.file;
        known.then_some(fd)
    }

    pub(crate) fn is_of(&self, file: FileId) -> bool {
        self.file == Some(file)
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.fd().is_none() {
            // The number refers to another file by now.
            std::mem::forget(self.fd.take());
        }
    }
}
