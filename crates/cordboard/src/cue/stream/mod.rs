//! One control descriptor: its connections, and the transfers that their commands start.

mod execute;
mod job;
mod link;
mod port;
mod tightened;
mod transfers;

#[cfg(test)]
mod left_tests;
#[cfg(test)]
mod limit_tests;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Duration;

use rustix::net::{Shutdown, shutdown};

use self::job::{Active, Job, Moved};
use self::link::Link;
pub(super) use self::port::Port;
use super::limits::Limits;
use super::protocol::{Record, State, Status};
use super::registry::{Held, New, NewLink, Socket};
use crate::endpoint::Kind;
use crate::request::Size;
use crate::sys::WithEnd;

/// The maximum number of reads of commands in a turn. The thread then serves the other
/// control descriptors before it reads more.
const PIECES: usize = 4;

/// The time after which records are sent again if the kernel had no memory, and the interval at
/// which a connection without room in the epoll instance is polled.
const RETRY: Duration = Duration::from_millis(10);

/// One control descriptor.
pub(super) struct Stream {
    pub(super) id: u64,
    /// That of the owner, and those of links. Dropped before the source and the sink, unless one of
    /// these is a file.
    ports: Vec<Port>,
    pub(super) held: WithEnd<Held>,
    /// The source ends by itself: it is a file, a directory or a block device.
    source_ends: bool,
    /// The source is a datagram socket.
    has_messages: bool,
    /// A query of the source or the sink may wait for a server.
    may_wait: bool,
    queue: VecDeque<Job>,
    active: Option<Active>,
    /// The number of the transfer that was commanded last.
    transfers: u32,
    /// Of the transfer that has ended last.
    moved: Moved,
    limits: Limits,
    /// The offsets at which the next transfer continues, if an offset was given once.
    source_place: Option<u64>,
    sink_place: Option<u64>,
    /// The same before the running transfer was begun.
    places_before: [Option<u64>; 2],
    /// Its sink is a port of another control descriptor.
    link: Option<Link>,
    /// The time limit has passed, and all transfers were cancelled.
    is_expired: bool,
    /// There may be commands that have arrived and can be carried out now.
    is_unfinished: bool,
    /// The time at which a connection is polled.
    retry: Option<Duration>,
}

impl Stream {
    /// Also returns what the target of a link gets.
    pub(super) fn new(new: New) -> (Stream, Option<NewLink>) {
        let stream = Stream {
            id: new.id,
            ports: vec![Port::new(0, None, new.socket)],
            held: new.held,
            source_ends: new.kind.is_some_and(|kind| !kind.can_block()),
            has_messages: new.kind.is_some_and(Kind::is_datagram),
            may_wait: new.may_wait,
            queue: VecDeque::new(),
            active: None,
            transfers: 0,
            moved: Moved::default(),
            limits: Limits::default(),
            source_place: None,
            sink_place: None,
            places_before: [None; 2],
            link: new.link.as_ref().map(|link| Link::to(link.target)),
            is_expired: false,
            is_unfinished: false,
            retry: None,
        };
        (stream, new.link)
    }

    pub(super) fn ports(&self) -> &[Port] {
        &self.ports
    }

    pub(super) fn ports_mut(&mut self) -> &mut [Port] {
        &mut self.ports
    }

    /// Returns a number for the next link's connection.
    pub(super) fn next_port(&self) -> u32 {
        let is_free = |number: &u32| self.ports.iter().all(|port| port.number != *number);
        (1..).find(is_free).unwrap_or(u32::MAX)
    }

    /// Adds the connection of a link.
    pub(super) fn attach(&mut self, number: u32, link: u64, socket: WithEnd<Socket>) {
        self.ports.push(Port::new(number, Some(link), socket));
    }

    /// Returns the target of its link.
    pub(super) fn target(&self) -> Option<u64> {
        self.link.as_ref().map(|link| link.target)
    }

