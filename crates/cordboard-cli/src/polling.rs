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
    let done = poll_for(fds, time.map(timespec).as_ref());
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
    let _ = nanosleep(&timespec(time));
}

/// Returns a time in the form of the system calls. Async-signal-safe.
pub fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(time.subsec_nanos()),
    }
}
