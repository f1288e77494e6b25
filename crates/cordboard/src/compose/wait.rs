//! Waits for several descriptors at once, behind a trait so that tests control time.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, Timespec};

use crate::errno::Errno;
use crate::sys;

/// Waits for descriptors, and reads the clock.
pub(crate) trait Waiter {
    /// Returns the time since a fixed moment.
    fn now(&mut self) -> Duration;

    /// Waits until one descriptor is ready, for at most `timeout`. Returns without
    /// readiness after `EINTR`.
    fn wait(&mut self, fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> Result<(), Errno>;
}

/// The real [`Waiter`]: `poll(2)` and the monotonic clock. If a filter refuses `poll(2)`,
/// `select(2)`, which reports no errors of a descriptor: the next call finds them.
pub(crate) struct Poll(Instant);

impl Poll {
    pub(crate) fn new() -> Poll {
        Poll(Instant::now())
    }
}

impl Waiter for Poll {
    fn now(&mut self) -> Duration {
        self.0.elapsed()
    }

    fn wait(&mut self, fds: &mut [PollFd<'_>], timeout: Option<Duration>) -> Result<(), Errno> {
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        match sys::poll_or_select(fds, timeout.as_ref()).map_err(Errno::from) {
            Err(Errno::EINTR) => {
                fds.iter_mut().for_each(PollFd::clear_revents);
                Ok(())
            }
            done => done.map(|_| ()),
        }
    }
}

/// A [`Waiter`] whose calls a filter refuses.
#[cfg(test)]
pub(crate) struct Refuses;

#[cfg(test)]
impl Waiter for Refuses {
    fn now(&mut self) -> Duration {
        Duration::ZERO
    }

    fn wait(&mut self, _: &mut [PollFd<'_>], _: Option<Duration>) -> Result<(), Errno> {
        Err(Errno::EPERM)
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::PollFlags;
    use testkit::refuse;

    use super::*;

    #[test]
    fn select_replaces_refused_calls() {
        for errno in [libc::EPERM, libc::ENOSYS, libc::EINVAL] {
            let (reader, writer) = rustix::pipe::pipe().unwrap();
            let (closed, other) = rustix::pipe::pipe().unwrap();
            drop(closed);
            refuse::apart(|| {
                refuse::refuse(&[refuse::PPOLL, refuse::POLL].concat(), errno);
                let mut fds = [
                    PollFd::new(&reader, PollFlags::IN),
                    PollFd::new(&writer, PollFlags::OUT),
                    PollFd::new(&other, PollFlags::OUT),
                    PollFd::new(&other, PollFlags::empty()),
                ];
                let mut wait = |timeout| {
                    Poll::new().wait(&mut fds, timeout).unwrap();
                    fds.each_ref().map(PollFd::revents)
                };
                let (none, out) = (PollFlags::empty(), PollFlags::OUT);
                assert_eq!(wait(None), [none, out, out, none]);
                rustix::io::write(&writer, b"x").unwrap();
                assert_eq!(wait(None), [PollFlags::IN, out, out, none]);
                assert_eq!(Poll::new().wait(&mut [], Some(Duration::ZERO)), Ok(()));
                refuse::refuse(refuse::SELECT, errno);
                let refused = Poll::new().wait(&mut [], Some(Duration::ZERO));
                assert_eq!(refused, Err(Errno::from_raw(errno)));
            });
        }
    }
}
