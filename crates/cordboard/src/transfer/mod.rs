//! One running splice: the paper's splice descriptor. All state of a transfer is in
//! one value, so any thread can run it.

mod call;
mod control;
mod drive;
mod fast_path;
#[cfg(test)]
mod fifo_tests;
#[cfg(test)]
mod full_sink_tests;
#[cfg(test)]
mod idle_tests;
mod own;
mod pace;
#[cfg(test)]
mod pause_tests;
mod reopened;
mod settle;
mod stages;
mod step;
mod stepper;
mod stepping;
#[cfg(test)]
mod test_files;
#[cfg(test)]
mod tests;
mod thread_kind;
#[expect(clippy::module_inception, reason = "the structure of that name")]
mod transfer;
mod tuning;
mod turn;
mod used;
mod wait;
mod writeback;

pub use call::splice;
pub use control::{Control, Observer, Progress};
pub(crate) use settle::Settlement;
pub(crate) use stepper::Stepper;
pub(crate) use thread_kind::ThreadKind;

pub use stepping::Stepping;
pub use transfer::Transfer;
pub(crate) use turn::{Next, Turn, Wait, WaitFor};
pub(crate) use wait::{Clock, Interest, Poll, SPIN_TIME, Trials, Waiter, Wakeup, fetch};
