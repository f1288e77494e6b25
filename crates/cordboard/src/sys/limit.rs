//! Limits of this process.

use std::ptr;

use super::last_errno::last_errno;
use crate::errno::Errno;

/// Returns the size of a memory page in bytes: `sysconf(3)`. Not by `rustix`,
/// which reads the auxiliary vector and with it the vDSO, which valgrind does
/// not map.
pub(crate) fn page_size() -> usize {
    // SAFETY: takes and returns integers.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

/// Returns the limit of file sizes in bytes (`RLIMIT_FSIZE`), if there is one:
/// a write past it raises `SIGXFSZ`. `prlimit64(2)`, since Linux 2.6.36.
///
/// # Errors
///
/// `ENOSYS`: an older kernel. `EPERM`, or another errno: a filter. (Other
/// wrappers assume that this call cannot fail, and return uninitialised
/// memory.)
pub(crate) fn file_size_limit() -> Result<Option<u64>, Errno> {
    /// `struct rlimit64`: the same on all architectures.
    #[repr(C)]
    struct Limit {
        current: u64,
        most: u64,
    }
    /// `RLIM64_INFINITY`.
    const NONE: u64 = u64::MAX;
    let mut limit = Limit {
        current: NONE,
        most: NONE,
    };
    // SAFETY: sets nothing, and `limit` is valid for one struct rlimit64.
    let done = unsafe {
        libc::syscall(
            libc::SYS_prlimit64,
            0,
            libc::RLIMIT_FSIZE,
            ptr::null::<Limit>(),
            &raw mut limit,
        )
    };
    match done {
        0 => Ok(Some(limit.current).filter(|limit| *limit != NONE)),
        _ => Err(last_errno()),
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;

    #[test]
    fn a_limit_is_seen() {
        assert!(testkit::child::in_a_child(|| {
            let before = getrlimit(Resource::Fsize);
            let limited = Rlimit {
                current: Some(1 << 40),
                ..before
            };
            let fine = file_size_limit() == Ok(before.current);
            fine && setrlimit(Resource::Fsize, limited).is_ok()
                && file_size_limit() == Ok(Some(1 << 40))
        }));
    }
}
