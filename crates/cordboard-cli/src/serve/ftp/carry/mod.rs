//! Moves the bytes of one data connection, and meanwhile handles the control connection.

mod watch;

use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use cordboard::cue::{Command, Done, Record, Status};
use cordboard::{Control, DataPath, Ended, Errno, Request, Side, Stage};
use rustix::net::RecvFlags;
use watch::{Watch, Why};

use super::extent::Extent;
use super::head::{self, Head};
use super::lines::Lines;
use super::mover::{self, Mover, Received, Truncate, receive};
use super::progress::{self, Client};
use super::server::Server;
use crate::request;
use crate::steering::control;

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
        let head = Head::new(&source, &sink);
        if head.is_some_and(|head| {
            has_sent_all(server, lines, client, head, (&mut carried, &mut watch))
        }) {
            return carried;
        }
    }
    let how = (server.rate, interval);
    match Mover::new(source, sink, stage, how, truncate) {
        Ok(mover) => go_on(server, lines, client, mover, carried, watch),
        Err(errno) => {
            carried.errno = Some(errno);
            // Replies may wait since the head.
            watch.answer(lines, true);
            carried
        }
    }
}

/// Moves the first bytes of a download on this thread. Returns whether the transfer has ended.
fn has_sent_all(
    server: &Server,
    lines: &mut Lines,
    client: &Client<'_>,
    mut head: Head<'_>,
    (carried, watch): (&mut Carried, &mut Watch),
) -> bool {
    let until = watch.start + head::LONGEST;
    loop {
        let end = head.advance(until);
        watch.see(head.status());
        if let Some(sent) = end {
            watch.sent = sent;
            (carried.written, carried.path) = (sent.written, sent.path);
            if let Some(done) = sent.done {
                carried.end(&watch.checked(done));
                watch.last(lines, carried);
            }
            return sent.done.is_some();
        }
        watch.answer(lines, false);
        let next = head.is_due().then(Instant::now);
        let next = next.or((!head.is_ending()).then_some(until));
        watch.wait(server, lines, Some(head.as_fd()), next);
        watch.takes_first_status(lines);
        if let Some(why) = watch.cancels(server, lines, client) {
            watch.cancel(why, carried);
            head.cancel();
        } else if Instant::now() >= until {
            head.hand_over();
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
    // A file server may have delayed the start, or the truncation of the old content.
    watch.begin_idle_time(Instant::now());
    loop {
        if advance(&mut mover, &mut carried, &mut watch) {
            watch.last(lines, &mut carried);
            break;
        }
        watch.answer(lines, false);
        // Before the wait: clients may wait for the report that has just arrived.
        watch.steer(server, &mover);
        watch.wait(server, lines, mover.fd(), None);
        if watch.takes_first_status(lines) {
            mover.request_status();
        }
        if let Some(why) = watch.cancels(server, lines, client) {
            watch.cancel(why, &mut carried);
            mover.cancel();
        }
    }
    settle(mover, &mut carried, &mut watch);
    carried
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
                Record::Status(status) => watch.see(watch.sent.added_to_status(status)),
                Record::Done(done) => {
                    let done = watch.checked(watch.sent.added_to_end(done));
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
