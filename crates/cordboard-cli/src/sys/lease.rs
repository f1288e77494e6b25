//! Write leases: `fcntl(2)`, since Linux 2.4.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

/// `fcntl(2)`; the libc crate does not have it.
const F_SETSIG: libc::c_int = 10;

/// A write lease: the file has no other open file description. A process that
/// opens the file waits until the lease is dropped, or for
/// `/proc/sys/fs/lease-break-time`.
#[derive(Debug)]
pub struct WriteLease<'a>(BorrowedFd<'a>);

impl WriteLease<'_> {
    /// Takes a lease; `EAGAIN` if another descriptor of the file is open, also
    /// one of this process.
    pub fn take(file: BorrowedFd<'_>) -> Result<WriteLease<'_>, Errno> {
        // The kernel sends a signal when a process waits. SIGIO, its default,
        // would end this process; SIGURG is ignored by default.
        control(file, F_SETSIG, libc::SIGURG)?;
        control(file, libc::F_SETLEASE, libc::F_WRLCK)?;
        Ok(WriteLease(file))
    }

    /// Whether no process has tried to open the file since.
    pub fn is_whole(&self) -> bool {
        control(self.0, libc::F_GETLEASE, 0) == Ok(libc::F_WRLCK)
    }
}

impl Drop for WriteLease<'_> {
    fn drop(&mut self) {
        let _ = control(self.0, libc::F_SETLEASE, libc::F_UNLCK);
    }
}

fn control(
    file: BorrowedFd<'_>,
    command: libc::c_int,
    argument: libc::c_int,
) -> Result<libc::c_int, Errno> {
    // SAFETY: each of the three commands takes an integer, or nothing.
    match unsafe { libc::fcntl(file.as_raw_fd(), command, argument) } {
        done if done < 0 => Err(super::last_errno()),
        done => Ok(done),
    }
}
