//! What `stat(2)` reports, in the form that other calls take.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::path::Path;

use cordboard::endpoint::Filesystem;
use cordboard::fstat;
use rustix::fs::{FileType, Stat, Timespec, Timestamps, fstatfs, statfs};

use super::removal::id;

/// The type of a file.
pub fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Access and modification time, to the nanosecond.
pub fn times(stat: &Stat) -> Timestamps {
    Timestamps {
        last_access: Timespec {
            tv_sec: stat.st_atime as _,
            tv_nsec: stat.st_atime_nsec as _,
        },
        last_modification: Timespec {
            tv_sec: stat.st_mtime as _,
            tv_nsec: stat.st_mtime_nsec as _,
        },
    }
}

/// Returns whether the kernel generates the contents, as in procfs: the size is not their
/// length.
pub fn is_pseudo(fd: BorrowedFd<'_>) -> bool {
    let about = fstatfs(fd);
    about.is_ok_and(|about| Filesystem::of(&about).is_pseudo())
}

/// Returns the file system of a path.
pub fn filesystem_of(path: &Path) -> Option<Filesystem> {
    statfs(path).ok().as_ref().map(Filesystem::of)
}

/// Returns whether this is standard output, or its pipe or socket, opened by name
/// (`/dev/stdout`).
pub fn is_standard_output(fd: BorrowedFd<'_>) -> bool {
    let standard = rustix::stdio::stdout();
    let is_open_twice = || {
        let both = (fstat(fd), fstat(standard));
        matches!(both, (Ok(one), Ok(other)) if id(&one) == id(&other))
    };
    fd.as_raw_fd() == standard.as_raw_fd() || is_open_twice()
}
