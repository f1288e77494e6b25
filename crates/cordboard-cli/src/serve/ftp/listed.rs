//! A transfer with a control socket, so that `cordboard top` can show and steer it.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cordboard::cue::{Command, Limit, Record, State, Status};
use cordboard::{Errno, Schedule};
use rustix::event::PollFlags;

use super::carry::Mover;
use crate::registry::{Directory, Listening};
use crate::steering::{Clients, Steered};

/// The age from which a transfer is listed. A shorter one ends before a user could see it, and
/// its socket would take longer than a small file.
pub const AFTER: Duration = Duration::from_millis(250);
/// The intervals of the reports of the cue in milliseconds, without a client and with one.
const SELDOM: u32 = 1000;
const OFTEN: u32 = 250;

/// The control socket of a transfer.
pub struct Listed {
    listening: Listening,
    clients: Clients,
    can_accept: bool,
    interval: u32,
}

impl Listed {
    /// Lists a transfer. `None`: the socket or its entry cannot be created.
    pub fn begin(directory: &Directory, label: String) -> Option<Listed> {
        Some(Listed {
            listening: directory.listen("ftp", label).ok()?,
            clients: Clients::default(),
            can_accept: true,
            interval: SELDOM,
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

    /// Carries out the commands of clients. `seen`: the last status of the transfer.
    pub fn advance(&mut self, mover: &Mover, seen: &Cell<Status>, total: Option<u64>) {
        let steered = Transfer { mover, seen, total };
        self.clients.advance(&steered);
        self.clients.accept(self.listening.listener());
        self.can_accept = self.clients.can_accept();
        let interval = if self.clients.is_empty() {
            SELDOM
        } else {
            OFTEN
        };
        if interval != std::mem::replace(&mut self.interval, interval) {
            mover.report_every(interval);
        }
    }

    /// Sends a record to the clients: the end, or a refusal.
    pub fn send(&mut self, record: &Record) {
        self.clients.send(record);
    }
}

/// A transfer that clients steer.
struct Transfer<'a> {
    mover: &'a Mover,
    seen: &'a Cell<Status>,
    total: Option<u64>,
}

impl Steered for Transfer<'_> {
    fn status(&self) -> Status {
        let mut status = self.seen.get();
        status.total = status.total.or(self.total);
        status
    }

    /// Carries out a command. The next status has its effect, although the next report of the
    /// cue may arrive later.
    fn steer(&self, command: Command) -> Result<(), Errno> {
        let mut status = self.seen.get();
        match command {
            Command::Pause => status.state = State::Paused,
            Command::Resume => status.state = State::Running,
            Command::Rate(rate) => status.schedule = Schedule::rate(rate),
            Command::Schedule { count, rest } => {
                let rest = Duration::from_millis(u64::from(rest));
                status.schedule = Schedule::blocks(count, rest);
            }
            Command::Auto(aim) => status.schedule = Schedule::Auto(aim),
            Command::Cancel => {}
            Command::Limit(Limit::Rate(1..) | Limit::Schedule { count: 1.., .. }) => {}
            Command::Limit(Limit::Rate(_) | Limit::Schedule { .. }) => return Err(Errno::EINVAL),
            // The FTP client determines the bytes to move.
            _ => return Err(Errno::EOPNOTSUPP),
        }
        self.mover.steer(command)?;
        self.seen.set(status);
        Ok(())
    }
}
