//! The waits of a fan-out.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};

use super::outlet::{Outlet, Target};
use super::run::{Running, half};
use crate::compose::{Halt, RETRY, Waiter, longest};
use crate::errno::Errno;
use crate::transfer::Control;

impl Running<'_> {
    /// Waits until a sink has room, the source has bytes, or a time has passed.
    pub(super) fn wait(&mut self, waiter: &mut dyn Waiter) -> Result<(), Errno> {
        if self
            .wake
            .as_ref()
            .is_some_and(|wake| !wake.request(self.accepted))
        {
            return Ok(());
        }
        self.intake.prepare_wait();
        let now = waiter.now();
        let mut timeouts = Vec::new();
        let held_back = self.is_held_back();
        if let Some(idle) = self.idle
            && !held_back
            && !self.is_over()
        {
            timeouts.push(self.last_progress.saturating_add(idle).saturating_sub(now));
        }
        let mut fds: Vec<PollFd<'_>> = Vec::with_capacity(self.outlets.len() + 2);
        for outlet in &self.outlets {
            let room = room(outlet).map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags));
            fds.extend(room);
            // The transfer may have ended since the last check. Without its descriptor, the
            // wait could have no descriptor, and never end.
            match outlet.running().map(|running| running.fd()) {
                Some(Ok(fd)) => fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN)),
                Some(Err(_)) => timeouts.push(RETRY),
                None => {}
            }
            if let Some(since) = outlet.waited_for {
                let left = self.patience.saturating_sub(outlet.debt);
                let left = left.min(half(self.patience));
                timeouts.push(since.saturating_add(left).saturating_sub(now));
            }
        }
        let control = self.control.as_ref();
        if let Some(control) = control {
            timeouts.extend(match control.is_paused() {
                true => control.pause_interval(),
                false => control.interval(),
            });
        }
        timeouts.extend(self.watcher.interval());
        // It stays readable after a cancellation, which has no effect if all is over.
        let is_over = self.is_over();
        let control = control.filter(|control| !(is_over && control.is_cancelled()));
        let wake = control.and_then(Control::wake_fd).map(|fd| {
            fds.push(PollFd::from_borrowed_fd(fd, PollFlags::IN));
            fds.len() - 1
        });
        let was_waiting = self.block.is_none() && self.advances();
        let waits = was_waiting.then(|| self.intake.wait());
        let source = waits.flatten().and_then(|(wait, fd)| {
            timeouts.extend(longest(&wait, fd.is_some()));
            let flags = match self.intake.halt() {
                Halt::Channel => PollFlags::OUT,
                _ => PollFlags::IN,
            };
            fds.push(PollFd::from_borrowed_fd(fd?, flags));
            Some(fds.len() - 1)
        });
        let mut timeout = timeouts.into_iter().min();
        if let Some(wake) = &self.wake {
            timeout = wake.add_to(&mut fds, timeout);
        }
        waiter.wait(&mut fds, timeout)?;
        let shown = |at: Option<usize>| at.map_or(PollFlags::empty(), |at| fds[at].revents());
        let (woken, read) = (!shown(wake).is_empty(), shown(source));
        drop(fds);
        if let Some(wake) = &self.wake {
            wake.clear();
        }
        if woken && let Some(control) = &mut self.control {
            control.clear_wake();
        }
        // The pause may have begun after the block was read, and ended before this wait.
        if was_waiting || self.intake.awaits_resume() && !self.is_paused() {
            self.intake.resume(read);
        }
        if held_back {
            self.last_progress = waiter.now();
        }
        self.find_closed_sinks(waiter)
    }

    /// Notices sinks that are pipes without a reader while nothing is written to them.
    fn find_closed_sinks(&mut self, waiter: &mut dyn Waiter) -> Result<(), Errno> {
        let closed: Vec<bool> = {
            let is_watched =
                |outlet: &Outlet<'_>| outlet.is_live() && matches!(outlet.target, Target::Sink);
            let mut fds: Vec<PollFd<'_>> = (self.outlets.iter())
                .filter(|outlet| is_watched(outlet))
                .map(|o| PollFd::from_borrowed_fd(o.writer(), PollFlags::empty()))
                .collect();
            if fds.is_empty() {
                return Ok(());
            }
            waiter.wait(&mut fds, Some(Duration::ZERO))?;
            let mut shown = fds.iter().map(|fd| fd.revents().contains(PollFlags::ERR));
            (self.outlets.iter())
                .map(|outlet| is_watched(outlet) && shown.next() == Some(true))
                .collect()
        };
        // A pipe's POLLERR: there is no reader (`pipe_poll`, fs/pipe.c).
        self.fail_unless_complete(&closed);
        Ok(())
    }

    /// Notices transfers to sinks that have ended too early.
    pub(super) fn find_lost_transfers(&mut self) {
        if !self.outlets.iter().any(Outlet::has_lost_transfer) {
            return;
        }
        let lost: Vec<bool> = self.outlets.iter().map(Outlet::has_lost_transfer).collect();
        self.fail_unless_complete(&lost);
    }

    /// Fails those of the sinks that lack bytes, or may get more. A sink that has every byte
    /// needs no reader.
    fn fail_unless_complete(&mut self, closed: &[bool]) {
        if closed.contains(&true) {
            self.intake.look_for_the_end();
        }
        let is_last = self.block.is_none() && self.intake.has_ended();
        for (outlet, closed) in self.outlets.iter_mut().zip(closed) {
            if *closed && !(is_last && outlet.has_all()) {
                // The account has the errno of a transfer instead.
                outlet.fail(Errno::EPIPE);
            }
        }
    }
}

/// Returns the descriptor to poll for room in a sink, or only for its errors.
fn room<'a>(outlet: &'a Outlet<'_>) -> Option<(BorrowedFd<'a>, PollFlags)> {
    let is_sink = matches!(outlet.target, Target::Sink);
    match (outlet.is_live(), outlet.is_ready()) {
        (true, false) => Some((outlet.writer(), PollFlags::OUT)),
        (true, true) if is_sink => Some((outlet.writer(), PollFlags::empty())),
        _ => None,
    }
}
