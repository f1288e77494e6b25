//! Carries out the commands of a connection.

use std::num::NonZeroUsize;
use std::time::Duration;

use super::job::Job;
use super::{Port, Stream};
use crate::cue::protocol::{Command, Limit, Record};
use crate::errno::Errno;
use crate::report::Ended;
use crate::request::{Schedule, Size};

/// The maximum number of waiting transfers. Further commands stay unread until a transfer
/// has started.
const QUEUE: usize = 32;
/// The shortest interval of reports of progress.
const SHORTEST: Duration = Duration::from_millis(10);

impl Stream {
    pub(super) fn carry_out(&mut self, at: usize, now: Duration) {
        loop {
            self.start_next();
            if self.ports[at].output.is_full() {
                return;
            }
            if self.is_held(at) && self.cancel_is_ahead(at) {
                self.ports[at].has_cancelled = true;
                self.cancel();
                continue;
            }
            let next = match self.is_held(at) {
                true => {
                    let ahead = self.ports[at].commands.take_ahead();
                    ahead.map(|(word, command)| (word, Ok(command)))
                }
                false => self.ports[at].commands.next_with_word(),
            };
            match next {
                Some((word, found)) => {
                    let done = found.map_err(|_| Errno::EINVAL).and_then(|command| {
                        let port = &mut self.ports[at];
                        if command == Command::Cancel && std::mem::take(&mut port.has_cancelled) {
                            return Ok(());
                        }
                        self.limits.check(command, self.ports[at].mask, now)?;
                        self.execute(at, command, now)
                    });
                    if let Err(errno) = done {
                        let refused = Record::Refused { word, errno };
                        self.ports[at].output.put(&refused);
                    }
                }
                None if self.is_held(at) => {
                    // No command can come that resumes or cancels.
                    if self.ports.iter().all(Port::is_stuck) {
                        self.cancel_endless();
                    }
                    if self.is_held(at) {
                        return;
                    }
                }
                None if self.ports[at].is_closed => return self.end_input(at),
                None => return,
            }
        }
    }

    /// Returns whether the next command starts a transfer, which has no room in the queue.
    fn is_held(&self, at: usize) -> bool {
        let port = &self.ports[at];
        let next = port.commands.peek(0);
        let starts = matches!(next, Some((Ok(Command::Write(_) | Command::WriteToEnd), _)));
        starts && self.queue.len() >= QUEUE && !port.has_cancelled
    }

    /// Returns whether an allowed cancellation has arrived after commands that cannot be
    /// carried out yet, without a limit of commands before it, which might forbid it.
    fn cancel_is_ahead(&self, port: usize) -> bool {
        let mut at = 0;
        while let Some((command, length)) = self.ports[port].commands.peek(at) {
            match command {
                Ok(Command::Cancel) => {
                    let mask = self.ports[port].mask;
                    let allowed = self.limits.check(Command::Cancel, mask, Duration::ZERO);
                    return allowed.is_ok();
                }
                Ok(Command::Limit(Limit::Commands(_))) => return false,
                _ => at += length,
            }
        }
        false
    }

    fn execute(&mut self, at: usize, command: Command, now: Duration) -> Result<(), Errno> {
        let port = &mut self.ports[at];
        match command {
            Command::Write(bytes) => self.enqueue(at, Size::Bytes(bytes))?,
            Command::WriteToEnd => self.enqueue(at, Size::Eof)?,
            Command::SourceOffset(offset) => port.source_offset = Some(offset),
            Command::SinkOffset(offset) => port.sink_offset = Some(offset),
            Command::Block(bytes) => port.block = NonZeroUsize::new(bytes as usize),
            Command::Schedule { count, rest } => {
                (self.held.control).set_schedule(Schedule::blocks(count, millis(rest)));
            }
            Command::Auto(aim) => self.held.control.set_schedule(Schedule::Auto(aim)),
            Command::Rate(rate) => self.held.control.set_schedule(Schedule::rate(rate)),
            Command::Pause => self.held.control.pause(),
            Command::Resume => self.held.control.resume(),
            Command::Cancel => self.cancel(),
            Command::Status => {
                let left_out = port.output.take_left_out();
                let status = Record::Status(self.status(left_out));
                self.ports[at].output.put(&status);
            }
            Command::Progress(0) => port.progress = None,
            Command::Progress(every) => {
                let every = millis(every).max(SHORTEST);
                port.progress = Some((every, now.saturating_add(every)));
            }
            Command::Limit(Limit::Rate(rate)) => self.limit(at, Schedule::rate(rate))?,
            Command::Limit(Limit::Schedule { count, rest }) => {
                self.limit(at, Schedule::blocks(count, millis(rest)))?;
            }
            // Otherwise the peer of a link could lock out the owner.
            Command::Limit(Limit::Commands(allowed)) if port.number != 0 => {
                port.mask.tighten(allowed);
            }
            Command::Limit(limit) => self.tighten(limit, now),
        }
        Ok(())
    }

    /// Limits the schedules. `EINVAL`: no schedule is not a limit.
    fn limit(&self, at: usize, schedule: Schedule) -> Result<(), Errno> {
        if schedule == Schedule::Unlimited {
            return Err(Errno::EINVAL);
        }
        let block = self.ports[at]
            .block
            .map_or(Schedule::BLOCK, |n| n.get() as u64);
        self.held.control.limit_schedule(schedule, block);
        Ok(())
    }

    /// Returns whether no more commands arrive on any connection.
    fn is_abandoned(&self) -> bool {
        self.ports.iter().all(|port| port.is_gone())
    }

    /// Handles the end of the commands of a connection. After that of the last one, transfers
    /// that end by themselves are carried out: those with a size, those from a file, and those
    /// of a link. All others are cancelled.
    fn end_input(&mut self, at: usize) {
        let port = &mut self.ports[at];
        if let Some(word) = port.commands.take_incomplete() {
            let errno = Errno::ENODATA;
            port.output.put(&Record::Refused { word, errno });
        }
        if self.is_abandoned() {
            self.cancel_endless();
        }
    }

    /// Cancels the transfers that do not end by themselves, and all if they are paused.
    fn cancel_endless(&mut self) {
        // No command could resume it.
        let is_paused = self.held.control.is_paused();
        let ends = self.source_ends || self.link.is_some();
        // A limit of bytes gives one to the end a size, which a silent source does not reach.
        let stays = |job: &Job| !is_paused && (ends || job.commanded != Size::Eof);
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
}

pub(super) fn millis(millis: u32) -> Duration {
    Duration::from_millis(u64::from(millis))
}
