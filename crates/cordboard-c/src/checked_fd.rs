//! Descriptors that the library keeps between calls. The program may have
//! closed them (`close_range(2)`) and opened other files under their numbers.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

use cordboard::{Errno, Lock, PerProcess, duplicate};
use rustix::fs::FileType;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::process::{self, lock};

/// Device and inode.
pub(crate) type FileId = (u64, u64);

pub(crate) fn file_id(fd: BorrowedFd<'_>) -> Result<FileId, Errno> {
    let stat = cordboard::fstat(fd)?;
    Ok((stat.st_dev as u64, stat.st_ino as u64))
}

/// A descriptor of the library. It is neither used nor closed if its number
/// refers to another file by now.
#[derive(Debug)]
pub(crate) struct CheckedFd {
    /// `None` once it is dropped.
    fd: Option<OwnedFd>,
    /// `None` if unknown; then no file compares equal.
    file: Option<FileId>,
    /// A descriptor of a file that the program cannot open. If its number
    /// refers to another file, the program has closed descriptors of the
    /// library.
    sentinel: Option<Arc<CheckedFd>>,
}

impl CheckedFd {
    /// Makes one for a file that only the library has open.
    pub(crate) fn of_library(fd: OwnedFd) -> CheckedFd {
        CheckedFd {
            file: file_id(fd.as_fd()).ok(),
            fd: Some(fd),
            sentinel: None,
        }
    }

    /// Makes one for a file that the program has open too. The program may
    /// close the descriptor and have the same file under its number again: then
    /// device and inode are the same, and only the sentinel shows the
    /// difference.
    pub(crate) fn of_program(fd: OwnedFd) -> CheckedFd {
        let mut checked = CheckedFd::of_library(fd);
        checked.sentinel = sentinel();
        checked
    }

    /// Returns the descriptor; `None` if its number refers to another file.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.fd.as_ref()?.as_fd();
        let same_file = self.file.is_some() && file_id(fd).ok() == self.file;
        let sentinel_open = || (self.sentinel.as_ref()).is_none_or(|fd| fd.fd().is_some());
        (same_file && sentinel_open()).then_some(fd)
    }

    /// In a child of `fork(2)`: closes the descriptor of the parent, if it is the end of a pipe or
    /// a socket, which another process may wait for.
    pub(crate) fn close_inherited(&self) {
        let (Some(fd), Some(file)) = (self.fd(), self.file) else {
            return;
        };
        let is_waited_for = cordboard::fstat(fd).is_ok_and(|stat| {
            let kind = FileType::from_raw_mode(stat.st_mode);
            matches!(kind, FileType::Fifo | FileType::Socket)
        });
        if is_waited_for {
            cordboard::close_inherited_fd(fd.as_raw_fd(), file);
        }
    }

    pub(crate) fn is_file(&self, file: FileId) -> bool {
        self.file == Some(file)
    }
}

/// The sentinel that all descriptors of the process share: the read end of a
/// pipe that no other descriptor refers to. `None` if no descriptor is
/// available for it.
fn sentinel() -> Option<Arc<CheckedFd>> {
    static SENTINEL: PerProcess<Lock<Weak<CheckedFd>>> = PerProcess::new();
    let mut current = lock(|| process::value(&SENTINEL, |_| Lock::default()));
    let open = Weak::upgrade(&current).filter(|fd| fd.fd().is_some());
    open.or_else(|| {
        let (reader, _) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).ok()?;
        let made = Arc::new(CheckedFd::of_library(duplicate(reader.as_fd()).ok()?));
        *current = Arc::downgrade(&made);
        Some(made)
    })
}

impl Drop for CheckedFd {
    fn drop(&mut self) {
        if self.fd().is_none() {
            // Closing the number would close another file.
            std::mem::forget(self.fd.take());
        }
    }
}
