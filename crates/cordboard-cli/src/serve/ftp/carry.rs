//! Moves the bytes of one data connection, and meanwhile handles the control connection.

use std::cell::Cell;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use cordboard::cue::{Command, Done, Record, State, Status};
use cordboard::{Control, DataPath, Ended, Errno, Request, Schedule, Side, Stage};
use rustix::event::{PollFd, PollFlags};
use rustix::net::RecvFlags;

use super::asked::{Asked, so_far};
use super::extent::Extent;
use super::head::Head;
use super::lines::Lines;
use super::listed::{self, Listed, Seen};
use super::mover::{self, Mover, Received, Truncate, receive};
use super::progress::{self, Client, Progress};
use super::server::Server;
use crate::polling::poll_or_rest;
use crate::request;
use crate::steering::{Commanded, control};

/// How a transfer has ended.
#[derive(Debug, Default)]
pub struct Carried {
    /// Bytes that the sink has accepted.
    pub written: u64,
    /// The source has ended, and all its bytes are written.
    pub complete: bool,
    /// The client has sent ABOR.
    pub aborted: bool,
    /// The client has sent ABOR or has closed the control connection, before the end was seen.
    pub given_up: bool,
    /// No byte has moved for the idle time.
    pub idle: bool,
    pub failed: Option<Side>,
    pub errno: Option<Errno>,
    pub path: Option<DataPath>,
}

impl Carried {
    /// Stores the end of a transfer without a stage.
    fn end(&mut self, done: &Done) {
        self.written = done.written;
        self.complete = done.ended == Ended::Eof && done.stranded == 0;
        (self.failed, self.errno) = (done.failed, done.errno);
        self.path = done.path;
    }

    /// Stores why the client does not want the transfer any more, if it does not.
    fn give_up(&mut self, why: Option<Why>) {
        self.aborted |= why == Some(Why::Abort);
        self.given_up |= matches!(why, Some(Why::Abort | Why::Closed));
    }
}

/// Moves all bytes from source to sink, whose old content `truncate` removes. The client can abort
/// the transfer. `label` names the transfer for `cordboard top`.
pub fn carry(
    server: &Server,
    lines: &mut Lines,
    client: &Client<'_>,
    (source, sink): (OwnedFd, OwnedFd),
    stage: Option<Stage>,
    label: String,
    truncate: Option<Truncate<'_>>,
) -> Carried {
    let mut carried = Carried::default();
    // A stage counts other bytes.
    let total = match stage {
        None => request::total(source.as_fd(), &Request::default()),
        Some(_) => None,
    };
    let interval = progress::interval(server.idle);
    let mut watch = Watch::new(total, label, interval);
    match Extent::of(&source) {
        Ok(extent) => watch.extent = extent,
        Err(errno) => {
            carried.errno = Some(errno);
            return carried;
        }
    }
    if stage.is_none() && server.rate == 0 && client.received.is_none() {
        watch.head = Head::send(&source, &sink);
        carried.written = watch.head.written;
        if let Some(done) = watch.head.done {
            carried.end(&watch.checked(done));
            watch.seen.last.written = done.written;
            watch.last(lines, &mut carried);
            return carried;
        }
    }
    let how = (server.rate, interval);
    match Mover::new(source, sink, stage, how, truncate) {
        Ok(mover) => go_on(server, lines, client, mover, carried, watch),
        Err(errno) => {
            carried.errno = Some(errno);
            carried
        }
    }
}

/// Moves the bytes behind the head.
fn go_on(
    server: &Server,
    lines: &mut Lines,
    client: &Client<'_>,
    mut mover: Mover,
    mut carried: Carried,
    mut watch: Watch,
) -> Carried {
    loop {
        if advance(&mut mover, &mut carried, &mut watch) {
            watch.last(lines, &mut carried);
            break;
        }
        watch.answer(lines, false);
        // Before the wait: clients may wait for the report that has just arrived.
        watch.steer(server, &mover);
        watch.wait(server, lines, &mover);
        if let Some(why) = watch.cancels(server, lines, client, &mover) {
            carried.idle |= why == Why::Idle;
            carried.give_up(Some(why));
            watch.is_cancelled = true;
            mover.cancel();
        }
    }
    settle(mover, &mut carried, &mut watch);
    carried
}

