//! The transfers of a control descriptor: how they begin, follow each other and end.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use super::Stream;
use super::job::{Active, Job, Moved, Starting};
use crate::cue::limits::Reserved;
use crate::cue::protocol::{Done, Record};
use crate::cue::registry::Message;
use crate::endpoint::Side;
use crate::errno::Errno;
use crate::report::{Ended, Failure, Refusal, Report};
use crate::request::{Request, Size};
use crate::sys::{self, Lock};
use crate::threads;
use crate::transfer::Transfer;

/// Starts a transfer.
type Start = Box<dyn FnOnce() -> Result<(), Failure> + Send>;

impl Stream {
    pub(super) fn enqueue(&mut self, at: usize, size: Size) -> Result<(), Errno> {
        let reserved = self.limits.reserve_early(size)?;
        self.transfers = self.transfers.wrapping_add(1);
        let port = &mut self.ports[at];
        let job = Job {
            number: self.transfers,
            port: port.number,
            commanded: size,
            size,
            source_offset: port.source_offset.take(),
            sink_offset: port.sink_offset.take(),
            block: port.block,
            reserved,
        };
        match port.has_cancelled {
            true => self.skip(job, Ended::Cancelled, None),
            false => self.queue.push_back(job),
        }
        Ok(())
    }

    /// Ends the running transfer, and those that wait.
    pub(super) fn cancel(&mut self) {
        if let Some(active) = &mut self.active {
            active.cancel();
        }
        while let Some(job) = self.queue.pop_front() {
            self.skip(job, Ended::Cancelled, None);
        }
    }

    /// Reports a transfer that has not begun.
    pub(super) fn skip(&mut self, job: Job, ended: Ended, failed: Option<(Side, Errno)>) {
        self.limits.release(job.reserved, 0);
        let mut report = Report::nothing(failed.map(|f| f.0), failed.map(|f| f.1));
        report.ended = ended;
        let done = Done::of(job.number, &report);
        self.put(job.port, &Record::Done(done));
        if self.active.is_none() {
            self.moved = Moved::of(job.number);
        }
    }

    pub(super) fn start_next(&mut self) {
        while self.active.is_none()
            && let Some(job) = self.queue.pop_front()
        {
            let job = match self.admit(job) {
                Ok(job) => job,
                Err((job, failed)) => {
                    self.skip(job, Ended::Error, Some(failed));
                    continue;
                }
            };
            self.put(job.port, &Record::Started(job.number));
            self.begin(job, Moved::of(job.number));
        }
    }

    /// Returns the transfer with its offsets, if it stays in its range. A link then returns
    /// the records of its target.
    fn admit(&mut self, mut job: Job) -> Result<Job, (Job, (Side, Errno))> {
        // Its records could not go back, or the queries before their transfer could wait.
        if self.link.is_some() && (self.source_ends || self.may_wait) {
            return Err((job, (Side::Source, Errno::EINVAL)));
        }
        if let Err(errno) = self.place(&mut job) {
            return Err((job, (Side::Source, errno)));
        }
        match &mut self.link {
            Some(link) => match link.answer(self.id, &self.held) {
                Ok(()) => Ok(job),
                Err(errno) => {
                    self.source_place = self.places_before[0];
                    Err((job, (Side::Source, errno)))
                }
            },
            None => Ok(job),
        }
    }

    /// Reserves the bytes of a transfer, resolves its source offset, and checks that it stays in
    /// its range. All transfers before it have ended and have returned bytes that they have not
    /// read.
    fn place(&mut self, job: &mut Job) -> Result<(), Errno> {
        self.limits.release(std::mem::take(&mut job.reserved), 0);
        let (size, reserved) = match self.limits.reserve(job.commanded) {
            // It reads nothing, and writes what an earlier transfer has left.
            Err(_) if job.commanded == Size::Eof && !self.held.rest.is_empty() => {
                (Size::Bytes(0), Reserved::default())
            }
            reserved => reserved?,
        };
        job.reserved = reserved;
        job.source_offset = job.source_offset.or(self.source_place);
        if self.limits.range().is_some() && job.source_offset.is_none() {
            job.source_offset = self.source_position();
        }
        // A transfer to the end is shortened by both limits.
        let in_range = self.limits.within_range(job.source_offset, job.commanded)?;
        job.size = shorter(size, in_range);
        self.places_before[0] = self.source_place;
        self.source_place = job.source_offset;
        Ok(())
    }

    /// Returns the position of the source; `None`: it has none, or procfs does not show it.
    fn source_position(&self) -> Option<u64> {
        let source = self.held.ends[0].as_fd();
        match self.source_ends {
            // `lseek(2)` could wait for the lock of the position.
            true => sys::position(source),
            false => rustix::fs::tell(source).ok(),
        }
    }

    /// Starts the transfer, or one that first writes what an earlier one has left.
    fn begin(&mut self, job: Job, before: Moved) {
        self.places_before[1] = self.sink_place;
        // The rest of an earlier transfer continues where that one has ended.
        if self.held.rest.is_empty() {
            self.sink_place = job.sink_offset.or(self.sink_place);
        }
        let shared = Arc::new(Lock::new(Starting::default()));
        let start = match self.prepare(&job, &shared) {
            Ok(start) => start,
            Err(failure) => return self.refused(job, *failure.report, before),
        };
        self.active = Some(Active {
            running: None,
            job,
            is_rest: !self.held.rest.is_empty(),
            before,
            start: shared,
            is_cancelled: false,
        });
        if !self.may_wait {
            return self.started(start());
        }
        let (registry, id) = (Arc::clone(&self.held.registry), self.id);
        let call = move || registry.send(Message::Started(id, Box::new(start())));
        threads::call(call);
    }

