//! One control descriptor: its commands, and the transfers that they start.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{RecvFlags, recv};

use super::limits::{Limits, Reserved};
use super::output::Output;
use super::protocol::{Command, Commands, Done, Limit, Record, State, Status};
use super::registry::{Message, New, Registry};
use super::stranded::{self, Rest};
use crate::endpoint::{Kind, Side};
use crate::engine::Running;
use crate::errno::Errno;
use crate::report::{Ended, Failure, Refusal, Report};
use crate::request::{Request, Schedule, Size};
use crate::sys::duplicate;
use crate::transfer::{Control, Transfer};

/// Transfers that wait, at most. Further commands stay unread until one has started.
pub(super) const QUEUE: usize = 32;
/// The shortest interval of reports of progress.
const SHORTEST: Duration = Duration::from_millis(10);
/// The interval at which the end of a link is checked: how much of the target's
/// records is still to be returned.
const UNLINK: Duration = Duration::from_millis(20);

/// A transfer that was commanded.
#[derive(Debug, Clone, Copy)]
struct Job {
    size: Size,
    source_offset: Option<u64>,
    sink_offset: Option<u64>,
    block: Option<NonZeroUsize>,
    reserved: Reserved,
}

/// The transfer that runs.
struct Active {
    running: Running,
    number: u32,
    job: Job,
    /// It writes what an earlier transfer has left over, and the job follows.
    is_rest: bool,
    /// Bytes that were written of what was left over.
    rest: u64,
    is_cancelled: bool,
}

impl Active {
    fn cancel(&mut self) {
        self.is_cancelled = true;
        self.running.cancel();
    }
}

/// What the transfer that runs, or the last one, has moved.
#[derive(Debug, Clone, Copy, Default)]
struct Moved {
    read: u64,
    written: u64,
    elapsed: Duration,
}

/// The other direction of a control descriptor whose sink is another one: the records
/// of the other go back to the source.
struct Link {
    target: u64,
    answers: Option<Running>,
    /// The last transfer has found the end of the peer's commands.
    peer_has_left: bool,
}

/// One control descriptor.
pub(super) struct Stream {
    pub(super) id: u64,
    registry: Arc<Registry>,
    socket: OwnedFd,
    /// The source and the sink.
    ends: [OwnedFd; 2],
    /// The source ends by itself: it is a file or a block device.
    source_ends: bool,
    control: Control,
    commands: Commands,
    output: Output,
    queue: VecDeque<Job>,
    active: Option<Active>,
    transfers: u32,
    moved: Moved,
    rest: Rest,
    limits: Limits,
    /// Set by commands for the next transfer.
    source_offset: Option<u64>,
    sink_offset: Option<u64>,
    block: Option<NonZeroUsize>,
    /// Where the next transfer continues, if an offset was given once.
    source_place: Option<u64>,
    sink_place: Option<u64>,
    /// The interval of progress, and the time of the next report.
    progress: Option<(Duration, Duration)>,
    link: Option<Link>,
    /// The time limit has ended what ran then.
    is_expired: bool,
    /// No more commands come.
    is_closed: bool,
    /// No process has the other end.
    is_hung_up: bool,
}

