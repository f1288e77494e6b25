//! Waits for a descriptor in a process in which a signal handler may fork.

use std::os::fd::AsFd;
use std::time::Duration;

use cordboard::{Errno, poll_or_select};
use rustix::event::{PollFd, PollFlags, Timespec};

/// How long a thread sleeps before it first checks that it is not in a child of `fork(2)`.
const SOON: Duration = Duration::from_millis(20);
/// The longest such time: it doubles with each check.
const LATER: Duration = Duration::from_secs(60);

/// The length of the next sleep of a wait. The caller checks its process before each sleep. A
/// handler may fork between the check and the sleep: the child then sleeps no longer than the
/// wait has taken so far.
pub(crate) struct Patience {
    next: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience { next: SOON }
    }
}

impl Patience {
    /// Sleeps until the descriptor is ready for one of these events. `None`: check the process,
    /// and wait again. No event: a signal handler has run.
    ///
    /// # Errors
    ///
    /// The errno of a filter that refuses `poll(2)` and `select(2)`.
    pub(crate) fn wait(
        &mut self,
        fd: impl AsFd,
        events: PollFlags,
    ) -> Result<Option<PollFlags>, Errno> {
        let mut fds = [PollFd::new(&fd, events)];
        match poll_or_select(&mut fds, Timespec::try_from(self.next).ok().as_ref()) {
            Ok(0) => {
                self.next = (2 * self.next).min(LATER);
                Ok(None)
            }
            Ok(_) => Ok(Some(fds[0].revents())),
            // These calls are not restarted after a handler, regardless of SA_RESTART (signal(7)).
            Err(rustix::io::Errno::INTR) => Ok(Some(PollFlags::empty())),
            Err(errno) => Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use testkit::refuse::{POLL, PPOLL, SELECT, apart, refuse};

    use super::*;

    #[test]
    fn a_descriptor_is_waited_for_by_the_next_call() {
        let (socket, _other) = UnixStream::pair().unwrap();
        for errno in [libc::EPERM, libc::ENOSYS, libc::EINVAL] {
            let wait = |calls: &[&[libc::c_long]]| {
                apart(|| {
                    refuse(&calls.concat(), errno);
                    Patience::default().wait(&socket, PollFlags::OUT)
                })
            };
            for calls in [&[PPOLL][..], &[PPOLL, POLL]] {
                assert_eq!(wait(calls), Ok(Some(PollFlags::OUT)), "{errno}");
            }
            assert_eq!(wait(&[PPOLL, POLL, SELECT]), Err(Errno::from_raw(errno)));
        }
    }
}
