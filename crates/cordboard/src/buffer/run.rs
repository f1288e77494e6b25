//! The loop of a buffered transfer, on the caller's thread.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::pipe::{SpliceFlags, splice};

use super::end::{self, Drained, Taken};
use super::outcome::BufferedOutcome;
use super::store::{Files, Store};
use crate::compose::{
    Channel, Drain, Halt, Intake, RETRY, Waiter, Wake, content, longest, refusal,
};
use crate::endpoint::{Endpoint, Side};
use crate::errno::Errno;
use crate::plan;
use crate::report::{Ended, Refusal};
use crate::request::{DataPath, Request, Schedule};
use crate::sys::{SignalGuard, again};
use crate::transfer::{Control, Observer};

/// The limits of the size of a file.
const SHORTEST: u64 = 1 << 20;
const LONGEST: u64 = 64 << 20;
/// The number of bytes that are forwarded before the source is read again: as much as a pipe
/// holds.
const AT_ONCE: usize = 1 << 20;

/// A buffered transfer that was examined.
pub(super) struct Parts<'a> {
    pub(super) source: Endpoint<'a>,
    pub(super) sink: Endpoint<'a>,
    pub(super) size: u64,
    pub(super) request: Request,
    pub(super) control: Option<Control>,
    pub(super) intake: Schedule,
    pub(super) observer: Option<Box<dyn Observer + Send + 'a>>,
}

/// Runs a buffered transfer to its end.
pub(super) fn run(
    parts: Parts<'_>,
    files: Files,
    waiter: &mut dyn Waiter,
) -> Result<BufferedOutcome, Refusal> {
    let no_descriptor = |errno| Refusal::NoDescriptor { errno };
    let by_splice = plan::switches(&parts.request)?.allows(DataPath::Splice);
    let length = (parts.size / 8).clamp(SHORTEST, LONGEST);
    let store = Store::new(files, length, by_splice);
    store
        .prepare()
        .map_err(|errno| Refusal::NoBuffer { errno })?;
    let first = Channel::new(false).map_err(no_descriptor)?;
    let second = Channel::new(false).map_err(no_descriptor)?;
    // No other thread has the handle, so this one needs no wakeup.
    let paced = (parts.intake != Schedule::Unlimited).then(|| {
        let control = Control::without_descriptor().interrupting();
        control.set_schedule(parts.intake);
        control
    });
    let intake = Intake::new(parts.source.fd(), &first, &parts.request, paced.as_ref())?;
    let wake = Wake::new();
    let drain = Drain::start(
        second.reader(),
        parts.sink.fd(),
        &parts.request,
        parts.control.as_ref(),
        parts.observer,
        Some(Arc::clone(&wake)),
        false,
    );
    let drain = drain.map_err(|failure| refusal(failure, Side::Sink))?;
    let guard = SignalGuard::start();
    let pump = Pump {
        first: First {
            channel: &first,
            held: 0,
            passes: by_splice,
        },
        second: &second,
        intake,
        store,
        drain,
        wake,
        size: parts.size,
        most: 0,
        written: 0,
        broken: None,
        wait_failed: None,
        until: None,
    };
    let (drain, taken) = pump.finish(waiter);
    let reader = second.close_writer();
    let drained = Drained {
        outcome: drain.finish(waiter, taken.outcome.report.read),
        second: content(&reader, false),
        first: content(&first.close_writer(), false),
    };
    let outcome = end::outcome(taken, drained, &parts.source, &parts.request, parts.size);
    drop(guard);
    Ok(outcome)
}

/// The first pipe.
struct First<'a> {
    channel: &'a Channel,
    /// The number of bytes in it.
    held: usize,
    /// Pages may be spliced from pipe to pipe.
    passes: bool,
}