    /// Returns the source of its link, if its end is to be watched from now on.
    pub(super) fn source_to_watch(&mut self) -> Option<BorrowedFd<'_>> {
        let begins = self.link.as_mut().is_some_and(Link::begins_watch);
        begins.then(|| self.held.ends[0].as_fd())
    }

    /// Returns the connection of this link.
    pub(super) fn port_of(&mut self, link: u64) -> Option<&mut Port> {
        (self.ports.iter_mut()).find(|port| port.link == Some(link))
    }

    pub(super) fn port_mut(&mut self, number: u32) -> Option<&mut Port> {
        self.ports.iter_mut().find(|port| port.number == number)
    }

    /// Returns whether no command and no transfer is left, and all records are sent.
    fn is_idle(&self) -> bool {
        let is_waiting = self.active.is_some() || !self.queue.is_empty();
        let is_sent = self.ports.iter().all(|port| port.output.is_empty());
        !self.is_unfinished && !is_waiting && is_sent
    }

    /// Returns whether no more commands arrive, and all are carried out.
    fn is_done(&self) -> bool {
        self.ports.iter().all(|port| port.is_closed) && self.is_idle()
    }

    /// Returns whether its service can end.
    pub(super) fn is_over(&mut self) -> bool {
        self.is_done()
            && match &mut self.link {
                Some(link) => link.is_over(&self.held.ends[1]),
                None => true,
            }
    }

    /// Returns the time of the next action without a command or an event.
    pub(super) fn timer(&self, now: Duration) -> Option<Duration> {
        let ends = !self.queue.is_empty() || self.active.is_some();
        let until = self.limits.until().filter(|_| ends && !self.is_expired);
        let again = self.is_unfinished.then_some(now);
        let reports = self.ports.iter().filter_map(|port| port.progress);
        let reports = reports.filter(|_| self.active.is_some());
        let times = again.into_iter().chain(until).chain(self.retry);
        times.chain(reports.map(|(_, next)| next)).min()
    }

    /// Reads commands that have arrived, carries them out, and sends the records. Stops
    /// after [`PIECES`] reads of each connection, because a peer may send without pause.
    /// [`Stream::timer`] is then due at once.
    pub(super) fn advance(&mut self, clock: impl Fn() -> Duration) {
        let now = clock();
        for at in 0..self.ports.len() {
            if let Some((every, next)) = self.ports[at].progress
                && self.active.is_some()
                && now >= next
            {
                self.ports[at].progress = Some((every, now.saturating_add(every)));
                self.report_progress(at);
            }
        }
        self.is_unfinished = (0..PIECES).all(|_| self.advance_once(clock()));
        if self.queue.is_empty() {
            self.queue = VecDeque::new();
        }
        let is_polled = self.ports.iter().any(Port::is_polled);
        self.retry = is_polled.then(|| clock().saturating_add(RETRY));
    }

    /// Reads a piece of commands of each connection, carries out those that are whole, and
    /// sends the records. Returns whether there may be more to do without another event.
    fn advance_once(&mut self, now: Duration) -> bool {
        if self.limits.is_over(now) && !std::mem::replace(&mut self.is_expired, true) {
            self.cancel();
        }
        let mut more = false;
        for at in 0..self.ports.len() {
            let read = self.ports[at].read();
            let before = (
                self.ports[at].commands.room(),
                self.queue.len(),
                self.transfers,
            );
            self.carry_out(at, now);
            let after = (
                self.ports[at].commands.room(),
                self.queue.len(),
                self.transfers,
            );
            more |= read || before != after;
        }
        // A command of one connection may have records for all.
        for port in &mut self.ports {
            more |= port.send();
        }
        more
    }

    /// Removes the connections of links whose commands and transfers have ended, and whose
    /// records are sent.
    pub(super) fn take_ended(&mut self) -> Vec<Port> {
        let active = self.active.as_ref().map(|active| active.job.port);
        let queue = &self.queue;
        let has_job = |number| {
            let mut jobs = queue.iter().map(|job| job.port).chain(active);
            jobs.any(|port| port == number)
        };
        let is_unfinished = self.is_unfinished;
        let has_ended = |port: &mut Port| {
            let is_link = port.number != 0;
            is_link && !is_unfinished && port.has_ended() && !has_job(port.number)
        };
        let ended: Vec<Port> = self.ports.extract_if(.., has_ended).collect();
        if !ended.is_empty() {
            self.ports.shrink_to_fit();
        }
        ended
    }

    /// Sends a record to the connection that has commanded the transfer, if it still exists.
    fn put(&mut self, port: u32, record: &Record) {
        if let Some(port) = self.port_mut(port) {
            port.output.put(record);
        }
    }

    fn report_progress(&mut self, at: usize) {
        let status = self.status(0);
        (self.ports[at].output)
            .put_progress(|left_out| Record::Status(Status { left_out, ..status }));
    }

    fn status(&self, left_out: u32) -> Status {
        let now = self.active.as_ref().map(|active| {
            let Some(running) = &active.running else {
                return (None, active.before);
            };
            let status = running.status();
            let moved = Moved {
                // What was left over has been read by an earlier transfer.
                read: if active.is_rest { 0 } else { status.read },
                written: active.before.written + status.written,
                elapsed: active.before.elapsed + status.elapsed,
                ..active.before
            };
            (Some(status.path), moved)
        });
        let moved = now.map_or(self.moved, |(_, moved)| moved);
        let (rate_limit, blocks_limit) = self.held.control.schedule_limits();
        Status {
            state: match (self.held.control.is_paused(), &self.active) {
                (true, _) => State::Paused,
                (false, Some(_)) => State::Running,
                (false, None) => State::Idle,
            },
            transfer: moved.transfer,
            queued: u32::try_from(self.queue.len()).unwrap_or(u32::MAX),
            path: now.and_then(|(path, _)| path),
            read: moved.read,
            written: moved.written,
            elapsed: moved.elapsed,
            schedule: self.held.control.schedule(),
            rate_limit,
            blocks_limit,
            left_out,
            commanded: self.transfers,
            total: self
                .active
                .as_ref()
                .and_then(|active| match active.job.commanded {
                    Size::Bytes(bytes) => Some(bytes),
                    // The source may end before the limits.
                    Size::Eof => None,
                }),
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(active) = &mut self.active {
            active.cancel();
        }
        if !self.held.registry.has_descriptors() {
            // The transfer may have descriptors, which are closed already.
            std::mem::forget(self.active.take());
        } else if self.link.is_some() && self.ports[0].is_at_home() {
            // A child of `fork(2)` may have a copy, and the target waits for the end.
            let _ = shutdown(&self.held.ends[1], Shutdown::Both);
        }
        // After a panic, no caller waits for the close of a file, whose server may not answer.
        if self.held.has_files() && !std::thread::panicking() {
            let sockets = self.ports.drain(..).map(Port::into_socket);
            self.held.end_last(sockets);
        }
    }
}
