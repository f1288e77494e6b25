//! Removes registrations of epoll by number.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;

/// Removes the registration of this number, if there is one. The descriptor may be closed
/// already: then the kernel has removed it, unless a copy of the descriptor is open.
pub(crate) fn epoll_delete(epoll: BorrowedFd<'_>, number: RawFd) {
    // SAFETY: EPOLL_CTL_DEL ignores the event (since Linux 2.6.9), and any number is
    // permitted.
    unsafe {
        libc::epoll_ctl(
            epoll.as_raw_fd(),
            libc::EPOLL_CTL_DEL,
            number,
            ptr::null_mut(),
        )
    };
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};

    use super::*;

    #[test]
    fn a_registration_is_removed_and_a_closed_number_is_no_failure() {
        let epoll = epoll::create(CreateFlags::CLOEXEC).unwrap();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let add = || epoll::add(&epoll, &reader, EventData::new_u64(0), EventFlags::IN);
        add().unwrap();
        assert_eq!(add(), Err(rustix::io::Errno::EXIST));
        epoll_delete(epoll.as_fd(), reader.as_raw_fd());
        add().unwrap();
        drop(writer);
        epoll_delete(epoll.as_fd(), -1);
    }
}