impl First<'_> {
    /// Moves bytes into the second pipe, those of the store before those of the first pipe.
    /// Returns whether it is full, and whether bytes have moved. Moves a limited number of bytes:
    /// the sink may empty the pipe meanwhile, faster than the store is read, and the source is
    /// not read by then.
    fn forward(&mut self, store: &mut Store, into: BorrowedFd<'_>) -> Result<(bool, bool), Errno> {
        let mut moved = 0;
        while moved < AT_ONCE {
            let done = if !store.is_empty() {
                store.take(into)
            } else if self.held == 0 {
                break;
            } else if self.passes {
                self.pass(into)
            } else {
                self.copy(store)
            };
            match done {
                Ok(n) => moved += n,
                Err(Errno::EAGAIN) => return Ok((true, moved > 0)),
                Err(errno) => return Err(errno),
            }
        }
        Ok((false, moved > 0))
    }

    /// Splices pages to the second pipe.
    fn pass(&mut self, into: BorrowedFd<'_>) -> Result<usize, Errno> {
        let (from, flags) = (self.channel.reader(), SpliceFlags::NONBLOCK);
        match again(|| splice(from, None, into, None, self.held, flags)).map_err(Errno::from) {
            Ok(n) => {
                self.held -= n;
                Ok(n)
            }
            // A filter refuses the call: the kernel returns no `EINVAL` for two pipes.
            Err(errno) if errno.is_refusal_or_invalid() => {
                self.passes = false;
                Ok(0)
            }
            Err(errno) => Err(errno),
        }
    }

    /// Reads bytes, which are next for the second pipe.
    fn copy(&mut self, store: &mut Store) -> Result<usize, Errno> {
        let n = store.copy(self.channel.reader(), self.held)?;
        self.held -= n;
        Ok(n)
    }
}

/// A running buffered transfer.
struct Pump<'a, 'o> {
    first: First<'a>,
    second: &'a Channel,
    intake: Intake<'a>,
    store: Store,
    drain: Drain<'o>,
    wake: Arc<Wake>,
    size: u64,
    most: u64,
    /// Bytes that the sink has accepted.
    written: u64,
    /// A page of the store cannot be read.
    broken: Option<Errno>,
    wait_failed: Option<Errno>,
    /// The time at which the wait for the source times out.
    until: Option<Duration>,
}