/// Why a transfer is cancelled.
#[derive(Debug, PartialEq, Eq)]
enum Why {
    Abort,
    Idle,
    Closed,
    Shutdown,
}

/// The state of the control connection and of the progress while bytes move.
struct Watch {
    /// The client has closed the control connection.
    closed: bool,
    /// The server is shutting down: the transfer is cancelled at this time.
    until: Option<Instant>,
    is_cancelled: bool,
    progress: Progress,
    /// The interval at which the progress is checked.
    interval: Duration,
    /// `seen` has been updated since the last command was read.
    is_fresh: bool,
    /// The commands without a reply.
    asked: Asked,
    seen: Seen,
    /// What the steering clients have commanded.
    commanded: Cell<Commanded>,
    total: Option<u64>,
    /// What was sent before the control descriptor. It is part of all counts.
    head: Head,
    /// The file of a download.
    extent: Option<Extent>,
    /// The name for `cordboard top`, until the transfer is listed.
    label: Option<String>,
    start: Instant,
    listed: Option<Listed>,
}

impl Watch {
    fn new(total: Option<u64>, label: String, interval: Duration) -> Watch {
        Watch {
            closed: false,
            until: None,
            is_cancelled: false,
            progress: Progress::since(Instant::now()),
            interval,
            is_fresh: false,
            asked: Asked::default(),
            seen: Seen::nothing(),
            commanded: Cell::default(),
            total,
            head: Head::default(),
            extent: None,
            label: Some(label),
            start: Instant::now(),
            listed: None,
        }
    }

