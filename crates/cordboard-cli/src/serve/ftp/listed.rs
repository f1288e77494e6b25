//! A transfer with a control socket, so that `cordboard top` can show and steer it.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cordboard::cue::{Command, Done, Limit, Record, Status};
use cordboard::{Control, Errno, Schedule};
use rustix::event::PollFlags;

use super::mover::Mover;
use crate::problem::Problem;
use crate::registry::{Directory, Listening};
use crate::steering::{Clients, Commanded, Steered, control};

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

/// The maximum time for the records that wait at the end. The client of FTP waits as long for its
/// reply.
const LAST: Duration = Duration::from_millis(250);

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
    /// Lists a transfer. `interval`: that of the reports of the cue.
    ///
    /// # Errors
    ///
    /// The socket or its entry cannot be created.
    pub fn begin(
        directory: &Directory,
        label: String,
        interval: Duration,
    ) -> Result<Listed, Problem> {
        Ok(Listed {
            listening: directory.listen("ftp", label)?,
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

    /// Carries out the commands of clients, and adds them to `commanded`. Only they change it.
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

    /// Sends the end to the clients, also to one that reads slowly. `last`: the last status.
    pub fn end(&mut self, last: Status, done: Done) {
        self.end_within(last, done, LAST);
    }

    fn end_within(&mut self, mut last: Status, done: Done, time: Duration) {
        (last.rate_limit, last.blocks_limit) = self.limits.schedule_limits();
        self.clients.end(last, done);
        self.clients.flush(time);
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
        match command {
            Command::Pause | Command::Resume | Command::Cancel => {}
            Command::Rate(_) | Command::Schedule { .. } | Command::Auto(_) => {}
            Command::Limit(Limit::Rate(1..) | Limit::Schedule { count: 1.., .. }) => {}
            Command::Limit(Limit::Rate(_) | Limit::Schedule { .. }) => return Err(Errno::EINVAL),
            // The FTP client determines the bytes to move.
            _ => return Err(Errno::EOPNOTSUPP),
        }
        self.mover.steer(command)?;
        let mut commanded = self.commanded.get();
        commanded.add(command);
        self.commanded.set(commanded);
        if let Command::Limit(_) = command {
            control::apply(self.limits, Schedule::BLOCK, command)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::net::UnixStream;

    use cordboard::Report;

    use super::*;

    #[test]
    fn the_end_reaches_a_client_that_reads_slowly() {
        let base = tempfile::tempdir().unwrap();
        let directory = Directory::at(base.path().join("cordboard")).unwrap();
        let mut listed = Listed::begin(&directory, String::new(), OFTEN).unwrap();
        let (_, entry) = directory.entries().unwrap().pop().unwrap();
        let mut client = UnixStream::connect(&entry.socket).unwrap();
        listed.clients.accept(listed.listening.listener());
        let socket = Arc::clone(&listed.interest().0[0].0);
        rustix::net::sockopt::set_socket_send_buffer_size(&*socket, 4096).unwrap();
        drop(socket);
        // Far more than fits into the socket.
        for _ in 0..20_000 {
            listed.send(&Record::Started(1));
        }
        let reads = std::thread::spawn(move || {
            let mut all = Vec::new();
            client.read_to_end(&mut all).unwrap();
            all
        });
        let done = Done::of(1, &Report::default());
        listed.end_within(Status::idle(), done, Duration::from_secs(3600));
        drop(listed);
        let mut last = Vec::new();
        Record::Done(done).encode(&mut last);
        assert!(reads.join().unwrap().ends_with(&last));
    }
}
