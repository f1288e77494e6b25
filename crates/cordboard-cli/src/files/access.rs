//! Whether a file may be opened, without opening it.

use std::path::Path;

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use crate::signals::retry;

/// Refuses what open(2) refuses for lack of permission: `faccessat2(2)`, since Linux 5.8, else
/// `faccessat(2)`. The answer of a filter says nothing about the file, nor do other errors.
///
/// # Errors
///
/// `EACCES`, `EROFS`, `EPERM` (an immutable file).
pub fn check_access(path: &Path, access: Access) -> Result<(), Errno> {
    let asked = |path: &Path, access| retry(|| accessat(CWD, path, access, AtFlags::EACCESS));
    // The kernel does not refuse to say that it exists.
    let is_filtered = || asked(Path::new("/"), Access::EXISTS).is_err();
    match asked(path, access) {
        Err(errno @ (Errno::ACCESS | Errno::PERM)) if !is_filtered() => Err(errno),
        Err(Errno::ROFS) => Err(Errno::ROFS),
        _ => Ok(()),
    }
}
