//! The calls without a safe wrapper elsewhere. This module and `entry.rs` are the
//! only ones of the command with `unsafe`, each block with its SAFETY line.

mod descriptors;
mod lease;
mod limits;
mod peer;
mod process;
mod signals;
mod time;

pub use descriptors::{
    close, descriptor_flags, inherited, leave_descriptors, put_in_place, shown_now, unsent,
};
pub use lease::WriteLease;
pub use limits::{addresses_left, most_descriptors, share_one_heap};
pub use peer::{Peer, peer};
pub use process::{be_nice, exit_at_once, is_foreground, start_plain_thread};
pub use signals::{
    blocks, handle, handle_unless_ignored, handle_with_origin, ignore, ignores, is_by_default,
    keeping_errno, pending_signals, raise_by_default, unblock, without_signals,
};
pub use time::{now, set_timer, timer_left};

/// The errno of the call that has failed last on this thread.
fn last_errno() -> rustix::io::Errno {
    let errno = std::io::Error::last_os_error().raw_os_error();
    rustix::io::Errno::from_raw_os_error(errno.unwrap_or(libc::EIO))
}
