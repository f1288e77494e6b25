//! Telling an empty datagram from the end of the source.

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::super::Flow;
use crate::endpoint::Kind;
use crate::sys::{self, Received};

/// `SO_PASSCRED` on a sequenced-packet source: credentials come with every
/// message, and with the end there are none.
#[derive(Default)]
pub(in crate::path) struct Credentials {
    /// To be taken off at the end.
    set: bool,
}

impl Credentials {
    /// Asks for them where they tell something.
    pub(in crate::path) fn ask(flow: &Flow<'_>) -> Credentials {
        let set = flow.source.kind() == Kind::UnixSeqpacket
            && sys::pass_credentials(flow.source_fd(), true) == Ok(false);
        Credentials { set }
    }

    /// Leaves the source as it was found.
    pub(in crate::path) fn give_back(&mut self, flow: &Flow<'_>) {
        if std::mem::take(&mut self.set) {
            let _ = sys::pass_credentials(flow.source_fd(), false);
        }
    }
}

/// Whether a message of no bytes is the end: elsewhere than on a
/// sequenced-packet socket, when reading was shut down.
pub(in crate::path) fn is_end(flow: &Flow<'_>, message: &Received) -> bool {
    match flow.source.kind() {
        Kind::UnixSeqpacket => !message.credentials && nothing_follows(flow),
        _ => matches!(reading_was_shut_down(flow), Some(true)),
    }
}

/// Nothing but the end is still to come; empty messages aside, of which nothing
/// tells where there are no credentials: a filter refuses `SO_PASSCRED`, or
/// another process that shares the socket has taken it off.
fn nothing_follows(flow: &Flow<'_>) -> bool {
    // If poll(2) fails (RLIMIT_NOFILE), no bytes are the end.
    reading_was_shut_down(flow) != Some(false)
        && matches!(sys::unsent(flow.source_fd()), Ok(0) | Err(_))
}

fn reading_was_shut_down(flow: &Flow<'_>) -> Option<bool> {
    let fd = flow.source_fd();
    let mut fds = [PollFd::new(&fd, PollFlags::RDHUP)];
    poll(&mut fds, Some(&Timespec::default())).ok()?;
    let gone = PollFlags::RDHUP | PollFlags::HUP;
    Some(fds[0].revents().intersects(gone))
}
