//! Directories: opening them, granting access to them, and writing their
//! entries to the disk.

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

/// The flags to open a directory with.
pub const DIRECTORY: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

/// The flags for a directory that is only a base for other names.
pub const PATH_ONLY: OFlags = DIRECTORY.union(OFlags::PATH);

/// Returns the directory of a path.
pub fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => PathBuf::from("."),
        Some(parent) => parent.to_owned(),
        None => PathBuf::from("/"),
    }
}

/// Removes trailing slashes, which would have a symlink followed.
pub fn without_slash(path: &Path) -> &Path {
    let bytes = path.as_os_str().as_bytes();
    let end = bytes.iter().rposition(|byte| *byte != b'/');
    // The root consists of slashes only.
    Path::new(OsStr::from_bytes(
        &bytes[..end.map_or(bytes.len(), |end| end + 1)],
    ))
}

/// Opens a directory to look names up and create them. A directory without read
/// permission (`EACCES`, open(2)) is opened with `O_PATH`.
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

/// Gives the owner all permissions of a directory until it has its final mode.
/// Returns it open without `O_PATH`, if it had that flag.
pub fn grant_owner_access(directory: BorrowedFd<'_>) -> Result<Option<OwnedFd>, rustix::io::Errno> {
    let mode = retry(|| cordboard::fstat(directory))?.st_mode & 0o7777 | 0o700;
    let mode = Mode::from_raw_mode(mode);
    match retry(|| rustix::fs::fchmod(directory, mode)) {
        // Not by an `O_PATH` descriptor (open(2)).
        Err(rustix::io::Errno::BADF) => {}
        done => return done.map(|()| None),
    }
    retry(|| rustix::fs::chmod(format!("/proc/self/fd/{}", directory.as_raw_fd()), mode))?;
    retry(|| rustix::fs::openat(directory, c".", DIRECTORY, Mode::empty())).map(Some)
}

/// Whether it is open with `O_PATH`.
pub fn is_path_only(directory: BorrowedFd<'_>) -> bool {
    rustix::fs::fcntl_getfl(directory).is_ok_and(|flags| flags.contains(OFlags::PATH))
}

/// Writes the directory entry of a new file to the disk. `file` is the file
/// itself, if it is open: it is used if the directory cannot be read.
pub fn sync_parent(path: &Path, file: Option<BorrowedFd<'_>>) -> Result<(), Problem> {
    let parent = parent(path);
    let failed = |e| Problem::call(parent.to_string_lossy(), Side::Sink, e, Action::Sync);
    let fd = open_directory(CWD, &parent, OFlags::empty()).map_err(failed)?;
    sync_directory(fd.as_fd(), file)?.map_err(failed)
}

/// Writes the entries of a directory to the disk. A directory without read
/// permission cannot be opened for fsync(2), and some file systems, such as vboxsf, have
/// no fsync(2) of directories (`EINVAL`): the whole file system is written then
/// (`syncfs(2)`, since Linux 2.6.39).
pub fn sync_directory(
    directory: BorrowedFd<'_>,
    file: Option<BorrowedFd<'_>>,
) -> Result<Result<(), rustix::io::Errno>, Interrupted> {
    if !is_path_only(directory) {
        return match interruptible(|| rustix::fs::fsync(directory))? {
            Err(rustix::io::Errno::INVAL) => interruptible(|| rustix::fs::syncfs(directory)),
            done => Ok(done),
        };
    }
    if let Some(file) = file {
        return interruptible(|| rustix::fs::syncfs(file));
    }
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(0o600);
    match retry(|| rustix::fs::openat(directory, c".", flags, mode)) {
        Ok(file) => interruptible(|| rustix::fs::syncfs(&file)),
        // Not every file system has unnamed files, and this process may not
        // make one in every directory. sync(2) waits until everything is
        // written, on Linux.
        Err(_) => {
            rustix::fs::sync();
            Ok(Ok(()))
        }
    }
}
