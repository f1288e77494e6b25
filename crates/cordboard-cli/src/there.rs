//! Whether a name is there. Only some errors of a look at it say that it is not:
//! of any other, such as `EIO`, `ESTALE` or `ETIMEDOUT` of a file server, nothing
//! is known, and it is an error of the command.

use rustix::io::Errno;

/// What a look by a name has found; `None`: nothing is there, or nothing that
/// can be reached by this name (stat(2): `ENOENT`, `ENOTDIR`, `ELOOP`).
///
/// # Errors
///
/// All others.
pub fn there<T>(looked: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match looked {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// The same, where a name that this process cannot use counts as none: it may not
/// search a directory on the way (`EACCES`), or the name is too long
/// (`ENAMETOOLONG`).
///
/// # Errors
///
/// All others.
pub fn there_for_us<T>(looked: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match there(looked) {
        Err(Errno::ACCESS | Errno::NAMETOOLONG) => Ok(None),
        found => found,
    }
}
