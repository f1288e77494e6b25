//! Error messages. A [`Problem`] is made in one of three ways: [`Problem::call`]
//! for a system call that failed, [`Problem::refused`] for what this command
//! refuses, [`Problem::usage`] for wrong usage. It is printed as one line:
//!
//! ```text
//! cordboard: OPERAND: WHAT; WHAT HELPS
//! ```

mod action;
mod buffer;
mod hints;
mod message;
mod transfer;

pub use action::Action;
pub use buffer::buffer_failed;
pub use message::{Problem, print_leftover};
pub use transfer::{
    Left, Refused, action_at, changes_bytes, dropped_line, left_by_idle_limit, lost_by_idle_limit,
    operand_of, past_largest_offset, refusal_problem, request_refused, result_of, transfer_failed,
    unacknowledged_line, wait_failed,
};
