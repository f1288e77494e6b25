//! Waits for transfers whose steps a test takes.

use cordboard::Stepping;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Whether the descriptor says that a step is possible.
pub fn is_due(stepping: &Stepping<'_>) -> bool {
    let mut fds = [PollFd::new(stepping, PollFlags::IN)];
    let now = Timespec::default();
    poll(&mut fds, Some(&now)).unwrap() == 1
}

/// Waits for the descriptor, as an event loop does.
pub fn wait(stepping: &Stepping<'_>) {
    let mut fds = [PollFd::new(stepping, PollFlags::IN)];
    poll(&mut fds, None).unwrap();
}
