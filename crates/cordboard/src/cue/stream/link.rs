//! The other direction of a control descriptor whose sink is another one.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::net::{Shutdown, shutdown};

use crate::cue::registry::{Held, Message};
use crate::engine::Running;
use crate::errno::Errno;
use crate::transfer::Transfer;

/// A link: the records for its port of the target go back to the source.
pub(super) struct Link {
    pub(super) target: u64,
    answers: Option<Running>,
    /// The end of the source is watched.
    is_watched: bool,
    /// The transfer of the records has ended.
    pub(super) is_answered: bool,
    /// The last transfer was not cancelled and has not failed.
    pub(super) is_intact: bool,
    /// The target was told that no more commands follow.
    is_shut: bool,
}

impl Link {
    pub(super) fn to(target: u64) -> Link {
        Link {
            target,
            answers: None,
            is_watched: false,
            is_answered: false,
            is_intact: false,
            is_shut: false,
        }
    }

    /// Starts to return the records to the source, unless that is done already. `id`: the
    /// descriptor of the link.
    ///
    /// # Errors
    ///
    /// That of the refused transfer.
    pub(super) fn answer(&mut self, id: u64, held: &Held) -> Result<(), Errno> {
        if self.answers.is_none() {
            let [source, target] = held.ends.each_ref().map(AsFd::as_fd);
            let (request, backend) = (held.environment.request(), held.environment.backend);
            let answers = Transfer::duplicating_with(target, source, request, Some(backend))
                .and_then(Transfer::start);
            let answers =
                answers.map_err(|failure| failure.report.errno.unwrap_or(Errno::EINVAL))?;
            let registry = Arc::clone(&held.registry);
            answers.on_end(move |_| registry.send(Message::Answered(id)));
            self.answers = Some(answers);
        }
        Ok(())
    }

    /// Returns whether the source is to be watched from now on. A socket that is not connected
    /// yet would be reported as hung up before.
    pub(super) fn begins_watch(&mut self) -> bool {
        let begins = self.answers.is_some() && !self.is_watched;
        self.is_watched |= begins;
        begins
    }

    /// Returns whether all records are returned. No more commands follow: the target then
    /// closes its end once it has carried out all of them and its records are read.
    pub(super) fn is_over(&mut self, target: &OwnedFd) -> bool {
        // The owner has ended the link, or one side has failed.
        if !self.is_intact {
            return true;
        }
        if !std::mem::replace(&mut self.is_shut, true) {
            let _ = shutdown(target, Shutdown::Write);
        }
        self.is_answered
    }
}