impl Stream {
    pub(super) fn new(new: New, registry: &Arc<Registry>) -> Stream {
        Stream {
            id: new.id,
            registry: Arc::clone(registry),
            socket: new.socket,
            ends: new.ends,
            source_ends: matches!(
                new.kind,
                Some(Kind::File | Kind::Memfd | Kind::BlockDevice | Kind::Pseudo)
            ),
            control: new.control,
            commands: Commands::default(),
            output: Output::default(),
            queue: VecDeque::new(),
            active: None,
            transfers: 0,
            moved: Moved::default(),
            rest: Rest::new(),
            limits: Limits::default(),
            source_offset: None,
            sink_offset: None,
            block: None,
            source_place: None,
            sink_place: None,
            progress: None,
            link: new.target.map(|target| Link {
                target,
                answers: None,
                peer_has_left: false,
            }),
            is_expired: false,
            is_closed: false,
            is_hung_up: false,
        }
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Whether it waits for commands, and for room for records.
    pub(super) fn interest(&self) -> (bool, bool) {
        let reads = !self.is_closed && self.commands.room() > 0;
        (reads, !self.output.is_empty())
    }

    /// No process has the other end: nothing is reported any more.
    pub(super) fn hang_up(&mut self) {
        self.is_hung_up = true;
        self.output.close();
    }

    pub(super) fn is_hung_up(&self) -> bool {
        self.is_hung_up
    }

    /// Whether nothing runs or waits and all records are sent.
    fn is_idle(&self) -> bool {
        self.active.is_none() && self.queue.is_empty() && self.output.is_empty()
    }

    /// Whether it is idle, and no command has arrived.
    pub(super) fn has_nothing_to_do(&self) -> bool {
        let unread = rustix::io::ioctl_fionread(&self.socket).is_ok_and(|bytes| bytes > 0);
        self.is_idle() && !unread
    }

    /// Whether no more commands come, and all are carried out.
    pub(super) fn is_done(&self) -> bool {
        self.is_closed && self.is_idle()
    }

    /// Returns the descriptor whose records it returns to its source.
    pub(super) fn target(&self) -> Option<u64> {
        self.link.as_ref().map(|link| link.target)
    }

    /// Whether the service of a descriptor that is done is over. `target_is_idle`: the
    /// descriptor that it is linked to has nothing to do.
    pub(super) fn is_over(&self, target_is_idle: bool) -> bool {
        let Some(link) = &self.link else {
            return true;
        };
        // The owner has ended the link: nothing more is returned.
        if !link.peer_has_left {
            return true;
        }
        // The records that the target has sent are still to be returned.
        let unread = || rustix::io::ioctl_fionread(&self.ends[1]).is_ok_and(|bytes| bytes > 0);
        let in_transit = |answers: &Running| {
            let status = answers.status();
            !status.ended && status.in_transit() > 0
        };
        let answers_end = (link.answers.as_ref()).is_none_or(|answers| answers.status().ended);
        answers_end || target_is_idle && !unread() && !link.answers.as_ref().is_some_and(in_transit)
    }

    /// Returns the time at which it has something to do by itself.
    pub(super) fn timer(&self, now: Duration) -> Option<Duration> {
        let progress = self.progress.filter(|_| self.active.is_some());
        let ends = !self.queue.is_empty() || self.active.is_some();
        let until = self.limits.until().filter(|_| ends && !self.is_expired);
        let unlinks = self.link.is_some() && self.is_closed && self.is_idle();
        let unlink = unlinks.then(|| now.saturating_add(UNLINK));
        let progress = progress.map(|(_, next)| next);
        progress.into_iter().chain(until).chain(unlink).min()
    }

    /// Reads what has arrived, carries it out, and sends the records.
    pub(super) fn advance(&mut self, now: Duration) {
        if self.limits.is_over(now) && !std::mem::replace(&mut self.is_expired, true) {
            self.cancel();
        }
        if let Some((every, next)) = self.progress
            && self.active.is_some()
            && now >= next
        {
            self.progress = Some((every, now.saturating_add(every)));
            self.report_progress();
        }
        loop {
            self.output.send(self.socket.as_fd());
            let read = self.read();
            let before = (self.commands.room(), self.queue.len(), self.transfers);
            self.carry_out(now);
            let after = (self.commands.room(), self.queue.len(), self.transfers);
            if !read && before == after {
                break;
            }
        }
        self.output.send(self.socket.as_fd());
    }

    /// Reads commands, as far as there is room. Returns whether anything has arrived.
    fn read(&mut self) -> bool {
        let room = self.commands.room();
        if self.is_closed || room == 0 {
            return false;
        }
        let mut bytes = [0; Commands::ROOM];
        match recv(&self.socket, &mut bytes[..room], RecvFlags::DONTWAIT) {
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
            if self.queue.len() >= QUEUE || self.output.is_full() {
                return;
            }
            match self.commands.next() {
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
                None if self.is_closed => return self.end_input(),
                None => return,
            }
        }
    }

    fn refuse(&mut self, command: Command, errno: Errno) {
        let mut bytes = Vec::new();
        command.encode(&mut bytes);
        let word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        self.output.put(&Record::Refused { word, errno });
    }

    /// Whether a cancellation has arrived behind commands that cannot be carried out
    /// yet, and no limit before it that might forbid it.
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
                (self.control).set_schedule(Schedule::blocks(count, millis(rest)));
            }
            Command::Rate(rate) => self.control.set_schedule(Schedule::rate(rate)),
            Command::Pause => self.control.pause(),
            Command::Resume => self.control.resume(),
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
            Command::Limit(limit) => self.limits.tighten(limit, now),
        }
        Ok(())
    }

    /// Limits the schedules. No schedule at all is not a limit.
    fn limit(&self, schedule: Schedule) -> Result<(), Errno> {
        if schedule == Schedule::Unlimited {
            return Err(Errno::EINVAL);
        }
        let block = self.block.map_or(Schedule::BLOCK, |n| n.get() as u64);
        self.control.limit_schedule(schedule, block);
        Ok(())
    }

    fn enqueue(&mut self, size: Size) -> Result<(), Errno> {
        let (size, reserved) = self.limits.reserve(size)?;
        self.queue.push_back(Job {
            size,
            source_offset: self.source_offset.take(),
            sink_offset: self.sink_offset.take(),
            block: self.block,
            reserved,
        });
        Ok(())
    }

    /// Ends the running transfer, and those that wait.
    fn cancel(&mut self) {
        if let Some(active) = &mut self.active {
            active.cancel();
        }
        while let Some(job) = self.queue.pop_front() {
            self.skip(job, Ended::Cancelled, None);
        }
    }

    /// Reports a transfer that has not begun.
    fn skip(&mut self, job: Job, ended: Ended, failed: Option<(Side, Errno)>) {
        self.limits.release(job.reserved, 0);
        self.transfers = self.transfers.wrapping_add(1);
        let mut report = Report::nothing(failed.map(|f| f.0), failed.map(|f| f.1));
        report.ended = ended;
        let done = Done::of(self.transfers, &report);
        self.output.put(&Record::Done(done));
    }

    fn start_next(&mut self) {
        while self.active.is_none()
            && !self.output.is_full()
            && let Some(job) = self.queue.pop_front()
        {
            match self.admit(job) {
                Ok(job) => {
                    self.transfers = self.transfers.wrapping_add(1);
                    self.moved = Moved::default();
                    self.output.put(&Record::Started(self.transfers));
                    self.answer();
                    self.begin(job, self.transfers, 0);
                }
                Err(errno) => self.skip(job, Ended::Error, Some((Side::Source, errno))),
            }
        }
    }

    /// Resolves the offsets of a transfer, and checks that it stays in its range.
    fn admit(&mut self, mut job: Job) -> Result<Job, Errno> {
        job.source_offset = job.source_offset.or(self.source_place);
        job.sink_offset = job.sink_offset.or(self.sink_place);
        if self.limits.range().is_some() && job.source_offset.is_none() {
            job.source_offset = rustix::fs::tell(&self.ends[0]).ok();
        }
        job.size = self.limits.within_range(job.source_offset, job.size)?;
        self.source_place = job.source_offset;
        self.sink_place = job.sink_offset;
        Ok(job)
    }

    /// Starts the transfer, or one that first writes what an earlier one has left.
    fn begin(&mut self, job: Job, number: u32, rest: u64) {
        let is_rest = !self.rest.is_empty();
        let started = self.transfer(&job).and_then(Transfer::start);
        match started {
            Ok(running) => {
                let (registry, id) = (Arc::clone(&self.registry), self.id);
                running.on_end(move |_| registry.send(Message::Ended(id)));
                self.active = Some(Active {
                    running,
                    number,
                    job,
                    is_rest,
                    rest,
                    is_cancelled: false,
                });
            }
            Err(failure) => self.finish(job, number, *failure.report, rest),
        }
    }

    fn transfer(&self, job: &Job) -> Result<Transfer<'static>, Failure> {
        let copy = |fd: BorrowedFd<'_>, side| {
            duplicate(fd).map_err(|errno| Failure::refused(Refusal::Unusable { side, errno }))
        };
        let sink = copy(self.ends[1].as_fd(), Side::Sink)?;
        if let Some(rest) = self.rest.front() {
            let request = Request {
                sink_offset: self.sink_place,
                ..Request::default()
            };
            let transfer = Transfer::owning(copy(rest.as_fd(), Side::Source)?, sink, request)?;
            return Ok(transfer.control(&self.control));
        }
        let request = Request {
            size: job.size,
            source_offset: self.source_place,
            sink_offset: self.sink_place,
            block: job.block,
            ..Request::default()
        };
        let source = copy(self.ends[0].as_fd(), Side::Source)?;
        Ok(Transfer::owning(source, sink, request)?.control(&self.control))
    }

    /// The running transfer has ended.
    pub(super) fn ended(&mut self) {
        let Some(active) = self.active.take() else {
            return;
        };
        let Active {
            running,
            number,
            job,
            is_rest,
            mut rest,
            is_cancelled,
        } = active;
        let outcome = running.wait();
        let mut report = outcome.report;
        if let Some(place) = &mut self.sink_place {
            *place += report.written;
        }
        if is_rest {
            rest += report.written;
            if report.ended == Ended::Eof {
                self.rest.pop_front();
            }
            stranded::keep(&mut self.rest, outcome.stranded);
            (report.read, report.written) = (0, 0);
            if report.ended != Ended::Eof {
                return self.finish(job, number, report, rest);
            }
            if is_cancelled {
                report.ended = Ended::Cancelled;
                return self.finish(job, number, report, rest);
            }
            return self.begin(job, number, rest);
        }
        stranded::keep(&mut self.rest, outcome.stranded);
        if let Some(place) = &mut self.source_place {
            *place += report.read;
        }
        self.finish(job, number, report, rest);
    }

    fn finish(&mut self, job: Job, number: u32, mut report: Report, rest: u64) {
        self.limits.release(job.reserved, report.read);
        report.written += rest;
        self.moved = Moved {
            read: report.read,
            written: report.written,
            elapsed: report.elapsed,
        };
        if let Some(link) = &mut self.link {
            link.peer_has_left = report.ended == Ended::Eof;
        }
        let done = Done::of(number, &report);
        self.output.put(&Record::Done(done));
    }

    /// Starts to return the records of the descriptor that is the sink.
    fn answer(&mut self) {
        let Some(link) = &mut self.link else {
            return;
        };
        if link.answers.is_none() {
            let [source, sink] = &self.ends;
            let request = Request::default();
            link.answers = crate::engine::start(sink, source, request).ok();
        }
    }

    /// No more commands come. What ends by itself is carried out: a transfer with a
    /// size, from a file, or of a peer's commands. Others are cancelled.
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
        // No command could resume it.
        let is_paused = self.control.is_paused();
        let ends = self.source_ends || self.link.is_some();
        let stays = |job: &Job| !is_paused && (ends || job.size != Size::Eof);
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
            let status = active.running.status();
            let (read, written) = match active.is_rest {
                true => (0, active.rest + status.written),
                false => (status.read, active.rest + status.written),
            };
            let elapsed = status.elapsed;
            (
                status.path,
                Moved {
                    read,
                    written,
                    elapsed,
                },
            )
        });
        let moved = now.map_or(self.moved, |(_, moved)| moved);
        Status {
            state: match (self.control.is_paused(), &self.active) {
                (true, _) => State::Paused,
                (false, Some(_)) => State::Running,
                (false, None) => State::Idle,
            },
            transfer: (self.active.as_ref()).map_or(self.transfers, |active| active.number),
            queued: u32::try_from(self.queue.len()).unwrap_or(u32::MAX),
            path: now.map(|(path, _)| path),
            read: moved.read,
            written: moved.written,
            elapsed: moved.elapsed,
            schedule: self.control.schedule(),
            left_out,
            total: self
                .active
                .as_ref()
                .and_then(|active| match active.job.size {
                    Size::Bytes(bytes) => Some(bytes),
                    Size::Eof => None,
                }),
        }
    }

    /// Closes nothing: the host has closed the descriptors, and their numbers may refer
    /// to other files.
    pub(super) fn forget(self) {
        let Stream {
            socket, ends, rest, ..
        } = self;
        std::mem::forget((socket, ends, rest));
    }
}

fn millis(millis: u32) -> Duration {
    Duration::from_millis(u64::from(millis))
}
