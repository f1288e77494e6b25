//! A transfer that `cordboard top` shows and steers: a control socket of its own.

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

/// Transfers that end before are not listed: nobody could see them, and a socket for each
/// would cost more than a small file.
pub const AFTER: Duration = Duration::from_millis(250);
/// The interval of the cue's reports, without a client and with one.
const SELDOM: u32 = 1000;
const OFTEN: u32 = 250;

/// The control socket of a transfer.
pub struct Listed {
    listening: Listening,
    clients: Clients,
    interval: u32,
}

impl Listed {
    /// Lists a transfer.
    pub fn begin(directory: &Directory, label: String) -> Option<Listed> {
        Some(Listed {
            listening: directory.listen("ftp", label).ok()?,
            clients: Clients::default(),
            interval: SELDOM,
        })
    }

    /// The sockets with what to poll for, and when the next report is due.
    pub fn interest(&self) -> (Vec<(Arc<OwnedFd>, PollFlags)>, Option<Instant>) {
        self.clients.interest()
    }

    /// The socket to poll for reading.
    pub fn listener(&self) -> BorrowedFd<'_> {
        self.listening.listener().as_fd()
    }

    /// Carries out what clients have sent. `seen`: the last status of the transfer.
    pub fn advance(&mut self, mover: &Mover, seen: &Cell<Status>, total: Option<u64>) {
        let steered = Transfer { mover, seen, total };
        self.clients.advance(&steered);
        self.clients.accept(self.listening.listener());
        let interval = if self.clients.is_empty() {
            SELDOM
        } else {
            OFTEN
        };
        if interval != std::mem::replace(&mut self.interval, interval) {
            mover.report_every(interval);
        }
    }

    /// Passes a record on: the end, or a refusal.
    pub fn send(&mut self, record: &Record) {
        self.clients.send(record);
    }
}

/// A transfer, as its clients steer it.
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

    /// The effect is in the next status at once: the cue's next report may come later.
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
            // What is moved is the FTP client's to say.
            _ => return Err(Errno::EOPNOTSUPP),
        }
        self.mover.steer(command)?;
        self.seen.set(status);
        Ok(())
    }
}
