//! The effect of commands on a status that was reported before them.

use std::time::Duration;

use cordboard::Schedule;
use cordboard::cue::{Command, State, Status};

/// The effect of commands. A report from before a command may arrive after it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Commanded {
    state: Option<State>,
    schedule: Option<Schedule>,
}

impl Commanded {
    /// Adds the effect of a command.
    pub fn add(&mut self, command: Command) {
        match command {
            Command::Pause => self.state = Some(State::Paused),
            Command::Resume => self.state = Some(State::Running),
            Command::Rate(rate) => self.schedule = Some(Schedule::rate(rate)),
            Command::Schedule { count, rest } => {
                let rest = Duration::from_millis(u64::from(rest));
                self.schedule = Some(Schedule::blocks(count, rest));
            }
            Command::Auto(aim) => self.schedule = Some(Schedule::Auto(aim)),
            _ => {}
        }
    }

    /// Returns the status with these commands carried out.
    pub fn applied_to(self, mut status: Status) -> Status {
        let state = self.state.filter(|_| status.state != State::Idle);
        status.state = state.unwrap_or(status.state);
        status.schedule = self.schedule.unwrap_or(status.schedule);
        status
    }

    /// Returns whether the next transfer, or the one that runs, is paused.
    pub fn is_paused(self, status: &Status) -> bool {
        self.state.unwrap_or(status.state) == State::Paused
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_from_before_a_command_does_not_undo_it() {
        let mut report = Status::idle();
        report.state = State::Running;
        report.schedule = Schedule::rate(1);
        let mut commanded = Commanded::default();
        assert_eq!(commanded.applied_to(report), report);
        commanded.add(Command::Pause);
        commanded.add(Command::Rate(2));
        commanded.add(Command::Cancel);
        let shown = commanded.applied_to(report);
        assert_eq!(
            (shown.state, shown.schedule),
            (State::Paused, Schedule::rate(2))
        );
        assert!(commanded.is_paused(&report));
        // The transfer has not begun, or has ended.
        assert_eq!(commanded.applied_to(Status::idle()).state, State::Idle);
        assert!(commanded.is_paused(&Status::idle()));
        commanded.add(Command::Resume);
        assert!(!commanded.is_paused(&shown));
    }
}
