//! What moves the bytes of a data connection: a control descriptor, or a transfer with a stage.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use cordboard::cue::{Command, Record, Records};
use cordboard::{Control, Cue, Errno, Request, Running, Schedule, Stage, Transfer};
use rustix::net::{RecvFlags, Shutdown, shutdown};

use crate::output::errno_of;
use crate::socket_calls;
use crate::steering::control;

/// The number of requests of the status that follow each other at once, and the pause before each
/// further one.
const AT_ONCE: u32 = 16;
const PAUSE: Duration = Duration::from_millis(1);
/// The most of these pauses at once.
const LONGEST: u32 = 100;

/// Removes the old content of the sink. It is called once the transfer can no longer be refused,
/// such as for lack of a descriptor, and before its first byte. It closes its descriptor: see
/// [`cue_of`].
pub type Truncate<'a> = Box<dyn FnOnce() -> io::Result<()> + 'a>;

/// The transfer that moves the bytes.
pub enum Mover {
    /// A control descriptor, and the records that have arrived.
    Cue(Cue, Records),
    /// A stage changes the bytes.
    Staged(Running, Control),
}

impl Mover {
    /// Starts the transfer, and truncates the sink.
    pub fn new(
        source: OwnedFd,
        sink: OwnedFd,
        stage: Option<Stage>,
        (rate, interval): (u64, Duration),
        truncate: Option<Truncate<'_>>,
    ) -> Result<Mover, Errno> {
        let Some(stage) = stage else {
            let cue = cue_of(source, sink)?;
            if rate > 0 {
                cue.send(Command::Rate(rate))?;
            }
            let progress = Command::Progress(interval.as_millis() as u32);
            let Some(truncate) = truncate else {
                cue.send(progress)?;
                cue.send(Command::WriteToEnd)?;
                return Ok(Mover::Cue(cue, Records::default()));
            };
            cue.send(Command::Pause)?;
            cue.send(Command::WriteToEnd)?;
            let mut records = Records::default();
            if let Err(errno) = wait_for_start(&cue, &mut records).and_then(|()| done(truncate)) {
                end(cue, records);
                return Err(errno);
            }
            cue.send(progress)?;
            cue.send(Command::Resume)?;
            return Ok(Mover::Cue(cue, records));
        };
        let errno = |failure: &cordboard::Failure| failure.report.errno.unwrap_or(Errno::EINVAL);
        let control = Control::new()?;
        control.set_schedule(Schedule::rate(rate));
        let transfer = Transfer::owning(source, sink, Request::default()).map_err(|f| errno(&f))?;
        let transfer = transfer.stage(stage).map_err(|f| errno(&f))?;
        if truncate.is_some() {
            control.pause();
        }
        let running = transfer.control(&control).start().map_err(|f| errno(&f))?;
        if let Err(errno) = truncate.map_or(Ok(()), done) {
            running.cancel();
            running.wait();
            return Err(errno);
        }
        control.resume();
        Ok(Mover::Staged(running, control))
    }

    /// Returns the descriptor to poll for reports.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Mover::Cue(cue, _) => Some(cue.as_fd()),
            Mover::Staged(running, _) => running.fd().ok(),
        }
    }

    /// Requests a report. Returns whether one will arrive: the count of a transfer with a stage
    /// is read at each event. If the request fails, the next report of the progress answers it.
    pub fn request_status(&self) -> bool {
        match self {
            Mover::Cue(cue, _) => {
                let _ = cue.send(Command::Status);
                true
            }
            Mover::Staged(..) => false,
        }
    }

    pub fn cancel(&self) {
        let _ = self.steer(Command::Cancel);
    }

    /// Carries out a command of a steering client.
    pub fn steer(&self, command: Command) -> Result<(), Errno> {
        match (self, command) {
            (Mover::Cue(cue, _), command) => cue.send(command),
            (Mover::Staged(running, _), Command::Cancel) => {
                running.cancel();
                Ok(())
            }
            (Mover::Staged(_, control), command) => {
                control::apply(control, Schedule::BLOCK, command)
            }
        }
    }

    /// Sets the interval at which the cue reports its progress, and requests a report.
    pub fn report_every(&self, interval: Duration) {
        if let Mover::Cue(cue, _) = self {
            let sent = cue.send(Command::Progress(interval.as_millis() as u32));
            let _ = sent.and_then(|()| cue.send(Command::Status));
        }
    }
}

/// Creates a cue, which uses duplicates, and closes both descriptors before a command is sent. Some
/// file systems report an error once, at the first close(2) after a write: it must be that of the
/// service.
pub fn cue_of(source: OwnedFd, sink: OwnedFd) -> Result<Cue, Errno> {
    Cue::new(&source, &sink)
}

fn done(truncate: Truncate<'_>) -> Result<(), Errno> {
    truncate().map_err(|error| errno_of(&error))
}

/// Waits until the commanded transfer runs, paused. The record *started* comes before it is
/// started: only a status with its path shows that it was not refused. Another thread may start it
/// meanwhile.
fn wait_for_start(cue: &Cue, records: &mut Records) -> Result<(), Errno> {
    for requests in 0_u32.. {
        if requests >= AT_ONCE {
            // All threads that start transfers may wait for a file server.
            std::thread::sleep(PAUSE * (requests - AT_ONCE + 1).min(LONGEST));
        }
        cue.send(Command::Status)?;
        loop {
            match records.next() {
                Some(Record::Status(status)) if status.path.is_some() => return Ok(()),
                Some(Record::Status(_)) => break,
                Some(Record::Done(done)) => return Err(done.errno.unwrap_or(Errno::EIO)),
                Some(Record::Refused { errno, .. }) => return Err(errno),
                Some(_) => {}
                None => {
                    if let Received::End = receive(cue, records, RecvFlags::empty()) {
                        return Err(Errno::EPIPE);
                    }
                }
            }
        }
    }
    Ok(())
}

pub enum Received {
    Bytes,
    Nothing,
    End,
}

pub fn receive(cue: &Cue, records: &mut Records, flags: RecvFlags) -> Received {
    let mut bytes = [0; 1024];
    match socket_calls::recv(cue, &mut bytes, flags) {
        Ok((n @ 1.., _)) => {
            records.push(&bytes[..n]);
            Received::Bytes
        }
        Err(rustix::io::Errno::AGAIN) => Received::Nothing,
        Err(rustix::io::Errno::INTR) => Received::Bytes,
        Ok(_) | Err(_) => Received::End,
    }
}

/// Waits until the service has closed the file.
pub fn end(cue: Cue, mut records: Records) {
    let _ = shutdown(&cue, Shutdown::Write);
    while !matches!(
        receive(&cue, &mut records, RecvFlags::empty()),
        Received::End
    ) {
        while records.next().is_some() {}
    }
}
