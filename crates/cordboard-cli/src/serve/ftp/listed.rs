//! A transfer with a control socket, so that `cordboard top` can show and steer it.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cordboard::cue::{Command, Done, Limit, Record, State, Status};
use cordboard::{Control, Errno, Schedule};
use rustix::event::PollFlags;

use super::carry::Mover;
use crate::registry::{Directory, Listening};
use crate::steering::{Clients, Steered, control};

/// The age from which a transfer is listed. A shorter one ends before a user could see it, and
/// its socket would take longer than a small file.
pub const AFTER: Duration = Duration::from_millis(250);
/// The longest interval of the reports of the cue while a client is connected.
const OFTEN: Duration = Duration::from_millis(250);

/// The reports of a transfer.
#[derive(Debug)]
pub struct Seen {
    pub last: Status,
    /// The number of reports.
    reports: u64,
}

impl Seen {
    /// No report has arrived.
    pub fn nothing() -> Seen {
        Seen {
            last: Status::idle(),
            reports: 0,
        }
    }

    /// Stores a report.
    pub fn update(&mut self, status: Status) {
        self.last = status;
        self.reports += 1;
    }
}

/// What the clients have commanded. Only they change it, so it holds although a report from
/// before a command may arrive after it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Commanded {
    state: Option<State>,
    schedule: Option<Schedule>,
}

impl Commanded {
    /// Returns the status with these commands carried out.
    pub fn applied_to(self, mut status: Status) -> Status {
        let state = self.state.filter(|_| status.state != State::Idle);
        status.state = state.unwrap_or(status.state);
        status.schedule = self.schedule.unwrap_or(status.schedule);
        status
    }
}

/// The control socket of a transfer.
pub struct Listed {
    listening: Listening,
    clients: Clients,
    can_accept: bool,
    /// The interval of the reports of the cue without a client, and the present one.
    seldom: Duration,
    interval: Duration,
    /// The limits that clients have set. The report that answers a request may be one from
    /// before the last limit.
    limits: Control,
    /// The number of reports when one was requested for a client.
    requested: Cell<Option<u64>>,
}

impl Listed {
    /// Lists a transfer. `interval`: that of the reports of the cue. `None`: the socket or its
    /// entry cannot be created.
    pub fn begin(directory: &Directory, label: String, interval: Duration) -> Option<Listed> {
        Some(Listed {
            listening: directory.listen("ftp", label).ok()?,
            clients: Clients::default(),
            can_accept: true,
            seldom: interval,
            interval,
            limits: Control::without_descriptor(),
            requested: Cell::default(),
        })
    }

    /// Returns the sockets with their events to poll for, and the time of the next report.
    pub fn interest(&self) -> (Vec<(Arc<OwnedFd>, PollFlags)>, Option<Instant>) {
        self.clients.interest()
    }

    /// Returns the socket to poll for connections. `None`: no descriptor was available for the
    /// last connection, which is tried again later.
    pub fn listener(&self) -> Option<BorrowedFd<'_>> {
        (self.can_accept).then(|| self.listening.listener().as_fd())
    }

    /// Carries out the commands of clients, and adds them to `commanded`.
    pub fn advance(
        &mut self,
        mover: &Mover,
        seen: &Seen,
        commanded: &Cell<Commanded>,
        total: Option<u64>,
    ) {
        let steered = Transfer {
            mover,
            seen,
            commanded,
            total,
            limits: &self.limits,
            requested: &self.requested,
        };
        self.clients.advance(&steered);
        if steered.is_answered() {
            self.requested.set(None);
        }
        self.clients.accept(self.listening.listener());
        self.can_accept = self.clients.can_accept();
        let interval = if self.clients.is_empty() {
            self.seldom
        } else {
            OFTEN.min(self.seldom)
        };
        if interval != std::mem::replace(&mut self.interval, interval) {
            mover.report_every(interval);
        }
    }

    /// Returns the limit of blocks that clients have set.
    pub fn blocks_limit(&self) -> Schedule {
        self.limits.schedule_limits().1
    }

    /// Sends the end to the clients. `last`: the last status.
    pub fn end(&mut self, mut last: Status, done: Done) {
        (last.rate_limit, last.blocks_limit) = self.limits.schedule_limits();
        self.clients.end(last, done);
    }

    /// Sends a record to the clients.
    pub fn send(&mut self, record: &Record) {
        self.clients.send(record);
    }
}

/// A transfer that clients steer.
struct Transfer<'a> {
    mover: &'a Mover,
    seen: &'a Seen,
    commanded: &'a Cell<Commanded>,
    total: Option<u64>,
    limits: &'a Control,
    requested: &'a Cell<Option<u64>>,
}

impl Transfer<'_> {
    /// Returns whether a report has arrived since the request of one.
    fn is_answered(&self) -> bool {
        (self.requested.get()).is_some_and(|before| self.seen.reports > before)
    }
}

impl Steered for Transfer<'_> {
    fn status(&self) -> Status {
        let mut status = self.commanded.get().applied_to(self.seen.last);
        status.total = status.total.or(self.total);
        (status.rate_limit, status.blocks_limit) = self.limits.schedule_limits();
        status
    }

    /// The cue reports by itself only from time to time.
    fn is_current(&self) -> bool {
        if self.requested.get().is_none() && self.mover.request_status() {
            self.requested.set(Some(self.seen.reports));
            return false;
        }
        self.requested.get().is_none() || self.is_answered()
    }

    /// Carries out a command. The next status has its effect.
    fn steer(&self, command: Command) -> Result<(), Errno> {
        let mut commanded = self.commanded.get();
        match command {
            Command::Pause => commanded.state = Some(State::Paused),
            Command::Resume => commanded.state = Some(State::Running),
            Command::Rate(rate) => commanded.schedule = Some(Schedule::rate(rate)),
            Command::Schedule { count, rest } => {
                let rest = Duration::from_millis(u64::from(rest));
                commanded.schedule = Some(Schedule::blocks(count, rest));
            }
            Command::Auto(aim) => commanded.schedule = Some(Schedule::Auto(aim)),
            Command::Cancel => {}
            Command::Limit(Limit::Rate(1..) | Limit::Schedule { count: 1.., .. }) => {}
            Command::Limit(Limit::Rate(_) | Limit::Schedule { .. }) => return Err(Errno::EINVAL),
            // The FTP client determines the bytes to move.
            _ => return Err(Errno::EOPNOTSUPP),
        }
        self.mover.steer(command)?;
        self.commanded.set(commanded);
        if let Command::Limit(_) = command {
            control::apply(self.limits, command)?;
        }
        Ok(())
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
        let none = Commanded::default();
        assert_eq!(none.applied_to(report), report);
        let commanded = Commanded {
            state: Some(State::Paused),
            schedule: Some(Schedule::rate(2)),
        };
        let shown = commanded.applied_to(report);
        assert_eq!(
            (shown.state, shown.schedule),
            (State::Paused, Schedule::rate(2))
        );
        // The transfer has not begun, or has ended.
        assert_eq!(commanded.applied_to(Status::idle()).state, State::Idle);
    }
}
