//! The calls without a safe wrapper elsewhere. This module and `entry.rs` are the
//! only ones of the command with `unsafe`, each block with its SAFETY line.

mod descriptors;
mod lease;
mod limits;
mod loop_device;
mod process;
mod signals;
mod time;

pub use descriptors::{close, descriptor_flags, inherited, leave_descriptors, unsent};
pub use lease::WriteLease;
pub use limits::{addresses_left, most_descriptors, share_one_heap};
pub use loop_device::backing_file;
pub use process::{be_nice, exit_at_once, start_plain_thread};
pub use signals::{
    Handler, blocks, handle, handle_unless_ignored, handle_with_origin, ignore, ignores,
    is_by_default, keeping_errno, pending_signals, raise_by_default, unblock, without_signals,
};
pub use time::{now, set_timer, timer_left};
