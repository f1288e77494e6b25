//! A file in memory.

use std::ffi::CStr;
use std::os::fd::OwnedFd;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;

/// Makes a file in memory that cannot be executed. Since Linux 6.3, `vm.memfd_noexec=2` refuses
/// any other (`EACCES`, at first `EINVAL`).
///
/// # Errors
///
/// As `memfd_create(2)`.
pub fn memory_file(name: &CStr) -> Result<OwnedFd, Errno> {
    match memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::NOEXEC_SEAL) {
        // Before Linux 6.3.
        Err(Errno::INVAL) => memfd_create(name, MemfdFlags::CLOEXEC),
        made => made,
    }
}

#[cfg(test)]
mod tests {
    use testkit::refuse::{apart, refuse_executable_memory, refuse_where};

    use super::*;

    #[test]
    fn it_need_not_be_executable() {
        let made = apart(|| refuse_executable_memory().then(|| memory_file(c"m").map(drop)));
        match made {
            Some(made) => assert_eq!(made, Ok(())),
            None => testkit::skip::here("all files in memory are executable here"),
        }
    }

    /// As before Linux 6.3.
    #[test]
    fn it_may_be_executable() {
        let old = MemfdFlags::CLOEXEC;
        let new = old | MemfdFlags::NOEXEC_SEAL;
        if let Err(errno) = memfd_create(c"m", old) {
            return testkit::skip::here(format!("{errno} making an executable file in memory"));
        }
        let made = apart(|| {
            refuse_where(libc::SYS_memfd_create, 1, new.bits(), libc::EINVAL);
            memory_file(c"m").map(drop)
        });
        assert_eq!(made, Ok(()));
    }
}
