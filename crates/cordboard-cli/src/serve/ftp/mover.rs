//! What moves the bytes of a data connection: a control descriptor, or a transfer with a stage.

use std::os::fd::OwnedFd;
use std::time::Duration;

use cordboard::cue::{Command, Records};
use cordboard::{Control, Cue, Errno, Request, Running, Schedule, Stage, Transfer};

use crate::steering::control;

/// The transfer that moves the bytes.
pub enum Mover {
    /// A control descriptor, and the records that have arrived.
    Cue(Cue, Records),
    /// A stage changes the bytes.
    Staged(Running, Control),
}

impl Mover {
    pub fn new(
        source: OwnedFd,
        sink: OwnedFd,
        stage: Option<Stage>,
        rate: u64,
        interval: Duration,
    ) -> Result<Mover, Errno> {
        let Some(stage) = stage else {
            let cue = cue_of(source, sink)?;
            if rate > 0 {
                cue.send(Command::Rate(rate))?;
            }
            cue.send(Command::Progress(interval.as_millis() as u32))?;
            cue.send(Command::WriteToEnd)?;
            return Ok(Mover::Cue(cue, Records::default()));
        };
        let errno = |failure: &cordboard::Failure| failure.report.errno.unwrap_or(Errno::EINVAL);
        let control = Control::new()?;
        control.set_schedule(Schedule::rate(rate));
        let transfer = Transfer::owning(source, sink, Request::default()).map_err(|f| errno(&f))?;
        let transfer = transfer.stage(stage).map_err(|f| errno(&f))?;
        let running = transfer.control(&control).start().map_err(|f| errno(&f))?;
        Ok(Mover::Staged(running, control))
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
            (Mover::Staged(_, control), command) => control::apply(control, command),
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
