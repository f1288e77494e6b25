//! The request: several sources, their sink, and how they take turns.

use std::os::fd::BorrowedFd;

use super::outcome::{FanInOutcome, Refused};
use super::policy::{OnFailure, Turn};
use super::run::{self, Parts};
use crate::compose::{Poll, Waiter};
use crate::endpoint::{Endpoint, Side};
use crate::errno::Errno;
use crate::pair::{self, Relation};
use crate::plan;
use crate::report::Refusal;
use crate::request::Request;
use crate::transfer::{Control, Observer};

/// The default length of the longest record that is not divided.
const LONGEST: usize = 1 << 20;

/// Several sources and one sink.
///
/// ```
/// use cordboard::fan_in::Turn;
/// use cordboard::{FanIn, Request};
/// use std::os::fd::AsFd;
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::io::{Seek, Write};
/// # let (mut a, mut b, sink) = (tempfile::tempfile()?, tempfile::tempfile()?, tempfile::tempfile()?);
/// # a.write_all(b"one\n")?;
/// # a.rewind()?;
/// # b.write_all(b"two\n")?;
/// # b.rewind()?;
/// let sources = [a.as_fd(), b.as_fd()];
/// let outcome = FanIn::new(&sources, sink.as_fd(), Request::default())?
///     .turn(Turn::ByRecord { delimiter: b'\n' })?
///     .run()?;
/// for source in &outcome.sources {
///     assert_eq!(source.read, source.written + source.stranded);
/// }
/// # assert_eq!(outcome.written, 8);
/// # Ok(())
/// # }
/// ```
pub struct FanIn<'a> {
    parts: Parts<'a>,
}

impl<'a> FanIn<'a> {
    /// Examines the descriptors. No byte moves yet. The request applies to each source
    /// and to the sink; its size is the size of each source.
    ///
    /// # Errors
    ///
    /// As [`Transfer::new`](crate::Transfer::new), for each source. In addition,
    /// `EINVAL` if a source is also the sink, if two sources are the same file, block
    /// device, terminal, pipe or stream socket, or one open file description of another
    /// device other than `/dev/zero` and similar devices, or if there is no source.
    pub fn new(
        sources: &[BorrowedFd<'a>],
        sink: BorrowedFd<'a>,
        request: Request,
    ) -> Result<FanIn<'a>, Refused> {
        let mut examined: Vec<Endpoint<'a>> = Vec::new();
        let mut into = None;
        for (source_index, fd) in sources.iter().enumerate() {
            let refused = |refusal| Refused {
                source_index,
                refusal,
            };
            let decided = plan::decide(*fd, sink, &request).map_err(refused)?;
            if pair::relation(&decided.source, &decided.sink) != Relation::Strangers {
                return Err(refused(Refusal::Overlap));
            }
            let same = |other| pair::is_same(other, &decided.source);
            if examined.iter().any(same) {
                return Err(refused(Refusal::SameSources));
            }
            examined.push(decided.source);
            into = Some(decided.sink);
        }
        let Some(sink) = into else {
            let (side, errno) = (Side::Source, Errno::EINVAL);
            let refusal = Refusal::Unusable { side, errno };
            return Err(Refused {
                source_index: 0,
                refusal,
            });
        };
        let sources = examined.into_iter().map(|end| (end, OnFailure::End));
        let parts = Parts {
            sources: sources.collect(),
            sink,
            request,
            turn: Turn::default(),
            longest: LONGEST,
            control: None,
            observer: None,
        };
        Ok(FanIn { parts })
    }

    /// Sets how the sources take turns. The default is [`Turn::ByTurn`] with 64 KiB.
    ///
    /// # Errors
    ///
    /// `EINVAL`: a source has no message boundaries, and the turns are
    /// [`Turn::ByDatagram`].
    pub fn turn(mut self, turn: Turn) -> Result<FanIn<'a>, Refused> {
        // The read end of a pipe does not show whether it holds packets.
        let is_stream = |(end, _): &(Endpoint<'_>, OnFailure)| {
            !end.kind().is_datagram() && !end.kind().is_pipe()
        };
        if turn == Turn::ByDatagram
            && let Some(source_index) = self.parts.sources.iter().position(is_stream)
        {
            let kind = self.parts.sources[source_index].0.kind();
            let refusal = Refusal::NoMessages { kind };
            return Err(Refused {
                source_index,
                refusal,
            });
        }
        self.parts.turn = turn;
        Ok(self)
    }

    /// Sets the length in bytes of the longest record that [`Turn::ByRecord`] does not
    /// divide. The default is 1 MiB. An incomplete record is kept in memory, so each
    /// source can need this amount.
    #[must_use]
    pub fn longest_record(mut self, bytes: usize) -> FanIn<'a> {
        self.parts.longest = bytes;
        self
    }

    /// Sets what happens if a source fails, for every source.
    #[must_use]
    pub fn on_failure(mut self, policy: OnFailure) -> FanIn<'a> {
        self.parts
            .sources
            .iter_mut()
            .for_each(|(_, its)| *its = policy);
        self
    }

    /// Sets what happens if this source fails.
    ///
    /// # Panics
    ///
    /// There is no source of this index.
    #[must_use]
    pub fn source_on_failure(mut self, source: usize, policy: OnFailure) -> FanIn<'a> {
        self.parts.sources[source].1 = policy;
        self
    }

    /// Attaches a handle that can cancel or pause the fan-in, or set a schedule. The
    /// handle acts on the transfer to the sink: during a pause, the sources are read
    /// until the channel in front of the sink is full.
    #[must_use]
    pub fn control(mut self, control: &Control) -> FanIn<'a> {
        self.parts.control = Some(control.clone());
        self
    }

    /// Attaches an observer, which is called on the caller's thread. The bytes read in
    /// its progress are the sum of all sources, and the path is that of the transfer to
    /// the sink.
    #[must_use]
    pub fn observe(mut self, observer: impl Observer + Send + 'a) -> FanIn<'a> {
        self.parts.observer = Some(Box::new(observer));
        self
    }

    /// Moves the bytes, on the caller's thread and a thread of the engine.
    ///
    /// # Errors
    ///
    /// A refusal: no private channel or no engine is available. No byte has moved.
    pub fn run(self) -> Result<FanInOutcome, Refused> {
        self.run_with(&mut Poll::new())
    }

    pub(super) fn run_with(self, waiter: &mut dyn Waiter) -> Result<FanInOutcome, Refused> {
        run::run(self.parts, waiter)
    }
}