    fn wait(&mut self, server: &Server, lines: &mut Lines, mover: &Mover) {
        let mut fds = Vec::new();
        let moves = match mover {
            Mover::Cue(cue, _) => Some(cue.as_fd()),
            Mover::Staged(running, _) => running.fd().ok(),
        };
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
        let left = self.longest_wait(Instant::now(), idle, [due, more]);
        let done = poll_or_rest(&mut fds, Some(left));
        self.until = server.deadline.get().copied();
        let readable = control.is_some_and(|at| !fds[at].revents().is_empty());
        drop(fds);
        self.closed |= done.is_ok() && readable && !lines.advance();
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

    /// Returns the time until the first time at which something is due, at most the interval.
    fn longest_wait(&self, now: Instant, idle: Duration, others: [Option<Instant>; 2]) -> Duration {
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
    fn see(&mut self, status: Status) {
        self.seen.update(status);
        self.is_fresh = true;
    }

    /// Replies to STAT if the count is fresh, or is the last one. During the transfer, sends a
    /// reply only if the socket has room, because a wait for the client would delay the checks
    /// of the progress, the shutdown and the steering clients. The other replies follow with a
    /// later count. After the transfer, closes the connection of a client that does not read the
    /// replies.
    fn answer(&mut self, lines: &mut Lines, is_last: bool) {
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
    fn steer(&mut self, server: &Server, mover: &Mover) {
        if let (Some(list), Some(at)) = (&server.list, self.list_at(server))
            && Instant::now() >= at
            && let Some(label) = self.label.take()
        {
            // If that fails, the transfer runs unlisted.
            self.listed = Listed::begin(list, label, self.interval);
        }
        if let Some(listed) = &mut self.listed {
            listed.advance(mover, &self.seen, &self.commanded, self.total);
        }
    }

    /// Sends a record to the steering clients.
    fn send_to_clients(&mut self, record: &Record) {
        if let Some(listed) = &mut self.listed {
            listed.send(record);
        }
    }

    /// Returns the end of the transfer, which is an error if its file was truncated before.
    fn checked(&self, done: Done) -> Done {
        let extent = self.extent.as_ref();
        extent.map_or(done, |extent| extent.checked(done))
    }

    /// Sends the end to the steering clients.
    fn end_clients(&mut self, done: Done) {
        if let Some(listed) = &mut self.listed {
            let mut last = self.commanded.get().applied_to(self.seen.last);
            last.total = last.total.or(self.total);
            listed.end(last, done);
        }
    }

    /// Handles what has arrived together with the end of the data.
    fn last(&mut self, lines: &mut Lines, carried: &mut Carried) {
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

    /// Handles STAT, NOOP and ABOR. Returns the reason if the transfer must be cancelled.
    fn cancels(
        &mut self,
        server: &Server,
        lines: &mut Lines,
        client: &Client<'_>,
        mover: &Mover,
    ) -> Option<Why> {
        let now = Instant::now();
        let seen = self.commanded.get().applied_to(self.seen.last);
        self.progress.update(client.counts(seen.written), now);
        // The idle time does not run during a pause.
        if seen.state == State::Paused {
            self.progress = Progress::since(now);
        }
        self.is_fresh = false;
        let is_first = !self.asked.asks_status();
        // One record answers all of them: many requests could fill the socket of the cue.
        if self.asked.take(lines) && is_first && self.asked.asks_status() {
            mover.request_status();
        }
        if let Some(why) = self.given_up(lines) {
            return Some(why);
        }
        if self.until.is_some_and(|until| now >= until) {
            return Some(Why::Shutdown);
        }
        (self.progress.idle(now) >= self.idle_time(server.idle)).then_some(Why::Idle)
    }
}

/// Reads the reports of the mover. Returns whether the transfer has ended.
fn advance(mover: &mut Mover, carried: &mut Carried, watch: &mut Watch) -> bool {
    let (cue, records) = match mover {
        Mover::Cue(cue, records) => (cue, records),
        Mover::Staged(running, control) => {
            let status = running.status();
            watch.see(status_of(&status, control));
            return status.ended;
        }
    };
    loop {
        while let Some(record) = records.next() {
            match record {
                Record::Status(status) => watch.see(watch.head.before_status(status)),
                Record::Done(done) => {
                    let done = watch.checked(watch.head.before_done(done));
                    let mut last = watch.seen.last;
                    last.written = done.written;
                    watch.see(last);
                    carried.end(&done);
                    watch.end_clients(done);
                    return true;
                }
                // A command of a steering client was refused.
                Record::Refused { word, .. } if word as u16 != Command::WriteToEnd.code() => {
                    watch.send_to_clients(&record);
                }
                Record::Refused { errno, .. } => {
                    carried.errno = Some(errno);
                    return true;
                }
                _ => {}
            }
        }
        match receive(cue, records, RecvFlags::DONTWAIT) {
            Received::Bytes => {}
            Received::Nothing => return false,
            Received::End => return true,
        }
    }
}

/// Returns the status of a transfer on the engine, in the form of a record.
fn status_of(running: &cordboard::engine::Status, control: &Control) -> Status {
    let mut status = control::status(control);
    status.path = Some(running.path);
    (status.read, status.written) = (running.read, running.written);
    status.elapsed = running.elapsed;
    status
}

/// Closes the descriptors, and completes the account.
fn settle(mover: Mover, carried: &mut Carried, watch: &mut Watch) {
    match mover {
        Mover::Cue(cue, records) => mover::end(cue, records),
        Mover::Staged(running, _) => {
            let report = running.wait().report;
            let done = watch.checked(Done::of(1, &report));
            watch.end_clients(done);
            carried.written = done.written;
            carried.complete = done.ended == Ended::Eof;
            (carried.failed, carried.errno) = (done.failed, done.errno);
            carried.path = done.path;
        }
    }
}

#[cfg(test)]
mod tests;
