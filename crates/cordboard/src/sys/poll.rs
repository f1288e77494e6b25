//! A look at a descriptor that does not wait.

use std::os::fd::BorrowedFd;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Result;

use super::again;

/// What `poll(2)` shows at this moment. With nothing to show, a signal that is
/// pending makes it `EINTR` (`do_poll`, fs/select.c): that says nothing of the
/// descriptor, and the call is made again.
pub(crate) fn poll_now(fd: BorrowedFd<'_>, events: PollFlags) -> Result<PollFlags> {
    let mut fds = [PollFd::from_borrowed_fd(fd, events)];
    again(|| poll(&mut fds, Some(&Timespec::default())))?;
    Ok(fds[0].revents())
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn what_a_signal_interrupts_is_asked_again() {
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        let mut writer = Some(writer);
        for expected in [PollFlags::empty(), PollFlags::HUP] {
            let mut shown = None;
            let body = || shown = Some(poll_now(reader.as_fd(), PollFlags::IN));
            let signal = |count| (count == 0).then_some(libc::EINTR);
            let Some(polls) = testkit::midst::refusing(testkit::refuse::PPOLL, body, signal) else {
                return testkit::skip::report("poll", "calls of another thread cannot be held");
            };
            assert_eq!((shown, polls), (Some(Ok(expected)), 2));
            drop(writer.take());
        }
    }
}
