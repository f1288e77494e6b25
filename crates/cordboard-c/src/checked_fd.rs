//! Descriptors that the library keeps between calls. The program may have
//! closed them (`close_range(2)`) and opened other files under their numbers.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Weak};

use cordboard::endpoint::keeps_its_identity;
use cordboard::{Errno, Lock, PerProcess, duplicate};
use rustix::fs::{FileType, Stat};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::process::{self, lock};

/// Device and inode.
pub(crate) type FileId = (u64, u64);

/// Queries the file, which may wait for its server.
pub(crate) fn file_id(fd: BorrowedFd<'_>) -> Result<FileId, Errno> {
    Ok(id_of(&cordboard::fstat(fd)?))
}

#[allow(clippy::unnecessary_cast, reason = "their width is the architecture's")]
fn id_of(stat: &Stat) -> FileId {
    (stat.st_dev as u64, stat.st_ino as u64)
}

/// The file of a descriptor, as of one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Identity {
    /// `None` if it could not be queried.
    file: Option<FileId>,
    /// Later queries return the same, and wait for no server.
    is_kept: bool,
    /// The end of a pipe or a socket, which another process may wait for.
    is_end: bool,
}

impl Identity {
    /// Queries the file, which may wait for its server.
    pub(crate) fn of(fd: BorrowedFd<'_>) -> Identity {
        let stat = cordboard::fstat(fd).ok();
        let is_end = |stat: &Stat| {
            let kind = FileType::from_raw_mode(stat.st_mode);
            matches!(kind, FileType::Fifo | FileType::Socket)
        };
        Identity {
            file: stat.as_ref().map(id_of),
            is_kept: keeps_its_identity(fd),
            is_end: stat.as_ref().is_some_and(is_end),
        }
    }

    /// Whether both are known to be of one file.
    pub(crate) fn is_that_of(self, other: Identity) -> bool {
        self.file.is_some() && self.file == other.file
    }
}

/// A descriptor of the library. It is neither used nor closed if its number
/// refers to another file by now.
#[derive(Debug)]
pub(crate) struct CheckedFd {
    /// `None` once it is dropped.
    fd: Option<OwnedFd>,
    identity: Identity,
    /// A descriptor of a file that the program cannot open. If its number
    /// refers to another file, the program has closed descriptors of the
    /// library.
    sentinel: Option<Arc<CheckedFd>>,
}

impl CheckedFd {
    /// Makes one for a file that only the library has open. Queries the file, as
    /// [`CheckedFd::of_program`].
    pub(crate) fn of_library(fd: OwnedFd) -> CheckedFd {
        CheckedFd {
            identity: Identity::of(fd.as_fd()),
            fd: Some(fd),
            sentinel: None,
        }
    }

    /// Makes one for a file that the program has open too. The program may close the
    /// descriptor and have the same file under its number again: then device and inode are the
    /// same, and only the sentinel shows the difference. Queries the file, which may wait for
    /// its server.
    pub(crate) fn of_program(fd: OwnedFd) -> CheckedFd {
        // Before the query: while it waits, the program may close the descriptors.
        let sentinel = sentinel();
        let mut made = CheckedFd::of_library(fd);
        made.sentinel = sentinel;
        made
    }

    /// Returns the descriptor; `None` if its number refers to another file. A file whose
    /// server fails, or assigns another inode, is still that file.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        let fd = self.fd.as_ref()?.as_fd();
        let known = self.identity.file.filter(|_| self.identity.is_kept);
        let same_file = match known.map(|file| (file, file_id(fd))) {
            Some((file, Ok(now))) => now == file,
            // Shows a number that is not open.
            _ => rustix::io::fcntl_getfd(fd) != Err(rustix::io::Errno::BADF),
        };
        let sentinel_open = || (self.sentinel.as_ref()).is_none_or(|fd| fd.fd().is_some());
        (same_file && sentinel_open()).then_some(fd)
    }

    /// In a child of `fork(2)`: closes the descriptor of the parent, if it is the end of a pipe or
    /// a socket, which another process may wait for.
    pub(crate) fn close_inherited(&self) {
        if let (Some(fd), Some(file), true) = (self.fd(), self.identity.file, self.identity.is_end)
        {
            cordboard::close_inherited_fd(fd.as_raw_fd(), file);
        }
    }

    /// Returns the identity of its file.
    pub(crate) fn identity(&self) -> Identity {
        self.identity
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

#[cfg(test)]
mod tests {
    use std::fs::File;

    use testkit::fuse::{Served, with_file};
    use testkit::refuse::STAT;
    use testkit::{child, midst};

    use super::*;

    fn kept(file: &File) -> CheckedFd {
        CheckedFd::of_program(duplicate(file.as_fd()).unwrap())
    }

    /// The file system has failed, or has lost the file.
    #[test]
    fn a_file_that_cannot_be_queried_is_still_open() {
        let file = tempfile::tempfile().unwrap();
        let kept = kept(&file);
        let number = kept.fd().unwrap().as_raw_fd();
        let inode = child::inode(number);
        let mut is_open = false;
        let body = || {
            is_open = kept.fd().is_some();
            drop(kept);
        };
        let made = midst::refusing(&STAT.concat(), body, |_| Some(libc::ESTALE));
        if made.is_none() {
            return testkit::skip::here("no seccomp_unotify(2) here");
        }
        assert!(is_open);
        assert_ne!(child::inode(number), inode, "it was not closed");
    }

    /// The query could wait for ever.
    #[test]
    fn the_server_of_a_file_is_not_queried_again() {
        let mut made = None;
        let mounted = with_file(Served::default(), |path| {
            let file = File::open(path).unwrap();
            let mut kept = kept(&file);
            kept.sentinel = None;
            let body = || {
                assert!(kept.fd().is_some());
                drop(kept);
            };
            made = Some(midst::at_each(&STAT.concat(), body, || ()));
        });
        match made {
            _ if !mounted => testkit::skip::here("a FUSE file system cannot be mounted here"),
            Some(None) => testkit::skip::here("no seccomp_unotify(2) here"),
            made => assert_eq!(made, Some(Some(0))),
        }
    }
}
