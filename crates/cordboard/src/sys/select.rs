//! Waits if `poll(2)` is refused.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use rustix::event::{
    FdSetElement, FdSetIter, PollFd, Timespec, fd_set_insert, fd_set_num_elements, select,
};

use crate::errno::Errno;

/// Waits, and returns which of these descriptors can be read (`false`) or
/// written (`true`), or have an end or an error to report. Unlike `poll(2)`,
/// `select(2)` is not limited by `RLIMIT_NOFILE`. It cannot watch a descriptor
/// for its end alone.
///
/// # Errors
///
/// `EINTR`; `EBADF`: one has been closed; `ENOMEM`.
pub(crate) fn wait_for(
    fds: &[(BorrowedFd<'_>, bool)],
    timeout: Option<&Timespec>,
) -> Result<Vec<bool>, Errno> {
    let numbers: Vec<_> = fds
        .iter()
        .map(|(fd, write)| (fd.as_raw_fd(), *write))
        .collect();
    wait_for_numbers(&numbers, timeout)
}

/// As [`wait_for`], for descriptors that stay open.
fn wait_for_numbers(fds: &[(RawFd, bool)], timeout: Option<&Timespec>) -> Result<Vec<bool>, Errno> {
    let bound = fds.iter().map(|(fd, _)| fd + 1).max().unwrap_or(0);
    // Long enough for the highest number: the kernel reads no further.
    let none = vec![FdSetElement::default(); fd_set_num_elements(fds.len(), bound)];
    let mut sets = [none.clone(), none];
    for (fd, write) in fds {
        fd_set_insert(&mut sets[usize::from(*write)], *fd);
    }
    let [read, write] = &mut sets;
    // SAFETY: both sets have room for all numbers below `bound`, and those in
    // them stay open.
    unsafe { select(bound, Some(read), Some(write), None, timeout) }?;
    let is_in = |(fd, write): &(RawFd, bool)| {
        FdSetIter::new(&sets[usize::from(*write)]).any(|number| number == *fd)
    };
    Ok(fds.iter().map(is_in).collect())
}

/// Waits as `poll(2)` does. A descriptor that is ready, or has an error, is reported with the
/// requested events. One without requested events is not watched.
///
/// # Errors
///
/// As [`wait_for`].
pub(super) fn poll_by_select(
    fds: &mut [PollFd<'_>],
    timeout: Option<&Timespec>,
) -> Result<(), Errno> {
    const { assert!(size_of::<PollFd<'_>>() == size_of::<libc::pollfd>()) };
    let (first, count) = (fds.as_mut_ptr().cast::<libc::pollfd>(), fds.len());
    // SAFETY: a PollFd is laid out as a pollfd, of which there are so many. It borrows its
    // descriptor, which stays open.
    let fds = unsafe { std::slice::from_raw_parts_mut(first, count) };
    let all = fds.iter().enumerate();
    let asked = all.flat_map(|(index, fd)| {
        let (number, requested) = (fd.fd, fd.events);
        [(libc::POLLIN, false), (libc::POLLOUT, true)]
            .into_iter()
            .filter(move |(event, _)| requested & event != 0)
            .map(move |(event, write)| (index, event, (number, write)))
    });
    let asked: Vec<_> = asked.collect();
    let numbers: Vec<_> = asked.iter().map(|(_, _, number)| *number).collect();
    let seen = wait_for_numbers(&numbers, timeout)?;
    fds.iter_mut().for_each(|fd| fd.revents = 0);
    for ((index, event, _), _) in asked.into_iter().zip(seen).filter(|(_, seen)| *seen) {
        fds[index].revents |= event;
    }
    Ok(())
}

/// Returns whether this descriptor can be read, and whether it can be written,
/// at this moment.
///
/// # Errors
///
/// As [`wait_for`].
pub(super) fn ready_now(fd: BorrowedFd<'_>) -> rustix::io::Result<[bool; 2]> {
    let seen = wait_for(&[(fd, false), (fd, true)], Some(&Timespec::default()));
    let seen = seen.map_err(|errno| rustix::io::Errno::from_raw_os_error(errno.raw()))?;
    Ok([seen[0], seen[1]])
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, FromRawFd, OwnedFd};

    use super::*;

    #[test]
    fn what_is_ready_is_told_by_direction_and_whatever_its_number() {
        let now = Timespec::default();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let wait = |reader: &OwnedFd| {
            let fds = [(reader.as_fd(), false), (writer.as_fd(), true)];
            wait_for(&fds, Some(&now)).unwrap()
        };
        assert_eq!(wait(&reader), [false, true]);
        rustix::io::write(&writer, b"x").unwrap();
        assert_eq!(wait(&reader), [true, true]);
        // SAFETY: makes a descriptor, and takes integers.
        let high = unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_DUPFD_CLOEXEC, 1000) };
        assert!(high >= 1000);
        // SAFETY: made above, and owned by nothing else.
        let high = unsafe { OwnedFd::from_raw_fd(high) };
        assert_eq!(wait(&high), [true, true]);
        assert_eq!(wait_for(&[], Some(&now)), Ok(Vec::new()));
    }
}
