//! Descriptors.

use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};

use cordboard::poll_for;
use rustix::event::{PollFd, PollFlags, Timespec};

/// Returns the flags of a descriptor number, such as `FD_CLOEXEC`; `EBADF` if
/// it is not open. A filter may refuse the call.
pub fn descriptor_flags(number: RawFd) -> Result<libc::c_int, rustix::io::Errno> {
    // SAFETY: F_GETFD takes any number, and changes nothing.
    match unsafe { libc::fcntl(number, libc::F_GETFD) } {
        flags if flags < 0 => Err(super::last_errno()),
        flags => Ok(flags),
    }
}

/// Returns an inherited descriptor; `EBADF` if it is not open, or if this
/// process has opened it itself.
pub fn inherited(number: RawFd) -> Result<BorrowedFd<'static>, rustix::io::Errno> {
    if descriptor_flags(number)? & libc::FD_CLOEXEC != 0 {
        return Err(rustix::io::Errno::BADF);
    }
    // SAFETY: it is open, and as it survived execve(2), nothing
    // in this process owns it or will close it.
    Ok(unsafe { BorrowedFd::borrow_raw(number) })
}

/// Closes a file that was written to, and returns the file system's error: NFS,
/// CIFS and FUSE may find out only now that the server has no space, or the
/// user no quota (`close(2)`, NOTES).
///
/// `EINTR` is an error too: the descriptor is closed, and what the server has
/// not taken by then is unknown. The call is not made by the C library: that of
/// musl hides `EINTR`.
pub fn close(fd: OwnedFd) -> Result<(), rustix::io::Errno> {
    let number = fd.into_raw_fd();
    // SAFETY: the number was owned by `fd`, which has given it up; Linux frees
    // it whatever the call returns.
    match unsafe { libc::syscall(libc::SYS_close, number) } {
        0 => Ok(()),
        _ => match std::io::Error::last_os_error().raw_os_error() {
            None => Ok(()),
            Some(errno) => Err(rustix::io::Errno::from_raw_os_error(errno)),
        },
    }
}

/// Puts this file in the place of the one that the descriptor has, which is closed.
pub fn put_in_place(of: BorrowedFd<'_>, file: OwnedFd) -> Result<(), rustix::io::Errno> {
    // SAFETY: the number is open, and stays so: its owner closes it.
    match unsafe { libc::dup3(file.as_raw_fd(), of.as_raw_fd(), libc::O_CLOEXEC) } {
        number if number < 0 => Err(super::last_errno()),
        _ => Ok(()),
    }
}

/// Returns the events that a descriptor shows at this moment.
pub fn shown_now(fd: BorrowedFd<'_>, events: PollFlags) -> rustix::io::Result<PollFlags> {
    let mut fds = [PollFd::from_borrowed_fd(fd, events)];
    poll_for(&mut fds, Some(&Timespec::default()))?;
    Ok(fds[0].revents())
}

/// Returns the bytes that a socket's peer has not acknowledged: `tcp(7)`,
/// `SIOCOUTQ`; 0 if that is unknown.
pub fn unsent(socket: BorrowedFd<'_>) -> libc::c_int {
    let mut bytes: libc::c_int = 0;
    // SAFETY: TIOCOUTQ, which is SIOCOUTQ on a socket, writes one int.
    match unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) } {
        0 => bytes,
        _ => 0,
    }
}

/// Gives the calling thread an empty descriptor table of its own: what it opens from now on
/// has numbers of that table, and it does not keep the files of the process open.
/// `close_range(2)` with `CLOSE_RANGE_UNSHARE`, since Linux 5.9. `false`: it is refused, and
/// nothing has changed.
///
/// The thread must not use any descriptor that was opened before, nor print.
pub fn leave_descriptors() -> bool {
    const CLOSE_RANGE_UNSHARE: libc::c_uint = 2;
    // SAFETY: takes integers. The table of the other threads is unchanged, so that what
    // they own stays open; this thread owns none.
    let done = unsafe { libc::syscall(libc::SYS_close_range, 0u32, u32::MAX, CLOSE_RANGE_UNSHARE) };
    done == 0
}
