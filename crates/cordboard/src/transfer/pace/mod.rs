//! How many bytes a transfer may move, and when: schedules, their automatic forms, and the order of
//! the transfers that share one.

mod auto;
#[cfg(test)]
mod burst_tests;
mod credit;
mod grant;
mod need;
mod pacer;
#[cfg(test)]
mod pacer_change_tests;
#[cfg(test)]
mod pacer_tests;
#[cfg(test)]
mod path_tests;
mod queue;
#[cfg(test)]
mod queue_tests;
#[cfg(test)]
mod rate_tests;
#[cfg(test)]
mod schedule_end_tests;
#[cfg(test)]
mod schedule_tests;
#[cfg(test)]
mod shared_schedule_tests;

pub(super) use auto::{Load, Step};
pub(super) use need::Need;
pub(super) use pacer::{Pacers, Returned};
