//! The directory that something new goes into.

use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use cordboard::Side;
use rustix::fs::{CWD, Mode, OFlags};

use crate::interruptible::interruptible;
use crate::problem::Action;
use crate::problem::Problem;
use crate::signals::{Interrupted, retry};

/// How directories are opened.
pub const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// And those that are only a base for what is in them.
pub const PATH_ONLY: OFlags = DIRECTORY.union(OFlags::PATH);

/// Returns the directory of a path.
pub fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
        Some(parent) => parent.to_owned(),
        None => PathBuf::from("/"),
    }
}

/// A path without the slashes at its end, which would have a symlink followed.
pub fn without_slash(path: &Path) -> &Path {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|byte| *byte != b'/');
    // The root has nothing else.
    Path::new(OsStr::from_bytes(
        &bytes[..end.map_or(bytes.len(), |end| end + 1)],
    ))
}

/// Opens a directory that names are looked up and made in. One that may be
/// entered and not listed (`EACCES`, open(2)) is no worse for that.
pub fn open_directory(
    above: BorrowedFd<'_>,
    name: &Path,
    nofollow: OFlags,
) -> Result<OwnedFd, rustix::io::Errno> {
    let open = |flags| retry(|| rustix::fs::openat(above, name, flags | nofollow, Mode::empty()));
    match open(DIRECTORY) {
        Err(rustix::io::Errno::ACCESS) => open(PATH_ONLY),
        done => done,
    }
}

/// Lets us do all in a directory of ours, until it has its final mode; returns
/// it open for more than a base, if it was none.
pub fn grant_owner_access(directory: BorrowedFd<'_>) -> Result<Option<OwnedFd>, rustix::io::Errno> {
    let mode = retry(|| rustix::fs::fstat(directory))?.st_mode & 0o7777 | 0o700;
    let mode = Mode::from_raw_mode(mode);
    match retry(|| rustix::fs::fchmod(directory, mode)) {
        // Not by a descriptor that is a mere base (`O_PATH`, open(2)).
        Err(rustix::io::Errno::BADF) => {}
        done => return done.map(|()| None),
    }
    retry(|| rustix::fs::chmod(format!("/proc/self/fd/{}", directory.as_raw_fd()), mode))?;
    retry(|| rustix::fs::openat(directory, c".", DIRECTORY, Mode::empty())).map(Some)
}

/// Whether it is open as a base and no more.
pub fn is_path_only(directory: BorrowedFd<'_>) -> bool {
    rustix::fs::fcntl_getfl(directory).is_ok_and(|flags| flags.contains(OFlags::PATH))
}

/// Puts the entry of a new file on the disk; the file itself, if it is open,
/// helps where the directory is not.
pub fn sync_parent(path: &Path, file: Option<BorrowedFd<'_>>) -> Result<(), Problem> {
    let parent = parent(path);
    let failed = |e| Problem::call(parent.to_string_lossy(), Side::Sink, e, Action::Sync);
    let fd = open_directory(CWD, &parent, OFlags::empty()).map_err(failed)?;
    sync_directory(fd.as_fd(), file)?.map_err(failed)
}

/// Puts the entries of a directory on the disk. For one that may not be listed
/// there is no fsync(2); all of its file system is written then, by a file in
/// it.
pub fn sync_directory(
    directory: BorrowedFd<'_>,
    file: Option<BorrowedFd<'_>>,
) -> Result<Result<(), rustix::io::Errno>, Interrupted> {
    if !is_path_only(directory) {
        return interruptible(|| rustix::fs::fsync(directory));
    }
    if let Some(file) = file {
        return interruptible(|| rustix::fs::syncfs(file));
    }
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    match retry(|| rustix::fs::openat(directory, c".", flags, mode)) {
        Ok(file) => interruptible(|| rustix::fs::syncfs(&file)),
        // Not every file system has files without a name, nor may we make one
        // wherever we may be; Linux waits for all that there is to be written
        // (sync(2)).
        Err(_) => {
            rustix::fs::sync();
            Ok(Ok(()))
        }
    }
}
