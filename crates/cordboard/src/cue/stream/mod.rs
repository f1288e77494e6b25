//! One control descriptor: its commands, and the transfers that they start.

mod job;
mod link;
mod tightened;
mod transfers;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::net::{RecvFlags, recv};

use self::job::{Active, Job, Moved};
use self::link::Link;
use super::limits::Limits;
use super::output::Output;
use super::protocol::{Command, Commands, Limit, Record, State, Status};
use super::registry::{Held, New};
use crate::endpoint::Kind;
use crate::errno::Errno;
use crate::report::Ended;
use crate::request::{Schedule, Size};
use crate::sys::WithEnd;

/// The maximum number of waiting transfers. Further commands stay unread until a transfer
/// has started.
const QUEUE: usize = 32;
/// The maximum number of reads of commands in a turn. The thread then serves the other
/// control descriptors before it reads more.
const PIECES: usize = 4;
/// The shortest interval of reports of progress.
const SHORTEST: Duration = Duration::from_millis(10);
/// The interval at which the end of a link is checked: all records of the target must have
/// been returned.
const UNLINK: Duration = Duration::from_millis(20);

/// One control descriptor.
pub(super) struct Stream {
    pub(super) id: u64,
    pub(super) held: WithEnd<Held>,
    /// The source ends by itself: it is a file or a block device.
    source_ends: bool,
    /// The source is a datagram socket.
    has_messages: bool,
    /// A query of the source or the sink may wait for a server.
    may_wait: bool,
    commands: Commands,
    output: Output,
    queue: VecDeque<Job>,
    active: Option<Active>,
    transfers: u32,
    moved: Moved,
    limits: Limits,
    /// Set by commands for the next transfer.
    source_offset: Option<u64>,
    sink_offset: Option<u64>,
    block: Option<NonZeroUsize>,
    /// The offsets at which the next transfer continues, if an offset was given once.
    source_place: Option<u64>,
    sink_place: Option<u64>,
    /// The interval of progress, and the time of the next report.
    progress: Option<(Duration, Duration)>,
    link: Option<Link>,
    /// The time limit has passed, and all transfers were cancelled.
    is_expired: bool,
    /// There may be commands that have arrived and can be carried out now.
    is_unfinished: bool,
    /// No more commands arrive.
    is_closed: bool,
    /// No process has the other end.
    is_hung_up: bool,
}

impl Stream {
    pub(super) fn new(new: New) -> Stream {
        Stream {
            id: new.id,
            held: new.held,
            source_ends: matches!(
                new.kind,
                Some(Kind::File | Kind::Memfd | Kind::BlockDevice | Kind::Pseudo)
            ),
            has_messages: new.kind.is_some_and(Kind::is_datagram),
            may_wait: new.may_wait,
            commands: Commands::default(),
            output: Output::default(),
            queue: VecDeque::new(),
            active: None,
            transfers: 0,
            moved: Moved::default(),
            limits: Limits::default(),
            source_offset: None,
            sink_offset: None,
            block: None,
            source_place: None,
            sink_place: None,
            progress: None,
            link: new.target.map(Link::new),
            is_expired: false,
            is_unfinished: false,
            is_closed: false,
            is_hung_up: false,
        }
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.held.socket.as_fd()
    }

    /// Returns whether it waits for commands, and for room for records.
    pub(super) fn interest(&self) -> (bool, bool) {
        let reads = !self.is_closed && self.commands.room() > 0;
        (reads, !self.output.is_empty())
    }

    /// No process has the other end: records are no longer sent.
    pub(super) fn hang_up(&mut self) {
        self.is_hung_up = true;
        self.output.close();
    }

    pub(super) fn is_hung_up(&self) -> bool {
        self.is_hung_up
    }

    /// Returns whether no command and no transfer is left, and all records are sent.
    fn is_idle(&self) -> bool {
        let is_waiting = self.active.is_some() || !self.queue.is_empty();
        !self.is_unfinished && !is_waiting && self.output.is_empty()
    }

    /// Returns whether it is idle, and no command has arrived.
    pub(super) fn has_nothing_to_do(&self) -> bool {
        let unread = rustix::io::ioctl_fionread(&self.held.socket).is_ok_and(|bytes| bytes > 0);
        self.is_idle() && !unread
    }

    /// Returns whether no more commands arrive, and all are carried out.
    pub(super) fn is_done(&self) -> bool {
        self.is_closed && self.is_idle()
    }

    /// Returns the linked control descriptor, whose records go to the source.
    pub(super) fn target(&self) -> Option<u64> {
        self.link.as_ref().map(|link| link.target)
    }

    /// Returns whether the service of a descriptor that is done can end. `target_is_idle`:
    /// the linked descriptor has nothing to do.
    pub(super) fn is_over(&self, target_is_idle: bool) -> bool {
        let link = self.link.as_ref();
        link.is_none_or(|link| link.is_over(&self.held.ends[1], target_is_idle))
    }