    /// Returns what starts the transfer. It queries the source and the sink, which may wait
    /// for the server of a file.
    fn prepare(&mut self, job: &Job, shared: &Arc<Lock<Starting>>) -> Result<Start, Failure> {
        let held = &mut *self.held;
        let sink = Transfer::copy_of(held.ends[1].as_fd(), Side::Sink)?;
        let refused = |errno| Failure::refused(Refusal::of_descriptor(Side::Source, errno));
        let rest = held.rest.open_front(job.block).map_err(refused)?;
        let source = rest.unwrap_or(held.ends[0].as_fd());
        let source = Transfer::copy_of(source, Side::Source)?;
        let environment = held.environment;
        let request = match rest {
            Some(_) => Request {
                sink_offset: self.sink_place,
                block: job.block,
                ..environment.request()
            },
            None => Request {
                size: job.size,
                source_offset: self.source_place,
                sink_offset: self.sink_place,
                block: job.block,
                ..environment.request()
            },
        };
        let (control, registry) = (held.control.clone(), Arc::clone(&held.registry));
        let shared = Arc::clone(shared);
        Ok(Box::new(move || {
            if !registry.has_descriptors() {
                // The host has closed these numbers, and may have files of its own there.
                std::mem::forget((source, sink));
                let (side, errno) = (Side::Source, Errno::EBADF);
                return Err(Failure::refused(Refusal::Unusable { side, errno }));
            }
            let backend = Some(environment.backend);
            let transfer = Transfer::owning_with(source, sink, request, backend)?;
            // A cancellation comes before the start, or finds the transfer.
            if let Some(mut starting) = shared.lock()
                && !starting.is_cancelled
            {
                starting.running = Some(transfer.control(&control).start()?);
            }
            Ok(())
        }))
    }

    /// The transfer was started, or refused.
    pub(in crate::cue) fn started(&mut self, result: Result<(), Failure>) {
        let Some(active) = &mut self.active else {
            return;
        };
        let running = active
            .start
            .lock()
            .and_then(|mut start| start.running.take());
        let (report, is_refused) = match (running, result) {
            (Some(running), _) => {
                let (registry, id) = (Arc::clone(&self.held.registry), self.id);
                running.on_end(move |_| registry.send(Message::Ended(id)));
                active.running = Some(running);
                return;
            }
            (None, Ok(())) => {
                let ended = Ended::Cancelled;
                let nothing = Report::nothing(None, None);
                (Report { ended, ..nothing }, false)
            }
            (None, Err(failure)) => (*failure.report, true),
        };
        let (job, before) = (active.job, active.before);
        self.active = None;
        match is_refused {
            true => self.refused(job, report, before),
            false => self.finish(job, report, before),
        }
    }

    /// The transfer was not started. Its offsets, which may be the reason, do not hold for the
    /// next one.
    fn refused(&mut self, job: Job, report: Report, before: Moved) {
        [self.source_place, self.sink_place] = self.places_before;
        self.finish(job, report, before);
    }

    /// All records of a link are returned.
    pub(in crate::cue) fn answered(&mut self) {
        if let Some(link) = &mut self.link {
            link.is_answered = true;
        }
    }

    /// The running transfer has ended.
    pub(in crate::cue) fn ended(&mut self, now: Duration) {
        let Some(Active {
            running: Some(running),
            job,
            is_rest,
            mut before,
            is_cancelled,
            ..
        }) = self.active.take()
        else {
            return;
        };
        let outcome = running.wait();
        let mut report = outcome.report;
        if let Some(place) = &mut self.sink_place {
            *place += report.written;
        }
        if is_rest {
            before.written += report.written;
            before.elapsed += report.elapsed;
            match outcome.stranded {
                _ if report.ended == Ended::Eof => self.held.rest.pop_front(),
                Some(_) => self.held.rest.close_front(),
                None => {}
            }
            self.held.rest.keep(outcome.stranded, self.has_messages);
            // An earlier transfer has reported its stranded bytes.
            (report.read, report.written, report.stranded) = (0, 0, 0);
            report.elapsed = Duration::ZERO;
            if report.ended != Ended::Eof {
                return self.finish(job, report, before);
            }
            // The limit of the time may have passed before the thread came to this.
            if is_cancelled || self.limits.is_over(now) {
                report.ended = Ended::Cancelled;
                return self.finish(job, report, before);
            }
            return self.begin(job, before);
        }
        self.held.rest.keep(outcome.stranded, self.has_messages);
        if let Some(place) = &mut self.source_place {
            *place += report.read;
        }
        self.finish(job, report, before);
    }

    fn finish(&mut self, job: Job, mut report: Report, before: Moved) {
        self.limits.release(job.reserved, report.read);
        report.written += before.written;
        report.elapsed += before.elapsed;
        self.moved = Moved {
            read: report.read,
            written: report.written,
            elapsed: report.elapsed,
            ..before
        };
        if let Some(link) = &mut self.link {
            link.is_intact = matches!(report.ended, Ended::Eof | Ended::Size);
        }
        let done = Done::of(job.number, &report);
        self.put(job.port, &Record::Done(done));
    }
}

fn shorter(one: Size, other: Size) -> Size {
    match (one, other) {
        (Size::Bytes(one), Size::Bytes(other)) => Size::Bytes(one.min(other)),
        (Size::Eof, size) | (size, Size::Eof) => size,
    }
}
