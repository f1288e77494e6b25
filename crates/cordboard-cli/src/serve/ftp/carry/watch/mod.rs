//! The control connection, the progress and the steering clients while bytes move.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use cordboard::Schedule;
use cordboard::cue::{Done, Record, State, Status};
use rustix::event::{PollFd, PollFlags};

use super::Carried;
use crate::polling::poll_or_rest;
use crate::serve::ftp::asked::{Asked, so_far};
use crate::serve::ftp::extent::Extent;
use crate::serve::ftp::head::Sent;
use crate::serve::ftp::lines::Lines;
use crate::serve::ftp::listed::{self, Listed, Seen};
use crate::serve::ftp::mover::Mover;
use crate::serve::ftp::progress::{Client, Progress};
use crate::serve::ftp::server::Server;
use crate::steering::Commanded;

/// Why a transfer is cancelled.
#[derive(Debug, PartialEq, Eq)]
pub enum Why {
    Abort,
    Idle,
    Closed,
    Shutdown,
}

/// The state of the control connection and of the progress while bytes move.
pub struct Watch {
    /// The client has closed the control connection.
    closed: bool,
    /// The server is shutting down: the transfer is cancelled at this time.
    until: Option<Instant>,
    is_cancelled: bool,
    progress: Progress,
    /// The idle time at the last check.
    allowed: Duration,
    /// The interval at which the progress is checked.
    interval: Duration,
    /// `seen` has been updated since the last command was read.
    is_fresh: bool,
    /// The commands without a reply.
    asked: Asked,
    pub seen: Seen,
    /// What the steering clients have commanded.
    commanded: Cell<Commanded>,
    total: Option<u64>,
    /// What was sent before the control descriptor. It is part of all counts.
    pub sent: Sent,
    /// The file of a download.
    pub extent: Option<Extent>,
    /// The name for `cordboard top`, until the transfer is listed.
    label: Option<String>,
    pub start: Instant,
    listed: Option<Listed>,
}

impl Watch {
    pub fn new(total: Option<u64>, label: String, interval: Duration) -> Watch {
        Watch {
            closed: false,
            until: None,
            is_cancelled: false,
            progress: Progress::since(Instant::now()),
            allowed: Duration::ZERO,
            interval,
            is_fresh: false,
            asked: Asked::default(),
            seen: Seen::nothing(),
            commanded: Cell::default(),
            total,
            sent: Sent::default(),
            extent: None,
            label: Some(label),
            start: Instant::now(),
            listed: None,
        }
    }

