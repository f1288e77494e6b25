//! The identity of the file that a descriptor refers to.

use std::os::fd::AsFd;

use super::stat::fstat;

/// Device and inode number of a file.
pub(crate) type Identity = (u64, u64);

/// Returns the identity of the file that a descriptor refers to now; `None` if
/// `fstat(2)` fails, such as for a closed number.
pub(crate) fn identity(fd: impl AsFd) -> Option<Identity> {
    let stat = fstat(fd).ok()?;
    #[allow(clippy::unnecessary_cast, reason = "their width is the architecture's")]
    Some((stat.st_dev as u64, stat.st_ino as u64))
}
