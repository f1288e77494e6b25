//! The request: a source, a sink, and the buffer between them.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;

use super::outcome::{BufferedOutcome, Refused};
use super::run::{self, Parts};
use super::store::Files;
use crate::compose::Poll;
use crate::endpoint::Endpoint;
use crate::pair::{self, Relation};
use crate::path::read_write;
use crate::plan;
use crate::report::Refusal;
use crate::request::{Request, Schedule};
use crate::transfer::{Control, Observer};

/// Where a buffer keeps bytes that do not fit into its pipes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Place {
    /// In files in memory (`memfd_create(2)`, since Linux 3.17).
    #[default]
    Memory,
    /// In files without names in this directory (`O_TMPFILE`).
    Directory(PathBuf),
}

/// A transfer with a large buffer.
///
/// The source is read as fast as it provides bytes, until the number of bytes that were
/// read and not yet written reaches the size of the buffer. The source is then not read
/// until the sink has accepted bytes. The sink accepts bytes at its own rate.
///
/// ```
/// use cordboard::{Buffered, Request};
/// use std::os::fd::AsFd;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::io::{Seek, Write};
/// # let (mut source, sink) = (tempfile::tempfile()?, tempfile::tempfile()?);
/// # source.write_all(b"a burst")?;
/// # source.rewind()?;
/// let size = 64 << 20;
/// let buffered = Buffered::new(source.as_fd(), sink.as_fd(), size, Request::default())?;
/// let outcome = buffered.run()?;
/// assert_eq!(outcome.read, outcome.written + outcome.stranded);
/// # assert_eq!(outcome.written, 7);
/// # Ok(())
/// # }
/// ```
pub struct Buffered<'a> {
    parts: Parts<'a>,
    place: Place,
}

impl<'a> Buffered<'a> {
    /// Examines the descriptors. No byte moves yet. A size of 0 counts as 1. A size that is
    /// less than what the sink takes at once is raised to that: the length of a datagram, or of
    /// a write to a device, if the request has a [`block`](Request::block), 8 bytes for an
    /// eventfd, or a block of direct I/O. [`Buffered::size`] returns the result.
    ///
    /// # Errors
    ///
    /// As [`Transfer::new`](crate::Transfer::new). In addition, `EINVAL` if source and
    /// sink are the same file, block device or pipe, or if both have message boundaries.
    pub fn new(
        source: BorrowedFd<'a>,
        sink: BorrowedFd<'a>,
        size: u64,
        request: Request,
    ) -> Result<Buffered<'a>, Refused> {
        let decided = plan::decide(source, sink, &request).map_err(Refused)?;
        let (source, sink): (Endpoint<'a>, Endpoint<'a>) = (decided.source, decided.sink);
        if pair::relation(&source, &sink) != Relation::Strangers {
            return Err(Refused(Refusal::Overlap));
        }
        if source.kind().is_datagram()
            && (sink.kind().is_datagram() || sink.facts().is_packet_pipe())
        {
            let kind = source.kind();
            return Err(Refused(Refusal::BufferedMessages { kind }));
        }
        // The transfer to the sink collects these bytes before it writes. With a smaller
        // buffer it would wait for the source, and the source for the sink.
        let least = read_write::least_write(sink.facts(), request.block) as u64;
        let parts = Parts {
            source,
            sink,
            size: size.max(least).max(1),
            request,
            control: None,
            intake: Schedule::Unlimited,
            observer: None,
        };
        let place = Place::default();
        Ok(Buffered { parts, place })
    }

    /// Returns the size of the buffer in bytes.
    pub fn size(&self) -> u64 {
        self.parts.size
    }

    /// Sets the place for bytes that do not fit into the private pipes (up to 1 MiB each).
    /// The default is [`Place::Memory`].
    #[must_use]
    pub fn place(mut self, place: Place) -> Buffered<'a> {
        self.place = place;
        self
    }

    /// Attaches a handle that can cancel or pause the transfer, or set a schedule. The
    /// handle acts on the transfer to the sink: during a pause, the source is read until
    /// the buffer is full.
    #[must_use]
    pub fn control(mut self, control: &Control) -> Buffered<'a> {
        self.parts.control = Some(control.clone());
        self
    }

    /// Sets the schedule by which the source is read. The default is
    /// [`Schedule::Unlimited`].
    #[must_use]
    pub fn intake_schedule(mut self, schedule: Schedule) -> Buffered<'a> {
        self.parts.intake = schedule;
        self
    }

    /// Attaches an observer, which is called on the caller's thread. The level of the
    /// buffer is [`Progress::in_transit`](crate::Progress::in_transit).
    #[must_use]
    pub fn observe(mut self, observer: impl Observer + Send + 'a) -> Buffered<'a> {
        self.parts.observer = Some(Box::new(observer));
        self
    }

    /// Moves the bytes, on the caller's thread and a thread of the engine.
    ///
    /// # Errors
    ///
    /// A refusal: no private pipe or no engine is available, or [`Refusal::NoBuffer`].
    /// No byte has moved.
    pub fn run(self) -> Result<BufferedOutcome, Refused> {
        let files = match &self.place {
            Place::Memory => Ok(Files::Memory),
            Place::Directory(directory) => Files::at(directory),
        };
        let files = files.map_err(|errno| Refused(Refusal::NoBuffer { errno }))?;
        run::run(self.parts, files, &mut Poll::new()).map_err(Refused)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::compose::Refuses;
    use crate::errno::Errno;
    use crate::report::Ended;

    #[test]
    fn a_wait_that_fails_is_a_failure_of_neither_side() {
        let (source, _feed) = std::io::pipe().unwrap();
        let sink = testkit::file::file_with(b"");
        let (from, to) = (source.as_fd(), sink.as_fd());
        let buffered = Buffered::new(from, to, 1 << 20, Request::default()).unwrap();
        let outcome = run::run(buffered.parts, Files::Memory, &mut Refuses).unwrap();
        let ended = (outcome.ended, outcome.failed, outcome.errno);
        assert_eq!(ended, (Ended::Error, None, Some(Errno::EPERM)));
        assert!(outcome.wait_failed);
    }
}