    /// Waits until the descriptor of what moves the bytes has an event, for the control connection
    /// and the steering clients, or until this time.
    pub fn wait(
        &mut self,
        server: &Server,
        lines: &mut Lines,
        moves: Option<BorrowedFd<'_>>,
        until: Option<Instant>,
    ) {
        let mut fds = Vec::new();
        fds.extend(moves.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        // Commands that follow the present one wait.
        let control = lines.awaited().filter(|_| !self.closed).map(|fd| {
            fds.push(fd);
            fds.len() - 1
        });
        if self.until.is_none() {
            fds.push(PollFd::from_borrowed_fd(
                server.ending.as_fd(),
                PollFlags::IN,
            ));
        }
        let (sockets, due) = match &self.listed {
            Some(listed) => listed.interest(),
            None => (Vec::new(), self.list_at(server)),
        };
        let each = sockets.iter();
        fds.extend(each.map(|(socket, flags)| PollFd::from_borrowed_fd(socket.as_fd(), *flags)));
        let listener = self.listed.as_ref().and_then(Listed::listener);
        fds.extend(listener.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        // Commands that were read ahead cause no further event.
        let more = (self.asked.is_empty() && self.asked.is_next(lines)).then(Instant::now);
        let idle = self.idle_time(server.idle);
        let left = self.longest_wait(Instant::now(), idle, [due, more, until]);
        let done = poll_or_rest(&mut fds, Some(left));
        self.until = server.deadline.get().copied();
        let readable = control.is_some_and(|at| !fds[at].revents().is_empty());
        drop(fds);
        self.closed |= done.is_ok() && readable && !lines.advance();
    }

    /// Stores why the transfer is cancelled.
    pub fn cancel(&mut self, why: Why, carried: &mut Carried) {
        carried.idle |= why == Why::Idle;
        carried.give_up(Some(why));
        self.is_cancelled = true;
    }

    /// Returns the time after which a transfer that does not move is cancelled. In the rest of a
    /// schedule, the server is silent, not the client.
    fn idle_time(&self, idle: Duration) -> Duration {
        let schedule = self.commanded.get().applied_to(self.seen.last).schedule;
        let limit = (self.listed.as_ref()).map_or(Schedule::Unlimited, Listed::blocks_limit);
        let rests = [schedule, limit].map(|schedule| match schedule {
            Schedule::Blocks { rest, .. } => rest,
            _ => Duration::ZERO,
        });
        idle.saturating_add(rests[0].max(rests[1]))
    }

    /// Begins the idle time anew.
    pub fn begin_idle_time(&mut self, now: Instant) {
        self.progress = Progress::since(now);
    }

    /// Returns the time until the first time at which something is due, at most the interval.
    fn longest_wait(&self, now: Instant, idle: Duration, others: [Option<Instant>; 3]) -> Duration {
        let cancelled_at = [self.until, self.progress.idle_at(idle)];
        let times = others.into_iter().chain(
            cancelled_at
                .into_iter()
                // After the cancellation, the next event is its end.
                .filter(|_| !self.is_cancelled),
        );
        let first = times.flatten().min();
        first.map_or(self.interval, |first| {
            first.saturating_duration_since(now).min(self.interval)
        })
    }

    /// Stores a status that has just been read.
    pub fn see(&mut self, status: Status) {
        self.seen.update(status);
        self.is_fresh = true;
    }

    /// Replies to STAT if the count is fresh, or is the last one. During the transfer, sends a
    /// reply only if the socket has room, because a wait for the client would delay the checks
    /// of the progress, the shutdown and the steering clients. The other replies follow with a
    /// later count. After the transfer, closes the connection of a client that does not read the
    /// replies.
    pub fn answer(&mut self, lines: &mut Lines, is_last: bool) {
        if self.asked.is_empty() {
            return;
        }
        let text = so_far(self.seen.last.written);
        let is_open = match is_last {
            true => self.asked.finish(lines, &text),
            false => self.asked.answer(lines, self.is_fresh.then_some(&text)),
        };
        self.closed |= !is_open;
    }

    /// Returns the time at which the transfer is to be listed.
    fn list_at(&self, server: &Server) -> Option<Instant> {
        let waits = server.list.is_some() && self.label.is_some();
        waits.then_some(self.start + listed::AFTER)
    }

    /// Lists the transfer, and carries out the commands of steering clients.
    pub fn steer(&mut self, server: &Server, mover: &Mover) {
        if let (Some(list), Some(at)) = (&server.list, self.list_at(server))
            && Instant::now() >= at
            && let Some(label) = self.label.take()
        {
            // If that fails, the transfer runs unlisted.
            let listed = Listed::begin(list, label, self.interval);
            let failed_before = server.list_fails.swap(listed.is_err(), Ordering::Relaxed);
            match listed {
                Ok(listed) => self.listed = Some(listed),
                // The first one of several. The next ones probably fail for the same reason.
                Err(problem) if !failed_before => {
                    let text = format!("`cordboard top` does not show a transfer: {problem}");
                    server.log.line(&text);
                }
                Err(_) => {}
            }
        }
        if let Some(listed) = &mut self.listed {
            listed.advance(mover, &self.seen, &self.commanded, self.total);
        }
    }

    /// Sends a record to the steering clients.
    pub fn send_to_clients(&mut self, record: &Record) {
        if let Some(listed) = &mut self.listed {
            listed.send(record);
        }
    }

    /// Returns the end of the transfer, which is an error if its file was truncated before.
    pub fn checked(&self, done: Done) -> Done {
        let extent = self.extent.as_ref();
        extent.map_or(done, |extent| extent.checked(done))
    }

    /// Sends the end to the steering clients.
    pub fn end_clients(&mut self, done: Done) {
        if let Some(listed) = &mut self.listed {
            let mut last = self.commanded.get().applied_to(self.seen.last);
            last.total = last.total.or(self.total);
            listed.end(last, done);
        }
    }

    /// Handles what has arrived together with the end of the data.
    pub fn last(&mut self, lines: &mut Lines, carried: &mut Carried) {
        self.look(lines);
        carried.give_up(self.given_up(lines));
        self.answer(lines, true);
    }

    /// Reads what has arrived together with the end of the data.
    fn look(&mut self, lines: &mut Lines) {
        self.closed |= lines.has_ended();
        self.asked.take(lines);
    }

    /// Returns why the client does not want the transfer any more, if it does not.
    fn given_up(&mut self, lines: &mut Lines) -> Option<Why> {
        match self.asked.take_abort(lines) {
            true => Some(Why::Abort),
            false => self.closed.then_some(Why::Closed),
        }
    }

    /// Takes STAT and NOOP. Returns whether a status must be requested: one record answers all
    /// that wait, since many requests could fill the socket of the cue.
    pub fn takes_first_status(&mut self, lines: &mut Lines) -> bool {
        self.is_fresh = false;
        let is_first = !self.asked.asks_status();
        self.asked.take(lines) && is_first && self.asked.asks_status()
    }

    /// Handles ABOR. Returns the reason if the transfer must be cancelled.
    pub fn cancels(
        &mut self,
        server: &Server,
        lines: &mut Lines,
        client: &Client<'_>,
    ) -> Option<Why> {
        let now = Instant::now();
        let seen = self.commanded.get().applied_to(self.seen.last);
        self.progress.update(client.counts(seen.written), now);
        let idle = self.idle_time(server.idle);
        // The idle time does not run during a pause. If a steering client has ended a rest, the
        // client could send or receive nothing before.
        if seen.state == State::Paused || idle < self.allowed {
            self.begin_idle_time(now);
        }
        self.allowed = idle;
        if let Some(why) = self.given_up(lines) {
            return Some(why);
        }
        if self.until.is_some_and(|until| now >= until) {
            return Some(Why::Shutdown);
        }
        (self.progress.idle(now) >= idle).then_some(Why::Idle)
    }
}

#[cfg(test)]
mod tests;