    /// Returns the time of the next action without a command or an event.
    pub(super) fn timer(&self, now: Duration) -> Option<Duration> {
        let progress = self.progress.filter(|_| self.active.is_some());
        let ends = !self.queue.is_empty() || self.active.is_some();
        let until = self.limits.until().filter(|_| ends && !self.is_expired);
        let unlinks = self.link.is_some() && self.is_closed && self.is_idle();
        let unlink = unlinks.then(|| now.saturating_add(UNLINK));
        let progress = progress.map(|(_, next)| next);
        let again = self.is_unfinished.then_some(now);
        let times = again.into_iter().chain(progress).chain(until);
        times.chain(unlink).min()
    }

    /// Reads commands that have arrived, carries them out, and sends the records. Stops
    /// after [`PIECES`] reads, because a peer may send without pause. [`Stream::timer`] is
    /// then due at once.
    pub(super) fn advance(&mut self, clock: impl Fn() -> Duration) {
        let now = clock();
        if let Some((every, next)) = self.progress
            && self.active.is_some()
            && now >= next
        {
            self.progress = Some((every, now.saturating_add(every)));
            self.report_progress();
        }
        self.is_unfinished = (0..PIECES).all(|_| self.advance_once(clock()));
    }

    /// Reads a piece of commands, carries out those that are whole, and sends the records.
    /// Returns whether there may be more to do without another event.
    fn advance_once(&mut self, now: Duration) -> bool {
        if self.limits.is_over(now) && !std::mem::replace(&mut self.is_expired, true) {
            self.cancel();
        }
        let read = self.read();
        let before = (self.commands.room(), self.queue.len(), self.transfers);
        self.carry_out(now);
        let after = (self.commands.room(), self.queue.len(), self.transfers);
        // No event follows if the reader has made room meanwhile.
        let was_full = self.output.is_full();
        self.output.send(self.held.socket.as_fd());
        read || before != after || was_full && !self.output.is_full()
    }

    /// Reads commands, as far as there is room. Returns whether bytes have arrived.
    fn read(&mut self) -> bool {
        let room = self.commands.room();
        if self.is_closed || room == 0 {
            return false;
        }
        let mut bytes = [0; Commands::ROOM];
        match recv(&self.held.socket, &mut bytes[..room], RecvFlags::DONTWAIT) {
            Ok((_, n @ 1..)) => {
                self.commands.push(&bytes[..n]);
                true
            }
            Err(rustix::io::Errno::AGAIN) => false,
            Err(rustix::io::Errno::INTR) => true,
            Ok((_, 0)) | Err(_) => {
                self.is_closed = true;
                true
            }
        }
    }

    fn carry_out(&mut self, now: Duration) {
        loop {
            if self.queue.len() >= QUEUE && self.cancel_is_ahead() {
                self.cancel();
            }
            self.start_next();
            if self.output.is_full() {
                return;
            }
            let next = match self.is_held() {
                true => self.commands.take_ahead().map(Ok),
                false => self.commands.next(),
            };
            match next {
                Some(Ok(command)) => {
                    let done = self.limits.check(command, now);
                    if let Err(errno) = done.and_then(|()| self.execute(command, now)) {
                        self.refuse(command, errno);
                    }
                }
                Some(Err(bad)) => self.output.put(&Record::Refused {
                    word: bad.word,
                    errno: Errno::EINVAL,
                }),
                None if self.is_held() => {
                    // No command can come that resumes or cancels.
                    if self.is_closed || self.is_hung_up {
                        self.cancel_endless();
                    }
                    if self.is_held() {
                        return;
                    }
                }
                None if self.is_closed => return self.end_input(),
                None => return,
            }
        }
    }

    /// Returns whether the next command starts a transfer, which has no room in the queue.
    fn is_held(&self) -> bool {
        let next = self.commands.peek(0);
        let starts = matches!(next, Some((Ok(Command::Write(_) | Command::WriteToEnd), _)));
        starts && self.queue.len() >= QUEUE
    }

    fn refuse(&mut self, command: Command, errno: Errno) {
        self.output.put(&Record::refused(command, errno));
    }

    /// Returns whether a cancellation has arrived after commands that cannot be carried out
    /// yet, without a limit before it that might forbid it.
    fn cancel_is_ahead(&self) -> bool {
        let mut at = 0;
        while let Some((command, length)) = self.commands.peek(at) {
            match command {
                Ok(Command::Cancel) => {
                    return self.limits.check(Command::Cancel, Duration::ZERO).is_ok();
                }
                Ok(Command::Limit(_)) => return false,
                _ => at += length,
            }
        }
        false
    }