impl<'o> Pump<'_, 'o> {
    fn finish(mut self, waiter: &mut dyn Waiter) -> (Drain<'o>, Taken) {
        self.run(waiter);
        self.stop();
        let failed = self.store.failed.or(self.broken);
        let taken = Taken {
            outcome: self.intake.into_outcome(),
            failed: failed.or(self.wait_failed),
            wait_failed: failed.is_none() && self.wait_failed.is_some(),
            store: self.store,
            most: self.most,
        };
        (self.drain, taken)
    }

    fn run(&mut self, waiter: &mut dyn Waiter) {
        loop {
            if self.drain.status().ended {
                return;
            }
            self.written = self.drain.written();
            self.drain.observe(self.intake.read());
            let (full, forwarded) = match self.first.forward(&mut self.store, self.second.writer())
            {
                Ok(done) => done,
                Err(errno) => {
                    self.broken = Some(errno);
                    return;
                }
            };
            let moved = self.take_in() | self.keep(full) | forwarded;
            if self.store.failed.is_some() {
                // The first pipe may be smaller than the bytes that were read.
                self.intake.close();
                self.first.held += self.intake.arrived() as usize;
            }
            if self.intake.has_ended() && self.first.held == 0 && self.store.is_empty() {
                return;
            }
            if !moved && let Err(errno) = self.wait(waiter, full) {
                self.wait_failed = Some(errno);
                return;
            }
        }
    }

    /// Returns the number of bytes that may be taken from the source.
    fn room(&self) -> u64 {
        let level = self.intake.read().saturating_sub(self.written);
        self.size.saturating_sub(level)
    }

    /// Takes bytes from the source into the first pipe. Returns whether bytes have moved, or
    /// others are next.
    fn take_in(&mut self) -> bool {
        if self.intake.halt() == Halt::Channel && self.first.held == 0 {
            self.intake.resume(PollFlags::OUT);
        }
        self.intake.grant(self.room());
        let before = self.intake.read();
        self.intake.advance();
        let arrived = self.intake.arrived();
        self.first.held += arrived as usize;
        let level = self.intake.read().saturating_sub(self.written);
        self.most = self.most.max(level);
        arrived > 0 || self.intake.read() != before || self.intake.halt() == Halt::Yield
    }

    /// Moves bytes for which the second pipe has no room into the store. Returns whether
    /// bytes have moved.
    fn keep(&mut self, full: bool) -> bool {
        let mut moved = false;
        while self.first.held > 0 && (full || !self.store.is_empty()) {
            match self
                .store
                .fill(self.first.channel.reader(), self.first.held)
            {
                0 => break,
                n => self.first.held -= n,
            }
            moved = true;
        }
        moved
    }

    /// Stops reading the source.
    fn stop(&mut self) {
        // The sink may have failed before a call has found the end of the source.
        self.intake.look_for_the_end();
        if !self.intake.has_ended() {
            self.intake.stop(Ended::Cancelled);
        }
        self.first.held += self.intake.arrived() as usize;
    }

    /// Waits until the source has bytes, the sink has accepted bytes, or a timeout
    /// expires.
    fn wait(&mut self, waiter: &mut dyn Waiter, full: bool) -> Result<(), Errno> {
        let now = waiter.now();
        self.intake.prepare_wait();
        self.drain.source_rests(self.intake.awaits_grant());
        let (mut fds, mut timeout) = (Vec::with_capacity(4), None);
        if full {
            let fd = self.second.writer();
            fds.push(PollFd::from_borrowed_fd(fd, PollFlags::OUT));
        }
        let source = match (self.intake.halt(), self.intake.wait()) {
            (Halt::Source, Some((wait, fd))) => {
                let longest = longest(&wait, fd.is_some());
                self.until = self.until.or(longest.map(|time| now.saturating_add(time)));
                timeout = self.until.map(|until| until.saturating_sub(now));
                fd.map(|fd| {
                    fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
                    fds.len() - 1
                })
            }
            _ => None,
        };
        let halt = self.intake.halt();
        if halt == Halt::Channel {
            timeout = Some(RETRY);
        }
        if halt == Halt::Turn {
            if !self.wake.request(self.written) {
                return Ok(());
            }
            timeout = self.wake.add_to(&mut fds, timeout);
        }
        self.drain.wait(waiter, &mut fds, timeout)?;
        let shown = source.map(|at| fds[at].revents());
        drop(fds);
        if halt == Halt::Turn {
            self.wake.clear();
        }
        if halt == Halt::Source {
            let shown = shown.unwrap_or(PollFlags::empty());
            let is_over = self.until.is_some_and(|until| until <= waiter.now());
            if !shown.is_empty() || is_over {
                self.intake.resume(shown);
                self.until = None;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    /// The sink empties the second pipe before each call that fills it.
    #[test]
    fn a_backlog_is_forwarded_in_pieces() {
        const BACKLOG: usize = 8 << 20;
        let name = "a_backlog_is_forwarded_in_pieces";
        if testkit::needs::missing(name, &[testkit::needs::Need::Splice]) {
            return;
        }
        let mut store = Store::new(Files::Memory, LONGEST, true);
        let (from, mut feed) = std::io::pipe().unwrap();
        for _ in 0..BACKLOG / (32 << 10) {
            std::io::Write::write_all(&mut feed, &[1; 32 << 10]).unwrap();
            assert_eq!(store.fill(from.as_fd(), 32 << 10), 32 << 10);
        }
        let (first, second) = (Channel::new(false).unwrap(), Channel::new(false).unwrap());
        let mut pipe = First {
            channel: &first,
            held: 0,
            passes: true,
        };
        let mut done = None;
        let body = || done = Some(pipe.forward(&mut store, second.writer()));
        let mut drained = 0;
        let mut bytes = vec![0; AT_ONCE];
        let calls = testkit::midst::at_each(&[libc::SYS_splice], body, || {
            while let Ok(n @ 1..) = rustix::io::read(second.reader(), &mut bytes) {
                drained += n;
            }
        });
        if calls.is_none() {
            return testkit::skip::report(name, "no seccomp_unotify(2) here");
        }
        assert_eq!(done, Some(Ok((false, true))));
        assert!(drained < 2 * AT_ONCE, "{drained} of {BACKLOG} bytes");
        assert!(!store.is_empty());
    }
}
