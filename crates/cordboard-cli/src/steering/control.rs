//! Commands and status of transfers that a [`Control`] steers.

use std::time::Duration;

use cordboard::cue::{Command, Limit, State, Status};
use cordboard::{Control, Errno, Schedule};

/// Carries out a command, except [`Command::Cancel`]. `block`: the length of a block of the
/// transfers, which is also that of a limit.
///
/// # Errors
///
/// `EINVAL`: a limit of 0. `EOPNOTSUPP`: the command would start or select transfers.
pub fn apply(control: &Control, block: u64, command: Command) -> Result<(), Errno> {
    let blocks = |count, rest| Schedule::blocks(count, Duration::from_millis(u64::from(rest)));
    let limit = |schedule| control.limit_schedule(schedule, block);
    match command {
        Command::Pause => control.pause(),
        Command::Resume => control.resume(),
        Command::Auto(aim) => control.set_schedule(Schedule::Auto(aim)),
        Command::Rate(rate) => control.set_schedule(Schedule::rate(rate)),
        Command::Schedule { count, rest } => control.set_schedule(blocks(count, rest)),
        Command::Limit(Limit::Rate(rate @ 1..)) => limit(Schedule::rate(rate)),
        Command::Limit(Limit::Schedule {
            count: count @ 1..,
            rest,
        }) => limit(blocks(count, rest)),
        Command::Limit(Limit::Rate(_) | Limit::Schedule { .. }) => return Err(Errno::EINVAL),
        _ => return Err(Errno::EOPNOTSUPP),
    }
    Ok(())
}

/// Returns the status of a running transfer, without its counts.
pub fn status(control: &Control) -> Status {
    let mut status = Status::idle();
    status.state = match control.is_paused() {
        true => State::Paused,
        false => State::Running,
    };
    (status.transfer, status.commanded) = (1, 1);
    status.schedule = control.schedule();
    (status.rate_limit, status.blocks_limit) = control.schedule_limits();
    status
}
