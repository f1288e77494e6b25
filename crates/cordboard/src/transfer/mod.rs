//! One running splice: the paper's splice descriptor. All state of a transfer is in
//! one value, so any thread can run it.

mod arrivals;
mod auto;
#[cfg(test)]
mod burst_tests;
mod call;
mod control;
mod credit;
mod drive;
mod edges;
mod ending;
mod fast_path;
#[cfg(test)]
mod fifo_tests;
mod first_sample;
#[cfg(test)]
mod first_sample_tests;
#[cfg(test)]
mod full_sink_tests;
mod give_back;
mod grant;
#[cfg(test)]
mod idle_tests;
mod need;
mod own;
#[cfg(test)]
mod pace_path_tests;
#[cfg(test)]
mod pace_tests;
mod pacer;
#[cfg(test)]
mod pacer_change_tests;
#[cfg(test)]
mod pacer_tests;
#[cfg(test)]
mod pause_tests;
mod poll;
mod queue;
#[cfg(test)]
mod queue_tests;
mod readiness;
mod reopened;
#[cfg(test)]
mod schedule_end_tests;
#[cfg(test)]
mod schedule_tests;
mod settle;
#[cfg(test)]
mod settle_tests;
#[cfg(test)]
mod shared_schedule_tests;
mod spin;
mod stages;
mod step;
mod stepper;
mod stepping;
#[cfg(test)]
mod sync_tests;
#[cfg(test)]
mod test_files;
#[cfg(test)]
mod tests;
mod thread_kind;
mod threshold;
#[expect(clippy::module_inception, reason = "the structure of that name")]
mod transfer;
mod tuning;
#[cfg(test)]
mod tuning_goal_tests;
#[cfg(test)]
mod tuning_result_tests;
#[cfg(test)]
mod tuning_tests;
#[cfg(test)]
mod tuning_window_tests;
mod turn;
mod used;
mod wait;
mod ways;
mod writeback;

pub use call::splice;
pub use control::{Control, Observer, Progress};
pub(crate) use edges::fetch;
pub(crate) use poll::Poll;
#[cfg(test)]
pub(crate) use settle::Settled;
pub(crate) use settle::Settlement;
pub(crate) use spin::{SPIN_TIME, Trials};
pub(crate) use stepper::Stepper;
pub(crate) use thread_kind::ThreadKind;

pub use stepping::Stepping;
pub use transfer::Transfer;
pub(crate) use turn::{Next, Turn, Wait, WaitFor};
pub(crate) use wait::{Clock, Interest, Waiter, Wakeup};
