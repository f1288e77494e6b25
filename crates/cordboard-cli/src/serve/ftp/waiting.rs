//! Waits for a descriptor, and meanwhile handles the control connection.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::lines::Lines;

/// Why a wait has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    Ready,
    /// The client has sent ABOR.
    Aborted,
    /// The client has closed the control connection.
    Closed,
    /// The server is shutting down.
    Ending,
    TimedOut,
}

/// Waits until `fd` has one of these events, until `ending` hangs up, or until this time.
/// Commands other than ABOR are not carried out.
pub fn wait(
    ending: Option<BorrowedFd<'_>>,
    lines: &mut Lines,
    fd: BorrowedFd<'_>,
    events: PollFlags,
    until: Instant,
) -> Waited {
    loop {
        if lines.take(b"ABOR") {
            return Waited::Aborted;
        }
        let mut fds = vec![PollFd::from_borrowed_fd(fd, events)];
        fds.extend(ending.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let control = lines.awaited();
        fds.extend(control.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let left = until.saturating_duration_since(Instant::now());
        let done = poll(&mut fds, Timespec::try_from(left).ok().as_ref());
        let has = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
        match done {
            Ok(0) => return Waited::TimedOut,
            Err(rustix::io::Errno::INTR) => continue,
            Err(_) => return Waited::Closed,
            Ok(_) if has(0) => return Waited::Ready,
            Ok(_) if ending.is_some() && has(1) => return Waited::Ending,
            Ok(_) => {}
        }
        drop(fds);
        if !matches!(lines.fill(), Ok(true)) {
            return Waited::Closed;
        }
    }
}
