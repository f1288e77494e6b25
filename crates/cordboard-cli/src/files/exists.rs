//! Whether a name exists. Only some errors of a lookup mean that it does not.
//! Any other error, such as `EIO`, `ESTALE` or `ETIMEDOUT` of a file server, says
//! nothing about it, and is an error of the command.

use rustix::io::Errno;

/// Returns the result of a lookup; `None` if nothing exists, or nothing that this
/// name can reach (stat(2): `ENOENT`, `ENOTDIR`, `ELOOP`).
///
/// # Errors
///
/// All other errors of the lookup.
pub fn if_exists<T>(lookup: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match lookup {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// [`if_exists`], and `None` too if this process cannot use the name: it may not
/// search a directory of the path (`EACCES`), or the name is too long
/// (`ENAMETOOLONG`).
///
/// # Errors
///
/// All other errors of the lookup.
pub fn if_reachable<T>(lookup: Result<T, Errno>) -> Result<Option<T>, Errno> {
    match if_exists(lookup) {
        Err(Errno::ACCESS | Errno::NAMETOOLONG) => Ok(None),
        found => found,
    }
}
