//! The paper's interface: if a descriptor has FASYNC set, `cord_splice` returns
//! at once, and a signal reports the end of the transfer.
//!
//! On Linux the kernel sends the same signal whenever such a descriptor becomes
//! ready. So the flag is cleared for the duration of the transfer
//! (`suspended`), and set again before the end is reported. The only signal is
//! then that of the end (`notification`). Regular files do not keep the flag on
//! Linux; `emulated` keeps it for programs that set it with `cord_set_flags`.
//! `flags` combines the three.

mod description;
mod emulated;
mod flags;
mod notification;
mod suspended;

pub(crate) use flags::{flags, set_flags};
pub(crate) use notification::Notification;
pub(crate) use suspended::close_inherited;
