//! Waits of loops that wait again.

use std::time::Duration;

use cordboard::poll_for;
use rustix::event::{PollFd, Timespec};
use rustix::io::Errno;
use rustix::thread::nanosleep;

/// The longest sleep after a wait that has failed.
const REST: Duration = Duration::from_millis(100);

/// As [`poll_for`], for at most this time. After an error it sleeps for a moment: a filter may
/// refuse every call, or `RLIMIT_NOFILE` may be less than the number of descriptors (`poll(2)`,
/// `EINVAL`), and the loop of the caller would use the processor all the time.
pub fn poll_or_rest(fds: &mut [PollFd<'_>], time: Option<Duration>) -> Result<usize, Errno> {
    let timespec = |time| Timespec::try_from(time).ok();
    let done = poll_for(fds, time.and_then(timespec).as_ref());
    if done.is_err_and(|errno| errno != Errno::INTR) {
        rest(time.map_or(REST, |time| time.min(REST)));
    }
    done
}

/// Returns whether an error of `accept(2)` concerns one connection, which the listener does not
/// have any more. After any other one, such as that of a filter, of a security module
/// (`security_socket_accept` in `do_accept`, net/socket.c) or for lack of a descriptor, the
/// listener still polls readable: its caller rests.
pub fn is_of_one_connection(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::AGAIN | Errno::INTR | Errno::CONNABORTED | Errno::PROTO
    )
}

/// Sleeps for this time, or until a signal arrives.
pub fn rest(time: Duration) {
    if let Ok(time) = Timespec::try_from(time) {
        let _ = nanosleep(&time);
    }
}