    fn execute(&mut self, command: Command, now: Duration) -> Result<(), Errno> {
        match command {
            Command::Write(bytes) => self.enqueue(Size::Bytes(bytes))?,
            Command::WriteToEnd => self.enqueue(Size::Eof)?,
            Command::SourceOffset(offset) => self.source_offset = Some(offset),
            Command::SinkOffset(offset) => self.sink_offset = Some(offset),
            Command::Block(bytes) => self.block = NonZeroUsize::new(bytes as usize),
            Command::Schedule { count, rest } => {
                (self.held.control).set_schedule(Schedule::blocks(count, millis(rest)));
            }
            Command::Auto(aim) => self.held.control.set_schedule(Schedule::Auto(aim)),
            Command::Rate(rate) => self.held.control.set_schedule(Schedule::rate(rate)),
            Command::Pause => self.held.control.pause(),
            Command::Resume => self.held.control.resume(),
            Command::Cancel => self.cancel(),
            Command::Status => {
                let left_out = self.output.take_left_out();
                let status = self.status(left_out);
                self.output.put(&Record::Status(status));
            }
            Command::Progress(0) => self.progress = None,
            Command::Progress(every) => {
                let every = millis(every).max(SHORTEST);
                self.progress = Some((every, now.saturating_add(every)));
            }
            Command::Limit(Limit::Rate(rate)) => self.limit(Schedule::rate(rate))?,
            Command::Limit(Limit::Schedule { count, rest }) => {
                self.limit(Schedule::blocks(count, millis(rest)))?;
            }
            Command::Limit(limit) => self.tighten(limit, now),
        }
        Ok(())
    }

    /// Limits the schedules. `EINVAL`: no schedule is not a limit.
    fn limit(&self, schedule: Schedule) -> Result<(), Errno> {
        if schedule == Schedule::Unlimited {
            return Err(Errno::EINVAL);
        }
        let block = self.block.map_or(Schedule::BLOCK, |n| n.get() as u64);
        self.held.control.limit_schedule(schedule, block);
        Ok(())
    }

    /// Handles the end of the commands. Transfers that end by themselves are carried out:
    /// those with a size, those from a file, and those of a link. All others are cancelled.
    fn end_input(&mut self) {
        if self.commands.is_incomplete() {
            let errno = Errno::ENODATA;
            let left = Commands::ROOM - self.commands.room();
            self.commands = Commands::default();
            self.output.put(&Record::Refused {
                word: left as u32,
                errno,
            });
        }
        self.cancel_endless();
    }

    /// Cancels the transfers that do not end by themselves, and all if they are paused.
    fn cancel_endless(&mut self) {
        // No command could resume it.
        let is_paused = self.held.control.is_paused();
        let ends = self.source_ends || self.link.is_some();
        let stays = |job: &Job| !is_paused && (ends || job.size != Some(Size::Eof));
        let (stay, go): (Vec<Job>, Vec<Job>) = self.queue.drain(..).partition(|job| stays(job));
        self.queue.extend(stay);
        for job in go {
            self.skip(job, Ended::Cancelled, None);
        }
        if let Some(active) = &mut self.active
            && !stays(&active.job)
        {
            active.cancel();
        }
    }

    fn report_progress(&mut self) {
        let status = self.status(0);
        self.output
            .put_progress(|left_out| Record::Status(Status { left_out, ..status }));
    }

    fn status(&self, left_out: u32) -> Status {
        let now = self.active.as_ref().map(|active| {
            let Some(running) = &active.running else {
                let moved = Moved {
                    written: active.rest,
                    ..Moved::default()
                };
                return (None, moved);
            };
            let status = running.status();
            let (read, written) = match active.is_rest {
                true => (0, active.rest + status.written),
                false => (status.read, active.rest + status.written),
            };
            let elapsed = status.elapsed;
            (
                Some(status.path),
                Moved {
                    read,
                    written,
                    elapsed,
                },
            )
        });
        let moved = now.map_or(self.moved, |(_, moved)| moved);
        let (rate_limit, blocks_limit) = self.held.control.schedule_limits();
        Status {
            state: match (self.held.control.is_paused(), &self.active) {
                (true, _) => State::Paused,
                (false, Some(_)) => State::Running,
                (false, None) => State::Idle,
            },
            transfer: (self.active.as_ref()).map_or(self.transfers, |active| active.number),
            queued: u32::try_from(self.queue.len()).unwrap_or(u32::MAX),
            path: now.and_then(|(path, _)| path),
            read: moved.read,
            written: moved.written,
            elapsed: moved.elapsed,
            schedule: self.held.control.schedule(),
            rate_limit,
            blocks_limit,
            left_out,
            total: self
                .active
                .as_ref()
                .and_then(|active| match active.job.size {
                    Some(Size::Bytes(bytes)) => Some(bytes),
                    Some(Size::Eof) | None => None,
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
        }
    }
}

fn millis(millis: u32) -> Duration {
    Duration::from_millis(u64::from(millis))
}
